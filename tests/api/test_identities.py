"""Authorisation of every operation: without a key, with a wrong key, and with another caller's key."""

import re
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from app.__main__ import main
from app.api.auth.scopes import NEEDED
from app.callers import ADMIN, METRICS, READ, RUN, SCOPES, SEEDS, THE_SERVICE
from app.jobs.api_keys import ApiKeys, NewKey, with_checksum
from app.jobs.stores import open_keys
from app.settings import Settings
from app.store.sql.db import Database
from app.store.sql.models import AuditLine
from tests.api.calls import Api

Rows = list[dict[str, Any]]
CALL = {"source": {"rows": [{"a": 1}, {"a": 2}]}, "parameters": {"swap_fields": ["a"]}}
OPEN = {"getLiveness", "getReadiness"}
METHODS = {"get", "post", "delete", "put", "patch"}


class Keys:
    """Creates keys for the shared service with its command line."""

    def __init__(self, home: Path, database: dict[str, str], address: str) -> None:
        settings = Settings.model_validate({"home": home} | database)
        self._database = Database(settings)
        self._keys = ApiKeys(self._database, open_keys(settings, self._database)[1])
        self._address = address

    def make(
        self, scopes: Collection[str] = tuple(SCOPES), name: str = "somebody", project: str | None = None
    ) -> str:
        return self._keys.create(NewKey(name, scopes, project, timedelta(hours=1)), THE_SERVICE)[0]

    def revoke(self, key: str) -> bool:
        return self._keys.revoke(key.split("_")[1], THE_SERVICE)

    def close(self) -> None:
        self._database.close()

    def audited(self, subject: str) -> list[tuple[str, str, str]]:
        """Return action, caller and reason of the lines of the audit log about a subject, sorted."""
        lines = sa.select(AuditLine.action, AuditLine.who, AuditLine.reason)
        with self._database.read() as session:
            found = session.execute(lines.where(AuditLine.subject == subject)).all()
        return sorted((action, who or "", reason or "") for action, who, reason in found)

    @contextmanager
    def client(self, key: str) -> Iterator[httpx.Client]:
        headers = {"authorization": f"Bearer {key}"}
        with httpx.Client(base_url=self._address, timeout=60, headers=headers) as opened:
            yield opened


@pytest.fixture(scope="module")
def keys(service_home: Path, database: dict[str, str], address: str) -> Iterator[Keys]:
    opened = Keys(service_home, database, address)
    yield opened
    opened.close()


@pytest.fixture
def here(service_home: Path, database: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment of the shared service's administrator."""
    monkeypatch.setenv("ROWVEIL_HOME", str(service_home))
    for name, value in database.items():
        monkeypatch.setenv(f"ROWVEIL_{name.upper()}", value)
    monkeypatch.setenv("ROWVEIL_AUTH", "on")


@pytest.fixture(scope="module")
def nobody(address: str) -> Iterator[httpx.Client]:
    """Client without credentials."""
    with httpx.Client(base_url=address, timeout=60) as opened:
        yield opened


@pytest.fixture(scope="module")
def stranger(keys: Keys) -> Iterator[httpx.Client]:
    """Another caller with every scope but admin."""
    with keys.client(keys.make((RUN, READ, SEEDS), "stranger")) as opened:
        yield opened


@pytest.fixture(scope="module")
def operations(client: httpx.Client) -> list[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of every operation."""
    paths = client.get("/openapi.json").json()["paths"]
    return [
        (method.upper(), path, operation)
        for path, described in paths.items()
        for method, operation in described.items()
        if method in METHODS
    ]


def test_every_operation_says_its_scope_and_refuses_a_caller_without(
    operations: list[tuple[str, str, dict[str, Any]]], nobody: httpx.Client, keys: Keys
) -> None:
    """401 without a key and 403 with a key of all other scopes, before any other check."""
    lacking = {scope: keys.make(set(SCOPES) - {scope}) for scope in SCOPES}
    guarded = 0
    for method, template, operation in operations:
        path = re.sub(r"\{\w+\}", "any", template)
        if operation["operationId"] in OPEN:
            assert operation["security"] == []
            assert nobody.request(method, path).status_code == 200
            continue
        assert template.startswith("/v1/") or template == "/metrics"
        assert operation["security"] == [{"bearer": []}]
        scope = operation["x-required-scope"]
        assert f"`{scope}`" in operation["description"]
        assert {"401", "403"} <= set(operation["responses"])
        problem = Api.problem(nobody.request(method, path), 401, "unauthenticated")
        assert "rowveil keys create" in problem["detail"]
        with keys.client(lacking[scope]) as client:
            refused = client.request(method, path)
        problem = Api.problem(refused, 403, "insufficient_scope")
        assert f"'{scope}'" in problem["detail"]
        assert f'scope="{scope}"' in refused.headers["www-authenticate"]
        assert ("ratelimit" in refused.headers) == template.startswith("/v1/")  # refused, but counted
        guarded += 1
    assert guarded == sum(scope is not None for scope in NEEDED.values()) > 20


def test_high_priority_needs_its_scope(api: Api, stranger: httpx.Client) -> None:
    """Refused at every call that makes a job; all other priorities are free."""
    refused = CALL | {"priority": "high"}
    for path, body in (
        ("/v1/services/DSWAP", refused),
        ("/v1/services/DSWAP", refused | {"validate_only": True}),
        ("/v1/measures", {"source": CALL["source"], "destination": CALL["source"], "priority": "high"}),
    ):
        problem = Api.problem(stranger.post(path, json=body), 403, "insufficient_scope")
        assert "'priority:high'" in problem["detail"]
    job = Api.job(stranger.post("/v1/services/DSWAP", json=CALL | {"priority": "low"}))
    again = {"priority": "high", "source": CALL["source"]}
    Api.problem(stranger.post(f"/v1/jobs/{job['id']}/rerun", json=again), 403, "insufficient_scope")
    assert Api.job(api.client.post("/v1/services/DSWAP", json=refused))["priority"] == "high"


def test_anothers_job_and_buffer_are_not_there(
    operations: list[tuple[str, str, dict[str, Any]]], api: Api, stranger: httpx.Client
) -> None:
    """404 for every operation with an id, as for an unknown id; also as a source."""
    job = api.job(api.client.post("/v1/services/DSWAP", json=CALL))["id"]
    upload = api.client.post("/v1/buffers", content=b"a\n1\n2\n", headers={"content-type": "text/csv"})
    buffer = upload.json()["id"]
    walked = 0
    for method, template, operation in operations:
        if "{job_id}" not in template and "{buffer_id}" not in template:
            continue
        path = template.replace("{job_id}", job).replace("{buffer_id}", buffer)
        queries = {"revealSeed": {"reason": "I am only curious"}, "compareJobRows": {"source": buffer}}
        query = queries.get(operation["operationId"], {})
        bodies = {"copyBuffer": {}, "annotateJob": {"name": "x"}, "annotateBuffer": {"name": "x"}}
        body = bodies.get(operation["operationId"])
        Api.problem(stranger.request(method, path, params=query, json=body), 404, "not_found")
        walked += 1
    assert walked >= 12
    run = {"source": {"buffer": buffer}, "parameters": {"swap_fields": ["a"]}}
    for call in (run, run | {"validate_only": True}):
        Api.problem(stranger.post("/v1/services/DSWAP", json=call), 422)
    rerun = {"source": {"buffer": buffer}}
    Api.problem(stranger.post(f"/v1/jobs/{job}/rerun", json=rerun), 422)
    listed = stranger.get("/v1/jobs", params={"page_size": 200}).json()["jobs"]
    assert job not in {each["id"] for each in listed}
    assert api.client.get(f"/v1/buffers/{buffer}").status_code == 200


def test_a_key_without_read_cannot_write_anothers_retained_rows_to_a_reference(keys: Keys) -> None:
    """It may be able to read the reference; with the source it has the rows anyway."""
    one, other = keys.make((RUN, READ), "one", "census"), keys.make((RUN,), "other", "census")
    with keys.client(one) as first, keys.client(other) as second:
        made = first.post("/v1/services/DSWAP", json=CALL | {"retain_source": True}).json()["id"]
        path, destination = f"/v1/jobs/{made}/rerun", {"reference": "s3://somewhere/rows.csv"}
        body = {"destination": destination}
        Api.problem(second.post(path, json=body), 403, "insufficient_scope")
        Api.problem(second.post(path, json=body | {"source": CALL["source"]}), 422)


def test_two_callers_may_think_of_one_idempotency_key(api: Api, stranger: httpx.Client) -> None:
    """Each caller has its own job."""
    headers = {"idempotency-key": "the-obvious-key"}
    mine = api.client.post("/v1/services/DSWAP", json=CALL, headers=headers)
    others = stranger.post("/v1/services/DSWAP", json=CALL, headers=headers)
    assert api.job(mine)["id"] != api.job(others)["id"]


def test_a_project_shares_reading_and_not_deleting(keys: Keys, stranger: httpx.Client) -> None:
    """Members see each other's jobs and rerun them, but cannot cancel, annotate or delete them."""
    one = keys.make((RUN, READ), "one", "census")
    other = keys.make((RUN, READ), "other", "census")
    again = keys.make((RUN, READ), "one")  # a new key of the same identity, without a project
    with keys.client(one) as first, keys.client(other) as second, keys.client(again) as later:
        made = first.post("/v1/services/DSWAP", json=CALL | {"retain_source": True}).json()["id"]
        path = f"/v1/jobs/{made}"
        assert second.get(f"{path}/rows").status_code == 200
        assert made in {job["id"] for job in second.get("/v1/jobs").json()["jobs"]}
        rerun = Api.job(second.post(f"{path}/rerun", json={}))
        assert rerun["reproduced"] is True
        assert stranger.get(path).status_code == 404
        Api.problem(second.post(f"{path}/cancel"), 403, "forbidden")
        Api.problem(second.delete(path), 403, "forbidden")
        Api.problem(second.patch(path, json={"notes": "mine now"}), 403, "forbidden")
        named = first.patch(path, json={"name": "wave 1"}).raise_for_status().json()
        assert second.get(path).json() == named
        assert Api.job(second.post(f"{path}/rerun", json={}))["name"] == "wave 1"
        assert later.get(path).status_code == 200
        assert later.delete(path).status_code == 204


@pytest.mark.parametrize("kind", ["services/DSWAP", "measures"])
def test_a_rerun_shows_nothing_to_a_key_that_may_not_read(keys: Keys, kind: str) -> None:
    """Unless the request gives the source; also if the request is repeated."""
    call: dict[str, Any] = CALL | {"retain_source": True}
    if kind == "measures":
        call = {"source": CALL["source"], "destination": CALL["source"], "retain_source": True}
    own = {"source": CALL["source"]} | ({"destination": CALL["source"]} if kind == "measures" else {})
    project = "measured" if kind == "measures" else "swapped"

    def shown(job: dict[str, Any]) -> bool:
        return "rows" in job.get("destination", {}) or "report" in job

    with (
        keys.client(keys.make((RUN, READ), "one", project)) as first,
        keys.client(keys.make((RUN,), "writer", project)) as writer,
        keys.client(keys.make((RUN, READ), "reader", project)) as reader,
    ):
        made = Api.job(first.post(f"/v1/{kind}", json=call))
        assert shown(made)
        path = f"/v1/jobs/{made['id']}/rerun"
        headers = {"idempotency-key": f"rerun of {made['id']}"}
        for _ in range(2):
            rerun = Api.job(writer.post(path, json={}, headers=headers))
            assert rerun["reproduced"] is True
            assert not shown(rerun)
        assert shown(Api.job(writer.post(path, json=own)))
        assert shown(Api.job(reader.post(path, json={})))


def test_an_admin_sees_all_and_needs_the_other_scopes_as_well(api: Api, keys: Keys, stranger: Any) -> None:
    job = stranger.post("/v1/services/DSWAP", json=CALL).json()["id"]
    assert api.client.get(f"/v1/jobs/{job}").status_code == 200
    with keys.client(keys.make((ADMIN,))) as alone:
        Api.problem(alone.get(f"/v1/jobs/{job}"), 403, "insufficient_scope")
    assert api.client.delete(f"/v1/jobs/{job}").status_code == 204


def test_a_scraper_reads_the_metrics_and_nothing_else(keys: Keys) -> None:
    """Metrics cover all callers: neither `read` nor `admin` includes them."""
    with keys.client(keys.make((METRICS,), "prometheus")) as scraper:
        assert "rowveil_build_info" in scraper.get("/metrics").raise_for_status().text
        for path in ("/v1/jobs", "/v1/services", "/v1/buffers/any"):
            Api.problem(scraper.get(path), 403, "insufficient_scope")
    with keys.client(keys.make(set(SCOPES) - {METRICS}, "reader")) as reader:
        Api.problem(reader.get("/metrics"), 403, "insufficient_scope")


def test_a_revoked_key_is_refused_at_its_next_call(keys: Keys) -> None:
    key = keys.make()
    with keys.client(key) as client:
        assert client.get("/v1/services").status_code == 200
        assert keys.revoke(key)
        answer = client.get("/v1/services")
        Api.problem(answer, 401, "invalid_token")
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    assert not keys.revoke(key)  # no key is left to revoke


def test_what_is_no_key_is_refused(keys: Keys, key: str, address: str) -> None:
    """A wrong secret, a wrong checksum, another scheme, two headers, and a key in the URL."""
    other = with_checksum(f"{key[:14]}{'0' * 43}")
    wrong = key[:-1] + ("0" if key[-1] != "0" else "1")
    for text in (other, wrong, key[3:], f"{key}x", "rv_", "x.y.z"):
        with keys.client(text) as client:
            Api.problem(client.get("/v1/jobs"), 401, "invalid_token")
    for headers in (
        [("authorization", f"Basic {key}")],
        [("authorization", key)],
        [("authorization", "Bearer")],
        [("authorization", f"Bearer {key}"), ("authorization", f"Bearer {key}")],
    ):
        answer = httpx.get(f"{address}/v1/jobs", headers=headers)
        Api.problem(answer, 401, "unauthenticated")
    assert httpx.get(f"{address}/v1/jobs", params={"access_token": key}).status_code == 401


@pytest.mark.parametrize("served", ["sqlite"], indirect=True)
def test_a_key_cannot_be_given_more_in_the_database(keys: Keys, service_home: Path) -> None:
    """Neither scopes nor expiry nor name can be changed: the database does not have the HMAC's key."""
    for column, value in (("scopes", "run read seeds:read admin"), ("name", "edith"), ("project", "census")):
        key = keys.make((READ,))
        with closing(sqlite3.connect(service_home / "rowveil.db", timeout=30)) as database, database:
            change = f"UPDATE api_keys SET {column} = ? WHERE id = ?"
            database.execute(change, (value, key.split("_")[1]))
        with keys.client(key) as client:
            Api.problem(client.get("/v1/services"), 401, "invalid_token")


def test_no_key_is_in_the_storage(service_home: Path, keys: Keys) -> None:
    """A copy of the home without the folder of keys authenticates nobody."""
    secret = keys.make().split("_")[2].encode()
    for path in service_home.rglob("*"):
        if path.is_file() and path.parent.name != "keys":
            assert secret not in path.read_bytes(), path.name


def test_a_key_is_what_a_scanner_looks_for(key: str) -> None:
    assert re.fullmatch(r"rv_[0-9A-Za-z]{10}_[0-9A-Za-z]{49}", key)
    assert with_checksum(key[:-6]) == key


def test_a_seed_is_revealed_with_a_scope_and_a_reason(
    api: Api, keys: Keys, capfd: pytest.CaptureFixture[str], here: None
) -> None:
    """The seed is correct and not cached, and the audit log has caller and reason."""
    job = api.job(api.client.post("/v1/services/DSWAP", json=CALL | {"seed": "0123456789abcdef01234567"}))
    path = f"/v1/jobs/{job['id']}/seed"
    Api.problem(api.client.get(path), 422)
    Api.problem(api.client.get(path, params={"reason": "no"}), 422)
    hidden = Api.problem(api.client.get(path, params={"reason": "the release\0is disputed"}), 422)
    assert hidden["errors"][0]["parameter"] == "reason"
    answer = api.client.get(path, params={"reason": "the release is disputed"})
    assert answer.json() == {
        "seed": "0123456789abcdef01234567",
        "bits": 96,
        "seed_fingerprint": job["seed_fingerprint"],
    }
    assert answer.headers["cache-control"] == "no-store"
    with keys.client(keys.make((RUN, READ, ADMIN))) as client:
        Api.problem(client.get(path, params={"reason": "the release is disputed"}), 403)
    assert main(["audit", "verify"]) == 0
    assert "the audit is intact" in capfd.readouterr().out


def test_the_command_line_makes_lists_and_revokes(
    keys: Keys, capfd: pytest.CaptureFixture[str], here: None
) -> None:
    """A key is printed once, alone, and is valid until it is revoked."""
    assert main(["keys", "create", "--name", "pipeline", "--scopes", "run,read", "--expires", "30m"]) == 0
    text, printed = capfd.readouterr()
    key = text.strip()
    assert "not shown again" in printed
    with keys.client(key) as client:
        assert client.get("/v1/services").status_code == 200
        assert main(["keys", "list"]) == 0
        listed = capfd.readouterr().out
        assert key.split("_")[1] in listed
        assert key.split("_")[2] not in listed
        assert main(["keys", "revoke", key.split("_")[1]]) == 0
        assert client.get("/v1/services").status_code == 401
    assert main(["keys", "revoke", key.split("_")[1]]) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--name", "oidc:me"], "a key's name is"),
        (["--name", "service"], "none of anonymous"),
        (["--name", "me", "--scopes", "reed"], "did you mean 'read'?"),
        (["--name", "me", "--expires", "soon"], "such as 90d"),
    ],
)
def test_the_command_line_says_what_is_wrong(
    options: list[str], said: str, capfd: pytest.CaptureFixture[str], here: None
) -> None:
    """Reserved names, unknown scopes and invalid durations."""
    assert main(["keys", "create", *options]) != 0
    text, printed = capfd.readouterr()
    assert said in printed
    assert text == ""


def test_the_own_key_is_made_once_and_kept_for_its_user_alone(
    service_home: Path, key: str, capfd: pytest.CaptureFixture[str], here: None
) -> None:
    assert main(["keys", "own"]) == 0
    assert capfd.readouterr().out.split()[-1] == key
    assert (service_home / "keys" / "own.key").stat().st_mode & 0o777 == 0o600


def test_the_own_key_gets_a_scope_that_a_new_version_has_added(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROWVEIL_HOME", str(tmp_path))
    monkeypatch.setenv("ROWVEIL_AUTH", "on")
    monkeypatch.delenv("ROWVEIL_DATABASE_URL", raising=False)
    older = ",".join(set(SCOPES) - {METRICS})
    assert main(["keys", "create", "--name", "local-me", "--scopes", older]) == 0
    own = tmp_path / "keys" / "own.key"
    own.write_text(capfd.readouterr().out)
    assert main(["keys", "own"]) == 0
    made = capfd.readouterr().out.split()[-1]
    assert own.read_text().strip() == made
    assert main(["keys", "own"]) == 0
    assert capfd.readouterr().out.split()[-1] == made
    assert main(["keys", "list"]) == 0
    (listed,) = (line for line in capfd.readouterr().out.splitlines() if line.startswith(made.split("_")[1]))
    assert all(scope in listed for scope in SCOPES)
