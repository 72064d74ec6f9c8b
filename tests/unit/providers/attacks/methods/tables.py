"""Releases of the services and their tables, as attacks on methods read them."""

from typing import Any

import pyarrow as pa

from providers.attacks.options import AttackOptions
from providers.attacks.suite import attacks_stream
from providers.attacks.tables import AttackTables, MethodUsed
from tests.naive.agreement import swap
from tests.unit.providers.attacks.tables import SEED


def released(
    service: str, source: pa.Table, parameters: dict[str, Any], seed: int = 1, **options: Any
) -> AttackTables:
    """The tables of a release of the source, without control rows."""
    result = swap(service, source, parameters, bytes([seed] * 32))
    return AttackTables(
        source,
        result.table,
        None,
        AttackOptions(**options),
        method=MethodUsed(service, parameters),
        aligned=True,
        stream=attacks_stream(SEED),
        origin=result.origin,
    )
