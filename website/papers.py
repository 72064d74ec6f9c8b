"""Attack every service on two public tables, for the services' pages: ``python -m website.papers``."""

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from providers import PROVIDERS
from providers.attacks.figures import AttackResult
from providers.attacks.suite import (
    ATTACKS_REVISION,
    AttackOptions,
    MethodUsed,
    attack_release,
    attacks_stream,
)

ATTACKS = Path("docs/papers/attacks.json")
"""Stored figures, from which the tables of the pages are made."""

SEED = bytes(32)
"""Seed of the attacks and of the sister releases."""

KNOWN: dict[str, tuple[str, ...]] = {
    "adult": (
        "age",
        "workclass",
        "education",
        "marital-status",
        "occupation",
        "race",
        "sex",
        "native-country",
    ),
    "svcensus": ("age", "educ", "occ", "wkswrkd", "gender"),
}
"""Table -> fields that the intruder knows of a person."""

SECRET = {"adult": ("income",), "svcensus": ("wageinc",)}
"""Table -> fields that the intruder wants to learn."""

_ADULT_NUMBERS = ["age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"]
_CENSUS_NUMBERS = ["age", "wageinc", "wkswrkd"]


@dataclass(frozen=True, slots=True)
class Run:
    """One attacked run of a service."""

    service: str
    data: str
    """Name of the table, without its ending."""
    parameters: dict[str, Any]

    @property
    def method(self) -> MethodUsed:
        """The service with its parameters, as attacks take it."""
        return MethodUsed(self.service, self.parameters)

    @property
    def options(self) -> AttackOptions:
        """Options of the attacks."""
        return AttackOptions(known=KNOWN[self.data], secret=SECRET[self.data])


RUNS = (
    Run("DSWAP", "adult", {"swap_fields": ["income"]}),
    Run("DSWAP", "adult", {"swap_fields": ["income"], "rate": 0.1}),
    Run("DSWAP", "svcensus", {"swap_fields": ["wageinc", "age"], "locked": True}),
    Run("CDSWAP", "adult", {"swap_fields": ["income", "age"], "control_field": "education"}),
    Run("CDSWAP", "svcensus", {"swap_fields": ["wageinc"], "control_field": "occ"}),
    Run("DDSWAP", "adult", {"swap_fields": ["income"], "control_field": "age", "block_size": 10}),
    Run("DDSWAP", "svcensus", {"swap_fields": ["wageinc"], "control_field": "age", "block_size": 10}),
    Run("MEWS", "adult", {"swap_fields": ["age", "hours-per-week"], "bins": 20}),
    Run("MEWS", "svcensus", {"swap_fields": ["age", "wageinc"], "bins": 40}),
    Run("MEDS", "adult", {"swap_fields": ["age", "hours-per-week"], "k": 5}),
    Run("MEDS", "svcensus", {"swap_fields": ["age", "wageinc"], "k": 5}),
    Run("RWN", "adult", {"k": 5}),
    Run("RWN", "svcensus", {"k": 5}),
    Run("RWN", "svcensus", {"k": 5, "q": 0.5}),
    Run("PABIDOT", "adult", {"fields": _ADULT_NUMBERS, "sigma": 0.3}),
    Run("PABIDOT", "adult", {"fields": _ADULT_NUMBERS, "sigma": 1.0}),
    Run("PABIDOT", "svcensus", {"fields": _CENSUS_NUMBERS, "sigma": 0.3}),
    Run("LOCALITY", "adult", {"fields": ["age", "hours-per-week"]}),
    Run("LOCALITY", "adult", {"fields": ["age", "hours-per-week"], "sigma": 1.0}),
    Run("LOCALITY", "svcensus", {"fields": ["age", "wageinc"]}),
    # Neither table has geography: workclass and occupation stand for two levels of it, occ for one.
    Run(
        "RSWAP",
        "adult",
        {
            "hierarchy": ["workclass", "occupation"],
            "similar": [["sex", "education"], ["sex"]],
            "risk_fields": ["race", "marital-status"],
        },
    ),
    Run(
        "RSWAP",
        "adult",
        {
            "hierarchy": ["workclass", "occupation"],
            "similar": [["sex", "education"], ["sex"]],
            "swap_rate": 0.3,
        },
    ),
    Run(
        "RSWAP",
        "svcensus",
        {"hierarchy": ["occ"], "similar": [["gender"]], "risk_fields": ["educ", "wkswrkd"]},
    ),
)
"""The runs of the pages: each service on both tables."""


def results(attacks: dict[str, AttackResult | dict[str, AttackResult]]) -> Iterator[dict[str, Any]]:
    """Yield the counts of each attack as plain JSON, field by field if there are several."""
    for name, found in attacks.items():
        by_part = found if isinstance(found, dict) else {"": found}
        for part, result in by_part.items():
            counts = {"attack": result.attack, "baseline": result.baseline, "control": result.control}
            entry: dict[str, Any] = {"name": name, "part": part}
            for key, value in counts.items():
                entry[key] = None if value is None else [value.successes, value.tries]
            if "r_squared" in result.details:
                entry["r_squared"] = round(result.details["r_squared"], 3)
            yield entry


def measure(run: Run, table: pa.Table) -> dict[str, Any]:
    """Attack a sister release of the run; return the run with its counts as plain JSON."""
    figures = attack_release(
        table, table, None, run.options, method=run.method, aligned=True, stream=attacks_stream(SEED)
    )
    return {
        "service": run.service,
        "data": run.data,
        "parameters": run.parameters,
        "revisions": revisions(run.service),
        "attacks": list(results(figures.attacks)),
    }


def revisions(service: str) -> dict[str, int]:
    """Return the revisions of attacks and service, on which the figures depend."""
    return {"attacks": ATTACKS_REVISION, "service": PROVIDERS[service].revision}


def read_table(folder: Path, data: str) -> pa.Table:
    """Read one of the public tables."""
    return pyarrow.csv.read_csv(folder / f"{data}.csv")


def main(arguments: list[str] | None = None) -> int:
    """Measure all runs, or those of some services, and write the figures; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m website.papers", description="Attack every service on two public tables."
    )
    parser.add_argument("services", nargs="*", help="services to measure again; default: all")
    given = parser.parse_args(arguments)
    if unknown := set(given.services) - {run.service for run in RUNS}:
        parser.error(f"there is no service {', '.join(sorted(unknown))}")
    folder = Path(os.environ.get("ROWVEIL_DATA", "../shared/data"))
    stored = json.loads(ATTACKS.read_text(encoding="utf-8")) if given.services and ATTACKS.exists() else []
    measured = []
    for run in RUNS:
        if given.services and run.service not in given.services:
            measured += [entry for entry in stored if _is(entry, run)]
            continue
        print(f"attacking {run.service} on {run.data}: {json.dumps(run.parameters)}", flush=True)
        measured.append(measure(run, read_table(folder, run.data)))
    lines = ",\n".join(json.dumps(entry) for entry in measured)
    ATTACKS.parent.mkdir(parents=True, exist_ok=True)
    ATTACKS.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return 0


def _is(entry: dict[str, Any], run: Run) -> bool:
    return (entry["service"], entry["data"], entry["parameters"]) == (run.service, run.data, run.parameters)


if __name__ == "__main__":
    raise SystemExit(main())
