"""Weak seeds: accepted, but flagged in the job's events and in its report.

To try a seed means to derive one key from it and to look at its first draws. Deriving the key dominates the
cost: CPython's BLAKE2b derives 940,000 keys a second on one core of an Intel Xeon at 2.5 GHz (November 2026,
best of five runs of 500,000). A serious attacker has a thousand such cores and faster code. The reported
time is for one core, so that readers can divide it.
"""

from typing import Any

from providers.results import EVENTS_SHOWN

WEAK_BELOW_BITS = 64
SEEDS_A_SECOND = 1_000_000
"""Seeds that one core tries in a second: the measured rate, rounded up."""
WEAK_SEED = "weak_seed"

_UNITS = (
    ("years", 365.25 * 86400),
    ("days", 86400.0),
    ("hours", 3600.0),
    ("minutes", 60.0),
    ("seconds", 1.0),
)


def is_weak(bits: int) -> bool:
    """Whether an exhaustive search for a seed of ``bits`` bits is feasible."""
    return bits < WEAK_BELOW_BITS


def flagged(result: dict[str, Any], bits: int) -> dict[str, Any]:
    """Add the event and the report entries of a weak seed to a job's result; its outcome stays the same."""
    effort = _effort(bits)
    message = f"the seed has {bits} bits: {effort}; leave it out, so that 128 bits are drawn"
    counts = {**result["event_counts"], WEAK_SEED: 1}
    events = [{"code": WEAK_SEED, "message": message}, *result["events"]]
    flagged = {**result, "events": events[:EVENTS_SHOWN]}
    if result["report"] is not None:
        seed = {
            "bits": bits,
            "seeds_to_try": float(2**bits),
            "seeds_a_second_and_core": SEEDS_A_SECOND,
            "core_seconds": 2**bits / SEEDS_A_SECOND,
        }
        limit = f"Anyone who searches for the seed can undo the swap: it has {bits} bits, {effort}."
        limits = [*result["report"]["limits"], limit]
        flagged["report"] = {**result["report"], "weak_seed": seed, "limits": limits}
    return flagged | {"event_counts": counts}


def _effort(bits: int) -> str:
    seconds = 2**bits / SEEDS_A_SECOND
    unit, size = next(((unit, size) for unit, size in _UNITS if seconds >= size), ("seconds", 1.0))
    taken = f"about {seconds / size:,.0f} {unit}" if seconds >= 1 else "less than a second"
    return f"trying them all takes {taken} on one core"
