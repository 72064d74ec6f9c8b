"""A run of a service as a release to be measured, with the values that the run itself provides."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from providers.measures.risk.changed_share import changed_share
from providers.measures.risk.inversion_bits import inversion_bits
from providers.measures.shared.comparison import Release
from providers.params import Params
from providers.progress import no_progress
from providers.provider import Provider
from providers.randomness.chacha20 import Stream
from providers.results import SwapResult

FIGURES_REVISION = 11
"""Revision of the values of the measures; raised when a change alters one for a given seed."""

MEASURES_REVISION = FIGURES_REVISION + 2
"""Revision of the reports of measures; raised also when measures are added."""

_DRAWS_REVISION = 3
"""Revision of their random draws, which change less often."""


def measures_stream(seed: bytes) -> Stream:
    """Random stream of the measures, independent of that of the swap."""
    return Stream(seed, "measures", _DRAWS_REVISION)


def values_of_run(result: SwapResult, seed_bits: int) -> dict[str, Any]:
    """Return key -> value of the measures that the run itself provides, at no further cost.

    Parameters
    ----------
    result : SwapResult
    seed_bits : int
        Length of the seed in bits, the cost of an exhaustive search for it.
    """
    summary = result.summary
    values = {"changed_share": changed_share(summary.changed, summary.rows), **result.measures}
    bits = values.get("inversion_bits", result.provider.get("matching_bits"))
    if bits is not None:
        values["inversion_bits"] = inversion_bits(bits, seed_bits)
    return values


def release_of_run(
    provider: Provider[Any], params: Params, source: pa.Table, result: SwapResult, seed_bits: int
) -> Release:
    """Build the release of a run of the provider, with all known facts about the run."""

    def perturb(table: pa.Table, stream: Stream) -> pa.Table:
        return provider.swap(table, provider.check(params, table.schema), stream, no_progress).table

    return Release(
        source=source,
        destination=result.table,
        origin=result.origin,
        service=provider.identifier,
        parameters=params,
        run_values=values_of_run(result, seed_bits),
        perturb=perturb,
    )
