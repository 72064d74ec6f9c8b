"""Result of a comparison in words: the best points, or the reason why there is none, with the remedy."""

from collections.abc import Mapping, Sequence
from typing import Any

from providers.selection.axes import Axis

_OTHER_RISK = "Name another figure of 'risk', or known fields of which a combination changes some values"

_LARGER_GROUPS = (
    "Make the groups larger ('block_size', 'k', 'bins', 'classifier') or suppress small ones "
    "('min_group_size')"
)


def verdict(points: Sequence[Mapping[str, Any]], risk: Axis, utility: Axis) -> str:
    """Return sentences on the best points, or on the reasons why there is none, with the remedy.

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
    if risk.ranks:
        sentences += _uncertainty(best, risk, utility)
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
            f"{'is' if len(fewer) == 1 else 'are'} not called better; compare combinations that protect the "
            "same fields."
        )
    return " ".join(sentences)


def _uncertainty(best: Sequence[Mapping[str, Any]], risk: Axis, utility: Axis) -> list[str]:
    """Return sentences on differences within the uncertainty, and on figures without an interval."""
    sentences = []
    close = sum(1 for point in best if point.get("within_uncertainty_of"))
    if close:
        sentences.append(
            f"{close} of these {'is' if close == 1 else 'are'} less good than another one in one or both "
            "figures, but by no more than the uncertainty."
        )
    for axis in (risk, utility):
        name, concerns = axis.figure.name, axis.figure.measure.concerns
        if axis.uncertain:
            sentences.append(
                f"No two combinations differ in the figure of {concerns}, '{name}', by more than its "
                "uncertainty."
            )
        if axis.ranks and any(f"{concerns}_interval" not in point for point in best):
            sentences.append(
                f"The figure of {concerns}, '{name}', has no interval for a single run, so that any "
                "difference in it decides, also by chance: take several 'runs'."
            )
    return sentences
