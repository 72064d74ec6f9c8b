"""Queries of LOCALITY's paper, and ranks, standard errors and variance shares of RWN's."""

import csv
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import statsmodels.api as sm
from scipy.spatial.distance import cdist
from scipy.stats import rankdata

from app.report.measure_tables import measure
from app.report.small_counts import Discretion
from providers.errors import ParameterError
from providers.measures import MEASURES
from providers.measures.assessment import MeasureOptions, Release, assess, check_options
from providers.measures.risk.interval_ranks import rank_limits, share_by_chance
from providers.measures.run_figures import measures_stream
from providers.measures.shared.aggregate_queries import averages, drawn_instances
from providers.measures.shared.sampling import uniforms
from providers.measures.utility import query_error
from providers.measures.utility.query_error import INSTANCES
from providers.selection.figures import named_figure
from tests.naive import queries as naive

RANDOM = np.random.default_rng(21)
ROWS = 240
STREAM = measures_stream(bytes(32))


def at_path(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value[name]
    return value


def with_gaps(values: list[Any], share: float = 0.08) -> list[Any]:
    return [None if RANDOM.random() < share else value for value in values]


def people() -> pa.Table:
    age = RANDOM.integers(18, 80, ROWS)
    income = (700.0 * age + RANDOM.normal(0, 9000, ROWS)).round(0)
    return pa.table(
        {
            "age": with_gaps(age.tolist()),
            "income": with_gaps(income.tolist()),
            "weeks": with_gaps(RANDOM.integers(0, 53, ROWS).tolist()),
            "job": with_gaps(RANDOM.choice(["cook", "nurse", "smith", "clerk"], ROWS).tolist()),
        }
    )


SOURCE = people()
NAMES = ("age", "income", "weeks", "job")
STATE = RANDOM.bit_generator.state


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Each test draws the same numbers, whichever tests ran before it."""
    RANDOM.bit_generator.state = STATE


def moved(*names: str) -> pa.Table:
    table = SOURCE
    for name in names:
        order = np.random.default_rng(len(name)).permutation(ROWS)
        table = table.set_column(table.column_names.index(name), name, table[name].take(pa.array(order)))
    return table


def judged(destination: pa.Table, key: str, source: pa.Table = SOURCE, **options: Any) -> dict[str, Any]:
    given = MeasureOptions.model_validate({"only": [key], **options})
    check_options(given, source.schema, destination.schema)
    found = assess(Release(source, destination), given, STREAM)
    assert key in found.measures, found.left_out
    return found.measures[key]


# ------------------------------------------------------------------------------------------ queries


def numbers_of(values: list[float | None]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([np.nan if value is None else value for value in values], np.float64)


@pytest.mark.parametrize("name", ["job", "other"])
def test_averages_agree_with_filtering_the_rows(name: str) -> None:
    """Many equal numbers, thresholds that are among them, gaps, and rows of none of the categories."""
    table = {field: SOURCE[field].to_pylist() for field in NAMES}
    levels = sorted({each for each in table["job"] if each is not None})
    domains = [(18.0, 79.0), (0.0, 52.0)]
    asked = drawn_instances(np.random.default_rng(4).random((200, 3 + len(levels))), domains, len(levels))
    asked.first[::3] = np.round(asked.first[::3])
    asked.second[::2] = np.round(asked.second[::2])
    kinds = [each if name == "job" or each != "cook" else "fool" for each in table["job"]]
    codes = np.array([levels.index(each) if each in levels else -1 for each in kinds], np.int32)
    income, age, weeks = (numbers_of(table[field]) for field in ("income", "age", "weeks"))
    answers = averages(income, age, weeks, codes, asked)
    none = 0
    for index, answer in enumerate(answers.tolist()):
        among = {level for level, chosen in zip(levels, asked.chosen[index], strict=True) if chosen}
        conditions = [(table["age"], asked.first[index]), (table["weeks"], asked.second[index])]
        expected = naive.average(table["income"], conditions, kinds, among)
        none += expected is None
        assert np.isnan(answer) if expected is None else answer == pytest.approx(expected, rel=1e-12)
    assert 0 < none < 100


def test_sets_of_categories_have_every_size_and_every_member_equally_often() -> None:
    """Each size has a third of 30,000 instances, and each set of a size its share (4.5 deviations)."""
    count = 30_000
    chosen = drawn_instances(np.random.default_rng(5).random((count, 6)), [(0, 1), (0, 1)], 3).chosen
    sizes = Counter(chosen.sum(axis=1).tolist())
    assert set(sizes) == {1, 2, 3}
    for number in sizes.values():
        assert abs(number - count / 3) < 4.5 * np.sqrt(count * 2 / 9)
    for size in (1, 2):
        sets = Counter(map(tuple, chosen[chosen.sum(axis=1) == size].tolist()))
        assert len(sets) == 3
        for number in sets.values():
            assert abs(number - sizes[size] / 3) < 4.5 * np.sqrt(sizes[size] * 2 / 9)


def test_query_errors_agree_with_a_plain_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same instances, asked of both tables one by one."""
    monkeypatch.setattr(query_error, "INSTANCES", 40)
    released = moved("income", "job")
    report = judged(released, "query_error", query_fields=NAMES)
    kinds = list(dict.fromkeys(each for each in SOURCE["job"].to_pylist() if each is not None))
    every: list[float] = []
    for query, averaged in enumerate(NAMES[:3]):
        others = [name for name in NAMES[:3] if name != averaged]
        known = [[x for x in SOURCE[name].to_pylist() if x is not None] for name in others]
        drawn = uniforms(40 * (3 + len(kinds)), STREAM, f"aggregate queries/{query}").reshape(40, -1)
        asked = drawn_instances(drawn, [(min(field), max(field)) for field in known], len(kinds))
        errors = []
        for first, second, chosen in zip(asked.first, asked.second, asked.chosen, strict=True):
            among = {kind for kind, is_in in zip(kinds, chosen, strict=True) if is_in}
            before, after = (
                naive.average(
                    side[averaged].to_pylist(),
                    [(side[others[0]].to_pylist(), first), (side[others[1]].to_pylist(), second)],
                    side["job"].to_pylist(),
                    among,
                )
                for side in (SOURCE, released)
            )
            errors.append(naive.relative_error(before, after))
        asked_errors = [error for error in errors if error is not None]
        every += asked_errors
        found = report["value"]["by_field"][averaged]
        assert found["mean"] == pytest.approx(np.mean(asked_errors))
        assert found["median"] == pytest.approx(np.median(asked_errors))
    assert report["queries"] == len(every)
    for part, expected in (("mean", np.mean(every)), ("bounded", np.minimum(every, 1).mean())):
        assert report["value"][part] == pytest.approx(expected)
    for part, bounds in report["interval"].items():
        assert bounds["low"] <= report["value"][part] <= bounds["high"]


def test_an_equal_table_answers_all_queries() -> None:
    report = judged(SOURCE, "query_error", query_fields=NAMES)
    assert report["value"]["mean"] == report["value"]["q75"] == 0
    assert 0 < report["queries"] <= 3 * INSTANCES
    assert report["fields"] == list(NAMES)


@pytest.mark.parametrize(
    ("given", "reason", "place"),
    [
        (
            ("age", "income", "job"),
            "three fields of numbers and one category, in this order: 3 are given",
            "",
        ),
        (("age", "job", "income", "weeks"), "field 'job' is no number", "/1"),
        (("age", "income", "weeks", "age"), "named twice", "/3"),
        (("age", "income", "weeks", "jib"), "unknown field 'jib'", "/3"),
        (
            ("age", "income", "weeks", "weeks2"),
            "name it in 'categorical_fields' if its numbers are codes",
            "/3",
        ),
    ],
)
def test_query_fields_are_three_numbers_and_a_category(
    given: tuple[str, ...], reason: str, place: str
) -> None:
    table = SOURCE.append_column("weeks2", SOURCE["weeks"])
    options = MeasureOptions(query_fields=given)
    with pytest.raises(ParameterError, match=re.escape(reason)) as raised:
        check_options(options, table.schema, table.schema)
    assert raised.value.pointer == f"/measures/query_fields{place}"
    codes = MeasureOptions(query_fields=("age", "income", "weeks", "weeks2"), categorical_fields=("weeks2",))
    check_options(codes, table.schema, table.schema)


def test_queries_without_an_answer_are_left_out_with_the_reason() -> None:
    """No fields of queries, an empty field, a field without a number, and too many categories."""
    many = pa.table({**{name: list(range(1100)) for name in "abc"}, "kind": [f"k{i}" for i in range(1100)]})
    empty = pa.table({"a": [1, 2], "b": [1, 2], "c": pa.nulls(2, pa.int64()), "kind": ["x", "y"]})
    none = pa.table({"a": [1, 2], "b": [1, 2], "c": [1, 2], "kind": pa.nulls(2, pa.string())})
    no_rows = empty.slice(0, 0)
    named = ("a", "b", "c", "kind")
    for table, fields, reason in (
        (many, (), "name three fields of numbers and a category in 'query_fields'"),
        (many, named, "'kind' has more than 1,000 categories: name a coarser field"),
        (empty, named, "'c' has no number in the source"),
        (none, named, "'kind' is empty in the source"),
        (no_rows, named, "it needs 1 row or more in both tables"),
    ):
        options = MeasureOptions(only=("query_error",), query_fields=fields)
        assert assess(Release(table, table), options, STREAM).left_out["query_error"] == reason


def test_candidates_of_earlier_versions_rank_by_the_same_figure() -> None:
    """`query_error` was the key of averages over ranges, of which no option names fields."""
    for name in ("query_error", "query_error.bounded", "queries"):
        assert named_figure(name, MeasureOptions(), "/rank_by/0").name == "range_averages.bounded"
    assert named_figure("query_error.median", MeasureOptions(), "/rank_by/0").name == "range_averages.median"
    given = MeasureOptions(query_fields=NAMES)
    assert named_figure("query_error", given, "/rank_by/0").name == "query_error.bounded"


# -------------------------------------------------------------------------------------------- ranks


@pytest.mark.parametrize("p", [0.1, 0.01])
def test_rank_intervals_agree_with_a_plain_twin(p: float) -> None:
    released = moved("income", "weeks")
    report = judged(released, "interval_ranks")
    fields = ["age", "income", "weeks"]
    share, by_field = naive.rank_disclosure(
        [SOURCE[name].to_pylist() for name in fields], [released[name].to_pylist() for name in fields], p
    )
    value = report["value"] if p == 0.1 else report["value"]["narrow"]
    assert report["fields"] == fields
    assert value["share"] == pytest.approx(share)
    assert list(value["by_field"].values()) == pytest.approx(by_field)
    assert value["by_field"]["age"] == 1


def test_rank_intervals_of_values_dealt_at_random_are_those_of_chance() -> None:
    """The mean over 400 permutations is the stated chance, within 4.5 standard errors."""
    numbers = numbers_of(SOURCE["weeks"].to_pylist())
    for p in (0.1, 0.01):
        chance = share_by_chance(numbers, p)
        shares = []
        for _ in range(400):
            dealt = RANDOM.permutation(numbers)
            low, high = rank_limits(dealt, p)
            known = ~np.isnan(numbers)
            shares.append(float(((low <= numbers) & (numbers <= high))[known].mean()))
        assert chance is not None
        assert abs(np.mean(shares) - chance) < 4.5 * np.std(shares) / 20
    assert share_by_chance(np.full(3, np.nan), 0.1) is None


def test_shares_by_field_have_those_of_values_dealt_at_random() -> None:
    """The mean of 60 releases whose fields are dealt at random is the chance of the report (4.5 errors)."""
    table = SOURCE.select(["income", "weeks"]).slice(0, 80)
    found: dict[str, list[float]] = {"changed_share": [], "interval_sd": [], "interval_ranks": []}
    chances: dict[str, float] = {}
    for _ in range(60):
        dealt = pa.table(
            {name: table[name].take(pa.array(RANDOM.permutation(80))) for name in table.column_names}
        )
        given = MeasureOptions(only=tuple(found))
        for key, report in assess(Release(table, dealt), given, STREAM).measures.items():
            value, chance = report["value"], report["chance"]
            found[key].append(
                value["weeks"] if key == "changed_share" else value["narrow"]["by_field"]["weeks"]
            )
            chances[key] = (
                chance["weeks"] if key == "changed_share" else chance["narrow"]["by_field"]["weeks"]
            )
    for key, values in found.items():
        assert abs(np.mean(values) - chances[key]) < 4.5 * np.std(values) / np.sqrt(60), key


@pytest.mark.parametrize("key", ["dcr", "interval_sd", "interval_ranks"])
def test_shares_and_distances_of_rows_have_those_of_values_dealt_at_random(key: str) -> None:
    """The mean of 60 releases whose fields are dealt at random is the chance of the report (4.5 errors)."""
    table = SOURCE.slice(0, 80)
    if key == "dcr":  # equal rows by chance
        table = table.set_column(1, "income", pa.array(with_gaps(RANDOM.choice([1.0, 2.0], 80).tolist())))
    found, report = [], judged(table, key, table)
    for _ in range(60):
        orders = [pa.array(RANDOM.permutation(80)) for _ in NAMES]
        dealt = pa.table({name: table[name].take(at) for name, at in zip(NAMES, orders, strict=True)})
        found.append(judged(dealt, key, table)["value"])
    paths = {
        "dcr": ("mean", "p05", "at_zero", "raw_mean", "ranks.mean", "ranks.p05"),
        "interval_sd": ("share", "narrow.share", "robust.share"),
        "interval_ranks": ("share", "narrow.share"),
    }
    for path in paths[key]:
        values, chance = (
            np.array([at_path(each, path) for each in several]) for several in (found, [report["chance"]])
        )
        drawn = 1 / 10 if key == "dcr" else 0
        assert abs(values.mean() - chance[0]) <= 4.5 * values.std() * np.sqrt(1 / 60 + drawn) + 1e-12, path
        assert chance[0] > 0 or "narrow" in path or "robust" in path


def test_distances_by_chance_of_a_sample_are_those_of_a_thousand_rows() -> None:
    """Their intervals hold the value, and the identifier of the run's units takes part in none of them."""
    table = pa.table({name: RANDOM.normal(0, 1, 3000).round(1) for name in "ab"})
    report = judged(table, "dcr", table)
    interval = report["interval"]["chance"]
    assert set(interval) == set(report["chance"]) == set(report["value"])
    for part in ("mean", "p05", "at_zero", "raw_mean"):
        assert interval[part]["low"] <= report["chance"][part] <= interval[part]["high"]
    assert interval["mean"]["low"] < interval["mean"]["high"]
    shown = dict(measure("dcr", report, ["a", "b"], Discretion(1000)).pairs)
    for part in ("mean", "share at distance 0", "mean, in the fields' own units", "on ranks, mean"):
        assert re.fullmatch(r"[^;]+; by chance alone \S+ \(95 % interval .+ to .+\)", shown[part]), part


def test_one_row_has_distances_by_chance_without_intervals() -> None:
    one = SOURCE.slice(0, 1)
    report = judged(one, "dcr", one)
    assert report["chance"] == report["value"]


def test_an_extreme_value_changes_no_interval_of_ranks() -> None:
    released = moved("income")
    income = SOURCE["income"].to_pylist()
    row = income.index(max(x for x in income if x is not None))
    extreme = [1e12 if place == row else x for place, x in enumerate(income)]
    source = SOURCE.set_column(1, "income", pa.array(extreme, pa.float64()))
    swapped = pa.array(
        [1e12 if x == income[row] else x for x in released["income"].to_pylist()], pa.float64()
    )
    other = judged(released.set_column(1, "income", swapped), "interval_ranks", source)
    assert other["value"] == judged(released, "interval_ranks")["value"]


def test_distances_on_ranks_agree_with_scipy() -> None:
    """Every number is its rank among the source's, scaled to 0 to 1, with equal ones at their mean."""
    source = pa.table({name: RANDOM.integers(0, 30, 120) / 7 for name in "ab"})
    released = pa.table({"a": source["a"], "b": source["b"].take(pa.array(RANDOM.permutation(120)))})
    ranked = []
    for table in (source, released):  # the release has the same values, and so the same ranks
        ranks = np.column_stack([rankdata(table[name].to_numpy()) for name in "ab"])
        low = np.array([rankdata(source[name].to_numpy()).min() for name in "ab"])
        high = np.array([rankdata(source[name].to_numpy()).max() for name in "ab"])
        ranked.append((ranks - low) / (high - low))
    expected = cdist(*ranked).min(axis=1)
    found = judged(released, "dcr", source)["value"]["ranks"]
    assert found == {"mean": pytest.approx(expected.mean()), "p05": pytest.approx(np.percentile(expected, 5))}


def test_a_sampled_distance_on_ranks_has_an_interval_on_the_page() -> None:
    report = judged(moved("income"), "dcr", sample=60)
    assert set(report["interval"]["ranks"]) == set(report["value"]["ranks"])
    shown = dict(measure("dcr", report, list(NAMES), Discretion(1000)).pairs)
    assert " to " in shown["on ranks, mean, 95 % interval"]
    assert "on ranks, mean" in shown


def test_categories_alone_have_no_distance_on_ranks() -> None:
    table = SOURCE.select(["job"])
    assert "ranks" not in judged(table, "dcr", table)["value"]


# ---------------------------------------------------------------- regression and principal components


def fitted(table: pa.Table) -> Any:
    rows = [row for row in table.to_pylist() if None not in (row["age"], row["income"], row["weeks"])]
    kinds = ["(missing)" if row["job"] is None else row["job"] for row in rows]
    levels = [level for level in ("nurse", "smith", "clerk", "cook", "(missing)") if level != REFERENCE]
    columns = {"age": [row["age"] for row in rows], "weeks": [row["weeks"] for row in rows]}
    columns |= {f"job: {level}": [float(kind == level) for kind in kinds] for level in levels}
    exog = sm.add_constant(np.column_stack([np.array(values, float) for values in columns.values()]))
    found = sm.OLS(np.array([row["income"] for row in rows], float), exog).fit()
    return dict(zip(["(intercept)", *columns], zip(found.params, found.bse, strict=True), strict=True))


REFERENCE = str(Counter(SOURCE["job"].to_pylist()).most_common(1)[0][0])
"""Most frequent level, which has no coefficient."""


def test_coefficients_and_standard_errors_agree_with_statsmodels() -> None:
    released = moved("income", "job")
    report = judged(released, "regression", target="income")
    before, after = fitted(SOURCE), fitted(released)
    rows = {row["term"]: row for row in report["value"]["coefficients"]}
    assert set(rows) == set(before)
    overlaps, changes = [], []
    for term, row in rows.items():
        assert (row["before"], row["before_error"]) == pytest.approx(before[term], rel=1e-9)
        assert (row["after"], row["after_error"]) == pytest.approx(after[term], rel=1e-9)
        ends = [
            (b - 1.959963984540054 * e, b + 1.959963984540054 * e) for b, e in (before[term], after[term])
        ]
        common = min(ends[0][1], ends[1][1]) - max(ends[0][0], ends[1][0])
        assert row["overlap"] == pytest.approx(np.mean([common / (high - low) for low, high in ends]))
        if term != "(intercept)":
            overlaps.append(row["overlap"])
            changes.append(abs(after[term][0] - before[term][0]) / before[term][1])
    assert report["value"]["overlap"] == pytest.approx(np.mean(overlaps))
    assert report["value"]["change_in_errors"] == pytest.approx(np.mean(changes))


def test_chosen_terms_are_those_of_the_whole_model() -> None:
    """The other fields stay in the model, and all levels of a category are its terms."""
    released = moved("income")
    all_rows = {
        row["term"]: row for row in judged(released, "regression", target="income")["value"]["coefficients"]
    }
    report = judged(released, "regression", target="income", term_fields=["job"])
    rows = report["value"]["coefficients"]
    assert len(rows) == 4
    assert all(row["term"].startswith("job: ") and row == all_rows[row["term"]] for row in rows)
    for wrong, reason in (("income", "no term of the regression belongs to 'income'"), ("job", "")):
        options = MeasureOptions(only=("regression",), target="income", term_fields=(wrong,))
        assert reason in assess(Release(SOURCE, released), options, STREAM).left_out.get("regression", "")


@pytest.mark.realdata
def test_the_papers_coefficient_has_its_standard_error(data_dir: Path) -> None:
    """The coefficient of female on wage income is -8595.6 (9.3.1), with the standard error of statsmodels."""
    with (data_dir / "svcensus.csv").open() as file:
        rows = list(csv.DictReader(file))
    numbers = {name: [float(row[name]) for row in rows] for name in ("age", "wageinc", "wkswrkd")}
    codes = {name: [row[name] for row in rows] for name in ("educ", "occ", "gender")}
    table = pa.table({**numbers, **codes})
    report = judged(table, "regression", table, target="wageinc", term_fields=["gender"])
    (row,) = report["value"]["coefficients"]
    assert row["term"] == "gender: female"
    assert row["before"] == pytest.approx(-8595.583, abs=0.001)
    assert row["overlap"] == 1
    columns = [numbers["age"], numbers["wkswrkd"]]
    columns += [
        [float(code == level) for code in values]
        for values in codes.values()
        for level in sorted(set(values))[1:]
    ]
    fit = sm.OLS(np.array(numbers["wageinc"]), sm.add_constant(np.column_stack(columns))).fit()
    assert row["before_error"] == pytest.approx(fit.bse[-1], rel=1e-9)


def test_variance_shares_are_those_of_the_correlation_matrix() -> None:
    source = pa.table({name: RANDOM.normal(size=90) for name in "abc"} | {"d": np.arange(90.0)})
    released = source.set_column(0, "a", source["a"].take(pa.array(RANDOM.permutation(90))))
    shares = judged(released, "il2", source)["value"]["variance_shares"]
    assert [share["component"] for share in shares] == [1, 2, 3, 4]
    for side, table in (("before", source), ("after", released)):
        matrix = np.corrcoef([table[name].to_numpy() for name in table.column_names])
        expected = np.sort(np.linalg.eigvalsh(matrix))[::-1] / 4
        assert [share[side] for share in shares] == pytest.approx(expected)


def test_new_figures_are_measures_with_words_for_readers() -> None:
    """The page shows a table of coefficients and of variance shares, and no raw key."""
    report = judged(moved("income"), "regression", target="income")
    table = measure("regression", report, list(NAMES), Discretion(1000)).tables[0]
    assert table.caption == "coefficients"
    assert table.head[3] == "change"  # it has a sign
    assert "standard error before" in table.head
    shares = measure("il2", judged(moved("income"), "il2"), list(NAMES), Discretion(1000)).tables[0]
    assert shares.caption == "shares of the variance, by component"
    assert shares.head == ("component", "before", "after")
    assert [row[0] for row in shares.rows] == ["1", "2", "3"]  # as many as fields, which name none of them
    assert {"query_error", "range_averages", "interval_ranks", "regression"} <= set(MEASURES)
