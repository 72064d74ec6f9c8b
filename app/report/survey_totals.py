"""Chart of the totals by domain: change in percent, next to the 95 % interval of the source's estimate."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from app.report.formatting import MINUS, counted, fitted, named, number, short
from app.report.page_table import Cell, Table
from app.report.svg import (
    WIDTH,
    Picture,
    Scale,
    drawing,
    element,
    line,
    name,
    nice,
    rectangle,
    text,
)

MOST_DRAWINGS = 6
"""Most totals that are drawn: those whose greatest change is largest."""

MOST_DOMAINS = 20
"""Most domains of a drawing; the table has all."""

_HALF_95 = 1.959963984540054
_LEFT, _RIGHT, _ROW = 12.0, WIDTH - 12, 34.0

Total = Mapping[str, Any]


def survey_totals(given: Sequence[Total]) -> Picture | None:
    """Draw the totals of each field by domain; None if no total has a change in percent.

    Parameters
    ----------
    given : sequence of mapping
        Totals as in the value of the measure: domain_field, domain, field, before, after, change_percent,
        before_error and after_error.
    """
    by_chart: dict[tuple[str, str], list[Total]] = {}
    for total in given:
        if total.get("change_percent") is not None:
            chart = str(total["domain_field"]), str(total["field"])
            by_chart.setdefault(chart, []).append(total)
    if not by_chart:
        return None
    largest = sorted(by_chart, key=lambda chart: -max(abs(t["change_percent"]) for t in by_chart[chart]))
    drawn = [chart for chart in by_chart if chart in largest[:MOST_DRAWINGS]]
    drawings = [
        _drawing(f"survey-totals-{index}", *chart, by_chart[chart]) for index, chart in enumerate(drawn, 1)
    ]
    others = len(by_chart) - len(drawn)
    left_out = f" {counted(others, 'further chart is', 'further charts are')} left out." if others else ""
    return Picture(
        "Estimated totals by domain",
        drawings,
        "Change of each total in percent of the source's. Frame: 95 % interval of the source's estimate, "
        "cut at the ends of the scale. A change within the frame is smaller than the sampling error, "
        f"to which it adds.{left_out}",
        _table(given),
    )


def _table(given: Sequence[Total]) -> Table:
    rows: list[Sequence[Cell]] = [
        (
            Markup("{}: {}").format(named(str(total["domain_field"])), named(str(total["domain"]))),
            named(str(total["field"])),
            number(total["before"]),
            number(total["after"]),
            _signed(total.get("change_percent")),
            number(total["before_error"]),
            number(total["after_error"]),
        )
        for total in given
    ]
    return Table(
        "Estimated totals by domain, before and after",
        (
            "domain",
            "total of",
            "before",
            "after",
            "change in percent",
            "standard error before",
            "standard error after",
        ),
        rows,
        words=frozenset({1}),
    )


def _signed(percent: float | None) -> str:
    if percent is None:
        return "not defined"
    return f"+{number(percent)}" if percent > 0 else number(percent)


def _error_percent(total: Total) -> float:
    return 100 * float(total["before_error"]) / abs(float(total["before"]))


def _drawing(identifier: str, domain_field: str, field: str, totals: Sequence[Total]) -> Markup:
    totals = totals[:MOST_DOMAINS]
    greatest = max(abs(float(total["change_percent"])) for total in totals)
    errors = sorted(_HALF_95 * _error_percent(total) for total in totals)
    most = nice(max(greatest, errors[len(errors) // 2]) * 1.1)  # one wide interval must not hide the others
    across = Scale(-most, most, _LEFT, _RIGHT)
    bottom = 20.0 + _ROW * len(totals)
    parts = [
        text(1, 13, fitted(f"{field} by {domain_field}", 50), class_="strong"),
        line(across(0), 20, across(0), bottom, "axis"),
    ]
    for row, total in enumerate(totals):
        y, change = 33.0 + _ROW * row, float(total["change_percent"])
        half = min(most, _HALF_95 * _error_percent(total))
        shown = f"{_signed(change)} %"
        parts += [
            name(1, y, str(total["domain"]), WIDTH - 2 - 8 * len(shown)),
            text(WIDTH - 1, y, shown, "end"),
            rectangle(across(-half), y + 5, across(half) - across(-half), 9, "frame"),
            element("circle", cx=across(change), cy=y + 9.5, r=4, class_="point"),
        ]
    parts += [
        line(_LEFT, bottom, _RIGHT, bottom, "axis"),
        text(_LEFT, bottom + 16, f"{MINUS}{short(most)} %"),
        text(across(0), bottom + 16, "0", "middle"),
        text(_RIGHT, bottom + 16, f"{short(most)} %", "end"),
    ]
    return drawing(
        identifier,
        f"Total of {fitted(field, 80)} by {fitted(domain_field, 80)}, change in percent",
        f"Points of {counted(len(totals), 'domain', 'domains')}, with frames of the source's 95 % intervals. "
        "The totals are in the table below.",
        bottom + 22,
        *parts,
    )
