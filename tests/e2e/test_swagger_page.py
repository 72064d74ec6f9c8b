"""Swagger UI in a real browser: the example of every operation succeeds, without internet access."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route

from app.api.pages.examples import PARAMETERS
from providers import PROVIDERS
from tests.e2e.console import PATIENCE

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

FILES = {"createBuffer": "people.arrow", "createBufferFromForm": "people.csv"}


@pytest.fixture(scope="module")
def asked() -> list[str]:
    """Requested addresses."""
    return []


@pytest.fixture(scope="module")
def page(browser: Browser, client: httpx.Client, asked: list[str]) -> Iterator[Page]:
    """Page that can reach only the service."""
    own = urlsplit(str(client.base_url)).netloc

    def let_through(route: Route) -> None:
        asked.append(route.request.url)
        if urlsplit(route.request.url).netloc == own or route.request.url.startswith("data:"):
            route.continue_()
        else:
            route.abort()

    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    context.set_default_timeout(PATIENCE)
    context.route("**/*", let_through)
    opened = context.new_page()
    opened.goto(str(client.base_url.join("/docs")))
    opened.locator(".opblock").first.wait_for()
    key = client.headers.get("authorization", "").removeprefix("Bearer ")
    if key:
        opened.locator(".auth-wrapper .authorize").click()
        opened.locator(".auth-container input").fill(key)
        opened.locator(".auth-container .authorize").click()
        opened.locator(".auth-container .btn-done").click()
    yield opened
    context.close()


def operations() -> list[str]:
    """Return the ids of all operations of the committed OpenAPI document."""
    contract: dict[str, Any] = json.loads((Path(__file__).parents[2] / "openapi/openapi.json").read_text())
    return [each["operationId"] for methods in contract["paths"].values() for each in methods.values()]


def test_every_service_has_an_example() -> None:
    assert PARAMETERS.keys() == PROVIDERS.keys()


@pytest.mark.parametrize("operation", operations())
def test_operation_succeeds_with_its_example(
    page: Page, client: httpx.Client, operation: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    block = page.locator(f'.opblock[id$="-{operation}"]')
    block.locator(".opblock-summary-control").click()
    if operation in FILES:
        name = FILES[operation]
        path = tmp_path_factory.mktemp("files") / name
        path.write_bytes(client.get(f"/swagger/{name}").raise_for_status().content)
        block.locator("input[type=file]").set_input_files(path)
    block.get_by_role("button", name="Execute").click()
    answered = block.locator(".live-responses-table tr.response td.response-col_status")
    # While `expect` waits, it describes the whole page each time that it looks.
    answered.filter(has_text=re.compile(r"^\s*\d{3}")).wait_for()
    status = answered.inner_text()[:3]
    shown = block.locator(".live-responses-table").inner_text()
    assert status in ("200", "201", "204"), shown[:2000]
    block.locator(".opblock-summary-control").click()


def test_nothing_else_was_asked_for(page: Page, client: httpx.Client, asked: list[str]) -> None:
    own = urlsplit(str(client.base_url)).netloc
    assert asked
    assert {urlsplit(url).netloc for url in asked if not url.startswith("data:")} == {own}
