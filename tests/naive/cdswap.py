"""CDSWAP in plain Python: the group is an equivalence class of the control fields."""

import datetime
from decimal import Decimal
from typing import Any

from providers.grouping.equivalence_classes import Breaks, Classifier, Grouping, Prefix, Quantiles
from providers.services.cdswap import CdswapParams
from tests.naive.households import households_of, swap_households
from tests.naive.swapping import Outcome, Table, groups_of, is_nan, swap_within


def literal(value: Any, like: Any) -> Any:
    """Convert a JSON value to the type of `like`, a value of the column."""
    if isinstance(like, datetime.datetime):
        found = datetime.datetime.fromisoformat(value)
        return found.replace(tzinfo=like.tzinfo) if found.tzinfo is None else found
    if isinstance(like, datetime.date):
        return datetime.date.fromisoformat(value)
    return Decimal(str(value)) if isinstance(like, Decimal) else value


def class_of(value: Any, classifier: Classifier) -> Any:
    """Return the name of a value's class."""
    if value is None:
        return "null"
    if is_nan(value):
        return "NaN"
    if isinstance(classifier, Breaks):  # [a, b), open at both ends
        return "interval", sum(literal(bound, value) <= value for bound in classifier.breaks)
    if isinstance(classifier, Grouping):
        for name, members in classifier.groups.items():
            if any(literal(member, value) == value for member in members):
                return "group", name
        if classifier.other == "one_class":
            return "other"
        assert classifier.other == "identity", "a value in no group"
    if isinstance(classifier, Prefix):
        if isinstance(value, int):
            return "prefix", ("-" if value < 0 else "") + str(abs(value))[: classifier.prefix]
        return "prefix", value[: classifier.prefix]
    return "value", value


def classifiers_of(params: CdswapParams) -> list[Classifier]:
    """Return one classifier for each control field."""
    if len(params.classifier) == 1:
        return [params.classifier[0]] * len(params.control_field)
    return list(params.classifier)


def quantiles(column: list[Any], count: int) -> list[Any]:
    """Return each row's class: the share of the values that are smaller, in `count` equal steps."""
    known = [value for value in column if value is not None and not is_nan(value)]

    def step(value: Any) -> int:
        smaller = sum(other < value for other in known)
        return max(step for step in range(count) if step * len(known) <= smaller * count)

    return [("quantile", step(value)) if value in known else class_of(value, "identity") for value in column]


def classes(table: Table, params: CdswapParams) -> list[Any]:
    """Return the name of each row's class."""
    columns = []
    for name, classifier in zip(params.control_field, classifiers_of(params), strict=True):
        if isinstance(classifier, Quantiles):
            columns.append(quantiles(table[name], classifier.quantiles))
        else:
            names = {value: class_of(value, classifier) for value in set(table[name])}
            columns.append([names[value] for value in table[name]])
    return list(zip(*columns, strict=True))


def households_and_keys(table: Table, params: CdswapParams) -> tuple[list[list[int]], list[Any]]:
    """Return the rows of each household in the order of classes, and its classes, equal within a group."""
    found = classes(table, params)
    number: dict[Any, int] = {}
    for each in found:
        number.setdefault(each, len(number))
    households = [
        sorted(rows, key=lambda row: (number[found[row]], row))
        for rows in households_of(table, params.moving_unit)
    ]
    keys = [tuple(found[row] for row in rows) for rows in households]
    return households, keys if params.unit_sizes == "equal" else [frozenset(key) for key in keys]


def swap(table: Table, params: CdswapParams, seed: bytes, revision: int) -> Outcome:
    """Exchange values between random rows of one class."""
    if params.moving_unit is not None:
        households, keys = households_and_keys(table, params)
        return swap_households(table, params, households, groups_of(keys), seed, "CDSWAP", revision)
    return swap_within(table, params, groups_of(classes(table, params)), seed, "CDSWAP", revision)
