"""Headline of a report: its state against chance and thresholds, and its three sentences."""

import random
import re
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers import PROVIDERS
from providers.attacks.thresholds import Bounds, Thresholds
from providers.attacks.verdict import STATES
from providers.measures import MEASURES
from providers.measures.assessment import MeasureOptions, Release, assess
from providers.measures.meanings import MEANINGS
from providers.measures.run_figures import measures_stream
from providers.selection.headline import Headline, headline
from providers.selection.headline_words import (
    ACTIONS,
    NO_FIGURE_OF_RISK,
    NONE_IS_BETTER,
    change_by_chance,
    constant_words,
    share_words,
)
from tests.naive import headline as naive

OPTIONS = MeasureOptions(key_fields=("age", "town"), sensitive_fields=("job", "income"))
ROWS = 300


def people() -> dict[str, list[Any]]:
    draw = random.Random(4)
    ages = [draw.randint(18, 90) for _ in range(ROWS)]
    return {
        "age": ages,
        "town": [f"t{draw.randint(1, 20)}" for _ in ages],
        "job": [f"j{draw.randint(1, 6)}" for _ in ages],
        "income": [30 * age + draw.randint(0, 900) for age in ages],
    }


def released(share: float, *fields: str) -> dict[str, list[Any]]:
    """The people, with the values of a share of the rows dealt again in each of the fields."""
    table, draw = people(), random.Random(5)
    for name in fields:
        rows = draw.sample(range(ROWS), round(share * ROWS))
        values = [table[name][row] for row in rows]
        draw.shuffle(values)
        for row, value in zip(rows, values, strict=True):
            table[name][row] = value
    return table


def report(after: dict[str, list[Any]], options: MeasureOptions = OPTIONS) -> dict[str, Any]:
    return report_of(pa.table(people()), pa.table(after), options)


def report_of(source: pa.Table, release: pa.Table, options: MeasureOptions = OPTIONS) -> dict[str, Any]:
    found = assess(Release(source, release), options, measures_stream(bytes(32)))
    return {
        "summary": {"rows": ROWS},
        "provider": {},
        "measures": found.measures,
        "pictures": found.pictures,
    }


def headed(
    given: dict[str, Any], thresholds: Thresholds | None = None, options: MeasureOptions = OPTIONS, **run: Any
) -> Headline:
    return headline(
        given, thresholds or Thresholds(), source=pa.table(people()), options=options, parameters=run
    )


@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_the_risk_is_that_of_its_definition(share: float) -> None:
    """At most that of the less likely event, each beyond chance; true values are the worst field's."""
    before, after = people(), released(share, "job", "income")
    given = report(after)
    linked = given["measures"]["record_linkage"]["value"]
    risks = [
        naive.beyond_chance(
            naive.true_values(before["job"], after["job"]), naive.true_by_chance(before["job"])
        ),
        naive.beyond_chance(
            naive.close_values(before["income"], after["income"]), naive.close_by_chance(before["income"])
        ),
        naive.beyond_chance(
            naive.true_values(before["income"], after["income"]), naive.true_by_chance(before["income"])
        ),
    ]
    expected = min(naive.beyond_chance(linked["rate"], linked["chance"]), max(risks))
    found = headed(given)
    assert found.risk == pytest.approx(expected)
    assert found.state == naive.state(expected, 0.05, 0.09)
    assert {each["figure"] for each in found.decided_by} == {"record_linkage", "true_values"}
    worst = next(each for each in found.decided_by if each["figure"] == "true_values")
    assert worst["field"] == ("job", "income", "income")[risks.index(max(risks))]


def test_states_follow_what_was_done() -> None:
    """Hardly changed is high; dealt at random is low, whether the known or the secret fields were dealt."""
    assert headed(report(people())).state == "high"
    assert headed(report(released(0.05, "job", "income"))).state == "high"
    assert headed(report(released(1.0, "job", "income"))).state == "low"
    assert headed(report(released(1.0, "age", "town"))).state == "low"
    untouched = headed(report(released(1.0, "job")))  # the income is published with its row
    assert untouched.state == "high"
    assert untouched.decided_by[1]["field"] == "income"


@pytest.mark.parametrize("value", ["same", 5])
def test_a_field_with_one_value_is_not_judged(value: str | int) -> None:
    """Everybody knows it: "low risk", because chance reads it as often as an intruder, said nothing."""
    source = pa.table(people() | {"const": [value] * ROWS})

    def headed_of(*sensitive: str, known: tuple[str, ...] = ()) -> Headline:
        options = MeasureOptions(key_fields=known, sensitive_fields=sensitive)
        measured = assess(Release(source, source), options, measures_stream(bytes(32)))
        given = {"summary": {"rows": ROWS}, "provider": {}, "measures": measured.measures}
        return headline(given, Thresholds(), source=source, options=options)

    alone = headed_of("const")
    assert (alone.state, alone.risk, alone.decided_by) == ("unknown", None, [])
    assert alone.sentences[0] == constant_words(["const"])
    assert alone.sentences[2] == ACTIONS["unknown"]
    assert [each["field"] for each in headed_of("const", "income").decided_by] == ["income"]
    found = headed_of("const", known=("age", "town"))  # the rows are found, whatever is read there
    assert (found.state, [each["figure"] for each in found.decided_by]) == ("high", ["record_linkage"])


def test_no_parameter_is_advised_that_cannot_change_the_deciding_figure() -> None:
    """Rows are found and read, or membership is seen, in fields that the run leaves alone."""
    given = report(people(), MeasureOptions(key_fields=("age",), sensitive_fields=("town",)))
    options = MeasureOptions(key_fields=("age",), sensitive_fields=("town",))
    given["summary"]["changed"] = {"income": 200}
    words = headed(given, options=options, rate=0.5, k=3).sentences[2]
    assert "To lower the risk, change more fields, such as 'age' and 'town'" in words
    assert "rate" not in words
    given["summary"]["changed"] = {"town": 3}
    assert "raise 'rate'" in headed(given, options=options, rate=0.5, k=3).sentences[2]
    membership = {"attack": "membership", "value": 1.0, "state": "high", "reason": "It succeeds."}
    attacked: dict[str, Any] = {
        "summary": {"rows": ROWS, "changed": {"income": 200}},
        "verdict": {"state": "high", "reasons": ["It succeeds."], "attacks": [membership]},
        "attacks": {"membership": {"details": {"used": ["age"]}}},
    }
    assert "such as 'age': it is read" in headed(attacked, rate=0.5).sentences[2]
    attacked["attacks"]["membership"]["details"] = {}
    assert "raise 'rate'" in headed(attacked, rate=0.5).sentences[2]


def test_one_row_is_not_judged() -> None:
    """It is found always, and chance finds it, too; a lower bound of 100 % by chance would be a low risk."""
    source = pa.table({name: values[:1] for name, values in people().items()})
    given = report_of(source, source)
    found = headline(given, Thresholds(), source=source, options=OPTIONS)
    assert (found.state, found.risk) == ("unknown", None)
    assert found.sentences[0].startswith("The risk is not known: the table has one row")
    assert found.sentences[2].startswith("Judge the row together with the others")


@pytest.mark.parametrize("name", ["true value of", "it's", "<b>", "a and b"])
def test_names_of_fields_are_in_quotes(name: str) -> None:
    source = pa.table(people()).rename_columns(["age", name, "job", "income"])
    options = MeasureOptions(key_fields=("age", name), sensitive_fields=("job",))
    words = headline(report_of(source, source, options), Thresholds(), source=source, options=options)
    assert f"who knows 'age' and '{name}' finds" in words.sentences[0]
    assert "close value of 'job' in" in words.sentences[0]


@pytest.mark.parametrize("moved", [False, True])
def test_an_extreme_value_does_not_hide_that_nearly_all_values_are_unchanged(moved: bool) -> None:
    """All others are close to each other then: whether the extreme one moved would decide alone."""
    before = people()
    before["income"][3] = 10**9
    after = {name: list(values) for name, values in before.items()}
    rows = random.Random(7).sample([row for row in range(ROWS) if row != 3], 60)
    rows = [*rows[:-1], 3] if moved else rows
    for one, other in zip(rows[::2], rows[1::2], strict=True):
        after["income"][one], after["income"][other] = after["income"][other], after["income"][one]
    source = pa.table(before)
    options = MeasureOptions(sensitive_fields=("income",))
    found = assess(Release(source, pa.table(after)), options, measures_stream(bytes(32)))
    given = {"summary": {"rows": ROWS}, "provider": {}, "measures": found.measures}
    headed = headline(given, Thresholds(), source=source, options=options)
    assert headed.state == "high"
    assert headed.risk is not None
    assert headed.risk > 0.79  # 80 % of the values are unchanged


def test_thresholds_are_those_of_the_project() -> None:
    """Also of one figure: that which decides."""
    given = report(released(0.3, "job", "income"))
    risk = headed(given).risk
    assert risk is not None
    assert risk > 0.1
    lenient = Thresholds(elevated=0.01, high=1)
    assert headed(given, lenient).state == "elevated"
    assert headed(given, Thresholds(elevated=1, high=1)).state == "low"
    own = Thresholds(attacks={name: Bounds(elevated=1, high=1) for name in ("record_linkage", "true_values")})
    assert headed(given, own).state == "low"
    assert headed(given, lenient).thresholds == {"elevated": 0.01, "high": 1}


@pytest.mark.parametrize("rows", [20, 200])
@pytest.mark.parametrize("related", [False, True])
def test_the_change_by_chance_is_that_of_dealt_values(rows: int, related: bool) -> None:
    """Also where no relation can be lost: the correlation of few rows differs from deal to deal."""
    generator = np.random.default_rng(rows)
    one = generator.normal(size=rows)
    two = one * related + generator.normal(size=rows)
    ranks, others = one.argsort().argsort(), two.argsort().argsort()
    before = float(np.corrcoef(ranks, others)[0, 1])
    dealt = [float(np.corrcoef(ranks, generator.permutation(others))[0, 1]) for _ in range(2000)]
    measures = {
        "delta_rho": {"fields": ["one", "two"]},
        "changed_share": {"per_row": {"fields": ["two"]}},
    }
    pictures = {"correlations": {"fields": ["one", "two"], "source_ranks": [[1.0, before], [before, 1.0]]}}
    expected = float(np.mean(np.abs(np.array(dealt) - before)))
    assert change_by_chance(measures, pictures, rows) == pytest.approx(expected, rel=0.06)
    assert change_by_chance(measures, pictures, 0) == abs(before)
    del pictures["correlations"]["source_ranks"]
    assert change_by_chance(measures, pictures, rows) is None


def test_it_has_three_sentences_with_chance_and_what_to_do() -> None:
    found = headed(report(released(0.3, "job", "income")), rate=0.3, min_group_size=2)
    risk, utility, action = found.sentences
    assert risk.startswith("High risk: an intruder who knows 'age' and 'town' finds ")
    assert risk.count("by chance") == 2
    assert risk.endswith("above 0.09.")
    assert utility.startswith("Utility: every field keeps its distribution, and rank correlations change by ")
    assert "if the changed fields were dealt at random" in utility
    assert "raise 'rate'" in action
    assert "'min_group_size'" not in action  # DSWAP has one group
    assert "raise 'rate'" not in headed(report(people()), rate=1.0).sentences[2]
    undone = report(released(0.3, "job", "income")) | {"provider": {"reversible": True}}
    assert "leave out small groups ('min_group_size')" in headed(undone, min_group_size=2).sentences[2]
    larger = headed(report(people()), k=None, block_size=9).sentences[2]
    assert "make the groups larger ('block_size')" in larger


def test_few_rows_are_not_counted_in_a_sentence() -> None:
    """A share of fewer rows than the threshold is a bound: 3 of 300 rows are 1 %."""
    after = released(1.0, "job", "income")
    given = report(after)
    given["measures"]["record_linkage"]["value"] = {"rate": 3 / ROWS, "chance": 1 / ROWS}
    [risk, _, _] = headed(given).sentences
    assert "finds below 1.67 % of the rows" in risk
    assert "beyond chance is below 0.0167, not above 0.05" in risk


def test_small_figures_have_no_powers_of_ten() -> None:
    """A chance, a change and a risk may be far below a thousandth in a large table."""
    given = report(released(1.0, "job", "income"))
    given["summary"]["rows"] = 10**8
    given["measures"]["record_linkage"]["value"] = {"rate": 2e-8, "chance": 1e-8}
    given["measures"]["marginals"]["value"] = {"identical": 0.5, "mean_distance": 7.4e-6}
    given["measures"]["delta_rho"]["value"]["ranks"]["mean"] = 3e-5
    [risk, utility, _] = headed(given).sentences
    assert "finds below 0.0001 % of the rows (less than 0.0001 % by chance)" in risk
    assert "the risk beyond chance is below 0.0001, not above 0.05" in risk
    assert "distributions differ by less than 0.0001 on average" in utility
    assert "rank correlations change by less than 0.0001 on average" in utility


def test_without_known_fields_an_intruder_is_said_to_find_the_row() -> None:
    options = MeasureOptions(sensitive_fields=("income",))
    given = report(released(0.3, "job", "income"), options)
    found = headed(given, options=options)
    assert [each["figure"] for each in found.decided_by] == ["true_values"]
    assert found.sentences[0].startswith("High risk: an intruder who finds a row reads a true or close value")
    assert headed(given, options=MeasureOptions()).decided_by[0]["figure"] == "true_values"


def test_a_report_without_measures_says_that_nothing_is_known() -> None:
    plain = {"summary": {"rows": ROWS}, "provider": {}, "measures": {}}
    found = headed(plain)
    assert found.state == "unknown"
    assert found.risk is None
    assert "'key_fields'" in found.sentences[2]
    assert "risk" not in found.document()


def test_rows_that_anybody_can_restore_decide_if_they_are_worse() -> None:
    """Also without measures; their share is compared with the same thresholds."""
    plain = {
        "summary": {"rows": ROWS},
        "measures": {},
        "provider": {
            "reversible": True,
            "group_bits": {"rows_in_groups_of_two": 20, "rows_in_groups_of_three": 9},
        },
    }
    found = headed(plain)
    assert found.state == "high"
    assert found.risk == pytest.approx(29 / ROWS)
    assert "undoes the exchange in 9.67 % of the rows" in found.sentences[0]
    measured = report(released(0.05, "job", "income")) | {"provider": plain["provider"]}
    assert headed(measured).decided_by[0]["figure"] == "record_linkage"
    few = plain | {"provider": {"reversible": True, "group_bits": {"rows_in_groups_of_two": 6}}}
    assert headed(few).state == "unknown"  # few rows do not show that the others are safe


@pytest.mark.parametrize("noun", ["household", "unit"])
def test_reversible_groups_of_households_are_a_share_of_the_households(noun: str) -> None:
    """Both are counted in households or units, however many rows each has."""
    moved = {
        "reversible": True,
        "group_bits": {"rows_in_groups_of_two": 20, "rows_in_groups_of_three": 9},
        f"{noun}s": {f"{noun}s": 30},
    }
    found = headed({"summary": {"rows": ROWS}, "measures": {}, "provider": moved})
    assert found.state == "high"
    assert found.risk == pytest.approx(29 / 30)
    assert f"undoes the exchange in 96.7 % of the {noun}s" in found.sentences[0]


def test_an_intruder_who_knows_swapped_fields_in_addition_is_no_smaller_risk() -> None:
    """The sentence names the known fields by which the rows are found."""
    after = released(1.0, "age")
    less, more = (
        MeasureOptions(key_fields=known, sensitive_fields=("job",)) for known in (("town",), ("age", "town"))
    )
    by_town = headed(report(after, less), options=less)
    by_both = headed(report(after, more), options=more)
    assert by_town.risk == by_both.risk
    assert by_town.state == by_both.state
    assert "who knows 'town' finds" in by_town.sentences[0]
    assert "who knows 'age' and 'town', and uses 'town' alone, finds" in by_both.sentences[0]
    assert by_town.decided_by[0].get("used") is None
    assert by_both.decided_by[0]["used"] == ("town",)


@pytest.mark.parametrize(
    ("after", "unjudged"),
    [
        (lambda table: table.set_column(3, "income", table["income"].cast("string")), ["income"]),
        (lambda table: table.rename_columns(["age", "town", "job", "Income"]), ["Income"]),
        (lambda table: table.drop_columns(["income"]), []),
    ],
    ids=["other type", "other name", "not published"],
)
def test_a_published_field_that_cannot_be_compared_is_no_low_risk(
    after: Callable[[pa.Table], pa.Table], unjudged: list[str]
) -> None:
    """Unless the fields to protect are named. A field that is not published discloses nothing."""
    source = pa.table(people())
    published = after(pa.table(released(1.0, "job")))

    def found(**options: Any) -> Headline:
        given = MeasureOptions(**options)
        measured = assess(Release(source, published), given, measures_stream(bytes(32)))
        assert measured.unjudged == (unjudged if not options.get("fields") else [])
        report = {"summary": {"rows": ROWS}, "provider": {}} | asdict(measured)
        return headline(report, Thresholds(), source=source, options=given)

    assert found(sensitive_fields=("job",)).state == "low"
    assert found(fields=("job",)).state == "low"
    whole = found()
    assert whole.state == ("unknown" if unjudged else "low")
    if unjudged:
        assert whole.sentences[0].startswith(
            f"The risk is not known: '{unjudged[0]}' is published and could not be"
        )
        assert "every compared field keeps its distribution" in whole.sentences[1]
        assert "'sensitive_fields'" in whole.sentences[2]


@pytest.mark.parametrize("zone", [None, "Europe/Dublin"])
def test_timestamps_of_different_units_are_compared(zone: str | None) -> None:
    """Seconds in the source and nanoseconds in the release are the same times."""
    draw = random.Random(8)
    times = pa.array([draw.randrange(10**9) for _ in range(ROWS)], pa.timestamp("s", zone))
    moved = [*times[1::-1].to_pylist(), *times[2:].to_pylist()]
    source = pa.table({"born": times})
    shares = []
    for kind in (pa.timestamp("s", zone), pa.timestamp("ns", zone)):
        published = pa.table({"born": pa.array(moved, pa.timestamp("s", zone)).cast(kind)})
        for one, two in ((source, published), (published, source)):
            found = assess(Release(one, two), MeasureOptions(), measures_stream(bytes(32)))
            assert not found.unjudged
            shares.append([found.measures[key]["value"] for key in ("changed_share", "interval_sd", "dcr")])
    assert shares[0][0] == {"born": 2 / ROWS}
    assert shares[2][:2] == shares[0][:2]
    assert shares[3][:2] == shares[1][:2]


def test_timestamps_beyond_the_finer_unit_are_not_judged() -> None:
    before = pa.table({"born": pa.array([0, 10**12], pa.timestamp("s"))})
    after = pa.table({"born": pa.array([0, 10**12], pa.timestamp("ns"))})
    found = assess(Release(before, after), MeasureOptions(), measures_stream(bytes(32)))
    assert found.unjudged == ["born"]
    assert "beyond the range of timestamp[ns]" in found.left_out["fields.born"]


def test_attacks_decide_if_there_are_some() -> None:
    """The worst one that does more than single out a row; its reason is the first sentence."""
    attack = {"value": 0.3, "low": 0.1, "high": 0.5, "against": "control"}
    verdict = {
        "state": "elevated",
        "reasons": ["Singling out ...", "Inference of 'job' succeeds: risk 0.3, above 0.05."],
        "attacks": [
            attack | {"attack": "singling_out_univariate", "state": "elevated", "reason": "Singling out ..."},
            attack
            | {
                "attack": "inference",
                "field": "job",
                "state": "elevated",
                "reason": "Inference of 'job' succeeds: risk 0.3, above 0.05.",
            },
            attack | {"attack": "membership", "state": "low", "reason": "Membership ..."},
        ],
        "thresholds": {"elevated": 0.05, "high": 0.4, "attacks": {}},
    }
    found = headline({"summary": {}, "measures": {}, "verdict": verdict}, Thresholds())
    assert found.state == "elevated"
    assert found.sentences == [
        "Elevated risk: inference of 'job' succeeds: risk 0.3, above 0.05.",
        "Of 3 attacks the risk is: 2 elevated, 1 low.",
        "Look at the figures of risk below before you publish it. "
        "Attack it with 'advice' to see which parameters lower the risk.",
    ]
    assert found.decided_by == [{"figure": "inference", "value": 0.3, "chance": 0.0, "field": "job"}]
    assert found.thresholds == {"elevated": 0.05, "high": 0.4}
    advised = {"summary": {}, "measures": {}, "verdict": verdict, "advice": {"sentence": "Take rate = 1."}}
    assert headline(advised, Thresholds()).sentences[2] == "Take rate = 1."
    nothing = {"state": "elevated", "reasons": ["No attack could be made."], "attacks": [], "thresholds": {}}
    without = headline({"summary": {}, "measures": {}, "verdict": nothing}, Thresholds())
    assert without.sentences[0] == "Elevated risk: no attack could be made."


@pytest.mark.parametrize(
    ("risk", "values", "baseline", "expected"),
    [
        ("record_linkage.rate", (0.3, 0.06), 0.01, (0.06 - 0.01) / 0.99),
        ("changed_share", (0.5, 0.8), 0.9, (0.2 - 0.1) / 0.9),
        ("dcr.at_zero", (0.3, 0.06), 0.01, (0.06 - 0.01) / 0.99),
    ],
)
def test_a_comparison_has_the_state_of_its_least_risk(
    risk: str, values: tuple[float, ...], baseline: float, expected: float
) -> None:
    points = [
        {"service": f"S{at}", "risk": value, "utility": 0.1 * at, "dominated": False}
        for at, value in enumerate(values)
    ]
    points += [{"service": "S9", "risk": 0.0, "utility": 0.0, "dominated": True}]
    frontier = {
        "risk": risk,
        "utility": "delta_rho.mean",
        "points": points,
        "axes": {"risk": {"baseline": baseline}},
    }
    found = headline({"frontier": frontier}, Thresholds())
    assert found.risk == pytest.approx(expected)
    assert found.state == naive.state(expected, 0.05, 0.09)
    assert ", S1 has the least risk" in found.sentences[0]
    assert found.sentences[1].startswith("2 of 3 combinations are beaten by no other one; their utility")
    assert found.sentences[1].endswith("from 0 to 0.1.")
    points[1]["risk_interval"] = {"low": values[1] - 0.02, "high": values[1] + 0.05}
    low, high = (0.05, 0.02) if risk == "changed_share" else (0.02, 0.05)
    limits = [expected - low / (0.99 if low < high else 0.9), expected + high / (0.99 if low < high else 0.9)]
    found = headline({"frontier": frontier}, Thresholds())
    assert f"(95 % interval {limits[0]:.3f} to {limits[1]:.3f}) beyond chance" in found.sentences[0]
    without = headline({"frontier": frontier | {"axes": {}}}, Thresholds())
    assert without.state == "unknown"
    assert len(without.sentences) == 3


def test_a_comparison_by_a_distance_has_no_risk_in_its_headline() -> None:
    """A distance and its value by chance are no shares: their difference is no risk beyond chance."""
    points = [{"service": "MEDS", "risk": 0.4, "utility": 0.1, "dominated": False}]
    compared = {"utility": "delta_rho.mean", "points": points, "axes": {"risk": {"baseline": 0.5}}}
    assert headline({"frontier": compared | {"risk": "dcr.mean"}}, Thresholds()).state == "unknown"
    assert headline({"frontier": compared | {"risk": "interval_sd.share"}}, Thresholds()).state == "low"


def test_a_comparison_has_the_risk_of_new_runs() -> None:
    """The least of several risks is low by chance, too: new runs of that point say how low it is."""
    points = [
        {"service": "MEDS", "risk": risk, "utility": 0.1, "dominated": False} for risk in (0.3, 0.04, 0.05)
    ]
    frontier = {
        "risk": "record_linkage.rate",
        "utility": "delta_rho.mean",
        "points": points,
        "axes": {"risk": {"baseline": 0.0}},
    }
    found = headline({"frontier": frontier}, Thresholds())
    assert found.state == "low"
    assert found.sentences[0].endswith("not above 0.05; the least of several is low by chance, too.")
    again = {"matters": "risk", "recommended": 1, "recommended_in_new_runs": {"risk": 0.07}}
    found = headline({"frontier": frontier | again}, Thresholds())
    assert (found.state, found.risk) == ("elevated", 0.07)
    assert found.sentences[0].endswith(
        "beats, MEDS has the least risk; in new runs of it the risk beyond chance is 0.070 (record linkage), "
        "above 0.05."
    )


def test_a_comparison_without_a_best_point_advises_no_choice() -> None:
    points = [{"service": "DSWAP", "risk": 0.0, "utility": 0.1, "dominated": True}] * 2
    frontier = {"risk": "inference_risk", "utility": "delta_rho.mean", "points": points}
    found = headline({"frontier": frontier}, Thresholds())
    assert found.sentences == [NO_FIGURE_OF_RISK, NONE_IS_BETTER, ACTIONS["incomparable"]]


def test_all_of_few_rows_are_not_a_bound_above_all() -> None:
    """A table of two rows, all of whose exchanges anybody undoes, had "below 250 % of the rows"."""
    assert [share_words(share, 2, 5) for share in (0.0, 0.5, 1.0)] == ["0 %", "some", "100 %"]


def test_every_measure_has_its_texts() -> None:
    """One line of meaning and one of what to do, as whole sentences; the group fits the measure's concern."""
    assert list(MEANINGS) == list(MEASURES)
    for key, texts in MEANINGS.items():
        assert texts.group in (MEASURES[key].concerns, "happened"), key
        for text in (texts.meaning, texts.remedy):
            assert text.endswith("."), key
            assert len(text) <= 110, key
    assert set(STATES) < {"low", "elevated", "high", "unknown"}


@pytest.mark.parametrize(("key", "services"), [("p_privacy", ("MEWS", "MEDS")), ("phi", ("PABIDOT",))])
def test_remedies_name_parameters_of_the_services_that_have_the_measure(
    key: str, services: tuple[str, ...]
) -> None:
    """The remedy for P named 'block_size' and 'min_group_size', which MEWS and MEDS refuse."""
    quoted = set(re.findall(r"'(\w+)'", MEANINGS[key].remedy)) - {"definition"}
    models = [PROVIDERS[service].params.model_fields for service in services]
    assert quoted <= {name for fields in models for name in fields}
    assert all(quoted & set(fields) for fields in models)


def test_a_table_of_fewer_rows_than_the_threshold_has_no_shares() -> None:
    """A bound beyond all rows would say nothing: "below 167 % of the rows"."""
    given = report(released(1.0, "income"))
    given["summary"]["rows"] = 3
    given["measures"]["record_linkage"]["value"] = {"rate": 1 / 3, "chance": 0.1}
    given["measures"]["changed_share"]["value"]["income"] = 2 / 3
    given["measures"].pop("interval_sd")
    risk = headed(given, options=MeasureOptions(key_fields=("age", "town"), sensitive_fields=("income",)))
    sentence = risk.sentences[0]
    assert "finds some of the rows" in sentence
    assert "in some of the rows" in sentence
    assert sentence.endswith("; the risk beyond chance is above 0.09.")
    assert "below" not in sentence
