"""Singling out: predicates that match one row of the release also match one row of the source.

An intruder writes predicates that match exactly one released row: on one field (rare and extreme values),
or on several fields of a random released row. The attack succeeds if the predicate matches exactly one row
of the source.

If a person may have several rows, a predicate must match rows of exactly one person, both in the release and
in the source. One predicate of each released unit counts, so that successes are independent of each other.

The baseline of several fields is the same search in the released values dealt at random, each field on its
own. A predicate that matches one of n rows has a weight near 1 / n, so that it often matches one source row,
too, without any link between the two rows: with the weight 1 / n in 37 % of the cases (Cohen and Nissim).

References
----------
Giomi et al. 2023, doi:10.56553/popets-2023-0055, section 4.1: the predicates, and their success on control
rows. Cohen and Nissim 2020, Towards formalizing the GDPR's notion of singling out, PNAS 117, 8344-8352,
doi:10.1073/pnas.1914598117: a predicate of weight w isolates a row of n with the probability n w (1 - w)^(n
- 1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from providers.arrays import BoolArray, Float64Array, IndexArray, Int32Array, Int64Array
from providers.attacks.attack import Attack
from providers.attacks.figures import AttackResult, Successes, risk_of, share_of, successes
from providers.attacks.tables import AttackTables, Rows
from providers.attacks.units import row_of_each
from providers.grouping.shuffle import shuffle_rows
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.sampling import uniforms
from providers.progress import Progress, no_progress, sub_progress
from providers.randomness.chacha20 import Key, Stream

ATTEMPTS = 20
"""Predicates that are tried for each one that is wanted."""

GIVE_UP = 1000
"""Attempts in a row without a new predicate, after which no more are made."""


_DEALS = 4
"""Most times that values are dealt for the baseline."""


class Clause(NamedTuple):
    """Condition on one field."""

    field: str
    operator: Literal["is", "at most", "at least"]
    value: float
    """Code of the value for "is", or the code of null. For other operators: a number minus the field's
    offset."""


Predicate = tuple[Clause, ...]
"""Conditions that a row must fulfil, sorted by field."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Codes and numbers of all fields of one table."""

    codes: dict[str, Int32Array]
    """Field -> codes; shape (rows,)."""
    numbers: dict[str, Float64Array]
    """Field of numbers -> numbers less the field's offset; shape (rows,)."""
    units: Int64Array | None = None
    """Person or household of each row, from 0 on; None: rows stand alone. Shape (rows,)."""
    one_person: bool = False
    """Whether the rows of a unit are those of one person."""

    @classmethod
    def of(cls, tables: AttackTables, rows: Rows) -> Self:
        """Return the cells of the source, the release or the control rows."""
        numbers = {name: tables.numbers(name, rows) for name in tables.columns if tables.is_number(name)}
        codes = {name: tables.codes(name, rows) for name in tables.columns}
        return cls(codes, numbers, tables.units(rows), tables.one_person)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.codes.values()), ()))

    @property
    def person_of(self) -> Int64Array | None:
        """Person of each row, from 0 on; None: each row is another one. Shape (rows,)."""
        return self.units if self.one_person else None

    @property
    def persons(self) -> int:
        """Number of persons."""
        return self.rows if self.person_of is None else int(self.person_of.max(initial=-1)) + 1

    @property
    def noun(self) -> str:
        """Word for a person in messages."""
        return "row" if self.person_of is None else "person"

    def places_of_persons(self, most: int, stream: Stream) -> IndexArray:
        """Return the rows of at most this many random persons."""
        if self.person_of is None:
            return shuffle_rows(self.rows, stream.key("control rows of predicates")).order[:most]
        chosen = shuffle_rows(self.persons, stream.key("control persons of predicates")).order[:most]
        return np.flatnonzero(np.isin(self.person_of, chosen))

    def take(self, rows: IndexArray) -> Self:
        """Return these rows."""
        codes = {name: codes[rows] for name, codes in self.codes.items()}
        numbers = {name: numbers[rows] for name, numbers in self.numbers.items()}
        units = None if self.units is None else np.unique(self.units[rows], return_inverse=True)[1]
        return type(self)(codes, numbers, units, self.one_person)

    def dealt(self, stream: Stream, purpose: str) -> Self:
        """Return each field's values in a random order of its own, without any relation between fields.

        A person of several rows gets those of another one, row by row from the first again if these are
        fewer.
        """
        codes, numbers = dict(self.codes), dict(self.numbers)
        for name in codes:
            order = self._dealt_order(stream.key(f"{purpose}/{name}"))
            codes[name] = codes[name][order]
            if name in numbers:
                numbers[name] = numbers[name][order]
        return type(self)(codes, numbers, self.units, self.one_person)

    def _dealt_order(self, key: Key) -> IndexArray:
        if self.person_of is None:
            return shuffle_rows(self.rows, key).order
        rows = np.argsort(self.person_of, kind="stable")
        sizes = np.bincount(self.person_of)
        starts = np.append(0, np.cumsum(sizes))
        person = self.person_of[rows]
        place = np.arange(self.rows) - starts[person]
        giver = shuffle_rows(len(sizes), key).order[person]
        found = np.empty(self.rows, np.int64)
        found[rows] = rows[starts[giver] + place % sizes[giver]]
        return found

    def fulfilling(self, clause: Clause) -> BoolArray:
        """Mask of the rows that fulfil a clause; shape (rows,)."""
        name, operator, value = clause
        if operator == "is":
            return np.asarray(self.codes[name] == int(value))
        numbers = self.numbers[name]
        return np.asarray(numbers <= value if operator == "at most" else numbers >= value)

    def count(self, predicate: Predicate) -> int:
        """Number of persons of whom a row fulfils all clauses."""
        return self._persons(self._matching(predicate))

    def unit_of(self, predicate: Predicate) -> int:
        """Return the unit, or the row without units, of the first row that fulfils all clauses."""
        row = int(self._matching(predicate).argmax())
        return row if self.units is None else int(self.units[row])

    def _matching(self, predicate: Predicate) -> BoolArray:
        mask = self.fulfilling(predicate[0])
        for clause in predicate[1:]:
            mask = mask & self.fulfilling(clause)
        return mask

    def _persons(self, mask: BoolArray) -> int:
        return int(np.count_nonzero(mask)) if self.person_of is None else len(np.unique(self.person_of[mask]))

    def persons_with(self, codes: Int32Array) -> Int64Array:
        """Return the number of persons who have each code."""
        if self.person_of is None:
            return np.bincount(codes)
        count = max(1, self.persons)
        return np.bincount(np.unique(codes * np.int64(count) + self.person_of) // count)


def rare_values(cells: Cells) -> list[Predicate]:
    """Predicates on one field that match exactly one person: unique values, null, and unique extremes."""
    found: list[Predicate] = []
    for name, codes in cells.codes.items():
        counts = cells.persons_with(codes)
        found += [(Clause(name, "is", float(code)),) for code in np.flatnonzero(counts == 1)]
        numbers = cells.numbers.get(name)
        if numbers is None or np.isnan(numbers).all():
            continue
        least = Clause(name, "at most", float(np.nanmin(numbers)))
        greatest = Clause(name, "at least", float(np.nanmax(numbers)))
        found += [(clause,) for clause in (least, greatest) if cells.count((clause,)) == 1]
    return found


def one_of_each_unit(cells: Cells, predicates: Sequence[Predicate], stream: Stream) -> list[Predicate]:
    """Return one random predicate for each matched unit; all predicates if each row is a unit."""
    if cells.units is None:
        return list(predicates)
    units = np.array([cells.unit_of(predicate) for predicate in predicates], np.int64)
    return [predicates[place] for place in np.sort(row_of_each(units, stream, "predicates")).tolist()]


def clause_of(cells: Cells, medians: dict[str, float], name: str, row: int) -> Clause:
    """Clause that a row fulfils: for numbers a bound that is away from the median, otherwise the value."""
    numbers = cells.numbers.get(name)
    if numbers is None or np.isnan(numbers[row]):
        return Clause(name, "is", float(cells.codes[name][row]))
    value = float(numbers[row])
    return Clause(name, "at least" if value > medians[name] else "at most", value)


def _medians(cells: Cells) -> dict[str, float]:
    return {
        name: float(np.nanmedian(numbers)) if not np.isnan(numbers).all() else 0.0
        for name, numbers in cells.numbers.items()
    }


class _Draws:
    """Addressed random rows and sets of fields, one for each attempt."""

    def __init__(self, tables: AttackTables, attempts: int, width: int, purpose: str, rows: int) -> None:
        """``rows``: number of rows among which is chosen."""
        self._fields = list(tables.columns)
        self._width = width
        numbers = uniforms(attempts * 2 * width, tables.stream, purpose).reshape(attempts, 2, width)
        self._numbers = numbers[:, 0]
        self._rows = (numbers[:, 1] * rows).astype(np.int64)

    def fields(self, attempt: int) -> list[str]:
        """Return different fields, sorted: partial Fisher-Yates."""
        order = list(self._fields)
        for place, number in enumerate(self._numbers[attempt].tolist()):
            other = place + int(number * (len(order) - place))
            order[place], order[other] = order[other], order[place]
        return sorted(order[: self._width])

    def rows(self, attempt: int) -> list[int]:
        """Return one row for each of the fields."""
        rows: list[int] = self._rows[attempt].tolist()
        return rows


def combinations(
    tables: AttackTables,
    cells: Cells,
    width: int,
    purpose: str = "predicates",
    report: Progress = no_progress,
) -> list[Predicate]:
    """Different predicates on `width` fields of a random row, each of which matches exactly one person.

    At most one row of a unit has a predicate. The wanted number of predicates is the number of attacks. At
    most `ATTEMPTS` attempts are made for each predicate, and at most `GIVE_UP` in a row without a new
    predicate. ``purpose`` addresses the random draws.
    """
    wanted = tables.attacks
    medians = _medians(cells)
    found: dict[Predicate, None] = {}
    units: set[int | None] = set()
    draws = _Draws(tables, ATTEMPTS * wanted, width, purpose, cells.rows)
    clauses = cache(partial(clause_of, cells, medians))
    last = 0
    for attempt in range(ATTEMPTS * wanted):
        if attempt - last > GIVE_UP:
            break
        if attempt % 64 == 0:
            report(len(found) / wanted, "writing predicates")
        row = draws.rows(attempt)[0]
        unit = None if cells.units is None else int(cells.units[row])
        if unit in units:
            continue
        predicate = tuple(clauses(name, row) for name in draws.fields(attempt))
        if predicate not in found and cells.count(predicate) == 1:
            found[predicate], last = None, attempt
            units |= {unit} - {None}
            if len(found) == wanted:
                break
    return list(found)


def guessed_values(tables: AttackTables, cells: Cells, wanted: int) -> list[Predicate]:
    """Predicates on one field with a random released value and operator, whose rows are not counted."""
    draws = _Draws(tables, wanted, 1, "guessed values", cells.rows)
    operators = uniforms(wanted, tables.stream, "guessed operators")
    found: list[Predicate] = []
    for attempt in range(wanted):
        name, row = draws.fields(attempt)[0], draws.rows(attempt)[0]
        numbers = cells.numbers.get(name)
        choice = int(operators[attempt] * 3)
        if numbers is None or np.isnan(numbers[row]) or choice == 0:
            found.append((Clause(name, "is", float(cells.codes[name][row])),))
        else:
            value = float(numbers[row])
            found.append((Clause(name, "at most" if choice == 1 else "at least", value),))
    return found


def guessed_combinations(tables: AttackTables, cells: Cells, width: int, wanted: int) -> list[Predicate]:
    """Predicates that the same search finds in values dealt at random.

    They are dealt again, up to `_DEALS` times in all, until `wanted` predicates or more are found.
    """
    found: list[Predicate] = []
    for deal in range(_DEALS):
        dealt = cells.dealt(tables.stream, f"dealt {deal}")
        report = sub_progress(tables.progress, 0.3 + 0.5 * deal / _DEALS, 0.3 + 0.5 * (deal + 1) / _DEALS)
        found += combinations(tables, dealt, width, f"guessed predicates {deal}", report)
        if len(found) >= wanted:
            break
    return found


def isolated_in(counts: npt.NDArray[np.int64], rows: int, size: int) -> float:
    """Estimate the share of predicates that match exactly one of `size` rows, from fewer rows.

    Parameters
    ----------
    counts : ndarray of int64, shape (predicates,)
        Number of control rows that each predicate matches.
    rows : int
        Number of control rows.
    size : int
        Number of rows of the source, at least `rows`.

    Notes
    -----
    The weights of the predicates are gamma distributed, so that the counts are negative binomial with a
    mean m and a shape a. For each shape, the mean of the counts is the maximum likelihood estimate of m.
    The shape is the best one of a grid. In `size` rows the mean is M = m size / rows, and P(1) = M (1 + M /
    a)^-(a + 1).
    """
    from scipy.special import gammaln  # slow to import and rarely needed

    mean = float(counts.mean())
    if mean == 0.0:
        return 0.0
    values, times = np.unique(counts, return_counts=True)
    shapes = np.logspace(-3, 3, 121)[:, None]
    likelihood = (
        gammaln(values + shapes) - gammaln(shapes)
        + values * np.log(mean / (mean + shapes)) + shapes * np.log(shapes / (mean + shapes))
    ) @ times  # fmt: skip
    shape = float(shapes[int(np.argmax(likelihood)), 0])
    larger = mean * size / rows
    return float(larger * (1 + larger / shape) ** -(shape + 1))


def _control(
    tables: AttackTables, predicates: Sequence[Predicate]
) -> tuple[Successes | None, dict[str, int]]:
    """Success of the predicates on as many control rows as the source has, and the counted matches."""
    if tables.control is None or not tables.control.num_rows:
        return None, {}
    cells, size = Cells.of(tables, "control"), Cells.of(tables, "source").persons
    if cells.persons > size:
        cells = cells.take(cells.places_of_persons(size, tables.stream))
    counts = np.array([cells.count(predicate) for predicate in predicates], np.int64)
    isolated = int(np.count_nonzero(counts == 1))
    tries, confidence = len(predicates), tables.options.confidence
    details = {"control_rows": cells.rows, "isolated_in_control": isolated}
    if cells.persons == size:
        return successes(isolated, tries, confidence), details
    share = isolated_in(counts, cells.persons, size)
    return share_of(share, tries, tries * cells.persons / size, confidence), details


def _result(
    tables: AttackTables, predicates: Sequence[Predicate], guesses: Sequence[Predicate], note: str | None
) -> AttackResult:
    source, confidence = Cells.of(tables, "source"), tables.options.confidence
    tables.progress(0.8, "counting rows")
    isolated, guessed = (
        sum(source.count(predicate) == 1 for predicate in group) for group in (predicates, guesses)
    )
    attack = successes(isolated, len(predicates), confidence)
    baseline = successes(guessed, len(guesses) or len(predicates), confidence)
    control, details = _control(tables, predicates)
    return AttackResult(attack, baseline, control, risk_of(attack, control), note, dict(details))


def _need_cells(tables: AttackTables, fields: int) -> Cells:
    tables.need_rows(2)
    if len(tables.columns) < fields:
        raise NotApplicable(f"it needs {fields} field{'s' * (fields > 1)} or more that take part")
    return Cells.of(tables, "release")


def _run_univariate(tables: AttackTables) -> AttackResult:
    cells = _need_cells(tables, 1)
    predicates = one_of_each_unit(cells, rare_values(cells), tables.stream)
    if not predicates:
        raise NotApplicable(
            f"no value of a field occurs in exactly one released {cells.noun}, so that none singles one out"
        )
    wanted = tables.attacks
    if len(predicates) > wanted:
        order = shuffle_rows(len(predicates), tables.stream.key("rare values")).order[:wanted]
        predicates = [predicates[place] for place in np.sort(order).tolist()]
    guesses = guessed_values(tables, cells, len(predicates))
    return _result(tables, predicates, guesses, _ONE_FIELD)


_ONE_FIELD = (
    "A swap keeps the values of each field, so that a value that only one person has is also in the release. "
    "It shows that somebody has this value, but no other field of that person."
)


def _run_multivariate(tables: AttackTables) -> AttackResult:
    cells = _need_cells(tables, 2)
    width = min(tables.options.predicate_fields, len(tables.columns))
    predicates = combinations(tables, cells, width, report=sub_progress(tables.progress, 0.0, 0.3))
    if not predicates:
        raise NotApplicable(
            f"no predicate on {width} fields that was tried matches exactly one released {cells.noun}"
        )
    return _result(tables, predicates, guessed_combinations(tables, cells, width, len(predicates)), None)


_SOURCE = "Giomi et al. 2023, doi:10.56553/popets-2023-0055, section 4.1"

UNIVARIATE = Attack(
    name="singling_out_univariate",
    title="Singling out by one field",
    meaning="A condition on one field that matches one released row matches one person of the source.",
    source=_SOURCE,
    run=_run_univariate,
    cost="O(a n)",
)

MULTIVARIATE = Attack(
    name="singling_out_multivariate",
    title="Singling out by several fields",
    meaning="Conditions on several fields that match one released row match one person of the source.",
    source=_SOURCE,
    run=_run_multivariate,
    cost="O(a n)",
)
