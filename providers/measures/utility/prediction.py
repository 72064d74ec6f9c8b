"""Prediction of rows that were set aside, by random forests grown on the source and on the release."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from providers.arrays import Float64Array, Int64Array
from providers.errors import ProviderError
from providers.measures.models.forest import MOST_DRAWN, forest_predictions
from providers.measures.models.target_regression import explaining_fields
from providers.measures.shared.columns import SIDES, Column, Side
from providers.measures.shared.comparison import Comparison, Release
from providers.measures.shared.finding import BEYOND_FLOAT64, Finding, NotApplicable
from providers.measures.shared.measure import Extremes, Measure, Part
from providers.measures.shared.repeats import DRAWS, intervals, mean_of_draws
from providers.measures.shared.sampling import uniforms
from providers.randomness.chacha20 import Stream
from providers.tables.columns import take_rows

TREES = 25
_ASIDE = 5
"""One row of this many is set aside for testing."""
_ROTATING = frozenset({"PABIDOT"})
"""Services that rotate the axes: a forest grown on their release cannot be applied to the source's rows."""
_FARTHEST = 1e30
"""Bound of scaled numbers, so that float64 has the squares of their sums."""


@dataclass(frozen=True)
class LearningTask:
    """Training rows of a forest, and rows that test it; NaN where a field is missing."""

    fields: Float64Array
    """Fields of the training rows; shape (n, fields)."""
    target: Float64Array
    """Target of the training rows; shape (n,)."""
    test_fields: Float64Array
    """Fields of the test rows; shape (t, fields)."""
    test_target: Float64Array
    """Target of the test rows; shape (t,)."""


def prediction(
    source: LearningTask, destination: LearningTask, categories: bool, stream: Stream, purpose: str
) -> dict[str, float]:
    """Score a forest grown on the source and one grown on the destination, each on its test rows.

    Parameters
    ----------
    source, destination : LearningTask
    categories : bool
        Whether the target is codes. If so, the score is the accuracy, else R^2.
    stream : Stream
        Randomness of both forests, under the same `purpose`: they differ only by their rows.
    purpose : str

    References
    ----------
    Breiman 2001, doi:10.1023/A:1010933404324.
    """
    key = stream.key(purpose)
    scores = {}
    for name, task in (("source", source), ("destination", destination)):
        found = forest_predictions(task.fields, task.target, task.test_fields, TREES, categories, key)
        scores[name] = _score(found, task.test_target, categories)
    return scores


def _score(predicted: Float64Array, target: Float64Array, categories: bool) -> float:
    """Accuracy, or R^2; of a constant target 1 if it is predicted exactly, else 0."""
    if categories:
        return float((predicted == target).mean())
    left, whole = float(((target - predicted) ** 2).sum()), float(((target - target.mean()) ** 2).sum())
    if whole == 0:
        return float(left == 0)
    return 1 - left / whole


@dataclass(frozen=True)
class _Split:
    """Row indices within the sample, ascending."""

    training: Int64Array
    test: Int64Array


def _find(comparison: Comparison) -> Finding:
    """Mean score over several splits of the sample.

    The service changes the training rows of each split alone and never sees the test rows. A rotation is
    tested within its release instead: training and test rows are both released rows, as in figure 6 of
    Chamikara et al. 2019.
    """
    target = comparison.need_target()
    rotated = comparison.release.service in _ROTATING
    if comparison.release.perturb is None and not rotated:
        raise NotApplicable(
            "it runs the service again on a part of the rows, which is possible only in a run of a service"
        )
    fields = explaining_fields(comparison, target)
    units = comparison.sampled_clusters
    count = len(comparison.sample.source) if units is None else len(np.unique(units))
    if count < 2 * _ASIDE:
        noun = "rows" if units is None else f"units of '{comparison.rows_together}'"
        raise NotApplicable(f"it needs {2 * _ASIDE} {noun} or more")
    draws = []
    for draw in range(DRAWS):
        comparison.progress(draw / DRAWS, f"growing forests, split {draw + 1} of {DRAWS}")
        split = _split(comparison, count, units, draw)
        score = _within_release if rotated else _on_rows_set_aside
        draws.append(score(comparison, split, target, fields, draw))
    aside = count // _ASIDE
    bounds = (0.0 if comparison.columns[target].kind == "category" else -math.inf, 1.0)
    notes = {"draws": DRAWS, "interval": intervals(draws, bounds, aside / (count - aside))}
    return Finding(mean_of_draws(draws), [target, *fields], comparison.sample.size, notes)


def _split(comparison: Comparison, count: int, units: Int64Array | None, draw: int) -> _Split:
    """Set a random fifth of the rows aside, or all rows of a fifth of the units: others are like them."""
    order = uniforms(count, comparison.stream, f"prediction/{draw}/aside").argsort(kind="stable")
    aside = np.zeros(count, np.bool_)
    aside[order[: count // _ASIDE]] = True
    if units is not None:
        aside = aside[np.unique(units, return_inverse=True)[1]]
    return _Split(training=np.flatnonzero(~aside), test=np.flatnonzero(aside))


def _within_release(
    comparison: Comparison, split: _Split, target: str, fields: list[str], draw: int
) -> dict[str, float]:
    """Predict released rows by a forest grown on released rows, and source rows by source rows."""
    comparison.need_aligned()
    rows = {"source": comparison.sample.source, "destination": comparison.sample.destination}
    tasks = []
    for side in SIDES:
        features = _features(comparison, fields, side)
        targets = _feature(comparison.columns[target], side)
        training, test = rows[side][split.training], rows[side][split.test]
        tasks.append(_with_target(features, targets, training, features, targets, test))
    source, destination = tasks
    categories = comparison.columns[target].kind == "category"
    return prediction(source, destination, categories, comparison.stream, f"prediction/{draw}")


def _on_rows_set_aside(
    comparison: Comparison, split: _Split, target: str, fields: list[str], draw: int
) -> dict[str, float]:
    """Predict source rows that the service never saw by forests grown on the other rows, before and after."""
    perturb = comparison.release.perturb
    assert perturb is not None  # noqa: S101 - checked by `_find`
    rows = np.sort(comparison.sample.source)
    training = take_rows(comparison.release.source, rows[split.training])
    try:
        key = comparison.stream.key(f"prediction/{draw}/service").tobytes()
        changed = perturb(training, Stream(key, "measures", 1))
    except ProviderError as error:
        raise NotApplicable(f"the service cannot change the training rows alone: {error.message}") from error
    options = comparison.options.model_copy(update={"fields": tuple(comparison.compared)})
    # training rows before the test rows, so that codes and ranges are those of all source rows
    whole = pa.concat_tables([training, take_rows(comparison.release.source, rows[split.test])])
    both = Comparison(Release(whole, changed, aligned=False), options, comparison.stream)
    if target not in both.columns or any(name not in both.columns for name in fields):
        raise NotApplicable("the service changes the type of a field of the training rows")
    source, destination = (_features(both, fields, side) for side in SIDES)
    before, after = (_feature(both.columns[target], side) for side in SIDES)
    trained, tested = np.arange(training.num_rows), np.arange(training.num_rows, whole.num_rows)
    return prediction(
        _with_target(source, before, trained, source, before, tested),
        _with_target(destination, after, np.arange(len(after)), source, before, tested),
        both.columns[target].kind == "category",
        comparison.stream,
        f"prediction/{draw}",
    )


def _with_target(
    features: Float64Array, targets: Float64Array, training: Int64Array,
    test_features: Float64Array, test_targets: Float64Array, test: Int64Array,
) -> LearningTask:  # fmt: skip
    """Select the rows that have a target. Raises NotApplicable if fewer than two are left."""
    trained = training[~np.isnan(targets[training])]
    tested = test[~np.isnan(test_targets[test])]
    if len(trained) < 2 or len(tested) < 2:
        raise NotApplicable("too few rows have a target")
    return LearningTask(features[trained], targets[trained], test_features[tested], test_targets[tested])


def _features(comparison: Comparison, fields: Sequence[str], side: Side) -> Float64Array:
    return np.column_stack([_feature(comparison.columns[name], side) for name in fields])


def _feature(column: Column, side: Side) -> Float64Array:
    """Return codes, or numbers scaled by the source's range, NaN where missing."""
    if column.kind == "category":
        return column.codes(side).astype(np.float64)
    present = column.numbers("source")
    present = present[~np.isnan(present)]
    low, high = (float(present.min()), float(present.max())) if len(present) else (0.0, 0.0)
    if math.isinf(high - low):
        raise NotApplicable(BEYOND_FLOAT64)
    return np.clip((column.numbers(side) - low) / ((high - low) or 1.0), -_FARTHEST, _FARTHEST)


MEASURE = Measure(
    key="prediction",
    title="Prediction of rows set aside",
    concerns="utility",
    goal="high",
    range="accuracy 0 to 1, or R^2 up to 1",
    formula=f"a forest of {TREES} trees for the target, grown on 4 rows of 5 of the source and on the same "
    f"rows as the service changes them, each tree on at most {MOST_DRAWN:,} draws with replacement; accuracy "
    "(categories) or R^2 (numbers) on the fifth, set aside before; with units or households, rows of whole "
    "ones. PABIDOT: grown and tested on released rows, which have the same axes. "
    f"The mean of {DRAWS} splits, with its 95 % interval (Nadeau and Bengio "
    "2003)",
    source="Perry, Matloff and Tendick 2024, 9.5; Chamikara et al. 2019, 5.2.4 and figure 6; Breiman 2001",
    cost=f"O(n log n), and a run of the service, for each of {DRAWS} splits: on the sample",
    find=_find,
    extremes=Extremes("squares", sides=("source",), target_alone=True),
    interval_of_draws=True,
    parts=(Part("destination"),),
    needs=("target",),
    words={"source": "trained on the source", "destination": "trained on the destination"},
    cannot_rank="it perturbs other rows for each split and is the same for every candidate",
)
