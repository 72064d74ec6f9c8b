"""Several runs of one service, of which the best is kept, chosen by figures from one master seed.

Candidate i of any number of candidates is the run with `candidate_seed(master, i)`. All are measured on
the same sample of rows, ranked figure by figure, and the one with the least mean of ranks is kept. It is
run once more at the end, unless it was the last one, so that there is never more than one destination.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import pyarrow as pa
from pydantic import Field

from providers.choosing.figures import UTILITY, Figure, Taken, default_risk, named_figure, take_figures
from providers.choosing.ranking import best, mean_ranks
from providers.choosing.seeds import candidate_seed
from providers.errors import ParameterError
from providers.measures.assessment import MeasureOptions
from providers.measures.runs import measures_stream, released_by
from providers.params import Params, StrictModel
from providers.provider import Progress, Provider, SwapResult, part_of
from providers.rng import Stream

MOST_CANDIDATES = 100

_RUNNING = 0.7  # of a candidate's share of the progress, at a guess; the rest is measuring
_OF_THE_METHOD = {
    "prediction": "it perturbs a part of the rows anew and is the same for every candidate",
    "inversion_bits": "it is the same for every candidate",
    "p_privacy": "it is the same for every candidate",
}


class CandidateOptions(StrictModel):
    """How many runs the best one is chosen from, and by what."""

    count: Annotated[int, Field(ge=1, le=MOST_CANDIDATES)] = 1
    """Runs with seeds of their own, all derived from the job's seed. [1 to 100]"""
    rank_by: tuple[str, ...] = Field(default=(), examples=[["pscr", "delta_rho.mean"]])
    """The figures that rank them: a measure's key, or key and place as in `dcr.p05`. The candidate with
    the least mean of ranks is kept; of several, the first. Default: of risk `pscr`, or
    `record_linkage.rate` where `measures` says what an intruder knows; of utility `delta_rho.mean`; those
    of them that apply."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The candidate that was kept, and why."""

    result: SwapResult
    index: int = 0
    evidence: dict[str, Any] = field(default_factory=dict)
    """``rank_by``, ``chosen``, ``table`` (index, values, rank of each), ``left_out``, and what the
    ``figures`` are; empty where there was no choice."""


def ranking_figures(options: CandidateOptions, measures: MeasureOptions) -> list[Figure]:
    """The figures that rank the candidates.

    Raises
    ------
    ParameterError
        One cannot rank candidates. The pointer is below /candidates.
    """
    figures: list[Figure] = []
    named: set[str] = set()
    for at, name in enumerate(options.rank_by or (default_risk(measures), UTILITY)):
        pointer = f"/candidates/rank_by/{at}"
        figure = named_figure(name, measures, pointer)
        if figure.measure.key in _OF_THE_METHOD:
            reason = _OF_THE_METHOD[figure.measure.key]
            raise ParameterError(f"'{figure.name}' cannot rank candidates: {reason}", pointer)
        if figure.name in named:
            raise ParameterError(f"'{figure.name}' is named twice", pointer)
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
    """The best of `options.count` candidates.

    Parameters
    ----------
    provider : Provider
    table : pa.Table
    params : Params
        Checked against the table's schema.
    seed : bytes
        32 bytes, the master seed.
    seed_bits : int
        Bits that an exhaustive search for it must cover.
    options : CandidateOptions
        Checked; a count of two or more.
    measures : MeasureOptions
        How the figures are taken.

    Raises
    ------
    ParameterError
        No figure applies to these tables, or one that was named does not.
    """
    figures = ranking_figures(options, measures)
    taken: list[Taken] = []
    result: SwapResult | None = None

    whole = options.count + _RUNNING  # the chosen one is run again

    def run(index: int, place: int, which: str) -> SwapResult:
        stream = Stream(candidate_seed(seed, index), provider.identifier, provider.revision)
        told = part_of(progress, place / whole, (place + _RUNNING) / whole, which)
        return provider.swap(table, params, stream, told)

    for index in range(options.count):
        result = None  # the one before goes first
        which = f"candidate {index + 1} of {options.count}"
        result = run(index, index, which)
        released = released_by(provider, params, table, result, seed_bits)
        measuring = part_of(progress, (index + _RUNNING) / whole, (index + 1) / whole, which)
        taken.append(take_figures(figures, released, measures, measures_stream(seed), measuring))
        del released
    ranked, left_out = _applicable(figures, taken, named=bool(options.rank_by))
    ranking = mean_ranks(
        [([candidate.values.get(figure.name) for candidate in taken], figure.goal) for figure in ranked]
    )
    chosen = best(ranking)
    if chosen != options.count - 1:
        result = None
        result = run(chosen, options.count, "the chosen one")
    assert result is not None  # noqa: S101 - there is at least one candidate
    names = [figure.name for figure in ranked]
    lines = [
        {
            "index": index,
            "values": {name: candidate.values[name] for name in names if name in candidate.values},
            "rank": rank,
        }
        for index, (candidate, rank) in enumerate(zip(taken, ranking, strict=True))
    ]
    samples = {key: rows for candidate in taken for key, rows in candidate.samples.items()}
    evidence = {
        "rank_by": names,
        "chosen": chosen,
        "table": lines,
        "left_out": left_out,
        "figures": {figure.name: figure.described(samples) for figure in ranked},
    }
    return Choice(result, chosen, evidence)


def _applicable(
    figures: Sequence[Figure], taken: Sequence[Taken], named: bool
) -> tuple[list[Figure], dict[str, str]]:
    """The figures that at least one candidate has, and why the others are left out."""
    applicable: list[Figure] = []
    left_out: dict[str, str] = {}
    for at, figure in enumerate(figures):
        if any(figure.name in candidate.values for candidate in taken):
            applicable.append(figure)
            continue
        left_out[figure.name] = taken[0].undefined[figure.name]
        if named:
            raise ParameterError(
                f"'{figure.name}' cannot rank the candidates: {left_out[figure.name]}",
                f"/candidates/rank_by/{at}",
            )
    if not applicable:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise ParameterError(
            f"no figure ranks the candidates of this table ({reasons}); name others in 'rank_by'",
            "/candidates/rank_by",
        )
    return applicable, left_out
