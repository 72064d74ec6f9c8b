"""Errors a provider raises.

Every class takes positional arguments only: a process pool rebuilds an exception by calling
its class with ``args``, and a keyword-only argument would break the pool.
"""

import difflib
from collections.abc import Iterable

_LONGEST_COMPARED = 100
"""Most characters of a name that is compared with others: difflib's time grows with the product of two."""

_MOST_COMPARED = 1 << 18
"""Most pairs of characters compared for one suggestion, such as those of 2,600 names of 10 characters."""


class ProviderError(Exception):
    """The provider cannot do what was requested; the message states what would be valid."""

    code = "provider_error"

    def __init__(self, message: str, pointer: str = "") -> None:
        """``pointer``: JSON pointer into the request, empty where no part of it is at fault."""
        super().__init__(message, pointer)
        self.message = message
        self.pointer = pointer

    def __str__(self) -> str:
        return self.message


class ParameterError(ProviderError):
    """A parameter does not fit the table."""

    code = "invalid_parameter"


class SourceError(ProviderError):
    """The source table cannot be used as it is."""

    code = "invalid_source"


class UnswappableError(ProviderError):
    """Rows cannot be swapped and the suppression policy is ``fail``."""

    code = "unswappable_rows"


class ReversibleError(ProviderError):
    """Groups of two or three rows can be swapped back by anyone, and `on_reversible` is ``fail``."""

    code = "reversible_groups"


def reference_token(part: object) -> str:
    """Return a name or an index as one reference token of a JSON pointer (RFC 6901)."""
    return str(part).replace("~", "~0").replace("/", "~1")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'age'?"`` with the nearest known name, or the known names if none is near."""
    names = list(known)
    compared = _compared(name, names)
    near = difflib.get_close_matches(name, compared, n=1, cutoff=0.6) if compared else []
    if not near:  # a difference of case alone may hide a near name
        folded = {candidate.casefold(): candidate for candidate in names}
        near = [folded[name.casefold()]] if name.casefold() in folded else []
    if near:
        return f"; did you mean '{near[0]}'?"
    shown = ", ".join(f"'{known_name}'" for known_name in names[:12])
    return f"; known are {shown}{', ...' if len(names) > 12 else ''}" if names else ""


def _compared(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that are compared with a name: none that is long, and within a bound of time."""
    compared: list[str] = []
    characters = _MOST_COMPARED // max(1, len(name)) if len(name) <= _LONGEST_COMPARED else 0
    for candidate in known:
        if len(candidate) <= _LONGEST_COMPARED:
            characters -= len(candidate)
            if characters < 0:
                break
            compared.append(candidate)
    return compared
