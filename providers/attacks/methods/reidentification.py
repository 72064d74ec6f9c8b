"""Re-identification of swapped rows: true values of some rows reveal true values of other rows.

An intruder knows the true values of a share of the rows, such as the rows of a household, of customers or of
a village, or knows that some pairs were exchanged. A known value is shown by another row of the group, which
therefore shows a partner's value, and so on. For each other row the intruder guesses the value that it has in
most of the exchanges compatible with this knowledge.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.attacks.attack import Attack
from providers.attacks.figures import AttackResult, successes
from providers.attacks.methods.groups import MovedFields, in_release_order, joint_codes, moved_fields
from providers.attacks.methods.matchings import Beliefs, beliefs
from providers.attacks.methods.movers import Movers
from providers.attacks.methods.moving_chances import OUTSIDE, MovingChances
from providers.attacks.methods.permutations import MOST_LISTED, LargeGroup, permuted_beliefs
from providers.attacks.tables import AttackTables
from providers.attacks.units import known_share_of, of_whole_units, one_of_each
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.sampling import sample_rows
from providers.tables.columns import null_mask

_NO_CONTROL = "Rows that were not in the source have no partner in the release: there is no control."
_UNKNOWN = -1
_CERTAIN = 1 - 1e-9

ValueOf = Callable[[int, Int64Array], Int64Array]
"""Value of an attacked row from each of the codes that it may have; see `guess_values`."""


@dataclass(frozen=True, slots=True)
class Guesses:
    """Guessed values of attacked rows."""

    values: Int64Array
    """Code of the guessed value of each attacked row; shape (attacks,)."""
    chance: Mapping[int, float]
    """Attacked row -> probability of the guess, by the intruder's own beliefs."""
    exact: int
    """Number of attacked rows in groups whose exchanges were listed one by one."""


def guess_values(
    shown: Int64Array,
    known: Int64Array,
    group: Int64Array,
    rate: float,
    targets: Int64Array,
    chances: MovingChances | None = None,
    value_of: ValueOf | None = None,
) -> Guesses:
    """Guess the true values of rows from the true values of other rows.

    Parameters
    ----------
    shown : ndarray of int64, shape (rows,)
        Code of the value that each row of the release shows.
    known : ndarray of int64, shape (rows,)
        Code of the true value of each row, -1 where the intruder does not know it.
    group : ndarray of int64, shape (rows,)
        Group of each row, -1 for a row that kept its value.
    rate : float
        Share of a group's rows that took part.
    targets : ndarray of int64, shape (attacks,)
        Attacked rows, none of them known.
    chances : MovingChances, optional
        Selection of the rows by risk, in place of the rate.
    value_of : callable, optional
        Value to guess for an attacked row, from the codes of what it may be; default: the code itself.
    """
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(group.max(initial=OUTSIDE) + 2))
    found: dict[int, tuple[Int64Array, Beliefs, Int64Array, Int64Array]] = {}
    values, chance, exact = _as_shown(shown, targets, value_of), {}, 0
    for index, row in enumerate(targets.tolist()):
        number = int(group[row])
        if number == OUTSIDE:
            chance[row] = 1.0
            exact += 1
            continue
        if number not in found:
            members = order[bounds[number] : bounds[number + 1]]
            codes, place = np.unique(shown[members], return_inverse=True)
            share = rate if chances is None else chances.of(members)
            found[number] = members, beliefs(shown[members], known[members], share), codes, place
        members, belief, codes, place = found[number]
        mass = belief.of_row(int(np.searchsorted(members, row)))
        values[index], chance[row] = _best(codes, np.bincount(place, mass).astype(np.float64), row, value_of)
        exact += belief.exact
    return Guesses(values, chance, exact)


def _as_shown(shown: Int64Array, targets: Int64Array, value_of: ValueOf | None) -> Int64Array:
    if value_of is None:
        return shown[targets].copy()
    return np.array([value_of(row, shown[[row]])[0] for row in targets.tolist()], np.int64)


def _best(codes: Int64Array, mass: Float64Array, row: int, value_of: ValueOf | None) -> tuple[int, float]:
    """Return the most probable value of a row, and its probability, from those of the codes."""
    if value_of is not None:
        codes, place = np.unique(value_of(row, codes), return_inverse=True)
        mass = np.bincount(place, mass).astype(np.float64)
    best = int(mass.argmax())
    return int(codes[best]), float(mass[best])


def guess_permuted_values(
    shown: Int64Array,
    known: Int64Array,
    group: Int64Array,
    selection: float,
    targets: Int64Array,
    value_of: ValueOf | None = None,
) -> Guesses:
    """Guess the true values of rows that the permutation mechanism moved.

    Parameters
    ----------
    shown, known, group, targets, value_of
        As for `guess_values`.
    selection : float
        Probability of a row to be selected.
    """
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(group.max(initial=OUTSIDE) + 2))
    listed: dict[int, tuple[Beliefs, Int64Array, Int64Array]] = {}
    large: dict[int, LargeGroup] = {}
    values, chance, exact = _as_shown(shown, targets, value_of), {}, 0
    for index, row in enumerate(targets.tolist()):
        number = int(group[row])
        if number == OUTSIDE:
            chance[row] = 1.0
            exact += 1
            continue
        members = order[bounds[number] : bounds[number + 1]]
        if len(members) <= MOST_LISTED:
            if number not in listed:
                codes, place = np.unique(shown[members], return_inverse=True)
                listed[number] = permuted_beliefs(shown[members], known[members], selection), codes, place
            belief, codes, place = listed[number]
            mass = np.bincount(place, belief.of_row(int(np.searchsorted(members, row)))).astype(np.float64)
            exact += 1
        else:
            if number not in large:
                large[number] = LargeGroup.of(shown[members], known[members], selection)
            codes, mass = large[number].codes, large[number].masses(int(shown[row]))
        if mass.max() > 0:
            values[index], chance[row] = _best(codes, mass / mass.sum(), row, value_of)
        else:
            chance[row] = 0.0
    return Guesses(values, chance, exact)


def commonest_values(
    shown: Int64Array, group: Int64Array, targets: Int64Array, empty: BoolArray
) -> Int64Array:
    """Guess the value of each attacked row from those that the release has, whichever row shows them.

    Parameters
    ----------
    shown, group, targets
        As for `guess_values`.
    empty : ndarray of bool, shape (rows,)
        Rows that show no value.

    Returns
    -------
    ndarray of int64, shape (attacks,)
        Value that the row's group shows most often. Of a row in no group it is that of all rows: nothing but
        the row itself discloses a value that it kept. If such a row shows none, so is the guess, because
        there is nothing to learn.
    """
    guesses = np.where(empty[targets], shown[targets], np.bincount(shown).argmax())
    for number in np.unique(group[targets]):
        rows = group == number
        if number != OUTSIDE:
            guesses[group[targets] == number] = np.bincount(shown[rows]).argmax()
    return guesses


def _shows_nothing(tables: AttackTables, fields: Sequence[str]) -> BoolArray:
    """Mask of the released rows whose values of all these fields are missing; shape (rows,)."""
    missing = [
        np.isnan(tables.numbers(name, "release"))
        if tables.is_number(name)
        else null_mask(tables.release.column(name))
        for name in fields
    ]
    found: BoolArray = np.logical_and.reduce(missing)
    return found


def _attack(tables: AttackTables, moved: MovedFields) -> AttackResult:
    fields = [name for name in moved.fields if name in tables.columns]
    true, shown = joint_codes(tables, fields, ["source", "release"])
    true = in_release_order(tables, true)
    movers = Movers.of(moved, true, shown)
    known_rows = _known_rows(tables, moved)
    known = np.where(movers.any_of(known_rows), movers.true, _UNKNOWN)
    rows = _attacked_rows(tables, moved, ~known_rows)
    targets = movers.of_row[rows]
    row_of = dict(zip(targets.tolist(), rows.tolist(), strict=True))
    holders = _holder_of_each(movers.shown)

    def value_of(target: int, codes: Int64Array) -> Int64Array:
        return movers.values_at(row_of[target], holders[codes], shown)

    chances = moved.chances.of(movers.first) if moved.chances else None
    guess = partial(
        partial(guess_values, rate=moved.rate, chances=chances)
        if moved.selection is None
        else partial(guess_permuted_values, selection=moved.selection),
        movers.shown,
        group=movers.group,
        targets=targets,
        value_of=None if moved.units is None else value_of,
    )
    guesses, alone = guess(known=known), guess(known=np.full_like(known, _UNKNOWN))
    nothing = _shows_nothing(tables, fields)
    base = commonest_values(shown, moved.group, rows, nothing)
    right = guesses.values == true[rows]
    believed = np.array([guesses.chance[row] >= _CERTAIN for row in targets.tolist()])
    certain = believed & ~nothing[rows]  # a row without a value may be suppressed
    tries, confidence = len(targets), tables.options.confidence
    return AttackResult(
        successes(int(right.sum()), tries, confidence),
        successes(int((base == true[rows]).sum()), tries, confidence),
        None,
        None,
        note=" ".join([_NO_CONTROL, *moved.assumptions]),
        details={
            "fields": list(moved.fields),
            "known_rows": int(known_rows.sum()),
            "rate": moved.rate,
            "mechanism": moved.mechanism,
            "selection_by_risk": moved.chances is not None,
            "rows_not_exchanged": int(np.count_nonzero(moved.group == OUTSIDE)),
            "without_known_rows": int((alone.values == true[rows]).sum()),
            "certain": int(certain.sum()),
            "certain_and_right": int((certain & right).sum()),
            "mean_belief": float(np.mean(list(guesses.chance.values()))),
            "exact": guesses.exact,
        },
    )


def _known_rows(tables: AttackTables, moved: MovedFields | None = None) -> BoolArray:
    """Mask of the rows of the release whose true values the intruder knows: whole units, if rows have some.

    Parameters
    ----------
    tables : AttackTables
    moved : MovedFields, optional
        Whose units count if they moved as one; default: those of the tables.
    """
    named, rows, units = tables.named_rows, tables.release.num_rows, _units(tables, moved)
    if named is not None:
        return of_whole_units(named if tables.origin is None else named[tables.origin], units)
    return known_share_of(rows, units, tables.options.known_share, 1, tables.stream, "known rows")


def _units(tables: AttackTables, moved: MovedFields | None) -> Int64Array | None:
    return moved.units if moved and moved.units is not None else tables.units("release")


def _attacked_rows(tables: AttackTables, moved: MovedFields, unknown: BoolArray) -> Int64Array:
    """Return random rows among the unknown ones that are attacked, one of each unit, ascending."""
    others = one_of_each(np.flatnonzero(unknown), _units(tables, moved), tables.stream, "swapped rows")
    return others[sample_rows(len(others), tables.options.attacks, tables.stream, "swapped rows")]


def _holder_of_each(shown: Int64Array) -> Int64Array:
    """Return a mover that shows it for each code; shape (codes,)."""
    found = np.zeros(int(shown.max(initial=-1)) + 1, np.int64)
    found[shown] = np.arange(len(shown))
    return found


def _run(tables: AttackTables) -> dict[str, AttackResult]:
    tables.need_aligned()
    if _known_rows(tables).all():
        raise NotApplicable("the intruder knows all rows")
    moved = [each for each in moved_fields(tables) if any(name in tables.columns for name in each.fields)]
    if not moved:
        raise NotApplicable("no swapped field takes part in attacks")
    found = {}
    for index, each in enumerate(moved):
        tables.progress(index / len(moved), "matching rows")
        found[each.name] = _attack(tables, each)
    return found


ATTACK = Attack(
    name="reidentification",
    title="Re-identification of swapped rows",
    meaning="The true values of some rows show with which rows they were exchanged, and so their values.",
    source="Zdeborova and Mezard 2006, J. Stat. Mech. P05003 (matchings); Rowveil",
    run=_run,
    services=("DSWAP", "CDSWAP", "DDSWAP", "MEWS", "MEDS"),
    cost="O(n) for each group that is attacked, and at most a million pairs of kinds of rows in a large one",
)
