"""Risk-utility frontier.

Every combination is run with seeds that depend on the service and its parameters alone. It becomes a point
of two figures, taken on the same sample of rows for all. The points that no other one beats are the frontier.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from providers.errors import ParameterError, ProviderError
from providers.measures.assessment import MeasureOptions
from providers.measures.run_figures import measures_stream, release_of_run
from providers.params import StrictModel
from providers.progress import Progress, sub_progress
from providers.randomness.chacha20 import Stream
from providers.selection.assumed_roles import assumed_roles, attackable
from providers.selection.axes import Axis, axis_of
from providers.selection.baseline import chance
from providers.selection.combinations import Combination, Variation
from providers.selection.eligibility import Entry, eligibilities, protected_by, reversible_by
from providers.selection.figures import (
    ATTACK_RISKS,
    DEFAULT_UTILITY,
    Figure,
    Taken,
    averaged_fields,
    comparison_risk,
    named_figure,
    refuse_unused,
    take_figures,
)
from providers.selection.sampled_attacks import ATTACKS
from providers.selection.seeds import point_seed
from providers.selection.verdict import verdict
from providers.swapping.guarantee import point_guarantee

FRONTIER_REVISION = 6
"""Raised when a change alters a frontier for a given seed without a new revision of a service."""

MOST_RUNS = 100

_RUNNING = 0.7
"""Estimated share of the swap in the progress of a run; the rest is measuring."""

LIMITS = (
    "A point says how the method does on this table, by two figures: look at the report of the run that is "
    "to be released, not at the point.",
    "Anyone who tries many combinations and takes the best has fitted the choice to this table.",
    "A figure that is taken on a sample of rows is compared on the same sample at every point.",
)


def _error_of_risk(guessed: float) -> float:
    """Return the standard error of a risk of 0 if a guess is right for this share of the rows."""
    return math.sqrt(guessed * (1 - guessed) / ATTACKS) / (1 - guessed)


ATTACK_LIMIT = (
    f"An attack of a comparison knows no rule of the method, and tries at most {ATTACKS} rows: the "
    f"standard error of its rate is up to {0.5 / math.sqrt(ATTACKS):.3f} for a secret. The risk divides it "
    f"by 1 - b, if a guess is right for a share b of the rows: {_error_of_risk(0.8):.2f} at b = 0.8. A "
    "release without any relation has a risk of this size by chance. Do not choose by smaller differences, "
    "and attack the release before you publish it."
)
"""Further limit if a figure is an attack."""

EPSILON_LIMIT = (
    "The epsilon of a point holds for one release with parameters that do not depend on the source. A choice "
    "by these figures depends on it, and is not covered."
)
"""Further limit if a point has an epsilon."""


class FrontierOptions(StrictModel):
    """Services and parameters to compare, and the two figures to compare them by."""

    services: tuple[Variation, ...] = Field(min_length=1)
    """Services to compare, with their parameters. [1 or more; 500 combinations at most]"""
    risk: str | SkipJsonSchema[None] = Field(default=None, examples=["dcr.p05"])
    """Figure of risk: a measure's key, or key and path. Default: the first of these that differs between the
    runs: `inference_risk`, `linkability_risk`, `record_linkage.rate` if known fields are given,
    `interval_sd.narrow.by_field`, `changed_share`. The last two are taken over the protected fields. The
    attacks take `known_fields` or `key_fields`, by default the fields that no combination moves, and
    `sensitive_fields`, by default those that one does, at most 5."""
    utility: str | SkipJsonSchema[None] = Field(default=None, examples=["delta_rho.sd"])
    """Figure of utility: a measure's key, key and path, or a use of the release: `marginals`, `correlations`,
    `model` (needs `target`), `queries`. Default: the first of these that differs between the runs:
    `delta_rho.mean`, `association.correlation_ratio`, `association.cramers_v`,
    `marginals.mean_distance`."""
    matters: Literal["both", "risk", "utility"] = "both"
    """Axis that matters more. `risk` or `utility`: `recommended` is the point that is best by this figure
    among those that no other one beats; `both`: you choose, and nothing is recommended."""
    runs: Annotated[int, Field(ge=1, le=MOST_RUNS)] = 1
    """Runs of each combination, each with its own seed; a point is the mean of their figures. [1 to 100]"""


@dataclass(frozen=True, slots=True)
class Tried:
    """Figures from which the axes are chosen, in the order in which they are tried."""

    risk: tuple[Figure, ...]
    utility: tuple[Figure, ...]


def frontier_figures(
    options: FrontierOptions, measures: MeasureOptions, combinations: Sequence[Combination], schema: pa.Schema
) -> Tried:
    """Look up the figures of risk and utility.

    Parameters
    ----------
    options : FrontierOptions
    measures : MeasureOptions
    combinations : sequence of Combination
        Those of the options, checked against the schema.
    schema : pa.Schema
        Schema of the source.

    Raises
    ------
    ParameterError
        A figure cannot be taken.
    """
    roles = assumed_roles(measures, (each.params for each in combinations), schema)
    found: dict[str, tuple[Figure, ...]] = {}
    named = {"risk": options.risk, "utility": options.utility}
    defaults = {"risk": comparison_risk(measures, roles), "utility": DEFAULT_UTILITY}
    for concerns, name in named.items():
        names = defaults[concerns] if name is None else (name,)
        found[concerns] = tuple(
            named_figure(each, roles if each in ATTACK_RISKS else measures, f"/{concerns}") for each in names
        )
        for figure in found[concerns]:
            if figure.measure.concerns != concerns:
                raise ParameterError(
                    f"'{figure.name}' is a figure of {figure.measure.concerns}, not of {concerns}",
                    f"/{concerns}",
                )
    refuse_unused(measures, [*found["risk"], *found["utility"]])
    return Tried(found["risk"], found["utility"])


@dataclass(slots=True)
class _Point:
    """One combination, with the results of its runs."""

    combination: Combination
    taken: list[Taken] = field(default_factory=list)
    """Figures of each run."""
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


def frontier(
    table: pa.Table,
    combinations: Sequence[Combination],
    tried: Tried,
    runs: int,
    measures: MeasureOptions,
    seed: bytes,
    seed_bits: int,
    progress: Progress,
    matters: str = "both",
) -> dict[str, Any]:
    """Run every combination and compare them by risk and utility.

    Parameters
    ----------
    table : pa.Table
    combinations : sequence of Combination
        Combinations that were checked against this table's schema.
    tried : Tried
        Figures from which the axes are chosen.
    runs : int
        Runs of each combination.
    measures : MeasureOptions
        Options with which the figures are taken.
    seed : bytes
        Master seed, 32 bytes, from which the seeds of all runs are derived.
    seed_bits : int
        Bits that an exhaustive search for the seed must cover.
    progress : Progress
    matters : {"both", "risk", "utility"}
        Axis by which one of the best points is recommended.

    Returns
    -------
    dict
        ``risk``, ``utility``, ``goals``, ``axes``, ``passed_over``, ``protected``, ``runs``, ``points``,
        ``best``, ``recommended``, ``verdict`` and ``figures``, as plain values; ``attacked`` with the known
        and the sensitive fields if a figure is an attack.

    Notes
    -----
    A combination that cannot be run on this table, or that lacks a figure of an axis, is a point with an
    ``error``. `eligibilities` finds the frontier; if no figure of risk ranks, nothing is best.
    """
    figures = [*tried.risk, *tried.utility]
    roles = _attacked_roles(table, combinations, figures, measures, seed)
    points: list[_Point] = []
    samples: dict[str, int] = {}
    steps = len(combinations) * runs

    def run_once(point: _Point, run: int, step: int, which: str) -> None:
        provider, params = point.combination.provider, point.combination.params
        run_seed = point_seed(seed, provider.identifier, params.model_dump(mode="json"), run)
        stream = Stream(run_seed, provider.identifier, provider.revision)
        running = sub_progress(progress, step / steps, (step + _RUNNING) / steps, which)
        result = provider.swap(table, params, stream, running)
        release = release_of_run(provider, params, table, result, seed_bits)
        measuring = sub_progress(progress, (step + _RUNNING) / steps, (step + 1) / steps, which)
        taken = take_figures(figures, release, measures, measures_stream(seed), measuring, roles)
        samples.update(taken.samples)
        point.taken.append(taken)
        point.changed.append(result.summary.changed)
        point.provider.append(result.provider)

    for index, combination in enumerate(combinations):
        which = f"point {index + 1} of {len(combinations)}, {combination.provider.identifier}"
        point = _Point(combination)
        points.append(point)
        try:
            for run in range(runs):
                run_once(point, run, index * runs + run, which)
        except ProviderError as error:
            point.error = error.message
    compared = _compared(table, points, tried, roles, samples)
    preferred = recommended(compared, matters)
    if preferred is not None:
        compared["recommended"] = preferred
    attacked = any(figure.name in ATTACK_RISKS for figure in figures)
    known = roles.known_fields or roles.key_fields
    if attacked and known and roles.sensitive_fields:
        compared["attacked"] = {"known": list(known), "sensitive": list(roles.sensitive_fields)}
    return compared | {"runs": runs, "matters": matters}


def limits_of(compared: Mapping[str, Any]) -> list[str]:
    """Return the limits of a comparison's figures, for its report."""
    guaranteed = any("guarantee" in point for point in compared["points"])
    attacked = [ATTACK_LIMIT] if "attacked" in compared else []
    return [*LIMITS, *attacked, *([EPSILON_LIMIT] if guaranteed else [])]


def _attacked_roles(
    table: pa.Table,
    combinations: Sequence[Combination],
    figures: Sequence[Figure],
    measures: MeasureOptions,
    seed: bytes,
) -> MeasureOptions:
    """Return the options with the fields of the attacks; unchanged if no figure is an attack."""
    if table.num_rows < 2 or not any(figure.name in ATTACK_RISKS for figure in figures):
        return measures
    roles = assumed_roles(measures, (each.params for each in combinations), table.schema)
    return attackable(roles, measures, table, measures_stream(seed))


def recommended(compared: Mapping[str, Any], matters: str) -> int | None:
    """Return the point that is best on one axis among those that no other one beats; None for both axes.

    Parameters
    ----------
    compared : mapping
        ``points``, ``best`` and ``goals`` of a comparison.
    matters : {"both", "risk", "utility"}
    """
    if matters == "both" or not compared["best"]:
        return None
    other = "utility" if matters == "risk" else "risk"

    def place(index: int) -> tuple[float, float, int]:
        one, two = (
            compared["points"][index][axis] * (1 if compared["goals"][axis] == "low" else -1)
            for axis in (matters, other)
        )
        return one, two, index

    return int(min(compared["best"], key=place))


def _compared(
    table: pa.Table,
    points: Sequence[_Point],
    tried: Tried,
    measures: MeasureOptions,
    samples: Mapping[str, int],
) -> dict[str, Any]:
    """Choose the axes, place the points on them, and compare the points."""
    ran = [point for point in points if not point.error]
    reversible = {id(point): reversible_by(point.provider) for point in ran}
    protects = {id(point): protected_by(point.changed) for point in ran}
    protected = sorted({name for point in ran for one in point.changed for name, rows in one.items() if rows})
    means = {id(point): point.over(protected) for point in ran}
    taken = list(means.values())
    axes = tuple(axis_of(some, taken, measures, protected) for some in (tried.risk, tried.utility))
    for point in ran:
        lacking = [axis.figure.name for axis in axes if axis.figure.name not in means[id(point)].values]
        point.error = "; ".join(f"{name}: {means[id(point)].undefined[name]}" for name in lacking)
    placed = [point for point in ran if not point.error]
    entries = [
        Entry(
            protects[id(point)],
            reversible[id(point)],
            _coordinates(axes, means[id(point)]),
        )
        for point in placed
    ]
    found = dict(
        zip(map(id, placed), eligibilities(entries, (axes[0].figure.goal, axes[1].figure.goal)), strict=True)
    )
    names = [figure.name for figure in (*tried.risk, *tried.utility)]
    documents = []
    for point in points:
        document: dict[str, Any] = {
            "service": point.combination.provider.identifier,
            "parameters": point.combination.given,
        }
        if point.error:
            documents.append(document | {"error": point.error, "dominated": True})
            continue
        values, eligibility = means[id(point)].values, found[id(point)]
        document |= {
            "risk": values[axes[0].figure.name],
            "utility": values[axes[1].figure.name],
            "figures": {name: values[name] for name in names if name in values},
            "protects": sorted(protects[id(point)]),
            "protects_fewer": bool(eligibility.unprotected),
            "unprotected": list(eligibility.unprotected),
            "reversible": reversible[id(point)],
            "dominated": eligibility.dominated or not axes[0].ranks,
        }
        # Groups, hence rate and epsilon, are the same in all runs of a combination.
        document |= point_guarantee(point.provider[0])
        if len(point.taken) > 1:
            document["ranges"] = {name: point.range_of(name, protected) for name in document["figures"]}
        documents.append(document)
    runs = [run for one in ran for run in one.taken]
    return {
        "risk": axes[0].figure.name,
        "utility": axes[1].figure.name,
        "goals": {"risk": axes[0].figure.goal, "utility": axes[1].figure.goal},
        "axes": {
            "risk": axes[0].document() | _baseline(axes[0].figure, table, measures, runs, protected),
            "utility": axes[1].document(),
        },
        "passed_over": axes[0].passed_over | axes[1].passed_over,
        "protected": protected,
        "points": documents,
        "best": [index for index, document in enumerate(documents) if not document["dominated"]],
        "verdict": verdict(documents, axes[0], axes[1]),
        "figures": {
            figure.name: figure.described(samples, averaged_fields(figure, runs, protected))
            for figure in (*tried.risk, *tried.utility)
            if any(figure.name in document.get("figures", {}) for document in documents)
        },
    }


def _baseline(
    figure: Figure, table: pa.Table, measures: MeasureOptions, runs: Sequence[Taken], protected: Sequence[str]
) -> dict[str, Any]:
    """Return the figure's value by chance alone, and the meaning of chance; empty if unknown.

    A mean over fields is taken over those of the runs' own means: some, such as weights, have no figure.
    """
    level = chance(figure, table, measures, averaged_fields(figure, runs, protected) or protected)
    return {} if level is None else {"baseline": level[0], "baseline_of": level[1]}


def _coordinates(axes: Sequence[Axis], taken: Taken) -> tuple[float, float]:
    """Return the values on the axes; 0 on an axis that does not rank, so that it has no effect."""
    risk, utility = (taken.values[axis.figure.name] if axis.ranks else 0.0 for axis in axes)
    return risk, utility
