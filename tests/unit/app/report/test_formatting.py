"""Format of numbers, names and small counts on the page of a report."""

import pytest

from app.report.formatting import fitted, named, number, percent, short, visible
from app.report.small_counts import Discretion
from app.report.svg import Scale, nice, ticks

SPACE = "\u202f"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "not defined"),
        (True, "yes"),
        (0, "0"),
        (4177, "4177"),
        (48842, f"48{SPACE}842"),
        (-1234567, f"\u22121{SPACE}234{SPACE}567"),
        (3.0, "3"),
        (0.03, "0.03"),
        (0.0312345, "0.03123"),
        (-278338.77, f"\u2212278{SPACE}339"),
        (12.5, "12.5"),
        (0.00001234, "1.23 \u00d7 10⁻⁵"),
        (2.5e20, "2.50 \u00d7 10²⁰"),
        ("<b>", "<b>"),
    ],
)
def test_number(value: object, words: str) -> None:
    """Numbers have four significant digits, integers all digits."""
    assert number(value) == words


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0, "0"),
        (1, "100"),
        (0.5, "50"),
        (0.55, "55"),
        (0.8909, "89.1"),
        (0.00002, "0.002"),
        (0.99998, "99.998"),
    ],
)
def test_percent(share: float, words: str) -> None:
    """A share near none or all is never rounded to none or all."""
    assert percent(share) == f"{words}{SPACE}%"


def test_short() -> None:
    """Large numbers are given in thousands, millions and billions, the largest as powers of ten."""
    assert [short(value) for value in (0, 0.25, 9999, 12500, -2e6, 3e9, 9e15)] == [
        "0", "0.25", "9999", f"12.5{SPACE}k", f"\u22122{SPACE}M", f"3{SPACE}G", "9.00 \u00d7 10¹⁵",
    ]  # fmt: skip


def test_names_are_escaped_and_what_acts_unseen_is_shown() -> None:
    """A control or an override of direction is escaped; a joined emoji is kept."""
    assert named("<i>&\"'") == '<bdi class="name">&lt;i&gt;&amp;&#34;&#39;</bdi>'
    assert visible("a\nb\x00\u202ec\u2028") == "a\\nb\\x00\\u202ec\\u2028"
    assert visible("👩\u200d👧 العمر") == "👩\u200d👧 العمر"
    assert visible("") == "(empty)"


def test_fitted_counts_wide_characters_twice() -> None:
    """A cut text ends in an ellipsis within the columns."""
    assert fitted("income", 6) == "income"
    assert fitted("incomes", 6) == "incom…"
    assert fitted("年齢と収入", 6) == "年齢…"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (0, "0 rows"),
        (1, "fewer than 5 rows"),
        (4, "fewer than 5 rows"),
        (5, "5 rows"),
        (95, "95 rows"),
        (96, "all but fewer than 5 rows"),
        (99, "all but fewer than 5 rows"),
        (100, "all 100 rows"),
    ],
)
def test_rows_of_all(rows: int, words: str) -> None:
    """Neither a small count nor a small remainder is shown."""
    assert Discretion(100).rows_of_all(rows) == words


def test_shares_of_few_rows_are_bounds() -> None:
    """A share of fewer than five rows, or of all but fewer, is shown as a bound."""
    of = Discretion(1000)
    assert [of.share(share) for share in (0, 0.004, 0.005, 0.996, 1)] == [
        f"0{SPACE}%", f"below 0.5{SPACE}%", f"0.5{SPACE}%", f"above 99.5{SPACE}%", f"100{SPACE}%",
    ]  # fmt: skip
    assert of.figure(0.004) == "below 0.005"
    assert of.figure(0.00412) == "0.00412"  # is no share of 1000 rows
    assert of.figure(0.02, sample=50) == "below 0.1"
    assert of.figure(0.02, sample=500) == "0.02"


def test_own_figures_of_few_rows_are_not_shown() -> None:
    """An integer counts rows unless it is known to count others."""
    of = Discretion(1000, 10)
    assert of.own_figure("singletons", 9) == "fewer than 10"
    assert of.own_figure("something_new", 9) == "fewer than 10"
    assert of.own_figure("k", 9) == "9"
    assert of.own_figure("violations", 0) == "0"
    assert of.own_figure("shuffled", True) == "yes"


def test_ticks_are_round_and_within() -> None:
    """Ticks are round for ranges that do not begin at zero too."""
    assert ticks(0, 1) == [0, 0.25, 0.5, 0.75, 1]
    assert ticks(13, 58) == [20, 40]
    assert ticks(-0.02, 0.02) == pytest.approx([-0.02, -0.01, 0, 0.01, 0.02])
    assert ticks(3, 3) == [3]
    assert [nice(value) for value in (0, 0.03, 0.6, 1, 980, 1010)] == pytest.approx(
        [1, 0.03, 0.6, 1, 1000, 1500]
    )


def test_a_scale_of_one_figure_is_its_middle() -> None:
    """The middle avoids a division by zero."""
    assert Scale(2, 2, 10, 30)(2) == 20
    assert Scale(0, 4, 10, 30)(1) == 15
