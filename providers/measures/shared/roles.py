"""Roles of fields: identifiers and survey weights are left out of distances and models.

A field is recognised by its name and its values. The rule is narrow, because a field that is wrongly left
out hides a risk: a number that varies freely, such as an age with a random fraction, is never an
identifier, even if all of its values differ.
"""

import re
from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from providers.measures.shared.columns import Column

_IDENTIFIER = re.compile(
    r"(^|[_\W])(id|ids|uuid|hid|pid|hhid|name|names|surname|email|e-mail|phone|ssn|passport|iban)($|[_\W])"
    r"|(user|person|people|customer|client|patient|record|case|row|account|employee|member|student"
    r"|household|utility|firm|company)_?(id|name)s?$",
    re.IGNORECASE,
)

_IDENTIFIER_BY_CAPITALS = re.compile(r"[a-z](Id|ID)$")  # customerId; but not paid

_WEIGHT = re.compile(
    r"(^|[_\W])(sampling|sample|survey|design|household|hh|person|individual|final|replicate|calibrat\w*)"
    r"[_\W]?(weights?|wgts?|wts?)($|[_\W])|(^|[_\W])a?fnlwgt($|[_\W])|(^|[_\W])p?wgts?($|[_\W])",
    re.IGNORECASE,
)

_MANY = 20
"""A field with at most this many rows, or distinct values, is never taken for an identifier."""


def role_of(column: Column) -> str | None:
    """Return the reason for which the field takes no part, in words; None if it is an attribute.

    Parameters
    ----------
    column : Column
        Only its name and the source's values count.

    Notes
    -----
    Survey weights are numbers that have the name of one. Identifiers are text or whole numbers

    - with the name of an identifier, over 20 values, and more values than a tenth of the rows;
    - text that differs in every row; or whole numbers that number the rows without a gap.
    """
    kind = column.tables["source"].type
    if column.kind == "number" and _WEIGHT.search(column.name):
        return "its name is that of a survey weight"
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    rows = len(column.tables["source"])
    if rows <= _MANY or not (text or pa.types.is_integer(kind)):
        return None
    if _IDENTIFIER.search(column.name) or _IDENTIFIER_BY_CAPITALS.search(column.name):
        many = _distinct(column) > max(_MANY, rows // 10)
        return "its name is that of an identifier" if many else None
    if text:
        return "every row has a different text" if _distinct(column) == rows else None
    numbers = column.numbers("source")
    counts = numbers.max() - numbers.min() == rows - 1 and _distinct(column) == rows
    return "it numbers the rows" if counts else None


def _distinct(column: Column) -> int:
    """Number of distinct values of the source, without null."""
    return int(pc.count_distinct(column.tables["source"], mode="only_valid").as_py())


def left_out_as(role: str) -> str:
    """Complete the reason for which a field of this role is left out."""
    return f"{role}: it takes no part in distances, linkage, relations and models"


def roles_of(
    columns: Collection[Column],
    identifiers: Collection[str],
    weights: Collection[str],
    named: Collection[str],
) -> dict[str, str]:
    """Return field -> reason for every field that takes no part in distances and models.

    Parameters
    ----------
    columns : collection of Column
    identifiers, weights : collection of str
        Fields that the options declare as such.
    named : collection of str
        Fields that another option names: they always take part.
    """
    found = {}
    for column in columns:
        if column.name in identifiers:
            found[column.name] = left_out_as("it was given as an identifier")
        elif column.name in weights:
            found[column.name] = left_out_as("it was given as a weight")
        elif column.name not in named and (role := role_of(column)):
            found[column.name] = left_out_as(f"{role}; name it in 'fields' if it is an attribute")
    return found
