"""`docs/choosing.md` shows what its calls give: they are run on the table it names."""

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import choosing
from providers import PROVIDERS
from providers.measures.assessment import MeasureOptions
from providers.progress import no_progress
from providers.selection.candidates import CandidateOptions, choose
from providers.selection.combinations import combinations_of
from providers.selection.frontier import FrontierOptions, frontier, frontier_figures
from tests.data.test_real_tables import read
from tests.naive.agreement import swap

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


def with_interval(point: dict[str, Any], axis: str, digits: int) -> str:
    interval = point[f"{axis}_interval"]
    limits = f"{interval['low']:.{digits}f} to {interval['high']:.{digits}f}"
    return f"{point[axis]:.{digits}f} ({limits})"


def frontier_table(folder: Path) -> str:
    """The page states the result of its first call."""
    call = calls()[0]
    table, measures = read(folder / TABLE), MeasureOptions()
    options = FrontierOptions(services=call["services"])
    combinations = combinations_of(options.services, table.schema)
    found = frontier(
        table,
        combinations,
        frontier_figures(options, measures, combinations, table.schema),
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
        figures = [with_interval(point, "risk", 3), with_interval(point, "utility", 4)]
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


_PERMUTED: dict[str, tuple[str, str, str]] = {
    "adult.csv": ("hours-per-week", "age", "education"),
    "svcensus.csv": ("wageinc", "age", "occ"),
}
"""Table -> swap field, control field of the blocks, and control field of the classes."""


def permutation_table(folder: Path) -> str:
    """Epsilon and cost of swaps of one field, by pairs and by the permutation mechanism."""
    rows = []
    for name, (field, near, same) in _PERMUTED.items():
        table = read(folder / name)
        for service, parameters in (
            ("DSWAP", {"rate": 0.5}),
            ("DSWAP", {"mechanism": "permutation", "rate": 0.5}),
            ("DSWAP", {"mechanism": "permutation", "target_epsilon": 12}),
            ("CDSWAP", {"control_field": same, "mechanism": "permutation", "rate": 0.5}),
            ("DDSWAP", {"control_field": near, "block_size": 50, "mechanism": "permutation", "rate": 0.5}),
            (
                "DDSWAP",
                {"control_field": near, "block_size": 50, "mechanism": "permutation", "target_epsilon": 5},
            ),
            (
                "DDSWAP",
                {"control_field": near, "block_size": 10, "mechanism": "permutation", "target_epsilon": 3},
            ),
            (
                "DDSWAP",
                {"control_field": near, "block_size": 5, "mechanism": "permutation", "target_epsilon": 2},
            ),
        ):
            result = swap(service, table, {"swap_fields": [field], **parameters})
            found = result.provider.get("guarantee", {"epsilon": math.inf, "rate": 0.5})
            before, after = correlations_with(table, field), correlations_with(result.table, field)
            rows.append(
                [
                    name.removesuffix(".csv"),
                    service,
                    ", ".join(f"`{key}` {value}" for key, value in parameters.items() if key != "mechanism"),
                    "none: pairs" if found["epsilon"] == math.inf else f"{found['epsilon']:.2f}",
                    f"{found['rate']:.3f}",
                    f"{result.summary.changed[field] / table.num_rows:.3f}",
                    f"{np.abs(after - before).max():.3f}",
                ]
            )
    head = ["table", "service", "parameters", "epsilon", "rate", "rows changed", "change of correlations"]
    return lines(head, rows)


def correlations_with(table: pa.Table, field: str) -> np.ndarray:
    """Correlations of a field with the other numeric fields."""
    numeric = [name for name in table.column_names if pa.types.is_primitive(table.schema.field(name).type)]
    values = np.array([table.column(name).to_numpy().astype(float) for name in [field, *sorted(numeric)]])
    found: np.ndarray = np.corrcoef(values)[0, 1:]
    return found


def test_the_permutation_mechanism_is_as_documented(data_dir: Path) -> None:
    """Epsilon, rate and cost on two public tables."""
    assert permutation_table(data_dir) in PAGE.read_text(encoding="utf-8")


def test_the_frontier_is_as_documented(data_dir: Path) -> None:
    """Every point, and which of them are not dominated."""
    assert frontier_table(data_dir) in PAGE.read_text(encoding="utf-8")


def test_the_candidates_are_as_documented(data_dir: Path) -> None:
    """Every line of the evidence, and the one that was kept."""
    assert candidates_table(data_dir) in PAGE.read_text(encoding="utf-8")


_SURVEYS: dict[str, tuple[dict[str, Any], str]] = {
    "testdata.csv": (
        {
            "household": "ori_hid",
            "hierarchy": ["urbrur"],
            "similar": [["size"]],
            "risk_fields": ["sex", "age"],
        },
        "water",
    ),
    "adult.csv": (
        {"hierarchy": ["occupation"], "similar": [["sex", "education"]], "risk_fields": ["race", "age"]},
        "income",
    ),
}
"""Table -> parameters of RSWAP, and a field outside the profile whose table by area is compared."""


def record_swapping_table(folder: Path) -> str:
    """Obligations and cost of RSWAP at several rates."""
    rows = []
    for name, (parameters, other) in _SURVEYS.items():
        table = read(folder / name)
        if "household" in parameters:
            codes = table.column(parameters["household"]).to_numpy()
            _, place, counts = np.unique(codes, return_inverse=True, return_counts=True)
            table = table.append_column("size", pa.array(counts[place]))
        area = parameters["hierarchy"][-1]
        for k, rate in ((0, 0.05), (0, 0.3), (2, 0.05), (3, 0.05), (3, 0.3)):
            result = swap("RSWAP", table, {**parameters, "k_anonymity": k, "swap_rate": rate})
            found = result.provider
            level = found["levels"][area]
            before, after = (
                Counter(zip(each[area].to_pylist(), each[other].to_pylist(), strict=True))
                for each in (table, result.table)
            )
            moved = sum(abs(after[cell] - before[cell]) for cell in before | after) / 2
            rows.append(
                [
                    name.removesuffix(".csv"),
                    str(k),
                    f"{rate:g}",
                    f"{level['required_households'] / found['households']:.3f}",
                    f"{found['swapped_share']:.3f}",
                    f"{found['unmatched_households']}",
                    f"{moved / table.num_rows:.4f}",
                ]
            )
    head = [
        "table", "`k_anonymity`", "`swap_rate`", "at risk", "swapped", "without a donor", "in other cells",
    ]  # fmt: skip
    return lines(head, rows)


def test_record_swapping_is_as_documented(data_dir: Path) -> None:
    """Obligations, swaps and cost on two public tables."""
    assert record_swapping_table(data_dir) in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", choosing.TABLES)
def test_options_are_as_documented(data_dir: Path, name: str) -> None:
    """The lines of the smaller table, whose figures are the means and deviations of ten seeds."""
    page = cells(PAGE.read_text(encoding="utf-8"))
    for line in cells(choosing.tables(data_dir, name, "testdata"))[2:]:
        assert line in page


def cells(text: str) -> list[list[str]]:
    """Return the cells of each line."""
    return [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
