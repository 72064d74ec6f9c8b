"""RWN for tables larger than memory; the result is that of `providers.services.rwn`, bit for bit."""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from providers.arrays import BoolArray
from providers.neighbours.candidates import OrderKeys
from providers.neighbours.out_of_core.candidates import CandidateSearch, check_parts_fit
from providers.neighbours.out_of_core.donors import DrawnDonors
from providers.neighbours.out_of_core.fetch import DonorValues
from providers.neighbours.out_of_core.points import Encoding
from providers.neighbours.release import (
    NeighbourhoodCounts,
    ReleaseTally,
    Settings,
    check_rows,
    donor_keys,
    kept_rows,
    neighbour_rule,
)
from providers.progress import Progress, sub_progress
from providers.provider import StreamedResult, StreamedSection
from providers.randomness.chacha20 import Stream
from providers.results import SwapResult
from providers.sections import Section
from providers.storage import Resources, Source, Spool


class NeighbourRun:
    """Steps of an RWN run out of core, by one worker or by several.

    The comments name the steps of section 4.1 of the paper.

    Parameters
    ----------
    source : Source
    settings : Settings
    stream : Stream
    resources : Resources

    Raises
    ------
    SourceError
        The table has too few or too many rows, or a part of it does not fit in memory.
    """

    def __init__(self, source: Source, settings: Settings, stream: Stream, resources: Resources) -> None:
        self.source = source
        self.settings = settings
        self.resources = resources
        self.counts = NeighbourhoodCounts()
        """Counts of the neighbourhoods whose donors this process has drawn."""
        rows = source.rows
        check_rows(rows, settings)
        self._rule, self._keys = neighbour_rule(rows, settings), donor_keys(settings, stream)
        check_parts_fit(
            settings.candidates, rows, settings.k, len(settings.distance_fields), len(self._keys),
            resources.memory_bytes,
        )  # fmt: skip
        self.search = CandidateSearch(
            settings.candidates, OrderKeys.of(stream), self._rule, self._keys, resources, self.counts.shortage
        )  # fmt: skip

    def encoding(self) -> Encoding:
        """Return an encoding of the records, to be fitted (step 1)."""
        settings = self.settings
        return Encoding(
            self.source, settings.distance_fields, settings.categorical_fields, settings.ordinal_fields,
            settings.categorical_weight, self.resources,
        )  # fmt: skip

    def values(self, received: Sequence[Spool] | None = None) -> DonorValues:
        """Return the values of the donors; ``received``: as in `DonorValues`."""
        return DonorValues(self.source, self.settings.perturb_fields, self.resources, received)

    def fetch(self, values: DonorValues, batches: Iterator[DrawnDonors], progress: Progress) -> None:
        """Count the neighbourhoods of all batches, and fetch the values of their donors (step 2)."""
        for batch in batches:
            values.request(batch)
            self.counts.add_sizes(batch.sizes[batch.rows % self._rule.count_every == 0])
        values.fetch(progress)

    def section(self, values: DonorValues, section: Section) -> StreamedSection:
        """Assemble a section from the values that were fetched for its rows; its figures are a tally."""
        settings = self.settings
        tally = ReleaseTally(self.source.schema, settings)
        key_by_field = dict(zip(settings.perturb_fields, self._keys, strict=True))

        # Step 3: a value is kept or replaced by that of its donor. Step 4: the rows, in source order.
        def kept(name: str, first: int, count: int) -> BoolArray:
            return kept_rows(key_by_field[name], settings.q, first, count)

        def released() -> Iterator[pa.Table]:
            for piece in values.pieces(section, kept, tally.add):
                tally.end_range()
                yield piece

        return StreamedSection(self.source.schema, released(), lambda: tally)

    def finished(
        self, counts: NeighbourhoodCounts, sections: Sequence[ReleaseTally], varies: Callable[[str], bool]
    ) -> SwapResult:
        """Build the report.

        Parameters
        ----------
        counts : NeighbourhoodCounts
            Counts of all neighbourhoods.
        sections : sequence of ReleaseTally
            Figures of all sections.
        varies : callable
            Whether a category field holds two different values.
        """
        tally = ReleaseTally(self.source.schema, self.settings)
        tally.neighbourhoods = counts
        for section in sections:
            tally.merge(section)
        return tally.result(varies)


def release_out_of_core(
    source: Source, settings: Settings, stream: Stream, progress: Progress, resources: Resources
) -> StreamedResult:
    """Replace values by values of random neighbours, with the k-d tree on disk."""
    run = NeighbourRun(source, settings, stream, resources)
    encoding = run.encoding()
    layout = encoding.fit(sub_progress(progress, 0.0, 0.1))
    values = run.values()
    if source.rows:
        report = donor_progress(source.rows, sub_progress(progress, 0.4, 0.8))
        parts = settings.candidates.parts
        if parts:
            stored = run.search.store_parts(encoding, layout, [(0, parts)], resources.scratch)
            batches = run.search.draw_in_parts(stored, layout, (0, parts), report)
        else:
            building = sub_progress(progress, 0.1, 0.4)
            trees = run.search.store_trees(encoding, layout, resources.scratch, building)
            batches = run.search.draw_from_trees(trees, report)
        run.fetch(values, batches, sub_progress(progress, 0.8, 0.9))
    streamed = run.section(values, Section(0, source.rows))
    return StreamedResult(
        streamed.schema,
        streamed.pieces,
        lambda: run.finished(run.counts, [streamed.figures()], encoding.varies),
    )


def donor_progress(rows: int, progress: Progress) -> Callable[[int], None]:
    """Return a counter of the rows that have donors; it reports their share of ``rows``."""
    done = 0

    def report(more: int) -> None:
        nonlocal done
        done += more
        progress(done / rows, "drawing donors")

    return report
