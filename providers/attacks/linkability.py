"""Linkability: the release links two sets of facts about one person.

An intruder has two other tables, of which each knows some fields of the same persons. For each set of
fields the intruder looks for the k nearest rows of the release. The attack succeeds if one released row is
among both.
"""

from providers.arrays import Int64Array
from providers.attacks.attack import Attack
from providers.attacks.figures import AttackResult, risk_of, successes
from providers.attacks.nearest import Ties, nearest_rows, random_rows
from providers.attacks.tables import AttackTables, Rows
from providers.progress import sub_progress


def sets_of(known: list[str]) -> tuple[list[str], list[str]]:
    """Split the known fields into two sets: every other field."""
    return known[::2], known[1::2]


def shared(one: Int64Array, two: Int64Array) -> int:
    """Number of attacks in which both searches found one same row; both of shape (attacks, k)."""
    return int((one[:, :, None] == two[:, None, :]).any(axis=(1, 2)).sum())


def _run(tables: AttackTables) -> AttackResult:
    known = tables.need_known(2)
    tables.need_rows(2)
    linked = tables.options.linked or sets_of(known)
    wanted = min(tables.options.neighbours, tables.release.num_rows)
    confidence = tables.options.confidence
    released = [tables.encode(fields, "release") for fields in linked]

    def count(rows: Rows, targets: Int64Array, start: float, end: float) -> int:
        found = []
        ties = Ties(tables.release.num_rows, len(targets), tables.stream, f"linkability/{rows}")
        for index, fields in enumerate(linked):
            half = (end - start) / 2
            progress = sub_progress(tables.progress, start + index * half, start + (index + 1) * half)
            queries = tables.encode(fields, rows).take(targets)
            found.append(nearest_rows(queries, released[index], wanted, ties, progress))
        return shared(found[0], found[1])

    tries, control_tries = len(tables.targets), len(tables.control_targets)
    share = tries / (tries + control_tries)
    attack = successes(count("source", tables.targets, 0.0, share), tries, confidence)
    control = (
        successes(count("control", tables.control_targets, share, 1.0), control_tries, confidence)
        if control_tries
        else None
    )
    guessed = [random_rows(tables, tries, wanted, f"linkability {side}") for side in ("one", "two")]
    return AttackResult(
        attack,
        successes(shared(guessed[0], guessed[1]), tries, confidence),
        control,
        risk_of(attack, control),
        details={"linked": [list(fields) for fields in linked], "neighbours": wanted},
    )


ATTACK = Attack(
    name="linkability",
    title="Linkability",
    meaning="Two other tables, each with some known fields of a person, find the same released row.",
    source="Giomi et al. 2023, doi:10.56553/popets-2023-0055, section 4.2",
    run=_run,
    cost="O(a n) distances",
)
