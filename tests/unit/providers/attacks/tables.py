"""Tables and calls that the tests of attacks share."""

from typing import Any

import numpy as np
import pyarrow as pa

from providers.attacks.figures import AttackFigures, AttackResult
from providers.attacks.options import AttackOptions
from providers.attacks.suite import MethodUsed, attack_release, attacks_stream
from providers.progress import Progress, no_progress

SEED = bytes(range(32))


def people(rows: int, seed: int = 3) -> pa.Table:
    """Persons with numbers, categories and nulls; income depends on age and school."""
    random = np.random.default_rng(seed)
    age = random.integers(18, 80, rows)
    school = random.integers(0, 5, rows)
    towns = random.integers(0, 40, rows)
    income = (age * 100 + school * 5_000 + random.normal(0, 500, rows)).round()
    return pa.table(
        {
            "age": age,
            "school": pa.array([f"s{level}" for level in school], pa.string()).dictionary_encode(),
            "town": pa.array([None if town == 7 else town for town in towns.tolist()], pa.int64()),
            "height": random.normal(170, 10, rows).round(1),
            "income": income,
            "moves": random.integers(0, 4, rows).astype(str),
        }
    )


def attacked(
    source: pa.Table,
    release: pa.Table,
    control: pa.Table | None = None,
    *,
    method: MethodUsed | None = None,
    aligned: bool = True,
    seed: bytes = SEED,
    on_progress: Progress = no_progress,
    **options: Any,
) -> AttackFigures:
    """Run the suite with these options."""
    return attack_release(
        source,
        release,
        control,
        AttackOptions(**options),
        method=method,
        aligned=aligned,
        stream=attacks_stream(seed),
        on_progress=on_progress,
    )


def result_of(figures: AttackFigures, name: str) -> AttackResult:
    """The result of an attack that has one."""
    found = figures.attacks[name]
    assert isinstance(found, AttackResult), figures.left_out
    return found
