"""The media types, and which of them an Accept header asks for (RFC 9110 section 12.5.1)."""

import re
from collections.abc import Sequence

JSON = "application/json"
CSV = "text/csv"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
MEDIA_TYPES = (JSON, CSV, ARROW_STREAM, PARQUET)

_WEIGHT = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")


def essence(media_type: str) -> str:
    """The type without its parameters, in lower case: ``text/csv`` of ``Text/CSV; charset=utf-8``."""
    return media_type.partition(";")[0].strip().lower()


def negotiate(accept: str | None, offered: Sequence[str]) -> str | None:
    """The offered media type that `accept` wants most, None where it wants none of them.

    An offer's weight is that of the most specific range that covers it. On equal weight the offer
    that was named more specifically wins, then the one offered first. No header, or an empty one,
    means the first offered. Parameters other than the weight are not looked at, and a range whose
    weight is malformed is left out.
    """
    if accept is None or not accept.strip():
        return offered[0] if offered else None
    ranges = _ranges(accept)
    best, best_rank = None, (0.0, 0)
    for offer in offered:
        whole = essence(offer)
        # the most specific range decides, even if a wider one is heavier
        for specificity, wanted in ((3, whole), (2, f"{whole.partition('/')[0]}/*"), (1, "*/*")):
            if wanted in ranges:
                rank = (ranges[wanted], specificity)
                if rank[0] > 0 and rank > best_rank:
                    best, best_rank = offer, rank
                break
    return best


def _ranges(accept: str) -> dict[str, float]:
    """Media range -> its weight; the heavier where one is named twice."""
    ranges: dict[str, float] = {}
    for item in accept.split(","):
        wanted = essence(item)
        weight = 1.0
        for parameter in item.split(";")[1:]:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "q":
                weight = float(value.strip()) if _WEIGHT.fullmatch(value.strip()) else -1.0
        if wanted and weight >= 0:
            ranges[wanted] = max(weight, ranges.get(wanted, 0.0))
    return ranges
