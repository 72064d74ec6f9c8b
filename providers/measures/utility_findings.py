"""The utility measures taken of a case: which fields and rows they see, and when they do not apply."""

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
import numpy.typing as npt

from providers.measures.association import correlation_ratio, cramers_v, mean_change
from providers.measures.blocks import correlations
from providers.measures.case import Case, Finding
from providers.measures.columns import Float64Array, Side
from providers.measures.explained import explained, identifiers
from providers.measures.learning import CLUSTERS, clustering_error
from providers.measures.marginals import marginal_of_categories, marginal_of_numbers, together
from providers.measures.measure import NotApplicable
from providers.measures.predicted import predicted
from providers.measures.queries import QUERIES, RangeAverages, drawn_queries, query_error, relative_errors
from providers.measures.regression import il3, r_squared
from providers.measures.relations import (
    binned,
    bins_of,
    change_of_components,
    change_of_correlations,
    information_shared,
)
from providers.measures.sampling import random_state, uniforms
from providers.measures.utility import entropy_increase, nearness_kept

_FEWEST = 10


def _marginals(case: Case) -> Finding:
    if not case.columns:
        raise NotApplicable("no field can be compared")
    by_field = {}
    for at, (name, column) in enumerate(case.columns.items()):
        case.progress(at / len(case.columns), "measuring marginals")
        if column.kind == "category":
            by_field[name] = marginal_of_categories(column.codes("source"), column.codes("destination"))
        else:
            both = column.numbers("source"), column.numbers("destination")
            by_field[name] = marginal_of_numbers(*both, float(column.offset), case.options.threshold)
    return Finding(together(by_field), list(case.columns))


def correlations_of(case: Case) -> tuple[Float64Array, Float64Array]:
    """The correlations of the fields of numbers in both tables. Raises NotApplicable of fewer than two."""
    if case.correlations is None:
        fields = case.need_numeric(2)
        case.need_rows(2)
        case.correlations = (
            correlations(lambda: case.blocks("source", fields), len(fields)),
            correlations(lambda: case.blocks("destination", fields), len(fields)),
        )
    return case.correlations


def _delta_rho(case: Case) -> Finding:
    return Finding(change_of_correlations(*correlations_of(case)), case.numeric)


def _il2(case: Case) -> Finding:
    before, after = correlations_of(case)
    vary = np.flatnonzero(~np.isnan(np.diag(before)))
    if len(vary) < 2:
        raise NotApplicable("fewer than two fields of numbers vary in the source")
    first, second = change_of_components(before[np.ix_(vary, vary)], after[np.ix_(vary, vary)])
    return Finding({"pc1": first, "pc2": second}, [case.numeric[at] for at in vary])


def _association(case: Case) -> Finding:
    case.need_rows(2)
    categories = [name for name in case.categorical if name not in identifiers(case)]
    if not categories or len(categories) + len(case.numeric) < 2:
        raise NotApplicable("it needs a category of few values, and another field")
    sides: tuple[Side, Side] = ("source", "destination")
    pairs = list(combinations(categories, 2))
    by_v: dict[Side, list[float | None]] = {side: [] for side in sides}
    by_eta: dict[Side, list[float | None]] = {side: [] for side in sides}
    for at, (one, two) in enumerate(pairs):
        case.progress(at / (2 * len(pairs)), "measuring association")
        for side in sides:
            codes = case.columns[one].codes(side), case.columns[two].codes(side)
            by_v[side].append(cramers_v(*codes))
    for at, name in enumerate(case.numeric):
        case.progress(0.5 + at / (2 * len(case.numeric)), "measuring association")
        for side in sides:
            numbers = case.columns[name].numbers(side)
            by_eta[side] += [correlation_ratio(case.columns[one].codes(side), numbers) for one in categories]
    value = {
        "cramers_v": mean_change(by_v["source"], by_v["destination"]),
        "correlation_ratio": mean_change(by_eta["source"], by_eta["destination"]),
    }
    if value["cramers_v"] is None and value["correlation_ratio"] is None:
        raise NotApplicable("no category varies together with another field in the source")
    return Finding(value, [*categories, *case.numeric])


def _il3(case: Case) -> Finding:
    of = explained(case)
    if not len(of.source.coefficients):
        raise NotApplicable("no level of the categories that explain the target is frequent enough")
    return Finding(il3(of.source, of.destination), of.fields)


def _r_squared(case: Case) -> Finding:
    of = explained(case)
    return Finding(r_squared(of.source, of.destination), of.fields)


def _total_correlation(case: Case) -> Finding:
    case.need_rows()
    if len(case.columns) < 2:
        raise NotApplicable("it needs two fields or more")

    def codes(side: Side) -> Iterator[npt.NDArray[np.signedinteger]]:
        bins = bins_of(case.rows[side])
        for at, column in enumerate(case.columns.values()):
            case.progress(at / len(case.columns), "measuring total correlation")
            yield column.codes(side) if column.kind == "category" else binned(column.numbers(side), bins)

    sides = {"before": codes("source"), "after": codes("destination")}
    return Finding({name: information_shared(of) for name, of in sides.items()}, list(case.columns))


def _distortion(case: Case) -> Finding:
    case.need_pairs()
    fields = [name for name in case.numeric if case.columns[name].kind == "number"]
    total, cells, zeros, missing = 0.0, 0, 0, 0
    for name in fields:
        before, after = case.pairs(name)
        offset = float(case.columns[name].offset)
        there = ~np.isnan(before) & ~np.isnan(after)
        before, after = before[there], after[there]
        counted = before + offset != 0
        zeros += int(len(before) - counted.sum())
        missing += int(np.count_nonzero(~there))
        cells += int(counted.sum())
        total += float(np.sum(np.abs(after - before)[counted] / np.abs(before + offset)[counted]))
    if not cells:
        raise NotApplicable("no number other than 0 is in both tables")
    every = cells + zeros + missing
    left_out = {"zero": zeros / every, "missing": missing / every}
    return Finding(total / cells, fields, notes={"left_out_share": left_out})


def _scaled_samples(case: Case) -> tuple[Float64Array, Float64Array]:
    """The numbers of the sample by the source's ranges, missing ones at the source's median."""
    before, after = (np.array(table) for table in case.sampled_matrices)
    for at in range(before.shape[1]):
        there = before[:, at][~np.isnan(before[:, at])]
        low, high = (there.min(), there.max()) if len(there) else (0.0, 0.0)
        middle = float(np.median(there)) if len(there) else 0.0
        for table in (before, after):
            table[np.isnan(table[:, at]), at] = middle
            table[:, at] = (table[:, at] - low) / ((high - low) or 1.0)
    return before, after


def _clustering_error(case: Case) -> Finding:
    case.need_pairs()
    case.need_rows(_FEWEST)
    fields = case.need_numeric()
    before, after = _scaled_samples(case)
    if not np.isfinite(before).all() or not np.isfinite(after).all():
        raise NotApplicable("numbers are too far from the source's range for a distance")
    clusters = min(CLUSTERS, len(np.unique(before, axis=0)))
    if clusters < 2 or len(before) < _FEWEST:
        raise NotApplicable("it needs two different rows or more, and 10 in all")
    state = random_state(case.stream, "clustering_error")
    error = clustering_error(before, after, state, clusters)
    return Finding(error, fields, case.drawn.size, {"clusters": clusters})


def _query_error(case: Case) -> Finding:
    fields = [name for name in case.numeric if case.columns[name].kind == "number"]
    if len(fields) < 2:
        raise NotApplicable("it needs two fields of numbers or more")
    case.need_rows()
    drawn = uniforms(4 * QUERIES, case.stream, "query_error").reshape(QUERIES, 4)
    queries = drawn_queries(drawn, len(fields))
    errors = []
    for done, range_field in enumerate(sorted({query[0] for query in queries})):
        case.progress(done / len(fields), "asking queries")
        column = case.columns[fields[range_field]]
        before, after = RangeAverages(column.numbers("source")), RangeAverages(column.numbers("destination"))
        mine = [query for query in queries if query[0] == range_field]
        for averaged in sorted({query[1] for query in mine}):
            ranges = [before.range_at(start, width) for _, of, start, width in mine if of == averaged]
            known = [one for one in ranges if one is not None]
            other = case.columns[fields[averaged]]
            offset = float(other.offset)
            asked = before.averages(other.numbers("source"), known) + offset
            answered = after.averages(other.numbers("destination"), known) + offset
            errors.append(relative_errors(asked, answered))
    return Finding(query_error(np.concatenate(errors)), fields)


def _entropy_increase(case: Case) -> Finding:
    by_field = {}
    for name in case.need_numeric():
        column = case.columns[name]
        increase = entropy_increase(column.numbers("source"), column.numbers("destination"))
        if increase is not None:
            by_field[name] = increase
    if not by_field:
        raise NotApplicable("no field of numbers has a value in both tables")
    return Finding({"mean": sum(by_field.values()) / len(by_field), "by_field": by_field}, list(by_field))


def _relations_kept(case: Case) -> Finding:
    case.need_pairs()
    case.need_rows(3)
    fields = case.need_numeric()
    before, after = case.sampled_matrices
    rows = len(before)
    found = held = 0
    for at, name in enumerate(fields):
        drawn = uniforms(3 * case.options.sample, case.stream, f"relations_kept/{name}").reshape(-1, 3)
        triples = np.minimum((drawn * rows).astype(np.int64), rows - 1)
        counted, kept = nearness_kept(before[triples, at], after[triples, at])
        found, held = found + counted, held + kept
    if not found:
        raise NotApplicable("no three different numbers of a field have a nearer one")
    return Finding(held / found, fields, case.drawn.size, {"triples": found})


UTILITY: dict[str, Callable[[Case], Finding]] = {
    "marginals": _marginals,
    "delta_rho": _delta_rho,
    "association": _association,
    "il2": _il2,
    "il3": _il3,
    "r_squared": _r_squared,
    "total_correlation": _total_correlation,
    "distortion": _distortion,
    "clustering_error": _clustering_error,
    "query_error": _query_error,
    "prediction": predicted,
    "entropy_increase": _entropy_increase,
    "relations_kept": _relations_kept,
}
