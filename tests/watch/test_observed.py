"""Metrics, traces and log lines of a real service, and contents that they never have."""

import gzip
import os
import re
import secrets
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import orjson
from prometheus_client.parser import text_string_to_metric_families

from app.api.middleware.request_log import REQUEST_ID_HEADER
from app.api.request_budget import POLICY as REQUEST_MEMORY
from app.job_kinds import ATTACKS, FRONTIER, MEASURES
from app.jobs.fairness.open_requests import POLICY as OPEN_REQUESTS
from app.jobs.job_metrics import CODES
from app.jobs.maintenance.certificates import CERTIFICATES
from app.jobs.requests import PRIORITIES
from app.jobs.states import State
from app.jobs.units.repeated_tasks import REASONS
from app.telemetry.metrics import AUTHENTICATION_FAILURES, METHODS, UPLOAD_RESULTS
from providers import PROVIDERS
from tests.faults.replicas import until
from tests.watch.collector import PATIENCE
from tests.watch.conftest import WatchedService

SEED = "deadbeefcafe0123456789"
ROWS = [{"name": f"Quux-{row}", "income": 98_765_432_100 + row} for row in range(50)]
ANNOTATIONS = {"name": "Quux by name", "label": "Quux label", "notes": "Quux\nnotes"}
CALL = {"source": {"rows": ROWS}, "parameters": {"swap_fields": ["income"]}, "seed": SEED, **ANNOTATIONS}

SPANS = {"POST /v1/services/DSWAP", "job.accept", "job.queue", "job.run", "provider.run", "destination.write"}


def test_a_trace_goes_from_the_request_into_the_worker(watched: WatchedService) -> None:
    """Within the caller's own trace; no attribute has a value, a seed or a field name."""
    trace_id, parent = secrets.token_hex(16), secrets.token_hex(8)
    headers = {"traceparent": f"00-{trace_id}-{parent}-01"}
    answer = watched.client.post("/v1/services/DSWAP", json=CALL, headers=headers)
    assert answer.json()["state"] == "succeeded"
    spans = watched.collector.trace(trace_id, SPANS | {"job.record"})
    root = spans["POST /v1/services/DSWAP"]
    assert root.parent_span_id.hex() == parent
    for name in ("job.accept", "job.queue", "job.run", "job.record"):
        assert spans[name].parent_span_id == root.span_id, name
    for name in ("provider.run", "destination.write"):
        assert spans[name].parent_span_id == spans["job.run"].span_id
    assert spans["job.run"].start_time_unix_nano >= spans["job.queue"].end_time_unix_nano
    assert spans["provider.run"].end_time_unix_nano <= spans["job.run"].end_time_unix_nano
    recorded = {attribute.key for span in spans.values() for attribute in span.attributes}
    assert recorded == {
        "http.request.method",
        "http.response.status_code",
        "http.route",
        "rowveil.request_id",
        "rowveil.rows",
        "rowveil.service",
        "url.path",
        "url.scheme",
    }
    everything = b"".join(span.SerializeToString() for span in watched.collector.spans)
    for secret in (SEED, "Quux", "98765432", "income"):
        assert secret.encode() not in everything


def test_a_request_keeps_its_identifier(watched: WatchedService) -> None:
    """The caller's id, or a new one if it is not safe to log; in response, problem and log."""
    given = watched.client.get("/v1/jobs/none", headers={REQUEST_ID_HEADER: "call-4.2_x"})
    assert given.headers[REQUEST_ID_HEADER] == given.json()["request_id"] == "call-4.2_x"
    line = watched.line("call-4.2_x")
    assert (line["route"], line["method"], line["status"]) == ("/v1/jobs/{job_id}", "GET", "404")
    for bad in ("a b", "x" * 65, '"', "%0a", ""):
        answer = watched.client.get("/v1/jobs/none", headers={REQUEST_ID_HEADER: bad})
        assert re.fullmatch(r"[0-9a-f]{32}", answer.headers[REQUEST_ID_HEADER])
    assert REQUEST_ID_HEADER in watched.client.head("/v1/services").headers
    assert REQUEST_ID_HEADER in watched.client.get("/nothing").headers


def test_the_audit_names_a_request_as_its_answer_does(watched: WatchedService) -> None:
    """The request id of an audit entry leads to the log and to the trace."""
    given = {REQUEST_ID_HEADER: "call-4.3_x"}
    asked = [watched.client.post("/v1/services/DSWAP", json=CALL, headers=more) for more in (given, {})]
    home = sqlite3.connect(watched.log.parent / "home" / "rowveil.db")
    with closing(home) as database:
        lines = dict(database.execute("SELECT subject, request FROM audit_lines WHERE action = 'job.submit'"))
    assert [lines[answer.json()["id"]] for answer in asked] == [
        answer.headers[REQUEST_ID_HEADER] for answer in asked
    ]


def test_no_log_line_holds_a_seed_a_value_or_a_query(watched: WatchedService) -> None:
    """For successful and failed runs, uploads, and rejected requests."""
    client = watched.client
    job = client.post("/v1/services/DSWAP", json=CALL).raise_for_status().json()["id"]
    client.patch(f"/v1/jobs/{job}", json=ANNOTATIONS).raise_for_status()
    client.get("/v1/jobs", params={"name": "Quux", "label": "Quux label"}).raise_for_status()
    as_csv = {"content-type": "text/csv"}
    upload = client.post("/v1/buffers", content=b"a\n1\n", headers=as_csv, params=ANNOTATIONS).json()["id"]
    client.patch(f"/v1/buffers/{upload}", json={"name": "Quux" * 31})  # too long
    unswappable = [{"income": 98_765_432_100, "city": "Quux"}, {"income": 98_765_432_101, "city": "Quuux"}]
    parameters = {"swap_fields": ["income"], "control_field": "city", "suppression": {"policy": "fail"}}
    call = {"source": {"rows": unswappable}, "parameters": parameters, "seed": SEED}
    assert client.post("/v1/services/CDSWAP", json=call).json()["state"] == "failed"
    client.post("/v1/services/DSWAP", json=CALL | {"parameters": {"swap_fields": ["Quux"]}})
    client.post("/v1/services/DSWAP", json={"source": {"rows": [{"income": "Quux"}, {"income": 1}]}})
    as_json = {"content-type": "application/json"}
    client.post("/v1/services/DSWAP", content=b'{"seed": "deadbeefcafe', headers=as_json)
    client.get("/v1/jobs", params={"page_token": "needle", "service": SEED})
    client.get(f"/v1/{SEED}")
    lines = watched.lines()
    assert {line["route"] for line in lines if line["message"] == "request"} >= {
        "/v1/services/DSWAP",
        "/v1/services/CDSWAP",
        "/v1/jobs",
        "unmatched",
    }
    text = watched.log.read_text()
    for secret in (SEED[:12], "Quux", "98765432", "needle"):
        assert secret not in text
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)


def figures(watched: WatchedService) -> dict[str, float]:
    """All series with their values now."""
    families = text_string_to_metric_families(watched.metrics())
    return {
        f"{sample.name}{orjson.dumps(sample.labels, option=orjson.OPT_SORT_KEYS).decode()}": sample.value
        for family in families
        for sample in family.samples
    }


def growth(before: dict[str, float], after: dict[str, float], name: str) -> dict[str, float]:
    """Return series of a counter that have grown -> by how much."""
    return {
        series.removeprefix(name): after[series] - before.get(series, 0.0)
        for series in after
        if series.startswith(name + "{") and after[series] != before.get(series, 0.0)
    }


def test_the_metrics_count_what_was_done(watched: WatchedService) -> None:
    """One more job, with its counts."""

    before = figures(watched)
    watched.client.post("/v1/services/DSWAP", json=CALL | {"priority": "high"}).raise_for_status()
    after = figures(watched)
    counted = {name for name in after if after[name] != before.get(name, 0.0)}
    for name in (
        'rowveil_jobs_accepted_total{"priority":"high","service":"DSWAP"}',
        'rowveil_jobs_ended_total{"code":"none","service":"DSWAP","state":"succeeded"}',
        'rowveil_http_requests_total{"method":"POST","route":"/v1/services/DSWAP","status":"200"}',
    ):
        assert after[name] == before.get(name, 0.0) + 1
    assert after['rowveil_job_rows_total{"service":"DSWAP"}'] - before.get(
        'rowveil_job_rows_total{"service":"DSWAP"}', 0.0
    ) == len(ROWS)
    assert 'rowveil_job_run_seconds_count{"service":"DSWAP"}' in counted
    assert after['rowveil_jobs{"state":"running"}'] == after['rowveil_jobs{"state":"queued"}'] == 0
    assert after["rowveil_database_up{}"] == after["rowveil_workers_ready{}"] == 1
    assert after["rowveil_workers{}"] == 1
    assert after["rowveil_blobs{}"] == before["rowveil_blobs{}"]  # a small table is in its job's row
    csv = {"content-type": "text/csv"}
    buffer = watched.client.post("/v1/buffers", content=b"a,b\n1,2\n", headers=csv).raise_for_status()
    until("the storage is measured", lambda: figures(watched)["rowveil_blobs{}"] > before["rowveil_blobs{}"])
    assert figures(watched)["rowveil_blobs{}"] == before["rowveil_blobs{}"] + 1
    watched.client.delete(buffer.headers["location"]).raise_for_status()


def test_uploads_are_counted_with_their_bytes_and_results(watched: WatchedService) -> None:
    """Raw, compressed, as a form, repeated under one key, and damaged."""
    client, before = watched.client, figures(watched)
    csv, content = {"content-type": "text/csv"}, b"a,b\n1,2\n"
    stored = [
        client.post("/v1/buffers", content=content, headers=csv | {"idempotency-key": "upload-1"}),
        client.post(
            "/v1/buffers", content=gzip.compress(content), headers=csv | {"content-encoding": "gzip"}
        ),
        client.post("/v1/buffers/form", files={"file": ("people.csv", content, "text/csv")}),
    ]
    again = client.post("/v1/buffers", content=content, headers=csv | {"idempotency-key": "upload-1"})
    damaged = client.post("/v1/buffers", content=b"a,b\n1\n", headers=csv)
    assert [answer.status_code for answer in (*stored, again)] == [201, 201, 201, 201]
    assert damaged.status_code == 422
    after = figures(watched)
    assert growth(before, after, "rowveil_uploads_total") == {
        '{"result":"stored"}': 3,
        '{"result":"repeated"}': 1,
        '{"result":"failed"}': 1,
    }
    assert growth(before, after, "rowveil_uploaded_bytes_total") == {
        "{}": 4 * len(content) + len(b"a,b\n1\n")
    }
    for answer in stored:
        client.delete(answer.headers["location"]).raise_for_status()


def test_refused_credentials_are_counted_by_reason(watched: WatchedService) -> None:
    before = figures(watched)
    unknown = {"authorization": "Bearer rv_unknown"}
    assert watched.client.get("/v1/jobs", headers=unknown).status_code == 401
    assert watched.client.get("/v1/jobs", headers={"authorization": ""}).status_code == 401
    assert watched.client.get("/v1/jobs").status_code == 200
    assert growth(before, figures(watched), "rowveil_authentication_failures_total") == {
        '{"reason":"unauthenticated"}': 1,
        '{"reason":"invalid_token"}': 1,
    }


def test_the_room_and_the_load_of_the_service_are_shown(watched: WatchedService) -> None:
    """File systems, database connections, samples of the event loop, and the time since the last sweep."""
    shown, home = figures(watched), watched.log.parent / "home"
    status = os.statvfs(home)
    for folder in ("home", "shared"):
        assert shown[f'rowveil_disk_bytes{{"folder":"{folder}"}}'] == status.f_blocks * status.f_frsize
        free = shown[f'rowveil_disk_free_bytes{{"folder":"{folder}"}}']
        assert 0 < free <= status.f_blocks * status.f_frsize
    assert shown["rowveil_database_connections_limit{}"] == 15
    assert 0 <= shown["rowveil_database_connections{}"] <= 15
    assert shown["rowveil_sweep_lag_seconds{}"] > 0
    give_up = time.monotonic() + PATIENCE
    while figures(watched)["rowveil_event_loop_lag_seconds_count{}"] == 0:
        assert time.monotonic() < give_up
        time.sleep(0.1)


def test_what_an_alert_waits_for_is_counted_from_nought_on(watched: WatchedService) -> None:
    """Prometheus' `increase` does not see a series that begins with its first event."""
    series = {
        (sample.name, tuple(sample.labels.values()))
        for family in text_string_to_metric_families(watched.metrics())
        for sample in family.samples
        if sample.name.endswith("_total")
    }
    codes = {*CODES, "other"}
    services = (*PROVIDERS, MEASURES, FRONTIER, ATTACKS)
    failures = {(code, service, "failed") for service in services for code in codes}
    results = {(result,) for result in ("delivered", "refused", "gone", "given_up", "altered", "retried")}
    assert {("rowveil_jobs_ended_total", labels) for labels in failures} <= series
    assert {("rowveil_webhook_attempts_total", labels) for labels in results} <= series
    refusals = {("rowveil_authentication_failures_total", (reason,)) for reason in AUTHENTICATION_FAILURES}
    others = ("sweep_failures", "leases_lost", "lease_renewal_failures")
    assert refusals | {(f"rowveil_{name}_total", ()) for name in others} <= series
    assert {("rowveil_pool_full_seconds_total", (pool,)) for pool in ("connections", "workers")} <= series


def test_no_label_grows_with_what_callers_send(watched: WatchedService) -> None:
    """Each label's values are on a fixed list."""
    client = watched.client
    for odd in ("nothing", "v1/services/NOPE", "v1/jobs/4711", "v1/jobs/4711/rows", "v1/buffers/x"):
        client.get(f"/{odd}")
        client.request("BREW", f"/{odd}")
    client.get("/v1/jobs", params={"service": "NOPE"})
    services = {*PROVIDERS, MEASURES, FRONTIER, ATTACKS}
    templates = {*client.get("/openapi.json").json()["paths"], "unmatched", "/", "/docs", "/openapi.json"}
    allowed = {
        "method": {*METHODS, "other"},
        "route": templates,
        "service": services,
        "state": set(State),
        "code": {*CODES, "none", "other"},
        "priority": set(PRIORITIES),
        "limit": {"jobs", "rows", "bytes", "buffer_bytes", "requests", OPEN_REQUESTS, REQUEST_MEMORY},
        "result": {"delivered", "refused", "gone", "given_up", "altered", "retried", *UPLOAD_RESULTS},
        "reason": {*AUTHENTICATION_FAILURES, *REASONS},
        "pool": {"connections", "workers"},
        "folder": {"home", "shared"},
        "certificate": set(CERTIFICATES),
        "what": {"buffer", "result", "job", "idempotency_key", "webhook", "caller"},
    }
    seen: set[str] = set()
    for family in text_string_to_metric_families(watched.metrics()):
        for sample in family.samples:
            for name, value in sample.labels.items():
                seen.add(name)
                if name in ("le", "version"):
                    continue
                if name == "status":
                    assert re.fullmatch(r"[1-5][0-9]{2}|aborted", value)
                else:
                    assert value in allowed[name], (family.name, name, value)
    assert seen >= {"method", "route", "status", "service", "state", "code", "what"}


def test_head_and_streams_are_watched_like_the_rest(watched: WatchedService) -> None:
    job = watched.client.post("/v1/services/DSWAP", json=CALL).json()
    watched.client.head(f"/v1/jobs/{job['id']}")
    watched.client.get(f"/v1/jobs/{job['id']}/events")
    text = watched.metrics()
    for method, route in (("HEAD", "/v1/jobs/{job_id}"), ("GET", "/v1/jobs/{job_id}/events")):
        assert f'rowveil_http_requests_total{{method="{method}",route="{route}",status="200"}}' in text


def test_a_limit_is_reported_by_the_fields_of_the_draft(watched: WatchedService) -> None:
    """The delay ends when the first buffer expires."""
    csv = b"a,b\n" + b"".join(b"%d,%d\n" % (row, row) for row in range(500))
    headers = {"content-type": "text/csv"}
    answers = [watched.client.post("/v1/buffers", content=csv, headers=headers) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 429]
    refused = answers[2]
    assert refused.json()["code"] == "limit_reached"
    assert "ROWVEIL_CALLER_BUFFER_BYTES" in refused.json()["detail"]
    assert refused.headers["ratelimit-policy"] == '"buffer-bytes";q=20000'
    seconds = int(refused.headers["retry-after"])
    left = re.fullmatch(r'"buffer-bytes";r=(\d+);t=(\d+)', refused.headers["ratelimit"])
    assert left is not None
    assert int(left[2]) == seconds
    assert 86_400 - 300 < seconds <= 86_400
    assert 0 <= int(left[1]) < 20_000
    for answer in answers[:2]:
        watched.client.delete(answer.headers["location"]).raise_for_status()
    assert watched.client.post("/v1/buffers", content=csv, headers=headers).status_code == 201


def test_nothing_is_imported_for_traces_that_nobody_takes() -> None:
    """The SDK and its exporter are not imported until the environment names a collector."""
    code = "import sys, app.main; print([name for name in sys.modules if name.startswith('opentelemetry')])"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert "opentelemetry.sdk" not in run.stdout
    assert "exporter" not in run.stdout
