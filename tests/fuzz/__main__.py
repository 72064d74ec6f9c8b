"""Command of `make fuzz`: passes over the whole document with different seeds, up to a number of requests."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.running import target


def main() -> int:
    """Fuzz the service; return 0 if every response matches the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000, help="minimum number of calls [20000]")
    parser.add_argument("--examples", type=int, default=100, help="of each operation, a pass [100]")
    parser.add_argument("--seed", type=int, default=1, help="of the first pass [1]")
    asked = parser.parse_args()
    calls, seed = 0, asked.seed
    with tempfile.TemporaryDirectory() as folder, target(Path(folder)) as service:
        while calls < asked.calls:
            done = service.fuzz(seed, asked.examples)
            calls += done.calls
            print(f"seed {seed}: {calls} calls so far", flush=True)
            if done.failed or done.leaked or done.errors or not done.calls:
                print(done.output)
                print("unexpected errors in the log:", *done.errors, sep="\n")
                print(f"a secret in it: {done.leaked}")
                return 1
            seed += 1
    print(
        f"{calls} calls in {seed - asked.seed} passes: no 500, no violation of the contract, no secret shown"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
