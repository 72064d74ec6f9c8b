"""Donor inference on RWN: against a plain twin, and on releases whose answer is known."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from providers.attacks.figures import AttackResult
from providers.attacks.methods import donors
from providers.attacks.methods.donors import choose_value, nearby
from providers.attacks.options import AttackOptions
from providers.attacks.suite import MethodUsed, attacks_stream
from providers.attacks.tables import AttackTables
from providers.measures.shared.finding import NotApplicable
from providers.neighbours.points import Points, encode
from tests.naive import method_attacks as naive
from tests.naive.agreement import swap
from tests.unit.providers.attacks.methods.tables import released
from tests.unit.providers.attacks.tables import SEED, attacked, people

KNOWN = ("age", "school", "town")
PARAMETERS: dict[str, Any] = {"k": 4, "perturb_fields": ["income"], "distance_fields": list(KNOWN)}


def plain(points: Points) -> list[list[float]]:
    """Points one-hot encoded: coordinates whose squared differences add up to RWN's distance."""
    out = []
    for numbers, codes in zip(points.numbers, points.codes, strict=True):
        row = numbers.tolist()
        for index, code in enumerate(codes.tolist()):
            weight = points.weight if index < points.flags else 2.0
            levels = int(points.codes[:, index].max()) + 1
            row += [(weight / 2) ** 0.5 * (code == level) for level in range(levels)]
        out.append(row)
    return out


@pytest.mark.parametrize("q", [1.0, 0.6])
@pytest.mark.parametrize("k", [1, 4, 12])
def test_the_chosen_value_has_the_twin_s_best_score(k: int, q: float) -> None:
    table = people(75)
    points = encode(table, list(KNOWN))
    shown = np.random.default_rng(5).integers(0, 25, 60)
    share = np.bincount(shown, minlength=25) / 60
    released_points, people_points = points.slice(0, 60), points.slice(60, 75)
    found = nearby(people_points, released_points, k, max(20, min(4 * k, 60)), {})
    coordinates = plain(points)
    for person, near in enumerate(found):
        scores = naive.donor_score(
            coordinates[60 + person], coordinates[:60], shown.tolist(), k, q if k > 1 or q < 1 else 0.999
        )
        value, _ = choose_value(near, shown, share, k, q if k > 1 or q < 1 else 0.999)
        assert scores[value] == pytest.approx(max(scores.values()), abs=1e-6)


def result(**parameters: Any) -> AttackResult:
    """Attack on incomes that are all different, by known fields that the release keeps."""
    source = people(500)
    source = source.set_column(4, "income", pa.array(np.arange(500)))
    tables = released("RWN", source, PARAMETERS | parameters, known=KNOWN, secret=("income",))
    found = donors.ATTACK.run(tables)
    assert isinstance(found, dict)
    assert found.keys() == {"income"}
    return found["income"]


def test_distances_and_ties_are_those_of_every_processor() -> None:
    """Squares are added one by one, as plain floats; of rows as far as the last one, the first are near."""
    random = np.random.default_rng(8)
    numbers = random.normal(size=(40, 7))
    table = pa.table({f"x{i}": numbers[:, i] for i in range(7)})
    points = encode(table, table.column_names)
    found = donors.squared_distances(points, points)
    for i, j in np.ndindex(40, 40):
        expected = 0.0
        for one, two in zip(points.numbers[i].tolist(), points.numbers[j].tolist(), strict=True):
            expected += (one - two) * (one - two)
        assert found[i, j] == expected
    ties = random.integers(0, 4, 300).astype(float)
    order = sorted(range(300), key=lambda row: (ties[row], row))
    assert donors.nearest_first(ties, 50).tolist() == order[:50]


def test_donors_of_distinct_values_are_found() -> None:
    """A value that several rows received has one donor; a row that keeps its value shows it."""
    whole = result()
    assert whole.attack.low > 0.2
    assert whole.baseline is not None
    assert whole.baseline.rate < 0.02
    assert whole.details["k"] == 4
    assert 1 < whole.details["mean_receivers"] < 8
    half = result(q=0.5)
    assert half.attack.low > whole.attack.rate


def test_a_row_that_agrees_alone_never_shows_its_own_value_at_q_one() -> None:
    near = donors.Neighbourhood(np.arange(3), np.array([0.0, 0.5, 0.5]), np.array([0.6, 0.6, 0.6]))
    shown, share = np.array([0, 1, 1]), np.array([0.01, 0.5])
    assert choose_value(near, shown, share, 3, 1.0) == (1, 2)
    assert choose_value(near, shown, share, 3, 0.5)[0] == 0


def test_control_rows_have_no_donor() -> None:
    """Incomes of the withheld tenth are in the release only by chance; the risk is relative to them."""
    source = people(600)
    source = source.set_column(4, "income", pa.array(np.arange(600)))
    figures = attacked(source, source, method=MethodUsed("RWN", PARAMETERS), known=KNOWN, secret=("income",))
    found = figures.attacks["donor_inference"]
    assert isinstance(found, dict)
    income = found["income"]
    assert income.control is not None
    assert income.control.successes == 0
    assert income.risk is not None
    assert income.risk.value == pytest.approx(income.attack.rate)


def test_a_release_with_other_types_is_attacked_alike() -> None:
    """A release that was read from a CSV has int64 and plain text, whatever types the source has."""
    source = people(120)
    release = swap("RWN", source, PARAMETERS).table
    read = release.set_column(0, "age", release["age"].cast(pa.float64()))
    read = read.set_column(1, "school", read["school"].cast(pa.string()))
    read = read.set_column(2, "town", read["town"].cast(pa.int16()))
    options, method = AttackOptions(known=KNOWN, secret=("income",)), MethodUsed("RWN", PARAMETERS)
    stream = attacks_stream(SEED)
    one, two = (
        donors.ATTACK.run(
            AttackTables(source, each, None, options, method=method, aligned=True, stream=stream)
        )
        for each in (release, read)
    )
    assert one == two


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"known": ("height",), "secret": ("income",)}, "by which RWN chose neighbours"),
        ({"known": KNOWN, "secret": ("moves",)}, "perturbed field"),
        ({"secret": ("income",)}, "intruder knows"),
    ],
)
def test_reasons(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotApplicable, match=reason):
        donors.ATTACK.run(released("RWN", people(80), PARAMETERS, **options))
