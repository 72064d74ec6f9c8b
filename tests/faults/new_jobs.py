"""Requests of jobs, their tables, and settings of services; imports nothing that only tests need.

A service process of a test that is to be killed is up seconds earlier without it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from app.job_kinds import ATTACKS, FRONTIER, MEASURES, AttackParameters, MeasureParameters
from app.jobs.requests import GivenTable, SubmissionOptions
from app.jobs.service import NewJob
from app.settings import Settings
from providers import PROVIDERS
from providers.selection.frontier import FrontierOptions


def new_job(source: pa.Table | str, **values: Any) -> NewJob:
    """Make the request of a job."""
    service = values.pop("service", "DSWAP")
    provider = PROVIDERS[service]
    default = {"hierarchy": ["city"], "swap_rate": 0.5} if service == "RSWAP" else {"swap_fields": ["income"]}
    parameters = default | values.pop("parameters", {})
    params = provider.params.model_validate(parameters)
    if isinstance(source, pa.Table):
        params = provider.check(params, source.schema)
    seed = values.get("seed")
    terms = SubmissionOptions(
        **{name: values.pop(name) for name in SubmissionOptions.__slots__ if name in values}
    )
    return NewJob(service, params, source, seed_bits=256 if seed else None, submission=terms, **values)


def new_measures(source: pa.Table | str, destination: pa.Table | str, **values: Any) -> NewJob:
    """Make the request of a measures job that compares two tables row by row."""
    parameters = MeasureParameters(aligned=True)
    options = {"measures": {"only": ["changed_share", "marginals", "dcr"]}}
    given: dict[str, Any] = {"destination": destination, "report": "full", "options": options}
    return NewJob(MEASURES, parameters, source, **given | values)


def new_attack(
    source: GivenTable, destination: GivenTable, control: GivenTable | None = None, **values: Any
) -> NewJob:
    """Make the request of an attack on a release of `people`."""
    parameters = AttackParameters(
        known=("city", "income"), attacks=20, aligned=True, job=values.pop("job", None)
    )
    given: dict[str, Any] = {"destination": destination, "control": control, "report": "full"}
    return NewJob(ATTACKS, parameters, source, **given | values)


def new_frontier(source: pa.Table, rates: Sequence[float] = (0.3, 0.6, 1.0), **values: Any) -> NewJob:
    """DSWAP on the field ``income``, at several rates."""
    swap = {"service": "DSWAP", "parameters": {"swap_fields": ["income"]}, "vary": {"rate": rates}}
    parameters = FrontierOptions.model_validate({"services": [swap], "utility": "marginals.identical"})
    return NewJob(FRONTIER, parameters, source, report="full", **values)


def people(rows: int = 1000) -> pa.Table:
    """Make a table whose values are recognisable in any file."""
    number = np.arange(rows)
    return pa.table(
        {
            "name": pa.array([f"Person-{row:06d}-Quux" for row in range(rows)]),
            "income": pa.array(987_654_321_000 + number),
            "city": pa.array([f"City-{row % 10}" for row in range(rows)]),
        }
    )


def settings_of(home: Path, workers: int = 2, **values: Any) -> Settings:
    """Settings of a service on this home, which goes down without waiting."""
    known: dict[str, Any] = {
        "worker_threads": 1,
        "worker_memory_bytes": 512 * 2**20,
        "shutdown_grace": 0.0,
        "warm_workers": False,
        "confine_workers": False,  # gates of held jobs are in the home
        "lease_seconds": 4.0,
    }
    return Settings(home=home, workers=workers, **known | values)
