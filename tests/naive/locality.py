"""LOCALITY in plain Python: brute-force localities by their definition, then the walk in plain loops.

Twin and provider take sums in the same stated order, so that they agree bit for bit. The twin is slow, and
meant for small segments.
"""

import datetime
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from statistics import median
from typing import Any

from providers.services.locality import LocalityParams
from tests.naive.chacha20 import derive_key
from tests.naive.localities import Vector, holds, of_copies
from tests.naive.property_segment import PropertySegment, properties_of
from tests.naive.redrawn_segment import Place, Segment, ldexp
from tests.naive.swapping import Outcome, Table, row_count

EPOCH = datetime.date(1970, 1, 1).toordinal()
LARGEST = 1.7976931348623157e308


def units_of(value: Any) -> tuple[Any, int]:
    """Return the value in whole units, or as a fraction, and the scale of a unit."""
    if isinstance(value, datetime.date):
        return value.toordinal() - EPOCH, 0
    if isinstance(value, Decimal):
        scale = -int(value.as_tuple().exponent)
        return int(value.scaleb(scale)), scale
    return (Fraction(value), 0) if isinstance(value, float) else (value, 0)


def domain_of(params: LocalityParams, name: str, scale: int, floats: bool) -> tuple[Any, Any] | None:
    if name not in params.domain:
        return None
    ends = []
    for end in params.domain[name]:
        if isinstance(end, str) and "-" in end[1:]:
            ends.append(datetime.date.fromisoformat(end).toordinal() - EPOCH)
        else:
            ends.append(float(end) if floats else int(Decimal(str(end)).scaleb(scale)))  # type: ignore[arg-type]
    return ends[0], ends[1]


def segment_starts(rows: int, size: int) -> list[int]:
    starts = list(range(0, rows, size))
    if len(starts) > 1 and 2 * (rows - starts[-1]) < size:
        starts.pop()
    return starts


@dataclass
class LocalityOutcome(Outcome):
    """Outcome with the provider's own figures."""

    provider: dict[str, Any] = field(default_factory=dict)


def swap(table: Table, params: LocalityParams, seed: bytes, revision: int) -> LocalityOutcome:
    """Redraw every segment of every field."""
    rows = row_count(table)
    out = LocalityOutcome({name: list(values) for name, values in table.items()})
    starts = segment_starts(rows, params.segment_size)
    sizes = [stop - start for start, stop in itertools.pairwise([*starts, rows])] if rows else []
    out.groups = len(starts)
    if sizes:
        out.group_size = (min(sizes), float(median(sizes)), max(sizes))
    present: dict[str, set[int]] = {}
    totals = dict.fromkeys(("found", "chosen", "rows", "holding", "violations"), 0)
    relative: list[float] = []
    kept: Counter[int] = Counter()
    for name in params.fields:
        key = derive_key(seed, "LOCALITY", revision, f"localities/{name}")
        column = table[name]
        with_value = [row for row in range(rows) if column[row] is not None]
        present[name] = set(with_value)
        marks: list[set[str]] = []
        without = 0
        if with_value:
            for segment, members in segments_of_field(params, name, column, with_value, starts, key):
                x = segment.redrawn()
                values = [units_of(column[row])[0] for row in members]
                order = sorted(range(len(members)), key=lambda at: values[at])
                totals["found"] += len(segment.relations)
                totals["chosen"] += len(segment.chosen)
                totals["rows"] += len(segment.constraints)
                totals["holding"] += sum(holds(x, of_copies(row, segment.runs)) for row in segment.relations)
                totals["violations"] += sum(
                    not holds(x, of_copies(row, segment.runs)) for row in segment.chosen
                )
                totals["violations"] += sum(b < a for a, b in itertools.pairwise(x))
                if isinstance(segment, PropertySegment):
                    for one in segment.properties:
                        broken = not one.holds(segment.published_values)
                        totals["violations"] += broken and segment.published_values != segment.source()
                        kept[one.number] += 1
                marks.append(segment.marks)
                without += not segment.relations
                if params.duplicates == "spread":
                    shuffle_copies(x, segment)
                    by_record = x
                else:
                    by_record = [x[segment.exact.index(values[at])] for at in order]
                for at, value in zip(order, by_record, strict=True):
                    put(out.table, name, members[at], column, segment, value)
        out.took_part_by_field[name] = len(with_value)
        out.changed[name] = sum(differs(a, b) for a, b in zip(column, out.table[name], strict=True))
        relative += relative_changes(column, out.table[name])
        add_events(out, params, name, marks, without, len(with_value))
    absent = {row for row in range(rows) for name in params.fields if row not in present[name]}
    out.took_part = len(set[int]().union(*present.values()))
    out.unswapped = len(absent)
    out.unswapped_reasons = {"null": len(absent)} if absent else {}
    out.provider = {
        **totals,
        "relations": dict(kept),
        "distortion": sum(relative) / len(relative) if relative and math.isfinite(sum(relative)) else None,
    }
    return out


def segments_of_field(
    params: LocalityParams,
    name: str,
    column: list[Any],
    with_value: list[int],
    starts: list[int],
    key: list[int],
) -> Iterator[tuple[Segment, list[int]]]:
    """Yield each segment that holds a value, with the rows of its values."""
    scale = units_of(column[with_value[0]])[1]
    floats = isinstance(column[with_value[0]], float)
    unit = 10.0**scale
    units = {row: units_of(column[row])[0] for row in with_value}
    own = min(units.values()), max(units.values())
    domain = domain_of(params, name, scale, floats)
    least, greatest = domain or (own if params.bounds != "segment" else (-math.inf, math.inf))
    magnitudes = [max(abs(float(own[0])), abs(float(own[1]))) / unit]
    magnitudes += [abs(float(end)) / unit for end in domain or ()]
    exponent = max(math.frexp(size)[1] for size in magnitudes)
    margin = None if params.margin == "gap" else params.margin
    if params.bounds == "segment":
        exponent += math.frexp(1.0 + 2.0 * (1.0 if margin is None else margin))[1]
    ends = tuple(
        ldexp(min(max(float(end) / unit, -LARGEST), LARGEST), -exponent) for end in (least, greatest)
    )

    def length(of: float) -> float:
        return ldexp(float(of) / unit, -exponent)

    for number, start in enumerate(starts):
        stop = starts[number + 1] if number + 1 < len(starts) else len(column)
        members = [row for row in with_value if start <= row < stop]
        if not members:
            continue
        ordered = sorted(members, key=lambda row: units[row])
        distinct = [row for at, row in enumerate(ordered) if not at or units[row] != units[ordered[at - 1]]]
        exact = [units[row] for row in distinct]
        values = [float(column[row]) if floats else float(units[row]) / unit for row in distinct]
        if params.duplicates == "spread":
            runs = [[at for at, row in enumerate(ordered) if units[row] == value] for value in exact]
        else:
            runs = [[at] for at in range(len(exact))]
        scaled = [ldexp(value, -exponent) for value in values]
        if floats:
            span, below, above = scaled[-1] - scaled[0], scaled[0] - ends[0], ends[1] - scaled[-1]
        else:
            span = length(exact[-1] - exact[0])
            below = ldexp((float(exact[0] - own[0]) + float(own[0] - least)) / unit, -exponent)
            above = ldexp((float(own[1] - exact[-1]) + float(greatest - own[1])) / unit, -exponent)
        low, high = 0.0, span
        if params.bounds == "segment":
            widened = span * (1.0 / max(len(exact) - 1, 1) if margin is None else margin)
            low, high = -min(widened, below), span + min(widened, above)
        elif params.bounds == "column":
            low, high = -below, span + above
        place = Place(scaled[0], low, high, span, (ends[0], ends[1]), exponent)
        segment = Segment(params, key, number, exact, values, not floats, runs, place)
        related = PropertySegment(params, key, number, exact, values, not floats, runs, place)
        related.base = int(own[0]) if not floats else 0
        related.properties = properties_of(params, name, related, members, [units[row] for row in members])
        segment = related if related.properties else segment
        if params.decimals != "off":
            segment.decimals = params.decimals
            segment.keeps_type = not floats and params.decimals == scale
            if not floats and params.decimals >= scale:
                segment.factor = 10 ** (params.decimals - scale)
                segment.origin = exact[0] * segment.factor
        yield segment, members


def shuffle_copies(x: Vector, segment: Segment) -> None:
    """Put each run of duplicates in a uniformly random order (Fisher-Yates)."""
    draws = segment.draws(4)
    for run in segment.runs:
        for at in range(len(run) - 1, 0, -1):
            other = draws.below(at + 1)
            x[run[at]], x[run[other]] = x[run[other]], x[run[at]]


def put(table: Table, name: str, row: int, column: list[Any], segment: Segment, value: float) -> None:
    """Write one value in the type it is published in."""
    source = column[row]
    table[name][row] = value
    if segment.keeps_type and segment.params.decimals != "off":
        units = segment.exact[0] + int(value)
        if isinstance(source, datetime.date):
            table[name][row] = datetime.date.fromordinal(EPOCH + units)
        elif isinstance(source, Decimal):
            table[name][row] = Decimal(units).scaleb(-segment.decimals)
        else:
            table[name][row] = units


def differs(source: Any, published: Any) -> bool:
    if source is None:
        return False
    if type(source) is type(published) and not isinstance(source, float):
        return bool(source != published)
    units, scale = units_of(source)
    return bool(float(units) / 10.0**scale != published)


def relative_changes(column: list[Any], published: list[Any]) -> list[float]:
    """Equation 6, cell by cell; dates have none."""
    out = []
    for source, value in zip(column, published, strict=True):
        if source is not None and not isinstance(source, datetime.date) and float(source) != 0.0:
            out.append(abs(float(value) / float(source) - 1.0))
    return out


def add_events(
    out: Outcome, params: LocalityParams, name: str, marks: list[set[str]], without: int, present: int
) -> None:
    disclosed = params.bounds == "column" and name not in params.domain and present
    for code, count in (
        ("domain_disclosed", bool(disclosed)),
        ("no_localities", bool(without)),
        ("collapsed", any("collapsed" in mark for mark in marks)),
        ("not_rounded", any("not_rounded" in mark for mark in marks)),
        ("relations_leave_nothing", any("unchanged" in mark for mark in marks)),
        ("nothing_changed", bool(present and not out.changed[name])),
    ):
        out.events[code] += int(count)
    out.events = +out.events
