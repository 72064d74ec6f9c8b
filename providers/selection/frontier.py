"""Risk-utility frontier.

Every combination is run with seeds that depend on the service and its parameters alone. It becomes a point
of two figures, taken on the same sample of rows for all. The points that no other one beats are the frontier.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from providers.errors import ParameterError, ProviderError
from providers.measures.assessment import MeasureOptions
from providers.measures.run_figures import measures_stream, release_of_run
from providers.params import StrictModel
from providers.progress import Progress, sub_progress
from providers.selection.assumed_roles import assumed_roles, attackable
from providers.selection.combinations import Combination, Variation
from providers.selection.figures import (
    ATTACK_RISKS,
    DEFAULT_UTILITY,
    Figure,
    comparison_risk,
    named_figure,
    refuse_unused,
    take_figures,
)
from providers.selection.intervals import take_row_groups
from providers.selection.points import Point, Tried, compared_points, figures_in_new_runs
from providers.selection.sampled_attacks import ATTACKS
from providers.selection.seeds import point_seed

FRONTIER_REVISION = 16
"""Raised when a change alters a frontier for a given seed without a new revision of a service."""

MOST_RUNS = 100

_RUNNING = 0.7
"""Estimated share of the swap in the progress of a run; the rest is measuring."""

LIMITS = (
    "A point says how the method does on this table, by two figures: look at the report of the run that is "
    "to be released, not at the point.",
    "Anyone who tries many combinations and takes the best has fitted the choice to this table: its figures "
    "are better than they would be in new runs, since their errors are part of the choice.",
    "A figure that is taken on a sample of rows is compared on the same sample at every point.",
    "An interval of one run covers other rows like these. It also covers about the variation between seeds, "
    "if each row or group has its own draws. It misses a draw that all rows share, as in PABIDOT: take "
    "several runs of such a method.",
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
    `interval_sd.robust.by_field`, `changed_share`. The last two are means over the protected fields. The
    attacks know `known_fields` or `key_fields`, by default the fields that no combination moves. They attack
    `sensitive_fields`, by default at most 5 fields that a combination moves."""
    utility: str | SkipJsonSchema[None] = Field(default=None, examples=["delta_rho.sd"])
    """Figure of utility: a measure's key, key and path, or a use of the release: `marginals`, `correlations`,
    `model` (needs `target`), `queries`. Default: the first of these that differs between the runs:
    `delta_rho.ranks.mean`, `association.correlation_ratio`, `association.cramers_v`,
    `marginals.mean_distance`."""
    matters: Literal["both", "risk", "utility"] = "both"
    """Axis that matters more. `risk` or `utility`: `recommended` is the point of the frontier that is best by
    this figure, and is run once more with other seeds. `both`: you choose, and nothing is recommended."""
    runs: Annotated[int, Field(ge=1, le=MOST_RUNS)] = 1
    """Runs of each combination, each with its own seed; a point is the mean of their figures. More runs make
    the intervals of the points narrower. [1 to 100]"""


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
        and the sensitive fields if a figure is an attack; ``recommended_in_new_runs``.

    Notes
    -----
    A combination that cannot be run on this table, or that lacks a figure of an axis, is a point with an
    ``error``. `eligibilities` finds the frontier; if no figure of risk ranks, nothing is best. The
    recommended point has its figures in new runs, too: those by which it was picked are good by chance.
    """
    figures = [*tried.risk, *tried.utility]
    measures = with_units(measures, combinations)
    roles = _attacked_roles(table, combinations, figures, measures, seed)
    points: list[Point] = []
    samples: dict[str, int] = {}
    steps = (len(combinations) + (matters != "both")) * runs
    streams = measures_stream(seed), measures_stream(measures_stream(seed).key("recommended").tobytes())

    def run_once(point: Point, run: int, step: int, which: str) -> None:
        provider, params = point.combination.provider, point.combination.params
        run_seed = point_seed(seed, provider.identifier, params.model_dump(mode="json"), run)
        stream = provider.stream(run_seed)
        running = sub_progress(progress, step / steps, (step + _RUNNING) / steps, which)
        result = provider.swap(table, params, stream, running)
        release = release_of_run(provider, params, table, result, seed_bits)
        measuring = sub_progress(progress, (step + _RUNNING) / steps, (step + 1) / steps, which)
        measured = streams[run >= runs]  # new runs are measured on other rows
        taken = take_figures(figures, release, measures, measured, measuring, roles)
        if not point.taken:
            point.groups = take_row_groups(figures, release, measures, measured)
        samples.update(taken.samples)
        point.taken.append(taken)
        point.changed.append(result.summary.changed)
        point.provider.append(result.provider)

    for index, combination in enumerate(combinations):
        which = f"point {index + 1} of {len(combinations)}, {combination.provider.identifier}"
        point = Point(combination)
        points.append(point)
        try:
            for run in range(runs):
                run_once(point, run, index * runs + run, which)
        except ProviderError as error:
            point.error = error.message
    compared = compared_points(table, points, tried, roles, samples, streams[0], matters)
    if "recommended" in compared:
        again = Point(combinations[compared["recommended"]])
        for run in range(runs, 2 * runs):
            run_once(again, run, steps - 2 * runs + run, "the recommended point in new runs")
        compared["recommended_in_new_runs"] = figures_in_new_runs(again, figures, compared)
    attacked = any(figure.name in ATTACK_RISKS for figure in figures)
    known = roles.known_fields or roles.key_fields
    if attacked and known and roles.sensitive_fields:
        compared["attacked"] = {"known": list(known), "sensitive": list(roles.sensitive_fields)}
    return compared | {"runs": runs, "matters": matters}


def with_units(measures: MeasureOptions, combinations: Sequence[Combination]) -> MeasureOptions:
    """Return the options with the units of the combinations, so that all points count the same persons."""
    named = (getattr(each.params, "unit_id", None) for each in combinations)
    unit = measures.unit_field or next(filter(None, named), None)
    return measures.model_copy(update={"unit_field": unit})


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
