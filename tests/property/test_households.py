"""Exchange of whole households: fast and naive agree; what a household is stays as it was."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.naive.agreement import assert_agree
from tests.property.tables import from_pool, swap_parameters, tables

SEEDS = st.binary(min_size=32, max_size=32)
IDS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [-(2**63), -1, *range(12), 2**63 - 1]),
    (pa.uint64(), [2**64 - 1, 2**63, *range(12)]),
    (pa.int8(), list(range(5))),
    (pa.string(), ["", "a", "b", "Haus 1", "Haus 2", *map(str, range(20))]),
]


@given(st.data(), SEEDS)
@pytest.mark.parametrize("service", ["DSWAP", "CDSWAP", "DDSWAP"])
def test_whole_households(service: str, data: st.DataObject, seed: bytes) -> None:
    """Values, figures and plan are the twin's, with each mechanism, selection, policy and type of id."""
    table, kinds = data.draw(tables())
    kind, pool = data.draw(st.sampled_from(IDS))
    drawn = data.draw(from_pool(pool, table.num_rows))
    table = table.append_column("home", pa.array(drawn, kind))
    parameters = data.draw(swap_parameters(table, targets=True, risks=data.draw(st.booleans())))
    parameters["household"] = "home"
    if service != "DSWAP":
        parameters["control_field"] = [f"c{at}" for at in range(len(kinds))]
    if service == "DDSWAP":
        parameters["block_size"] = data.draw(st.integers(parameters["min_group_size"], 9))
    fast, naive = assert_agree(service, table, parameters, seed)
    if fast is None or parameters["suppression"]["policy"] != "keep":
        return
    before, after = table.to_pydict(), fast.table.to_pydict()
    assert after["home"] == before["home"]
    homes: dict[Any, list[int]] = {}
    for row, home in enumerate(before["home"]):
        homes.setdefault(home, []).append(row)
    for name, source in naive.sources.items():
        assert sorted(source) == list(range(len(homes)))
        # For each size the households hold what they held, in other homes.
        held = [
            Counter(repr(sorted(repr(each[name][row]) for row in rows)) for rows in homes.values())
            for each in (before, after)
        ]
        assert held[0] == held[1]
