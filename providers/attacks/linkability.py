"""Linkability: the release links two sets of facts about one person.

An intruder has two other tables, of which each knows some fields of the same persons. For each set of
fields the intruder looks for the k nearest rows of the release. The attack succeeds if one released row is
among both.

The baseline is the same with the second set of fields of another person: what the released values of each set
give without the link between the sets. If many released rows are equally near by both sets, as with a few
categories, both searches often choose the same one.
"""

import numpy as np

from providers.arrays import BoolArray, Int64Array
from providers.attacks.attack import Attack
from providers.attacks.figures import AttackResult, risk_of, successes
from providers.attacks.nearest import Ties, nearest_rows
from providers.attacks.tables import AttackTables, Outcomes, Rows
from providers.measures.shared.sampling import uniforms
from providers.progress import sub_progress


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
    """Return a random row of the source for each attacked one, another than that; shape (attacks,).

    The source has two rows or more.
    """
    rows = tables.source.num_rows
    steps = uniforms(len(tables.targets), tables.stream, "guesses/linkability") * (rows - 1)
    return np.asarray((tables.targets + 1 + steps.astype(np.int64)) % rows)


def _run(tables: AttackTables) -> AttackResult:
    known = tables.need_known(2)
    tables.need_rows(2)
    linked = tables.options.linked or sets_of(known)
    wanted = min(tables.options.neighbours, tables.release.num_rows)
    confidence = tables.options.confidence
    released = [tables.encode(fields, "release") for fields in linked]
    tries, control_tries = len(tables.targets), len(tables.control_targets)
    searches = 3 * tries + 2 * control_tries
    done = 0

    def search(side: int, rows: Rows, attacked: Int64Array, ties: Ties) -> Int64Array:
        """Return the nearest released rows by the fields of one table; shape (attacks, wanted)."""
        nonlocal done
        start, done = done, done + len(attacked)
        queries = tables.encode(linked[side], rows).take(attacked)
        progress = sub_progress(tables.progress, start / searches, done / searches)
        return nearest_rows(queries, released[side], wanted, ties, progress)

    def ties_of(rows: Rows, attacks: int) -> Ties:
        return Ties(tables.release.num_rows, attacks, tables.stream, f"linkability/{rows}")

    ties = ties_of("source", tries)
    found = search(0, "source", tables.targets, ties)
    linking = _sharing(found, search(1, "source", tables.targets, ties))
    stranger = _sharing(found, search(1, "source", other_rows(tables), ties))
    tables.outcomes["linkability"] = Outcomes(linking, stranger)
    attack = successes(int(linking.sum()), tries, confidence)
    control = None
    if control_tries:
        ties = ties_of("control", control_tries)
        one, two = (search(side, "control", tables.control_targets, ties) for side in range(2))
        control = successes(shared(one, two), control_tries, confidence)
    return AttackResult(
        attack,
        successes(int(stranger.sum()), tries, confidence),
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
