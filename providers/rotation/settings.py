"""Settings of a perturbation by rotation, independent of the service's parameter model."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class RotationSettings:
    """Fields to perturb and the settings of the perturbation, as checked by the service."""

    fields: tuple[str, ...]
    """Numeric fields to perturb."""
    sigma: float
    """Standard deviation of the noise, in standard deviations of each field."""
    selection: Literal["paper", "definition"]
    """Rule that selects angle and axis; see `transform.choose`."""
    shuffle: bool
    """Whether the rows of the destination are in a random order."""
    pass_nulls: bool
    """Whether a row with a null, NaN or infinity passes through unperturbed; else it is an error."""
