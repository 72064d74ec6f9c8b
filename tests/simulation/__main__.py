"""Run the schedules of some seeds: ``python -m tests.simulation SEED...``; print all that was committed."""

import argparse
from typing import Any

from tests.simulation.modules import simulated
from tests.simulation.world import Violation, World

_SHOWN = ("state", "attempt", "claimed_by", "crashes", "source_blob", "destination_blob", "cancel_requested")


def main() -> None:
    """Run the schedules; show them, or with ``--digest`` a digest of each."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--digest", action="store_true", help="print only a digest of what was committed")
    arguments = parser.parse_args()
    with simulated():
        for seed in arguments.seeds:
            world = World(seed)
            if not arguments.digest:
                _show(world)
            try:
                world.run()
            except Violation as error:
                print(f"schedule {seed}: {error}")
            if arguments.digest:
                print(world.trace.hexdigest())


def _show(world: World) -> None:
    def committed(written: dict[tuple[str, Any], dict[str, Any] | None]) -> None:
        for (table, key), row in written.items():
            if table in ("jobs", "buffers", "replicas"):
                shown = None if row is None else {name: row[name] for name in _SHOWN if row.get(name)}
                by = world.scheduler.current_process().name
                print(f"{world.scheduler.now:8.3f} {by}: {table} {key} {shown}")

    world.server.on_commit.insert(0, committed)
    world.folder.on_gone.append(lambda path: print(f"{world.scheduler.now:8.3f} gone: {path}"))
    world.on_fault = lambda name: print(f"{world.scheduler.now:8.3f} fault: {name}")


if __name__ == "__main__":
    main()
