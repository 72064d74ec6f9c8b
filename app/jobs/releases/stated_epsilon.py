"""Epsilon of an entry of the ledger, as the service states it."""

from collections.abc import Mapping
from typing import Any

_OLDER = (
    "No sum is stated: this entry is of an older version, which also added up the epsilons of releases with "
    "different swap fields"
)

_SECRET = ("draw", "stream")
"""Fingerprints, which would show whose releases have one seed."""


def stated_epsilon(stored: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the epsilon of an entry without its fingerprints and without empty members.

    Entries never change. The sum of an older version may be of releases with different swap fields, for which
    no finite epsilon holds; that of a single release is right.

    Parameters
    ----------
    stored : mapping or None
        Column ``epsilon`` of the entry.
    """
    if stored is None:
        return None
    stated = {name: value for name, value in stored.items() if value is not None and name not in _SECRET}
    if (
        "orders" not in stored
        and stated.get("releases") != 1
        and stated.pop("all_releases", None) is not None
    ):
        stated["limits"] = _OLDER
    return stated
