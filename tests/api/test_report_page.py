"""``GET /v1/jobs/{id}/report``: JSON or a page, as `Accept` asks for."""

from typing import Any

import pytest

from tests.api.calls import Api

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@pytest.fixture(scope="module")
def path(api: Api) -> str:
    rows = [{"age": 20 + at % 50, "town": "Oslo" if at else "<b>Röst</b>"} for at in range(60)]
    parameters: dict[str, Any] = {"swap_fields": ["age"], "control_field": "town"}
    job = api.run("CDSWAP", rows, parameters, seed="8f1c7a0b52e94d63")
    return f"/v1/jobs/{job['id']}/report"


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("text/html;q=0.4, application/json;q=0.5", "application/json"),
        (BROWSER, "text/html; charset=utf-8"),
        ("text/*", "text/html; charset=utf-8"),
        ("application/json;q=0, */*", "text/html; charset=utf-8"),
    ],
)
def test_report_is_in_the_type_that_is_wanted_most(
    api: Api, path: str, accept: str | None, media_type: str
) -> None:
    """Weights decide; JSON without a preference."""
    answer = api.client.get(path, headers={"accept": accept} if accept else {})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == media_type
    assert "Accept" in answer.headers["vary"]
    ending = media_type.partition(";")[0].partition("/")[2]
    name = f"rowveil-report-{path.split('/')[3]}.{ending}"
    assert answer.headers["content-disposition"] == f'inline; filename="{name}"'


@pytest.mark.parametrize(
    "rows",
    [[{"age": 31}, {"age": 47}], [{"age": None}, {"age": 1.5}], [{"age": 5e-324 * at} for at in range(20)]],
)
def test_a_full_report_of_hardly_anything_is_a_page(api: Api, rows: list[dict[str, Any]]) -> None:
    """Too few numbers for a histogram, or numbers without cut points."""
    parameters = {"swap_fields": ["age"], "suppression": {"policy": "keep"}}
    job = api.run("DSWAP", rows, parameters, report="full")
    answer = api.client.get(f"/v1/jobs/{job['id']}/report", headers={"accept": BROWSER})
    assert answer.status_code == 200, answer.text
    assert "Fields before and after" in answer.text


def test_other_types_are_not_acceptable(api: Api, path: str) -> None:
    """The error lists the offered types."""
    detail = api.problem(api.client.get(path, headers={"accept": "text/csv"}), 406, "not_acceptable")[
        "detail"
    ]
    assert "application/json or text/html" in detail


def test_page_reveals_no_seed_and_has_its_policy(api: Api, path: str) -> None:
    """The singleton of a town is shown as fewer than five; the page may run nothing."""
    answer = api.client.get(path, headers={"accept": BROWSER})
    assert "8f1c7a0b52e94d63" not in answer.text
    assert "fewer than 5 in a group of one row" in answer.text
    assert "Röst" not in answer.text
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_no_report_is_not_found_as_a_page_either(api: Api) -> None:
    """The error is a problem document, whatever type was requested."""
    job = api.run("DSWAP", [{"a": 1}, {"a": 2}], {"swap_fields": ["a"]}, report="none")
    answer = api.client.get(f"/v1/jobs/{job['id']}/report", headers={"accept": "text/html"})
    api.problem(answer, 404, "not_found")
