"""Guarantee of the permutation mechanism on the report's page: epsilon, invariants and limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.report.formatting import named, number
from app.report.page_table import Table


@dataclass(frozen=True, slots=True)
class Guarantee:
    """Section of the page."""

    sentences: Sequence[str]
    table: Table
    """Epsilon, bound and largest group of each random order."""
    invariants: Sequence[str]
    limits: Sequence[str]


def guarantee(figures: Mapping[str, Any] | None, members: str) -> Guarantee | None:
    """Build the section from the provider's figure `guarantee`; None if the run has none.

    ``members``: of the groups, such as ``rows``.
    """
    if not figures:
        return None
    epsilon, target = figures.get("epsilon"), figures.get("target_epsilon")
    found = [
        "There is no finite epsilon."
        if epsilon is None
        else f"Epsilon is {number(epsilon)}; the paper's bound is {number(figures['paper_bound'])}.",
        str(figures["holds_for"]),
        f"The rate was {number(figures['rate'])}. The least epsilon that any rate reaches with these groups "
        f"is {number(figures['least_epsilon'])}, at rate {number(figures['rate_of_least_epsilon'])}.",
    ]
    if target is not None:
        found.append(f"The rate is the smallest one that meets the target {number(target)}.")
    rows = [
        (
            named(name),
            "none" if entry.get("epsilon") is None else number(entry["epsilon"]),
            number(entry["paper_bound"]),
            number(entry["largest_group"]),
        )
        for name, entry in figures["by_field"].items()
    ]
    head = ("swap field", "epsilon", "paper's bound", f"{members} of the largest group")
    return Guarantee(
        found,
        Table("Epsilon of each random order; they add up", head, rows),
        [str(text) for text in figures["invariants"]],
        [str(text) for text in figures["does_not_mean"]],
    )
