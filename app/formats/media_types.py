"""Media types, and content negotiation by the Accept header (RFC 9110, section 12.5.1)."""

import re
from collections.abc import Sequence

JSON = "application/json"

CSV = "text/csv"

ARROW_STREAM = "application/vnd.apache.arrow.stream"

PARQUET = "application/vnd.apache.parquet"

MEDIA_TYPES = (JSON, CSV, ARROW_STREAM, PARQUET)

_WEIGHT = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")


def essence(media_type: str) -> str:
    """Return the type without its parameters, in lower case: ``text/csv`` for ``Text/CSV; charset=utf-8``."""
    return media_type.partition(";")[0].strip().lower()


def sent_as(content_type: str | None, subject: str = "the body") -> str:
    """Return the first half of a message about a media type: the type that the client stated."""
    stated = "".join(each for each in (content_type or "").strip() if each.isprintable())
    return f"{subject} was sent as '{stated[:100]}'" if stated else f"{subject} was sent without a media type"


def negotiate(accept: str | None, offered: Sequence[str]) -> str | None:
    """Return the offered media type of highest preference; None if none is acceptable.

    The weight of an offer is the weight of the most specific range that covers it. For equal weights the
    offer that was named more specifically wins, then the first one offered. Without a header, or with an
    empty one, the first offered type is chosen. Parameters other than the weight are ignored, and so is a
    range with a malformed weight.
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
    """Return media range -> weight; the larger one for a duplicate range."""
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
