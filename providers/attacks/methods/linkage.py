"""Linkage that knows the rule of a swap: ranks, classes and bins.

An intruder knows some true values of a person and looks for the person's row. The row that shows such a value
is the wrong one, since it was exchanged; but the person's row is in the same block, class or bin. The row's
unswapped values are the person's own. Each row of the release gets the probability that follows from the
rule, field by field; the intruder takes a row of highest probability.

References
----------
Nin, Herranz and Torra 2008, Rethinking rank swapping to decrease disclosure risk, Data & Knowledge
Engineering 64(1), 346-364, doi:10.1016/j.datak.2007.07.006: linkage by the intersection of the sets of rows
that the rule allows for each field.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.attacks.attack import Attack
from providers.attacks.figures import AttackResult, successes
from providers.attacks.methods.groups import MovedFields, in_release_order, joint_codes, moved_fields
from providers.attacks.methods.moving_chances import OUTSIDE
from providers.attacks.tables import AttackTables
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.sampling import uniforms

_NO_CONTROL = "Rows that were not in the source have no row in the release: there is no control."
_TIE = 1 - 1e-9
"""Rows within this factor of the highest probability are tied."""
_LEAST = 1e-12
"""Least sum of the other rows' probabilities to have moved; below it no partner is possible."""


def weights(
    shown: Int64Array,
    value: int,
    group: Int64Array,
    moving: Float64Array,
    counted: BoolArray | None = None,
) -> Float64Array:
    """Return the probability of each row to be the one whose true value is given, up to a factor.

    A row that moved with probability p shows its own value with probability 1 - p. Otherwise one of the other
    rows of its group shows its value, each with a probability in proportion to its own p. With equal p this
    is p / (m - 1) in a group of m rows. A row in no group keeps its value.

    Parameters
    ----------
    shown : ndarray of int64, shape (rows,)
        Code of the value that each row of the release shows.
    value : int
        Code of the true value that is looked for.
    group : ndarray of int64, shape (rows,)
        Group of each row, -1 for none.
    moving : ndarray of float64, shape (rows,)
        Probability of each row to have moved.
    counted : ndarray of bool, shape (rows,), optional
        One row of each unit, if all rows of a unit show one value, which went to another unit of any size: a
        partner is a unit then, however many rows it has. None: each row counts.
    """
    equal = shown == value
    places = group + 1  # 0 for rows in no group
    partners = moving if counted is None else np.where(counted, moving, 0.0)
    movers = np.bincount(places, partners)
    holders = np.bincount(places, np.where(equal, partners, 0.0), minlength=len(movers))
    rest = movers[places] - moving
    share = np.divide(holders[places] - equal * moving, rest, out=np.zeros(len(rest)), where=rest > _LEAST)
    found: Float64Array = np.where(group == OUTSIDE, equal, moving * share + equal * (1 - moving))
    return found


def choose_row(weight: Float64Array, chance: float) -> int:
    """Return one of the rows of highest weight, selected by a uniform number in [0, 1)."""
    best = np.flatnonzero(weight >= weight.max() * _TIE)  # all rows, if every weight is 0
    return int(best[int(chance * len(best))])


def link(
    target: int,
    fixed: tuple[Int64Array, Int64Array] | None,
    moved: list[tuple[MovedFields, Float64Array, BoolArray | None, Int64Array, Int64Array]],
    rows: int,
) -> Float64Array:
    """Return the probability of each row of the release to be the target's, up to a factor; shape (rows,).

    Parameters
    ----------
    target : int
        Attacked row of the source.
    fixed : pair of ndarrays, optional
        Codes of the known fields that did not move, of source and release.
    moved : list of (fields, chances to have moved, counted rows, codes of the source, codes of the release)
        Known fields that moved, set by set; counted rows are those of `weights`.
    rows : int
        Rows of the release.
    """
    weight = np.ones(rows)
    if fixed is not None:
        equal = fixed[1] == fixed[0][target]
        if equal.any():  # a suppressed value leaves none
            weight *= equal
    for fields, moving, counted, true, shown in moved:
        factor = weight * weights(shown, int(true[target]), fields.group, moving, counted)
        if factor.any():
            weight = factor
    return weight


def _run(tables: AttackTables) -> AttackResult:
    tables.need_aligned()
    tables.need_rows(2)
    known = [name for name in tables.need_known() if name in tables.columns]
    sets = [each for each in moved_fields(tables) if set(each.fields) & set(known)]
    if not sets:
        raise NotApplicable("no known field was swapped: the row is found by its unswapped fields")
    in_sets = {name for each in sets for name in each.fields}
    stayed = [name for name in known if name not in in_sets]
    fixed = None
    if stayed:
        one, two = joint_codes(tables, stayed, ["source", "release"])
        fixed = one, two
    moved = []
    for each in sets:
        named = [name for name in each.fields if name in known]
        true, shown = joint_codes(tables, named, ["source", "release"])
        moved.append((each, each.moving, each.one_of_each_unit, true, shown))

    def agree(target: int) -> Float64Array:
        # Linkage that takes the values as they are shown, as if nothing had been exchanged.
        agreeing = np.zeros(rows) if fixed is None else (fixed[1] == fixed[0][target]).astype(np.float64)
        for *_, true, shown in moved:
            agreeing += shown == true[target]
        return agreeing

    rows = tables.release.num_rows
    details = {"moved": [list(each.fields) for each, *_ in moved], "stayed": stayed}
    assumptions = [text for each, *_ in moved for text in each.assumptions]
    return link_targets(tables, lambda target: link(target, fixed, moved, rows), agree, details, assumptions)


def link_targets(
    tables: AttackTables,
    weigh: Callable[[int], Float64Array],
    agree: Callable[[int], Float64Array],
    details: dict[str, Any],
    assumptions: Sequence[str] = (),
) -> AttackResult:
    """Link each attacked row to a row of the release, and count the links to a row of the same person.

    Parameters
    ----------
    tables : AttackTables
        Aligned, with two rows or more.
    weigh : callable
        Attacked row of the source -> probability of each row of the release to be its, up to a factor.
    agree : callable
        Attacked row -> weights of linkage without the rule, for comparison.
    details : dict
        Details of the result, to which the figures of the linkage are added.
    assumptions : sequence of str
        Sentences about what the attack does not use; each is in the note once.
    """
    targets, rows = tables.targets, tables.release.num_rows
    persons = tables.units("release") if tables.one_person else None
    person_of = np.arange(rows) if persons is None else persons
    chances = uniforms(2 * len(targets), tables.stream, "linkage by rule").reshape(len(targets), 2)
    row_of = np.full(tables.source.num_rows, -1, np.int64)
    row_of[in_release_order(tables, np.arange(tables.source.num_rows))] = person_of
    found, naive = 0, 0
    candidates: list[int] = []
    for index, target in enumerate(targets.tolist()):
        weight = weigh(target)
        candidates.append(int(np.count_nonzero(weight >= weight.max() * _TIE)))
        found += int(person_of[choose_row(weight, chances[index, 0])] == row_of[target])
        naive += int(person_of[choose_row(agree(target), chances[index, 0])] == row_of[target])
        if index % 64 == 0:
            tables.progress(index / len(targets), "linking rows")
    guessed = person_of[(chances[:, 1] * rows).astype(np.int64)]
    tries, confidence = len(targets), tables.options.confidence
    return AttackResult(
        successes(found, tries, confidence),
        successes(int((guessed == row_of[targets]).sum()), tries, confidence),
        None,
        None,
        note=" ".join(dict.fromkeys([_NO_CONTROL, *assumptions])),
        details={
            **details,
            "median_candidates": float(np.median(candidates)),
            "without_the_rule": naive,
        },
    )


ATTACK = Attack(
    name="rule_linkage",
    title="Linkage by the rule of the swap",
    meaning="A person's row is found among those that the swap allows for the person's true values.",
    source="Nin, Herranz and Torra 2008, doi:10.1016/j.datak.2007.07.006",
    run=_run,
    services=("DSWAP", "CDSWAP", "DDSWAP", "MEWS", "MEDS"),
    cost="O(a n) for each set of fields that move together",
)
