"""Result of a comparison in words: the best points, or the reason for which there is none and what to do."""

from collections.abc import Mapping, Sequence
from typing import Any

from providers.selection.axes import Axis

_OTHER_RISK = "Name another figure of 'risk', or known fields of which a combination changes some values"

_LARGER_GROUPS = (
    "Make the groups larger ('block_size', 'k', 'bins', 'classifier') or suppress small ones "
    "('min_group_size')"
)


def verdict(points: Sequence[Mapping[str, Any]], risk: Axis, utility: Axis) -> str:
    """Return sentences on the points that are best, or on the reasons for which none is and what to do.

    Parameters
    ----------
    points : sequence of mapping
        Points of the report: each has ``error``, or ``reversible``, ``protects_fewer`` and ``dominated``.
    risk, utility : Axis
    """
    placed = [point for point in points if "error" not in point]
    reversible = [point for point in placed if point["reversible"]]
    fewer = [point for point in placed if point["protects_fewer"]]
    best = [point for point in placed if not point["dominated"]]
    sentences = []
    if not placed:
        return "No combination has figures: see the error of each."
    if len(placed) == 1:
        sentences.append("One combination has figures: there was nothing to compare it with.")
    if not risk.ranks:
        sentences.append(
            f"No combination is called better: the figure of risk, '{risk.figure.name}', does not rank, "
            f"since {risk.constant}. {_OTHER_RISK}."
        )
    elif len(placed) == len(reversible):
        sentences.append(f"No combination is called better: anybody can undo each of them. {_LARGER_GROUPS}.")
    elif len(placed) > 1:
        sentences.append(
            f"{len(best)} of {len(placed)} combinations {'is' if len(best) == 1 else 'are'} not dominated."
        )
    if risk.ranks and not utility.ranks:
        sentences.append(
            f"Risk alone ranks: the figure of utility, '{utility.figure.name}', does not, since "
            f"{utility.constant}."
        )
    if reversible and len(placed) > len(reversible):
        sentences.append(
            f"{len(reversible)} can be undone by anybody, since some of the groups have two or three rows; "
            f"such a run is never called better. {_LARGER_GROUPS}."
        )
    if fewer:
        sentences.append(
            f"{len(fewer)} protect{'s' if len(fewer) == 1 else ''} fewer fields than others and "
            f"{'is' if len(fewer) == 1 else 'are'} not called better; compare what protects the same fields."
        )
    return " ".join(sentences)
