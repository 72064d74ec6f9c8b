"""Drawings of a report: they show the data of their tables."""

import re
from typing import Any

import pytest

from app.report.correlations import correlations
from app.report.distributions import BARS, distributions
from app.report.plots import Axis, changed, closest, risk_utility
from app.report.small_counts import Discretion
from tests.reports.documents import pictures
from tests.reports.reading import Element, read

RISK, UTILITY = Axis("PSCR", "lower is better"), Axis("R2", "higher is better")


def histogram(**values: Any) -> Element:
    """Draw a numeric field."""
    given = {"field": "x", "kind": "number", "missing": {"source": 0, "destination": 0}} | values
    [picture] = distributions([given], 5)
    return read(picture.drawings[0])


def bars(drawing: Element, kind: str) -> list[tuple[float, ...]]:
    """Return x, y, width and height of each rectangle."""
    return [
        tuple(float(bar.attributes[name]) for name in ("x", "y", "width", "height"))
        for bar in drawing.all("rect", kind)
    ]


def test_heights_of_a_histogram_are_its_counts() -> None:
    """Areas show the counts before, steps those after, at one scale."""
    drawing = histogram(edges=[0, 10, 20, 30], source=[10, 40, 20], destination=[20, 40, 10])
    heights = [bar[3] for bar in bars(drawing, "before")]
    assert [height / heights[1] for height in heights] == pytest.approx([0.25, 1, 0.5], abs=0.01)
    steps = [tuple(map(float, at.split(","))) for at in drawing.one("polyline").attributes["points"].split()]
    tops = [bar[1] for bar in bars(drawing, "before")]
    assert [y for _, y in steps] == [tops[2], tops[2], tops[1], tops[1], tops[0], tops[0]]


def test_areas_of_uneven_intervals_are_their_counts() -> None:
    """An interval twice as wide with as many rows is half as high."""
    drawing = histogram(edges=[0, 10, 30], source=[40, 40], destination=[40, 40])
    one, two = bars(drawing, "before")
    assert one[2] * one[3] == pytest.approx(two[2] * two[3], rel=0.01)
    assert two[3] / one[3] == pytest.approx(0.5, rel=0.01)


def test_counts_not_shown_are_circles() -> None:
    """A masked count has no bar, no step and no length."""
    drawing = histogram(edges=[0, 1, 2, 3], source=[10, None, 20], destination=[10, 9, None])
    assert len(drawing.all("rect", "before")) == 2
    assert len(drawing.all("circle", "hidden")) == 2
    assert [len(line.attributes["points"].split()) for line in drawing.all("polyline")] == [4]


@pytest.mark.parametrize("edges", [[0.0, 1e-9], [-5e12, 5e12], [3, 3]])
def test_intervals_of_any_size_are_drawn(edges: list[Any]) -> None:
    """Ranges that are tiny, huge or of width zero are drawn."""
    drawing = histogram(edges=edges, source=[12], destination=[12])
    assert len(drawing.all("rect", "before")) == 1
    assert "nan" not in str([bar.attributes for bar in drawing.all("rect")])


def test_large_whole_numbers_differ_and_do_not_overlap() -> None:
    """Labels of the axis and rows of the table have all digits where fewer would be the same."""
    edges = [9007199250000000.0, 9007199255000000.0, 9007199260000000.0]
    given = {"field": "x", "kind": "number", "edges": edges, "source": [12, 8], "destination": [11, 9]}
    [picture] = distributions([given], 5)
    labels = [text.text for text in read(picture.drawings[0]).all("text")][-2:]
    assert labels == ["9007199250000000", "9007199260000000"]
    assert len({row[0] for row in picture.table.rows}) == 2
    exact = ["-4611686000000000000", "-4611681500000000000"]
    drawing = histogram(edges=[-4.6e18, -4.5e18], edge_labels=exact, source=[12], destination=[11])
    assert [text.text for text in drawing.all("text", "small")] == exact


def test_dates_are_shown_as_dates() -> None:
    """Dates are shown at the axis, in words and in the table, never as days since 1970."""
    dates = ["2020-01-01", "2020-06-30", "2020-12-27"]
    counts = {"source": [12, 8], "destination": [11, 9], "missing": {"source": 0, "destination": 0}}
    given = {"field": "born", "kind": "number", "edges": [18262, 18443, 18623], "edge_labels": dates} | counts
    [picture] = distributions([given], 5)
    drawing = read(picture.drawings[0])
    assert [text.text for text in drawing.all("text")][-2:] == [dates[0], dates[2]]
    assert "from 2020-01-01 to 2020-12-27" in drawing.one("desc").text
    assert [row[0] for row in picture.table.rows][:2] == [
        "2020-01-01 to 2020-06-30",
        "2020-06-30 to 2020-12-27",
    ]
    assert not re.search(r"18[ ,\u202f]?(262|623)", str(picture.drawings[0]))


def test_too_few_numbers_are_not_drawn_and_that_is_said() -> None:
    """Two rows have no histogram, which would reveal them; the table shows the missing values."""
    given = {"field": "x", "kind": "number", "edges": [], "source": [], "destination": []}
    [picture] = distributions([given | {"missing": {"source": 0, "destination": 0}}], 5)
    assert picture.drawings == []
    assert picture.caption == (
        "Not drawn: there are fewer than 10 numbers, or they are too large or too small."
    )
    assert list(picture.table.rows) == [("missing", "0", "0")]


def test_a_field_without_any_count_is_drawn() -> None:
    """An empty table, or one that is all below the threshold."""
    drawing = histogram(edges=[0, 1, 2], source=[None, None], destination=[0, None])
    assert len(drawing.all("circle", "hidden")) == 2


def test_bars_are_of_the_most_frequent_and_the_others_last() -> None:
    """The table has all values, including those without a bar."""
    [*_, town] = distributions(pictures(["age"])["fields"], 5)
    drawing = read(town.drawings[0])
    names = [text.text for text in drawing.all("text", "name")]
    assert names == [*(f"Town {at}" for at in range(BARS)), "(others)"]
    assert "12 of 14 values have bars of their own." in town.caption
    assert drawing.one("desc").text.startswith("Bars of 12 values and of all others together.")
    before, after = bars(drawing, "before"), bars(drawing, "after")
    assert before[1][2] / before[0][2] == pytest.approx(840 / 900, rel=0.01)
    assert after[0][2] / before[0][2] == pytest.approx(870 / 900, rel=0.01)
    assert len(town.table.rows) == 16
    assert list(town.table.rows[14]) == ["(others)", "not shown", "12"]
    assert list(town.table.rows[15]) == ["missing", "10", "10"]


def test_a_value_that_is_called_like_the_others_is_a_value() -> None:
    """Only the last label stands for all other values."""
    counts = {"source": [9, 8, 0], "destination": [9, 8, 0], "missing": {}}
    labels = {"labels": ["(others)", "b", "(others)"], "categories": {"source": 2, "destination": 2}}
    [picture] = distributions([{"field": "x", "kind": "category"} | counts | labels], 5)
    drawing = read(picture.drawings[0])
    assert [text.text for text in drawing.all("text", "name")] == ["(others)", "b"]
    assert "bars of their own" not in picture.caption


def test_a_field_that_stayed_is_described_so() -> None:
    """A swap keeps each field's distribution, so that two equal charts need an explanation."""
    same = {"field": "x", "kind": "number", "edges": [0, 1], "source": [9], "destination": [9], "missing": {}}
    [picture] = distributions([same], 5)
    assert picture.caption == "All counts that are shown are the same before and after."


def cells(drawing: Element, kind: str) -> int:
    """Count the cells of a kind; each starts with a move to the start of its outline."""
    paths = [path for path in drawing.all("path") if path.attributes["class"] == kind]
    return sum(path.attributes["d"].count("M") for path in paths)


def test_cells_of_the_maps_are_the_values() -> None:
    """Cells of the lower triangle are shaded by size, hatched below zero, crossed if undefined."""
    matrix = [[1, 0.3, -0.3], [0.3, 1, None], [-0.3, None, 1]]
    change = [[0, 0, -0.01], [0, 0, None], [-0.01, None, 0]]
    given = {"fields": ["a", "b", "c"], "source": matrix, "destination": matrix, "difference": change}
    picture = correlations(given)
    assert picture is not None
    before, _, difference = (read(drawing) for drawing in picture.drawings)
    assert cells(before, "cell shade-5") == 3
    assert cells(before, "cell shade-2") == 2
    assert cells(before, "over hatch-dark") == 1
    assert cells(before, "undefined") == 1
    assert cells(difference, "over hatch-light") == 1
    assert [str(row[1]) for row in picture.table.rows] == ["\u22120.3", "0.3", "not defined"]
    assert "a" in picture.table.rows[0][0]
    assert "c" in picture.table.rows[0][0]


def test_one_field_has_no_correlations() -> None:
    """Fewer than two fields have no heat map."""
    assert correlations({"fields": ["a"], "source": [[1]], "destination": [[1]], "difference": [[0]]}) is None
    assert correlations({}) is None


def test_maps_of_many_fields_stay_small() -> None:
    """Cells of one shade are drawn as one path."""
    picture = correlations(pictures([f"f{at}" for at in range(40)])["correlations"])
    assert picture is not None
    assert len(picture.table.rows) == 40 * 39 / 2
    for drawing in picture.drawings:
        assert len(read(drawing).all("path")) <= 12


def test_the_change_map_is_in_the_order_of_change() -> None:
    """A drawing has up to twelve fields; the length of a bar is its share."""
    fields = [f"f{at}" for at in range(14)]
    picture = changed({"fields": fields, "share": [at / 20 for at in range(14)]}, Discretion(4000))
    assert picture is not None
    assert len(picture.drawings) == 2
    first = read(picture.drawings[0])
    widths = [bar[2] for bar in bars(first, "after")]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] / bars(first, "frame")[0][2] == pytest.approx(13 / 20, rel=0.01)
    assert str(picture.table.rows[0][1]) == "65\u202f%"


def test_the_curve_of_distances_rises() -> None:
    """The table has every point; the caption gives the share at distance zero."""
    picture = closest(pictures(["a"])["dcr"], 4000)
    assert picture is not None
    line = read(picture.drawings[0]).one("polyline")
    points = [tuple(map(float, at.split(","))) for at in line.attributes["points"].split()]
    assert len(points) == len(picture.table.rows) == 21
    assert points == sorted(points, key=lambda point: (point[0], -point[1]))
    assert "At least 5\u202f% of the rows are at distance 0." in picture.caption
    assert "sample of 1000 rows" in picture.caption
    whole = closest(pictures(["a"])["dcr"], 1000)
    assert whole is not None
    assert "sample" not in whole.caption
    assert closest({"share": [0, 1], "distance": [None, None]}, 4000) is None


@pytest.mark.parametrize(("x", "y"), [(0.25, 0.75), (12.0, -3.0), (0.0, 0.0), (1.0, 1.0)])
def test_the_point_is_where_its_figures_are(x: float, y: float) -> None:
    """Shares have a scale from 0 to 1, other values a round one."""
    given = {"risk": {"key": "pscr", "value": x}, "utility": {"key": "r_squared.change", "value": y}}
    picture = risk_utility(given, RISK, UTILITY, (f"{x:g}", f"{y:g}"))
    assert picture is not None
    drawing = read(picture.drawings[0])
    corners = [tuple(map(float, at.split(","))) for at in drawing.one("polygon").attributes["points"].split()]
    middle = (corners[0][0], corners[1][1])
    assert 44 <= middle[0] <= 348
    assert 40 <= middle[1] <= 230
    if (x, y) == (0.25, 0.75):
        assert middle == pytest.approx((44 + 304 * 0.25, 230 - 190 * 0.75), abs=0.1)
    assert "best corner is top left" in picture.caption


def test_a_point_without_figures_is_not_drawn() -> None:
    """A measure may have no value."""
    given = {"risk": {"key": "pscr", "value": None}, "utility": {"key": "il2", "value": 0.1}}
    assert risk_utility(given, RISK, UTILITY, ("", "")) is None
