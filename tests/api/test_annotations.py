"""Names, labels and notes of jobs and buffers: given, changed, found, taken over, refused, deleted."""

import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from app.settings import Settings
from app.store.sql.db import Database
from app.store.sql.models import AuditLine, Base
from tests.api.calls import Api

CALL: dict[str, Any] = {"source": {"rows": [{"a": 1}, {"a": 2}]}, "parameters": {"swap_fields": ["a"]}}
NOTES = "Run again with the\nweights of May."


def _annotations(document: dict[str, Any]) -> dict[str, str]:
    return {name: document[name] for name in ("name", "label", "notes") if name in document}


def _run(api: Api, **more: Any) -> dict[str, Any]:
    return api.job(api.client.post("/v1/services/DSWAP", json=CALL | more))


def _upload(api: Api, **query: str) -> httpx.Response:
    headers = {"content-type": "text/csv"}
    return api.client.post("/v1/buffers", content=b"a,b\n1,2\n3,4\n", headers=headers, params=query)


@pytest.mark.parametrize("path", ["/v1/services/DSWAP", "/v1/measures", "/v1/frontier", "/v1/attacks"])
def test_every_call_that_makes_a_job_takes_them(api: Api, path: str) -> None:
    """The job shows them, and its page of the list does too; spaces around them go."""
    frontier = {"services": [{"service": "DSWAP", "parameters": {"swap_fields": ["a"]}}]}
    body: dict[str, Any] = {"source": {"rows": [{"a": row, "b": row % 5} for row in range(30)]}}
    body |= {
        "/v1/services/DSWAP": {"parameters": CALL["parameters"]},
        "/v1/measures": {"destination": body["source"]},
        "/v1/frontier": frontier | {"utility": "marginals.identical"},
        "/v1/attacks": {"destination": body["source"], "known": ["b"], "secret": ["a"], "attacks": 10},
    }[path]
    given = {"name": "  Second wave ", "label": f"wave{path}", "notes": NOTES}
    answer = api.client.post(path, json=body | given, headers={"prefer": "respond-async"})
    job = api.job(answer)
    expected = {"name": "Second wave", "label": f"wave{path}", "notes": NOTES}
    assert _annotations(job) == expected
    found = api.client.get("/v1/jobs", params={"label": f"wave{path}"}).json()["jobs"]
    assert [(one["id"], _annotations(one)) for one in found] == [(job["id"], expected)]


def test_a_plan_shows_them_and_stores_nothing(api: Api) -> None:
    plan = _run(api, validate_only=True, label="never stored")
    assert plan["label"] == "never stored"
    assert api.client.get("/v1/jobs", params={"label": "never stored"}).json() == {"jobs": []}


def test_they_are_changed_one_at_a_time(api: Api) -> None:
    """An empty text removes one, and null does too; the others stay."""
    job = _run(api, name="First", notes=NOTES)
    path = f"/v1/jobs/{job['id']}"
    changed = api.client.patch(path, json={"label": "wave-1", "name": "Renamed"})
    assert changed.status_code == 200, changed.text
    assert _annotations(changed.json()) == {"name": "Renamed", "label": "wave-1", "notes": NOTES}
    assert api.client.get(path).json() == changed.json()
    api.client.patch(path, json={"notes": "", "label": None}).raise_for_status()
    assert _annotations(api.client.get(path).json()) == {"name": "Renamed"}
    assert changed.json()["finished_at"] == job["finished_at"]


def test_those_of_a_buffer_are_given_changed_and_copied(api: Api) -> None:
    """A copy has name and label of the first buffer, unless it is given others; notes stay with the first."""
    buffer = _upload(api, name="People", label="wave-1", notes=NOTES).json()
    assert _annotations(buffer) == {"name": "People", "label": "wave-1", "notes": NOTES}
    path = f"/v1/buffers/{buffer['id']}"
    copy = api.client.post(f"{path}/copies", json={"drop": ["b"]}).json()
    assert _annotations(copy) == {"name": "People", "label": "wave-1"}
    assert _annotations(api.client.get(f"/v1/buffers/{copy['id']}").json()) == _annotations(copy)
    given = {"drop": ["b"], "name": "", "label": "wave-2", "notes": "without b"}
    other = api.client.post(f"{path}/copies", json=given).json()
    assert _annotations(other) == {"label": "wave-2", "notes": "without b"}
    changed = api.client.patch(path, json={"name": "", "notes": "checked"})
    assert _annotations(changed.json()) == {"label": "wave-1", "notes": "checked"}
    assert api.client.get(path).json() == changed.json()


def test_a_form_takes_them_and_its_key_stands_for_them(api: Api) -> None:
    def upload(**fields: str) -> httpx.Response:
        file = {"file": ("a.csv", b"a\n1\n2\n")}
        key = {"idempotency-key": "annotations-1"}
        return api.client.post("/v1/buffers/form", files=file, data=fields, headers=key)

    first, again = upload(name="People", notes="two\nlines"), upload(name="People", notes="two\nlines")
    assert first.json() == again.json()
    assert _annotations(first.json()) == {"name": "People", "notes": "two\nlines"}
    api.problem(upload(name="Others"), 422, "idempotency_key_reused")
    api.problem(upload(label="People", notes="two\nlines"), 422, "idempotency_key_reused")


def test_a_rerun_takes_name_and_label_over(api: Api) -> None:
    """Notes describe the first job alone; an empty text takes nothing over."""
    job = _run(api, name="First", label="wave-3", notes=NOTES, retain_source=True)
    path = f"/v1/jobs/{job['id']}/rerun"
    assert _annotations(api.job(api.client.post(path))) == {"name": "First", "label": "wave-3"}
    given = api.job(api.client.post(path, json={"name": "Again", "label": "", "notes": "rerun"}))
    assert _annotations(given) == {"name": "Again", "notes": "rerun"}


def test_jobs_are_found_by_name_and_label(api: Api) -> None:
    """A part of the name in any case; ``%`` and ``_`` stand for themselves; pages keep the filter."""
    names = ["Orchard 50% sample", "ORCHARD 50 sample", "orchard_1", "orchard21"]
    ids = {name: _run(api, name=name, label="grove")["id"] for name in names}

    def found(**query: Any) -> list[str]:
        page = api.client.get("/v1/jobs", params=query).raise_for_status().json()
        jobs = page["jobs"]
        if "next_page_token" in page:
            return [*(job["id"] for job in jobs), *found(**query | {"page_token": page["next_page_token"]})]
        return [job["id"] for job in jobs]

    newest_first = [ids[name] for name in reversed(names)]
    assert found(label="grove") == found(label="grove", page_size=1) == newest_first
    assert found(name="orchard", label="grove", state="succeeded", service="DSWAP") == newest_first
    assert found(name="50% s", label="grove") == [ids[names[0]]]
    assert found(name="rchard_1", label="grove") == [ids[names[2]]]
    assert found(label="grov") == found(label="Grove") == found(name="orchard", label="") == []
    after = api.client.get("/v1/jobs", params={"label": "grove", "page_size": 1}).headers["link"]
    assert "label=grove" in after


def test_buffers_are_listed_and_found(api: Api) -> None:
    """A page has the newest first, without deleted ones; the link keeps the filter."""
    names = ["Orchard 50% sample", "ORCHARD 50 sample", "orchard_1"]
    buffers = [_upload(api, name=name, label="grove").json() for name in names]
    gone = _upload(api, name="orchard gone", label="grove").json()
    api.client.delete(f"/v1/buffers/{gone['id']}").raise_for_status()

    def found(**query: Any) -> list[Any]:
        answer = api.client.get("/v1/buffers", params=query).raise_for_status()
        page = answer.json()
        if "next_page_token" in page:
            assert answer.links["next"]["url"].endswith(f"page_token={page['next_page_token']}")
            return [*page["buffers"], *found(**query | {"page_token": page["next_page_token"]})]
        listed: list[Any] = page["buffers"]
        return listed

    newest_first = buffers[::-1]
    assert found(label="grove") == found(label="grove", page_size=1) == newest_first
    assert found(name="orchard", label="grove") == newest_first
    assert found(name="50% s", label="grove") == [buffers[0]]
    assert found(label="Grove") == []
    assert api.client.get("/v1/buffers", params={"page_size": 2}).json()["buffers"] == newest_first[:2]
    api.problem(api.client.get("/v1/buffers", params={"page_token": "!!"}), 422)


@pytest.mark.parametrize(
    ("given", "pointer", "why"),
    [
        ({"name": "x" * 121}, "/name", "120"),
        ({"label": "x" * 121}, "/label", "120"),
        ({"notes": "x" * 2001}, "/notes", "2000"),
        ({"name": "two\nlines"}, "/name", "one line"),
        ({"label": "a\0b"}, "/label", "one line"),
        ({"notes": "bell \a"}, "/notes", "control characters"),
        ({"name": 5}, "/name", "text"),
        ({"labels": ["a"]}, "/labels", "did you mean 'label'"),
    ],
)
def test_texts_that_cannot_be_kept_are_refused_with_their_place(
    api: Api, given: dict[str, Any], pointer: str, why: str
) -> None:
    """With the call and in a change, of a job and of a buffer."""
    job, buffer = _run(api), _upload(api).json()
    for answer in (
        api.client.post("/v1/services/DSWAP", json=CALL | given),
        api.client.patch(f"/v1/jobs/{job['id']}", json=given),
        api.client.patch(f"/v1/buffers/{buffer['id']}", json=given),
        api.client.post(f"/v1/buffers/{buffer['id']}/copies", json=given),
    ):
        error = api.problem(answer, 422)["errors"][0]
        assert error["pointer"] == pointer
        assert why in error["message"]


def test_the_longest_texts_are_kept(api: Api) -> None:
    """Characters are counted, not bytes."""
    given = {"name": "é" * 120, "label": "漢" * 120, "notes": "𝄞" * 2000}
    assert _annotations(_run(api, **given)) == given


def test_changes_of_nothing_and_filters_with_control_characters_are_refused(api: Api) -> None:
    job = _run(api)
    problem = api.problem(api.client.patch(f"/v1/jobs/{job['id']}", json={}), 422)
    assert "give 'name', 'label' or 'notes'" in problem["errors"][0]["message"]
    for name in ("name", "label"):
        problem = api.problem(api.client.get("/v1/jobs", params={name: "a\0b"}), 422)
        assert problem["errors"][0]["parameter"] == name
    for path in ("/v1/jobs/no-such-job", "/v1/buffers/no-such-buffer"):
        api.problem(api.client.patch(path, json={"name": "x"}), 404, "not_found")


def test_they_go_with_the_job_and_the_audit_has_none_of_them(
    api: Api, service_home: Path, database: dict[str, str]
) -> None:
    """A deleted job is found by neither; two lines of the audit name the changes without the texts."""
    needles = {"name": "needle-a", "label": "needle-b", "notes": "needle-c"}
    job, buffer = _run(api, **needles)["id"], _upload(api).json()["id"]
    for path in (f"/v1/jobs/{job}", f"/v1/buffers/{buffer}"):
        api.client.patch(path, json={"name": "needle-d"}).raise_for_status()
    for path in (f"/v1/jobs/{job}", f"/v1/buffers/{buffer}"):
        assert api.client.delete(path).status_code == 204
    for query in ({"name": "needle"}, {"label": "needle-b"}):
        assert api.client.get("/v1/jobs", params=query).json() == {"jobs": []}
        assert api.client.get("/v1/buffers", params=query).json() == {"buffers": []}
    opened = Database(Settings.model_validate({"home": service_home} | database))
    try:
        with opened.read() as session:
            tables = {
                table.name: str(session.execute(sa.select(table)).all())
                for table in Base.metadata.sorted_tables
            }
            actions = session.scalars(
                sa.select(AuditLine.action)
                .where(AuditLine.subject.in_((job, buffer)))
                .order_by(AuditLine.number)
            ).all()
    finally:
        opened.close()
    assert [name for name, text in tables.items() if "needle" in text] == []
    assert [actions.count(f"{kind}.annotate") for kind in ("job", "buffer")] == [1, 1]


@pytest.mark.parametrize("kind", ["jobs", "buffers"])
def test_replaced_and_deleted_texts_are_not_in_the_files_of_the_database(
    api: Api, service_home: Path, database: dict[str, str], kind: str
) -> None:
    """Nor in SQLite's write-ahead log, which keeps what it overwrites until it is truncated."""
    if database:
        pytest.skip("a server has a log of its own")
    files = [service_home / name for name in ("rowveil.db", "rowveil.db-wal")]

    def stored(text: str) -> bool:
        return any(text.encode() in file.read_bytes() for file in files)

    def goes(text: str) -> bool:
        deadline = time.monotonic() + 60  # a transaction that reads just then delays it
        while stored(text) and time.monotonic() < deadline:
            time.sleep(0.1)
        return not stored(text)

    made = _run(api) if kind == "jobs" else _upload(api).json()
    path = f"/v1/{kind}/{made['id']}"
    api.client.patch(path, json={"notes": f"first note of {kind}"}).raise_for_status()
    assert stored(f"first note of {kind}")
    api.client.patch(path, json={"notes": f"second note of {kind}"}).raise_for_status()
    assert goes(f"first note of {kind}")
    assert stored(f"second note of {kind}")
    api.client.delete(path).raise_for_status()
    assert goes(f"second note of {kind}")


def test_manifest_report_and_events_do_not_have_them(api: Api) -> None:
    """Nor does the ledger."""
    job = _run(api, name="needle-name", label="needle-label", notes="needle-notes")
    path = f"/v1/jobs/{job['id']}"
    for more in ("/manifest", "/report", "/events", "/rows"):
        assert "needle" not in api.client.get(path + more).raise_for_status().text
    assert "needle" not in api.client.get("/v1/ledger", params={"source": job["source"]["digest"]}).text
    assert "needle" not in api.client.get("/metrics").text
    page = api.client.get(f"{path}/report", headers={"accept": "text/html"})
    assert "needle" not in page.text


def test_letters_beyond_ascii_are_equal_in_upper_and_lower_case(api: Api) -> None:
    """The databases agree, whatever the locale of the server is; other characters stand for themselves."""
    names = ["ÉTUDE Œuvre", "étude œuvre", "ΟΔΟΣ", "οδος", "Straße", "ÐÞ ĐŁ", "***:(?i)[A-Z]+\\d{2}^$.|"]
    ids = {name: _run(api, name=name, label="letters")["id"] for name in names}

    def found(name: str) -> set[str]:
        page = api.client.get("/v1/jobs", params={"name": name, "label": "letters"}).json()
        return {job["id"] for job in page["jobs"]}

    for text in ("étude ŒUVRE", "Étude", "œ"):
        assert found(text) == {ids["ÉTUDE Œuvre"], ids["étude œuvre"]}, text
    for text in ("οδοσ", "οΔΟς", "ΟΔΟΣ"):
        assert found(text) == {ids["ΟΔΟΣ"], ids["οδος"]}, text
    assert found("STRAß") == {ids["Straße"]}
    assert found("ðþ đł") == {ids["ÐÞ ĐŁ"]}
    for text in ("***:(?I)", "[a-z]+", "\\D{2}^$.|", "+\\", ":("):
        assert found(text) == {ids[names[-1]]}, text
    assert found("strass") == found("etude") == set()
