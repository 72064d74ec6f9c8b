"""Which service, with which parameters: the risk and the utility of many combinations on one table.

Every combination is run, with seeds that depend on the service and its parameters alone, and is a point
of two figures, all taken on the same sample of rows. What no other point beats is the frontier.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import pyarrow as pa
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from providers.choosing.combinations import Combination, Variation
from providers.choosing.domination import dominated
from providers.choosing.figures import (
    UTILITY,
    Figure,
    default_risk,
    named_figure,
    refuse_unused,
    take_figures,
)
from providers.choosing.seeds import point_seed
from providers.errors import ParameterError, ProviderError
from providers.measures.assessment import MeasureOptions
from providers.measures.runs import measures_stream, released_by
from providers.params import StrictModel
from providers.provider import Progress, part_of
from providers.rng import Stream

FRONTIER_REVISION = 1
"""Raised when a change alters a frontier for a given seed, the services' revisions being the same."""

MOST_RUNS = 100

_RUNNING = 0.7  # of a run's share of the progress, at a guess; the rest is measuring

LIMITS = (
    "A point says how the method does on this table, by two figures: look at the report of the run that is "
    "to be released, not at the point.",
    "Whoever tries many combinations and takes the best has fitted the choice to this table.",
    "A figure that is taken on a sample of rows is compared on the same sample at every point.",
)


class FrontierOptions(StrictModel):
    """What is compared, and by which two figures."""

    services: tuple[Variation, ...] = Field(min_length=1)
    """The services to compare. [1 or more; 500 combinations at most]"""
    risk: str | SkipJsonSchema[None] = Field(default=None, examples=["dcr.p05"])
    """The figure of risk: a measure's key, or key and place. Default: `pscr`, or `record_linkage.rate`
    where it is said what an intruder knows."""
    utility: str = Field(default=UTILITY, examples=["total_correlation.after"])
    """The figure of utility."""
    runs: Annotated[int, Field(ge=1, le=MOST_RUNS)] = 1
    """Runs of each combination, with seeds of their own; a point is the mean of their figures. [1 to 100]"""


def frontier_figures(options: FrontierOptions, measures: MeasureOptions) -> tuple[Figure, Figure]:
    """The figure of risk and that of utility. Raises ParameterError, with a pointer."""
    figures = []
    for name, concerns in ((options.risk or default_risk(measures), "risk"), (options.utility, "utility")):
        figure = named_figure(name, measures, f"/{concerns}")
        if figure.measure.concerns != concerns:
            raise ParameterError(
                f"'{figure.name}' is a figure of {figure.measure.concerns}, not of {concerns}", f"/{concerns}"
            )
        figures.append(figure)
    refuse_unused(measures, figures)
    return figures[0], figures[1]


def frontier(
    table: pa.Table,
    combinations: Sequence[Combination],
    figures: tuple[Figure, Figure],
    runs: int,
    measures: MeasureOptions,
    seed: bytes,
    seed_bits: int,
    progress: Progress,
) -> dict[str, Any]:
    """``risk``, ``utility``, ``goals``, ``runs``, ``points``, and what the figures are, as plain values.

    Parameters
    ----------
    table : pa.Table
    combinations : sequence of Combination
        Of this table's schema.
    figures : tuple of Figure
        Of risk and of utility.
    runs : int
        Runs of each combination.
    measures : MeasureOptions
        How the figures are taken.
    seed : bytes
        32 bytes, from which all others are derived.
    seed_bits : int
        Bits that an exhaustive search for it must cover.

    Notes
    -----
    A combination that cannot be run on this table, or that has no such figure, is a point with an
    ``error``; it is never on the frontier.
    """
    points: list[dict[str, Any]] = []
    samples: dict[str, int] = {}
    steps = len(combinations) * runs

    def figures_of(combination: Combination, run: int, step: int, which: str) -> list[float]:
        provider, params = combination.provider, combination.params
        own = point_seed(seed, provider.identifier, params.model_dump(mode="json"), run)
        stream = Stream(own, provider.identifier, provider.revision)
        running = part_of(progress, step / steps, (step + _RUNNING) / steps, which)
        result = provider.swap(table, params, stream, running)
        released = released_by(provider, params, table, result, seed_bits)
        measuring = part_of(progress, (step + _RUNNING) / steps, (step + 1) / steps, which)
        taken = take_figures(figures, released, measures, measures_stream(seed), measuring)
        samples.update(taken.samples)
        for name, reason in taken.undefined.items():
            raise ProviderError(f"{name}: {reason}")
        return [taken.values[figure.name] for figure in figures]

    for at, combination in enumerate(combinations):
        which = f"point {at + 1} of {len(combinations)}, {combination.provider.identifier}"
        point = {"service": combination.provider.identifier, "parameters": combination.given}
        try:
            found = [figures_of(combination, run, at * runs + run, which) for run in range(runs)]
            risk, utility = (math.fsum(values) / runs for values in zip(*found, strict=True))
            points.append(point | {"risk": risk, "utility": utility})
        except ProviderError as error:
            points.append(point | {"error": error.message})
    _mark_dominated(points, figures)
    return {
        "risk": figures[0].name,
        "utility": figures[1].name,
        "goals": {"risk": figures[0].goal, "utility": figures[1].goal},
        "runs": runs,
        "points": points,
        "figures": {figure.name: figure.described(samples) for figure in figures},
    }


def _mark_dominated(points: Sequence[dict[str, Any]], figures: tuple[Figure, Figure]) -> None:
    """Say of each point whether another one beats it; one with an error is beaten by whatever has none."""
    placed = [point for point in points if "error" not in point]
    pairs = [(point["risk"], point["utility"]) for point in placed]
    for point in points:
        point["dominated"] = True
    for point, beaten in zip(placed, dominated(pairs, (figures[0].goal, figures[1].goal)), strict=True):
        point["dominated"] = bool(beaten)
