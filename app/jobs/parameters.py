"""The parameters of jobs that run no provider of their own."""

from providers.params import StrictModel


class MeasureParameters(StrictModel):
    """What a job that judges a table is told of it."""

    aligned: bool
    """Whether row i of the destination was row i of the source."""
