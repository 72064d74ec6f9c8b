"""Sketches for tests of the ledger."""

import base64
from typing import Any

from providers.tables.sketch_kernels import PLACES


def document(number: int) -> dict[str, Any]:
    """A sketch that differs for each number."""
    words = base64.b64encode(bytes([number % 256, 1, 2, 3]) * PLACES).decode()
    return {"rows": words, "fields": {f"{number:016x}": words}}
