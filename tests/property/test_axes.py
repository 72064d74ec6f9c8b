"""Axes of a comparison: a figure that no run can change, or that is equal for all, never ranks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.measures.assessment import MeasureOptions
from providers.selection.axes import axis_of, why_not
from providers.selection.figures import FIGURES, Taken, cannot_change

LINKAGE, NARROW, CHANGED = (
    FIGURES[name] for name in ("record_linkage.rate", "interval_sd.robust.by_field", "changed_share")
)
KNOWN = MeasureOptions(key_fields=("age", "sex"))


def taken(**values: float) -> Taken:
    names = {"linkage": LINKAGE.name, "narrow": NARROW.name, "changed": CHANGED.name}
    undefined = {names[name]: "it does not apply" for name in names if name not in values}
    return Taken({names[name]: value for name, value in values.items()}, undefined, {}, {})


@pytest.mark.parametrize(
    ("name", "options", "changed", "can"),
    [
        ("record_linkage.rate", {"key_fields": ("age", "sex")}, ("income",), False),
        ("record_linkage.rate", {"key_fields": ("age", "sex")}, ("income", "age"), True),
        ("record_linkage.rate", {"key_fields": ("age",), "known_fields": ("income",)}, ("income",), True),
        ("unique_combinations.after", {"key_fields": ("age",)}, ("income",), False),
        ("unique_combinations.after", {"key_fields": ("age",)}, ("age",), True),
        ("mean_k.after", {"key_fields": ("age",), "known_fields": ("income",)}, ("income",), False),
        ("k_anonymity.after.k", {"key_fields": ("age",)}, ("income",), False),
        ("k_anonymity.after.small", {"key_fields": ("age",)}, ("age",), True),
        (
            "l_diversity.after.distinct",
            {"key_fields": ("age",), "sensitive_fields": ("pay",)},
            ("pay",),
            True,
        ),
        (
            "l_diversity.after.distinct",
            {"key_fields": ("age",), "sensitive_fields": ("pay",)},
            ("sex",),
            False,
        ),
        ("t_closeness.after.mean", {"key_fields": ("age",), "sensitive_fields": ("pay",)}, ("age",), True),
        ("population_uniques.after.zayatz", {"key_fields": ("age",), "weight_fields": ("w",)}, ("w",), True),
        (
            "population_uniques.after.zayatz",
            {"key_fields": ("age",), "weight_fields": ("w",)},
            ("sex",),
            False,
        ),
        ("suda.after.special", {"key_fields": ("age", "sex")}, ("income",), False),
        ("pscr", {"fields": ("age", "sex")}, ("income",), False),
        ("delta_rho.mean", {"fields": ("age", "income")}, ("income",), True),
        ("pscr", {}, ("income",), True),
    ],
)
def test_a_figure_of_fields_that_no_run_changes_cannot_rank(
    name: str, options: dict[str, tuple[str, ...]], changed: tuple[str, ...], can: bool
) -> None:
    """The measured fields decide, whatever the values."""
    reason = cannot_change(FIGURES[name], MeasureOptions(**options), changed)
    assert (reason is None) == can


def test_a_figure_that_differs_by_its_sample_alone_is_constant() -> None:
    """A release in another order has another sample, but its known fields are unchanged."""
    runs = [taken(linkage=0.80, narrow=0.1), taken(linkage=0.81, narrow=0.2)]
    reason = why_not(LINKAGE, runs, KNOWN, ["income"])
    assert reason.startswith("it is 0.8 to 0.81 by chance alone")
    axis = axis_of([LINKAGE, NARROW, CHANGED], runs, KNOWN, ["income"])
    assert (axis.figure, axis.ranks) == (NARROW, True)
    assert axis.passed_over == {LINKAGE.name: reason}


def test_where_no_figure_differs_the_axis_is_constant_and_says_so() -> None:
    """If no figure differs, the first one that all runs have becomes the axis."""
    runs = [taken(narrow=0.5), taken(narrow=0.5)]
    axis = axis_of([LINKAGE, NARROW, CHANGED], runs, KNOWN, ["income"])
    assert (axis.figure, axis.ranks) == (NARROW, False)
    assert axis.document() == {
        "figure": NARROW.name,
        "ranks": False,
        "constant": True,
        "reason": "it is 0.5 for every run",
    }
    assert axis.passed_over[LINKAGE.name] == "it does not apply"


def test_a_figure_that_only_some_runs_have_comes_after_one_that_all_have() -> None:
    """A figure that some run lacks is passed over, so that no run fails for it."""
    runs = [taken(narrow=0.5, changed=0.1), taken(changed=0.2)]
    assert axis_of([NARROW, CHANGED], runs, MeasureOptions(), ["income"]).figure is CHANGED
    alone = [taken(narrow=0.5), taken()]
    assert axis_of([NARROW, CHANGED], alone, MeasureOptions(), ["income"]).figure is NARROW


@given(st.lists(st.sampled_from([0.1, 0.1 * (1 + 1e-15), 0.2, 0.0]), min_size=1, max_size=6))
def test_equal_values_are_constant_and_different_ones_are_not(values: list[float]) -> None:
    """Values within the rounding of sums are equal; a single run has nothing to differ from."""
    runs = [taken(narrow=value) for value in values]
    rounded = {round(value, 9) for value in values}
    constant = bool(why_not(NARROW, runs, MeasureOptions(), ["income"]))
    assert constant == (len(values) > 1 and len(rounded) == 1)


def test_means_over_fields_are_taken_over_the_protected_ones() -> None:
    """A field that no run protects does not enter a mean over fields."""
    one = Taken({CHANGED.name: 0.3}, {}, {}, {CHANGED.name: {"age": 0.0, "income": 0.8, "town": 0.1}})
    assert one.over(["income", "town"]).values == {CHANGED.name: pytest.approx(0.45)}
    assert CHANGED.name in one.over(["other"]).undefined
    assert one.values == {CHANGED.name: 0.3}
