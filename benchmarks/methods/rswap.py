"""RSWAP on generated household surveys, compared with the measured seconds of sdcMicro's `recordSwap`.

sdcMicro is not installed here: its seconds were measured once, with version 5.8.1, at a swap rate of .05.
"""

import statistics
import time

from benchmarks.harness import Work, in_turn, table
from benchmarks.methods.kernels import swap_work
from tests.household_survey import household_survey

SDCMICRO_SECONDS = {10_000: 0.072, 100_000: 0.705, 1_000_000: 12.8}
"""Persons -> seconds of `recordSwap`."""
GOAL = 0.1
"""Greatest ratio to sdcMicro's seconds at the largest size."""
PARAMETERS = {
    "household": "household",
    "hierarchy": ["region", "district", "municipality"],
    "similar": [["household_size"]],
    "risk_fields": ["age_group", "sex", "citizenship"],
    "swap_rate": 0.05,
}


def measure(rounds: int) -> str:
    """Return the comparison as Markdown.

    Next to the median of the seconds it has that of the processor seconds of all threads, which other
    processes lengthen less. The goal is judged by these: a run alone takes no longer.
    """
    lines = []
    for persons, theirs in SDCMICRO_SECONDS.items():
        source = household_survey(persons).slice(0, persons)
        work, used = _metered(swap_work(source, "RSWAP", PARAMETERS))
        timings = in_turn({"rowveil": work}, rounds, memory=4 * source.nbytes)
        elapsed, processor = timings["rowveil"].median, statistics.median(used[1:])  # the first warms up
        goal = "-"
        if persons == max(SDCMICRO_SECONDS):
            goal = "met" if processor <= GOAL * theirs else "MISSED"
        figures = [f"{elapsed:.3f}", f"{processor:.3f}", f"{theirs:.3f}", f"{processor / theirs:.3f}"]
        lines.append([f"{persons:,}", *figures, goal])
        print(f"  RSWAP {persons:,}: {elapsed:.3f} s, {processor:.3f} s of processor time", flush=True)
    header = ["persons", "rowveil s", "processor s", "sdcMicro 5.8.1 s", "ratio", "goal 1/10"]
    return f"### RSWAP\n\n{table(header, lines)}\n"


def _metered(work: Work) -> tuple[Work, list[float]]:
    """Return the work, and the list to which each of its runs adds the processor seconds of all threads."""
    used: list[float] = []

    def metered() -> object:
        started = time.process_time()
        result = work()
        used.append(time.process_time() - started)
        return result

    return metered, used
