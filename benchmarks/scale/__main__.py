"""Measure the costs of services, and their scaling: ``python -m benchmarks.scale``."""

import argparse
from pathlib import Path

from app.capacity import costs as model
from app.capacity.costs import dumped, measured_costs
from benchmarks.scale.measure import FITS, ROUNDS, growth, limits, measure_costs, prediction, scaling
from benchmarks.scale.tasks import CASES

_FILE = Path(model.__file__).with_name("costs.json")


def main() -> None:
    """Print the model's times; measure costs, scaling and runs out of core before, as the options say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="measure the costs and write app/capacity/costs.json"
    )
    parser.add_argument("--rows", type=int, default=0, help="measure the scaling on a table of this size")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="rounds of the scaling. Default: %(default)s"
    )
    parser.add_argument(
        "--share",
        type=float,
        default=FITS,
        help="their memory, as a share of what a run in memory takes. Default: %(default)s",
    )
    parser.add_argument(
        "--large", type=int, default=0, help="measure runs out of core on a table of this size"
    )
    parser.add_argument("--memory", type=int, default=10**9, help="their memory budget. Default: %(default)s")
    parser.add_argument("--services", nargs="*", choices=CASES, default=list(CASES))
    given = parser.parse_args()
    if given.write:
        for costs in measure_costs(measured_costs(), given.services):
            _FILE.write_bytes(dumped(costs))
    costs = measured_costs()
    if given.rows:
        print(scaling(given.rows, costs, given.services, given.rounds, given.share), "\n")
    if given.large:
        print(growth(given.large, given.memory, given.services), "\n")
    print(prediction(costs, given.services), "\n")
    print(limits(costs, given.services))


if __name__ == "__main__":
    main()
