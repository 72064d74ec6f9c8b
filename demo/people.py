"""Sample table of people: synthetic, but shaped like a survey.

Income depends on age, education and occupation; towns have very different sizes, and one has a single
inhabitant in the survey; some answers are missing. The same seed gives the same table.
"""

import datetime
import math
import random
from typing import Any

SEED = 20260101
ROWS = 3000

TYPES = {
    "age": "int64",
    "sex": "string",
    "town": "string",
    "education": "string",
    "occupation": "string",
    "hours_per_week": "int64",
    "income": "decimal(10,2)",
    "savings": "float64",
    "interviewed": "date",
}

TOWNS = {
    "Dublin": 900,
    "Zurich": 700,
    "Oslo": 520,
    "Porto": 420,
    "Bergen": 260,
    "Cork": 140,
    "Basel": 50,
    "Ghent": 9,
}
SINGLETON_TOWN = "Athens"

EDUCATION = {"primary": 0.15, "secondary": 0.45, "bachelor": 0.25, "master": 0.12, "doctorate": 0.03}
_RETURN_TO_EDUCATION = dict(zip(EDUCATION, (0.0, 0.15, 0.4, 0.55, 0.7), strict=True))

OCCUPATIONS = {  # occupation -> (usual education, effect on the logarithm of income)
    "cleaner": ("primary", -0.25),
    "driver": ("primary", -0.05),
    "clerk": ("secondary", 0.0),
    "electrician": ("secondary", 0.12),
    "nurse": ("bachelor", 0.05),
    "teacher": ("bachelor", 0.02),
    "engineer": ("master", 0.25),
    "physician": ("master", 0.55),
    "researcher": ("doctorate", 0.1),
}


def _occupation(chance: random.Random, education: str) -> str:
    levels = list(EDUCATION)
    weights = [
        math.exp(-1.4 * abs(levels.index(education) - levels.index(usual)))
        for usual, _ in OCCUPATIONS.values()
    ]
    return chance.choices(list(OCCUPATIONS), weights)[0]


def _person(chance: random.Random, town: str) -> dict[str, Any]:
    age = min(95, max(18, round(chance.gauss(44, 15))))
    education = chance.choices(list(EDUCATION), list(EDUCATION.values()))[0]
    occupation = _occupation(chance, education)
    hours = min(70, max(4, round(chance.gauss(37, 8))))
    experience = (min(age, 62) - 18) / 44
    log_income = (
        10.1
        + _RETURN_TO_EDUCATION[education]
        + OCCUPATIONS[occupation][1]
        + 0.55 * experience * (1.6 - experience)
        + 0.6 * math.log(hours / 37)
        + chance.gauss(0, 0.28)
    )
    income = f"{math.exp(log_income):.2f}"
    savings = round(math.exp(chance.gauss(0, 1.1)) * math.exp(log_income) * experience * 0.8, 1)
    interviewed = datetime.date(2025, 9, 1) + datetime.timedelta(days=chance.randrange(120))
    return {
        "age": age,
        "sex": chance.choice(("female", "male")),
        "town": town,
        "education": education,
        "occupation": occupation,
        "hours_per_week": hours,
        "income": None if chance.random() < 0.03 else income,
        "savings": None if chance.random() < 0.06 else savings,
        "interviewed": interviewed.isoformat(),
    }


def people(rows: int = ROWS, seed: int = SEED) -> list[dict[str, Any]]:
    """Return `rows` people as records of JSON values; their types are `TYPES`."""
    chance = random.Random(seed)
    towns = chance.choices(list(TOWNS), list(TOWNS.values()), k=rows)
    if rows > 7:
        towns[7] = SINGLETON_TOWN
    return [_person(chance, town) for town in towns]
