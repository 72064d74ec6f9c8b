"""Household survey of realistic sizes, areas and weights, generated from a seed: no data are kept."""

import numpy as np
import pyarrow as pa

SIZES = (0.34, 0.33, 0.15, 0.12, 0.045, 0.015)
"""Share of households of one to six persons, about those of Central Europe."""
CITIZENSHIPS = (0.86, 0.05, 0.03, 0.02, 0.015, 0.01, 0.008, 0.004, 0.002, 0.001)


def household_survey(households: int, seed: int = 1) -> pa.Table:
    """Return a table of persons, the members of each household in consecutive rows.

    Eight regions of unequal size hold ten districts each, which hold twelve municipalities each. Members of a
    household share tenure, weight and areas, and mostly citizenship; ages are those of couples, children and
    single persons.

    Parameters
    ----------
    households : int
        Number of households; about 2.3 times as many persons.
    seed : int
    """
    random = np.random.default_rng(seed)
    size = random.choice(np.arange(1, 7), households, p=SIZES)
    region = np.minimum(random.geometric(0.25, households) - 1, 7)
    district = 10 * region + np.minimum(random.geometric(0.2, households) - 1, 9)
    municipality = 12 * district + random.integers(0, 12, households)
    tenure = np.array(["owner", "tenant", "social", "free"])[
        random.choice(4, households, p=(0.5, 0.3, 0.15, 0.05))
    ]
    weight = np.round(random.lognormal(4.0, 0.5, households), 3)
    of_row = np.repeat(np.arange(households), size)
    rows = len(of_row)
    place = np.arange(rows) - np.repeat(np.cumsum(size) - size, size)  # 0 is the reference person
    reference_age = np.clip(random.normal(52, 17, households), 18, 95)[of_row]
    partner_age = np.clip(reference_age + random.normal(0, 4, rows), 18, 95)
    child_age = np.clip(reference_age - random.normal(29, 5, rows), 0, 40)
    age = np.select([place == 0, place == 1], [reference_age, partner_age], child_age).astype(np.int64)
    citizenship = random.choice(10, households, p=CITIZENSHIPS)[of_row]
    mixed = random.random(rows) < 0.04
    citizenship[mixed] = random.choice(10, int(mixed.sum()), p=CITIZENSHIPS)
    occupation = np.where(age < 15, 0, random.integers(1, 10, rows))
    return pa.table(
        {
            "household": 10_000 + of_row * 7,
            "person": place + 1,
            "region": [f"R{number}" for number in region[of_row].tolist()],
            "district": district[of_row],
            "municipality": municipality[of_row],
            "household_size": size[of_row],
            "tenure": pa.array(tenure[of_row]).dictionary_encode(),
            "age_group": age // 5,
            "sex": random.integers(1, 3, rows),
            "citizenship": citizenship,
            "occupation": occupation,
            "income": np.round(random.lognormal(10, 0.6, rows)),
            "weight": weight[of_row],
        }
    )
