"""``rowveil attack SOURCE DESTINATION``: attack a release, and print the verdict, or the report as JSON."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from app.cli.exit_codes import CommandFailed, Exit
from app.cli.files import STANDARD, check_places, write
from app.cli.outputs import Keys, check_report_name, finish_job, new_job, write_manifest, write_report
from app.cli.request_builder import Call
from app.cli.seeds import seed_given, seed_kept
from app.cli.streams import shown
from app.cli.verify import read_manifest, upload_as_signed
from app.cli.workspace import Workspace
from app.errors import AppError
from app.formats.errors import FormatError
from app.job_kinds import ATTACKS
from app.jobs.states import State
from app.requests.attacks import AttackRequest, checked_attack
from app.settings import Settings, thresholds_of
from app.store.sql.models import Job
from app.worker.run_attacks import run_attacks
from app.worker.tasks import AttackTask
from providers.errors import ProviderError
from providers.tables.digest import DigestForm, form_of

_ITS_TABLES = {"source": {"buffer": "the source"}, "destination": {"buffer": "the destination"}}

_PLACES = {"/job": "--made-by", "/source": "SOURCE", "/destination": "DESTINATION", "/control": "--control"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that are no members of the request."""
    parser.add_argument(
        "--control", metavar="FILE", help="rows of the same population that were not in the source"
    )
    parser.add_argument(
        "--made-by",
        metavar="MANIFEST",
        help="manifest of the run that made the destination. Without --control, the suite attacks a sister "
        "release: the same service on the source without a tenth of its rows, which are the control",
    )
    parser.add_argument(
        "--advice",
        action="store_true",
        help="with --made-by: try other values of the service's parameters on a sample",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON, not the verdict")


def attack(call: Call, settings: Settings) -> int:
    """Attack the destination; print the verdict, or the report. Raises CommandFailed."""
    given = call.namespace
    names = {"source": given.source, "destination": given.destination, "control": given.control}
    names = {role: name for role, name in names.items() if name is not None}
    check_report_name(given.report)
    if list(names.values()).count(STANDARD) > 1:
        raise CommandFailed(f"'{STANDARD}' can stand for only one of the tables", Exit.USAGE)
    if given.advice and given.made_by is None:
        raise CommandFailed("--advice: tries other parameters of a service: give --made-by", Exit.USAGE)
    outputs = {
        "the verdict": STANDARD,
        "--report": given.report,
        "--manifest": given.manifest,
        "--keep-seed": given.keep_seed,
    }
    check_places([*names.values(), given.made_by, given.seed_file], outputs)
    made = None if given.made_by is None else read_manifest(given.made_by)[0]
    signed = made or {}
    uploads = {role: upload_as_signed(call, name, signed.get(role)) for role, name in names.items()}
    seed = seed_given(given)
    request = call.request(AttackRequest, **_ITS_TABLES, seed=seed)
    assert request.seed is not None  # `seed_given` returns or draws one
    keys = Keys.of(settings) if given.manifest else None
    with Workspace(settings, given.quiet) as workspace:
        forms = {role: _form_of(signed.get(role)) for role in names}
        tables = {role: workspace.read(name, uploads[role], forms[role]) for role, name in names.items()}
        try:
            sources = {role: call.source(table) for role, table in tables.items()}
            parameters, options = checked_attack(
                request,
                sources["source"],
                sources["destination"],
                sources.get("control"),
                thresholds_of(settings, None),
                None if made is None else _run_of(made),
            )
        except (AppError, ProviderError, FormatError) as error:
            if place := _PLACES.get(error.pointer):
                raise CommandFailed(f"{place}: {error.message}", Exit.USAGE) from None
            raise call.failure(error) from None
        if given.advice:
            options["advice"] = True
        stored = {role: table.stored for role, table in tables.items()}
        values = parameters.model_dump(mode="json")
        job = new_job(ATTACKS, values, options, *stored.values())
        task = AttackTask(
            job_id=job.id,
            seed=request.seed.secret,
            source=tables["source"].access,
            destination=tables["destination"].access,
            control=tables["control"].access if "control" in tables else None,
            parameters=values,
            options=options,
            progress_path=str(workspace.progress_path),
        )
        found = workspace.run(run_attacks, task)
        report = finish_job(job, found, request.seed.secret, request.seed.bits, keys)
    assert report is not None  # attacks always have one
    with seed_kept(given, seed):
        if given.json:
            write_report(job, report, STANDARD)
        else:
            write(STANDARD, [f"{shown(line)}\n".encode() for line in _lines(report)])
        if given.report is not None:
            write_report(job, report, given.report)
    if given.manifest:
        write_manifest(job, given.manifest)
    return Exit.OK


def _run_of(manifest: Mapping[str, Any]) -> Job:
    """Return the run that a manifest describes. Raises CommandFailed: it describes something else."""
    if "destination" not in manifest or "report_digest" in manifest:
        raise CommandFailed("--made-by: the manifest is not from a run of a service", Exit.USAGE)
    return Job(
        id=manifest["job"],
        service=manifest["service"],
        revision=manifest["revision"],
        parameters=manifest["parameters"],
        source_digest=manifest["source"]["digest"],
        state=State.SUCCEEDED,
    )


def _form_of(table: Mapping[str, Any] | None) -> DigestForm:
    """Return the form of the digest of a table in a manifest, if there is one. Raises CommandFailed."""
    if table is None:
        return DigestForm.PARTS
    try:
        return form_of(table["digest"])
    except ValueError:
        raise CommandFailed(
            f"--made-by: this version does not know the form of the signed digest {table['digest']}"
        ) from None


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the verdict, its reasons, and one line for each attack."""
    verdict = report["verdict"]
    yield f"risk: {verdict['state']}"
    yield from (f"  {reason}" for reason in verdict["reasons"])
    if advice := report.get("advice"):
        yield f"advice: {advice['sentence']}"
    yield f"control: {report['control']}"
    head = ("attack", "release", "guessing", "control", "risk", "interval", "verdict")
    rows = [head, *(_row(each, report["attacks"]) for each in verdict["attacks"])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    for name, reason in report["left_out"].items():
        yield f"left out: {name}: {reason}"


def _row(state: Mapping[str, Any], attacks: Mapping[str, Any]) -> tuple[str, ...]:
    found = attacks[state["attack"]]
    name = state["attack"]
    if (field := state.get("field")) is not None:
        found = found[field]
        name = f"{name} '{field}'"
    rates = [
        "-" if which not in found else f"{100 * found[which]['rate']:.1f} %"
        for which in ("attack", "baseline", "control")
    ]
    interval = f"{state['low']:.3f} to {state['high']:.3f}"
    return (name, *rates, f"{state['value']:.3f}", interval, str(state["state"]))
