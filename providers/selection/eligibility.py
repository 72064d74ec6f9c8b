"""Eligibility of compared runs: protected fields, reversibility, and the runs that are not dominated.

Figures compare runs that protect the same fields. A run that leaves a field unchanged is never better than
one that protects this field too, however little that one changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from providers.measures.shared.measure import Goal
from providers.selection.ranking import (
    LEVEL,
    Beaten,
    Estimate,
    beaten_points,
    level_of_all,
    p_values,
)

REVERSIBLE = ("rows_in_groups_of_two", "rows_in_groups_of_three")
"""Entries of a run's `group_bits`: numbers of rows that anyone can restore exactly, or nearly so."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One run, or all runs of one combination."""

    protects: frozenset[str]
    """Fields of which every run changed a value."""
    reversible: Mapping[str, int]
    """Entry of `REVERSIBLE` -> rows; empty if nobody can undo the run from its groups alone."""
    figures: tuple[Estimate, Estimate]
    """Figures of the two axes; the same number for all, such as 0, on an axis that does not rank."""


@dataclass(frozen=True, slots=True)
class Eligibility:
    """Result of comparing one entry with the others."""

    unprotected: tuple[str, ...]
    """Fields that it leaves unchanged and that an entry protects which protects all of its fields too."""
    dominated: bool
    """Whether it is not among the best: another entry beats it, or it is reversible or protects fewer."""
    within_uncertainty_of: tuple[int, ...] = ()
    """Entries that are as good in both figures and better in one, but by no more than the uncertainty."""


def protected_by(changed: Iterable[Mapping[str, int]]) -> frozenset[str]:
    """Return the fields of which each of the runs changed a value.

    Parameters
    ----------
    changed : iterable of mapping of str to int
        For each run, field -> rows whose value differs from the source's.
    """
    sets = [frozenset(name for name, rows in one.items() if rows) for one in changed]
    return frozenset.intersection(*sets) if sets else frozenset()


def reversible_by(provider_figures: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the numbers of rows in groups of two and of three, each the maximum over the runs.

    Parameters
    ----------
    provider_figures : iterable of mapping
        For each run the provider's own figures; without `group_bits` its groups are unknown. Rows of a run
        do not count if its `reversible` is false, since at its rate most of them keep their own values.

    Returns
    -------
    dict
        Entry of `REVERSIBLE` -> rows; only entries with rows.
    """
    found: dict[str, int] = {}
    for figures in provider_figures:
        bits = (figures.get("group_bits") or {}) if figures.get("reversible", True) else {}
        for name in REVERSIBLE:
            found[name] = max(found.get(name, 0), int(bits.get(name) or 0))
    return {name: rows for name, rows in found.items() if rows}


def shown_at(entries: Sequence[Entry], tests: int) -> float:
    """Return the level at which a difference of rivals on an axis is beyond the uncertainty.

    Parameters
    ----------
    entries : sequence of Entry
    tests : int
        Number of differences that were looked at, with those of figures that became no axis.
    """
    pairs = [
        p_values([entries[index].figures[axis] for index in indices])[np.triu_indices(len(indices), 1)]
        for indices in _rivals(entries).values()
        for axis in range(2)
    ]
    return level_of_all(np.concatenate(pairs), tests) if pairs else LEVEL


def _rivals(entries: Sequence[Entry]) -> dict[frozenset[str], list[int]]:
    """Return protected fields -> the entries that protect these and cannot be undone."""
    rivals: dict[frozenset[str], list[int]] = {}
    for index, entry in enumerate(entries):
        if not entry.reversible:
            rivals.setdefault(entry.protects, []).append(index)
    return rivals


def eligibilities(
    entries: Sequence[Entry], goals: tuple[Goal, Goal], level: float = LEVEL
) -> list[Eligibility]:
    """Compare the entries by their protected fields, their reversibility and their figures.

    Parameters
    ----------
    entries : sequence of Entry
    goals : tuple of Goal
        Better values of each axis.
    level : float
        Level of a difference beyond the uncertainty (`shown_at`).

    Notes
    -----
    A reversible run protects nothing: it beats no other run and is never among the best. An entry that
    protects a proper subset of the fields of another one is not among the best either. Two entries that
    protect other fields are not compared. O(n^2).
    """
    rivals = _rivals(entries)
    beaten: dict[int, Beaten] = {}
    for indices in rivals.values():
        found = beaten_points([entries[index].figures for index in indices], goals, level)
        beaten |= dict(zip(indices, found, strict=True))
    results = []
    for index, entry in enumerate(entries):
        more = frozenset[str]().union(*(fields for fields in rivals if fields > entry.protects))
        missing = tuple(sorted(more - entry.protects))
        if entry.reversible or missing:
            results.append(Eligibility(missing, True))
            continue
        close = tuple(rivals[entry.protects][place] for place in beaten[index].within)
        results.append(Eligibility(missing, beaten[index].clearly, () if beaten[index].clearly else close))
    return results
