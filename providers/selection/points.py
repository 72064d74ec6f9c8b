"""Points of a comparison: mean figures of the runs with intervals, the axes, and the frontier."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from providers.measures.assessment import MeasureOptions
from providers.measures.shared.measure import Goal
from providers.randomness.chacha20 import Stream
from providers.selection.axes import Axis, axis_of, uncertain_figures
from providers.selection.baseline import chance
from providers.selection.combinations import Combination
from providers.selection.eligibility import (
    Eligibility,
    Entry,
    eligibilities,
    protected_by,
    reversible_by,
    shown_at,
)
from providers.selection.figures import Figure, Taken, averaged_fields
from providers.selection.intervals import RowGroups, covered, freedom_of, interval_of
from providers.selection.ranking import Estimate, number_of_differences, p_values
from providers.selection.verdict import verdict
from providers.swapping.guarantee import point_guarantee

_AXES = ("risk", "utility")


@dataclass(frozen=True, slots=True)
class Tried:
    """Figures from which the axes are chosen, in the order in which they are tried."""

    risk: tuple[Figure, ...]
    utility: tuple[Figure, ...]


@dataclass(slots=True)
class Point:
    """One combination, with the results of its runs."""

    combination: Combination
    taken: list[Taken] = field(default_factory=list)
    """Figures of each run."""
    groups: RowGroups | None = None
    """Figures of the first run without groups of its rows; None if there is no such figure."""
    changed: list[Mapping[str, int]] = field(default_factory=list)
    """For each run, field -> rows whose value differs from the source's."""
    provider: list[Mapping[str, Any]] = field(default_factory=list)
    """Provider's own figures of each run."""
    error: str = ""

    def over(self, protected: Sequence[str]) -> Taken:
        """Mean of the figures over the runs; means over fields are taken over the protected fields."""
        runs = [taken.over(protected) for taken in self.taken]
        undefined = {name: reason for taken in runs for name, reason in taken.undefined.items()}
        names = set(runs[0].values) - undefined.keys()
        values = {name: math.fsum(taken.values[name] for taken in runs) / len(runs) for name in names}
        return Taken(values, undefined, {}, {})

    def range_of(self, name: str, protected: Sequence[str]) -> list[float]:
        """Least and greatest value of a figure over the runs, with the same fields as `over`."""
        values = [taken.over(protected).values[name] for taken in self.taken]
        return [min(values), max(values)]

    def estimates(
        self, figures: Sequence[Figure], means: Taken, protected: Sequence[str]
    ) -> dict[str, Estimate]:
        """Return figure -> its mean with the interval, if it has one."""
        return {
            figure.name: Estimate(
                means.values[figure.name],
                interval_of(figure, self.taken, self.groups, protected),
                freedom_of(figure, self.taken, self.groups, protected),
            )
            for figure in figures
            if figure.name in means.values
        }


@dataclass(frozen=True, slots=True)
class _Results:
    """Results of all runs of a point together."""

    point: Point
    means: Taken
    estimates: Mapping[str, Estimate]
    protects: frozenset[str]
    reversible: Mapping[str, int]

    def entry(self, axes: Sequence[Axis]) -> Entry:
        """Return the point for the comparison with others; 0 on an axis that does not rank."""
        risk, utility = (self.estimates[axis.figure.name] if axis.ranks else Estimate(0.0) for axis in axes)
        return Entry(self.protects, self.reversible, (risk, utility))

    def document(
        self, axes: Sequence[Axis], names: Sequence[str], found: Eligibility, places: Sequence[int]
    ) -> dict[str, Any]:
        """Return the point's part of the report, without its service and parameters.

        ``names``: figures to show. ``places``: index in the report of each entry that was compared.
        """
        values = self.means.values
        intervals = {name: one.interval for name, one in self.estimates.items() if one.interval}
        risk, utility = (axis.figure.name for axis in axes)
        document: dict[str, Any] = {
            "risk": values[risk],
            "utility": values[utility],
            "figures": {name: values[name] for name in names if name in values},
            "intervals": intervals,
            "protects": sorted(self.protects),
            "protects_fewer": bool(found.unprotected),
            "unprotected": list(found.unprotected),
            "reversible": self.reversible,
            "dominated": found.dominated or not axes[0].ranks,
        }
        for axis in axes:
            if axis.figure.name in intervals:
                document[f"{axis.figure.measure.concerns}_interval"] = intervals[axis.figure.name]
        if axes[0].ranks and found.within_uncertainty_of:
            document["within_uncertainty_of"] = [places[other] for other in found.within_uncertainty_of]
        # Groups, hence rate and epsilon, are the same in all runs of a combination.
        return document | point_guarantee(self.point.provider[0])


def compared_points(
    table: pa.Table,
    points: Sequence[Point],
    tried: Tried,
    measures: MeasureOptions,
    samples: Mapping[str, int],
    stream: Stream,
    matters: str = "both",
) -> dict[str, Any]:
    """Choose the axes, place the points on them, compare the points, and recommend one if an axis matters.

    ``stream``: randomness of a value by chance.
    """
    ran = [point for point in points if not point.error]
    protected = sorted({name for point in ran for one in point.changed for name, rows in one.items() if rows})
    figures = (*tried.risk, *tried.utility)
    names = [figure.name for figure in figures]
    results = [_results(point, figures, protected) for point in ran]
    axes = _axes(tried, results, measures, protected)
    placed = [one for one in results if not one.point.error]
    places = [index for index, point in enumerate(points) if not point.error]
    goals = axes[0].figure.goal, axes[1].figure.goal
    entries = [one.entry(axes) for one in placed]
    level = shown_at(entries, number_of_differences(len(ran), len(figures)))
    found = eligibilities(entries, goals, level)
    of_place = dict(zip(places, zip(placed, found, strict=True), strict=True))
    documents = []
    for index, point in enumerate(points):
        document: dict[str, Any] = {
            "service": point.combination.provider.identifier,
            "parameters": point.combination.given,
        }
        if point.error:
            documents.append(document | {"error": point.error, "dominated": True})
            continue
        one, eligibility = of_place[index]
        document |= one.document(axes, names, eligibility, places)
        if len(point.taken) > 1:
            document["ranges"] = {name: point.range_of(name, protected) for name in document["figures"]}
        documents.append(document)
    runs = [run for one in ran for run in one.taken]
    best = [index for index, document in enumerate(documents) if not document["dominated"]]
    preferred: dict[str, Any] = {}
    if matters != "both" and best:
        axis = _AXES.index(matters)
        figures_of = {index: of_place[index][0].entry(axes).figures for index in best}
        chosen = _recommended(documents, best, matters, dict(zip(_AXES, goals, strict=True)))
        preferred["recommended"] = chosen
        close = [
            index
            for index in best
            if index != chosen and p_values([figures_of[index][axis], figures_of[chosen][axis]])[0, 1] > level
        ]
        if close:
            preferred["recommended_within_uncertainty"] = close
    return preferred | {
        "risk": axes[0].figure.name,
        "utility": axes[1].figure.name,
        "goals": {"risk": goals[0], "utility": goals[1]},
        "axes": {
            "risk": axes[0].document() | _baseline(axes[0].figure, table, measures, ran, protected, stream),
            "utility": axes[1].document(),
        },
        "passed_over": axes[0].passed_over | axes[1].passed_over,
        "protected": protected,
        "points": documents,
        "best": best,
        "verdict": verdict(documents, axes[0], axes[1]),
        "figures": {
            figure.name: figure.described(samples, averaged_fields(figure, runs, protected))
            | _covered(figure, ran)
            for figure in figures
            if any(figure.name in document.get("figures", {}) for document in documents)
        },
    }


def _recommended(
    documents: Sequence[Mapping[str, Any]], best: Sequence[int], matters: str, goals: Mapping[str, Goal]
) -> int:
    """Return the point that is best on the axis that matters, and of equals on the other one."""

    def place(index: int) -> tuple[float, float, int]:
        one, two = (
            documents[index][axis] * (1 if goals[axis] == "low" else -1)
            for axis in sorted(_AXES, key=lambda axis: axis != matters)
        )
        return one, two, index

    return min(best, key=place)


def figures_in_new_runs(
    again: Point, figures: Sequence[Figure], compared: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the defined figures of the axes in new runs of a point, with their intervals."""
    protected = compared["protected"]
    estimates = again.estimates(figures, again.over(protected), protected)
    found: dict[str, Any] = {}
    for axis in _AXES:
        if (estimate := estimates.get(compared[axis])) is not None:
            found[axis] = estimate.value
            if estimate.interval is not None:
                found[f"{axis}_interval"] = estimate.interval
    return found


def _results(point: Point, figures: Sequence[Figure], protected: Sequence[str]) -> _Results:
    means = point.over(protected)
    return _Results(
        point,
        means,
        point.estimates(figures, means, protected),
        protected_by(point.changed),
        reversible_by(point.provider),
    )


def _axes(
    tried: Tried, results: Sequence[_Results], measures: MeasureOptions, protected: Sequence[str]
) -> tuple[Axis, Axis]:
    """Choose the axes of risk and utility, and note the error of each point that lacks a figure of theirs."""
    means = [one.means for one in results]
    uncertain = uncertain_figures((*tried.risk, *tried.utility), [one.estimates for one in results])
    risk, utility = (
        axis_of(some, means, measures, protected, uncertain) for some in (tried.risk, tried.utility)
    )
    for one in results:
        names = [axis.figure.name for axis in (risk, utility)]
        lacking = [name for name in names if name not in one.means.values]
        one.point.error = "; ".join(f"{name}: {one.means.undefined[name]}" for name in lacking)
    return risk, utility


def _baseline(
    figure: Figure,
    table: pa.Table,
    measures: MeasureOptions,
    points: Sequence[Point],
    protected: Sequence[str],
    stream: Stream,
) -> dict[str, Any]:
    """Return the figure's value by chance alone, and the meaning of chance; empty if unknown.

    A mean over fields is taken over those of the runs' own means: some, such as weights, have no figure.
    """
    if not points:
        return {}
    runs = [run for point in points for run in point.taken]
    averaged = averaged_fields(figure, runs, protected) or protected
    level = chance(figure, table, measures, averaged, points[0].combination.params, stream)
    return {} if level is None else {"baseline": level[0], "baseline_of": level[1]}


def _covered(figure: Figure, points: Sequence[Point]) -> dict[str, str]:
    """Return the causes of error that the intervals of a figure cover; empty if it has none."""
    taken = [run for point in points for run in point.taken]
    own = any(figure.name in run.intervals for run in taken)
    runs, groups = max(len(point.taken) for point in points), any(point.groups for point in points)
    covers = covered(figure, runs, own, groups, any(figure.measure.key in run.samples for run in taken))
    return {"interval_covers": covers} if covers else {}
