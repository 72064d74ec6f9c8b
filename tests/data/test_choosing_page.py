"""`docs/choosing.md` shows what its calls give: they are run on the table it names."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from providers import PROVIDERS
from providers.measures.assessment import MeasureOptions
from providers.progress import no_progress
from providers.selection.candidates import CandidateOptions, choose
from providers.selection.combinations import combinations_of
from providers.selection.frontier import FrontierOptions, frontier, frontier_figures
from tests.data.test_real_tables import read

pytestmark = pytest.mark.realdata

PAGE = Path("docs/choosing.md")
TABLE = "CASCrefmicrodata.csv"


def calls() -> list[dict[str, Any]]:
    """The page's calls: of the frontier, and of the candidates."""
    found = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [json.loads(text) for text in found]


def seed_of(call: dict[str, Any]) -> tuple[bytes, int]:
    seed = call["seed"]
    return int(seed, 16).to_bytes(32, "big"), 4 * len(seed)


def lines(head: list[str], rows: list[list[str]]) -> str:
    written = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in written).replace("|  |", "| |")


def frontier_table(folder: Path) -> str:
    """The page states the result of its first call."""
    call = calls()[0]
    table, measures = read(folder / TABLE), MeasureOptions()
    options = FrontierOptions(services=call["services"])
    found = frontier(
        table,
        combinations_of(options.services, table.schema),
        frontier_figures(options, measures),
        options.runs,
        measures,
        *seed_of(call),
        no_progress,
    )
    varied = {name for service in call["services"] for name in service["vary"]}
    rows = []
    for point in found["points"]:
        given = [
            f"`{name}` {json.dumps(point['parameters'][name])}" for name in varied & {*point["parameters"]}
        ]
        figures = [f"{point['risk']:.3f}", f"{point['utility']:.4f}"]
        rows.append([point["service"], *given, *figures, "" if point["dominated"] else "yes"])
    figures = [f"risk: `{found['risk']}`", f"utility: `{found['utility']}`"]
    return lines(["service", "varied", *figures, "frontier"], rows)


def candidates_table(folder: Path) -> str:
    """The evidence that the second call gives, as the page describes it."""
    call = calls()[1]
    table = read(folder / TABLE)
    provider = PROVIDERS["DDSWAP"]
    params = provider.check(provider.params.model_validate(call["parameters"]), table.schema)
    options = CandidateOptions.model_validate(call["candidates"])
    choice = choose(provider, table, params, *seed_of(call), options, MeasureOptions(), no_progress)
    names = choice.evidence["rank_by"]
    rows = []
    for line in choice.evidence["table"]:
        values = [f"{line['values'][name]:.5f}" for name in names]
        kept = "kept" if line["index"] == choice.index else ""
        rows.append([str(line["index"]), *values, f"{line['rank']:g}", kept])
    return lines(["candidate", *(f"`{name}`" for name in names), "mean rank", ""], rows)


def test_the_frontier_is_as_documented(data_dir: Path) -> None:
    """Every point, and which of them are not dominated."""
    assert frontier_table(data_dir) in PAGE.read_text(encoding="utf-8")


def test_the_candidates_are_as_documented(data_dir: Path) -> None:
    """Every line of the evidence, and the one that was kept."""
    assert candidates_table(data_dir) in PAGE.read_text(encoding="utf-8")
