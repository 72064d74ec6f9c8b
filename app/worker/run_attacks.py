"""Attacks on a release in a worker: of a job of their own, or after a run of a service."""

from typing import Any

from app.engine.progress_file import ProgressFile
from app.job_kinds import AttackParameters
from app.store.blobs.arrow_stream import read_table
from app.worker.attack_figures import attack_figures
from app.worker.headline import with_headline
from app.worker.run_swap import reported, returns_user_errors
from app.worker.tasks import AttackTask
from providers.attacks.options import AttackOptions
from providers.attacks.suite import MethodUsed
from providers.compiled_services import MEASURES_NAME, wait_until_compiled
from providers.progress import sub_progress

_LOADED = 0.02  # estimated share of the run after which the tables are read

_CONTROLS = {
    "given": "Risks are relative to the control rows that were given.",
    "sister": "The attacks were made on a sister release: the same service with the same parameters on the "
    "source without a random tenth of its rows, or of its units or households if the parameters name these. "
    "These rows are the control. The sister release was thrown away.",
    "none": "There are no control rows: risks are relative to guessing, and count facts that hold for "
    "everybody as disclosed.",
}

_LIMITS = (
    "An attack that fails here may succeed for an intruder who knows more fields, or other releases of the "
    "same source.",
    "The figures are means over many records; single records may be at a higher risk.",
)

_NOT_ALIGNED = (
    "It is not known which row of the destination belongs to which row of the source: attacks that need it "
    "are left out."
)


@returns_user_errors
def run_attacks(task: AttackTask) -> dict[str, Any]:
    """Attack the destination, and return the columns of the job's row."""
    parameters = AttackParameters.model_validate(task.parameters)
    options = AttackOptions(**{name: getattr(parameters, name) for name in AttackOptions.model_fields})
    method = None
    if parameters.method is not None:
        method = MethodUsed(parameters.method.service, parameters.method.parameters)
    with ProgressFile(task.progress_path, create=True) as progress:
        progress(0.0, "reading")
        for name in (MEASURES_NAME, *([] if method is None else [method.service])):
            wait_until_compiled(name)
        source, destination = read_table(task.source), read_table(task.destination)
        control = None if task.control is None else read_table(task.control)
        found = attack_figures(
            source,
            destination,
            control,
            options,
            method,
            parameters.aligned,
            task.seed,
            task.options,
            sub_progress(progress, _LOADED, 1.0),
        )
        progress(1.0, "attacked")
    summary = {
        "rows": source.num_rows,
        "destination_rows": destination.num_rows,
        "control_rows": None if control is None else control.num_rows,
        "aligned": parameters.aligned,
    }
    limits = [_CONTROLS[found["control"]], *_LIMITS, *([] if parameters.aligned else [_NOT_ALIGNED])]
    report = {
        "summary": {name: value for name, value in summary.items() if value is not None},
        "measures": {},
        "provider": {},
        "limits": limits,
        "pictures": {},
        "left_out": found.pop("left_out"),
        **found,
    }
    return reported(with_headline(report, task.options))
