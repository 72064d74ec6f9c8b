"""Take the pictures of the documentation in a browser: ``python -m website.pictures`` or ``make pictures``.

The service runs on a home of its own, the table is the demo's, and the seed is fixed. The pictures are
committed; take them again when the console changes.
"""

import csv
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import FilePayload, Locator, Page, expect, sync_playwright

from demo.people import people
from demo.service import running_service

FOLDER = Path("docs/pictures")

_PATIENCE = 30_000
"""Milliseconds; the first job on a new machine compiles kernels."""

_WIDTH, _HEIGHT = 1000, 720

_FLAGS = ("--disable-gpu", "--disable-background-networking", "--hide-scrollbars")

_SWAPPED = {"swap_fields": ["income", "savings"]}

_PARAMETERS = {**_SWAPPED, "control_field": "town"}

_MEASURES = {"key_fields": ["age", "sex", "town"], "sensitive_fields": ["income"]}

_SEED = "1d0c5afe" * 4


def main() -> int:
    """Take all pictures and write them below `FOLDER`; return the exit status."""
    chromium = shutil.which("chromium") or shutil.which("chromium-headless-shell")
    if chromium is None:
        print("there is no chromium: apt-get install chromium-headless-shell", file=sys.stderr)
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as home,
        running_service(Path(home)) as address,
        _page(chromium) as page,
    ):
        for name, shown in _walk(page, address):
            path = FOLDER / f"{name}.png"
            path.write_bytes(shown)
            print(f"wrote {path} ({len(shown) / 1000:.0f} kB)")
    return 0


@contextmanager
def _page(chromium: str) -> Iterator[Page]:
    as_root = ("--no-sandbox",) if os.geteuid() == 0 else ()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[*_FLAGS, *as_root])
        context = browser.new_context(
            color_scheme="light", viewport={"width": _WIDTH, "height": _HEIGHT}, reduced_motion="reduce"
        )
        page = context.new_page()
        page.set_default_timeout(_PATIENCE)
        yield page
        browser.close()


def _walk(page: Page, address: str) -> Iterator[tuple[str, bytes]]:
    """Walk through the console as the quick start does; yield the name and content of each picture."""
    with httpx.Client(base_url=address, timeout=120) as client:
        page.goto(f"{address}/#/")
        _wait(page)
        yield "console-start", page.screenshot()
        buffer = _upload(page)
        yield "console-table", _below(page, page.get_by_role("heading", name="Fields"))
        page.goto(f"{address}/#/tables/{buffer}/CDSWAP")
        _wait(page)
        for name, fields in (("Swap fields", ["income", "savings"]), ("Control field", ["town"])):
            group = page.get_by_role("group", name=name, exact=True)
            for box in group.get_by_role("checkbox").all():
                box.set_checked((box.locator("xpath=..").inner_text().split() or [""])[0] in fields)
        yield "console-run", page.screenshot()
        source = {"source": {"buffer": buffer}, "seed": _SEED}
        call = {**source, "parameters": _PARAMETERS, "report": "full", "measures": _MEASURES}
        job = _run(client, "/v1/services/CDSWAP", call)
        page.goto(f"{address}/#/jobs/{job}")
        _wait(page)
        expect(page.frame_locator("iframe.pictures").locator("figure").first).to_be_visible()
        yield "console-job", page.screenshot()
        report = client.get(f"/v1/jobs/{job}/report", headers={"accept": "text/html"}).raise_for_status()
        page.goto("about:blank")
        page.set_content(report.text)
        yield "report", page.screenshot()
        services: list[dict[str, Any]] = [
            {"service": "CDSWAP", "parameters": _PARAMETERS, "vary": {"rate": [0.25, 0.5, 1.0]}},
            {"service": "DSWAP", "parameters": _SWAPPED, "vary": {"rate": [0.1, 0.5, 1.0]}},
            {
                "service": "DDSWAP",
                "parameters": {**_SWAPPED, "control_field": "age"},
                "vary": {"block_size": [4, 20]},
            },
        ]
        frontier = _run(client, "/v1/frontier", {**source, "services": services, "measures": _MEASURES})
        page.goto(f"{address}/#/jobs/{frontier}")
        _wait(page)
        yield "console-compare", _below(page, page.get_by_role("group", name="Points of the comparison"))


def _upload(page: Page) -> str:
    """Upload the demo's table; return the id of its buffer."""
    rows = people()
    sink = io.StringIO()
    writer = csv.DictWriter(sink, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    file = FilePayload(name="people.csv", mimeType="", buffer=sink.getvalue().encode())
    page.get_by_label(re.compile("^A file")).set_input_files(file)
    expect(page.get_by_role("heading", name="Fields")).to_be_visible()
    return page.url.rpartition("/")[2]


def _run(client: httpx.Client, path: str, call: dict[str, Any]) -> str:
    """Run a job to its end; return its id."""
    submitted = client.post(path, json=call, headers={"prefer": "respond-async"}).raise_for_status()
    job: str = submitted.json()["id"]
    client.get(f"/v1/jobs/{job}/events", timeout=None).raise_for_status()  # ends with the job
    return job


def _wait(page: Page) -> None:
    expect(page.locator("main:not([aria-busy]) h1")).to_be_visible()


def _below(page: Page, first: Locator) -> bytes:
    """Take a picture whose upper edge is a little above an element."""
    first.evaluate("one => window.scrollTo(0, one.getBoundingClientRect().top + window.scrollY - 24)")
    return page.screenshot()


if __name__ == "__main__":
    sys.exit(main())
