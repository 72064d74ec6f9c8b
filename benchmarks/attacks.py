"""Attacks on adult under several services: the table of docs/attacks.md.

``python -m benchmarks.attacks FOLDER`` prints the rows of the table; the folder has adult.csv.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from providers import PROVIDERS
from providers.attacks.figures import AttackFigures, AttackResult
from providers.attacks.options import AttackOptions
from providers.attacks.suite import attack_release, attacks_stream
from providers.progress import no_progress

NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")

LINKED = (
    ("age", "workclass", "marital-status", "sex", "education-num"),
    ("fnlwgt", "relationship", "race", "native-country"),
)
"""Fields of two other tables about the same persons; an intruder knows all of them."""

SECRETS = ("occupation", "income")

SEED = bytes(32)


@dataclass(frozen=True)
class Case:
    """One release of adult."""

    name: str
    service: str | None
    parameters: dict[str, Any]


def cases(fields: Sequence[str]) -> list[Case]:
    """Releases of the table; ``fields``: all fields of adult."""
    return [
        Case("the source itself", None, {}),
        Case("DSWAP, rate 1", "DSWAP", {"swap_fields": list(fields)}),
        Case("DSWAP, rate 0.1", "DSWAP", {"swap_fields": list(fields), "rate": 0.1}),
        Case("MEDS, k 5", "MEDS", {"swap_fields": list(NUMBERS), "k": 5}),
        Case("RWN, k 5", "RWN", {"k": 5}),
        Case("LOCALITY", "LOCALITY", {"fields": list(NUMBERS)}),
    ]


def adult(folder: Path) -> tuple[pa.Table, pa.Table]:
    """Every eighth row of adult as the source, and as many others as control rows."""
    table = pyarrow.csv.read_csv(folder / "adult.csv").drop_columns(
        ["education"]
    )  # education-num is the same
    source, control = (table.take(pa.array(np.arange(first, table.num_rows, 8))) for first in (0, 4))
    return source, control


def attacked(case: Case, source: pa.Table, control: pa.Table, **options: Any) -> AttackFigures:
    """Release the source, and attack the release."""
    release = source
    if case.service is not None:
        provider = PROVIDERS[case.service]
        params = provider.check(provider.params.model_validate(case.parameters), source.schema)
        swaps = provider.stream(SEED)
        release = provider.swap(source, params, swaps, no_progress).table
    given = AttackOptions(known=LINKED[0] + LINKED[1], linked=LINKED, secret=SECRETS, **options)
    return attack_release(
        source, release, control, given, method=None, aligned=True, stream=attacks_stream(SEED)
    )


def results(figures: AttackFigures) -> dict[str, AttackResult]:
    """Results by the name of the attack, or of the secret field."""
    found: dict[str, AttackResult] = {}
    for name, result in figures.attacks.items():
        found |= {name: result} if isinstance(result, AttackResult) else result
    return found


COLUMNS = (
    "linkability",
    *SECRETS,
    "singling_out_univariate",
    "singling_out_multivariate",
    "membership",
)


def row(case: Case, figures: AttackFigures) -> str:
    """Line of the table: rates on the source, those on control rows in brackets."""
    found = results(figures)
    cells = []
    for name in COLUMNS:
        result = found.get(name)
        if result is None:
            cells.append("-")
            continue
        assert result.control is not None  # noqa: S101 - control rows are given
        cells.append(f"{result.attack.rate:.3f} ({result.control.rate:.3f})")
    return " | ".join((f"| {case.name}", *cells)) + " |"


def main(folder: Path) -> None:
    """Print the table."""
    source, control = adult(folder)
    print("| release |", " | ".join(COLUMNS), "|")
    print("| --- |" + " --- |" * len(COLUMNS))
    first = None
    for case in cases(source.column_names):
        figures = attacked(case, source, control)
        first = first or results(figures)
        print(row(case, figures), flush=True)
    baseline = {name: result.baseline for name, result in (first or {}).items()}
    cells = [f"{base.rate:.3f}" if (base := baseline.get(name)) else "-" for name in COLUMNS]
    print(" | ".join(("| baseline, for the source", *cells)) + " |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
