"""Exchange of whole households, and the count of households that a swap of single rows tears."""

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError
from scipy import stats

from providers import PROVIDERS
from providers.attacks.composition.intruder_groups import groups_by_field, rate_of
from providers.attacks.methods.groups import moved_fields
from providers.errors import ParameterError, ReversibleError, SourceError, UnswappableError
from providers.params import SwapParams
from providers.swapping.permutation_law import epsilon
from tests.household_survey import household_survey
from tests.naive.agreement import assert_agree, swap
from tests.property.out_of_core import swap_out_of_core
from tests.unit.providers.attacks.methods.tables import released

SURVEY = household_survey(1500)
MOVED = {"swap_fields": ["occupation", "income"], "household": "household"}
OF_SERVICE: dict[str, dict[str, Any]] = {
    "DSWAP": {},
    "CDSWAP": {"control_field": ["region", "sex"]},
    "DDSWAP": {"control_field": ["age_group"], "block_size": 10},
}
FOUR = pa.table({"home": [1, 1, 2, 2, 3, 3, 4, 4], "x": [10, 11, 20, 21, 30, 31, 40, 41], "y": range(8)})


def homes(table: pa.Table, name: str = "household") -> dict[Any, list[int]]:
    found = defaultdict(list)
    for row, value in enumerate(table.column(name).to_pylist()):
        found[value].append(row)
    return dict(found)


def with_numbers(survey: pa.Table) -> pa.Table:
    """The survey with its rows' numbers, which show where values come from."""
    return survey.append_column("number", pa.array(range(survey.num_rows)))


@pytest.mark.parametrize("service", OF_SERVICE)
@pytest.mark.parametrize("change", [{}, {"rate": 0.1}, {"locked": True, "rate": 0.5}])
def test_a_household_gets_all_values_of_one_other_of_its_size(service: str, change: dict[str, Any]) -> None:
    """Also of its classes, member by member; other fields stay; each household's values go to one other."""
    table = with_numbers(SURVEY)
    parameters = {
        **MOVED, **OF_SERVICE[service], **change, "swap_fields": ["number"], "suppression": {"policy": "keep"}
    }  # fmt: skip
    result = swap(service, table, parameters)
    assert result.table.drop(["number"]).equals(table.drop(["number"]))
    sources = result.table.column("number").to_pylist()
    by_home, columns = homes(table), table.to_pydict()
    origins = []
    for home, rows in by_home.items():
        found = {columns["household"][sources[row]] for row in rows}
        assert len(found) == 1
        origin = found.pop()
        origins.append(origin)
        assert len(by_home[origin]) == len(rows)
        assert sorted(sources[row] for row in rows) == sorted(by_home[origin])
        if service == "CDSWAP":
            for row in rows:
                for name in ("region", "sex"):
                    assert columns[name][sources[row]] == columns[name][row], home
        else:
            assert [sources[row] for row in rows] == by_home[origin]
    assert sorted(origins) == sorted(by_home)
    moved = sum(origin != home for origin, home in zip(origins, by_home, strict=True))
    figures = result.provider["households"]
    assert figures["households"] == len(by_home)
    assert figures["took_part_by_field"] == {"number": moved}
    rate = change.get("rate", 1.0)
    assert moved / len(by_home) <= rate + 0.03
    if service != "CDSWAP":
        assert moved / len(by_home) >= rate - 0.03
    groups = result.summary.groups
    assert result.summary.took_part == sum(source != row for row, source in enumerate(sources))
    assert groups >= len(Counter(map(len, by_home.values())))


@pytest.mark.parametrize("service", OF_SERVICE)
def test_the_survey_agrees_with_the_twin(service: str) -> None:
    """With groups larger than those of the property tests, and each mechanism."""
    survey = SURVEY.slice(0, 900)
    for change in (
        {"rate": 0.3},
        {"mechanism": "permutation", "rate": 0.5, "locked": True},
        {"rate": 0.2, "risk": {"key_fields": ["region", "citizenship"], "weight": "weight", "k": 200}},
    ):
        assert_agree(service, survey, {**MOVED, **OF_SERVICE[service], **change})


@pytest.mark.parametrize("service", OF_SERVICE)
def test_the_order_of_households_does_not_matter(service: str) -> None:
    """The same seed gives a household the same values; ids decide, not rows, also as text."""
    by_home = list(homes(SURVEY).values())
    np.random.default_rng(3).shuffle(by_home)
    order = [row for rows in by_home for row in rows]
    text = SURVEY.column("household").cast(pa.string())
    as_text = SURVEY.set_column(0, "household", text)
    for table in (SURVEY, as_text):
        parameters = {**MOVED, **OF_SERVICE[service], "rate": 0.4}
        if service == "DDSWAP":  # ties of first rows are broken by ids
            parameters["control_field"] = ["age_group", "weight"]
        found = swap(service, table, parameters)
        shuffled = swap(service, table.take(order), parameters)
        assert shuffled.table.equals(found.table.take(order))


def test_pairs_of_households_are_uniform() -> None:
    """Each of the three matchings of four households has the same probability."""
    parameters = {"swap_fields": ["x"], "household": "home"}
    counts = Counter(
        swap("DSWAP", FOUR, parameters, number.to_bytes(32, "little")).table.column("x")[0].as_py()
        for number in range(900)
    )
    assert set(counts) == {20, 30, 40}
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_the_permutation_of_households_has_the_exact_epsilon_of_their_number() -> None:
    """It is that of the largest group of households, and the report names their unit."""
    result = swap("DSWAP", FOUR, {**MOVED, "swap_fields": ["x"], "household": "home",
                                  "mechanism": "permutation", "rate": 0.5})  # fmt: skip
    guarantee = result.provider["guarantee"]
    assert guarantee["epsilon"] == pytest.approx(epsilon(4, 0.5), rel=1e-12)
    assert guarantee["holds_for"].startswith(
        "Take two households of one group, which have equal sizes, and exchange their values of the swap "
        "fields in the source, member by member in the order of rows."
    )
    provider = PROVIDERS["DSWAP"]
    params = provider.check(
        provider.params.model_validate(
            {"swap_fields": ["x"], "household": "home", "mechanism": "permutation", "target_epsilon": 5}
        ),
        FOUR.schema,
    )
    planned = provider.plan(FOUR, params).guarantee
    assert planned is not None
    assert planned["holds_for"] == guarantee["holds_for"]
    # An epsilon that no rate reaches is refused before rows that cannot be swapped, as without households.
    some = FOUR.slice(0, 7)
    parameters = {"swap_fields": ["x"], "household": "home", "suppression": {"policy": "fail"}}
    unreachable = {"mechanism": "permutation", "target_epsilon": 0.01}
    assert_agree("DSWAP", some, parameters | unreachable)
    assert_agree("DSWAP", some, parameters)


def test_households_without_a_partner_are_handled_as_rows_are() -> None:
    """The only household of its size is suppressed in all of its rows, dropped, kept or an error."""
    table = pa.table({"home": ["a", "a", "a", "b", "c"], "x": [1, 2, 3, 4, 5], "y": range(5)})
    parameters: dict[str, Any] = {"swap_fields": ["x"], "household": "home"}
    result = swap("DSWAP", table, parameters)
    assert result.table.column("x").to_pylist() == [None, None, None, 5, 4]
    assert result.events.counts == {"suppressed": 3, "reversible_groups": 1}
    assert result.provider["households"]["without_partner"] == 1
    assert result.provider["households"]["rows_without_partner"] == 3
    assert "2 households are in 1 group of two" in next(
        event.message for event in result.events.listed if event.code == "reversible_groups"
    )
    dropped = swap("DSWAP", table, parameters | {"suppression": {"policy": "drop"}})
    assert dropped.table.column("x").to_pylist() == [5, 4]
    with pytest.raises(UnswappableError, match="3 rows of 1 group cannot be swapped"):
        swap("DSWAP", table, parameters | {"suppression": {"policy": "fail"}})
    with pytest.raises(ReversibleError, match="2 households are in 1 group of two"):
        swap("DSWAP", table, parameters | {"on_reversible": "fail"})
    one = swap("DSWAP", table.slice(0, 3), parameters)
    assert one.table.column("x").to_pylist() == [None, None, None]
    assert swap("DSWAP", table.slice(0, 0), parameters).table.num_rows == 0


def test_a_null_keeps_its_whole_household() -> None:
    """With `nulls` set to `keep`; the members' values have events, and the null is no value of theirs."""
    x = pa.array([None, 11, 20, 21, 30, 31, 40, 41])
    table = FOUR.set_column(1, "x", x)
    result = swap("DSWAP", table, {"swap_fields": ["x"], "household": "home", "nulls": "keep"})
    assert result.table.column("x").to_pylist()[:2] == [None, 11]
    assert result.events.counts["null_kept"] == 1
    assert result.summary.unswapped_reasons == {"null": 2}
    moved = swap("DSWAP", table, {"swap_fields": ["x"], "household": "home"})
    assert moved.summary.took_part == 8


def test_a_field_that_another_suppresses_has_moved_all_the_same() -> None:
    """`suppression` names a field, which becomes null also where another one could not be swapped."""
    x = pa.array([None, 11, 20, 21, 30, 31, 40, 41])
    table = FOUR.set_column(1, "x", x).slice(0, 4)
    parameters = {
        "swap_fields": ["x", "y"], "household": "home", "nulls": "keep",
        "suppression": {"policy": "suppress", "fields": ["y"]},
    }  # fmt: skip
    found, _ = assert_agree("DSWAP", table, parameters)
    assert found is not None
    assert found.summary.took_part_by_field == {"x": 0, "y": 4}
    assert found.table.column("y").to_pylist() == [2, 3, None, None]


@pytest.mark.parametrize("service", OF_SERVICE)
def test_a_member_at_risk_moves_its_household(service: str) -> None:
    """All members of such a household move, unless it has no partner, which an event says."""
    keys = ["region", "citizenship"]
    parameters = {
        **MOVED, **OF_SERVICE[service], "swap_fields": ["number"], "rate": 0.02,
        "risk": {"key_fields": keys, "k": 3}, "suppression": {"policy": "keep"},
    }  # fmt: skip
    table = with_numbers(SURVEY)
    result = swap(service, table, parameters)
    key = list(zip(*(table.column(name).to_pylist() for name in keys), strict=True))
    times = Counter(key)
    sources = result.table.column("number").to_pylist()
    obliged = [rows for rows in homes(table).values() if any(times[key[row]] < 3 for row in rows)]
    stayed = [row for rows in obliged for row in rows if sources[row] == row]
    assert obliged
    assert len(stayed) == result.events.counts.get("risk_unswapped", 0)
    figures = result.provider["risk_selection"]
    assert figures["required"] == len(obliged)
    unique = sum(count == 1 for count in times.values())
    assert (figures["unique_before"], figures["unique_after"]) == (unique, unique)
    if service == "DSWAP":
        assert not stayed


@pytest.mark.parametrize("service", OF_SERVICE)
def test_households_that_single_rows_tear_are_counted(service: str) -> None:
    """The bytes are those of a run that does not count. Whole households tear none."""
    table = with_numbers(SURVEY)
    parameters = {**OF_SERVICE[service], "swap_fields": ["tenure", "number"], "locked": True, "rate": 0.05}
    plain = swap(service, table, parameters)
    counted = swap(service, table, parameters | {"household_check": "household"})
    assert counted.table.equals(plain.table)
    figures = counted.provider["households_torn"]
    before, after = (each.select(["household", "tenure"]).to_pylist() for each in (table, plain.table))
    sources = plain.table.column("number").to_pylist()
    by_home = homes(table)
    owner = table.column("household").to_pylist()
    origin = [row if source is None else source for row, source in enumerate(sources)]  # None: suppressed
    mixed = sum(len({owner[origin[row]] for row in rows}) > 1 for rows in by_home.values())
    torn = sum(
        len({before[row]["tenure"] for row in rows}) == 1
        and len({after[row]["tenure"] for row in rows if sources[row] is not None}) > 1
        for rows in by_home.values()
    )
    assert figures["households"] == len(by_home)
    assert figures["by_field"]["tenure"] == {"mixed": mixed, "torn": torn}
    assert figures["by_field"]["number"] == {"mixed": mixed, "torn": 0}
    assert 0 < torn < mixed
    event = next(event for event in counted.events.listed if event.code == "households_torn")
    assert f"members of {mixed} households" in event.message
    whole = swap(service, table, {**parameters, "household": "household"})
    names = whole.table.column("number").to_pylist()
    assert all(len({owner[names[row]] for row in rows if names[row] is not None}) <= 1
               for rows in by_home.values())  # fmt: skip


def test_wrong_households_are_refused() -> None:
    """Each message names the parameter; a household id is neither swapped nor a control field."""
    table = pa.table({"home": [1, None, 2], "half": [0.5, 1.5, 2.5], "x": [1, 2, 3], "y": [1, 2, 3]})
    moved: dict[str, Any] = {"swap_fields": ["x"]}
    for name in ("household", "household_check"):
        with pytest.raises(ParameterError, match="unknown field 'hoem'; did you mean 'home'") as caught:
            swap("DSWAP", table, moved | {name: "hoem"})
        assert caught.value.pointer == f"/parameters/{name}"
        with pytest.raises(ParameterError, match="cannot identify households") as caught:
            swap("DSWAP", table, moved | {name: "half"})
        assert caught.value.pointer == f"/parameters/{name}"
        with pytest.raises(ParameterError, match="'x' is both household and swap field"):
            swap("DSWAP", table, moved | {name: "x"})
        with pytest.raises(ParameterError, match="'y' is both household and control field"):
            swap("CDSWAP", table, moved | {name: "y", "control_field": "y"})
        with pytest.raises(SourceError, match="'home' is null in 1 row") as absent:
            swap("DSWAP", table, moved | {name: "home"})
        assert absent.value.pointer == f"/parameters/{name}"
    with pytest.raises(ValidationError, match="one of the two"):
        PROVIDERS["DSWAP"].params.model_validate(moved | {"household": "home", "household_check": "home"})


@pytest.mark.parametrize("name", ["household", "household_check"])
def test_households_stay_in_memory(name: str) -> None:
    """Members can be anywhere in the table, so that a run is not cut."""
    parameters = {"swap_fields": ["income"], name: "household"}
    with pytest.raises(ParameterError, match=f"a swap with '{name}' does not run out of core"):
        swap_out_of_core("DSWAP", SURVEY, parameters, 10**6, 100)
    params = PROVIDERS["DSWAP"].params.model_validate(parameters)
    assert not PROVIDERS["DSWAP"].scaling.can_cut(params)
    assert "household" in PROVIDERS["DSWAP"].scaling.reads(params, SURVEY.schema)


def test_parameters_without_households_are_stored_as_before() -> None:
    """An older version can run the job; with a household it refuses the unknown name."""
    for service, others in OF_SERVICE.items():
        model = PROVIDERS[service].params
        plain = model.model_validate({"swap_fields": ["income"], **others}).model_dump(mode="json")
        assert not {"household", "household_check"} & set(plain)
        stored = model.model_validate({**MOVED, **others}).model_dump(mode="json")
        assert stored["household"] == "household"
        assert "household_check" not in stored
        assert model.model_validate(stored).household == "household"


@pytest.mark.parametrize("service", OF_SERVICE)
@pytest.mark.parametrize("nulls", ["swap", "keep"])
def test_an_intruder_finds_the_groups_of_households(service: str, nulls: str) -> None:
    """Each value moved within its group of the release, whose rows are of different households."""
    table = with_numbers(SURVEY)
    empty = pa.array([None if row % 40 == 0 else row for row in range(table.num_rows)])
    table = table.append_column("partly", empty)
    parameters = {
        **MOVED, **OF_SERVICE[service], "swap_fields": ["number", "partly"], "nulls": nulls,
        "suppression": {"policy": "keep"},
        "mechanism": "permutation",
        "target_epsilon": 11 if service == "DDSWAP" else 30,
    }  # fmt: skip
    tables = released(service, table, parameters)
    release = tables.release
    provider = PROVIDERS[service]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    assert isinstance(params, SwapParams)
    found = groups_by_field(release, params)
    moved = moved_fields(tables)
    assert [each.fields for each in moved] == [("number",), ("partly",)]
    owner = np.array(table.column("household").to_pylist())
    for each in moved:
        (name,) = each.fields
        inside = each.group >= 0
        values = release.column(name).to_pylist()
        sources = [row if value is None else value for row, value in enumerate(values)]
        if name == "partly" and nulls == "swap":
            continue  # the row that a moved null comes from is not seen
        changed = np.flatnonzero(np.array(sources) != np.arange(table.num_rows))
        assert len(changed)
        assert inside[changed].all()
        assert (each.group[sources] == each.group)[changed].all()
        assert (found[name][sources] == found[name])[changed].all()
        pairs = set(zip(each.group[inside].tolist(), owner[inside].tolist(), strict=True))
        assert len(pairs) == int(inside.sum())
        assert each.rate == pytest.approx(rate_of(params, found, name, release))
