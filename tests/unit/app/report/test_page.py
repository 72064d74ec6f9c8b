"""Page of a report: contents, masked counts, and structure of the HTML."""

import importlib
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

import providers
from app.report.formatting import visible
from app.report.page import html_report
from app.report.small_counts import Discretion
from app.report.summary_text import events
from providers import PROVIDERS
from providers.measures import MEASURES
from providers.measures.meanings import MEANINGS
from tests.reports.documents import (
    HOSTILE,
    attacks,
    candidates,
    frontier,
    full_report,
    guarantee,
    job,
    measure,
    report,
)
from tests.reports.reading import Element, read

FRONTIER = {"summary": {}, "measures": {}, "provider": {}, "limits": ["A point is no release."]}
ATTACKS = {"summary": {}, "measures": {}, "provider": {}, "limits": ["More is known."], **attacks()}
PAGES = {
    "summary": (job(), report()),
    "full": (job(), full_report()),
    "one field": (job(field_names=["age"]), full_report(["age"])),
    "hostile": (
        job(field_names=HOSTILE, parameters={name: [name] for name in HOSTILE}),
        full_report(HOSTILE, headline={"state": "high", "sentences": HOSTILE[:3]}),
    ),
    "permutation": (job(), report(provider={"classes": 170, "guarantee": guarantee(target_epsilon=5)})),
    "candidates": (job(), report(candidates=candidates())),
    "frontier": (job("frontier"), FRONTIER | {"frontier": frontier()}),
    "measures": (job("measures"), full_report()),
    "attacks": (job("attacks", event_counts={}), ATTACKS),
    "attacks after a run": (job(), full_report() | attacks()),
    "attacks, hostile": (job("attacks", field_names=HOSTILE), ATTACKS | attacks(HOSTILE[0])),
    "least": (job(event_counts={}, rows=0), {"summary": {}, "measures": {}, "provider": {}, "limits": []}),
}


@pytest.fixture(scope="module", params=PAGES)
def page(request: pytest.FixtureRequest) -> Element:
    return read(html_report(*PAGES[request.param]))


def test_page_loads_nothing_and_runs_nothing(page: Element) -> None:
    """No script, no style attribute, no address but of a place on the page itself."""
    for tag in ("script", "img", "link", "iframe", "object", "form", "base", "image", "use"):
        assert not page.all(tag), tag
    [style] = page.all("style")
    assert "url(" not in style.text.replace("url(#", "")
    assert "@import" not in style.text

    def check(element: Element) -> None:
        for name, value in element.attributes.items():
            assert not name.startswith("on"), name
            assert name not in ("style", "src", "srcset"), name
            if name in ("href", "xlink:href"):
                assert value.startswith("#"), value
        for child in element.children:
            check(child)

    check(page)


def test_ids_are_unique_and_everything_referred_to_is_there(page: Element) -> None:
    """Links, labels and descriptions refer to existing elements."""
    ids: list[str] = []
    wanted: set[str] = set()

    def collect(element: Element) -> None:
        ids.extend([element.attributes["id"]] if "id" in element.attributes else [])
        wanted.update(element.attributes.get("aria-labelledby", "").split())
        wanted.update([element.attributes["href"][1:]] if "href" in element.attributes else [])
        for child in element.children:
            collect(child)

    collect(page)
    assert len(ids) == len(set(ids))
    assert wanted <= set(ids)


def test_headings_are_in_order(page: Element) -> None:
    """There is one h1, and no heading level is skipped."""
    levels: list[int] = []

    def collect(element: Element) -> None:
        if re.fullmatch(r"h[1-6]", element.tag):
            levels.append(int(element.tag[1]))
        for child in element.children:
            collect(child)

    collect(page)
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(next_one <= one + 1 for one, next_one in pairwise(levels))


def test_every_picture_has_words_and_a_table(page: Element) -> None:
    """Each drawing has a title, a description and a table of its data."""
    drawn = 0
    for figure in page.all("figure"):
        drawings = figure.all("svg")
        assert drawings
        drawn += len(drawings)
        for drawing in drawings:
            assert drawing.attributes["role"] == "img"
            assert drawing.one("title").text
            assert drawing.one("desc").text
            assert re.fullmatch(r"0 0 360 [0-9.]+", drawing.attributes["viewbox"])
        table = figure.one("details").one("table")
        assert table.one("caption").text
        assert len(table.one("tbody").all("tr")) >= 1
    hidden = [drawing for drawing in page.all("svg") if drawing.attributes.get("aria-hidden") == "true"]
    assert len(page.all("svg")) == drawn + len(hidden)


def test_no_row_no_message_of_an_event_and_no_number_of_a_row(page: Element) -> None:
    """The listed events are left out: they name rows."""
    assert "2281" not in page.text
    assert "its value was suppressed" not in page.text


def test_names_stand_as_they_are() -> None:
    """Markup in a name is text, in both the words and the drawings."""
    page = read(html_report(*PAGES["hostile"]))
    names = [element.text for element in page.all("bdi", "name")]
    for name in HOSTILE:
        assert visible(name) in names
    assert "49" not in [text for text in names if "7" in text]
    assert any(text.text == "<script>alert(1)</script>" for text in page.all("text", "name"))


def sentences(summary: dict[str, Any], own: dict[str, Any], counts: dict[str, int], changed: float) -> str:
    """Return the text of a page of 4000 rows with a threshold of 50, without style and evidence."""
    full = full_report(provider=own)
    full["pictures"]["threshold"] = 50
    full["pictures"]["changed"] = {"fields": ["age", "income"], "share": [changed, 0.5]}
    full["summary"] |= summary
    full["measures"]["changed_share"] = measure(
        "Changed share", "risk", "high", {"age": changed, "income": 0.5}
    )
    page = read(html_report(job(event_counts=counts), full))
    return " ".join(section.text for section in page.all("section"))


@pytest.mark.parametrize("few", [37, 1])
def test_few_rows_are_shown_as_few(few: int) -> None:
    """The page shows no number below the threshold, and none from which one would follow."""
    rest = 4000 - few
    text = sentences(
        {
            "took_part": rest,
            "changed": {"age": few, "income": rest},
            "suppressed": few,
            "unswapped": few,
            "unswapped_reasons": {"alone": few},
            "group_size": {"smallest": few, "median": float(few), "largest": 1676},
            "achieved_rate": rest / 4000,
        },
        {"singletons": few, "unchanged_share": few / 4000, "outside_range": {"age": few / 4000}},
        {"suppressed": few, "dropped": few},
        few / 4000,
    )
    assert text.count("fewer than 50") >= 7
    forbidden = {str(rest), f"{few / 4000:.6g}", f"{few / 40:.6g}", f"{100 - few / 40:.6g}"}
    forbidden |= {str(few)} if few > 1 else set()
    for number in forbidden:
        assert not re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", text), number


def recorded_by_row() -> set[str]:
    """Codes of the events that the providers record for arrays of rows, as far as they are written there."""
    given = re.compile(r'events\.add_rows\(\s*(?:"(\w+)"|([A-Z_]+)),')
    found = set()
    for path in Path(providers.__file__).parent.rglob("*.py"):
        module = path.relative_to(Path(providers.__file__).parents[1]).with_suffix("")
        for code, name in given.findall(path.read_text("utf-8")):
            found.add(code or getattr(importlib.import_module(".".join(module.parts)), name))
    return found


@pytest.mark.parametrize(
    "code", sorted(recorded_by_row() | {"kept", "partner_missing", "of_a_later_version"})
)
def test_events_of_few_rows_are_shown_as_few(code: str) -> None:
    [(_, shown, meaning)] = events({code: 37}, Discretion(4000, 50))
    assert shown == "fewer than 50"
    assert (meaning == "Of a later version.") == (code == "of_a_later_version")


def test_few_rows_that_anybody_can_undo_are_shown_as_few() -> None:
    """The tables of candidates and combinations mask them as the figures of one run do."""
    chosen, compared = candidates(), frontier()
    few = {"rows_in_groups_of_two": 2, "rows_in_groups_of_three": 48}
    chosen["table"][0]["reversible"] = few
    compared["points"][0] |= {"reversible": few, "dominated": True}
    for page in (
        html_report(job(), report(candidates=chosen)),
        html_report(job("frontier"), FRONTIER | {"frontier": compared}),
    ):
        assert "fewer than 5 rows in groups of two and 48 rows in groups of three" in read(page).text


def test_shares_of_few_rows_are_masked_in_pictures_and_comparisons() -> None:
    """The section of the measure masks 37, 2 and 1 of 4,000 rows, too."""
    full = full_report()
    full["pictures"] |= {"threshold": 50}
    full["pictures"]["risk_utility"]["risk"]["value"] = 37 / 4000
    compared = frontier()
    compared["points"][0] |= {"risk": 2 / 4000, "risk_interval": {"low": 0.0001, "high": 0.0011}}
    compared["points"][0] |= {"figures": {"dcr.at_zero": 1 / 4000}, "intervals": {}}
    page, comparison = (
        read(html_report(job(), full)).text,
        read(html_report(job("frontier"), FRONTIER | {"frontier": compared})).text,
    )
    assert "Point at risk below 0.0125 and utility" in page
    assert "0.00925" not in page
    assert comparison.count("below 0.00125") == 2
    for exact in ("0.0005", "0.0011", "0.00025"):
        assert exact not in comparison


def test_events_of_fields_are_counted() -> None:
    [(_, shown, _)] = events({"nothing_changed": 3}, Discretion(4000, 50))
    assert shown == "3"


def test_many_rows_are_shown() -> None:
    """Larger counts are shown."""
    text = sentences(
        {"took_part": 3211, "changed": {"age": 3007, "income": 2000}, "suppressed": 789, "unswapped": 789},
        {"singletons": 148},
        {"suppressed": 789},
        3007 / 4000,
    )
    for words in ("3211 rows took part", "in 789 rows", "75.2", "148"):
        assert words in text, words


def test_measures_stand_in_their_group_with_all_that_explains_them() -> None:
    """Each measure has value, better direction, range, formula, source, fields and sample."""
    page = read(html_report(*PAGES["full"]))
    headings = [heading.text for heading in page.all("h2")]
    assert headings.index("Risk") < headings.index("Utility")
    [pscr] = [
        part for part in page.all("article", "measure") if part.one("h3").text == "Own row is the closest"
    ]
    assert pscr.one("p", "value").text == "0.0312"
    assert pscr.one("p", "goal").text == "↓ lower is better; range: 0 to 1 · on a random sample of 1000 rows"
    about = [entry.text for entry in pscr.one("dl", "about").all("dd")]
    assert about == [
        "#{i : x_i < y_i} / n",
        "A plain reading & its source",
        "age, income",
        "measures.pscr.value",
    ]
    [rho] = [
        part for part in page.all("article", "measure") if part.one("h3").text == "Change of correlations"
    ]
    assert [row.text for row in rho.one("dl", "values").all("div")] == [
        "mean0.021",
        "standard deviation0.0125",
    ]


def test_what_was_left_out_is_reported_with_its_reason() -> None:
    """Measures are named by their titles, fields by their names."""
    page = read(html_report(*PAGES["full"]))
    [section] = [part for part in page.all("section") if part.attributes["aria-labelledby"] == "left-out"]
    assert [term.text for term in section.all("dt")] == ["Change of regression coefficients", "town"]
    assert [term.text for term in section.all("dd")] == ["it needs a target", "text has no correlation"]


@pytest.mark.parametrize("service", PROVIDERS)
def test_every_service_says_what_it_does_and_what_it_does_not(service: str) -> None:
    """The page has the provider's summary, guarantees, changes and references, and the report's limits."""
    page = read(html_report(job(service), report()))
    provider = PROVIDERS[service]
    assert page.one("h1").text == f"{provider.title} {service}"
    for sentence in (provider.summary, *provider.guarantees, *provider.changes, *provider.references):
        assert sentence.replace("`", "") in page.text, sentence
    assert "`" not in page.text
    assert [item.text for item in page.one("section", "limits").all("li")] == report()["limits"]


def test_names_between_backticks_are_code() -> None:
    """The rest of the sentence stays escaped."""
    limits = ["`changed` counts <rows>, `a & b` not."]
    page = read(html_report(job(), report(limits=limits)))
    [item] = page.one("section", "limits").all("li")
    assert item.text == "changed counts <rows>, a & b not."
    assert [code.text for code in item.all("code")] == ["changed", "a & b"]


@pytest.mark.parametrize("key", MEASURES)
def test_names_in_a_formula_are_code(key: str) -> None:
    given = measure(MEASURES[key].title, "risk", "low", 0.5, formula=MEASURES[key].formula)
    card = read(html_report(job(), report(measures={key: given}))).one("article", "measure")
    assert MEASURES[key].formula.replace("`", "") in card.text
    assert [code.text for code in card.all("code")][:-1] == MEASURES[key].formula.split("`")[1::2]


def test_a_summary_says_how_to_get_pictures() -> None:
    """A sentence replaces the empty section of charts."""
    page = read(html_report(*PAGES["summary"]))
    assert 'report: "full"' in page.text
    assert not page.all("figure")


def test_distributions_before_and_after_are_one_table() -> None:
    """A size that only one side has is empty on the other; single figures stay in the list."""
    value = {
        "before": {"k": 1, "by_size": {"1": 0.25, "2": 0.75}},
        "after": {"k": 2, "by_size": {"2": 0.5, "3-4": 0.5}},
    }
    shown = report(measures={"k_anonymity": measure("k-anonymity", "risk", "high", value)})
    card = read(html_report(job(), shown)).one("article", "measure")
    table = card.one("table")
    assert table.rows() == [
        ["of", "before", "after"], ["1", "0.25", ""], ["2", "0.75", "0.5"], ["3-4", "", "0.5"],
    ]  # fmt: skip
    words = "rows of the smallest class (k)"
    assert [term.text for term in card.all("dt")][:2] == [f"before, {words}", f"after, {words}"]


def test_values_of_many_fields_are_a_table() -> None:
    """A measure with several figures for each field has a row for each, the lesser number across."""
    values = {f"f{at}": {"before": at, "after": at + 0.5, "ks": 0.25} for at in range(12)}
    names = [*values]
    shown = report(measures={"marginals": measure("Marginals", "utility", "low", values)})
    table = read(html_report(job(field_names=names), shown)).one("article", "measure").one("table")
    assert table.rows()[0] == ["field", "before", "after", "ks"]
    assert table.rows()[3] == ["f2", "2", "2.5", "0.25"]
    two = {name: values[name] for name in names[:2]}
    shown = report(measures={"marginals": measure("Marginals", "utility", "low", two)})
    table = read(html_report(job(field_names=names), shown)).one("article", "measure").one("table")
    assert table.rows() == [
        ["figure", "f0", "f1"],
        ["before", "0", "1"],
        ["after", "0.5", "1.5"],
        ["ks", "0.25", "0.25"],
    ]


def test_the_chosen_candidate_is_marked() -> None:
    """The mark is a word, for screen readers."""
    page = read(html_report(*PAGES["candidates"]))
    [section] = [part for part in page.all("section") if part.attributes["aria-labelledby"] == "candidates"]
    rows = section.one("table").rows()
    assert [row[0] for row in rows[1:]] == ["1", "2 (chosen)", "3", "4", "5"]
    assert rows[2][1:] == ["0000000000000001", "0.031", "0.0195", "1"]
    assert rows[5][3] == "-"
    assert len(section.all("tr", "marked")) == 1
    assert "5 candidates were run" in section.text
    assert "Change of regression coefficients ranked nothing: it needs a target." in section.text


def test_what_was_asked_for_besides_the_parameters_is_reported() -> None:
    """Options of measuring and choosing are shown as the JSON of the request."""
    page = read(html_report(job(options={"candidates": {"count": 5}}), report()))
    [section] = [part for part in page.all("section") if part.attributes["aria-labelledby"] == "parameters"]
    assert 'candidates{"count": 5}' in section.text.replace("\n", "")


def test_the_frontier_is_marked_joined_and_described() -> None:
    """Points that are not dominated are diamonds, others circles; failed ones are not drawn."""
    page = read(html_report(*PAGES["frontier"]))
    [drawing] = page.one("figure").all("svg")
    points = frontier()["points"]
    front = [point for point in points if not point["dominated"]]
    assert len(drawing.all("polygon", "point")) == len(front) > 1
    assert len(drawing.all("circle", "dominated")) == len(points) - len(front) - 1
    assert len(drawing.one("polyline", "front").attributes["points"].split()) == len(front)
    table = page.one("figure").one("table")
    assert [row[-1] for row in table.rows()[1:]].count("not dominated") == len(front)
    assert table.rows()[-1][-1] == "'town' is text & no number"
    assert "<b>income</b>" in table.text
    assert "Each point is the mean of 3 runs." in page.text
    assert "best corner is bottom left" in page.text


def test_a_frontier_states_the_epsilon_of_its_points() -> None:
    """Composed and by field, with `none` for runs that have no finite one; without any there is no column."""
    compared = frontier()
    stated = {"rate": 0.5, "epsilon": 4.5, "by_field": {"<b>income</b>": 2.5, "age": 2.0}}
    compared["points"][0]["guarantee"] = stated
    compared["points"][1]["guarantee"] = {"rate": 0.5, "by_field": {}}
    compared["points"][2]["guarantee"] = {"rate": 0.5, "epsilon": 1.25, "by_field": {"age": 1.25}}
    document = {"summary": {}, "measures": {}, "provider": {}, "limits": [], "frontier": compared}
    [table] = [
        each for each in read(html_report(job("frontier"), document)).all("table") if "epsilon" in each.text
    ]
    assert table.rows()[0][5] == "epsilon"
    assert [row[5] for row in table.rows()[1:5]] == [
        "4.5 (<b>income</b>: 2.5, age: 2)",
        "none",
        "1.25",
        "none",
    ]
    assert "epsilon" not in read(html_report(*PAGES["frontier"])).one("figure").text


def test_candidates_state_their_own_epsilon() -> None:
    """The kept one has none: a sentence says so."""
    chosen = candidates()
    for each in chosen["table"]:
        each["guarantee"] = {"rate": 0.5, "epsilon": 4.5, "by_field": {"age": 4.5}}
    page = read(html_report(job(), report(candidates=chosen)))
    [section] = [part for part in page.all("section") if part.attributes["aria-labelledby"] == "candidates"]
    assert [row[-1] for row in section.one("table").rows()] == ["epsilon alone", *["4.5"] * 5]
    assert "The kept candidate has no finite epsilon" in section.text
    assert "epsilon alone" not in read(html_report(*PAGES["candidates"])).text


def test_only_a_service_reports_what_happened_to_rows() -> None:
    """Kinds of jobs that change no rows have no section of events, since their absence would mislead."""
    sentence = "nothing was suppressed, kept or left out"
    assert sentence in read(html_report(job(event_counts={}), report())).text
    for kind in ("frontier", "measures"):
        page = read(html_report(job(kind, event_counts={}, parameters={"risk": None, "seed": 7}), {}))
        assert sentence not in page.text
        assert "null" not in page.text


def test_attacks_begin_with_the_verdict_and_have_three_bars_each() -> None:
    """The words stand next to each bar, so that no colour is needed; the table has the same figures."""
    page = html_report(job("attacks", event_counts={}), ATTACKS)
    assert page.index("High risk: do not publish") < page.index('<h2 id="attacks">') < page.index('id="done"')
    [drawing] = [each for each in read(page).all("svg") if each.attributes.get("role") == "img"]
    bars = [each.attributes["class"] for each in drawing.all("rect")]
    assert bars == ["after", "dominated", "before", "after"]  # inference has neither guessing nor control
    widths = [float(each.attributes["width"]) for each in drawing.all("rect")]
    assert widths == pytest.approx([236 * share for share in (0.55, 0.01, 0.005, 0.22)], abs=0.06)
    assert [words for words in ("release", "guessing", "control") if drawing.text.count(words) < 2] == []
    assert "55\u202f% of 200" in page
    for text in (
        "sister release",
        "A risk above 0.05 is elevated, one above 0.09 high",
        "limited to 200",
        "It learns numbers within 5 %.",
        "the groups are too small",
        "rate = 1.0; swap_fields = income, age",
        "With rate = 1.0",
    ):
        assert text in page, text
    assert "This report has no pictures" not in page
    assert "Verdict on attacks" not in html_report(job(), report())


def test_a_name_does_not_turn_the_text_around_it() -> None:
    """The description of the picture, which a screen reader reads, had the override of direction itself."""
    page = html_report(job("attacks", event_counts={}), ATTACKS | attacks("\u202eeman"))
    assert "\u202e" not in page
    assert "Inference of a secret: \\u202eeman. The figures are in the table below." in page


@pytest.mark.parametrize("state", ["low", "elevated", "high", "unknown"])
def test_the_headline_comes_first_and_the_pictures_next(state: str) -> None:
    """Three sentences with a symbol for each state; a report of an earlier version has none."""
    sentences = ["Risk of <b>fields</b>.", "Utility.", "What to do."]
    shown = full_report(headline={"state": state, "sentences": sentences})
    text = html_report(job(), shown)
    section = text[text.index(f'class="headline {state}"') :].partition("</section>")[0]
    assert {"low": "\u2713", "elevated": "!", "high": "\u2717", "unknown": "?"}[state] in section
    assert "Risk of &lt;b&gt;fields&lt;/b&gt;." in section
    assert section.count("<p>") == 3
    order = [
        text.index(f'id="{name}"') for name in ("headline", "fields", "pictures", "done", "limits", "risk")
    ]
    assert order == sorted(order)
    assert 'class="headline' not in html_report(job(), full_report())


def test_each_card_has_its_meaning_range_and_remedy() -> None:
    """And stands in its group: risk, utility, or the changes of the values."""
    text = html_report(job(), full_report())
    for key, group in (("pscr", "risk"), ("delta_rho", "utility"), ("changed_share", "happened")):
        assert MEANINGS[key].group == group
        section = text[text.index(f'<section aria-labelledby="{group}">') :].partition("</section>")[0]
        for part in (MEANINGS[key].meaning, MEANINGS[key].remedy, "range: 0 to 1"):
            assert str(escape(part)) in section, part


def test_guarantee_of_the_permutation_mechanism_has_a_section() -> None:
    """Epsilon, bound, target, invariants and limits are stated, and not once more among the own figures."""
    text = read(html_report(*PAGES["permutation"])).text
    for part in (
        "Guarantee of the permutation mechanism",
        "Epsilon is 4.5; the paper's bound is 4.8.",
        "The rate is the smallest one that meets the target 5.",
        "is 2.25, at rate 0.755",
        "The table of each swap field within each group is that of the source.",
        "It does not hide what the invariants publish.",
    ):
        assert text.count(part) == 1, part
    assert "rows of the largest group" in text
    void = guarantee(epsilon=None, holds_for="No finite epsilon: 2 values are published as they are.")
    void["by_field"] = {"income": {"paper_bound": 4.8, "largest_group": 10}}
    text = read(html_report(job(), report(provider={"guarantee": void}))).text
    assert "There is no finite epsilon." in text
    assert "Epsilon is" not in text
    assert "Guarantee of the permutation mechanism" not in read(html_report(job(), report())).text


def test_guarantee_of_whole_households_counts_households() -> None:
    own = {"households": {"households": 40}, "guarantee": guarantee()}
    text = read(html_report(job(), report(provider=own))).text
    assert "households of the largest group" in text
    assert "rows of the largest group" not in text
