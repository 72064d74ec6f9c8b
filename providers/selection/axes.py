"""Axes of a comparison: the figure that ranks, or the reason for which none does.

A figure that is equal for all runs, or that no run can change, ranks nothing. Of the default figures, the
first one that differs between the runs becomes the axis, if possible by more than its uncertainty.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from providers.measures.assessment import MeasureOptions
from providers.selection.figures import Figure, Taken, cannot_change
from providers.selection.ranking import LEVEL, Estimate, number_of_differences, p_values

_SAME = 1e-12
"""Relative difference up to which two values of one figure are equal, to allow for rounding of sums."""


_WITHIN = "no two runs differ in it by more than its uncertainty"


@dataclass(frozen=True, slots=True)
class Axis:
    """Figure by which all runs are placed."""

    figure: Figure
    constant: str = ""
    """Reason for which the figure does not differ between the runs; empty if it does."""
    passed_over: dict[str, str] = field(default_factory=dict)
    """Figure that was tried before -> reason why it was not used."""
    uncertain: bool = False
    """Whether no two runs differ by more than the uncertainty of the figure."""

    @property
    def ranks(self) -> bool:
        """Whether the figure differs between the runs."""
        return not self.constant

    def document(self) -> dict[str, Any]:
        """Return name, whether it ranks, whether it is constant, and the reason, as plain values."""
        document: dict[str, Any] = {
            "figure": self.figure.name,
            "ranks": self.ranks,
            "constant": bool(self.constant),
        }
        if self.uncertain:
            document["within_uncertainty"] = True
        return document | {"reason": self.constant} if self.constant else document


def axis_of(
    tried: Sequence[Figure],
    runs: Sequence[Taken],
    options: MeasureOptions,
    changed: Sequence[str],
    uncertain: Collection[str] = (),
) -> Axis:
    """Choose the first of the figures that differs between the runs, if possible beyond its uncertainty.

    Parameters
    ----------
    tried : sequence of Figure
        At least one, in the order in which they are tried.
    runs : sequence of Taken
        Figures of each run. A single one takes the first figure that is defined and that it can change.
    options : MeasureOptions
        With which the figures were taken.
    changed : sequence of str
        Fields of which at least one run changes a value.
    uncertain : collection of str
        Figures of which no two runs differ by more than the uncertainty.

    Notes
    -----
    If no figure differs between the runs, the axis is the first one that is defined for all of them, or
    else the one that is defined for most.
    """
    reasons = {figure.name: why_not(figure, runs, options, changed) for figure in tried}
    ranking = [figure for figure in tried if not reasons[figure.name] and _defined(figure, runs) == len(runs)]
    if ranking:
        figure = next((one for one in ranking if one.name not in uncertain), ranking[0])
        others = {
            one.name: _WITHIN if one in ranking else _left(one, reasons, runs)
            for one in tried[: tried.index(figure)]
        }
        return Axis(figure, "", others, figure.name in uncertain)
    most = max(tried, key=lambda figure: _defined(figure, runs))  # the first one of equals
    others = {one.name: _left(one, reasons, runs) for one in tried if one is not most}
    return Axis(most, reasons[most.name], others)


def why_not(figure: Figure, runs: Sequence[Taken], options: MeasureOptions, changed: Sequence[str]) -> str:
    """Return the reason for which the figure does not differ; empty if it does, or if no run has it."""
    values = [taken.values[figure.name] for taken in runs if figure.name in taken.values]
    if not values:
        return ""
    least, most = min(values), max(values)
    same = most - least <= _SAME * max(abs(least), abs(most))
    if reason := cannot_change(figure, options, changed):
        return f"{_value(least, most, same)}: {reason}"
    return f"it is {least:.4g} for every run" if same and len(values) == len(runs) > 1 else ""


def _value(least: float, most: float, same: bool) -> str:
    return f"it is {least:.4g} for every run" if same else f"it is {least:.4g} to {most:.4g} by chance alone"


def _defined(figure: Figure, runs: Sequence[Taken]) -> int:
    return sum(figure.name in taken.values for taken in runs)


def _left(figure: Figure, reasons: dict[str, str], runs: Sequence[Taken]) -> str:
    undefined = (taken.undefined[figure.name] for taken in runs if figure.name in taken.undefined)
    return reasons[figure.name] or next(undefined, "another one is defined for more runs")


def uncertain_figures(figures: Sequence[Figure], points: Sequence[Mapping[str, Estimate]]) -> set[str]:
    """Return the figures of which no two points differ by more than the uncertainty.

    A figure that is equal for all points is missing with a probability of `LEVEL` at most.
    """
    found = set()
    for figure in figures:
        known = [each[figure.name] for each in points if figure.name in each]
        if len(known) > 1 and p_values(known).min() * number_of_differences(len(known), 1) > LEVEL:
            found.add(figure.name)
    return found
