"""Declaration of an experiment: place in the paper, code that runs it, and rule of its verdict."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv

Cell = str | float | int | None
Verdict = Literal["reproduced", "differs", "cannot be reproduced"]
DIGITS = 5
"""Significant digits of stored numbers."""


@dataclass(frozen=True, slots=True)
class Table:
    """Table of numbers: the paper's in columns next to ours."""

    name: str
    """Key by which the rule of the verdict finds the table."""
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    varies: Sequence[str] = ()
    """Columns of times and memory, which differ from run to run; all others are the same in every run."""

    def column(self, name: str) -> list[Any]:
        """Return the cells of a column."""
        index = list(self.columns).index(name)
        return [row[index] for row in self.rows]

    def numbers(self, name: str) -> list[float]:
        """Return the cells of a column of numbers."""
        return [float(cell) for cell in self.column(name)]

    def where(self, /, **cells: Cell) -> "Table":
        """Return the rows whose named cells have these values."""
        places = {list(self.columns).index(name): value for name, value in cells.items()}
        rows = [row for row in self.rows if all(row[place] == value for place, value in places.items())]
        return Table(self.name, self.caption, self.columns, rows, self.varies)


@dataclass(frozen=True, slots=True)
class Series:
    """One line, set of points, or set of bars of a chart."""

    name: str
    x: Sequence[Any]
    """Numbers, or names of categories if the chart has bars."""
    y: Sequence[float]


@dataclass(frozen=True, slots=True)
class Chart:
    """Chart of one or more series over the same axes."""

    name: str
    """Last part of the name of its file."""
    kind: Literal["line", "points", "bars"]
    title: str
    x: str
    """Label of the horizontal axis, with its unit."""
    y: str
    """Label of the vertical axis, with its unit."""
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    varies: bool = False
    """Whether it shows times or memory, which differ from run to run."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Result of an experiment."""

    tables: Sequence[Table]
    charts: Sequence[Chart] = ()

    def table(self, name: str) -> Table:
        """Return the table of this name."""
        return next(table for table in self.tables if table.name == name)

    def chart(self, name: str) -> Chart:
        """Return the chart of this name."""
        return next(chart for chart in self.charts if chart.name == name)

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON, with numbers rounded to `DIGITS` significant digits."""
        rounded: dict[str, Any] = _rounded(asdict(self))
        return rounded

    @classmethod
    def of_json(cls, given: dict[str, Any]) -> "Figures":
        """Return stored figures."""
        charts = [
            Chart(**{**chart, "series": [Series(**series) for series in chart["series"]]})
            for chart in given["charts"]
        ]
        return cls([Table(**table) for table in given["tables"]], charts)


@dataclass(frozen=True)
class Data:
    """Public tables (`ROWVEIL_DATA`)."""

    folder: Path = field(default_factory=lambda: Path(os.environ.get("ROWVEIL_DATA", "../shared/data")))

    def read(self, name: str) -> pa.Table:
        """Read a table by its name without ending."""
        return self._read.setdefault(name, pyarrow.csv.read_csv(self.folder / f"{name}.csv"))

    @cached_property
    def _read(self) -> dict[str, pa.Table]:
        return {}


@dataclass(frozen=True, slots=True)
class Experiment:
    """One table or figure of a paper, or several that one run gives."""

    identifier: str
    """Part of file names and argument of `make papers ONLY=`, for example ``table-2``."""
    place: str
    """Place in the paper, for example ``Table 2``."""
    title: str
    services: Sequence[str]
    claim: str
    """Conclusion of the paper from the experiment: a clause without a full stop, in our words."""
    setting: str
    """Tables, parameters and runs, and the differences from the paper's setting: sentences."""
    run: Callable[[Data], Figures]
    """Measure. The same tables give the same figures, except times and memory."""
    judge: Callable[[Figures], tuple[Verdict, str]]
    """Return verdict and reason by a rule over the figures, which are as they are stored."""


@dataclass(frozen=True, slots=True)
class Source:
    """One paper with its experiments."""

    number: str
    """Number of the source, which names its files."""
    title: str
    reference: str
    summary: dict[str, str]
    """Service -> what the source says of it: one sentence in our words, for the service's page."""
    left_out: str
    """Tables and figures of the source that are no experiments, and why: sentences."""
    experiments: Sequence[Experiment]


def stored(
    experiment: Experiment, figures: dict[str, Any], seconds: float, revisions: dict[str, int]
) -> dict[str, Any]:
    """Return the entry of an experiment in the file of its source.

    ``revisions``: service -> revision that was measured.
    """
    verdict, reason = experiment.judge(Figures.of_json(figures))
    return {
        "identifier": experiment.identifier,
        "place": experiment.place,
        "title": experiment.title,
        "services": list(experiment.services),
        "revisions": revisions,
        "claim": experiment.claim,
        "setting": experiment.setting,
        "verdict": verdict,
        "reason": reason,
        "processor_seconds": round(seconds, 1),
        **figures,
    }


def repeatable(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a stored experiment without what differs from run to run: times, memory, and texts with them."""
    tables = [{**table, "rows": [_without(table, row) for row in table["rows"]]} for table in entry["tables"]]
    charts = [chart for chart in entry["charts"] if not chart["varies"]]
    kept = {**entry, "tables": tables, "charts": charts, "processor_seconds": None}
    if any(table["varies"] for table in tables):
        kept["reason"] = None
    return kept


def _without(table: dict[str, Any], row: list[Cell]) -> list[Cell]:
    return [
        None if name in table["varies"] else cell for name, cell in zip(table["columns"], row, strict=True)
    ]


def _rounded(given: Any) -> Any:
    if isinstance(given, dict):
        return {name: _rounded(value) for name, value in given.items()}
    if isinstance(given, list | tuple):
        return [_rounded(value) for value in given]
    if isinstance(given, float):
        if not math.isfinite(given):
            return None
        shown = float(f"{given:.{DIGITS}g}")
        return int(shown) if shown.is_integer() else shown
    return given.item() if hasattr(given, "item") else given
