"""Record the response examples of the OpenAPI document: ``python -m website.response_examples``.

The program starts the service, sends the request example of every operation with a fixed seed, and requests
that the service must refuse. It keeps the responses; only ids, times, keys and the platform are replaced.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import orjson

from app.api.pages.examples import BUFFER_ID, JOB_ID, SERIES, example_file
from app.api.pages.response_examples import FILE
from app.main import create_app
from app.settings import Settings
from demo.service import own_key, running_service

Json = dict[str, Any]

SEED = "8f1c7a0b52e94d63"

_SERVICE = {
    "auth": "on",
    "workers": "1",
    "warm_workers": "false",
    "compile_kernels": "false",
    "release_policy": "allow",
    "default_wait_seconds": "60",
}

_ASYNC = {"prefer": "respond-async"}

_NOBODY = "00000000-0000-7000-8000-00000000ffff"
"""Id of no job and no buffer."""

_FIXED: Json = {
    "request_id": "0123456789abcdef0123456789abcdef",
    "seed_fingerprint": "0123456789abcdef",
    "next_page_token": "cGFnZSAy",
    "key_id": "0123456789abcdef",
    "public_key": "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=",
    "platform": "Linux",
    "owner": "own",
}
"""Member that differs between services -> its value in the examples."""

_SIGNATURE = "A" * 86 + "=="

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(?=Z|\+00:00)")


def recorded() -> Json:
    """Return operation id -> status -> body of the response."""
    examples: Json = {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with running_service(home, **_SERVICE) as address:
            key = own_key(home)
            with _client(address, key) as client:
                recorder = _Recorder(client, examples)
                recorder.record_successes()
                recorder.record_refusals()
            with _client(address, "") as stranger:
                _Recorder(stranger, examples).record_all(401)
            for scope in ("metrics:read", "read"):
                with _client(address, _key(home, scope.partition(":")[0], scope)) as other:
                    _Recorder(other, examples).record_all(403, required=scope == "read")
        once = _SERVICE | {"release_policy": "refuse"}
        with running_service(home, **once) as address, _client(address, key) as client:
            _Recorder(client, examples).record_second_releases()
        with running_service(home, **_SERVICE | _RARELY) as address, _client(address, key) as client:
            client.get("/v1/services")
            _Recorder(client, examples).record_all(429)
    return {name: dict(sorted(statuses.items())) for name, statuses in sorted(examples.items())}


_RARELY = {"caller_request_rate": "0.0001", "caller_request_burst": "1"}


def _key(home: Path, name: str, scopes: str) -> str:
    """Create a key with these scopes."""
    command = [sys.executable, "-m", "app", "keys", "create", "--name", name, "--scopes", scopes]
    environment = os.environ | {"ROWVEIL_HOME": str(home), "ROWVEIL_AUTH": "on"}
    done = subprocess.run(  # noqa: S603 - the service's own command
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
    )
    found = re.search(r"rv_\S+", done.stdout)
    if found is None:
        raise ValueError("no key was printed")
    return found[0]


@contextmanager
def _client(address: str, key: str) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(base_url=address, headers=headers, timeout=120) as client:
        yield client


@cache
def _operations() -> dict[str, tuple[str, str, Json]]:
    """Return operation id -> method, path and operation, which the document takes half a second to make."""
    return {
        operation["operationId"]: (method.upper(), path, operation)
        for path, methods in create_app(Settings()).openapi()["paths"].items()
        for method, operation in methods.items()
    }


class _Recorder:
    """Sender of requests that stores the responses."""

    def __init__(self, client: httpx.Client, examples: Json) -> None:
        self.client = client
        self.examples = examples
        self.operations = _operations()
        self.job = self.buffer = _NOBODY

    def record_successes(self) -> None:
        """Record a success of every operation, deletions last."""
        self.buffer = self._keep("createBuffer", self._send("createBuffer")).json()["id"]
        self.job = self._keep("runCdswap", self._send("runCdswap")).json()["id"]
        self._send_of_series({"prefer": "wait=60"})
        last = ["cancelJob", "deleteJob", "deleteBuffer", "deleteSeries"]
        done = {"createBuffer", "runCdswap", *last}
        reads_first = sorted(self.operations, key=lambda each: (self.operations[each][0] != "GET", each))
        for name in [each for each in reads_first if each not in done]:
            self._keep(name, self._send(name))
        self._record_queued()

    def _send_of_series(self, headers: Json) -> httpx.Response:
        """Run a service on the table of a series."""
        body = self._body("runDswap")
        parameters = body["parameters"] | {"unit_id": "age", "series": SERIES}
        return self.client.post(
            "/v1/services/DSWAP", json=body | {"parameters": parameters}, headers=headers
        ).raise_for_status()

    def _record_queued(self) -> None:
        """Record what an occupied service accepts: the only worker has a long job, all others are queued."""
        body = self._body("compareServices") | {"runs": 100}
        busy = self.client.post("/v1/frontier", json=body, headers=_ASYNC).json()["id"]
        waiting_job = self._send_of_series(_ASYNC).json()["id"]
        self._keep("deleteSeries", self._send("deleteSeries"))  # a job of it is queued: a conflict
        self.client.post(f"/v1/jobs/{waiting_job}/cancel")
        for name, (_, _, operation) in self.operations.items():
            if "202" in operation["responses"]:
                answer = self._keep(name, self._send(name, headers=_ASYNC))
                self.job, kept = answer.json()["id"], self.job
                if name == "runCdswap":
                    for waiting in ("getJobRows", "getJobReport", "getJobManifest", "deleteJob"):
                        self._keep(waiting, self._send(waiting))
                    self._keep("compareJobRows", self._send("compareJobRows"))
                    self._keep("rerunJob", self._send("rerunJob"))
                cancelled = self._send("cancelJob")
                if name == "runCdswap":
                    self._keep("cancelJob", cancelled)
                self.job = kept
        self.client.post(f"/v1/jobs/{busy}/cancel")
        self._keep("cancelJob", self._send("cancelJob"))  # it has ended: a conflict

    def record_refusals(self) -> None:
        """Record requests that are wrong in one respect each."""
        for name, (_, path, operation) in self.operations.items():
            if operation["security"]:
                self._keep(name, self._send(name, query={"unknown": "1"}))
            if "{" in path:
                unknown = {"job_id": _NOBODY, "buffer_id": _NOBODY, "identifier": "SWAP", "name": "no-series"}
                self._keep(name, self._send(name, path=unknown))
            if "406" in operation["responses"]:
                self._keep(name, self._send(name, headers={"accept": "image/png"}))
            if "requestBody" in operation:
                kind = {"content-type": "application/json"}
                self._keep(name, self._send(name, headers=kind, content=b'{"source": '))
                self._keep(name, self._send(name, headers={"content-type": "text/html"}, content=b"<p>"))
                if name == "createBuffer":
                    broken = {"content-type": "text/csv", "content-encoding": "gzip"}
                    self._keep(name, self._send(name, headers=broken, content=b"no gzip"))

    def record_second_releases(self) -> None:
        """Record that a source which was released must not be released again."""
        self._send("runCdswap")
        for name in self.operations:
            if name.startswith("run"):
                self._keep(name, self._send(name))

    def record_all(self, status: int, required: bool = True) -> None:
        """Record a response with this status of every operation that declares it.

        ``required``: raise ValueError if an operation without such an example answers otherwise.
        """
        for name, (_, _, operation) in self.operations.items():
            if str(status) in operation["responses"] and str(status) not in self.examples.get(name, {}):
                answer = self._keep(name, self._send(name))
                if required and answer.status_code != status:
                    raise ValueError(
                        f"{name} answers {answer.status_code}, not {status}: {answer.text[:300]}"
                    )

    def _body(self, name: str) -> Json:
        body: Json = dict(self.operations[name][2]["requestBody"]["content"]["application/json"]["example"])
        properties = {"attack", "compareServices", "measure"}
        return body | ({"seed": SEED} if name in properties or name.startswith("run") else {})

    def _send(
        self,
        name: str,
        path: Json | None = None,
        query: Json | None = None,
        headers: Json | None = None,
        content: bytes | None = None,
    ) -> httpx.Response:
        method, template, operation = self.operations[name]
        ids = {JOB_ID: self.job, BUFFER_ID: self.buffer}
        places: dict[str, Json] = {"path": {}, "query": {}, "header": {}}
        for parameter in operation.get("parameters", ()):
            if "example" in parameter:
                example = parameter["example"]
                places[parameter["in"]][parameter["name"]] = ids.get(example, example)
        url = template.format(**places["path"] | (path or {}))
        sent: Json = {
            "params": places["query"] | (query or {}),
            "headers": places["header"] | (headers or {}),
        }
        if content is not None:
            sent["content"] = content
        elif name == "createBuffer":
            sent |= {"content": example_file("csv")}
            sent["headers"] = {"content-type": "text/csv"} | sent["headers"]
        elif name == "createBufferFromForm":
            sent["files"] = {"file": ("people.csv", example_file("csv"), "text/csv")}
        elif "requestBody" in operation:
            sent["json"] = self._body(name)
        return self.client.request(method, url, **sent)

    def _keep(self, name: str, answer: httpx.Response) -> httpx.Response:
        """Store the response if its status and type are declared, and none is stored yet."""
        declared = self.operations[name][2]["responses"].get(str(answer.status_code), {}).get("content", {})
        kind = answer.headers.get("content-type", "").partition(";")[0]
        if kind in declared and kind.endswith("json"):
            own = {self.job: JOB_ID, self.buffer: BUFFER_ID}
            self.examples.setdefault(name, {}).setdefault(str(answer.status_code), _fixed(answer.json(), own))
        return answer


def _fixed(value: Any, ids: dict[str, str]) -> Any:
    """Return the JSON value without what differs between two runs."""
    if isinstance(value, dict):
        if value.keys() == {"algorithm", "key_id", "public_key", "value"}:
            value = value | {"value": _SIGNATURE}
        if "parameters_schema" in value:  # linters would follow the references of the whole schema
            whole = value["parameters_schema"]
            value = value | {"parameters_schema": {name: whole[name] for name in ("title", "type")}}
        return {
            name: _FIXED[name] if name in _FIXED and isinstance(inner, str) else _fixed(inner, ids)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_fixed(inner, ids) for inner in value]
    if isinstance(value, str):
        value = _UUID.sub(lambda found: ids.get(found[0], found[0] if found[0] == _NOBODY else JOB_ID), value)
        return _TIME.sub("2026-11-24T12:00:00", value)
    return value


def main() -> int:
    """Write the file of examples."""
    content = orjson.dumps(recorded(), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"
    FILE.write_bytes(content)
    print(f"wrote {FILE.name}: {len(content):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
