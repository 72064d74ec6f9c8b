"""Progress of the kernels that the service compiles in the background, shown while a call waits for them."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from providers.kernel_display import Bar

_LOOK_SECONDS = 0.5


@contextmanager
def compilation_shown(client: httpx.Client) -> Iterator[None]:
    """Show which kernels are being compiled for the duration of a block: a bar in a terminal, else lines."""
    ended = threading.Event()
    thread = threading.Thread(target=_show, args=(client.base_url, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _show(address: httpx.URL, ended: threading.Event) -> None:
    bar, printed = None, -1
    since: dict[str, float] = {}
    with httpx.Client(base_url=address) as client:
        while not ended.wait(_LOOK_SECONDS) and (kernels := _kernels(client)) is not None:
            now = time.monotonic()
            since = {name: since.get(name, now) for name in kernels["running"]}
            if not kernels["kernels"]:
                continue
            if sys.stderr.isatty():
                bar = Bar(kernels["kernels"], kernels["compiled"]) if bar is None else bar
                bar.update(kernels["compiled"], [(name, now - begun) for name, begun in since.items()])
            elif (tenth := kernels["compiled"] * 10 // kernels["kernels"]) > printed:
                printed = tenth
                print(f"   compiling: {kernels['compiled']} of {kernels['kernels']} kernels", flush=True)
    if bar is not None:
        bar.close()


def _kernels(client: httpx.Client) -> dict[str, Any] | None:
    """Return the kernels that the service is compiling; None if there are none, or if it does not answer."""
    try:
        kernels: dict[str, Any] | None = client.get("/readyz").json().get("kernels")
    except (httpx.HTTPError, ValueError):
        return None
    return kernels
