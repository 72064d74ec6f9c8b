"""The suite: options, control rows, tables without content, progress and addressed randomness."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers.attacks import inference, tables
from providers.attacks.options import AttackOptions, check_attack_options
from providers.attacks.registry import ATTACKS
from providers.attacks.suite import MethodUsed, attacks_stream
from providers.errors import ParameterError
from tests.every_type import COLUMNS
from tests.unit.providers.attacks.tables import SEED, attacked, people, result_of

KNOWN = ("age", "school", "town")


@pytest.mark.parametrize(
    ("options", "pointer"),
    [
        ({"known": ["agee"]}, "/attacks/known/0"),
        ({"known": ["age", "age"]}, "/attacks/known/1"),
        ({"known": ["age"], "secret": ["income", "age"]}, "/attacks/secret/1"),
        ({"secret": ["tags"]}, "/attacks/secret/0"),
        ({"known": ["age"], "identifiers": ["age"]}, "/attacks/identifiers/0"),
        ({"secret": ["age"], "weights": ["age"]}, "/attacks/weights/0"),
        ({"categorical_fields": ["tags"]}, "/attacks/categorical_fields/0"),
        ({"known": ["age", "town"], "linked": [["age"]]}, "/attacks/linked"),
        ({"known": ["age", "town"], "linked": [["age"], []]}, "/attacks/linked"),
        ({"known": ["age", "town"], "linked": [["age"], ["income"]]}, "/attacks/linked/1/0"),
        ({"known": ["age", "town"], "linked": [["age"], ["town", "age"]]}, "/attacks/linked/1/1"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], pointer: str) -> None:
    schema = people(50).schema.append(pa.field("tags", pa.list_(pa.string())))
    with pytest.raises(ParameterError) as refusal:
        check_attack_options(AttackOptions(**options), schema, schema, pointer="/attacks")
    assert refusal.value.pointer == pointer


def test_control_rows_need_the_fields_of_the_source() -> None:
    source = people(20)
    for control in (source.drop_columns(["town"]), source.set_column(0, "age", pa.array(["x"] * 20))):
        with pytest.raises(ParameterError) as refusal:
            attacked(source, source, control, known=KNOWN)
        assert refusal.value.pointer == "/control"
    other_number = source.set_column(0, "age", source["age"].cast(pa.float64()))
    assert attacked(source, source, other_number, known=KNOWN).control == "given"


def moments(year: int, kind: pa.DataType) -> pa.Table:
    """60 days from the first of a year on, at 8 o'clock, next to two fields of numbers."""
    start = np.datetime64(f"{year}-01-01T08", "s")
    times = pa.array(start + np.arange(60) * np.timedelta64(1, "D")).cast(pa.timestamp("s", kind.tz))
    return pa.table({"t": times.cast(kind), "a": np.arange(60) % 9, "b": np.arange(60) % 7})


def tables_of(source: pa.Table, release: pa.Table, control: pa.Table, **options: Any) -> tables.AttackTables:
    """The tables of an attack on a release of an unknown service."""
    stream = attacks_stream(SEED)
    return tables.AttackTables(
        source, release, control, AttackOptions(**options), method=None, aligned=True, stream=stream
    )


@pytest.mark.parametrize(
    "kind",
    [pa.timestamp("s", "UTC"), pa.timestamp("ns", "UTC"), pa.timestamp("us", "Europe/Dublin")],
    ids=str,
)
@pytest.mark.parametrize("place", [1, 2])
def test_timestamps_of_another_unit_or_zone_are_the_same_moments(kind: pa.DataType, place: int) -> None:
    source = moments(2020, pa.timestamp("us", "UTC"))
    given = [source, source, source]
    given[place] = moments(2020, kind)
    found = tables_of(*given, known=("t",))
    days = found.encode(["t"], "source").numbers
    assert days[0, 1] - days[0, 0] == pytest.approx(1 / 59)
    assert (found.encode(["t"], "release").numbers == days).all()
    assert (found.encode(["t"], "control").numbers == days).all()


def test_timestamps_without_a_common_unit_are_left_out_or_refused() -> None:
    """Timestamps of the year 3000 have no nanoseconds."""
    source, other = moments(3000, pa.timestamp("s")), moments(2020, pa.timestamp("ns"))
    for given, place in (((other, source), "destination"), ((source, other), "control rows")):
        reason = tables_of(source, *given, known=("a",), secret=("b",)).left_out["t"]
        assert f"and timestamp[ns] in the {place}, and it has times beyond the range" in reason
        for index, option in enumerate(("known", "secret")):
            named = {"known": ("a",), "secret": ("b",)} | {option: ("ab"[index], "t")}
            with pytest.raises(ParameterError, match="field 't' cannot be attacked: its type is") as refusal:
                tables_of(source, *given, **named)
            assert refusal.value.pointer == f"/{option}/1"


def test_control_rows_are_given_withheld_or_missing() -> None:
    source, method = people(200), MethodUsed("DSWAP", {"swap_fields": ["income"]})
    assert attacked(source, source, people(50), known=KNOWN, method=method).control == "given"
    assert attacked(source, source, known=KNOWN, method=method).control == "sister"
    without = attacked(source, source, known=KNOWN)
    assert without.control == "none"
    assert result_of(without, "linkability").control is None
    assert result_of(without, "linkability").risk is None


def test_a_sister_that_cannot_run_leaves_the_release_itself() -> None:
    source = people(9)
    figures = attacked(source, source, known=KNOWN, method=MethodUsed("DSWAP", {"swap_fields": ["income"]}))
    assert figures.control == "none"
    assert "fewer than 10 rows" in figures.left_out["control"]
    lone = people(40).set_column(0, "age", pa.array(range(40)))
    failing = {"swap_fields": ["income"], "control_field": "age", "suppression": {"policy": "fail"}}
    figures = attacked(lone, lone, known=KNOWN, method=MethodUsed("CDSWAP", failing))
    assert figures.control == "none"
    assert "CDSWAP cannot run without a tenth" in figures.left_out["control"]


@pytest.mark.parametrize("rows", [0, 1, 2, 3])
def test_small_tables_give_figures_or_reasons(rows: int) -> None:
    table = people(rows)
    for release, control in ((table, None), (table, people(rows, 4)), (table.slice(0, 0), people(3))):
        figures = attacked(table, release, control, known=KNOWN, secret=("income",))
        assert set(figures.attacks) | set(figures.left_out) >= set(ATTACKS)
        assert all(figures.left_out.values())
        assert rows or not figures.attacks


def test_equal_rows_give_figures_or_reasons() -> None:
    table = pa.table({"a": [1] * 30, "b": ["x"] * 30, "c": [None] * 30, "d": [2.5] * 30})
    figures = attacked(table, table, table, known=("a", "b"), secret=("d",))
    assert set(figures.attacks) | set(figures.left_out) >= set(ATTACKS)


@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_is_attacked_or_left_out_with_a_reason(name: str) -> None:
    column = COLUMNS[name]
    table = pa.table({"x": column, "n": pa.array(range(len(column))), "c": ["a", "b"] * (len(column) // 2)})
    figures = attacked(table, table, table.slice(3), categorical_fields=("n",), known=("n", "c"), attacks=20)
    assert set(figures.attacks) | set(figures.left_out) >= set(ATTACKS)
    if "fields.x" not in figures.left_out:
        attacked(table, table, table.slice(3), known=("x", "n"), secret=("c",), attacks=20)
        attacked(table, table, table.slice(3), known=("c", "n"), secret=("x",), attacks=20)


def test_progress_rises_to_one() -> None:
    reached: list[float] = []
    source = people(300)
    method = MethodUsed("DSWAP", {"swap_fields": ["income"]})
    attacked(
        source, source, known=KNOWN, secret=("income",), method=method,
        on_progress=lambda fraction, stage: reached.append(fraction),
    )  # fmt: skip
    assert reached == sorted(reached)
    assert reached[-1] == 1.0
    assert len(reached) > 5


def test_figures_depend_on_the_seed_alone() -> None:
    source, release, control = people(300, 1), people(300, 2), people(90, 3)
    options: dict[str, Any] = {"known": KNOWN, "secret": ("income",), "attacks": 100}
    one, two = (attacked(source, release, control, **options) for _ in range(2))
    assert one.report() == two.report()
    assert one.report() != attacked(source, release, control, seed=bytes(32), **options).report()


def test_identifiers_and_weights_take_no_part() -> None:
    rows = 200
    source = people(rows).append_column("person_id", pa.array(range(rows)))
    figures = attacked(source, source, known=("age", "town"), weights=("height",))
    assert "identifier" in figures.left_out["fields.person_id"]
    assert "weight" in figures.left_out["fields.height"]
    named = attacked(source, source, known=("age", "person_id"))
    assert "fields.person_id" not in named.left_out


def test_large_tables_are_attacked_less_often_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search of 20,000 pairs allows 50 attacks on 400 rows; a model sees 100 of them."""
    source, release, control = people(400, 1), people(400, 2), people(400, 3)
    options: dict[str, Any] = {"known": KNOWN, "secret": ("income",), "attacks": 300}
    whole = attacked(source, release, control, **options)
    monkeypatch.setattr(tables, "PAIRS", 20_000)
    monkeypatch.setattr(tables, "LEAST_ATTACKS", 20)
    monkeypatch.setattr(inference, "TRAINING_ROWS", 100)
    few = attacked(source, release, control, **options)
    assert whole.sampled == {}
    assert few.sampled == {"attacks": 50, "training_rows": 100}
    one, two = (result_of(figures, "linkability").attack for figures in (whole, few))
    assert (one.tries, two.tries) == (300, 50)
    assert two.high - two.low > one.high - one.low


@pytest.mark.parametrize("released_as", [pa.date32(), pa.int32(), pa.date64()])
def test_dates_are_attacked_also_where_the_release_counts_days(released_as: pa.DataType) -> None:
    """LOCALITY publishes dates as numbers of days; the copy is linked and inferred in each form."""
    days = [(people(200, seed)["height"].cast(pa.int32(), safe=False).combine_chunks()) for seed in (1, 2)]
    source, control = (
        people(200, seed).set_column(3, "height", values.cast(pa.date32()))
        for seed, values in zip((1, 2), days, strict=True)
    )
    released = days[0] if released_as == pa.int32() else days[0].cast(pa.date32()).cast(released_as)
    release = source.set_column(3, "height", released)
    figures = attacked(source, release, control, known=("height", *KNOWN), secret=("income",))
    assert "fields.height" not in figures.left_out
    found = figures.attacks["inference"]
    assert isinstance(found, dict)
    assert found["income"].attack.rate > 0.98
    assert result_of(figures, "membership").attack.rate == 1.0
