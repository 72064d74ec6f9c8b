"""Requests of the client: path, tables to upload, and the other members of the body."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import pyarrow as pa

from rowveil_client.tables import as_arrow


class Webhook(TypedDict):
    """Address to notify when a job has ended, and the secret that signs the message."""

    url: str
    secret: str


class Submission(TypedDict, total=False):
    """Options of every call that creates a job."""

    name: str
    """Name for people."""
    label: str
    """Label that jobs which belong together share."""
    notes: str
    """Notes for people."""

    priority: str
    """`low`, `normal` or `high`; `high` needs the scope `priority:high`."""
    deadline_seconds: float
    """Seconds after acceptance by which the job must have ended, or it fails with `deadline_exceeded`."""
    webhook: Webhook


_PAGE_SIZE = 200


@dataclass(frozen=True, slots=True)
class Call:
    """Request that creates a job."""

    path: str
    tables: dict[str, pa.Table]
    """Member of the request -> table to upload for it."""
    members: dict[str, Any]

    def body(self, sources: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Return the body; ``sources``: member -> uploaded buffer."""
        return self.members | sources | more


def unpicklable(name: str) -> str:
    """Return the message about an attempt to pickle a client; ``name``: name of its class."""
    return (
        f"a {name} cannot be pickled or copied, because its connections belong to this process: create one "
        "in each process"
    )


def run_call(service: str, table: pa.Table, members: dict[str, Any], parameters: dict[str, Any]) -> Call:
    """Return the call of a service; members that are None are left out."""
    return Call(f"/v1/services/{service}", {"source": table}, _given(members | {"parameters": parameters}))


def measure_call(table: Any, release: Any, members: dict[str, Any]) -> Call:
    """Return the call that measures a release against its source."""
    return Call("/v1/measures", _tables(source=table, destination=release), _given(members))


def frontier_call(table: Any, services: Sequence[Any], members: dict[str, Any]) -> Call:
    """Return the call that compares services and parameters on a table."""
    return Call("/v1/frontier", _tables(source=table), _given(members | {"services": list(services)}))


def attack_call(table: Any, release: Any, control: Any, job: str | None, members: dict[str, Any]) -> Call:
    """Return the call that attacks a release, or the release of a job.

    Raises RuntimeError: there is neither.
    """
    if release is None and job is None:
        raise RuntimeError("there is nothing to attack: give a 'release' or a 'job', or call a service first")
    named = _given(members) | ({"job": job} if release is None else {})
    return Call("/v1/attacks", _tables(source=table, destination=release, control=control), named)


def changes(name: str | None, label: str | None, notes: str | None) -> dict[str, str]:
    """Return the members of a change of texts; texts that are None are left out."""
    return _given({"name": name, "label": label, "notes": notes})


def listing(name: str | None, label: str | None, page: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the query for a page of jobs, the first one or the one after ``page``."""
    token = None if page is None else page["next_page_token"]
    return _given({"name": name, "label": label, "page_size": _PAGE_SIZE, "page_token": token})


def credentials(key: str | None) -> dict[str, str]:
    """Return the header with the API key, without the line end of a key file: httpx would quote the key."""
    return {} if key is None else {"authorization": f"Bearer {key.strip()}"}


def path_of(job: dict[str, Any], part: str = "") -> str:
    """Return the path of the last call's job, or of a part of it. Raises RuntimeError: there was none."""
    if "id" not in job:
        raise RuntimeError(
            "this client has no job yet; call a service, 'measure', 'frontier' or 'attack' first"
        )
    return f"/v1/jobs/{job['id']}{part}"


def run_of(job: dict[str, Any]) -> str | None:
    """Return the id of the run whose release a job made or attacked; None if there was none."""
    run: str | None = job.get("parameters", {}).get("job") or job.get("id")
    return run


def _tables(**tables: Any) -> dict[str, pa.Table]:
    return {role: as_arrow(table)[0] for role, table in tables.items() if table is not None}


def _given(members: dict[str, Any]) -> dict[str, Any]:
    """Return the members that are not None as plain JSON, before a table is uploaded. Raises TypeError."""
    given = {name: value for name, value in members.items() if value is not None}
    plain: dict[str, Any] = json.loads(json.dumps(given, default=_plain, allow_nan=False))
    return plain


def _plain(value: Any) -> Any:
    """Return numbers and lists of numpy and pandas as Python's own types, and dates as text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"an argument has a value that JSON cannot hold, of type {type(value).__qualname__}")
