"""Thresholds by which attacks are judged: shares of records, as in the guidance of agencies.

A public release of health data is held to a risk of 0.09, one in eleven (European Medicines Agency, external
guidance on policy 0070; Health Canada, public release of clinical information), and to 0.05, one in twenty,
if the data are sensitive (El Emam 2013, Guide to the de-identification of personal health information).
Official statistics publish cells from 3 to 10 persons on (Hundepool et al. 2012, Statistical disclosure
control), which bounds the chance of naming the right person by 1/3 to 0.1.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from providers.params import StrictModel

_Share = Annotated[float, Field(ge=0, le=1)]


class Bounds(StrictModel):
    """Two bounds on the risk of an attack, between which it is elevated."""

    elevated: _Share = 0.05
    """Risk above which a release is `elevated`. [0 to 1]"""
    high: _Share = 0.09
    """Risk above which a release is `high`. [0 to 1]"""

    @model_validator(mode="after")
    def _are_in_order(self) -> Self:
        if self.high < self.elevated:
            raise PydanticCustomError("bounds", "'high' must not be below 'elevated'")
        return self


class Thresholds(Bounds):
    """Bounds for all attacks, and different bounds of single attacks."""

    attacks: dict[str, Bounds] = Field(default={})
    """Name of an attack -> its own bounds. Bounds of 1 leave an attack out of the verdict."""

    def of(self, attack: str) -> Bounds:
        """Return the bounds of one attack."""
        return self.attacks.get(attack, self)
