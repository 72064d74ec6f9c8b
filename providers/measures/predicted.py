"""`prediction` taken of a case: rows are set aside, the service changes the others, forests are grown."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.errors import ProviderError
from providers.measures.case import Case, Finding, Released
from providers.measures.columns import Column, Float64Array, Side
from providers.measures.explained import identifiers, target_of
from providers.measures.learning import prediction
from providers.measures.measure import NotApplicable
from providers.measures.sampling import random_state, uniforms
from providers.rng import Stream
from providers.table import take_rows

_ASIDE = 5  # one row of so many


def predicted(case: Case) -> Finding:
    """The prediction of rows of the sample that the service never sees."""
    target = target_of(case)
    perturb = case.released.perturb
    if perturb is None:
        raise NotApplicable(
            "rows are to be set aside before anything is changed, and only a run of a service can be repeated"
        )
    fields = [name for name in case.columns if name != target and name not in identifiers(case)]
    if not fields:
        raise NotApplicable("there is no field to explain the target by")
    rows = np.sort(case.drawn.source)
    order = uniforms(len(rows), case.stream, "prediction/aside").argsort(kind="stable")
    aside = np.sort(rows[order[: len(rows) // _ASIDE]])
    if len(aside) < 2:
        raise NotApplicable(f"it needs {2 * _ASIDE} rows or more")
    training = take_rows(case.released.source, np.sort(rows[order[len(rows) // _ASIDE :]]))
    case.progress(0.1, "changing the training rows")
    try:
        changed = perturb(training, Stream(case.stream.key("prediction/service").tobytes(), "measures", 1))
    except ProviderError as error:
        raise NotApplicable(f"the service cannot change the training rows alone: {error.message}") from error
    case.progress(0.4, "growing forests")
    kept = case.options.model_copy(update={"fields": tuple(case.columns)})
    whole = pa.concat_tables([training, take_rows(case.released.source, aside)])
    both = Case(Released(whole, changed, aligned=False), kept, case.stream)
    found = _of_forests(both, training.num_rows, target, fields, random_state(case.stream, "prediction"))
    return Finding(found, [target, *fields], len(rows) if case.drawn.size is not None else None)


def _of_forests(case: Case, trained: int, target: str, fields: list[str], state: int) -> dict[str, float]:
    """Grown on the first rows of the source and on the destination, tested on the source's others."""
    if target not in case.columns or any(name not in case.columns for name in fields):
        raise NotApplicable("the service changes the type of a field of the training rows")
    source, destination = (
        np.column_stack([_feature(case.columns[name], side) for name in fields]) for side in _SIDES
    )
    categories = case.columns[target].kind == "category"
    before, after = (_feature(case.columns[target], side) for side in _SIDES)
    grown = np.flatnonzero(~np.isnan(before[:trained]))
    tested = trained + np.flatnonzero(~np.isnan(before[trained:]))
    regrown = np.flatnonzero(~np.isnan(after))
    if min(len(grown), len(regrown)) < 2 or len(tested) < 2:
        raise NotApplicable("too few rows have a target")
    return prediction(
        source[grown],
        destination[regrown],
        before[grown],
        after[regrown],
        source[tested],
        before[tested],
        categories,
        state,
    )


_SIDES: tuple[Side, Side] = ("source", "destination")
_FARTHEST = 1e30  # what forests compare is float32


def _feature(column: Column, side: Side) -> npt.NDArray[np.float64]:
    """Codes, or numbers by the source's range, NaN where missing."""
    if column.kind == "category":
        return column.codes(side).astype(np.float64)
    there: Float64Array = column.numbers("source")
    there = there[~np.isnan(there)]
    low, high = (float(there.min()), float(there.max())) if len(there) else (0.0, 0.0)
    return np.clip((column.numbers(side) - low) / ((high - low) or 1.0), -_FARTHEST, _FARTHEST)
