"""Sister release: the same service on the source without a withheld tenth, whose rows are the control."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from providers import PROVIDERS
from providers.arrays import IndexArray
from providers.attacks.tables import MethodUsed
from providers.errors import ProviderError
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.sampling import sample_rows
from providers.progress import Progress, no_progress
from providers.randomness.chacha20 import Stream
from providers.tables.columns import take_rows

WITHHELD = 10
"""One of this many rows is withheld."""


@dataclass(frozen=True, slots=True)
class Sister:
    """Release of the kept rows, and the withheld rows; it is attacked in place of the release."""

    source: pa.Table
    """The kept rows."""
    release: pa.Table
    control: pa.Table
    """The withheld rows."""
    kept: IndexArray = field(repr=False)
    """Row of the given source of each kept row."""
    origin: IndexArray | None = field(repr=False)
    """Kept row of each row of the release; None: the row of the same number."""


def sister_release(
    source: pa.Table, method: MethodUsed, stream: Stream, on_progress: Progress = no_progress
) -> Sister:
    """Withhold a random tenth of the rows, and run the service on the others with a seed of its own.

    Parameters
    ----------
    source : pa.Table
        Ten rows or more.
    method : MethodUsed
        Service, with parameters that it accepts for this source.
    stream : Stream
        Randomness of the attacks; the seed of the run is derived from it.

    Raises
    ------
    NotApplicable
        The source has too few rows, or the service cannot run on the kept ones, with the reason.
    """
    if source.num_rows < WITHHELD:
        raise NotApplicable(f"a source of fewer than {WITHHELD} rows has no tenth to withhold")
    withheld = sample_rows(source.num_rows, source.num_rows // WITHHELD, stream, "withheld")
    kept_mask = np.ones(source.num_rows, np.bool_)
    kept_mask[withheld] = False
    rows = np.flatnonzero(kept_mask)
    kept = take_rows(source, rows)
    provider = PROVIDERS[method.service]
    swaps = provider.stream(stream.key("sister").tobytes())
    try:
        params = provider.check(provider.params.model_validate(method.parameters), kept.schema)
        result = provider.swap(kept, params, swaps, on_progress)
    except ProviderError as error:
        raise NotApplicable(f"{method.service} cannot run without a tenth of the rows: {error}") from error
    return Sister(kept, result.table, take_rows(source, withheld), rows, result.origin)
