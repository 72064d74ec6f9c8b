"""A run of a service as a release to be judged."""

from typing import Any

import pyarrow as pa

from providers.measures.assessment import Released
from providers.measures.risk import changed_share, inversion_bits
from providers.params import Params
from providers.provider import Provider, SwapResult, no_progress
from providers.rng import Stream

MEASURES_REVISION = 1
"""Of the draws that the measures make: raised when a change alters a figure for a given seed."""


def measures_stream(seed: bytes) -> Stream:
    """Where the measures draw from: never what a swap draws from."""
    return Stream(seed, "measures", MEASURES_REVISION)


def values_of_run(result: SwapResult, seed_bits: int) -> dict[str, Any]:
    """Key -> value of the measures that the run itself gives, at no cost.

    Parameters
    ----------
    result : SwapResult
    seed_bits : int
        Bits that an exhaustive search for the seed must cover.
    """
    summary = result.summary
    values = {"changed_share": changed_share(summary.changed, summary.rows), **result.measures}
    bits = values.get("inversion_bits", result.provider.get("matching_bits"))
    if bits is not None:
        values["inversion_bits"] = inversion_bits(bits, seed_bits)
    return values


def released_by(
    provider: Provider[Any], params: Params, source: pa.Table, result: SwapResult, seed_bits: int
) -> Released:
    """What a run of the provider released, with all that is known of how."""

    def perturb(table: pa.Table, stream: Stream) -> pa.Table:
        return provider.swap(table, provider.check(params, table.schema), stream, no_progress).table

    return Released(
        source=source,
        destination=result.table,
        origin=result.origin,
        service=provider.identifier,
        parameters=params,
        run_values=values_of_run(result, seed_bits),
        perturb=perturb,
    )
