"""Values of risk figures by chance alone, given the released marginal distributions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from providers.measures.assessment import MeasureOptions
from providers.measures.shared.columns import column_of, not_measurable
from providers.measures.shared.comparison import Comparison, Release
from providers.measures.shared.finding import NotApplicable
from providers.params import Params
from providers.randomness.chacha20 import Stream
from providers.selection.figures import Figure, mean

_DEALT = "the source's values of each field, dealt to the rows at random"

_GUESSED = "one row guessed among those that are compared"


def chance(
    figure: Figure,
    table: pa.Table,
    options: MeasureOptions,
    protected: Sequence[str],
    params: Params,
    stream: Stream,
) -> tuple[float, str] | None:
    """Return the figure's value by chance alone, and the meaning of chance; None if it is unknown.

    Parameters
    ----------
    figure : Figure
    table : pa.Table
        The source.
    options : MeasureOptions
        Options with which the figure is taken.
    protected : sequence of str
        Fields over which a figure that is a mean over fields is the mean.
    params : Params
        Parameters of one of the runs, which name the units.
    stream : Stream
        Randomness of the draws of `dcr`.

    Notes
    -----
    Exact, not drawn: the mean over all pairs of rows, O(n log n) per field. Only `dcr` draws.
    """
    if figure.part.guessing:
        rows = min(options.sample, table.num_rows)
        return (1 / rows, _GUESSED) if rows else None
    value = mean(chance_of_fields(figure, table, options, protected).values())
    if value is None and figure.measure.by_chance is not None and table.num_rows:
        comparison = Comparison(Release(table, table, parameters=params), options, stream)
        with suppress(NotApplicable):
            value = figure.of(figure.measure.by_chance(comparison).value)
    return None if value is None else (value, _DEALT)


def chance_of_fields(
    figure: Figure, table: pa.Table, options: MeasureOptions, names: Sequence[str]
) -> dict[str, float]:
    """Return the figure's value by chance of each of the fields in which it is known."""
    chance_of_field = figure.part.chance
    if chance_of_field is None or not table.num_rows:
        return {}
    numbers = {}
    for name in names:
        wanted = not options.fields or name in options.fields
        categorical = name in options.categorical_fields
        field = table.schema.field(name)
        if wanted and not_measurable(field, field, categorical) is None:
            column = table.column(name)
            number = chance_of_field(column_of(name, column, column, categorical))
            if number is not None:
                numbers[name] = number
    return numbers
