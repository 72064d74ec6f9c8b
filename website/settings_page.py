"""Page of the settings, made from their declarations: `docs/settings.md`."""

from collections.abc import Iterator
from typing import Any

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from app.settings import Settings, at_most_a_century
from providers.described_model import field_descriptions

_INTRODUCTION = """\
# Settings

Every setting of the service is an environment variable. This page lists all of them; it is made from
`app/settings.py`. `rowveil serve` reads them at its start, so that a change needs a restart. The
[administration commands](operations.md#settings-of-the-administration-commands) need the
settings of the service, and [commands on local tables](command_line.md) use the settings about
the home, a table or a worker. A variable `ROWVEIL_...` that is no setting, or a value that is
not allowed, is an error, and nothing starts. An empty text for a folder, a file or the address
to listen on is also an error: unset the variable for its default.

Times are in seconds, finite and at most 100 years, and sizes in bytes unless the name says otherwise. A
switch is `true` or `false`. The last column describes *computed* defaults.
"""

_SECTIONS = {
    "home": "Database, folders and storage",
    "workers": "Workers and kernels",
    "host": "Server, authentication and tokens",
    "release_policy": "Releases and pages of other origins",
    "request_patience": "Connections and sizes",
    "source_prefixes": "Tables by reference",
    "buffer_ttl": "Retention",
    "priority_weight": "Callers",
    "attack_thresholds": "Attacks, webhooks and the audit's anchors",
    "log_format": "Logs, shutdown and keys",
}
"""First setting of a section -> the section's title."""

_OTHERS = (
    ("`ROWVEIL_SEED`", "seed of a command on local tables ([command line](command_line.md#the-seed))"),
    ("`ROWVEIL_API_KEY`", "a caller's key, which the programs in `examples/` read"),
    (
        "`AWS_REGION`, `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and others of AWS",
        "buckets of [tables](operations.md#tables-in-an-object-store), [references](references.md) and "
        "[anchors](operations.md#the-audits-anchors)",
    ),
    ("`OTEL_EXPORTER_OTLP_ENDPOINT` and others of OpenTelemetry", "[traces](observability.md#traces)"),
    (
        "`NUMBA_NUM_THREADS`, `OMP_WAIT_POLICY`, `GOMP_SPINCOUNT`",
        "[threads of kernels](operations.md#threads-and-cores)",
    ),
    (
        "`XDG_CACHE_HOME`",
        "folder whose subfolder `rowveil` keeps compiled kernels ([kernels](operations.md#kernels))",
    ),
    (
        "`TMPDIR`",
        "folder of the fork server's socket, and of the scratch files of a command on local tables",
    ),
)
"""Variables that are no settings, with their meaning."""

_UNITS = {2**40: "TiB", 2**30: "GiB", 2**20: "MiB", 2**10: "KiB"}
_TIMES = {24 * 3600: "days", 3600: "hours", 60: "minutes"}


def settings_page() -> str:
    """Return the page of all settings as Markdown."""
    others = [f"| {name} | {meaning} |" for name, meaning in _OTHERS]
    head = ["", "## Other variables", "", "| variable | meaning |", "| --- | --- |"]
    return "\n".join([_INTRODUCTION, *_tables(), *head, *others, ""])


def _tables() -> Iterator[str]:
    described = field_descriptions(Settings)
    for name, field in Settings.model_fields.items():
        if name in _SECTIONS:
            blank = "" if name == next(iter(_SECTIONS)) else "\n"
            yield f"{blank}## {_SECTIONS[name]}\n"
            yield "| setting | default | allowed | meaning |"
            yield "| --- | --- | --- | --- |"
        meaning = " ".join(described[name].split()).replace("|", "\\|")
        allowed = _allowed(field)
        yield f"| `ROWVEIL_{name.upper()}` | {_default(name, field)} | {allowed} | {meaning} |".replace(
            "|  |", "| |"
        )


def _default(name: str, field: FieldInfo) -> str:
    value: Any = field.default
    if field.default_factory is not None:
        return "*computed*"
    if value in ("", None) or value == () or value == {}:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value is PydanticUndefined or not isinstance(value, int | float):
        return f"`{value}`"
    return f"`{value:.15g}`{_readable(name, value)}"


def _readable(name: str, value: float) -> str:
    """Return a large size or time in a unit that is easy to read, in brackets; empty for others."""
    units: dict[int, str] = _UNITS if name.endswith("bytes") else {} if isinstance(value, int) else _TIMES
    for size, unit in units.items():
        if value >= size and value % size == 0:
            number = int(value // size)
            return f" ({number} {unit.removesuffix('s') if number == 1 else unit})"
    return ""


def _allowed(field: FieldInfo) -> str:
    """Return the limits of a number."""
    limits = []
    for rule in field.metadata:
        match rule:
            case Ge(ge=least):
                limits.append(f"at least {least}")
            case Gt(gt=less):
                limits.append(f"over {less}")
            case Le(le=most):
                limits.append(f"at most {most}")
            case AfterValidator() if rule.func is at_most_a_century:
                limits.append("at most 100 years")
    return ", ".join(sorted(limits, key=lambda limit: limit.startswith("at most")))
