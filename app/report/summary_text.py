"""Render the report summary as sentences."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from app.report.formatting import humanised, listed, named, number
from app.report.small_counts import Discretion

_REASONS = {
    "alone": "in a group of one row",
    "group_too_small": "in a group below the minimum size",
    "check": "restored, because no tried exchange meets the checks",
    "null": "with a null, which keeps its place",
    "partner_class_differs": "of a unit whose partner in the series is in another class",
    "partner_missing": "of a unit whose partner in the series is not in the table",
    "partner_size_differs": "of a unit whose partner in the series has another number of rows",
    "rate": "not drawn, because the rate is below 1",
    "unmatched": "of a household at risk that found no donor",
}

_ROW_EVENTS = {
    "check_broken": "Rows break a check in the release that they met in the source.",
    "check_restored": "Rows keep their own values, since their exchanges broke a check.",
    "dropped": "Rows that could not be swapped were left out.",
    "kept": "Rows that could not be swapped keep their own values.",
    "null_kept": "Rows keep their own values, since a null of the row or household takes no part.",
    "partner_class_differs": "Units are not swapped: their partners in the series are in other classes.",
    "partner_missing": "Units are not swapped: their partners in the series are not in the table.",
    "partner_size_differs": "Units are not swapped: their partners have other numbers of rows.",
    "replaced": "Rows that could not be swapped had their values replaced.",
    "risk_unswapped": "Rows that had to take part for their risk could not be swapped.",
    "suppressed": "Rows that could not be swapped had their values suppressed.",
    "unperturbed": "Rows with a null, NaN or infinity passed through unperturbed.",
}
"""Meaning of the events that are counted by row, so that small counts are masked."""

_OTHER_EVENTS = {
    "category_kept": "A categorical field hardly changed, since nearly all neighbours agree on it.",
    "coarse_numbers": "Cells are narrow compared with the rounding of a field's numbers to float64.",
    "collapsed": "Segments became one value each: float64 cannot distinguish values as close as theirs.",
    "combination_failed": "Combinations could not be run or measured; the table of all says why.",
    "constant": "A field is constant and passed through unchanged.",
    "degree_search_ended": "The search for the wanted number of bins ended before it was reached.",
    "domain_disclosed": "Values are published within a field's own range, which discloses that range.",
    "households_torn": "Members of households no longer have values of one household.",
    "k_anonymity_unused": "No household had to be swapped by k_anonymity: no risk fields are named.",
    "no_localities": "Segments have too few distinct values: only their order is kept.",
    "not_rounded": "Segments were not rounded, because every rounding would break a relation.",
    "nothing_changed": "No value of a field changed.",
    "nothing_to_merge_into": "No bin holds two or more rows, so that no singleton could be merged.",
    "one_bin": "There are too few rows for two bins: all rows are one bin.",
    "quota_not_met": "Fewer households were swapped than the rate asks for: donors were lacking.",
    "relations_leave_nothing": "Segments are published unchanged: their relations allow no other values.",
    "released_before": "The source, or one that has most of its fields, was released before.",
    "reversible_groups": "Rows are in groups of two or three: anyone who knows them can undo the exchange.",
    "risk_differs": "A given risk differs within households: the largest counts.",
    "rows_only_reordered": "The destination holds the rows of the source in another order.",
    "rows_unchanged": "Rows are released with no value changed.",
    "series_started": "This is the first table of its series: a wrong name starts another series.",
    "weak_seed": "The given seed is so short that it can be found by trying all seeds.",
}
"""Meaning of the events that are counted by field, by segment or once."""

_MEANINGS = _ROW_EVENTS | _OTHER_EVENTS


def sentences(
    summary: Mapping[str, Any], fields: int, discretion: Discretion, members: str = "rows"
) -> list[Markup | str]:
    """Describe the size of the table, its groups, participation and changes; ``members``: of the groups."""
    if "took_part" not in summary:
        return []
    rows = int(summary.get("rows", discretion.rows))
    found: list[Markup | str] = [
        f"The table has {discretion.count(rows)} rows and {number(fields)} fields.",
        *_groups(summary, rows, discretion, members),
        f"{_capital(discretion.rows_of_all(int(summary['took_part'])))} took part.",
    ]
    if changed := summary.get("changed"):
        found.append(_changed(changed, discretion))
    return found + _left(summary, discretion)


def events(counts: Mapping[str, int], discretion: Discretion) -> list[tuple[str, str, str]]:
    """Return code, count and meaning of each event, without any row or value."""
    return [
        (
            code,
            number(count) if code in _OTHER_EVENTS else discretion.count(count),
            _MEANINGS.get(code, f"{_capital(humanised(code))}."),
        )
        for code, count in sorted(counts.items())
    ]


def _groups(summary: Mapping[str, Any], rows: int, discretion: Discretion, members: str) -> list[str]:
    groups, size = summary.get("groups"), summary.get("group_size")
    if not groups or not size:
        return []
    if groups == 1 and size["largest"] == rows:
        return ["All rows were one group."]
    smallest, median, largest = (
        f"fewer than {discretion.threshold}" if 0 < size[key] < discretion.threshold else number(size[key])
        for key in ("smallest", "median", "largest")
    )
    if smallest == largest:
        return [f"The method worked within {number(groups)} groups of {smallest} {members} each."]
    return [
        f"The method worked within {number(groups)} groups of {members}: the smallest holds {smallest}, "
        f"the median one {median}, the largest {largest}."
    ]


def _changed(changed: Mapping[str, int], discretion: Discretion) -> Markup | str:
    if len(changed) == 1:
        [(field, rows)] = changed.items()
        share = f" ({discretion.share_of_rows(rows)})" if rows and discretion.rows else ""
        return Markup("In {} the value really differs from the source's in {}{}.").format(
            named(field), discretion.rows_of_all(rows), share
        )
    least, most = min(changed, key=changed.__getitem__), max(changed, key=changed.__getitem__)
    if changed[least] == changed[most]:
        return (
            f"In each of the {number(len(changed))} fields that were worked on the value really differs from "
            f"the source's in {discretion.rows_of_all(changed[least])}."
        )
    return Markup(
        "Of the {} fields that were worked on, {} changed least, in {} of the rows, and {} most, in {}: "
        "there the value really differs from the source's."
    ).format(
        number(len(changed)),
        named(least),
        discretion.share_of_rows(changed[least]),
        named(most),
        discretion.share_of_rows(changed[most]),
    )


def _left(summary: Mapping[str, Any], discretion: Discretion) -> list[Markup | str]:
    found: list[Markup | str] = []
    if suppressed := summary.get("suppressed"):
        found.append(
            f"Values were suppressed or replaced, or the row left out, in {_rows(suppressed, discretion)}."
        )
    if unswapped := summary.get("unswapped"):
        reasons = [
            f"{discretion.count(count)} {_REASONS.get(why, humanised(why))}"
            for why, count in (summary.get("unswapped_reasons") or {}).items()
            if count
        ]
        because = f": {listed(reasons)}" if reasons else ""
        found.append(f"In {_rows(unswapped, discretion)} at least one field kept its place{because}.")
    rate = summary.get("achieved_rate")
    if rate is not None and 0 < rate < 1:
        found.append(
            f"The achieved rate, the mean share of rows that took part, is {discretion.share(rate)}."
        )
    return found


def _rows(count: int, discretion: Discretion) -> str:
    return f"{discretion.count(count)} rows"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
