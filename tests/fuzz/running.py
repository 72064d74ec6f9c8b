"""Schemathesis against a service of its own: number of requests, and violations."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.fuzz.marks import found_in
from tests.own_key import own_key
from tests.preloaded.processes import running_service

_HERE = Path(__file__).parent
_SETTINGS = {
    "auth": "on",
    "workers": "2",
    "warm_workers": "false",
    "default_wait_seconds": "2",
    "max_body_bytes": str(4 * 2**20),
    "log_format": "json",
}
_REQUEST = '"logger":"rowveil.http","message":"request"'
_PHASES = ("examples", "coverage", "fuzzing", "stateful")


@dataclass(frozen=True)
class Fuzzed:
    """Result of one pass over the document."""

    calls: int
    """Number of requests in the service's log."""
    failed: bool
    output: str
    """Output of Schemathesis: each violation with its request."""
    errors: tuple[str, ...]
    """Unexpected errors in the service's log, whatever was responded."""
    leaked: str | None
    """A mark that was found in the service's log."""


@dataclass(frozen=True)
class Target:
    """Running service, and the path of its log."""

    address: str
    key: str
    log: Path

    def fuzz(self, seed: int, examples: int, phases: tuple[str, ...] = _PHASES) -> Fuzzed:
        """Run one pass with `examples` examples of each operation; `coverage` adds each bound."""
        before = self.log.read_text().count(_REQUEST)
        command = [
            str(Path(sys.executable).with_name("schemathesis")),
            "--config-file", str(_HERE / "schemathesis.toml"),
            "run", f"{self.address}/openapi.json",
            "--phases", ",".join(phases),
            "--max-examples", str(examples),
            "--seed", str(seed),
            "--no-color",
        ]  # fmt: skip
        environment = os.environ | {"FUZZ_KEY": self.key, "SCHEMATHESIS_HOOKS": "tests.fuzz.hooks"}
        environment["PYTHONPATH"] = str(_HERE.parents[1])
        done = subprocess.run(
            command, env=environment, cwd=self.log.parent, capture_output=True, text=True, check=False
        )
        log = self.log.read_text()
        return Fuzzed(
            calls=log.count(_REQUEST) - before,
            failed=done.returncode != 0,
            output=done.stdout + done.stderr,
            errors=tuple(line for line in log.splitlines() if '"level":"error"' in line),
            leaked=found_in(log),
        )


@contextmanager
def target(folder: Path) -> Iterator[Target]:
    """Start a service with all its state, and its log, in the folder."""
    log = folder / "service.log"
    with log.open("wb") as written, running_service(folder / "home", written, **_SETTINGS) as address:
        httpx.get(f"{address}/openapi.json", timeout=240)  # Schemathesis waits 10 seconds for it
        yield Target(address, own_key(folder / "home"), log)
