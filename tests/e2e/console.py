"""Console in a real browser, with a record of its requests and messages."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import httpx
from playwright.sync_api import Browser, FilePayload, Page, expect

PATIENCE = 120_000
"""Milliseconds; the first job on a busy machine loads every kernel."""
expect.set_options(timeout=PATIENCE)
NOT_NEXT_TO_THE_PAGE = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
NAME_OF_FOCUSED = "(document.activeElement.labels?.[0] ?? document.activeElement).innerText.trim()"


class Console:
    """Browser tab with the console of a service.

    Waits use `Locator.wait_for`: while `expect` waits, it describes the whole page each time that it looks.
    """

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.said: list[str] = []
        self.asked: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("dialog", lambda dialog: self.said.append(f"dialog {dialog.message}"))

    def open(self, place: str = "") -> None:
        """Navigate to a route, and wait until it is shown."""
        self.page.goto(f"{self.address}/#/{place}")
        self.shown()

    def shown(self) -> None:
        """Wait until the view of the route is shown."""
        self.page.locator("main:not([aria-busy]) h1").wait_for()

    def upload(self, name: str, content: str) -> str:
        """Upload a file; return the id of its buffer."""
        self.open()
        return self.upload_here(name, content)

    def upload_here(self, name: str, content: str) -> str:
        """Upload a file from the page that is open; return the id of its buffer."""
        file = FilePayload(name=name, mimeType="", buffer=content.encode())
        self.page.get_by_label(re.compile("^A file")).set_input_files(file)
        return self.table()

    def table(self) -> str:
        """Wait for a table's page; return its buffer's id."""
        self.page.get_by_role("heading", name="Fields").wait_for()
        return self.page.url.rpartition("/")[2]

    def ended(self, state: str = "succeeded") -> None:
        """Wait until the job on the page has ended in this state."""
        self.page.locator(f".outcome.{state}").wait_for()

    def open_everything(self) -> None:
        self.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")

    def tab_to(self, name: str, backwards: bool = False) -> None:
        """Press Tab until the element with this name has the focus, as a keyboard user would."""
        for _ in range(200):
            self.page.keyboard.press("Shift+Tab" if backwards else "Tab")
            if self.page.evaluate(NAME_OF_FOCUSED).startswith(name):
                return
        raise AssertionError(f"no Tab leads to '{name}'")

    def evaluate(self, script: str, given: Any = None) -> Any:
        """Return the result of a script that may import the console's modules."""
        return self.page.evaluate(script, given)


@contextmanager
def console(
    browser: Browser, client: httpx.Client, *, scheme: Literal["light", "dark"] = "light", width: int = 1200
) -> Iterator[Console]:
    """A tab of its own on the client's service, with the client's key if it has one.

    At the end nothing was asked for but of the service, and nothing went wrong in the page.
    """
    address = str(client.base_url).rstrip("/")
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 850})
    if key := client.headers.get("authorization", "").removeprefix("Bearer "):
        context.add_init_script(f"sessionStorage.setItem('rowveil.key', {json.dumps(key)})")
    opened = Console(context.new_page(), address)
    yield opened
    elsewhere = [url for url in opened.asked if not url.startswith((f"{address}/", f"blob:{address}/"))]
    refused = "Failed to load resource"  # a problem document, which the console shows itself
    said = [text for text in opened.said if not text.startswith(refused)]
    context.close()
    assert elsewhere == []
    assert said == []
