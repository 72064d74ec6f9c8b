"""Risk of n releases of one source before the first is published.

The service runs n times with seeds derived from the job's; the releases are attacked together and discarded.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from providers.attacks.composition.compose import ReleasedTable, compose
from providers.attacks.figures import AttackResult
from providers.attacks.units import sampled_units
from providers.params import Params
from providers.progress import Progress, no_progress, sub_progress
from providers.provider import Provider
from providers.randomness.chacha20 import Stream
from providers.tables.columns import take_rows

_MOST_ROWS = 5_000_000
"""Rows of all releases together; beyond, the service runs on a sample of the source."""


@dataclass(frozen=True, slots=True)
class Composition:
    """Results of the attacks on n hypothetical releases."""

    attacks: dict[str, AttackResult]
    """Secret field -> strongest attack."""
    left_out: dict[str, str]
    """Field -> reason why it was left out."""
    releases: int
    sampled_rows: int | None = None
    """Rows of the sample that was released; None if the whole source was."""


def compose_hypothetical(
    source: pa.Table,
    provider: Provider[Any],
    params: Params,
    releases: int,
    secret: Sequence[str],
    stream: Stream,
    *,
    known: Sequence[str] = (),
    attacks: int = 1000,
    confidence: float = 0.95,
    unit: str | None = None,
    progress: Progress = no_progress,
) -> Composition:
    """Run the service `releases` times with different seeds and attack all releases together.

    Parameters
    ----------
    source : pa.Table
    provider : Provider
    params : Params
        Checked against the source's schema.
    releases : int
        Number of releases, 1 to `providers.attacks.options.MOST_RELEASES`.
    secret : sequence of str
        Fields whose values are attacked; empty: all fields that the first release changes.
    stream : Stream
        Derives the seeds of the releases and draws the attacked rows.
    known, attacks, confidence, unit
        As for `compose`.

    Raises
    ------
    SourceError, UnswappableError, ReversibleError
        As the service does.
    """
    sampled: int | None = None
    if source.num_rows * releases > _MOST_ROWS:
        sampled = max(1, _MOST_ROWS // releases)
        source = take_rows(source, sampled_units(source, unit, sampled, stream, "composition/sample"))
        params = provider.check(params, source.schema)
    runs = _Releases(source, provider, params, releases, stream, sub_progress(progress, 0.0, 0.95))
    first = next(runs.tables)
    fields = list(secret) or runs.changed

    def all_releases() -> Iterator[ReleasedTable]:
        yield first
        yield from runs.tables

    found, left_out = compose(
        source,
        all_releases(),
        fields,
        stream,
        known=known,
        params=params,
        attacks=attacks,
        confidence=confidence,
        unit=unit,
    )
    progress(1.0, "attacking releases together")
    return Composition(found, left_out, releases, sampled)


class _Releases:
    """Iterator over the releases; knows the fields that the latest one changed."""

    def __init__(
        self,
        source: pa.Table,
        provider: Provider[Any],
        params: Params,
        count: int,
        stream: Stream,
        progress: Progress,
    ) -> None:
        self.changed: list[str] = []
        self.tables = self._run(source, provider, params, count, stream, progress)

    def _run(
        self,
        source: pa.Table,
        provider: Provider[Any],
        params: Params,
        count: int,
        stream: Stream,
        progress: Progress,
    ) -> Iterator[ReleasedTable]:
        for index in range(count):
            seed = stream.key(f"composition/release/{index}").tobytes()
            step = sub_progress(
                progress, index / count, (index + 1) / count, f"release {index + 1} of {count}"
            )
            result = provider.swap(source, params, provider.stream(seed), step)
            self.changed = [name for name, rows in result.summary.changed.items() if rows]
            yield ReleasedTable(result.table, result.origin is None)
