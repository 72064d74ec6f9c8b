"""Parts of a report about attacks on a release: figures, verdict and advice."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from providers.attacks.advice import advise
from providers.attacks.options import AttackOptions
from providers.attacks.suite import MethodUsed, attack_release, attacks_stream
from providers.attacks.thresholds import Thresholds
from providers.attacks.verdict import judge
from providers.progress import Progress, sub_progress

_ATTACKED = 0.4
"""Estimated share of the run at which the attacks are done and the advice begins."""


def attack_figures(
    source: pa.Table,
    release: pa.Table,
    control: pa.Table | None,
    options: AttackOptions,
    method: MethodUsed | None,
    aligned: bool,
    seed: bytes,
    job_options: dict[str, Any],
    progress: Progress,
) -> dict[str, Any]:
    """Attack a release. Return the parts of a report about it.

    Parameters
    ----------
    source, release : pa.Table
    control : pa.Table or None
        Rows that were not in the source.
    options : AttackOptions
    method : MethodUsed or None
        Service that made the release, if it is known.
    aligned : bool
        Whether row i of the release was row i of the source.
    seed : bytes
        Seed of the job, 32 bytes.
    job_options : dict
        ``thresholds`` of the verdict, and whether there is to be ``advice``.
    progress : Progress

    Returns
    -------
    dict
        ``attacks`` by name, ``verdict``, ``control`` (given, sister or none), ``sampled``, ``left_out``, and
        ``advice`` if it was requested.
    """
    thresholds = Thresholds.model_validate(job_options.get("thresholds", {}))
    wants_advice = bool(job_options.get("advice")) and method is not None
    stream = attacks_stream(seed)
    figures = attack_release(
        source,
        release,
        control,
        options,
        method=method,
        aligned=aligned,
        stream=stream,
        on_progress=sub_progress(progress, 0.0, _ATTACKED if wants_advice else 1.0),
    )
    found = figures.report() | {"verdict": judge(figures, thresholds).document()}
    if wants_advice:
        assert method is not None
        advising = sub_progress(progress, _ATTACKED, 1.0)
        found["advice"] = advise(source, method, options, thresholds, stream, advising).document()
    found = _present(found)
    found["verdict"]["thresholds"] = thresholds.model_dump(mode="json")
    return found


_OPEN = ("details", "change", "parameters")
"""Members whose content is not described by the schema of reports, and may hold nulls."""


def _present(value: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is None, as in all responses."""
    return {
        name: each if name in _OPEN or not isinstance(each, dict | list) else _present_within(each)
        for name, each in value.items()
        if each is not None
    }


def _present_within(value: dict[str, Any] | list[Any]) -> dict[str, Any] | list[Any]:
    if isinstance(value, dict):
        return _present(value)
    return [_present(each) if isinstance(each, dict) else each for each in value]
