"""Recover values of single rows from several releases of one source.

An intruder who holds several releases made with different seeds averages them, takes the most frequent
value, or excludes the values that a row has shown. `compose` runs these attacks on releases that exist or
that `hypothetical` makes before the first is published, and reports the strongest one for each secret field.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from providers.arrays import Float64Array, Int64Array
from providers.attacks.composition.exclusion import GroupValues, exclusion
from providers.attacks.composition.guesses import (
    Intersection,
    least_squares,
    majority,
    mean_of,
    within,
)
from providers.attacks.composition.intruder_groups import group_members, groups_by_field, rate_of
from providers.attacks.figures import AttackResult, Successes, risk_of
from providers.attacks.units import row_of_each
from providers.measures.shared.columns import Column, column_of, kind_of, not_measurable
from providers.measures.shared.repeats import share_interval
from providers.measures.shared.sampling import sample_rows
from providers.params import Params
from providers.randomness.chacha20 import Stream
from providers.services.pabidot import PabidotParams
from providers.tables.joining import arrow_take
from providers.tables.units import unit_codes

TOLERANCE = 0.05
"""A number is recovered if it is off by at most this many standard deviations of its field in the source."""

KNOWN_PEOPLE = 0.1
"""Share of the rows that the intruder knows in the least-squares attack on PABIDOT."""

_STEPS = (1, 2, 3, 5, 10, 20, 50, 100)

_NOTE = (
    "The strongest of the attacks on several releases with different seeds. Control rows do not apply, "
    "because the attacks restore the values of released rows; `details.one_release` is the same attack on a "
    "single release."
)


@dataclass(frozen=True, slots=True)
class ReleasedTable:
    """One of several releases of a source."""

    table: pa.Table
    aligned: bool = True
    """Whether row i of the release is row i of the source."""


@dataclass(slots=True)
class _Secret:
    """Values that the attacked rows show of one field."""

    name: str
    taken: list[pa.ChunkedArray] = field(default_factory=list)
    first: pa.ChunkedArray | None = None
    """The field of the whole first release."""
    intersections: Intersection | None = None
    combination: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    truth: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    by_intersection: dict[int, Float64Array] = field(default_factory=dict)


def compose(
    source: pa.Table,
    releases: Iterable[ReleasedTable],
    secret: Sequence[str],
    stream: Stream,
    *,
    known: Sequence[str] = (),
    params: Params | None = None,
    attacks: int = 1000,
    confidence: float = 0.95,
    unit: str | None = None,
) -> tuple[dict[str, AttackResult], dict[str, str]]:
    """Attack the secret fields of rows of the source by all releases together.

    Parameters
    ----------
    source : pa.Table
    releases : iterable of ReleasedTable
        Read once, one after the other, so that one release at a time is in memory.
    secret : sequence of str
        Fields whose values are attacked.
    stream : Stream
        Draws the rows that are attacked.
    known : sequence of str
        Fields that an intruder knows of a person, for the intersection attack; without them it is left out.
    params : Params, optional
        Checked parameters of the service that made the releases, for the attacks that use its rule.
    attacks : int
        Number of rows that are attacked; all rows if there are fewer.
    confidence : float
        Confidence level of the intervals.
    unit : str, optional
        Field of persons or households of several rows, of which one row each is attacked.

    Returns
    -------
    tuple of dict and dict
        Secret field -> result; field -> reason for which it was left out.

    Notes
    -----
    O(releases x rows) time; the memory of one release and of the attacked rows of all of them.
    """
    left_out = {name: reason for name in secret if (reason := _unusable(source, name))}
    names = [name for name in secret if name not in left_out]
    rows = _attacked_rows(source, unit, attacks, stream)
    if not len(rows):
        return {}, left_out | dict.fromkeys(names, "the source has no rows")
    people = _people(source.num_rows, rows, params, stream)
    secrets = {name: _Secret(name) for name in names}
    numeric = [
        entry.name
        for entry in source.schema
        if kind_of(entry.type) == "number" and isinstance(params, PabidotParams)
    ]
    everyone = np.union1d(rows, people)
    vectors: dict[str, list[Float64Array]] = {name: [] for name in numeric}
    groups: dict[str, Int64Array] = {}
    count, aligned = 0, True
    for count, release in enumerate(releases, 1):
        table = release.table
        aligned = aligned and release.aligned and table.num_rows == source.num_rows
        if count == 1 and params is not None and aligned:
            groups = groups_by_field(table, params)
        for name in list(secrets):
            reason = _unusable(source, name, table)
            if reason:
                left_out[name] = reason
                del secrets[name]
                continue
            _add(secrets[name], source, table, rows, known, aligned, count)
        if aligned:
            for name in numeric:
                column = column_of(
                    name, source.column(name).slice(0, 0), table.column(name), categorical=False
                )
                vectors[name].append(column.numbers("destination")[everyone] + column.offset)
    results: dict[str, AttackResult] = {}
    attack = _Attack(source, rows, everyone, people, groups, params, vectors, confidence, count, aligned)
    for name, one in secrets.items():
        if (result := attack.result(one)) is not None:
            results[name] = result
        else:
            left_out[name] = (
                "row i of a release is not row i of the source, because rows were shuffled or dropped, and "
                "no known fields are given by which rows could be found"
            )
    return results, left_out


def _attacked_rows(source: pa.Table, unit: str | None, attacks: int, stream: Stream) -> Int64Array:
    """Return random rows, ascending: one of each unit, so that successes are independent."""
    units = unit_codes(source, unit)
    if units is None:
        return sample_rows(source.num_rows, attacks, stream, "composition")
    one_each = row_of_each(units, stream, "composition")
    return np.sort(one_each[sample_rows(len(one_each), attacks, stream, "composition")])


def _unusable(source: pa.Table, name: str, release: pa.Table | None = None) -> str:
    """Reason for which a field cannot be attacked; empty if it can."""
    for table, which in ((source, "source"), (release, "release")):
        if table is not None and name not in table.column_names:
            return f"the {which} has no such field"
    other = (source if release is None else release).schema.field(name)
    return not_measurable(source.schema.field(name), other) or ""


def _people(count: int, attacked: Int64Array, params: Params | None, stream: Stream) -> Int64Array:
    """Rows that the intruder knows, for the attack on PABIDOT; attacked themselves only if all rows are."""
    if not isinstance(params, PabidotParams):
        return np.zeros(0, np.int64)
    drawn = sample_rows(count, max(1, round(KNOWN_PEOPLE * count)), stream, "composition/people")
    return drawn if len(attacked) == count else np.setdiff1d(drawn, attacked)


def _add(
    secret: _Secret,
    source: pa.Table,
    table: pa.Table,
    rows: Int64Array,
    known: Sequence[str],
    aligned: bool,
    number: int,
) -> None:
    """Add the values of a secret field that one release shows."""
    released = table.column(secret.name)
    if secret.first is None:
        secret.first = released
    if aligned:
        secret.taken.append(arrow_take(released, pa.array(rows)))
    usable = [
        name
        for name in known
        if name != secret.name
        and name in source.column_names
        and name in table.column_names
        and not_measurable(source.schema.field(name), table.schema.field(name)) is None
    ]
    if not usable:
        return
    column = column_of(secret.name, source.column(secret.name), released, categorical=False)
    first_row = np.full(column.levels, -1, np.int64)  # names a value independently of the release
    codes = column.codes("source")
    first_row[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    asked, shown = _combinations(source, table, usable, rows)
    if secret.intersections is None:
        secret.intersections = Intersection(source.num_rows)
        secret.combination, secret.truth = asked, first_row[codes[rows]]
    secret.intersections.add(shown, first_row[column.codes("destination")])
    if number in _STEPS:
        secret.by_intersection[number] = secret.intersections.guess(secret.combination, secret.truth)


def _combinations(
    source: pa.Table, table: pa.Table, known: Sequence[str], rows: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Number the combinations of known values of the attacked rows, and find them in the rows of a release.

    The numbers depend on the attacked rows alone; -1 is any other combination.
    """
    asked = np.zeros(len(rows), np.int64)
    shown = np.zeros(table.num_rows, np.int64)
    for name in known:
        column = column_of(name, source.column(name), table.column(name), categorical=False)
        one, two = column.codes("source")[rows].astype(np.int64), column.codes("destination").astype(np.int64)
        _, both = np.unique(
            np.concatenate([asked * column.levels + one, shown * column.levels + two]), return_inverse=True
        )
        asked, shown = both[: len(rows)], both[len(rows) :]
    _, first, numbers = np.unique(asked, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))  # in the order of their first attacked row, whatever the codes are
    lookup = np.full(max(asked.max(initial=-1), shown.max(initial=-1)) + 1, -1, np.int64)
    lookup[asked] = rank[numbers]
    return lookup[asked], lookup[shown]


@dataclass(frozen=True, slots=True)
class _Attack:
    """Attacks on one field after all releases have been read."""

    source: pa.Table
    rows: Int64Array
    everyone: Int64Array
    people: Int64Array
    groups: dict[str, Int64Array]
    params: Params | None
    vectors: dict[str, list[Float64Array]]
    confidence: float
    count: int
    aligned: bool

    def result(self, secret: _Secret) -> AttackResult | None:
        """Return the strongest attack with all others in its details; None if there is none."""
        steps = [step for step in _STEPS if step < self.count] + [self.count]
        curves: dict[str, dict[int, Successes]] = {}
        further: dict[str, dict[str, Any]] = {}
        baselines: dict[str, Successes] = {}
        if self.aligned and secret.taken:
            column = column_of(
                secret.name,
                self.source.column(secret.name),
                pa.chunked_array(
                    [chunk for taken in secret.taken for chunk in taken.chunks] + list(_chunks(secret.first))
                ),
                categorical=False,
            )
            self._by_row(secret.name, column, steps, curves, further, baselines)
        if secret.intersections is not None:
            found = secret.by_intersection
            found.setdefault(self.count, secret.intersections.guess(secret.combination, secret.truth))
            curves["intersection"] = {step: self._successes(found[step]) for step in steps}
            baselines["intersection"] = self._mode(secret)
        if not curves:
            return None
        strength = {name: _over(curve[self.count], baselines[name]) for name, curve in curves.items()}
        best = max(strength, key=lambda name: strength[name])  # the first one of equals
        details: dict[str, Any] = {
            "by": best,
            "releases": self.count,
            "one_release": asdict(curves[best][1]),
            "curve": {str(step): found.rate for step, found in curves[best].items()},
            "attacks": {
                name: {
                    **asdict(curve[self.count]),
                    "baseline": baselines[name].rate,
                    "curve": {str(step): found.rate for step, found in curve.items()},
                    **further.get(name, {}),
                }
                for name, curve in curves.items()
            },
        }
        gain = risk_of(curves[best][self.count], curves[best][1])
        if gain is not None:
            details["gain_over_one_release"] = asdict(gain)
        return AttackResult(curves[best][self.count], baselines[best], None, None, _NOTE, details)

    def _by_row(
        self,
        name: str,
        column: Column,
        steps: Sequence[int],
        curves: dict[str, dict[int, Successes]],
        further: dict[str, dict[str, Any]],
        baselines: dict[str, Successes],
    ) -> None:
        """Attacks that compare the values of one row in each release."""
        size, taken = len(self.rows), self.count * len(self.rows)
        truth = column.codes("source")[self.rows]
        destination = column.codes("destination")
        shown, whole = destination[:taken].reshape(self.count, size), destination[taken:]
        exact = self._successes(truth == np.bincount(whole).argmax())
        curves["majority"] = {step: self._successes(majority(shown[:step], truth)) for step in steps}
        baselines["majority"] = exact
        if name in self.groups and self.params is not None:
            members, starts = group_members(self.groups[name])
            group_of = self.groups[name][self.rows]
            rate = rate_of(self.params, self.groups, name, self.source)
            values = GroupValues(group_of, members, starts, whole, rate)
            guessed = exclusion(shown, truth, values, steps)
            curves["exclusion"] = {step: self._successes(right) for step, right in guessed.items()}
            baselines["exclusion"] = exact
        if column.kind == "category":
            return
        own = column.numbers("source")
        with np.errstate(over="ignore", invalid="ignore"):
            tolerance = TOLERANCE * float(np.nanstd(own)) if np.isfinite(own).any() else 0.0
        if not np.isfinite(tolerance):  # float64 cannot hold the squares of the numbers
            return
        numbers = column.numbers("destination")
        near = self._successes(within(_commonest(numbers[taken:], tolerance), own[self.rows], tolerance))
        guesses = {step: mean_of(numbers[:taken].reshape(self.count, size)[:step]) for step in steps}
        self._record("mean", guesses, own[self.rows], tolerance, near, curves, further, baselines)
        if name in self.vectors and len(self.people):
            guesses = {step: self._calibrated(own, step) for step in steps}
            self._record(
                "least_squares", guesses, own[self.rows], tolerance, near, curves, further, baselines
            )

    def _record(
        self,
        attack: str,
        guesses: dict[int, Float64Array],
        own: Float64Array,
        tolerance: float,
        baseline: Successes,
        curves: dict[str, dict[int, Successes]],
        further: dict[str, dict[str, Any]],
        baselines: dict[str, Successes],
    ) -> None:
        curves[attack] = {
            step: self._successes(within(guess, own, tolerance)) for step, guess in guesses.items()
        }
        baselines[attack] = baseline
        further[attack] = {
            "tolerance": tolerance,
            "r_squared": {str(step): _r_squared(guess, own) for step, guess in guesses.items()},
        }

    def _calibrated(self, own: Float64Array, step: int) -> Float64Array:
        """Estimate the attacked rows by the linear map that known people reveal."""
        means = np.column_stack([mean_of(np.stack(shown[:step])) for shown in self.vectors.values()])
        knows = means[np.searchsorted(self.everyone, self.people)]
        usable = np.isfinite(knows).all(axis=1) & np.isfinite(own[self.people])
        return least_squares(
            knows, usable, own[self.people], means[np.searchsorted(self.everyone, self.rows)]
        )

    def _successes(self, right: Any) -> Successes:
        """Expected successes of guesses that are right with these probabilities."""
        expected, tries = float(np.sum(right)), len(self.rows)
        interval = share_interval(min(1.0, expected / tries), tries, self.confidence)
        return Successes(round(expected), tries, expected / tries, interval["low"], interval["high"])

    def _mode(self, secret: _Secret) -> Successes:
        """Successes of guessing the most frequent value of the first release."""
        column = column_of(
            secret.name, self.source.column(secret.name), _whole(secret.first), categorical=False
        )
        mode = np.bincount(column.codes("destination")).argmax()
        return self._successes(column.codes("source")[self.rows] == mode)


def _over(attack: Successes, baseline: Successes) -> float:
    """Success beyond the baseline, as a share of what the baseline leaves."""
    return (attack.rate - baseline.rate) / (1 - baseline.rate) if baseline.rate < 1 else 0.0


def _whole(column: pa.ChunkedArray | None) -> pa.ChunkedArray:
    assert column is not None  # noqa: S101 - set with the first release
    return column


def _chunks(column: pa.ChunkedArray | None) -> list[pa.Array]:
    return list(_whole(column).chunks)


def _commonest(numbers: Float64Array, tolerance: float) -> Float64Array:
    """Return the released number with most released numbers within the tolerance; NaN if there is none."""
    ordered = np.sort(numbers[np.isfinite(numbers)])
    if not len(ordered):
        return np.array(np.nan)
    counts = np.searchsorted(ordered, ordered + tolerance, "right") - np.searchsorted(
        ordered, ordered - tolerance
    )
    return np.array(ordered[counts.argmax()])


def _r_squared(guess: Float64Array, own: Float64Array) -> float | None:
    """1 - squared error / variance over the rows where both numbers exist; None without variance."""
    both = np.isfinite(guess) & np.isfinite(own)
    spread = float(np.var(own[both])) if both.any() else 0.0
    return 1 - float(np.mean((guess[both] - own[both]) ** 2)) / spread if spread else None
