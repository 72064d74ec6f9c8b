"""Recognition of a source that was released before, and the risk of all its releases together.

The worker compares keyed sketches (`providers.tables.sketches`); nothing of what it returns is a value.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from app.engine.engine import RELEASED_BEFORE
from app.store.blobs.column_reader import BlobTable, digest_of_blob
from app.store.blobs.sealed_files import small_table
from app.worker.digest_sets import contains, draw_of, has_draw, has_form
from app.worker.tasks import EarlierSource, ReleaseQuestion, SwapTask
from providers import PROVIDERS
from providers.errors import ProviderError
from providers.randomness.chacha20 import Stream
from providers.swapping.composition import NOTHING_TOGETHER, RunEpsilon, compose, listed, run_epsilon
from providers.tables.digest import DigestForm, form_of, other_form
from providers.tables.sketches import SKETCHED_ROWS, TableSketch, first_same, sketch
from providers.tables.units import unit_of_params

_MEASURED_ROWS = 2000
"""Rows from the beginning of the source on which the risk is measured."""

_MOST_RELEASES = 20

_MOST_RISKS = 64
"""Measured risks that a worker remembers."""

_REVISION = 1

SERIES = (
    "a unit has one partner in all releases of a series, and hypothetical releases would give it another one "
    "each"
)
"""Reason for which a run of a series is not measured."""


def with_release(
    task: SwapTask, columns: dict[str, Any], guarantee: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Add to a job's columns the entry for the ledger, and the event if its source was released before.

    Parameters
    ----------
    task : SwapTask
    columns : dict
        Columns of the ended job; changed.
    guarantee : mapping, optional
        Figure `guarantee` of the run; None: the run states no epsilon.

    Raises
    ------
    ReleaseRefused
        The policy does not allow another release of this source.
    """
    question = task.release
    if question is None:
        return columns
    source = BlobTable(task.source, task.rows)
    match: str | None
    family: EarlierSource | None
    if question.known_sketch is not None:
        sketched, match, family = question.known_sketch, "digest", question.earlier.source(0)
    else:
        own = sketch(_first_rows(source), question.key)
        sketched = own.document()
        match, family = recognise(question, own, partial(digest_of_blob, task.source))
    risk = None
    released = columns["destination"]["digest"] if family is None else _released_digest(task, columns, family)
    epsilon = None
    if guarantee is not None:
        epsilon = composed_epsilon(guarantee, _draw(task, question), _stream(task, question), family)
    if family is not None:
        refuse(question)
        new = not contains(family.destinations, released)
        if new and question.policy != "allow":
            risk = known_risk(task, question, family.family, source, 1 + family.releases)
            event = {"code": RELEASED_BEFORE, "message": _message(match, family, risk, epsilon)}
            columns["events"] = [event, *columns["events"]]
            columns["event_counts"] = {RELEASED_BEFORE: 1} | columns["event_counts"]
    columns["release"] = {
        "sketch": sketched,
        "family": None if family is None else family.family,
        "match": match,
        "risk": risk,
        "epsilon": epsilon,
        "seen": question.earlier.seen,
    }
    if released != columns["destination"]["digest"]:
        columns["release"]["destination_digest"] = released
    return columns


def _released_digest(task: SwapTask, columns: Mapping[str, Any], family: EarlierSource) -> str:
    """Return the destination's digest, in the form in which an earlier release of the same rows has it."""
    own: str = columns["destination"]["digest"]
    form = other_form(form_of(own))
    if contains(family.destinations, own) or not has_form(family.destinations, form):
        return own
    content = columns["table"]
    other = digest_of_blob(task.destination if content is None else small_table(content), form)
    return other if contains(family.destinations, other) else own


def _draw(task: SwapTask, question: ReleaseQuestion) -> str:
    """Return the fingerprint of all inputs of a run: seed, source, service, parameters and series."""
    series = None if task.series is None else [task.series.name, task.series.wave]
    made = [task.service, task.revision, task.parameters, task.options.get("candidates"), series]
    written = json.dumps(made, sort_keys=True).encode()
    return draw_of(question.key, task.seed, question.source_digest.encode(), written)


def _stream(task: SwapTask, question: ReleaseQuestion) -> str:
    """Return the fingerprint of the random words of a run: of its seed, and the service that reads them."""
    draws_revision = str(PROVIDERS[task.service].draws_revision)
    return draw_of(question.key, task.seed, task.service.encode(), draws_revision.encode())


def composed_epsilon(
    guarantee: Mapping[str, Any], draw: str, stream: str, family: EarlierSource | None
) -> dict[str, Any]:
    """Add up the epsilons of all releases of a source with draws of their own, this one included.

    The bytes do not matter: two independent runs that give the same bytes reveal more than one run, so that
    both count. The same run again reveals nothing more. The sum holds for an exchange of the fields that all
    releases swap: see `providers.swapping.composition`. Two different runs with one seed are not independent:
    then there is no sum.

    Parameters
    ----------
    guarantee : mapping
        Figure `guarantee` of the run.
    draw : str
        Fingerprint of the run's draws.
    stream : str
        Fingerprint of the random words behind them.
    family : EarlierSource or None
        Earlier releases of the source.

    Returns
    -------
    dict
        ``epsilon`` of this release, ``all_releases`` together, each None if there is no finite one,
        ``releases``, the number ``without`` a finite epsilon, ``draw`` and ``stream``.
        The members of `RunEpsilon.document` for this release, unless it has no finite epsilon.
        ``fields`` for which ``all_releases`` holds, and ``limits``: a sentence on why there is no sum, or
        none for other fields; each None if there is nothing to say.
    """
    known: list[RunEpsilon | None] = []
    if family is not None:
        known = list(family.epsilons or [None] * family.releases)
    own = run_epsilon(guarantee)
    dependent = 0 if family is None else family.dependent
    if family is None or not has_draw(family.draws, draw):
        known.append(own)
        dependent += family is not None and has_draw(family.streams, stream)
    finite = [run for run in known if run is not None]
    unnamed = sum(not run.blocks for run in finite)
    together, limits = NOTHING_TOGETHER, f"No finite epsilon holds for all {len(known)} releases: "
    if len(finite) < len(known):
        limits += f"{len(known) - len(finite)} have none"
    elif dependent:
        limits = (
            f"No sum of the epsilons of all {len(known)} releases is stated, because they are not "
            f"independent: {dependent} of them {'has' if dependent == 1 else 'have'} the seed of another one"
        )
    elif unnamed:
        limits = (
            f"No sum of the epsilons of all {len(known)} releases is stated: entries of older versions "
            f"({unnamed}) do not name their swap fields"
        )
    else:
        together = compose(finite)
        if together.fields:
            limits = "No finite epsilon holds for other fields: "
        limits = limits + together.reason if together.reason else ""
    return {
        "epsilon": guarantee["epsilon"],
        "all_releases": together.epsilon,
        "releases": len(known),
        "without": len(known) - len(finite),
        "draw": draw,
        "stream": stream,
        **({} if own is None else own.document()),
        "fields": list(together.fields) or None,
        "limits": limits or None,
    }


class ReleaseRefused(ProviderError):
    """The policy does not allow another release of a source that was recognised by its fields."""

    code = RELEASED_BEFORE


def refuse(question: ReleaseQuestion) -> None:
    """Raise ReleaseRefused if the policy refuses, or requires a reason that is missing."""
    recognised = "this source was recognised as one that has been released before"
    if question.policy == "refuse":
        raise ReleaseRefused(f"{recognised}, and the project's policy refuses another release")
    if question.policy == "require_reason" and not question.reason:
        raise ReleaseRefused(
            f"{recognised}, and the project's policy requires a reason: give 'release_reason'",
            "/release_reason",
        )


def recognise(
    question: ReleaseQuestion, own: TableSketch, digest_in: Callable[[DigestForm], str]
) -> tuple[str | None, EarlierSource | None]:
    """Recognise the source among earlier ones, none of which has its digest in the form of the job.

    Parameters
    ----------
    question : ReleaseQuestion
    own : TableSketch
        Sketch of the source.
    digest_in : callable
        Form -> digest of the source; called only if an earlier source may have it.

    Returns
    -------
    tuple of str and EarlierSource, or None twice
        How it was recognised, ``digest`` or ``fields``, and the earlier source.
    """
    earlier = question.earlier
    if earlier.other_digests:
        number = earlier.other_digests.get(digest_in(other_form(form_of(question.source_digest))))
        if number is not None:
            return "digest", earlier.source(number)
    found = first_same(own, earlier.sketches, np.frombuffer(earlier.sizes, np.int64))
    if found is None:
        return None, None
    ends = np.cumsum(np.frombuffer(earlier.counts, np.int64))
    return "fields", earlier.source(int(np.searchsorted(ends, found, "right")))


_risks: OrderedDict[tuple[str, ...], dict[str, Any]] = OrderedDict()


def known_risk(
    task: SwapTask, question: ReleaseQuestion, family: str, source: BlobTable, releases: int
) -> dict[str, Any]:
    """Return `measured_risk`, or what this process has measured of the same rows and parameters before.

    The measure depends on nothing else. The family is compared too, so that the time of a job does not show
    that another project has the same table.
    """
    parameters = json.dumps(task.parameters, sort_keys=True)
    made = min(releases, _MOST_RELEASES)
    same = (family, question.source_digest, task.service, str(task.revision), parameters, str(made))
    risk = _risks.pop(same, None)
    if risk is None:
        risk = measured_risk(task, question.key, _first_rows(source), made)
    _risks[same] = risk
    while len(_risks) > _MOST_RISKS:
        _risks.popitem(last=False)
    return risk


def measured_risk(task: SwapTask, key: bytes, first: pa.Table, releases: int) -> dict[str, Any]:
    """Measure the disclosure of this many releases by the job's service and parameters, on some rows.

    Parameters
    ----------
    task : SwapTask
    key : bytes
        Key of the installation's sketches, from which the seeds of the hypothetical releases are derived: the
        same rows and parameters have the same risk in every job.
    first : pa.Table
        First rows of the source.
    releases : int
        Number of releases, this one included.

    Returns
    -------
    dict
        ``field``, ``by``, ``one_release``, ``all_releases``, ``releases``, ``rows``, and ``unit``, the field
        of persons or households, of which one row each is attacked, or None; or ``not_measured``.
    """
    from providers.attacks.composition.hypothetical import compose_hypothetical  # rarely needed

    provider = PROVIDERS[task.service]
    rows = first.slice(0, _MEASURED_ROWS)
    try:
        params = provider.check(provider.params.model_validate(task.parameters), rows.schema)
        if getattr(params, "series", None) is not None:
            return {"not_measured": SERIES}
        unit = unit_of_params(params)
        stream = Stream(key, "release ledger", _REVISION)
        found = compose_hypothetical(rows, provider, params, releases, (), stream, unit=unit)
    except ProviderError as error:
        return {"not_measured": str(error)}
    if not found.attacks:
        reasons = sorted(set(found.left_out.values()))
        return {"not_measured": reasons[0] if reasons else "the first rows are released unchanged"}
    worst = max(found.attacks, key=lambda name: found.attacks[name].attack.rate)
    details = found.attacks[worst].details
    return {
        "field": worst,
        "by": details["by"],
        "one_release": details["one_release"]["rate"],
        "all_releases": found.attacks[worst].attack.rate,
        "releases": releases,
        "rows": rows.num_rows,
        "unit": unit,
    }


def _message(
    match: str | None, earlier: EarlierSource, risk: dict[str, Any], epsilon: dict[str, Any] | None
) -> str:
    text = _risk_message(match, earlier, risk)
    if epsilon is None:
        return text
    if epsilon["all_releases"] is None:
        return f"{text}. {epsilon['limits']}"
    limits = "" if epsilon["limits"] is None else f". {epsilon['limits']}"
    return (
        f"{text}. The epsilons of all {epsilon['releases']} releases add up to {epsilon['all_releases']:.4g} "
        f"for an exchange of {listed(epsilon['fields'])}{limits}"
    )


def _risk_message(match: str | None, earlier: EarlierSource, risk: dict[str, Any]) -> str:
    count = earlier.releases
    times = "once" if count == 1 else f"{count} times"
    how = "" if match == "digest" else " (recognised by its rows, or by most of its fields)"
    begin = f"this source{how} was released {times} before, last at {earlier.last_released_at}"
    if "not_measured" in risk:
        return f"{begin}; the risk of all releases together was not measured: {risk['not_measured']}"
    counted = "rows" if risk.get("unit") is None else f"units of '{risk['unit']}'"
    return (
        f"{begin}. {risk['releases']} releases with these parameters restore '{risk['field']}' in "
        f"{risk['all_releases']:.0%} of the {counted}, one release in {risk['one_release']:.0%} (attack "
        f"'{risk['by']}', measured on hypothetical releases of the first {risk['rows']} rows)"
    )


def _first_rows(source: BlobTable) -> pa.Table:
    """Read the rows that are sketched, of all fields."""
    batches, rows = [], 0
    for batch in source.batches(source.schema.names):
        batches.append(batch)
        rows += batch.num_rows
        if rows >= SKETCHED_ROWS:
            break
    return pa.Table.from_batches(batches, source.schema).slice(0, SKETCHED_ROWS)
