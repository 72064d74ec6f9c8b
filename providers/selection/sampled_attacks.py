"""Attacks on a sample of rows, for figures that compare releases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from providers.attacks.figures import AttackResult
from providers.attacks.options import AttackOptions
from providers.attacks.tables import AttackTables
from providers.measures.assessment import MeasureOptions, Release
from providers.measures.shared.finding import NotApplicable
from providers.measures.shared.sampling import sample_rows
from providers.randomness.chacha20 import Stream
from providers.tables.columns import take_rows

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
    rows = sample_rows(source.num_rows, SAMPLED_ROWS, stream, "inference risk")
    sampled = len(rows) if len(rows) < source.num_rows else None
    tables = AttackTables(
        take_rows(source, rows),
        take_rows(destination, _same_rows(release, rows, stream)),
        None,
        AttackOptions(attacks=ATTACKS, categorical_fields=options.categorical_fields, **roles),
        method=None,
        aligned=False,
        stream=stream,
    )
    named = (*tables.options.known, *tables.options.secret)
    missing = [name for name in named if name not in tables.columns]
    if missing:
        raise NotApplicable(f"'{missing[0]}' cannot be attacked: {tables.left_out[missing[0]]}")
    tables.need_rows(2)
    return tables, sampled


def beyond_baseline(result: AttackResult) -> float:
    """Return the success beyond the baseline as a share of what the baseline leaves, 0 at least."""
    assert result.baseline is not None  # noqa: S101 - these attacks always have one
    left = 1 - result.baseline.rate
    return max(0.0, (result.attack.rate - result.baseline.rate) / left) if left else 0.0


def _same_rows(release: Release, rows: pa.Array, stream: Stream) -> pa.Array:
    """Rows of the release that were made from these rows; others, if that is unknown."""
    count = release.destination.num_rows
    if release.origin is not None:
        return np.flatnonzero(np.isin(release.origin, rows))
    if release.aligned and count == release.source.num_rows:
        return rows
    return sample_rows(count, SAMPLED_ROWS, stream, "inference risk/release")
