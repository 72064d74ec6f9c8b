"""Best of several seeds.

Candidate i is the run with `candidate_seed(master, i)`, whatever the number of candidates. All candidates are
measured on the same sample of rows and ranked by each figure; the candidate with the lowest mean rank is
kept. It is run again at the end unless it was the last one, so that memory never holds more than one
destination.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import pyarrow as pa
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from providers.errors import ParameterError
from providers.measures.assessment import MeasureOptions
from providers.measures.run_figures import FIGURES_REVISION, measures_stream, release_of_run
from providers.params import Params, StrictModel
from providers.progress import Progress, sub_progress
from providers.provider import Provider
from providers.results import SwapResult
from providers.selection.axes import axis_of, uncertain_figures, why_not
from providers.selection.eligibility import protected_by, reversible_by
from providers.selection.figures import (
    DEFAULT_UTILITY,
    Figure,
    Taken,
    averaged_fields,
    default_risk,
    named_figure,
    take_figures,
)
from providers.selection.intervals import freedom_of
from providers.selection.ranking import Estimate, best, mean_ranks
from providers.selection.seeds import candidate_seed
from providers.swapping.guarantee import point_guarantee

MOST_CANDIDATES = 100

CHOICE_REVISION = f"7.{FIGURES_REVISION}"
"""Revision of the choice and of its measures. It changes when another candidate may be kept for a given seed;
a job whose candidate was chosen by another revision is not rerun."""

_RUNNING = 0.7
"""Estimated share of the run in the progress of a candidate; the rest is measuring."""


class CandidateOptions(StrictModel):
    """Number of runs from which the best one is chosen, and the figures that rank them."""

    count: Annotated[int, Field(ge=1, le=MOST_CANDIDATES)] = 1
    """Number of runs, each with its own seed derived from the job's seed. [1 to 100]"""
    rank_by: tuple[str, ...] = Field(default=(), examples=[["pscr", "delta_rho.mean"]])
    """Figures that rank the candidates: keys of measures, or key and path as in `dcr.p05`. The candidate with
    the lowest mean rank is kept; if several have it, the first of them. A figure that is the same for all
    candidates does not rank. Default: one figure of risk and one of utility. Each is the first that differs
    between the candidates, in the order of `POST /v1/frontier`."""
    utility: str | SkipJsonSchema[None] = Field(default=None, examples=["correlations"])
    """Figure of utility in place of the default, together with the default figure of risk; as in `POST
    /v1/frontier`."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The candidate that was kept, with the evidence."""

    result: SwapResult
    index: int = 0
    evidence: dict[str, Any] = field(default_factory=dict)
    """``rank_by``, ``chosen``, ``table`` (index, values, rank of each), ``left_out``, ``protected``,
    ``verdict``, ``on_other_rows`` if figures were taken on some rows, and descriptions of the ``figures``;
    empty if there was no choice."""


def ranking_figures(options: CandidateOptions, measures: MeasureOptions) -> list[Figure]:
    """Return the figures that may rank the candidates: the named ones, or all default ones.

    Raises
    ------
    ParameterError
        A figure cannot rank candidates. The pointer is below /candidates.
    """
    figures: list[Figure] = []
    named: set[str] = set()
    utility = DEFAULT_UTILITY if options.utility is None else (options.utility,)
    if options.utility is not None and options.rank_by:
        raise ParameterError("give 'utility' or 'rank_by'", "/candidates/utility")
    for index, name in enumerate(options.rank_by or (*default_risk(measures), *utility)):
        pointer = "/candidates/utility" if name == options.utility else f"/candidates/rank_by/{index}"
        figure = named_figure(name, measures, pointer)
        if reason := figure.measure.cannot_rank:
            raise ParameterError(f"'{figure.name}' cannot rank candidates: {reason}", pointer)
        if name == options.utility and figure.measure.concerns != "utility":
            raise ParameterError(f"'{figure.name}' is a figure of risk, not of utility", pointer)
        if figure.name in named:
            raise ParameterError(f"'{figure.name}' is named twice; name it once", pointer)
        named.add(figure.name)
        figures.append(figure)
    return figures


def choose(
    provider: Provider[Any],
    table: pa.Table,
    params: Params,
    seed: bytes,
    seed_bits: int,
    options: CandidateOptions,
    measures: MeasureOptions,
    progress: Progress,
) -> Choice:
    """Run `options.count` candidates and keep the best one.

    Parameters
    ----------
    provider : Provider
    table : pa.Table
    params : Params
        Checked against the table's schema.
    seed : bytes
        Master seed, 32 bytes.
    seed_bits : int
        Bits that an exhaustive search for the seed must cover.
    options : CandidateOptions
        Checked; the count is two or more.
    measures : MeasureOptions
        Options with which the figures are taken.

    Raises
    ------
    ParameterError
        No figure applies to these tables, or a named one does not.
    """
    figures = ranking_figures(options, measures)
    taken: list[Taken] = []
    changed: list[Mapping[str, int]] = []
    reversible: list[dict[str, int]] = []
    guarantees: list[dict[str, Any]] = []
    result: SwapResult | None = None

    whole = options.count + _RUNNING  # the chosen one is run again

    def run(index: int, place: int, which: str) -> SwapResult:
        stream = provider.stream(candidate_seed(seed, index))
        running = sub_progress(progress, place / whole, (place + _RUNNING) / whole, which)
        return provider.swap(table, params, stream, running)

    for index in range(options.count):
        result = None  # frees the previous destination before the next one is made
        which = f"candidate {index + 1} of {options.count}"
        result = run(index, index, which)
        released = release_of_run(provider, params, table, result, seed_bits)
        measuring = sub_progress(progress, (index + _RUNNING) / whole, (index + 1) / whole, which)
        taken.append(take_figures(figures, released, measures, measures_stream(seed), measuring))
        changed.append(result.summary.changed)
        reversible.append(reversible_by([result.provider]))
        guarantees.append(point_guarantee(result.provider))
        del released
    runs = _Runs(taken, changed, reversible)
    ranked, left_out = _ranking(figures, runs, measures, named=bool(options.rank_by))
    ranking = (
        mean_ranks([([one.values.get(figure.name) for one in runs.over], figure.goal) for figure in ranked])
        if ranked
        else [1.0] * options.count
    )
    chosen = best(ranking, runs.behind())
    if chosen != options.count - 1:
        result = None
        result = run(chosen, options.count, "the chosen one")
    assert result is not None  # noqa: S101 - there is at least one candidate
    again = _take_again(ranked, taken[chosen], provider, table, params, result, seed, seed_bits, measures)
    names = [figure.name for figure in figures if any(figure.name in one.values for one in runs.over)]
    lines = [
        {
            "index": index,
            "values": {name: one.values[name] for name in names if name in one.values},
            "rank": rank,
            "protects_fewer": runs.protects_fewer(index),
            "reversible": runs.reversible[index],
        }
        | guarantees[index]
        for index, (one, rank) in enumerate(zip(runs.over, ranking, strict=True))
    ]
    samples = {key: rows for candidate in taken for key, rows in candidate.samples.items()}
    evidence = {
        "rank_by": [figure.name for figure in ranked],
        "chosen": chosen,
        "table": lines,
        "left_out": left_out,
        "protected": runs.protected,
        "verdict": _verdict(ranked, runs, again, runs.over[chosen].values),
        "figures": {
            figure.name: figure.described(samples, averaged_fields(figure, taken, runs.protected))
            for figure in figures
            if figure.name in names
        },
    }
    if again is not None:
        evidence["on_other_rows"] = again.values
    return Choice(result, chosen, evidence)


def _take_again(
    ranked: Sequence[Figure],
    taken: Taken,
    provider: Provider[Any],
    table: pa.Table,
    params: Params,
    result: SwapResult,
    seed: bytes,
    seed_bits: int,
    measures: MeasureOptions,
) -> Taken | None:
    """Compute the sampled figures of the kept candidate again, on other random rows.

    The best of several figures of a sample is usually better than the figure of all rows, since its error is
    part of the choice. None if all ranking figures were computed on all rows.
    """
    attacked = {name for name, tried in taken.attempts.items() if len(tried[0].terms) < table.num_rows}
    sampled = [one for one in ranked if one.name in attacked or one.measure.key in taken.samples]
    if not sampled:
        return None
    released = release_of_run(provider, params, table, result, seed_bits)
    other = measures_stream(measures_stream(seed).key("kept candidate").tobytes())
    protected = sorted(protected_by([result.summary.changed]))
    return take_figures(sampled, released, measures, other).over(protected)


class _Runs:
    """Figures, protected fields and reversible rows of all candidates."""

    def __init__(
        self, taken: Sequence[Taken], changed: Sequence[Mapping[str, int]], reversible: list[dict[str, int]]
    ) -> None:
        self.protects = [protected_by([one]) for one in changed]
        self.protected = sorted(frozenset[str]().union(*self.protects))
        self.over = [one.over(self.protected) for one in taken]
        self.reversible = reversible

    def protects_fewer(self, index: int) -> bool:
        """Whether another candidate protects all fields that this one protects, and more."""
        return any(fields > self.protects[index] for fields in self.protects)

    def behind(self) -> list[tuple[bool, ...]]:
        """Return for each candidate whether it is reversible, and whether it protects fewer fields."""
        return [(bool(self.reversible[index]), self.protects_fewer(index)) for index in range(len(self.over))]


def _ranking(
    figures: Sequence[Figure], runs: _Runs, measures: MeasureOptions, named: bool
) -> tuple[list[Figure], dict[str, str]]:
    """Return the ranking figures, and for each other figure the reason why it does not rank.

    Raises ParameterError if a named figure is undefined for every candidate, or if all figures are.
    """
    left_out: dict[str, str] = {}
    for index, figure in enumerate(figures):
        if any(figure.name in one.values for one in runs.over):
            continue
        left_out[figure.name] = runs.over[0].undefined[figure.name]
        if named:
            raise ParameterError(
                f"'{figure.name}' cannot rank the candidates: {left_out[figure.name]}",
                f"/candidates/rank_by/{index}",
            )
    if len(left_out) == len(figures):
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise ParameterError(
            f"no figure ranks the candidates of this table ({reasons}); name others in 'rank_by'",
            "/candidates/rank_by",
        )
    if named:
        reasons_of = {figure: why_not(figure, runs.over, measures, runs.protected) for figure in figures}
        left_out |= {figure.name: reason for figure, reason in reasons_of.items() if reason}
        return [figure for figure, reason in reasons_of.items() if not reason], left_out
    ranked = []
    for concerns in ("risk", "utility"):
        tried = [figure for figure in figures if figure.measure.concerns == concerns]
        axis = axis_of(tried, runs.over, measures, runs.protected)
        left_out |= axis.passed_over
        if not axis.ranks:
            left_out[axis.figure.name] = axis.constant
        elif axis.figure.name not in left_out:
            ranked.append(axis.figure)
    return ranked, left_out


def _verdict(ranked: Sequence[Figure], runs: _Runs, again: Taken | None, kept: Mapping[str, float]) -> str:
    """Return sentences on limits of the choice; empty if there are none.

    ``again``: figures of the kept candidate on other rows; ``kept``: those by which it was chosen.
    """
    sentences = []
    with_intervals = [one for one in ranked if all(one.name in known.intervals for known in runs.over)]
    of_runs = [
        {
            one.name: Estimate(
                known.values[one.name], known.intervals[one.name], freedom_of(one, [known], None, ())
            )
            for one in with_intervals
        }
        for known in runs.over
    ]
    if close := uncertain_figures(with_intervals, of_runs):
        names = " and ".join(f"'{figure.name}'" for figure in with_intervals if figure.name in close)
        sentences.append(f"No two candidates differ in {names} by more than the uncertainty.")
    if again is not None and again.values:
        values = ", ".join(
            f"'{name}' is {value:.3g}, in place of {kept[name]:.3g}" for name, value in again.values.items()
        )
        sentences.append(
            "The choice favours values that are good by chance: on other rows of the kept candidate "
            f"{values}."
        )
    if not ranked:
        sentences.append(
            "No figure distinguishes the candidates, and the first one is kept: name others in 'rank_by'."
        )
    elif not any(figure.measure.concerns == "risk" for figure in ranked):
        sentences.append("No figure of risk ranks the candidates: the one that is kept is not the safer one.")
    if all(runs.reversible):
        sentences.append(
            "Anybody can undo each of them, since some of the groups have two or three rows: make the groups "
            "larger."
        )
    return " ".join(sentences)
