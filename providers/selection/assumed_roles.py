"""Known and sensitive fields of the attacks of a comparison, where the caller named none.

The fields that a combination moves are those that it is to protect: they are sensitive. An intruder knows the
fields that no combination moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from providers.attacks.options import AttackOptions
from providers.attacks.tables import AttackTables
from providers.measures.assessment import MeasureOptions
from providers.measures.shared.columns import not_measurable
from providers.measures.shared.sampling import sample_rows
from providers.params import Params
from providers.randomness.chacha20 import Stream
from providers.selection.sampled_attacks import SAMPLED_ROWS
from providers.tables.columns import take_rows
from providers.tables.units import unit_of_params

MOST_SECRETS = 5
"""Most sensitive fields that are assumed, in the order of the table: each of them is attacked by itself."""

_MOVED = ("swap_fields", "perturb_fields", "fields", "hierarchy", "carry_along")
"""Parameters of the services that name fields whose values move."""


def moved_by(params: Params) -> set[str]:
    """Return the fields that checked parameters name as those whose values move."""
    return {name for parameter in _MOVED for name in getattr(params, parameter, ())}


def assumed_roles(options: MeasureOptions, params: Iterable[Params], schema: pa.Schema) -> MeasureOptions:
    """Return the options with known and sensitive fields of the attacks, where the caller gave none.

    Parameters
    ----------
    options : MeasureOptions
    params : iterable of Params
        Checked parameters of all combinations.
    schema : pa.Schema
        Schema of the source.
    """
    every = list(params)
    moved = {name for one in every for name in moved_by(one)}
    identifying = {options.unit_field, *map(unit_of_params, every)}
    usable = [
        field.name
        for field in schema
        if field.name not in identifying and not_measurable(field, field) is None
    ]
    known = options.known_fields or options.key_fields
    secret = options.sensitive_fields
    if not secret:
        secret = tuple(name for name in usable if name in moved and name not in known)[:MOST_SECRETS]
    if not known:
        known = tuple(name for name in usable if name not in moved and name not in secret)
    return options.model_copy(update={"known_fields": known, "sensitive_fields": secret})


def attackable(
    roles: MeasureOptions, given: MeasureOptions, table: pa.Table, stream: Stream
) -> MeasureOptions:
    """Return the roles without assumed fields that identify a row or are a weight.

    Parameters
    ----------
    roles : MeasureOptions
        Result of `assumed_roles`.
    given : MeasureOptions
        Options of the caller, whose own fields stay.
    table : pa.Table
        The source.
    stream : Stream
    """
    rows = take_rows(table, sample_rows(table.num_rows, SAMPLED_ROWS, stream, "inference risk"))
    options = AttackOptions(
        categorical_fields=given.categorical_fields,
        identifiers=given.identifier_fields,
        weights=given.weight_fields,
    )
    tables = AttackTables(rows, rows, None, options, method=None, aligned=False, stream=stream)
    kept: dict[str, Sequence[str]] = {}
    for role, own in (
        ("known_fields", given.known_fields or given.key_fields),
        ("sensitive_fields", given.sensitive_fields),
    ):
        kept[role] = own or tuple(name for name in getattr(roles, role) if name in tables.columns)
    return roles.model_copy(update=kept)
