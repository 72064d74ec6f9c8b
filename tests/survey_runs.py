"""A small survey of households, and runs on it by the parameters that surveys need, for every surface."""

import random
from typing import Any

Row = dict[str, Any]

AREAS = ("north", "south", "west")
KNOWN = ["age", "sex"]
"""Fields that an intruder knows of a person."""


def survey(households: int = 90) -> list[Row]:
    """Return persons of households of one to four, with weights, a secret, and years that fit each other."""
    draw = random.Random(11)
    rows: list[Row] = []
    for household in range(households):
        area = AREAS[household % 3]
        weight = 50.0 + household % 7
        size = 1 + household % 4
        for _ in range(size):
            age = draw.randint(16, 80)
            rows.append(
                {
                    "household": 700 + household,
                    "size": size,
                    "area": area,
                    "age": age,
                    "sex": draw.choice("fm"),
                    "income": 900 + 10 * age + draw.randint(0, 400),
                    "start": 1960 + draw.randint(0, 30),
                    "end": 1975 + draw.randint(0, 40),
                    "weight": weight,
                }
            )
    return rows


SWAP: dict[str, Any] = {"swap_fields": ["income"]}
BY_RISK: dict[str, Any] = {"rate": 0.3, "risk": {"key_fields": KNOWN, "weight": "weight", "k": 100}}

RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "permutation": ("CDSWAP", {**SWAP, "control_field": "area", "mechanism": "permutation", "rate": 0.5}),
    "target epsilon": (
        "DDSWAP",
        {**SWAP, "control_field": "age", "block_size": 10, "mechanism": "permutation", "target_epsilon": 4.0},
    ),
    "risk, DSWAP": ("DSWAP", {**SWAP, **BY_RISK}),
    "risk, CDSWAP": (
        "CDSWAP",
        {**SWAP, "control_field": "area", "rate": 0.3, "risk": {"key_fields": KNOWN, "k": 3}},
    ),
    "risk, DDSWAP": ("DDSWAP", {**SWAP, "control_field": "age", "block_size": 20, **BY_RISK}),
    "risk, MEWS": ("MEWS", {"swap_fields": ["income"], "bins": 5, **BY_RISK}),
    "risk, MEDS": ("MEDS", {"swap_fields": ["income"], "k": 20, **BY_RISK}),
    "record swapping": (
        "RSWAP",
        {
            "household": "household",
            "hierarchy": ["area"],
            "similar": [["size"]],
            "risk_fields": KNOWN,
            "k_anonymity": 2,
            "swap_rate": 0.4,
        },
    ),
    "weight classes": (
        "CDSWAP",
        {**SWAP, "control_field": ["weight", "area"], "classifier": [{"quantiles": 3}, "identity"]},
    ),
    "weights along": ("DSWAP", {"swap_fields": ["income", "weight"], "locked": True}),
    "household": ("DSWAP", {**SWAP, "household": "household", "rate": 0.5}),
    "household check": (
        "CDSWAP",
        {"swap_fields": ["sex"], "control_field": "area", "household_check": "household"},
    ),
    "repair": ("DSWAP", {"swap_fields": ["end"], "checks": ["start <= end"], "on_broken": "repair"}),
}
"""Name -> service and parameters."""

WEIGHTED: dict[str, Any] = {
    "weight_fields": ["weight"],
    "domain_fields": ["area"],
    "cluster_field": "household",
    "stratum_field": "sex",
}
"""Options of the measures that take survey weights."""
