"""Swagger UI in a real browser, under its own content security policy."""

import pytest
from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


def test_swagger_ui_calls_with_a_key(browser: Browser, address: str, key: str) -> None:
    """It loads nothing from elsewhere, violates no policy, accepts the key, and its request succeeds."""
    page = browser.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{address}/docs")
    assert page.locator("html").get_attribute("lang") == "en"
    page.locator("button.authorize").first.click()
    page.locator(".modal-ux input").fill(key)
    page.locator(".modal-ux button.authorize").click()
    page.locator(".modal-ux button.btn-done").click()
    operation = page.locator("#operations-services-listServices")
    operation.locator(".opblock-summary-control").click()
    operation.locator("button.execute").click()
    status = operation.locator(".live-responses-table .response-col_status").last
    status.wait_for()
    assert "200" in status.inner_text()
    assert said == []
    assert all(url.startswith((address, "data:", "blob:")) for url in asked)
    page.close()
