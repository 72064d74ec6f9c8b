"""Stored figures, verdicts and pages of the papers' experiments agree with the code."""

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.papers.__main__ import (
    chosen,
    differences,
    document,
    judged_again,
    main,
    processor_seconds,
    stored_entries,
)  # fmt: skip
from benchmarks.papers.experiments import Chart, Experiment, Figures, Series, Source, Table
from benchmarks.papers.sources import SOURCES
from providers import PROVIDERS
from website.paper_charts import chart_svg
from website.paper_pages import paper_files, paper_page, paper_sentences, shown, stored_papers

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages and figures are found relative to the root of the checkout."""
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("number", SOURCES)
def test_verdicts_follow_from_the_stored_numbers(number: str) -> None:
    """Each experiment is stored, with the texts of its declaration and the verdict that its rule gives."""
    path = ROOT / f"docs/papers/{number}.json"
    source, entries = SOURCES[number], stored_entries(path)
    assert list(entries) == [each.identifier for each in source.experiments]
    assert document(source, judged_again(source, entries)) == json.loads(path.read_text(encoding="utf-8"))


def test_pages_and_charts_are_those_of_the_stored_numbers() -> None:
    """No page, chart or file of numbers is missing, outdated or left over."""
    files = paper_files()
    assert {path.name for path in Path("docs/papers").iterdir()} == {
        "attacks.json",
        *(path.name for path in files),
        *(f"{number}.json" for number in SOURCES),
    }
    assert [path.name for path, content in files.items() if path.read_bytes() != content] == []


def test_each_experiment_names_services_that_the_source_describes() -> None:
    """Identifiers differ, and every service of an experiment has a summary."""
    for source in SOURCES.values():
        identifiers = [each.identifier for each in source.experiments]
        assert len(set(identifiers)) == len(identifiers)
        for each in source.experiments:
            assert set(each.services) <= set(source.summary) <= set(PROVIDERS)
            assert not each.claim.endswith(".")
            assert each.setting.endswith(".")


def test_a_services_page_says_what_held_and_what_did_not() -> None:
    """Three sentences: every experiment is in one of the last two, as its verdict says."""
    for paper in stored_papers():
        for service in paper["summary"]:
            (said,) = (text for text in paper_sentences(service) if f"papers/{paper['number']}.md" in text)
            held, _, others = said.partition(" Did not hold: ")
            for each in paper["experiments"]:
                if service in each["services"]:
                    assert each["claim"] in (held if each["verdict"] == "reproduced" else others)
    assert paper_sentences("no such service") == []
    described = {service for service in PROVIDERS if paper_sentences(service)}
    assert described == set(PROVIDERS) - {"RSWAP"}  # which none of the five sources has


def test_links_of_the_overview_lead_to_the_sections() -> None:
    """Each anchor is that of a heading, by the rule of GitHub."""
    for paper in stored_papers():
        text = paper_page(paper)
        headings = {
            re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
        }
        assert set(re.findall(r"\]\(#([^)]*)\)", text)) == headings


def test_chosen_experiments() -> None:
    """A source, one experiment, or all; another name is refused."""
    assert {source.number for source, _ in chosen(["002"])} == {"002"}
    assert [each.identifier for _, each in chosen(["002/table-1"])] == ["table-1"]
    assert len(chosen([])) == sum(len(source.experiments) for source in SOURCES.values())
    with pytest.raises(SystemExit, match="unknown: 999"):
        chosen(["999"])


def test_judging_again_measures_nothing_and_changes_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--judge` restores a verdict that was changed by hand."""
    monkeypatch.setattr("benchmarks.papers.__main__.FOLDER", tmp_path)
    stored = (ROOT / "docs/papers/002.json").read_text(encoding="utf-8")
    (tmp_path / "002.json").write_text(stored.replace('"verdict": "', '"verdict": "un'), encoding="utf-8")
    assert main(["--judge", "002"]) == 0
    assert (tmp_path / "002.json").read_text(encoding="utf-8") == stored


# ------------------------------------------------------------------------------- figures and charts


def test_figures_survive_json() -> None:
    """Numbers are rounded to five digits; a number that is not finite is stored as nothing."""
    figures = Figures(
        [Table("t", "A table.", ("a", "b"), [["x", 1.234567], ["y", float("nan")], ["z", 2.0]])],
        [Chart("c", "line", "Title", "x", "y", [Series("s", [1, 2], [0.1, 123456.7])])],
    )
    again = Figures.of_json(json.loads(json.dumps(figures.as_json())))
    assert again.table("t").column("b") == [1.2346, None, 2]
    assert again.chart("c").series[0].y == [0.1, 123460]
    assert again.table("t").where(a="z").numbers("b") == [2.0]


def chart(kind: str, **changed: object) -> dict[str, object]:
    series = [
        {"name": "one", "x": [1, 10, 100], "y": [0.5, 2.0, None]},
        {"name": "two", "x": [1, 10, 100], "y": [-1.0, 4.0, 3.0]},
    ]
    axes = {"title": "A < B", "x": "k", "y": "risk", "log_x": False, "log_y": False}
    return {"name": "c", "kind": kind, "series": series, **axes, **changed}


def test_a_line_chart_has_a_point_for_each_number() -> None:
    """Two lines with dashes, five markers and two in the legend; the title is escaped."""
    root = ElementTree.fromstring(chart_svg(chart("line", log_x=True)))  # noqa: S314 # our own text
    space = "{http://www.w3.org/2000/svg}"
    lines = root.findall(f"{space}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [2, 2, 2, 3]
    assert [line.get("stroke-dasharray") for line in lines] == [None, "7 3", None, "7 3"]
    assert len(root.findall(f"{space}circle")) == 1 + 2
    assert len(root.findall(f"{space}rect")) == 1 + 1 + 3  # the ground, and squares
    texts = [text.text for text in root.findall(f"{space}text")]
    assert {"A < B", "one", "two", "k", "risk", "1", "10", "100"} <= set(texts)
    across = [float(point.split(",")[0]) for point in lines[3].attrib["points"].split()]
    assert across[1] - across[0] == pytest.approx(across[2] - across[1], abs=0.2)


def test_bars_begin_at_zero() -> None:
    """Values below zero hang down; a missing one has no bar."""
    root = ElementTree.fromstring(chart_svg(chart("bars")))  # noqa: S314 # our own text
    bars = root.findall("{http://www.w3.org/2000/svg}rect")[3:]
    assert len(bars) == 5
    tops = [float(bar.attrib["y"]) for bar in bars]
    heights = [float(bar.attrib["height"]) for bar in bars]
    assert tops[0] + heights[0] == pytest.approx(tops[2], abs=0.2)  # one above, one below the zero line
    assert heights[1] == pytest.approx(4 * heights[0], rel=0.02)


def test_cells_are_shown_with_four_digits() -> None:
    """Large numbers have separators, tiny ones an exponent."""
    assert [shown(cell) for cell in (None, "a", 20090, 1699.84, 0.61728, 0.0000021)] == [
        "-", "a", "20,090", "1,700", "0.6173", "2.1e-06",
    ]  # fmt: skip


# ------------------------------------------------------------------------------------- repeated runs


def test_times_and_memory_are_named_and_nothing_else() -> None:
    """Columns that differ from run to run exist, and are those of the experiments on time and memory."""
    found = set()
    for paper in stored_papers():
        for each in paper["experiments"]:
            for table in each["tables"]:
                assert set(table["varies"]) <= set(table["columns"])
            if any(part["varies"] for part in (*each["tables"], *each["charts"])):
                found.add(f"{paper['number']}/{each['identifier']}")
    assert found == {"000/scaling", "003/figure-3", "004/table-3", "004/table-4"}


def entry_of_times(seconds: float, share: float) -> dict[str, object]:
    """Return an experiment with a table of times and a table of shares."""
    figures = Figures(
        [
            Table("times", "", ("rows", "seconds"), [[10, seconds]], ("seconds",)),
            Table("shares", "", ("rows", "share"), [[10, share]]),
        ],
        [
            Chart("times", "line", "", "", "", [Series("a", [10], [seconds])], varies=True),
            Chart("shares", "line", "", "", "", [Series("a", [10], [share])]),
        ],
    )
    texts = {"verdict": "reproduced", "reason": f"It takes {seconds} s.", "processor_seconds": seconds}
    return {**texts, **figures.as_json()}


def test_a_check_compares_all_but_times() -> None:
    """Another time is no difference; another share is one, in its table and in its chart."""
    stored = entry_of_times(1.5, 0.25)
    assert differences(stored, entry_of_times(2.5, 0.25)) == []
    assert differences(stored, entry_of_times(1.5, 0.26)) == ["tables shares", "charts shares"]
    assert differences(stored, {**stored, "verdict": "differs"}) == ["verdict"]
    assert differences(stored, {**stored, "tables": stored["tables"][:1]}) == ["tables shares"]  # type: ignore[index]


def test_a_check_fails_when_a_stored_number_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An experiment without data of its own is measured again, and compared; nothing is written."""
    figures = Figures([Table("t", "A table.", ("a",), [[1.5]])])
    experiment = Experiment(
        "e",
        "Table 9",
        "title",
        (),
        "claim",
        "Setting.",
        lambda _: figures,
        lambda _: ("differs", "So it is."),
    )
    source = Source("999", "Title", "Reference.", {}, "Nothing.", (experiment,))
    monkeypatch.setattr("benchmarks.papers.__main__.SOURCES", {"999": source})
    monkeypatch.setattr("benchmarks.papers.__main__.FOLDER", tmp_path)
    assert main([]) == 0
    stored = (tmp_path / "999.json").read_text(encoding="utf-8")
    assert main(["--check"]) == 0
    (tmp_path / "999.json").write_text(stored.replace("1.5", "1.6"), encoding="utf-8")
    assert main(["--check", "999/e"]) == 1
    assert "differs in tables t" in capsys.readouterr().out
    assert "1.6" in (tmp_path / "999.json").read_text(encoding="utf-8")


def test_processor_time_counts_child_processes() -> None:
    """Time of a process that has ended is counted."""
    before = processor_seconds()
    spent = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", spent], check=True)
    assert processor_seconds() - before >= 0.25  # counted in ticks of 0.01 s
