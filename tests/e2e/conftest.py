"""Fixtures: a real Chromium, and a report of each service on real data."""

import csv
import io
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.e2e.console import Console, console

FLAGS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-software-rasterizer",  # its start changes the environment, which other threads read: a crash
    "--disable-sync",
    "--in-process-gpu",  # no messages between processes for each frame: a tenth less processor time
    "--no-first-run",
]
PATIENCE = 240
"""Seconds; the first job on a busy machine loads every kernel."""


@dataclass(frozen=True)
class Run:
    """Service, real table, number of its rows, and the request's parameters and measures."""

    table: str
    rows: int
    parameters: dict[str, Any]
    measures: dict[str, Any]


RUNS = {
    "DSWAP": Run("testdata", 4580, {"swap_fields": ["income", "savings"], "rate": 0.5}, {"target": "expend"}),
    "CDSWAP": Run(
        "adult",
        3000,
        {"swap_fields": ["occupation", "hours-per-week"], "control_field": ["education", "native-country"]},
        {"key_fields": ["age", "sex", "race"], "rounding": {"age": 5}},
    ),
    "DDSWAP": Run(
        "EIA",
        4092,
        {"swap_fields": ["RESREVENUE", "STATE"], "control_field": "TOTSALES", "block_size": 10},
        {},
    ),
    "MEWS": Run("abalone", 4177, {"swap_fields": ["Length", "Diameter"], "degree": 500}, {"target": "Rings"}),
    "MEDS": Run(
        "magic_gamma", 3000, {"swap_fields": ["fLength", "fWidth"], "degree": 100}, {"target": "class"}
    ),
    "RWN": Run("bodyfat", 252, {"k": 5}, {"target": "brozek", "known_fields": ["age", "height"]}),
    "PABIDOT": Run("wholesale_customers", 440, {"label_fields": ["Channel"]}, {"target": "Channel"}),
    "LOCALITY": Run("CASCrefmicrodata", 1080, {"fields": ["FEDTAX", "INTVAL"]}, {}),
    "RSWAP": Run(
        "testdata",
        4580,
        {
            "household": "ori_hid",
            "hierarchy": ["urbrur"],
            "similar": [["roof", "water"], ["walls"]],
            "risk_fields": ["sex", "age"],
        },
        {"key_fields": ["urbrur", "sex", "age"]},
    ),
}


def head(path: Path, rows: int) -> bytes:
    """Return the table's first rows as CSV."""
    sink = io.StringIO()
    with path.open(encoding="utf-8", newline="") as file:
        writer = csv.writer(sink)
        for at, row in enumerate(csv.reader(file)):
            if at > rows:
                break
            writer.writerow(row)
    return sink.getvalue().encode()


def report_page(client: httpx.Client, service: str, data_dir: Path) -> httpx.Response:
    """Return the HTML report of a run with the report `full`."""
    run = RUNS[service]
    content = head(data_dir / f"{run.table}.csv", run.rows)
    buffer = client.post("/v1/buffers", content=content, headers={"content-type": "text/csv"})
    call = {
        "source": {"buffer": buffer.raise_for_status().json()["id"]},
        "parameters": run.parameters,
        "report": "full",
        "measures": {"sample": 500, **run.measures},
    }
    job = client.post(f"/v1/services/{service}", json=call, headers={"prefer": "respond-async"})
    path = f"/v1/jobs/{job.raise_for_status().json()['id']}"
    client.get(f"{path}/events", timeout=PATIENCE).raise_for_status()  # waits until the job has ended
    answer = client.get(f"{path}/report", headers={"accept": "text/html"})
    return answer.raise_for_status()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without its windows, or Chromium; tests without either are skipped, except in CI.

    The headless shell has the same engine, and opens a tab with a quarter of the processor time.
    Module scope, because its event loop stays active.
    """
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None:
        missing = "there is no chromium: apt-get install chromium-headless-shell"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=FLAGS + as_root)
        yield opened
        opened.close()


class Reader:
    """Page opened from a file without network, with its requests and messages."""

    def __init__(self, context: BrowserContext, path: Path) -> None:
        self.path = path
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page: Page = context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())


@pytest.fixture
def opened(browser: Browser, client: httpx.Client) -> Iterator[Console]:
    """Console in a tab of its own, with an API key."""
    with console(browser, client) as tab:
        tab.open()
        yield tab
