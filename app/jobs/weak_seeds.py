"""A seed that could be searched for: taken as it is, but told of in the job's events and in its report.

To try a seed is to derive one key from it and to look at its first draws. Deriving the key is the
dear part: CPython's BLAKE2b does 940,000 keys a second on one core of an Intel Xeon at 2.5 GHz
(November 2026, best of five runs of 500,000). Who searches in earnest has a thousand such cores
and better code; the time told is for one, so that it can be divided.
"""

from typing import Any

from providers.provider import EVENTS_SHOWN

WEAK_BELOW_BITS = 64
SEEDS_A_SECOND = 1_000_000
"""Seeds that one core tries, as measured, rounded up."""
WEAK_SEED = "weak_seed"

_UNITS = (
    ("years", 365.25 * 86400),
    ("days", 86400.0),
    ("hours", 3600.0),
    ("minutes", 60.0),
    ("seconds", 1.0),
)


def is_weak(bits: int) -> bool:
    """Whether a search for a seed of so many bits is to be feared."""
    return bits < WEAK_BELOW_BITS


def flagged(result: dict[str, Any], bits: int) -> dict[str, Any]:
    """The result of a job with a weak seed, which says so; the outcome is as it was without."""
    effort = _effort(bits)
    message = f"the seed has {bits} bits: {effort}; leave it out, and 128 bits are drawn"
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
        limit = f"Whoever searches for the seed undoes the swap: it has {bits} bits, {effort}."
        limits = [*result["report"]["limits"], limit]
        flagged["report"] = {**result["report"], "weak_seed": seed, "limits": limits}
    return flagged | {"event_counts": counts}


def _effort(bits: int) -> str:
    seconds = 2**bits / SEEDS_A_SECOND
    unit, size = next(((unit, size) for unit, size in _UNITS if seconds >= size), ("seconds", 1.0))
    taken = f"about {seconds / size:,.0f} {unit}" if seconds >= 1 else "less than a second"
    return f"to try them all takes {taken} on one core"
