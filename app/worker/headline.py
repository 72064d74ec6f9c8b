"""Add the headline to a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from providers.attacks.thresholds import Thresholds
from providers.measures.assessment import MeasureOptions
from providers.params import Params
from providers.selection.headline import headline


def with_headline(
    report: dict[str, Any],
    options: Mapping[str, Any],
    source: pa.Table | None = None,
    params: Params | None = None,
) -> dict[str, Any]:
    """Return the report with its headline as the first member.

    Parameters
    ----------
    report : dict
    options : mapping
        Options of the job: ``thresholds`` and ``measures``. A job that an earlier version accepted has no
        thresholds, and gets the default ones.
    source : pa.Table, optional
        The whole source, if it was read.
    params : Params, optional
        Parameters of a run.
    """
    found = headline(
        report,
        Thresholds.model_validate(options.get("thresholds", {})),
        source=source,
        options=MeasureOptions.model_validate(options.get("measures", {})),
        parameters={} if params is None else params.model_dump(),
    )
    return {"headline": found.document()} | report
