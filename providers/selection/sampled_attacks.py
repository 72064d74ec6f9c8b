"""Attacks on a sample of rows, for figures that compare releases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from providers.arrays import Int64Array
from providers.attacks.figures import AttackResult, uncut_risk
from providers.attacks.options import AttackOptions
from providers.attacks.tables import AttackTables, Outcomes
from providers.attacks.units import sampled_units
from providers.measures.assessment import MeasureOptions, Release
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.repeats import Interval
from providers.measures.shared.sampling import sample_rows
from providers.randomness.chacha20 import Stream
from providers.selection.repeated_attacks import Attempts, interval_of_risk, terms_of_risk
from providers.tables.columns import take_rows
from providers.tables.units import unit_of_params

SAMPLED_ROWS = 2000
"""Most rows of source and release that are read: an attack takes tenths of a second on them."""

ATTACKS = 500


def sampled_tables(
    release: Release, options: MeasureOptions, stream: Stream, **roles: Any
) -> tuple[AttackTables, int | None]:
    """Return a sample of source and release as attacks take it, and its rows if not all were read.

    Parameters
    ----------
    release : Release
    options : MeasureOptions
    stream : Stream
        Shared by the releases that are compared, so that the same rows are attacked.
    **roles
        Fields of `AttackOptions`: `known`, `secret`, `linked`.

    Raises
    ------
    NotApplicable
        A named field cannot be attacked, or there are fewer than two rows.
    """
    source, destination = release.source, release.destination
    unit = options.unit_field or unit_of_params(release.parameters)
    rows = sampled_units(source, unit, SAMPLED_ROWS, stream, "inference risk")
    sampled = len(rows) if len(rows) < source.num_rows else None
    taken, origin, aligned = _same_rows(release, rows, stream)
    tables = AttackTables(
        take_rows(source, rows),
        take_rows(destination, taken),
        None,
        AttackOptions(
            attacks=ATTACKS, categorical_fields=options.categorical_fields, unit_field=unit, **roles
        ),
        method=None,
        aligned=aligned,
        stream=stream,
        origin=origin,
    )
    named = (*tables.options.known, *tables.options.secret)
    missing = [name for name in named if name not in tables.columns]
    if missing:
        raise NotApplicable(f"'{missing[0]}' cannot be attacked: {tables.left_out[missing[0]]}")
    tables.need_rows(2)
    return tables, sampled


@dataclass(frozen=True, slots=True)
class SampledRisk:
    """Figure of one or several attacks on a sample of rows."""

    value: float
    interval: Interval
    """95 % interval for the attacked rows as a random sample of many."""
    sampled: int | None
    """Number of sampled rows; None if all were read."""
    tried: tuple[Attempts, ...]
    """The single attacks, before the cut at 0."""


def risk_beyond_baseline(
    results: Iterable[AttackResult], outcomes: Iterable[Outcomes], sampled: int | None
) -> SampledRisk:
    """Return the mean success beyond the baseline, as a share of what the baseline leaves.

    Parameters
    ----------
    results : iterable of AttackResult
        With a baseline.
    outcomes : iterable of Outcomes
        Those of the same attacks, in the same order.
    sampled : int or None
        Number of sampled rows; None if all were read.

    Notes
    -----
    Successes and baseline of an attack are taken for independent, which makes its interval wider than need
    be. An attack of which every guess is right shows nothing and does not count.

    Raises
    ------
    NotApplicable
        Every guess of every attack is right.
    """
    tried = tuple(
        Attempts(uncut_risk(result.attack, result.baseline), terms_of_risk(rows.attack, rows.baseline))
        for result, rows in zip(results, outcomes, strict=True)
    )
    risks = [each.risk.value for each in tried if each.risk]
    if not risks:
        raise NotApplicable(
            "every guess is right in the attacked rows, with and without the release: name a field whose "
            "values differ in more rows"
        )
    value = float(np.mean([max(0.0, risk) for risk in risks]))
    return SampledRisk(value, interval_of_risk([tried], value), sampled, tried)


def _same_rows(
    release: Release, rows: Int64Array, stream: Stream
) -> tuple[Int64Array, Int64Array | None, bool]:
    """Return rows of the release, their sampled source rows, and whether these are known.

    The rows were made from the sampled source rows, or are other rows if this is unknown. The source rows are
    numbers within the sample; None: the row of the same number.
    """
    count = release.destination.num_rows
    if release.origin is not None:
        taken = np.flatnonzero(np.isin(release.origin, rows))
        return taken, np.searchsorted(rows, release.origin[taken]).astype(np.int64), True
    if release.aligned and count == release.source.num_rows:
        return rows, None, True
    return sample_rows(count, SAMPLED_ROWS, stream, "inference risk/release"), None, False
