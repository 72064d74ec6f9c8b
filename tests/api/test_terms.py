"""Submission options over HTTP: idempotency keys and their expiry, priority, deadline, webhooks."""

from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from tests.api.calls import Api

CALL: dict[str, Any] = {"source": {"rows": [{"a": 1}, {"a": 2}]}, "parameters": {"swap_fields": ["a"]}}
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
EXPIRES = "idempotency-key-expires"


def test_a_key_says_until_when_it_stands(api: Api) -> None:
    """The expiry counts from the job's creation, also for repeated requests; no header without a key."""
    key = {"idempotency-key": "terms-1"}
    answers = [api.client.post("/v1/services/DSWAP", json=CALL, headers=key) for _ in range(2)]
    made = datetime.fromisoformat(api.job(answers[0])["created_at"])
    for answer in answers:
        until = parsedate_to_datetime(answer.headers[EXPIRES])
        assert until == made.replace(microsecond=0) + timedelta(hours=24)
    assert EXPIRES not in api.client.post("/v1/services/DSWAP", json=CALL).headers


def test_a_key_is_honoured_on_a_rerun(api: Api) -> None:
    job = api.job(api.client.post("/v1/services/DSWAP", json=CALL | {"retain_source": True}))
    path, key = f"/v1/jobs/{job['id']}/rerun", {"idempotency-key": "terms-2"}
    first, again = (api.job(api.client.post(path, headers=key)) for _ in range(2))
    assert first["id"] == again["id"] != job["id"]
    other = api.client.post(path, headers=key, json={"source": {"rows": CALL["source"]["rows"]}})
    api.problem(other, 422, "idempotency_key_reused")
    another_job = f"/v1/jobs/{first['id']}/rerun"
    api.problem(api.client.post(another_job, headers=key), 422, "idempotency_key_reused")


def test_a_key_is_honoured_on_an_upload(api: Api) -> None:
    """The request is the query and the bytes; raw and as a form."""
    headers = {"content-type": "text/csv", "idempotency-key": "terms-3"}
    body = b"a;b\n1;2\n3;4\n"

    def upload(content: bytes = body, delimiter: str = ";") -> Any:
        query = {"delimiter": delimiter}
        return api.client.post("/v1/buffers", content=content, headers=headers, params=query)

    first, again = upload(), upload()
    assert first.status_code == again.status_code == 201
    assert first.json() == again.json()
    assert EXPIRES in again.headers
    api.problem(upload(b"a;b\n1;2\n3;5\n"), 422, "idempotency_key_reused")
    api.problem(upload(delimiter=","), 422, "idempotency_key_reused")
    key = {"idempotency-key": "terms-4"}
    forms = [
        api.client.post("/v1/buffers/form", files={"file": ("a.csv", body)}, data=data, headers=key)
        for data in ({"delimiter": ";"}, {"delimiter": ";"}, {"delimiter": ","})
    ]
    assert forms[0].json() == forms[1].json()
    api.problem(forms[2], 422, "idempotency_key_reused")


def test_the_key_of_a_job_makes_no_buffer(api: Api) -> None:
    """The buffer would replace the job under the key, whose repetition would be rejected or run again."""
    key = {"idempotency-key": "terms-5"}
    job = api.job(api.client.post("/v1/services/DSWAP", json=CALL, headers=key))
    upload: dict[str, Any] = {"content": b"a\n1\n", "headers": key | {"content-type": "text/csv"}}
    api.problem(api.client.post("/v1/buffers", **upload), 422, "idempotency_key_reused")
    again = api.job(api.client.post("/v1/services/DSWAP", json=CALL, headers=key))
    assert again["id"] == job["id"]
    assert api.client.delete(f"/v1/jobs/{job['id']}").status_code == 204
    assert api.client.post("/v1/buffers", **upload).status_code == 201


@pytest.mark.parametrize("path", ["/v1/services/DSWAP", "/v1/measures", "/v1/frontier"])
def test_every_call_that_makes_a_job_takes_terms(api: Api, path: str) -> None:
    """The job shows its options."""
    frontier = {"services": [{"service": "DSWAP", "parameters": {"swap_fields": ["a"]}}]}
    body: dict[str, Any] = {"source": {"rows": [{"a": row} for row in range(30)]}}
    body |= {
        "/v1/services/DSWAP": {"parameters": CALL["parameters"]},
        "/v1/measures": {"destination": body["source"]},
        "/v1/frontier": frontier | {"utility": "marginals.identical"},
    }[path]
    terms = {"priority": "high", "deadline_seconds": 600}
    job = api.job(api.client.post(path, json=body | terms, headers={"prefer": "wait=60"}))
    assert (job["state"], job["priority"]) == ("succeeded", "high")
    asked = datetime.fromisoformat(job["deadline"]) - datetime.fromisoformat(job["created_at"])
    assert asked == timedelta(seconds=600)


@pytest.mark.parametrize(
    ("terms", "pointer"),
    [
        ({"priority": "urgent"}, "/priority"),
        ({"deadline_seconds": 0}, "/deadline_seconds"),
        ({"deadline_seconds": 1e9}, "/deadline_seconds"),
        ({"webhook": {"url": "https://hooks.example.com/"}}, "/webhook/secret"),
        ({"webhook": {"url": "https://hooks.example.com/", "secret": "mine"}}, "/webhook/secret"),
        ({"webhook": {"url": "http://hooks.example.com/", "secret": SECRET}}, "/webhook/url"),
        ({"webhook": {"url": "https://127.0.0.1/", "secret": SECRET}}, "/webhook/url"),
        ({"webhook": {"url": "https://[::ffff:169.254.169.254]/", "secret": SECRET}}, "/webhook/url"),
        ({"webhook": {"url": "https://localhost:8080/", "secret": SECRET}}, "/webhook/url"),
    ],
)
def test_terms_that_cannot_be_kept_are_refused_with_their_place(
    api: Api, terms: dict[str, Any], pointer: str
) -> None:
    """No response contains the secret."""
    answer = api.client.post("/v1/services/DSWAP", json=CALL | terms)
    problem = api.problem(answer, 422)
    assert problem["errors"][0]["pointer"] == pointer
    assert SECRET not in answer.text


def test_a_webhook_never_shows_again(api: Api) -> None:
    """Neither the job nor its manifest contains it, and a rerun does not need it."""
    webhook = {"url": "https://hooks.example.com/needle", "secret": SECRET}
    call = CALL | {"webhook": webhook, "retain_source": True, "validate_only": True}
    answer = api.client.post("/v1/services/DSWAP", json=call)
    assert answer.status_code == 200, answer.text
    assert "needle" not in answer.text
    assert SECRET not in answer.text
