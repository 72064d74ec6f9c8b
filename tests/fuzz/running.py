"""Schemathesis against a service of its own: how many calls it made, and what was wrong with the answers."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.service import own_key, running_service
from tests.fuzz.marks import found_in

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
    """What became of one pass over the document."""

    calls: int
    """As the service's own log counts them."""
    failed: bool
    told: str
    """What Schemathesis printed: each violation with the call that showed it."""
    tracebacks: int
    """Unexpected errors in the service's log, whatever was answered."""
    leaked: str | None
    """A mark that stands in the service's log."""


@dataclass(frozen=True)
class Target:
    """A running service, and where its log is."""

    address: str
    key: str
    log: Path

    def fuzz(self, seed: int, examples: int, phases: tuple[str, ...] = _PHASES) -> Fuzzed:
        """One pass: so many examples of each operation; `coverage` adds each bound of the document."""
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
            told=done.stdout + done.stderr,
            tracebacks=log.count('"level":"error"'),
            leaked=found_in(log),
        )


@contextmanager
def target(folder: Path) -> Iterator[Target]:
    """A service of its own with all its state, and its log, in the folder."""
    log = folder / "service.log"
    with log.open("wb") as written, running_service(folder / "home", written, **_SETTINGS) as address:
        yield Target(address, own_key(folder / "home"), log)
