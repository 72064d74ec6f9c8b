"""Page "Scaling a job over several workers": its costs are those that `rowveil plan` uses."""

import pytest

from app.capacity.costs import ServiceCosts, measured_costs
from tests.docs.blocks import PAGES

STEPS = {
    "division": "divide",
    "singletons": "singletons",
    "preparation": "prepare",
    "piece, own rows": "piece",
    "unit, own rows": "unit",
    "section": "section",
}


def documented() -> dict[str, dict[str, str]]:
    """Return the page's table: step -> service -> cell."""
    text = (PAGES / "scaling.md").read_text(encoding="utf-8").partition("## Costs of the steps")[2]
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.partition("\n## ")[0].splitlines()
        if line.startswith("|")
    ]
    return {line[0]: dict(zip(lines[0][1:], line[1:], strict=True)) for line in lines[2:]}


def used(costs: ServiceCosts, step: str) -> float | None:
    """Return the nanoseconds a row of a step; None if the service has no such step."""
    if step == "in memory":
        return costs.in_memory.seconds.of_task * 1e9
    if step == "out of core":
        return None if costs.out_of_core is None else costs.out_of_core.seconds.of_task * 1e9
    found = {each.name: each.seconds for each in costs.divided}
    if step == "unit, all rows":
        return found["unit"].of_job * 1e9 if found else None
    return found[STEPS[step]].of_task * 1e9 if STEPS[step] in found else None


@pytest.mark.parametrize("step", ["in memory", "out of core", *STEPS, "unit, all rows"])
def test_the_page_has_the_costs_that_are_used(step: str) -> None:
    expected = {name: used(costs, step) for name, costs in measured_costs().services.items()}
    assert documented()[step] == {
        name: "" if value is None else f"{value:,.0f}" for name, value in expected.items()
    }
