"""Advice: parameters of the service that lower the risk, found by trying them on a sample of the source.

The search is over the service's own parameters, without knowledge of any service: numbers up and down,
booleans and choices, and more fields where the service takes a list of fields to change. Each value is tried
alone, then the best values of different parameters together. Every try runs the service on the same rows of
the sample and attacks its release with the same control rows, so that tries compare. The best of many risks
is low by chance, too: it is advised only if a second trial confirms it, with other rows and seeds. A source
of at most `SAMPLE_ROWS` rows is the sample of both trials, which differ in the withheld and attacked rows and
in the seeds: these are the chance by which the best try was picked, since the release is of the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import ValidationError

from providers import PROVIDERS
from providers.attacks.options import AttackOptions
from providers.attacks.suite import MethodUsed, attack_release
from providers.attacks.thresholds import Thresholds
from providers.attacks.units import sampled_units, withheld_rows
from providers.attacks.verdict import SINGLING_OUT, STATES, State, Verdict, judge
from providers.errors import ProviderError
from providers.measures.shared.finding import NotApplicable
from providers.progress import Progress, sub_progress
from providers.randomness.chacha20 import Stream
from providers.tables.columns import take_rows

SAMPLE_ROWS = 3_000
"""Rows of the sample on which parameters are tried."""

MOST_TRIES = 24
"""Most values that are tried, in addition to the release's own."""

MOST_ATTACKS = 300
"""Most attacks of each kind in a try."""

_TOGETHER = 3
"""Most parameters whose best values are tried together."""

_CONFIRMING = 2
"""Runs of the second trial: the release's own parameters, and the best ones."""

_LEAST_ROWS = 100

_FIELD_LISTS = ("swap_fields", "perturb_fields", "fields")
"""Parameters that list the fields which a service changes."""

_NO_DIFFERENCE = frozenset(
    {
        "nulls",
        "on_reversible",
        "method",
        "start",
        "origin",
        "widest",
        "mechanism",
        "target_epsilon",
        "risk",
        "household",
        "household_check",
        "unit_id",
        "series",
    }
)
"""Parameters that are not tried. They decide on rows that the method cannot take, on the speed or the
algorithm of the same computation, on whether the release has an epsilon, or on the rows at risk."""


@dataclass(frozen=True, slots=True)
class Try:
    """One set of parameters and its risk on the sample."""

    change: dict[str, Any]
    """Parameters that differ from the parameters of the release."""
    state: State | None
    """State of its verdict; None if the service could not run."""
    risk: float | None
    """Risk of its worst attack, apart from singling out."""
    attack: str | None
    """Name of that attack."""
    low: float | None = None
    high: float | None = None
    """Interval of that risk."""
    error: str | None = None
    """Reason why the service could not run."""


@dataclass(frozen=True, slots=True)
class SecondTrial:
    """The release's own parameters and the best ones, with other seeds, withheld and sampled rows."""

    now: Try
    best: Try

    @property
    def holds(self) -> bool:
        """Whether the best ones are better here, too, by more than the errors of both risks."""
        now, best = self.now, self.best
        if not (_ran(now) and _ran(best) and _better(best, now)):
            return False
        first, second = now.risk or 0.0, best.risk or 0.0
        low, high = now.low or 0.0, second if best.high is None else best.high
        return first - second > math.hypot(first - low, high - second)


@dataclass(frozen=True, slots=True)
class Advice:
    """Result of the search."""

    sentence: str
    parameters: dict[str, Any]
    """Parameters to change; empty if none that was tried lowers the risk in the second trial, too."""
    now: Try
    """The release's own parameters, on the sample."""
    best: Try | None
    """The best try that lowers the risk; None if there is none. Its risk is low by chance, too."""
    tries: list[Try]
    """All other tries, in the order in which they were made."""
    rows: int
    """Rows of the sample on which the service ran."""
    control_rows: int
    confirmed: SecondTrial | None = None
    """Second trial of the best try; None if there is none."""

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return asdict(self)


def advise(
    source: pa.Table,
    method: MethodUsed,
    options: AttackOptions,
    thresholds: Thresholds,
    stream: Stream,
    progress: Progress,
) -> Advice:
    """Try other parameters of the service on a sample of the source.

    Parameters
    ----------
    source : pa.Table
    method : MethodUsed
        Service and parameters of the release.
    options : AttackOptions
        Options of the attacks on the release.
    thresholds : Thresholds
    stream : Stream
        Randomness of the attacks; the sample and the seeds of the runs are derived from it.
    progress : Progress
        Called before each try.

    Notes
    -----
    A try is better than the release's own parameters if its state is lower, or if its risk is below the
    interval of theirs. The best one is advised if it is better in a second trial, too: that is a single
    comparison, whatever the number of tries. At most `MOST_TRIES` runs of the service on `SAMPLE_ROWS` rows,
    and those of the second trial.
    """
    if source.num_rows < _LEAST_ROWS:
        return _without_tries(f"the source has fewer than {_LEAST_ROWS} rows")
    try:
        search = _Search(source, method, options, thresholds, stream, progress)
    except NotApplicable as reason:
        return _without_tries(str(reason))
    now = search.attempt({})
    if now.state is None:
        return search.advice(now, None, [])
    tries: list[Try] = []
    for change in variations(method, options, source.schema.names):
        if len(tries) == MOST_TRIES - _TOGETHER + 1:
            break
        tries.append(search.attempt(change))
    together: dict[str, Any] = {}
    for each in sorted(filter(_ran, tries), key=_rank):
        if not _better(each, now) or len(together) == _TOGETHER:
            break
        if not each.change.keys() & together.keys():
            if together:
                tries.append(search.attempt(together | each.change))
            together |= each.change
    best = min(filter(_ran, tries), key=_rank, default=None)
    if best is None or not _better(best, now):
        return search.advice(now, None, tries)
    other = replace(stream, seed=stream.key("advice, second trial").tobytes())
    second = _Search(source, method, options, thresholds, other, sub_progress(progress, search.done, 1.0))
    return search.advice(now, best, tries, SecondTrial(second.attempt({}), second.attempt(best.change)))


def _without_tries(reason: str) -> Advice:
    nothing = Try({}, None, None, None, error=reason)
    return Advice(f"No parameter was tried: {reason}.", {}, nothing, None, [], 0, 0)


class _Search:
    """Sample of a source, and the tries on it."""

    def __init__(
        self,
        source: pa.Table,
        method: MethodUsed,
        options: AttackOptions,
        thresholds: Thresholds,
        stream: Stream,
        progress: Progress,
    ) -> None:
        """Raise NotApplicable if the sample has no tenth to withhold."""
        unit = method.unit_field
        sample = take_rows(source, sampled_units(source, unit, SAMPLE_ROWS, stream, "advice sample"))
        withheld = withheld_rows(sample, unit, stream, "advice control")
        self._kept = take_rows(sample, np.flatnonzero(~withheld))
        self._control = take_rows(sample, np.flatnonzero(withheld))
        self._method = method
        self._options = options.model_copy(
            update={"attacks": min(options.attacks, MOST_ATTACKS), "releases": 1}
        )
        self._thresholds = thresholds
        self._stream = stream
        self._progress = progress
        self._done = 0

    @property
    def done(self) -> float:
        """Share of all runs that are done."""
        return min(self._done / (1 + MOST_TRIES + _CONFIRMING), 1.0)

    def attempt(self, change: Mapping[str, Any]) -> Try:
        """Run the service with changed parameters, and attack its release."""
        first = self.done
        self._done += 1
        progress = sub_progress(self._progress, first, self.done, "trying parameters")
        progress(0.0, "")
        parameters = changed(self._method.parameters, change)
        provider = PROVIDERS[self._method.service]
        seed = self._stream.key("advice").tobytes()
        try:
            params = provider.check(provider.params.model_validate(parameters), self._kept.schema)
            swaps = provider.stream(seed)
            result = provider.swap(self._kept, params, swaps, lambda *_: None)
            figures = attack_release(
                self._kept,
                result.table,
                self._control,
                self._options,
                method=replace(self._method, parameters=parameters),
                aligned=result.origin is None,
                stream=self._stream,
            )
        except ProviderError as error:
            return Try(dict(change), None, None, None, error=error.message)
        return _tried(change, judge(figures, self._thresholds))

    def advice(
        self, now: Try, best: Try | None, tries: list[Try], second: SecondTrial | None = None
    ) -> Advice:
        """Return the result with its sentence."""
        rows, control_rows = self._kept.num_rows, self._control.num_rows
        change = second.best.change if second and second.holds else {}
        sentence = _sentence(now, second, tries, rows)
        return Advice(sentence, change, now, best, tries, rows, control_rows, second)


def variations(
    method: MethodUsed, options: AttackOptions, field_names: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield changes of one parameter each that the service accepts: numbers first, then fields, then choices.

    Parameters
    ----------
    method : MethodUsed
    options : AttackOptions
        Secret and known fields, in this order, are tried as further fields to change.
    field_names : list of str
        Fields of the source.
    """
    params = PROVIDERS[method.service].params
    for change in _changes(method, options, field_names, params.model_json_schema()["properties"]):
        try:
            params.model_validate(changed(method.parameters, change))
        except ValidationError:
            continue
        yield change


def _changes(
    method: MethodUsed, options: AttackOptions, field_names: list[str], schema: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    given = method.parameters
    tried = {name: each for name, each in schema.items() if name not in _NO_DIFFERENCE}
    numbers = {
        name: list(_numbers(given.get(name, each.get("default")), each))
        for name, each in tried.items()
        if each.get("type") in ("integer", "number")
    }
    for step in range(max(map(len, numbers.values()), default=0)):  # the first value of each parameter first
        for name, values in numbers.items():
            if step < len(values):
                yield {name: values[step]}
    for name in _FIELD_LISTS:
        listed = given.get(name)
        if name in schema and listed:
            for more in (options.secret, options.known):
                added = [field for field in more if field not in listed and field in field_names]
                if added:
                    yield {name: [*listed, *added]}
    for name, each in tried.items():
        value = given.get(name, each.get("default"))
        if each.get("type") == "boolean":
            yield {name: not value}
        elif isinstance(value, str):
            yield from ({name: other} for other in each.get("enum", ()) if other != value)


def changed(parameters: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters with a change, for a run outside of a series."""
    return {name: value for name, value in {**parameters, **change}.items() if name != "series"}


def _numbers(value: Any, schema: Mapping[str, Any]) -> Iterator[int | float]:
    """Yield values to try in place of a number: the largest that is allowed, multiples, and parts of it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    whole = schema["type"] == "integer"
    least = schema.get("minimum", schema.get("exclusiveMinimum", -np.inf))
    most = schema.get("maximum", np.inf)
    wanted = [4 * value, value / 2, 10 * value, 2 * value]
    if most <= 1:  # a share
        wanted = [most, (value + most) / 2, value / 2]
    if value == 0:
        wanted = [1, 10]
    found: set[int | float] = {value}
    for each in wanted:
        number = int(each) if whole else float(f"{min(each, most):.4g}")
        number = min(number, int(most)) if whole and np.isfinite(most) else number
        inside = number > least if "exclusiveMinimum" in schema else number >= least
        if inside and number not in found:
            found.add(number)
            yield number


def _tried(change: Mapping[str, Any], verdict: Verdict) -> Try:
    counted = [each for each in verdict.attacks if each.attack not in SINGLING_OUT] or verdict.attacks
    worst = max(counted, key=lambda each: (STATES.index(each.state), each.value), default=None)
    if worst is None:
        return Try(dict(change), None, None, None, error="no attack applies to the sample")
    name = worst.attack if worst.field is None else f"{worst.attack} of '{worst.field}'"
    return Try(dict(change), worst.state, worst.value, name, worst.low, worst.high)


def _ran(each: Try) -> bool:
    return each.state is not None


def _rank(each: Try) -> tuple[int, float, int]:
    """Order of tries that ran: lower states, then lower risks, then fewer changes."""
    return STATES.index(each.state or "high"), each.risk or 0.0, len(each.change)


def _better(each: Try, now: Try) -> bool:
    """Whether a try's state is not higher, and its risk below the interval of the present one."""
    state, risk, _ = _rank(each)
    return state <= _rank(now)[0] and risk < (now.low or 0.0)


def _sentence(now: Try, second: SecondTrial | None, tries: list[Try], rows: int) -> str:
    if now.state is None:
        return f"No parameter was tried: {now.error}."
    basis = f"on a sample of {rows} rows"
    if second is None or not second.holds:
        again = " in a second trial, too" if second else ""
        return (
            f"None of {len(tries)} other parameters and values lowers the risk of {now.risk:.3f} {basis} "
            f"beyond its interval{again}: another service, or fewer released fields, may lower it."
        )
    then, best = second.now, second.best
    change = " and ".join(f"'{name}' = {_written(value)}" for name, value in best.change.items())
    return (
        f"With {change} the risk of the worst attack is {best.risk:.3f} ({best.state}) in place of "
        f"{then.risk:.3f} ({then.state}), {basis}; {len(tries)} parameters and values were tried, and both "
        "risks are from a second trial with the best."
    )


def _written(value: Any) -> str:
    return (
        ", ".join(map(str, value))
        if isinstance(value, list | tuple)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )
