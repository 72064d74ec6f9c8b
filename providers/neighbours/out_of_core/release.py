"""RWN for tables larger than memory; the result is that of `providers.services.rwn`, bit for bit."""

from collections.abc import Iterator

import pyarrow as pa

from providers.arrays import BoolArray
from providers.neighbours.candidates import OrderKeys
from providers.neighbours.out_of_core.candidates import check_parts_fit, draw_from_candidates
from providers.neighbours.out_of_core.fetch import DonorValues
from providers.neighbours.out_of_core.points import Encoding
from providers.neighbours.release import (
    ReleaseTally,
    Settings,
    check_rows,
    donor_keys,
    kept_rows,
    neighbour_rule,
)
from providers.progress import Progress, sub_progress
from providers.provider import StreamedResult
from providers.randomness.chacha20 import Stream
from providers.results import SwapResult
from providers.storage import Resources, Source


def release_out_of_core(
    source: Source, settings: Settings, stream: Stream, progress: Progress, resources: Resources
) -> StreamedResult:
    """Replace values by those of random neighbours, with the k-d tree on disk.

    The comments name the steps of section 4.1 of the paper.
    """
    rows = source.rows
    check_rows(rows, settings)
    rule, keys = neighbour_rule(rows, settings), donor_keys(settings, stream)
    check_parts_fit(
        settings.candidates, rows, settings.k, len(settings.distance_fields), len(keys),
        resources.memory_bytes,
    )  # fmt: skip
    tally = ReleaseTally(source.schema, settings)

    # Step 1: records as points. Ranges, medians and categories are found in a pass of their own.
    encoding = Encoding(
        source, settings.distance_fields, settings.categorical_fields, settings.ordinal_fields,
        settings.categorical_weight, resources,
    )  # fmt: skip
    layout = encoding.fit(sub_progress(progress, 0.0, 0.1))

    # Step 2: neighbourhoods, and a donor drawn from them for every row and field.
    values = DonorValues(source, settings.perturb_fields, resources)
    if rows:
        batches = draw_from_candidates(
            encoding, layout, settings.candidates, OrderKeys.of(stream), rule, keys, resources,
            tally.shortage, sub_progress(progress, 0.1, 0.8),
        )  # fmt: skip
        for batch in batches:
            values.request(batch)
            tally.add_sizes(batch.sizes[batch.rows % rule.count_every == 0])
        values.fetch(sub_progress(progress, 0.8, 0.9))

    # Step 3: a value is kept or replaced by that of its donor. Step 4: the released rows, in source order.
    key_by_field = dict(zip(settings.perturb_fields, keys, strict=True))

    def kept(name: str, first: int, count: int) -> BoolArray:
        return kept_rows(key_by_field[name], settings.q, first, count)

    def released() -> Iterator[pa.Table]:
        for piece in values.pieces(kept, tally.add):
            tally.end_range()
            yield piece

    def result() -> SwapResult:
        return tally.result(encoding.varies)

    return StreamedResult(source.schema, released(), result)
