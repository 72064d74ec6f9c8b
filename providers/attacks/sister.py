"""Sister release: the same service on the source without a withheld tenth, whose rows are the control.

Where the parameters name units of several rows, such as persons or households, whole units are withheld: a
withheld row of a released person is no row that was not in the source.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from providers import PROVIDERS
from providers.arrays import IndexArray
from providers.attacks.tables import MethodUsed
from providers.attacks.units import withheld_rows
from providers.errors import ProviderError
from providers.measures.shared.finding import NotApplicable
from providers.progress import Progress, no_progress
from providers.randomness.chacha20 import Stream
from providers.tables.columns import take_rows


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
    """Withhold a random tenth of the rows or units, and run the service on the others with a seed of its own.

    Parameters
    ----------
    source : pa.Table
        Ten rows or units or more.
    method : MethodUsed
        Service, with parameters that it accepts for this source.
    stream : Stream
        Randomness of the attacks; the seed of the run is derived from it.

    Raises
    ------
    NotApplicable
        The source has too few rows or units, or the service cannot run on the kept ones, with the reason.
    """
    withheld = withheld_rows(source, method.unit_field, stream, "withheld")
    rows = np.flatnonzero(~withheld)
    kept = take_rows(source, rows)
    provider = PROVIDERS[method.service]
    swaps = provider.stream(stream.key("sister").tobytes())
    try:
        params = provider.check(provider.params.model_validate(method.parameters), kept.schema)
        result = provider.swap(kept, params, swaps, on_progress)
    except ProviderError as error:
        raise NotApplicable(f"{method.service} cannot run without a tenth of the rows: {error}") from error
    return Sister(kept, result.table, take_rows(source, np.flatnonzero(withheld)), rows, result.origin)
