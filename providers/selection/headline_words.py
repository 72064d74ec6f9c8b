"""Words of a report's headline."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from providers.attacks.thresholds import Bounds

_STATES = {
    "low": "Low risk",
    "elevated": "Elevated risk",
    "high": "High risk",
}

NO_FIGURE_OF_RISK = "The risk is not known: no figure of this report measures it against chance."

ONE_ROW = (
    "The risk is not known: the table has one row, which every intruder finds, and no other row to compare "
    "it with."
)

NONE_IS_BETTER = "No combination is called better than another one."

NOTHING_MEASURED = "The utility is not known: nothing was measured."

ACTIONS = {
    "low": "Attack the release before you publish it: these figures are those of one kind of intruder.",
    "attacked": "Before you publish it, check that the attacks name every field that an intruder may know.",
    "elevated": "Look at the figures of risk below before you publish it.",
    "high": "Do not publish it as it is.",
    "unknown": "Name the fields that an intruder knows ('key_fields') and those to protect "
    "('sensitive_fields') with the report 'full', or attack the release.",
    "advice": "Attack it with 'advice' to see which parameters lower the risk.",
    "unjudged": "Give these fields the names and types that they have in the source, or name the fields to "
    "protect in 'sensitive_fields'; 'left_out' has the reason for each.",
    "one_row": "Judge the row together with the others that you publish: alone it cannot be mistaken for "
    "another one.",
    "incomparable": "Change the combinations or the figure of risk, as the verdict of the comparison says.",
    "compared": "Choose a combination, run it, and attack its release before you publish it.",
}
"""Sentence with the action, by state; `attacked`: low, after attacks; `advice`: added if nothing is known of
the parameters; `unjudged`: low, but for fields that were not judged; `one_row`: of a table of one row;
`compared`: of a comparison; `incomparable`: of one without a best combination."""

_SHOWN = 1e-4
"""Smallest figure, or share in per cent, that is shown; readers need not know powers of ten."""

_NAMES = 3
"""Most names of fields in a sentence."""


def state_words(state: str) -> str:
    """Return the words with which the first sentence begins."""
    return _STATES[state]


def threshold_words(risk: float, bounds: Bounds) -> str:
    """Compare a risk with its bounds."""
    if risk > bounds.high:
        return f"above {bounds.high:g}"
    return f"above {bounds.elevated:g}" if risk > bounds.elevated else f"not above {bounds.elevated:g}"


def lowered(sentence: str) -> str:
    """Return a sentence as it continues after a colon: without its capital, unless it begins a name."""
    first = sentence.partition(" ")[0]
    return sentence[:1].lower() + sentence[1:] if first[1:] == first[1:].lower() else sentence


def names_of(names: Sequence[str], most: int = _NAMES) -> str:
    """Join words; beyond `most` only their number is given."""
    shown, more = list(names[:most]), len(names) - most
    if more > 0:
        shown.append(f"{more} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def fields_of(names: Sequence[str]) -> str:
    """Join names of fields, in quotes as in the reasons of attacks."""
    return names_of([f"'{name}'" for name in names])


def share_words(share: float, rows: int, threshold: int) -> str:
    """Format a share in per cent; as a bound if it, or what remains, is of fewer rows than the threshold.

    In a table of fewer rows than the threshold a share between none and all is "some".
    """
    few = threshold / rows if rows else 0.0
    if few >= 1:
        return "some" if 0 < share < 1 else _percent(share)
    if 0 < share < few:
        return f"below {max(100 * few, _SHOWN):.3g} %"
    if 0 < 1 - share < few:
        return f"above {_percent(1 - few)}"
    return _percent(share)


def risk_words(risk: float, rows: int, threshold: int, bounds: Bounds, *, bound: bool) -> str:
    """Format a risk and compare it with its bounds.

    A risk of fewer rows than the threshold is shown as a bound, or in a table of fewer rows not at all.

    Parameters
    ----------
    risk : float
    rows : int
        Rows of the table; 0 if it is unknown.
    threshold : int
    bounds : Bounds
    bound : bool
        Whether the risk is an upper bound.
    """
    few = threshold / rows if rows else 0.0
    compared = threshold_words(risk, bounds)
    if 0 < risk < few:
        return f"below {max(few, _SHOWN):.3g}, {compared}" if few < 1 else compared
    if 0 < risk < _SHOWN:
        return f"below {_SHOWN:g}, {compared}"
    return f"{'at most ' if bound else ''}{risk:.3g}, {compared}"


def _percent(share: float) -> str:
    return f"{_figure(100 * share)} %" if share < 0.995 else f"{100 * share:.5g} %"


def _figure(value: float) -> str:
    """Format a figure of 0 or more with three significant digits; a small one has no power of ten."""
    return f"less than {_SHOWN:g}" if 0 < value < _SHOWN else f"{value:.3g}"


def reading_words(
    readings: Mapping[str, tuple[float, float, str | None]],
    known: Sequence[str],
    used: Sequence[str],
    moving: str,
    shown: Callable[[float], str],
) -> str:
    """Describe the figures that decide: the rows that are found, and the true values that are read there.

    Parameters
    ----------
    readings : mapping of str to tuple
        Figure -> its value, its value by chance, and its field.
    known : sequence of str
        Fields that the intruder knows.
    used : sequence of str
        Those by which rows are found; empty if all are.
    moving : str
        What the run exchanges: ``row``, ``household`` or ``unit``.
    shown : callable
        Describes a share.
    """
    words = []
    if found := readings.get("record_linkage"):
        who = f"an intruder who knows {fields_of(known)}" if known else "an intruder"
        who += f", and uses {fields_of(used)} alone," if used else ""
        words.append(f"{who} finds {shown(found[0])} of the rows ({_percent(found[1])} by chance)")
    if true := readings.get("true_values"):
        share, chance, field = true
        reader = "" if words else "an intruder who finds a row "
        words.append(
            f"{reader}reads a true or close value of '{field}' in {shown(share)} of the rows "
            f"({_percent(chance)} by chance)"
        )
    if undone := readings.get("reversible_rows"):
        words.append(
            f"anybody who knows the groups undoes the exchange in {shown(undone[0])} of the {moving}s, "
            "which are in groups of two or three"
        )
    return " and ".join(words)


def constant_words(fields: Sequence[str]) -> str:
    """Return the sentence on a risk of fields that have one value each, which chance always reads."""
    have = f"{fields_of(fields)} has" if len(fields) == 1 else f"each of {fields_of(fields)} has"
    return (
        f"The risk is not known: {have} the same value in all rows, so that an intruder knows it without "
        "the release."
    )


def unjudged_words(fields: Sequence[str], sentence: str) -> str:
    """Return the sentence on a risk that is low only by the fields that could be compared."""
    are = "is" if len(fields) == 1 else "are"
    return (
        f"The risk is not known: {fields_of(fields)} {are} published and could not be compared with the "
        f"source. By the other fields: {lowered(sentence)}"
    )


def utility_words(
    measures: Mapping[str, Any], pictures: Mapping[str, Any], rows: int, *, whole: bool = True
) -> str:
    """Describe the change of distributions and rank correlations, compared with a random table.

    Parameters
    ----------
    measures, pictures : mapping
        Members of the report.
    rows : int
        Number of rows of the release; 0 if it is unknown.
    whole : bool
        Whether every published field could be compared.
    """
    sentences = []
    marginals = (measures.get("marginals") or {}).get("value") or {}
    if marginals:
        sentences.append(
            f"every {'' if whole else 'compared '}field keeps its distribution"
            if marginals.get("identical") == 1
            else f"distributions differ by {_figure(marginals['mean_distance'])} on average (range 0 to 1)"
        )
    change = (((measures.get("delta_rho") or {}).get("value") or {}).get("ranks") or {}).get("mean")
    if change is not None:
        dealt = change_by_chance(measures, pictures, rows)
        against = f" ({_figure(dealt)} if the changed fields were dealt at random)" if dealt else ""
        sentences.append(f"rank correlations change by {_figure(change)} on average{against}")
    if not sentences:
        changed = (measures.get("changed_share") or {}).get("value") or {}
        if not changed:
            return NOTHING_MEASURED
        return f"The utility is not known; {len(changed)} field{'' if len(changed) == 1 else 's'} took part."
    return f"Utility: {', and '.join(sentences)}."


def change_by_chance(measures: Mapping[str, Any], pictures: Mapping[str, Any], rows: int) -> float | None:
    """Mean change of the rank correlations if the values of the changed fields were dealt at random.

    Without any relation the correlation of n rows is not 0: its standard deviation is 1 / sqrt(n - 1), also
    that of ranks. The expected change is the mean of a folded normal variable. None if the source's rank
    correlations are unknown.
    """
    matrix = pictures.get("correlations") or {}
    changed = ((measures.get("changed_share") or {}).get("per_row") or {}).get("fields")
    fields, source = matrix.get("fields") or [], matrix.get("source_ranks")
    measured = (measures.get("delta_rho") or {}).get("fields") or ()
    if not changed or source is None or list(measured) != list(fields):
        return None
    deviation = 1 / math.sqrt(rows - 1) if rows > 1 else 0.0
    changes = [
        _folded_mean(source[i][j], deviation) if fields[i] in changed or fields[j] in changed else 0.0
        for i in range(len(fields))
        for j in range(i)
        if source[i][j] is not None
    ]
    return sum(changes) / len(changes) if changes else None


def _folded_mean(mean: float, deviation: float) -> float:
    """Return the mean of the absolute value of a normal variable."""
    if deviation == 0:
        return abs(mean)
    scaled = mean / deviation
    spread = deviation * math.sqrt(2 / math.pi) * math.exp(-scaled * scaled / 2)
    return spread + mean * math.erf(scaled / math.sqrt(2))
