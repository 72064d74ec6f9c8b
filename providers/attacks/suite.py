"""Run all attacks on a release, each with its baseline and on control rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from providers.attacks.attack import Results
from providers.attacks.figures import AttackFigures, Control
from providers.attacks.inference import Secret
from providers.attacks.options import AttackOptions, check_attack_options, check_known_rows
from providers.attacks.registry import attacks_on
from providers.attacks.sister import sister_release
from providers.attacks.tables import AttackTables, MethodUsed
from providers.measures.shared.finding import NotApplicable
from providers.progress import Progress, no_progress, sub_progress
from providers.randomness.chacha20 import Stream

ATTACKS_REVISION = 9
"""Revision of the attacks; raised when a change alters a figure for a given seed."""

_DRAWS_REVISION = 1
"""Revision of their random draws, which change less often."""


def attacks_stream(seed: bytes) -> Stream:
    """Random stream of the attacks, independent of those of the swap and of the measures."""
    return Stream(seed, "attacks", _DRAWS_REVISION)


def attack_release(
    source: pa.Table,
    release: pa.Table,
    control: pa.Table | None,
    options: AttackOptions,
    *,
    method: MethodUsed | None,
    aligned: bool,
    stream: Stream,
    on_progress: Progress = no_progress,
) -> AttackFigures:
    """Attack a release, or a sister release of the same service if there are no control rows.

    Parameters
    ----------
    source : pa.Table
    release : pa.Table
    control : pa.Table, optional
        Rows of the same kind that were not in the source. Without them, and with a method, the service runs
        on the source without a withheld tenth, and that release is attacked in place of the given one.
    options : AttackOptions
    method : MethodUsed, optional
        Service that made the release; None if unknown.
    aligned : bool
        Whether row i of the release was made from row i of the source.
    stream : Stream
        See `attacks_stream`.
    on_progress : Progress

    Raises
    ------
    ParameterError
        An option does not fit the tables.

    Notes
    -----
    Libraries that cut sums by their number of threads run single-threaded, so that no figure depends on the
    number of cores.
    """
    check_attack_options(options, source.schema, release.schema, None if control is None else control.schema)
    check_known_rows(options, source.num_rows)
    left_out: dict[str, str] = {}
    kind: Control = "none" if control is None else "given"
    tables, start = None, 0.0
    if control is None and method is not None:
        start = 0.2
        try:
            sister = sister_release(source, method, stream, sub_progress(on_progress, 0.0, start, "sister"))
        except NotApplicable as reason:
            left_out["control"] = str(reason)
        else:
            kind = "sister"
            tables = AttackTables(
                sister.source, sister.release, sister.control, options,
                method=method, aligned=True, stream=stream, origin=sister.origin, kept=sister.kept,
            )  # fmt: skip
    if tables is None:
        tables = AttackTables(
            source, release, control, options, method=method, aligned=aligned, stream=stream
        )
    found: dict[str, Results] = {}
    attacks = attacks_on(method.service if method else None)
    left_out |= {f"fields.{name}": reason for name, reason in tables.left_out.items()}
    with threadpool_limits(limits=1), np.errstate(all="ignore"):
        for done, (name, attack) in enumerate(attacks.items()):
            first, last = (start + (1 - start) * step / len(attacks) for step in (done, done + 1))
            tables.progress = sub_progress(on_progress, first, last, attack.title)
            tables.progress(0.0, "begun")
            try:
                tables.need_rows()
                found[name] = attack.run(tables)
                left_out |= _uninformative(tables, name, found[name])
            except NotApplicable as reason:
                left_out[name] = str(reason)
    on_progress(1.0, "attacked")
    return AttackFigures(found, left_out, kind, tables.sampled)


def _uninformative(tables: AttackTables, name: str, results: Results) -> dict[str, str]:
    """Return attack and secret -> reason for each secret that every guess gives, whatever the release."""
    found = {}
    for field, result in results.items() if isinstance(results, dict) else ():
        guess = result.baseline
        if guess is not None and guess.rate >= 1 and field in tables.columns:
            reason = Secret(tables, field).shows_nothing()
            if reason is not None:
                found[f"{name}.{field}"] = reason
    return found


__all__ = [
    "ATTACKS_REVISION",
    "AttackFigures",
    "AttackOptions",
    "MethodUsed",
    "attack_release",
    "attacks_stream",
]
