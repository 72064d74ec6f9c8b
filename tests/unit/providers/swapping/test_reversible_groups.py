"""Exchanges that anyone can undo: groups of two and three rows, and tables whose rows are only reordered."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.errors import ParameterError, ReversibleError, UnswappableError
from providers.progress import no_progress
from providers.swapping.reversible_groups import REVERSIBLE_GROUPS, group_bits
from providers.swapping.swap import ROWS_ONLY_REORDERED
from tests.naive.agreement import SEED, assert_agree, swap
from tests.property.out_of_core import swap_in_units, swap_out_of_core

ROWS = 1200


def table_of(rows: int) -> pa.Table:
    random = np.random.default_rng(3)
    return pa.table(
        {
            "v": random.permutation(rows),
            "w": random.permutation(rows),
            "c": random.permutation(rows),
            "pairs": np.arange(rows) // 2,
            "x": random.normal(size=rows),
        }
    )


def undone(released: pa.Table, by: str, size: int) -> list[int]:
    """Undo the exchange within groups of `size` rows in the order of a field, without the seed."""
    order = np.argsort(np.asarray(released[by]), kind="stable").reshape(-1, size)
    values = np.asarray(released["v"]).copy()
    values[order] = values[order[:, ::-1]]
    restored: list[int] = values.tolist()
    return restored


def test_anyone_undoes_groups_of_two() -> None:
    """Every value of the source is recovered without the seed, and the report warns of it."""
    source = table_of(ROWS)
    for service, extra in (
        ("DDSWAP", {"control_field": "c", "block_size": 2}),
        ("CDSWAP", {"control_field": "pairs"}),
    ):
        result = swap(service, source, {"swap_fields": ["v"], **extra})
        assert undone(result.table, str(extra["control_field"]), 2) == source["v"].to_pylist()
        assert result.provider["group_bits"] == {
            "smallest": 0.0,
            "p05": 0.0,
            "rows_in_groups_of_two": ROWS,
            "rows_in_groups_of_three": 0,
        }
        assert result.provider["reversible"]
        assert result.events.counts == {REVERSIBLE_GROUPS: 1}
        assert result.events.listed[0].message.startswith(
            "1200 rows are in 600 groups of two, whose exchange"
        )


@pytest.mark.parametrize(
    ("service", "parameters", "advice"),
    [
        ("DDSWAP", {"control_field": "c", "block_size": 3}, "raise 'block_size' to 4 or more"),
        ("DDSWAP", {"control_field": "c", "block_size": 1198}, "set 'min_group_size' to 4"),
        ("CDSWAP", {"control_field": "pairs"}, "make classes wider"),
        ("MEDS", {"k": 2}, "raise 'k'"),
        ("MEDS", {"degree": 600}, "lower 'degree'"),
        ("MEWS", {"bins": 600}, "lower 'bins'"),
        ("MEWS", {"width": 2}, "raise 'width'"),
        ("MEWS", {"degree": 500}, "lower 'degree'"),
    ],
)
def test_the_parameter_that_helps_is_named(service: str, parameters: dict[str, Any], advice: str) -> None:
    """The event names the parameter; with `fail` the plan and the run raise an error with the same text."""
    source, parameters = table_of(ROWS), {"swap_fields": ["v"], **parameters}
    result = swap(service, source, parameters)
    [event] = [event for event in result.events.listed if event.code == REVERSIBLE_GROUPS]
    assert advice in event.message
    bits = result.provider["group_bits"]
    rows = bits["rows_in_groups_of_two"] + bits["rows_in_groups_of_three"]
    assert rows > 0
    provider = PROVIDERS[service]
    params = provider.params.model_validate(parameters)
    assert provider.plan(source, provider.check(params, source.schema)).reversible_rows == rows
    refused = provider.check(params.model_copy(update={"on_reversible": "fail"}), source.schema)
    stream = provider.stream(SEED)
    with pytest.raises(ReversibleError) as planned:
        provider.plan(source, refused)
    with pytest.raises(ReversibleError) as swapped:
        provider.swap(source, refused, stream, no_progress)
    assert str(planned.value) == str(swapped.value) == event.message


@pytest.mark.parametrize(
    ("service", "extra"),
    [("DDSWAP", {"control_field": "c", "block_size": 2}), ("CDSWAP", {"control_field": "pairs"})],
)
def test_refused_out_of_core_and_in_units(service: str, extra: dict[str, Any]) -> None:
    """The error comes before any destination, with the message of the in-memory run."""
    source, parameters = table_of(ROWS), {"swap_fields": ["v", "w"], **extra, "on_reversible": "fail"}
    message = (
        "^1200 rows are in 600 groups of two, whose exchange anyone who knows the groups undoes exactly; "
    )
    with pytest.raises(ReversibleError, match=message):
        swap(service, source, parameters)
    with pytest.raises(ReversibleError, match=message):
        swap_out_of_core(service, source, parameters, 4096, 100)
    with pytest.raises(ReversibleError, match=message):
        swap_in_units(service, source, parameters, 4096, 100, 3)


def test_rows_that_cannot_be_swapped_come_first() -> None:
    """If both policies fail, the suppression's error is raised, in memory and out of core."""
    source = pa.table({"v": [1, 2, 3], "c": ["a", "a", "b"], "x": [1, 2, 3]})
    parameters = {
        "swap_fields": ["v"],
        "control_field": "c",
        "suppression": {"policy": "fail"},
        "on_reversible": "fail",
    }
    with pytest.raises(UnswappableError):
        swap("CDSWAP", source, parameters)
    with pytest.raises(UnswappableError):
        swap_out_of_core("CDSWAP", source, parameters, 4096, 100)


@pytest.mark.parametrize(("rate", "reversible"), [(1.0, True), (0.51, True), (0.5, False), (0.1, False)])
def test_rows_that_mostly_stay_are_not_called_reversible(rate: float, reversible: bool) -> None:
    """At rates up to one half a row of a pair keeps its own value with probability 1/2 or more."""
    parameters = {"swap_fields": ["v"], "control_field": "pairs", "rate": rate, "on_reversible": "warn"}
    result, _ = assert_agree("CDSWAP", table_of(ROWS), parameters)
    assert result is not None
    assert result.provider["group_bits"]["rows_in_groups_of_two"] == ROWS
    assert result.provider["reversible"] == reversible
    assert result.events.counts[REVERSIBLE_GROUPS] == reversible


def test_groups_of_four_are_not_reversible() -> None:
    """A class of four has three matchings; classes below the minimum are not exchanged and not counted."""
    source = table_of(ROWS).append_column("fours", pa.array(np.arange(ROWS) // 4))
    result = swap("CDSWAP", source, {"swap_fields": ["v"], "control_field": "fours", "on_reversible": "fail"})
    assert result.provider["group_bits"]["smallest"] == pytest.approx(math.log2(3))
    assert not result.events.counts
    parameters = {"swap_fields": ["v"], "control_field": "pairs", "min_group_size": 4}
    result = swap("CDSWAP", source, {**parameters, "on_reversible": "fail"})
    assert result.provider["group_bits"]["smallest"] is None
    assert result.events.counts == {"suppressed": ROWS}


def test_percentile_over_rows() -> None:
    """The percentile is that of the row at place ceil(rows / 20) in ascending order of bits, not of sizes."""
    few = {2: 10, 100: 10}  # 20 rows of 1020 are in pairs, fewer than 5 %
    assert group_bits([few], 1.0).p05 == pytest.approx(group_bits([{100: 1}], 1.0).smallest)
    many = {2: 27, 100: 10}  # 54 of 1054
    assert group_bits([many], 1.0).p05 == 0.0
    exactly = {2: 1, 38: 1}  # 2 of 40: one row in twenty
    assert group_bits([exactly], 1.0).p05 == 0.0
    assert group_bits([{5: 1, 6: 1}], 1.0).smallest == pytest.approx(math.log2(15))  # 20 of five rows


def test_each_figure_is_of_the_worst_field() -> None:
    """Fields with their own groups: the fewest bits and the most rows are reported."""
    bits = group_bits([{2: 3, 8: 1}, {2: 1, 3: 2}, {}], 1.0)
    assert (bits.smallest, bits.p05) == (0.0, 0.0)
    assert (bits.rows_in_groups_of_two, bits.rows_in_groups_of_three) == (6, 6)
    assert group_bits([{}], 1.0).smallest is None


# ------------------------------------------------------------------------------- the order of the rows alone


@pytest.mark.parametrize(
    ("service", "names", "extra"),
    [
        ("DSWAP", ["v", "w"], {}),
        ("CDSWAP", ["v", "w", "c"], {"control_field": "c"}),
        ("CDSWAP", ["v", "w", "c", "d"], {"control_field": ["d", "c"]}),
        ("CDSWAP", ["v", "w", "c"], {"control_field": "c", "classifier": {"groups": {"one": [1]}}}),
    ],
)
def test_locked_over_all_fields_is_refused(service: str, names: list[str], extra: dict[str, Any]) -> None:
    """All rows would stay as they are, in another order; MEWS and MEDS refuse this too."""
    table = pa.table({name: np.arange(200) % 20 + 1 for name in names})
    parameters = {"swap_fields": ["v", "w"], **extra}
    with pytest.raises(ParameterError, match="only change the order of the rows") as refused:
        swap(service, table, {**parameters, "locked": True})
    assert refused.value.pointer == "/parameters/locked"
    swap(service, table, parameters)
    with_rest = table.append_column("rest", table["v"])
    swap(service, with_rest, {**parameters, "locked": True})


@pytest.mark.parametrize(
    ("service", "extra"),
    [
        ("CDSWAP", {"control_field": "c", "classifier": {"breaks": [10]}}),
        ("CDSWAP", {"control_field": "c", "classifier": {"prefix": 1}}),
        ("CDSWAP", {"control_field": "c", "classifier": {"groups": {"one": [1, 2]}}}),
        ("CDSWAP", {"control_field": "c", "classifier": {"groups": {"one": [1]}, "other": "one_class"}}),
        ("DDSWAP", {"control_field": "c", "block_size": 10}),
    ],
)
def test_a_control_field_that_stays_is_enough(service: str, extra: dict[str, Any]) -> None:
    """If the field differs within a group, locked fields are separated from it: rows change."""
    table = pa.table({name: np.arange(200) for name in ("v", "w", "c")})
    released = swap(service, table, {"swap_fields": ["v", "w"], "locked": True, **extra}).table
    assert set(zip(*released.to_pydict().values(), strict=True)) != set(
        zip(*table.to_pydict().values(), strict=True)
    )


@pytest.mark.parametrize(
    ("service", "names", "extra", "reported"),
    [
        ("DSWAP", ["v"], {}, True),
        ("DSWAP", ["v", "w"], {}, False),
        ("CDSWAP", ["v", "c"], {"control_field": "c"}, True),
        ("CDSWAP", ["v", "c"], {"control_field": "c", "classifier": {"breaks": [3]}}, False),
        ("CDSWAP", ["v", "w", "c"], {"control_field": "c"}, False),
        ("DDSWAP", ["v", "c"], {"control_field": "c", "block_size": 4}, False),
    ],
)
def test_a_single_field_is_taken_with_a_notice(
    service: str, names: list[str], extra: dict[str, Any], reported: bool
) -> None:
    """A caller may restore a single field by the order of rows: it is swapped, and an event warns of it."""
    schema = pa.schema([(name, pa.int64()) for name in names])
    provider = PROVIDERS[service]
    params = provider.check(provider.params.model_validate({"swap_fields": ["v"], **extra}), schema)
    assert [event.code for event in provider.notices(params, schema)] == [ROWS_ONLY_REORDERED] * reported
