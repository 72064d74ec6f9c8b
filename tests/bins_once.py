"""Bins that are formed once for runs which differ in their seeds alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from providers.binning import swap
from providers.binning.swap import BinParams
from providers.progress import Progress


@contextmanager
def bins_made_once() -> Iterator[None]:
    """Let MEWS and MEDS form the bins of a table once for the same parameters, also for many seeds.

    Bins, and the measure P, take most of the time of a run. The function that forms them knows no seed.
    """
    form = swap._bin_all
    formed: list[tuple[pa.Table, BinParams, Any]] = []

    def once(table: pa.Table, params: BinParams, make_bins: Callable[..., Any], progress: Progress) -> Any:
        for known, given, bins in formed:
            if known is table and given == params:
                return bins
        formed.append((table, params, form(table, params, make_bins, progress)))
        return formed[-1][2]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(swap, "_bin_all", once)
        yield
