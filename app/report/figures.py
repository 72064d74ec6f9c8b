"""Measures and other figures of the report as the page shows them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.report.discretion import Discretion
from app.report.tables import Cell, Table
from app.report.words import NOT_DEFINED, counted, humanised, named, number

GOALS = {"low": "↓ lower is better", "high": "↑ higher is better"}

_WORDS = {
    "at_zero": "share at distance 0",
    "by": "told by",
    "by_field": "field by field",
    "chance": "by chance alone",
    "marginals.identical": "share of fields with the very same values",
    "interval_rmd.own": "each table scaled by itself",
    "interval_rmd.source": "both scaled by the source",
    "interval_sd.narrow": "with a twentieth of the width",
    "interval_sd.share": "share of rows near in every field",
    "mean_distance": "mean distance",
    "p05": "5th percentile",
    "pc1": "first component",
    "pc2": "second component",
    "prediction.destination": "trained on the destination",
    "prediction.source": "trained on the source",
    "q25": "lower quartile",
    "q75": "upper quartile",
    "rate": "re-identified",
    "raw_mean": "mean, in the fields' own units",
    "same_row": "the same row still leads",
    "sd": "standard deviation",
    "share": "share of rows",
}
"""Key of a part of a measure's value, after the measure's key and a point where it needs that, -> words."""


def words_of(key: str, measure: str = "") -> str:
    """What a part of a measure's value is called."""
    return _WORDS.get(f"{measure}.{key}") or _WORDS.get(key) or humanised(key)


_FEW = 8
"""So many values by field stand beside their names; more are a table that opens."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure, and what a reader needs to understand it."""

    key: str
    title: str
    single: str
    """The value, where it is one; else empty."""
    pairs: Sequence[tuple[Cell, str]]
    """Name and value of each, where there are several."""
    tables: Sequence[Table]
    """Those whose values have several parts themselves, such as one for each field."""
    goal: str
    range: str
    formula: str
    source: str
    fields: Sequence[Cell]
    sample: str


def measure(key: str, report: Mapping[str, Any], fields: Collection[str], discretion: Discretion) -> Figure:
    """The figure of `report["measures"][key]`; `fields` are the table's, told from words by them."""
    sample = report.get("sample")
    over = [str(field) for field in report.get("fields") or ()]
    parts = _parts(
        report.get("value"), over, {*fields, *over}, lambda value: _plain(value, discretion, sample), key
    )
    title = str(report.get("title") or humanised(key))
    return Figure(
        key=key,
        title=title,
        single=parts.single,
        pairs=parts.pairs,
        tables=parts.tables,
        goal=GOALS.get(str(report.get("goal")), ""),
        range=str(report.get("range") or ""),
        formula=str(report.get("formula") or ""),
        source=str(report.get("source") or ""),
        fields=[named(field) for field in over],
        sample="" if sample is None else f"on a random sample of {counted(sample, 'row', 'rows')}",
    )


def own_figures(
    provider: Mapping[str, Any], fields: Collection[str], discretion: Discretion
) -> tuple[list[tuple[Cell, str]], list[Table]]:
    """A provider's own figures: those that are one value, and tables of those that are several."""
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
            # of {field: cells} the outer key says what is counted
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
    """A measure's value: one, some with names, or tables; lists over the fields get their names."""
    parts = _Parts("", [], [])
    if isinstance(value, Mapping) and value:
        _add(parts, (), value, over, fields, shown, key)
    else:
        parts.single = NOT_DEFINED if isinstance(value, Mapping) else shown(value)
    return parts


def _add(
    parts: _Parts,
    path: tuple[str, ...],
    value: Any,
    over: Sequence[str],
    fields: set[str],
    shown: Callable[[Any], str],
    key: str,
) -> None:
    """Put what stands at the path into the pairs or, if it is by field, into a table."""
    if isinstance(value, list) and over and len(value) == len(over):
        value = dict(zip(over, value, strict=True))
    title = ", ".join(words_of(part, key) for part in path) or "field by field"
    if not isinstance(value, Mapping):
        parts.pairs.append((title, shown(value)))
    elif value and set(map(str, value)) <= fields:
        _add_by_field(parts, title, value, fields, shown, of_measure=not path)
    else:
        for inner, its in value.items():
            _add(parts, (*path, str(inner)), its, over, fields, shown, key)


def _add_by_field(
    parts: _Parts,
    title: str,
    values: Mapping[str, Any],
    fields: set[str],
    shown: Callable[[Any], str],
    of_measure: bool,
) -> None:
    if any(isinstance(inner, Mapping) for inner in values.values()):
        parts.tables.append(_grid(title, values, fields, lambda _, value: shown(value)))
        return
    rows = [(head, shown(value)) for head, value in zip(_heads(values, fields), values.values(), strict=True)]
    if of_measure and len(rows) <= _FEW:
        parts.pairs += rows
    else:
        parts.tables.append(Table(title, ("field", "value"), rows))


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """{mean: {before, after}} as {"mean before", "mean after"}."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= {f"{words_of(str(key))} {words_of(str(inner))}": its for inner, its in value.items()}
        else:
            flat[str(key)] = value
    return flat


def _grid(
    title: str, given: Mapping[str, Mapping[str, Any]], fields: set[str], shown: Callable[[str, Any], str]
) -> Table:
    """What there are fewer of, keys or the things they are of, are the columns: paper is narrow."""
    values = {of: _flat(inner) for of, inner in given.items()}
    keys = list(dict.fromkeys(str(key) for inner in values.values() for key in inner))
    heads, columns = _heads(values, fields), [words_of(key) for key in keys]
    cells = [[shown(key, inner[key]) if key in inner else "" for key in keys] for inner in values.values()]
    if len(keys) > len(heads):
        turned = zip(columns, *cells, strict=True)
        return Table(title, ("figure", *heads), [tuple(row) for row in turned])
    rows = [(head, *row) for head, row in zip(heads, cells, strict=True)]
    return Table(title, (_kind(values, fields), *columns), rows)


def _kind(values: Mapping[str, Any], fields: set[str]) -> str:
    return "field" if set(map(str, values)) <= fields else "of"


def _heads(values: Mapping[str, Any], fields: set[str]) -> list[Cell]:
    """The keys: names where they are fields, words where they are not."""
    if set(map(str, values)) <= fields:
        return [named(str(key)) for key in values]
    return [words_of(str(key)) for key in values]


def _plain(value: Any, discretion: Discretion, sample: int | None) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{words_of(str(k))} {_plain(v, discretion, sample)}" for k, v in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_plain(each, discretion, sample) for each in value) or "none"
    return discretion.figure(value, sample) if isinstance(value, float) else number(value)
