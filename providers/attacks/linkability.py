"""Linkability: the release links two sets of facts about one person.

An intruder has two other tables, of which each knows some fields of the same persons. For each set of
fields the intruder looks for the k nearest rows of the release. The attack succeeds if one released row is
among both.

The baseline is the same with the second set of fields of another person: the success that the released values
of each set give without the link between the sets. If many released rows are equally near by both sets, as
with a few categories, both searches often choose the same one.

Where the release left some of the fields nearly unchanged, an intruder with these alone attacks as
well.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from providers.arrays import BoolArray, Int64Array
from providers.attacks.attack import Attack
from providers.attacks.figures import AttackResult, successes
from providers.attacks.intruders import ALL_FIELDS, UNCHANGED_FIELDS, Run, details_of, strongest
from providers.attacks.nearest import Ties, nearest_rows
from providers.attacks.tables import AttackTables, Outcomes, Rows
from providers.measures.shared.sampling import uniforms
from providers.progress import Progress, sub_progress


def sets_of(known: list[str]) -> tuple[list[str], list[str]]:
    """Split the known fields into two sets: every other field."""
    return known[::2], known[1::2]


def shared(one: Int64Array, two: Int64Array) -> int:
    """Number of attacks in which both searches found one same row; both of shape (attacks, k)."""
    return int(_sharing(one, two).sum())


def _sharing(one: Int64Array, two: Int64Array) -> BoolArray:
    """Mask of the attacks in which both searches found one same row; shape (attacks,)."""
    return np.asarray((one[:, :, None] == two[:, None, :]).any(axis=(1, 2)))


def other_rows(tables: AttackTables) -> Int64Array:
    """Return a random row of another person of the source for each attacked one; shape (attacks,).

    The source has two rows or more. If all are of one person, it is another row.
    """
    rows, targets = tables.source.num_rows, tables.targets
    person = tables.units("source") if tables.one_person else None
    if person is None or person.max() == 0:
        person = np.arange(rows)
    order, sizes = np.argsort(person, kind="stable"), np.bincount(person)[person[targets]]
    ends = np.cumsum(np.bincount(person))[person[targets]]
    steps = uniforms(len(targets), tables.stream, "guesses/linkability") * (rows - sizes)
    return np.asarray(order[(ends + steps.astype(np.int64)) % rows])


def unchanged_sets(tables: AttackTables, linked: Sequence[Sequence[str]]) -> Sequence[Sequence[str]] | None:
    """Return two sets of the fields that the release has nearly unchanged; None if that is no other pair.

    Fields of the option `linked` stay in their sets. By default the unchanged known fields alone are split,
    so that an additional field that the release changed alters nothing.
    """
    known = [name for name in tables.options.known if any(name in fields for fields in linked)]
    unchanged = tables.unchanged_among(known)
    if tables.options.linked:
        found: tuple[list[str], ...] = tuple([n for n in fields if n in unchanged] for fields in linked)
    else:
        found = sets_of(unchanged)
    return found if all(found) else None


class _Linkage:
    """Searches of one attack on the released rows by two sets of fields."""

    def __init__(self, tables: AttackTables, linked: Sequence[Sequence[str]]) -> None:
        self._tables, self._linked = tables, linked
        self.wanted = min(tables.options.neighbours, tables.release.num_rows)
        self._released = [tables.encode(fields, "release") for fields in linked]
        self.searches = 3 * len(tables.targets) + 2 * len(tables.control_targets)
        self._done = 0

    def _search(
        self, side: int, rows: Rows, attacked: Int64Array, ties: Ties, report: Progress
    ) -> Int64Array:
        """Return the nearest released rows by the fields of one table; shape (attacks, wanted)."""
        start, self._done = self._done, self._done + len(attacked)
        queries = self._tables.encode(self._linked[side], rows).take(attacked)
        progress = sub_progress(report, start / self.searches, self._done / self.searches)
        return nearest_rows(queries, self._released[side], self.wanted, ties, progress)

    def _ties(self, rows: Rows, attacks: int) -> Ties:
        return Ties(self._tables.release.num_rows, attacks, self._tables.stream, f"linkability/{rows}")

    def run(self, used: Sequence[str] | None, report: Progress) -> tuple[Run, Outcomes]:
        """Return the successes, and the outcome of each attack."""
        tables, confidence = self._tables, self._tables.options.confidence
        tries, control_tries = len(tables.targets), len(tables.control_targets)
        ties = self._ties("source", tries)
        found = self._search(0, "source", tables.targets, ties, report)
        linking = _sharing(found, self._search(1, "source", tables.targets, ties, report))
        stranger = _sharing(found, self._search(1, "source", other_rows(tables), ties, report))
        control = None
        if control_tries:
            ties = self._ties("control", control_tries)
            one, two = (
                self._search(side, "control", tables.control_targets, ties, report) for side in range(2)
            )
            control = successes(shared(one, two), control_tries, confidence)
        attack, baseline = (successes(int(each.sum()), tries, confidence) for each in (linking, stranger))
        return Run(attack, control, baseline, used), Outcomes(linking, stranger)


def _run(tables: AttackTables) -> AttackResult:
    known = tables.need_known(2)
    tables.need_rows(2)
    linked: Sequence[Sequence[str]] = tables.options.linked or sets_of(known)
    pairs = {ALL_FIELDS: linked}
    if (unchanged := unchanged_sets(tables, linked)) is not None:
        pairs[UNCHANGED_FIELDS] = unchanged
    runs: dict[str, Run] = {}
    outcomes: dict[str, Outcomes] = {}
    for place, (intruder, pair) in enumerate(pairs.items()):
        report = sub_progress(tables.progress, place / len(pairs), (place + 1) / len(pairs))
        used = [*pair[0], *pair[1]] if intruder == UNCHANGED_FIELDS else None
        runs[intruder], outcomes[intruder] = _Linkage(tables, pair).run(used, report)
    stronger = strongest(runs)
    chosen = runs[stronger]
    tables.outcomes["linkability"] = outcomes[stronger]
    details: dict[str, Any] = {
        "linked": [list(fields) for fields in pairs[stronger]],
        "neighbours": min(tables.options.neighbours, tables.release.num_rows),
    }
    if len(runs) > 1:
        details |= details_of(runs, stronger)
    return AttackResult(chosen.attack, chosen.baseline, chosen.control, chosen.risk, details=details)


ATTACK = Attack(
    name="linkability",
    title="Linkability",
    meaning="Two other tables, each with some known fields of a person, find the same released row.",
    source="Giomi et al. 2023, doi:10.56553/popets-2023-0055, section 4.2",
    run=_run,
    cost="O(a n) distances",
)
