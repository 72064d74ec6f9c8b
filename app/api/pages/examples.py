"""Examples of every operation for Swagger UI: one small table, and one request of each kind for it.

Ids cannot be known in advance. Those of the examples are placeholders, which the page (`swagger.js`)
replaces by objects that it creates when an example is sent; the service itself does not know them.
"""

import io
from typing import Any

import pyarrow as pa
import pyarrow.csv

JOB_ID = "00000000-0000-7000-8000-000000000001"

BUFFER_ID = "00000000-0000-7000-8000-000000000002"

_CITIES = ("Athens", "Dublin", "Zurich")

PEOPLE: list[dict[str, Any]] = [
    {"age": age, "income": income, "hours": hours, "city": _CITIES[row % 3]}
    for row, (age, income, hours) in enumerate(
        [
            (31, 42000.5, 38.5), (47, 51000.0, 40.0), (24, 38000.0, 20.5), (63, 77000.0, 35.0),
            (58, 64500.0, 42.0), (39, 29000.0, 12.0), (28, 33500.0, 40.5), (52, 58250.0, 37.5),
            (44, 47100.0, 39.0), (35, 36800.0, 30.0), (66, 25400.0, 16.5), (29, 31900.0, 41.0),
        ]
    )
]  # fmt: skip

PARAMETERS: dict[str, dict[str, Any]] = {
    "DSWAP": {"swap_fields": ["income"], "rate": 0.5},
    "CDSWAP": {"swap_fields": ["income"], "control_field": "city"},
    "DDSWAP": {"swap_fields": ["income"], "control_field": "age", "block_size": 4},
    "MEWS": {"swap_fields": ["age", "income"], "bins": 2},
    "MEDS": {"swap_fields": ["age", "income"], "k": 4},
    "RWN": {"k": 3},
    "PABIDOT": {"label_fields": ["city"]},
    "LOCALITY": {"fields": ["age"]},
    "RSWAP": {"hierarchy": ["city"], "risk_fields": ["age"], "k_anonymity": 0, "swap_rate": 0.5},
}
"""Service -> parameters that fit the table."""

_SOURCE = {"rows": PEOPLE}

_RELEASED = {"rows": [person | {"income": PEOPLE[row - 1]["income"]} for row, person in enumerate(PEOPLE)]}

_BODIES: dict[str, dict[str, Any]] = {
    **{
        f"run{service.title()}": {"source": _SOURCE, "parameters": parameters}
        for service, parameters in PARAMETERS.items()
    },
    "measure": {
        "source": _SOURCE,
        "destination": _RELEASED,
        "measures": {"key_fields": ["age", "city"]},
    },
    "attack": {
        "source": _SOURCE,
        "destination": _RELEASED,
        "known": ["age", "city"],
        "secret": ["income"],
        "attacks": 10,
    },
    "compareServices": {
        "source": _SOURCE,
        "services": [
            {"service": "CDSWAP", "parameters": PARAMETERS["CDSWAP"]},
            {"service": "RWN", "parameters": {"perturb_fields": ["income"]}, "vary": {"k": [2, 4]}},
        ],
    },
    "rerunJob": {"source": _SOURCE},
    "annotateJob": {"name": "Survey 2026, second wave", "label": "survey-2026"},
    "annotateBuffer": {"name": "Survey 2026, second wave", "label": "survey-2026"},
    "copyBuffer": {"drop": ["hours"], "types": {"age": "string"}},
}

_PARAMETERS = {
    "job_id": JOB_ID,
    "buffer_id": BUFFER_ID,
    "identifier": "CDSWAP",
    "reason": "compare with a rerun by another version",
}

SERIES = "panel-2026"

_OF_SERIES = {"name": SERIES}

_PARAMETERS_OF = {
    "compareJobRows": {"source": BUFFER_ID},
    "getSeries": _OF_SERIES,
    "deleteSeries": _OF_SERIES,
}
"""Operation -> examples of parameters whose names mean something else in other operations."""


def add_examples(operation: dict[str, Any]) -> None:
    """Add the examples to an operation of the OpenAPI document."""
    body = _BODIES.get(operation["operationId"])
    if body is not None:
        operation["requestBody"]["content"]["application/json"]["example"] = body
    examples = _PARAMETERS | _PARAMETERS_OF.get(operation["operationId"], {})
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in examples:
            parameter["example"] = examples[parameter["name"]]


def example_file(kind: str) -> bytes:
    """Return the table as a file: ``arrow`` or ``csv``."""
    table, sink = pa.Table.from_pylist(PEOPLE), io.BytesIO()
    if kind == "csv":
        pyarrow.csv.write_csv(table, sink)
    else:
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    return sink.getvalue()
