"""The full report of any tables: it never fails, is plain JSON and a page, and shows no small count."""

import json
import math
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.report.page import html_report
from providers.measures import MEASURES
from providers.measures.assessment import Assessment, MeasureOptions, Release, assess, check_options
from providers.measures.chart_data import chart_data, round_edges
from providers.measures.shared.comparison import Comparison
from providers.measures.shared.levels import shown
from providers.progress import no_progress
from providers.randomness.chacha20 import Stream
from tests.property.arrow_tables import tables
from tests.reports.documents import job
from tests.reports.reading import read

STREAM = Stream(bytes(32), "measures", 1)
LARGE = 2**63 - 1


def full(source: pa.Table, destination: pa.Table, aligned: bool = True, **options: Any) -> Assessment:
    chosen = MeasureOptions.model_validate(options)
    check_options(chosen, source.schema, destination.schema)
    released = Release(source, destination, aligned=aligned, perturb=lambda table, stream: table)
    found = assess(released, chosen, STREAM)
    assert set(found.measures) | set(found.left_out) >= set(MEASURES)
    json.dumps([found.measures, found.left_out, found.pictures], allow_nan=False)
    summary = {"rows": source.num_rows, "destination_rows": destination.num_rows, "aligned": aligned}
    of = job("measures", source.num_rows, field_names=source.column_names)
    read(html_report(of, {"summary": summary, "provider": {}, "limits": []} | asdict(found)))
    return found


@given(st.data())
@settings(max_examples=40)
def test_any_table_is_measured(data: st.DataObject) -> None:
    """A table of any type, with nulls, NaN and infinities, is compared with its own rows in reverse order."""
    source = data.draw(tables(min_fields=1))
    turned = source.take(pa.array(np.arange(source.num_rows)[::-1])) if _can_take(source) else source
    target = data.draw(st.sampled_from(source.column_names))
    options: dict[str, Any] = {"key_fields": [target]}
    measured = full(source, turned, **options)
    if f"fields.{target}" not in measured.left_out:
        options["target"] = target
    sensitive = [name for name in source.column_names if name != target]
    options["sensitive_fields"] = [name for name in sensitive if f"fields.{name}" not in measured.left_out]
    full(source, turned, aligned=data.draw(st.booleans()), sample=3, **options)


def _can_take(table: pa.Table) -> bool:
    try:
        table.take(pa.array(np.zeros(table.num_rows, np.int64)))
    except pa.ArrowException:
        return False
    return True


ODD: dict[str, list[Any]] = {
    "constant": [7] * 24,
    "null": [None] * 24,
    "huge": [LARGE - at for at in range(24)],
    "far": [-1e308, 1e308] * 12,
    "nan": [math.nan, 1.0, math.inf] * 8,
    "close": [1.0 + at * 2.0**-52 for at in range(24)],
    "tiny": [at * 5e-324 for at in range(24)],
    "text": [f"{at % 3}" for at in range(24)],
    "list": [[at] for at in range(24)],
    "struct": [{"a": at} for at in range(24)],
    "truth": [at % 2 == 0 for at in range(24)],
}


@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 1, 2, 24])
@pytest.mark.parametrize("target", ["constant", "huge", "far", "nan", "close", "tiny", "text", "truth"])
def test_odd_fields_are_measured(rows: int, target: str) -> None:
    """Constants, nulls, huge and close numbers, NaN, text, lists and structs, few rows or none."""
    types = {"null": pa.float64()}
    whole = pa.table({name: pa.array(values, types.get(name)) for name, values in ODD.items()})
    source = whole.slice(0, rows)
    turned = source.take(pa.array(np.arange(rows)[::-1]))
    found = full(source, turned, target=target, key_fields=["text", "list"], known_fields=["huge", "text"])
    assert found.left_out["fields.list"].startswith("it has type list")
    lost = pa.table([pa.nulls(rows, column.type) for column in source.columns], source.column_names)
    full(source, lost, target=target, key_fields=["text"])


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.integers(1, 9))
@settings(max_examples=300)
def test_no_small_count_is_shown_nor_follows_from_the_sum(counts: list[int], threshold: int) -> None:
    """Either no cell is hidden, or all, or several with at least the threshold's rows together."""
    cells = shown(counts, threshold)
    assert all(count is None or count == 0 or count >= threshold for count in cells)
    assert all(one is None or one == other for one, other in zip(cells, counts, strict=True))
    hidden = [count for one, count in zip(cells, counts, strict=True) if one is None]
    if not any(0 < count < threshold for count in counts):
        assert not hidden
    elif len(hidden) < len(counts):
        assert len(hidden) > 1
        assert sum(hidden) >= threshold


@pytest.mark.parametrize("suppressed", [1, 2])
def test_few_suppressed_values_hide_no_class(suppressed: int) -> None:
    """They are left out on both sides: all classes are shown, and none is smaller after the run."""
    letters = [*"aaaa", *"bbbbbb", *"cccccccc"]
    source = pa.table({"c": letters, "n": [1] * 9 + [2] * 9})
    after = pa.table({name: [*source[name].to_pylist()[:-suppressed], *[None] * suppressed] for name in "cn"})
    category, number = full(source, after, only=[], threshold=3).pictures["fields"]
    assert category["source"] == category["destination"] == [8 - suppressed, 6, 4, 0]
    assert sum(number["source"]) == sum(number["destination"]) == 18 - suppressed
    assert category["suppressed_left_out"]
    assert number["suppressed_left_out"]


def test_few_suppressed_values_hide_no_class_where_nulls_move() -> None:
    source = pa.table({"c": [None, *"aaaa", *"bbbbbb"]})
    after = pa.table({"c": [*"aaaa", None, *"bbbbb", None]})
    (picture,) = full(source, after, only=[], threshold=3).pictures["fields"]
    assert picture["source"] == picture["destination"]
    assert picture["suppressed_left_out"]


@given(
    st.sampled_from(["null", "replaced", "dropped"]),
    st.lists(st.integers(0, 50), min_size=30, max_size=40),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
    st.data(),
)
def test_no_marginal_and_no_chart_depends_on_few_lost_values(
    policy: str, kept: list[int], lost: int, random: Any, data: Any
) -> None:
    """A reader of release and report learns nothing of values that few rows have lost."""
    finds = [MEASURES[key].find for key in ("marginals", "weighted_marginals")]
    kept = [-1000, *kept]
    instead: dict[str, list[int | None]] = {"null": [None] * lost, "replaced": [60] * lost, "dropped": []}
    after = [*random.sample(kept, len(kept)), *instead[policy]]
    reports = []
    for _ in range(2):
        own = data.draw(st.lists(st.integers(-999, 999), min_size=lost, max_size=lost))
        assume(60 not in own)
        source, destination = (
            pa.table({"n": pa.array(values, pa.int64()), "c": pa.array(map(_as_text, values), pa.string())})
            for values in ([*kept, *own], after)
        )
        source, destination = (
            table.append_column("w", pa.array([2] * table.num_rows)) for table in (source, destination)
        )
        options = MeasureOptions(threshold=4, weight_fields=("w",))
        comparison = Comparison(Release(source, destination), options, STREAM)
        values = [find(comparison).value for find in finds if find is not None]
        reports.append((values, chart_data(comparison, {})["fields"]))
    assert reports[0] == reports[1]


def _as_text(value: int | None) -> str | None:
    return None if value is None else f"level {value % 3 if value < 50 else value}"


@given(
    st.lists(st.integers(-30, 30) | st.none(), min_size=1, max_size=60),
    st.lists(st.sampled_from("aaaaabbbcd") | st.none(), min_size=60, max_size=60),
    st.integers(2, 7),
    st.randoms(use_true_random=False),
)
def test_small_counts_are_in_no_picture(
    numbers: list[int | None], letters: list[str | None], threshold: int, random: Any
) -> None:
    """Charts show no number, category or null that few rows of either table have, also not as an edge."""
    source = pa.table(
        {"n": pa.array(numbers, pa.int64()), "c": pa.array(letters[: len(numbers)], pa.string())}
    )
    order = list(range(source.num_rows))
    random.shuffle(order)
    destination = source.set_column(0, "n", source["n"].take(pa.array(order)))
    found = full(source, destination, only=[], threshold=threshold).pictures
    for picture in found["fields"]:
        for side, table in (("source", source), ("destination", destination)):
            cells = [*picture[side], picture["missing"][side]]
            assert all(count is None or count == 0 or count >= threshold for count in cells)
            if None not in cells and (picture["kind"] == "category" or picture["edges"]):
                assert sum(cells) == table.num_rows
        for label in picture.get("labels", [])[:-1]:
            for table in (source, destination):
                assert table["c"].to_pylist().count(label) >= threshold


def test_numbers_that_nothing_cuts_have_no_edges() -> None:
    """Numbers so small that a twentieth of their range underflows have no edges."""
    assert round_edges([np.arange(24.0) * 5e-324], 0, 5, False) == ([], [False, False])


@given(st.lists(st.floats(-1e12, 1e12), min_size=2, max_size=200), st.integers(2, 9), st.booleans())
def test_edges_are_round_and_hide_the_extremes(values: list[float], threshold: int, whole: bool) -> None:
    """Edges are equidistant, at most 22, with at least the threshold's numbers in either end cell."""
    numbers = np.array([round(value) if whole else value for value in values], np.float64)
    edges, beyond = round_edges([numbers], 0, threshold, whole)
    assume(edges)
    assert len(edges) <= 23
    assert all(one < two for one, two in pairwise(edges))
    assert beyond == [bool((numbers < edges[0]).any()), bool((numbers > edges[-1]).any())]
    assert np.count_nonzero(numbers <= edges[1]) >= threshold
    assert np.count_nonzero(numbers >= edges[-2]) >= threshold
    if whole:
        assert all(edge == round(edge) for edge in edges)


def test_a_figure_does_not_depend_on_which_others_are_taken() -> None:
    """The option `only` leaves measures out and changes no value."""
    random = np.random.default_rng(3)
    source = pa.table(
        {"a": random.normal(size=400), "b": random.normal(size=400), "c": random.integers(0, 4, 400)}
    )
    destination = source.set_column(0, "a", source["a"].take(pa.array(random.permutation(400))))
    options: dict[str, Any] = {"target": "b", "key_fields": ["c"], "sample": 100}
    everything = full(source, destination, **options)
    for key in everything.measures:
        released = Release(source, destination, perturb=lambda table, stream: table)
        chosen = MeasureOptions.model_validate({**options, "only": [key]})
        alone = assess(released, chosen, STREAM, no_progress)
        assert alone.measures == {key: everything.measures[key]}
        assert not alone.pictures


def test_progress_never_goes_back() -> None:
    """Progress goes from 0 to 1 and is reported before each measure."""
    random = np.random.default_rng(4)
    source = pa.table({name: random.normal(size=300) for name in "abc"} | {"d": random.integers(0, 3, 300)})
    reported: list[tuple[float, str]] = []
    options = MeasureOptions(target="a", key_fields=("d",), categorical_fields=("d",))
    released = Release(source, source, perturb=lambda table, stream: table)
    found = assess(released, options, STREAM, lambda fraction, stage: reported.append((fraction, stage)))
    fractions = [fraction for fraction, _ in reported]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)
    assert {f"measuring {key}" for key in found.measures} <= {stage for _, stage in reported}
