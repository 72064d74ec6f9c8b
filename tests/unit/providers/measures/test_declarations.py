"""A measure is declared once: one module named by its key, listed in MEASURES, and nothing elsewhere."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import app.report
import providers.selection
from app.report.measure_tables import measure, words_of
from app.report.selection import axis
from app.report.small_counts import Discretion
from providers.measures import MEASURES, risk, utility
from providers.measures.shared.measure import Measure, Part
from providers.measures.shared.options import MeasureOptions
from providers.selection.figures import ATTACK_RISKS, DEFAULT_UTILITY, FIGURES, default_risk

FOLDERS: dict[str, ModuleType] = {"risk": risk, "utility": utility}


def modules() -> Iterator[tuple[str, ModuleType]]:
    for concerns, folder in FOLDERS.items():
        for found in pkgutil.iter_modules(folder.__path__):
            yield concerns, importlib.import_module(f"{folder.__name__}.{found.name}")


def test_every_module_declares_the_measure_of_its_name() -> None:
    declared = {}
    for concerns, module in modules():
        measures = {name: value for name, value in vars(module).items() if isinstance(value, Measure)}
        assert list(measures) == ["MEASURE"], module.__name__
        name = module.__name__.rpartition(".")[2]
        assert measures["MEASURE"].key == name
        assert measures["MEASURE"].concerns == concerns
        declared[name] = measures["MEASURE"]
    assert declared == dict(MEASURES)


def test_no_folder_is_too_large_to_scan() -> None:
    folder = Path(inspect.getfile(risk)).parent.parent
    for each in (folder, folder / "risk", folder / "utility"):
        assert len(list(each.glob("*.py"))) <= 24


def test_every_figure_is_a_part_of_a_measure() -> None:
    declared = [
        (f"{key}.{part.path}" if part.path else key, each, part)
        for key, each in MEASURES.items()
        for part in each.parts
    ]
    for attack, _ in ATTACK_RISKS.values():  # of comparisons only
        declared.append((attack.key, attack, attack.parts[0]))
    assert [(name, figure.measure, figure.part) for name, figure in FIGURES.items()] == declared
    for name, figure in FIGURES.items():
        assert figure.goal == (figure.part.goal or figure.measure.goal), name


def test_figures_can_be_keys_of_mappings() -> None:
    assert len({figure: name for name, figure in FIGURES.items()}) == len(FIGURES)


def test_a_goal_near_the_source_is_declared_part_by_part() -> None:
    """A number cannot be ranked by its nearness to another one: the part that ranks has its own goal."""
    for each in MEASURES.values():
        for part in each.parts:
            assert part.goal in (None, "low", "high")
            assert each.goal != "near" or part.goal is not None


def test_options_that_measures_need_exist() -> None:
    for each in MEASURES.values():
        assert {*each.needs, *each.uses} <= set(MeasureOptions.model_fields)


def test_default_figures_exist() -> None:
    names = {
        *DEFAULT_UTILITY,
        *default_risk(MeasureOptions()),
        *default_risk(MeasureOptions(key_fields=("a",))),
    }
    assert names <= set(FIGURES)
    assert {FIGURES[name].measure.concerns for name in DEFAULT_UTILITY} == {"utility"}


def test_words_of_reports_are_those_of_the_measure() -> None:
    for key, each in MEASURES.items():
        for path, words in each.words.items():
            within, _, part = path.rpartition(".")
            assert words_of(part, key, within) == words
    for name, figure in FIGURES.items():
        title = axis(name, {}).title
        assert title.startswith(figure.measure.title)
        assert title.endswith(figure.part.words)
    assert words_of("at_zero") == "at zero"  # another measure's key would not be found


def test_a_declaration_alone_makes_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new measure needs no other change to be shown, labelled and compared."""
    made = Measure(
        key="made", title="Made up", concerns="risk", goal="low", range="0 to 1", formula="f", source="s",
        cost="O(1)", parts=(Part("all"),), words={"all": "of all rows"},
    )  # fmt: skip
    listed: dict[str, Any] = {**MEASURES, "made": made}
    monkeypatch.setattr("app.report.measure_tables.MEASURES", listed)
    monkeypatch.setattr("app.report.selection.MEASURES", listed)
    shown = measure("made", made.report({"all": 0.5}), [], Discretion(1000))
    assert (shown.title, shown.pairs) == ("Made up", [("of all rows", "0.5")])
    assert axis("made.all", {}).title == "Made up, of all rows"


CHOSEN = {
    "figures.py": {
        "record_linkage",
        "interval_sd",
        "changed_share",
        "delta_rho",
        "association",
        "marginals",
        "prediction",
        "query_error",
        "range_averages",
    },
    "headline.py": {"record_linkage", "interval_sd", "changed_share"},
    "headline_words.py": {"changed_share", "delta_rho", "marginals", "record_linkage"},
    "page.py": {"dcr"},
}
"""Module -> measures that it chooses: default figures of a comparison, and a chart of distances."""


@pytest.mark.parametrize("package", [app.report, providers.selection])
def test_no_other_module_knows_a_single_measure(package: ModuleType) -> None:
    """Reports and rankings name a measure only where they choose one."""
    for file in Path(package.__path__[0]).glob("*.py"):
        code = re.sub(r'"""[\s\S]*?"""|examples=\[.*?\]', "", file.read_text())
        found = {key for key in MEASURES if re.search(rf'"{key}[".]', code)}
        assert found == CHOSEN.get(file.name, set()), file.name
