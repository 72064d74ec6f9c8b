"""Measured costs of the steps of a job, per row, read from ``costs.json``.

`python -m benchmarks.scale --write` measures them. A step's costs are linear in the rows of the whole job,
which each task of the step may have to read, and in the task's own rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import orjson

ROW_BYTES = 32
"""Bytes of a row of the table on which the costs were measured: four fields of 8 bytes."""

ONE, EACH = "one", "each"
"""Number of tasks of a step: one, or one for each unit."""

SECTION = "section"
"""Name of the step in which sections of the destination are written."""

SINGLETONS = "singletons"
"""Name of the step of one task that runs at the same time as the tasks of the next step."""


@dataclass(frozen=True, slots=True)
class Line:
    """Quantity that is linear in rows: ``fixed + of_job * rows of the job + of_task * rows of the task``."""

    fixed: float
    of_job: float
    of_task: float

    def at(self, job_rows: float, task_rows: float) -> float:
        """Return the quantity for a task. Both numbers count rows of `ROW_BYTES` bytes."""
        return self.fixed + self.of_job * job_rows + self.of_task * task_rows


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Costs of one task of a step."""

    name: str
    tasks: str
    """`ONE` or `EACH`."""
    seconds: Line
    """Processor time of one thread."""
    read: Line
    """Bytes read from storage."""
    written: Line
    """Bytes written to storage."""
    scratch: Line
    """Bytes written to scratch space. A job frees what it no longer reads, and needs less at once."""


@dataclass(frozen=True, slots=True)
class ServiceCosts:
    """Costs of one service."""

    in_memory: StepCosts
    """The whole run of a job that fits one worker."""
    out_of_core: StepCosts | None
    """The whole run of a job that does not fit, by one worker; None: the service cannot run it."""
    divided: tuple[StepCosts, ...]
    """Steps of a divided job whose units fit in memory, in order; empty: the service is not divided."""
    divided_out_of_core: tuple[StepCosts, ...]
    """The same if the units do not fit."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of all services, and how they were measured."""

    measured: str
    """Date and machine, in words."""
    services: Mapping[str, ServiceCosts]


def measured_costs() -> Costs:
    """Return the costs that come with this version."""
    return parsed(files("app.capacity").joinpath("costs.json").read_bytes())


def parsed(document: bytes) -> Costs:
    """Return the costs of a JSON document of `dumped`."""
    found = orjson.loads(document)
    services = {name: _service(value) for name, value in found["services"].items()}
    return Costs(found["measured"], services)


def dumped(costs: Costs) -> bytes:
    """Return the costs as a JSON document."""
    return orjson.dumps(costs, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _service(value: dict[str, Any]) -> ServiceCosts:
    out_of_core = None if value["out_of_core"] is None else _step(value["out_of_core"])
    divided, cut = (tuple(map(_step, value[name])) for name in ("divided", "divided_out_of_core"))
    return ServiceCosts(_step(value["in_memory"]), out_of_core, divided, cut)


def _step(value: dict[str, Any]) -> StepCosts:
    lines = {name: Line(**value[name]) for name in ("seconds", "read", "written", "scratch")}
    return StepCosts(value["name"], value["tasks"], **lines)
