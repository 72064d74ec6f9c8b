"""Inference: the release discloses a secret field of a person whose known fields are known.

Two intruders guess the secret of each attacked row: one takes the value of the nearest released row, the
other trains a gradient-boosted model on the release. Guesses of numbers are right within a relative
tolerance. If the release left some of the known fields nearly unchanged, both intruders also attack with only
these fields, because changed fields are noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from providers.arrays import BoolArray, Float64Array, Int64Array
from providers.attacks.attack import Attack
from providers.attacks.figures import AttackResult, successes
from providers.attacks.intruders import Run, details_of, strongest
from providers.attacks.nearest import Ties, nearest_rows
from providers.attacks.tables import AttackTables, Outcomes, Rows
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.sampling import random_state, sample_rows
from providers.progress import sub_progress

TRAINING_ROWS = 30_000
"""Most released rows on which a model is trained."""

LEAST_TRAINING_ROWS = 40
"""Fewest released rows on which a model is trained: a split of a tree leaves 20 rows on each side."""

MOST_CLASSES = 30
"""Most different values that a model learns as classes; further categories are never guessed."""

_TREES = 300
"""Most trees of a model, over all classes."""

_LEVELS = 254
"""Number of categories of a known field that a model distinguishes at most: the most frequent; others are
missing."""


UNCHANGED = "_unchanged"
"""Suffix of the names of intruders who use the unchanged known fields alone."""


@dataclass(frozen=True, slots=True)
class Search:
    """Nearest released rows by some known fields."""

    known: Sequence[str]
    nearest: Sequence[Int64Array]
    """Released rows for the attacked rows of the source, and for those of the control; shape (attacks, 1)."""
    is_part: bool
    """Whether these are only the unchanged known fields, and the others are ignored."""


class Secret:
    """Secret field: its values in each table, and which guesses are right."""

    def __init__(self, tables: AttackTables, name: str) -> None:
        self.name, self.is_number = name, tables.is_number(name)
        self.is_time = tables.columns[name].kind == "time"
        self._tables = tables
        self.codes = tables.codes(name, "release")
        self.numbers = self._numbers("release") if self.is_number else np.empty(0)
        self._reach = 0.0
        if self.is_time and not np.isnan(self.numbers).all():
            low, high = np.nanpercentile(self.numbers, [25, 75])
            self._reach = tables.options.tolerance * float(high - low)

    def _numbers(self, rows: Rows) -> Float64Array:
        """Return numbers with the field's offset: a relative error needs the true zero."""
        return self._tables.numbers(self.name, rows) + float(self._tables.columns[self.name].offset)

    def truth(self, rows: Rows, targets: Int64Array) -> npt.NDArray[Any]:
        """Return the values of attacked rows: numbers, or codes of a category."""
        values = self._numbers(rows) if self.is_number else self._tables.codes(self.name, rows)
        return values[targets]

    def released(self, rows: Int64Array) -> npt.NDArray[Any]:
        """Return the values of released rows in the same form."""
        return self.numbers[rows] if self.is_number else self.codes[rows]

    def is_right(self, guesses: npt.NDArray[Any], truth: npt.NDArray[Any]) -> BoolArray:
        """Mask of the right guesses: equal categories, numbers within the tolerance, null for null."""
        if not self.is_number:
            return np.asarray(guesses == truth)
        reach = self._reach if self.is_time else self._tables.options.tolerance * np.abs(truth)
        both_missing = np.isnan(guesses) & np.isnan(truth)
        return np.asarray((np.abs(guesses - truth) <= reach) | both_missing)

    def best_guess(self) -> npt.NDArray[Any]:
        """Return the released value that is right for most released rows; shape (1,).

        Numbers are right for truths t with |g - t| <= tolerance |t|, that is from g / (1 + tolerance) to
        g / (1 - tolerance) if g is positive.
        """
        if not self.is_number:
            return np.array([np.argmax(np.bincount(self.codes))], self.codes.dtype)
        known = np.sort(self.numbers[~np.isnan(self.numbers)])
        values = np.unique(known)
        if self.is_time:
            ends = values - self._reach, values + self._reach
        else:
            tolerance = self._tables.options.tolerance
            ends = values / (1 + tolerance), values / (1 - tolerance)
        low, high = np.minimum(*ends), np.maximum(*ends)
        right = np.searchsorted(known, high, "right") - np.searchsorted(known, low, "left")
        if right.max(initial=0) < len(self.numbers) - len(known):  # a missing number is right more often
            return np.array([np.nan])
        return values[[int(np.argmax(right))]]

    def shows_nothing(self) -> str | None:
        """Return the reason if the best guess is right for every row; None if it is wrong for one."""
        guess = self.best_guess()
        for rows, table in (("source", self._tables.source), ("control", self._tables.control)):
            targets = np.arange(0 if table is None else table.num_rows)
            truth = self.truth(cast(Rows, rows), targets)
            if not self.is_right(np.repeat(guess, len(truth)), truth).all():
                return None
        if len(np.unique(self._tables.columns[self.name].codes("source"))) <= 1:
            return "every row has the same value, so that there is nothing to learn"
        tolerance = f"the tolerance of {100 * self._tables.options.tolerance:g} %"
        remedy = "" if self.is_time else f", or name '{self.name}' in 'categorical_fields'"
        return (
            f"{tolerance} makes every guess right, so that an attack shows nothing: set a smaller "
            f"'tolerance'{remedy}"
        )


class Features:
    """Known fields as the model's features: numbers, and at most `_LEVELS` codes of each category."""

    def __init__(self, tables: AttackTables, known: Sequence[str]) -> None:
        self._tables, self._known = tables, known
        self.categorical = [not tables.is_number(name) for name in known]
        self._codes: dict[str, npt.NDArray[np.float64]] = {}
        for name, categorical in zip(known, self.categorical, strict=True):
            if categorical:
                counts = np.bincount(tables.codes(name, "release"), minlength=tables.columns[name].levels)
                frequent = np.argsort(-counts, kind="stable")[:_LEVELS]
                self._codes[name] = np.full(len(counts), np.nan)
                self._codes[name][frequent[counts[frequent] > 0]] = np.arange(
                    np.count_nonzero(counts[frequent])
                )

    def rows(self, rows: Rows, chosen: Int64Array) -> Float64Array:
        """Return the features of some rows of a table; shape (rows, known fields)."""
        features = np.empty((len(chosen), len(self._known)))
        for index, name in enumerate(self._known):
            if name in self._codes:
                features[:, index] = self._codes[name][self._tables.codes(name, rows)[chosen]]
            else:
                features[:, index] = self._tables.numbers(name, rows)[chosen]
        return features


def learnt_guesses(
    tables: AttackTables, secret: Secret, features: Features, wanted: Sequence[Float64Array]
) -> list[npt.NDArray[Any]]:
    """Guess the secret of rows with these features by a model that is trained on the release.

    Numbers of more than `MOST_CLASSES` values are predicted by their median (loss: absolute error), all
    others as classes.

    References
    ----------
    Ke et al. 2017, LightGBM, Advances in Neural Information Processing Systems 30: boosting on histograms.
    """
    from sklearn.ensemble import (  # slow to import
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
    )

    rows = tables.release.num_rows
    chosen = sample_rows(rows, TRAINING_ROWS, tables.stream, f"training/{secret.name}")
    if len(chosen) < rows:
        tables.sampled["training_rows"] = len(chosen)
    values = secret.released(chosen)
    present = ~np.isnan(values) if secret.is_number else np.ones(len(values), np.bool_)
    classes, counts = np.unique(values[present], return_counts=True)
    if len(classes) == 0:  # numbers of which all are missing
        return [np.full(len(each), np.nan) for each in wanted]
    as_classes = not secret.is_number or len(classes) <= MOST_CLASSES
    if as_classes:
        classes = np.sort(classes[np.argsort(-counts, kind="stable")[:MOST_CLASSES]])
        present &= np.isin(values, classes)
    trained = features.rows("release", chosen)[present]
    seen = np.flatnonzero(~np.isnan(trained).all(axis=0))
    if len(classes) == 1 or len(seen) == 0:
        return [np.full(len(each), secret.best_guess()[0]) for each in wanted]
    kind = HistGradientBoostingClassifier if as_classes else HistGradientBoostingRegressor
    trees_each = 1 if not as_classes or len(classes) == 2 else len(classes)
    options: dict[str, Any] = {} if as_classes else {"loss": "absolute_error"}
    model = kind(
        max_iter=min(100, _TREES // trees_each),
        early_stopping=False,
        categorical_features=np.array(features.categorical)[seen],
        random_state=random_state(tables.stream, f"model/{secret.name}"),
        **options,
    )
    learnt = values[present]
    # OpenMP cuts sums by the number of its threads, which also wait for one another at each split of a tree.
    with threadpool_limits(limits=1, user_api="openmp"):
        model.fit(trained[:, seen], np.searchsorted(classes, learnt) if as_classes else learnt)
        guesses = [model.predict(each[:, seen]) if len(each) else np.empty(0, np.int64) for each in wanted]
    return [classes[each] for each in guesses] if as_classes else guesses


def _attack_secret(tables: AttackTables, name: str, searches: Sequence[Search]) -> AttackResult:
    secret = Secret(tables, name)
    truths = secret.truth("source", tables.targets), secret.truth("control", tables.control_targets)
    confidence = tables.options.confidence
    best = secret.is_right(np.repeat(secret.best_guess(), len(truths[0])), truths[0])
    guessing = successes(int(best.sum()), len(best), confidence)
    runs: dict[str, Run] = {}
    right_rows: dict[str, BoolArray] = {}
    for search in searches:
        for intruder, guesses in _guesses(tables, secret, search).items():
            right = [secret.is_right(each, truth) for each, truth in zip(guesses, truths, strict=True)]
            attack = successes(int(right[0].sum()), len(right[0]), confidence)
            control = successes(int(right[1].sum()), len(right[1]), confidence) if len(right[1]) else None
            used = search.known if search.is_part else None
            runs[intruder], right_rows[intruder] = Run(attack, control, guessing, used), right[0]
    stronger = strongest(runs)
    chosen = runs[stronger]
    tables.outcomes[name] = Outcomes(right_rows[stronger], best)
    details = details_of(runs, stronger)
    return AttackResult(chosen.attack, guessing, chosen.control, chosen.risk, details=details)


def _guesses(tables: AttackTables, secret: Secret, search: Search) -> dict[str, list[npt.NDArray[Any]]]:
    """Guesses of both intruders with these known fields, for the source's rows and for control rows."""
    suffix = UNCHANGED if search.is_part else ""
    found = {f"nearest{suffix}": [secret.released(rows[:, 0]) for rows in search.nearest]}
    if tables.release.num_rows >= LEAST_TRAINING_ROWS:
        features = Features(tables, search.known)
        wanted = features.rows("source", tables.targets), features.rows("control", tables.control_targets)
        found[f"model{suffix}"] = learnt_guesses(tables, secret, features, wanted)
    return found


def _searches(tables: AttackTables, known: Sequence[str]) -> list[Search]:
    """Search the nearest rows by all known fields, and by the unchanged ones if these are only a part."""
    unchanged = tables.unchanged_among(known)
    field_sets = [known, *([unchanged] if unchanged else [])]
    sides: tuple[tuple[Rows, Int64Array], ...] = (
        ("source", tables.targets),
        ("control", tables.control_targets),
    )
    found, done, steps = [], 0, len(field_sets) * len(sides)
    for place, fields in enumerate(field_sets):
        released, nearest = tables.encode(fields, "release"), []
        for rows, targets in sides:
            ties = Ties(tables.release.num_rows, len(targets), tables.stream, f"inference/{rows}")
            progress = sub_progress(tables.progress, 0.5 * done / steps, 0.5 * (done + 1) / steps)
            done += 1
            queries = tables.encode(fields, rows).take(targets)
            nearest.append(nearest_rows(queries, released, 1, ties, progress))
        found.append(Search(fields, nearest, place > 0))
    return found


def _run(tables: AttackTables) -> dict[str, AttackResult]:
    known = tables.need_known()
    if not tables.options.secret:
        raise NotApplicable("name a field that an intruder wants to learn in 'secret'")
    searches = _searches(tables, known)
    found = {}
    for done, name in enumerate(tables.options.secret):
        tables.progress(0.5 + 0.5 * done / len(tables.options.secret), f"guessing {name}")
        found[name] = _attack_secret(tables, name, searches)
    return found


ATTACK = Attack(
    name="inference",
    title="Inference of a secret",
    meaning="The known fields of a person and the release together disclose the person's secret field.",
    source="Giomi et al. 2023, doi:10.56553/popets-2023-0055, section 4.3",
    run=_run,
    cost="O(a n) distances, and a model on at most 30,000 rows for each secret",
)
