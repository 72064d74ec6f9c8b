"""The utility measures taken of a case: which fields and rows they see, and when they do not apply."""

from collections.abc import Callable

from providers.measures.case import Case, Finding

UTILITY: dict[str, Callable[[Case], Finding]] = {}
