"""Table of tests of the command line."""

import random
from functools import cache

import pyarrow as pa


@cache
def people(rows: int = 400) -> pa.Table:
    draw = random.Random(7)
    return pa.table(
        {
            "age": [draw.randint(18, 90) for _ in range(rows)],
            "income": [round(draw.lognormvariate(10, 1), 2) for _ in range(rows)],
            "hours": [float(draw.randint(5, 60)) for _ in range(rows)],
            "city": [draw.choice(["Dublin", "Zurich", "Athens"]) for _ in range(rows)],
        }
    )
