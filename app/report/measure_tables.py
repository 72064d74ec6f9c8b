"""Measures of a report, and a provider's own figures, as the page shows them."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from app.report.formatting import NOT_DEFINED, counted, humanised, named, number
from app.report.page_table import Cell, Table
from app.report.small_counts import Discretion
from providers.measures import MEASURES
from providers.measures.meanings import MEANINGS

GOALS = {
    "low": "↓ lower is better",
    "high": "↑ higher is better",
    "near": "≈ nearer to the source is better",
}

_STATISTICS = {
    "by_field": "field by field",
    "chance": "by chance alone",
    "change": "absolute change",
    "p05": "5th percentile",
    "q25": "lower quartile",
    "q75": "upper quartile",
    "sd": "standard deviation",
}
"""Words for keys that mean the same in every measure."""


def words_of(key: str, measure: str = "", within: str = "") -> str:
    """Return the words for a part of a measure's value.

    Parameters
    ----------
    key : str
        Key of the part.
    measure : str
        Key of the measure, which may declare words; empty for the figures of a provider.
    within : str
        Path to the mapping that has the key, joined by points; empty for the value itself.
    """
    declared = MEASURES[measure].words if measure in MEASURES else {}
    return declared.get(f"{within}.{key}" if within else key) or _STATISTICS.get(key) or humanised(key)


_SIDES = ("before", "after")
"""Parts of a measure that has the same figures of the source and of the release."""

_FEW = 8
"""Up to this many values by field are listed with their names; more become a table that opens."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measure with the texts that a reader needs to understand it."""

    key: str
    title: str
    single: str
    """The value if it is a single one; else empty."""
    pairs: Sequence[tuple[Cell, str]]
    """Name and value of each part, if there are several."""
    tables: Sequence[Table]
    """Parts that have several values themselves, such as one for each field."""
    goal: str
    range: str
    formula: str
    source: str
    fields: Sequence[Cell]
    sample: str
    meaning: str
    """Meaning of the value in one line."""
    remedy: str
    """Remedy if the value is bad, as a sentence."""
    caution: str
    """Sentences on extreme values that decide the value; empty if none do."""


def measure(key: str, report: Mapping[str, Any], fields: Collection[str], discretion: Discretion) -> Figure:
    """Build the figure of `report["measures"][key]`.

    Parameters
    ----------
    key : str
    report : mapping
        Entry of the measure in the report.
    fields : collection of str
        Fields of the table; keys among them are shown as names, other keys as words.
    discretion : Discretion
    """
    sample = report.get("sample")
    over = [str(field) for field in report.get("fields") or ()]
    shown = partial(_plain, discretion=discretion, sample=sample)
    parts = _parts(report.get("value"), over, {*fields, *over}, shown, key)
    chance, interval = report.get("chance"), dict(report.get("interval") or {})
    of_chance = interval.pop("chance", None)
    if isinstance(chance, Mapping):
        chances = _Parts("", [], [])
        _add(chances, (), chance, over, {*fields, *over}, shown, key)
        parts = _with_chances(parts, chances, dict(_ranges(of_chance or {}, key, shown)))
    title = str(report.get("title") or humanised(key))
    texts = MEANINGS.get(key)
    basis = [] if sample is None else [f"on a random sample of {counted(sample, 'row', 'rows')}"]
    if report.get("draws") is not None:
        basis.append(f"the mean of {counted(report['draws'], 'random draw', 'random draws')}")
    return Figure(
        key=key,
        title=title,
        single=parts.single,
        pairs=[
            *parts.pairs,
            *(
                []
                if chance is None or isinstance(chance, Mapping)
                else [(words_of("chance", key), shown(chance))]
            ),
            *_intervals(interval, key, shown),
        ],
        tables=parts.tables,
        goal=GOALS.get(str(report.get("goal")), ""),
        range=str(report.get("range") or ""),
        formula=str(report.get("formula") or ""),
        source=str(report.get("source") or ""),
        fields=[named(field) for field in over],
        sample="; ".join(basis),
        meaning=texts.meaning if texts else "",
        remedy=texts.remedy if texts else "",
        caution=str(report.get("caution") or "").replace("`", ""),
    )


def _intervals(interval: Mapping[str, Any], key: str, shown: Callable[[Any], str]) -> list[tuple[Cell, str]]:
    """Return the 95 % interval of a measure's value, or of each of its parts, as name and range."""
    if not interval:
        return []
    if "low" in interval:
        return [("95 % interval", f"{shown(interval['low'])} to {shown(interval['high'])}")]
    return [(f"{words}, 95 % interval", limits) for words, limits in _ranges(interval, key, shown)]


def _ranges(interval: Mapping[str, Any], key: str, shown: Callable[[Any], str]) -> Iterator[tuple[str, str]]:
    """Yield the words for each part that has an interval, and its limits as text."""
    for words, bounds in _intervals_within(interval, key, ()):
        yield ", ".join(words), f"{shown(bounds['low'])} to {shown(bounds['high'])}"


def _intervals_within(
    interval: Mapping[str, Any], key: str, path: tuple[str, ...]
) -> Iterator[tuple[list[str], Mapping[str, Any]]]:
    """Yield the words for each part that has an interval, and its limits."""
    for part, bounds in interval.items():
        inner = (*path, str(part))
        if "low" in bounds:
            yield [words_of(name, key, ".".join(inner[:place])) for place, name in enumerate(inner)], bounds
        else:
            yield from _intervals_within(bounds, key, inner)


def own_figures(
    provider: Mapping[str, Any], fields: Collection[str], discretion: Discretion
) -> tuple[list[tuple[Cell, str]], list[Table]]:
    """Split a provider's own figures into single values and tables."""
    pairs: list[tuple[Cell, str]] = []
    tables: list[Table] = []
    for key, value in provider.items():
        title = humanised(key)
        if not isinstance(value, Mapping):
            pairs.append((title, _single(key, value, discretion)))
        elif value and all(isinstance(inner, Mapping) for inner in value.values()):
            tables.append(_grid(title, value, set(fields), lambda k, v: _single(k, v, discretion)))
        elif value:
            heads = _heads(value, set(fields))
            # if the inner keys are fields, the outer key names the counted quantity
            keys = [key if str(inner) in fields else inner for inner in value]
            shown = [_single(k, v, discretion) for k, v in zip(keys, value.values(), strict=True)]
            tables.append(
                Table(title, (_kind(value, set(fields)), "value"), list(zip(heads, shown, strict=True)))
            )
    return pairs, tables


def _single(key: str, value: Any, discretion: Discretion) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(discretion.own_figure(key, each) for each in value)
    if isinstance(value, Mapping):
        return "; ".join(f"{humanised(str(k))} {_single(str(k), v, discretion)}" for k, v in value.items())
    return discretion.own_figure(key, value)


@dataclass(slots=True)
class _Parts:
    single: str
    pairs: list[tuple[Cell, str]]
    tables: list[Table]


def _parts(
    value: Any, over: Sequence[str], fields: set[str], shown: Callable[[Any], str], key: str
) -> _Parts:
    """Split a measure's value into a single value, named values and tables."""
    parts = _Parts("", [], [])
    if isinstance(value, Mapping) and value:
        compared = _before_and_after(value)
        sides = {
            side: {part: each for part, each in value[side].items() if part not in compared}
            for side in _SIDES
            if compared
        }
        _add(parts, (), {**value, **sides}, over, fields, shown, key)
        for name, given in compared.items():
            parts.tables.append(_grid(words_of(name, key), given, fields, lambda _, each: shown(each)))
    else:
        parts.single = NOT_DEFINED if isinstance(value, Mapping) else shown(value)
    return parts


def _with_chances(parts: _Parts, chances: _Parts, limits: Mapping[str, str]) -> _Parts:
    """Return the parts next to their values by chance: in the same line, or in a column of the same table.

    ``limits``: words for a part -> interval of its value by chance.
    """
    by_chance, words = dict(chances.pairs), words_of("chance")
    pairs: list[tuple[Cell, str]] = []
    for title, text in parts.pairs:
        if title in by_chance:
            text += f"; {words} {by_chance.pop(title)}"
            if str(title) in limits:
                text += f" (95 % interval {limits[str(title)]})"
        pairs.append((title, text))
    of_caption = {table.caption: {row[0]: row[1] for row in table.rows} for table in chances.tables}
    tables = [_with_column(table, words, of_caption.get(table.caption, by_chance)) for table in parts.tables]
    return _Parts(parts.single, pairs, tables)


def _with_column(table: Table, head: str, cells: Mapping[Cell, Cell]) -> Table:
    """Return the table with a column of cells, by each row's first cell; unchanged if no row has one."""
    if not any(row[0] in cells for row in table.rows):
        return table
    return replace(
        table, head=(*table.head, head), rows=[(*row, cells.get(row[0], "")) for row in table.rows]
    )


def _before_and_after(value: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the parts with several values that both sides have: part -> key -> side -> value."""
    before, after = (value.get(side) for side in _SIDES)
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return {}
    both = [
        part
        for part, each in before.items()
        if each and isinstance(each, Mapping) and isinstance(after.get(part), Mapping)
    ]
    return {
        part: {
            str(key): {side: value[side][part][key] for side in _SIDES if key in value[side][part]}
            for key in dict.fromkeys([*before[part], *after[part]])
        }
        for part in both
    }


def _add(
    parts: _Parts,
    path: tuple[str, ...],
    value: Any,
    over: Sequence[str],
    fields: set[str],
    shown: Callable[[Any], str],
    key: str,
) -> None:
    """Add the value at the path to the pairs or, if it is by field, to the tables.

    A list with one value for each of the fields `over` is a value by field, unless it is a list of records,
    which has columns of its own.
    """
    is_records = isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)
    if isinstance(value, list) and over and len(value) == len(over) and not is_records:
        value = dict(zip(over, value, strict=True))
    title = ", ".join(words_of(part, key) for part in path) or "field by field"
    if is_records:
        parts.tables.append(
            _records(title, value, shown, partial(words_of, measure=key, within=".".join(path)))
        )
        return
    if not isinstance(value, Mapping):
        parts.pairs.append((title, shown(value)))
    elif value and set(map(str, value)) <= fields:
        _add_by_field(parts, title, value, fields, shown, path, key)
    else:
        for inner, inner_value in value.items():
            _add(parts, (*path, str(inner)), inner_value, over, fields, shown, key)


def _records(
    title: str,
    records: Sequence[Mapping[str, Any]],
    shown: Callable[[Any], str],
    words: Callable[[str], str],
) -> Table:
    """Build a table with a row for each record, and a column for each key of any of them."""
    keys = list(dict.fromkeys(str(key) for record in records for key in record))
    rows = [tuple(_cell(record.get(key, ""), shown) for key in keys) for record in records]
    text = {index for index, key in enumerate(keys) if isinstance(records[0].get(key), str)}
    return Table(title, tuple(map(words, keys)), rows, frozenset(text))


def _cell(value: Any, shown: Callable[[Any], str]) -> Cell:
    if isinstance(value, str):
        return named(value) if value else ""
    return shown(value)


def _add_by_field(
    parts: _Parts,
    title: str,
    values: Mapping[str, Any],
    fields: set[str],
    shown: Callable[[Any], str],
    path: tuple[str, ...],
    key: str,
) -> None:
    if any(isinstance(inner, Mapping) for inner in values.values()):
        words = partial(words_of, measure=key, within=".".join(path))
        parts.tables.append(_grid(title, values, fields, lambda _, value: shown(value), words))
        return
    rows = [(head, shown(value)) for head, value in zip(_heads(values, fields), values.values(), strict=True)]
    if not path and len(rows) <= _FEW:
        parts.pairs += rows
    else:
        parts.tables.append(Table(title, ("field", "value"), rows))


def _flat(values: Mapping[str, Any], words: Callable[[str], str]) -> dict[str, Any]:
    """Flatten nested mappings: {mean: {before, after}} becomes {"mean before", "mean after"}."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= {f"{words(str(key))} {words(str(inner))}": cell for inner, cell in value.items()}
        else:
            flat[str(key)] = value
    return flat


def _grid(
    title: str,
    given: Mapping[str, Mapping[str, Any]],
    fields: set[str],
    shown: Callable[[str, Any], str],
    words: Callable[[str], str] = words_of,
) -> Table:
    """Build a table of outer and inner keys, the fewer ones as columns, because paper is narrow."""
    values = {head: _flat(inner, words) for head, inner in given.items()}
    keys = list(dict.fromkeys(str(key) for inner in values.values() for key in inner))
    heads, columns = _heads(values, fields), [words(key) for key in keys]
    cells = [[shown(key, inner[key]) if key in inner else "" for key in keys] for inner in values.values()]
    if len(keys) > len(heads):
        transposed = zip(columns, *cells, strict=True)
        return Table(title, ("figure", *heads), [tuple(row) for row in transposed])
    rows = [(head, *row) for head, row in zip(heads, cells, strict=True)]
    return Table(title, (_kind(values, fields), *columns), rows)


def _kind(values: Mapping[str, Any], fields: set[str]) -> str:
    return "field" if set(map(str, values)) <= fields else "of"


def _heads(values: Mapping[str, Any], fields: set[str]) -> list[Cell]:
    """Return the keys as names if they are fields, else as words."""
    if set(map(str, values)) <= fields:
        return [named(str(key)) for key in values]
    return [words_of(str(key)) for key in values]


def _plain(value: Any, discretion: Discretion, sample: int | None) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{words_of(str(k))} {_plain(v, discretion, sample)}" for k, v in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_plain(each, discretion, sample) for each in value) or "none"
    return discretion.figure(value, sample) if isinstance(value, float) else number(value)
