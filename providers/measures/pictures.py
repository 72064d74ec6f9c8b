"""What pictures of a release are made of, without a count of cells that would disclose."""

from collections.abc import Mapping
from typing import Any

from providers.measures.case import Case


def pictures_of(case: Case, measures: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The data of the pictures, as plain JSON."""
    pictures: dict[str, Any] = {"threshold": case.options.threshold}
    if "changed_share" in measures:
        shares = measures["changed_share"]["value"]
        pictures["changed"] = {"fields": list(shares), "share": list(shares.values())}
    return pictures
