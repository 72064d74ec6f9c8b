"""The attacks, in the order of reports: those on any release, and those that use the rule of a method."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType

from providers.attacks import inference, linkability, membership, singling_out
from providers.attacks.attack import Attack

_LISTED = (
    singling_out.UNIVARIATE,
    singling_out.MULTIVARIATE,
    linkability.ATTACK,
    inference.ATTACK,
    membership.ATTACK,
)

ATTACKS: Mapping[str, Attack] = MappingProxyType({attack.name: attack for attack in _LISTED})
"""Name -> attack on any release, of this folder."""

FURTHER_ATTACKS = ("composition.attack",)
"""Modules below `providers.attacks`, each with an `ATTACK` on any release that runs after these.

They are imported by name, as they import this folder themselves: folders must not import each other in a
circle."""

METHOD_ATTACKS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("DSWAP", "CDSWAP", "DDSWAP", "MEWS", "MEDS"), ("reidentification", "linkage")),
        "RWN": ("donors",),
        "PABIDOT": ("naive_rotation", "ica", "known_io", "enumeration"),
        "LOCALITY": ("rounding", "linear_programming"),
        "RSWAP": ("areas",),
    }
)
"""Service -> modules of `providers.attacks.methods`, each with an `ATTACK` that uses the rule of the service.

They are imported when a release of the service is attacked, because some need libraries that are slow to
import."""


def attacks_on(service: str | None) -> dict[str, Attack]:
    """Return name -> attack on a release of this service; None: of an unknown one."""
    found = dict(ATTACKS)
    own = [f"methods.{module}" for module in METHOD_ATTACKS.get(service, ())] if service else []
    for module in (*own, *FURTHER_ATTACKS):
        attack: Attack = importlib.import_module(f"providers.attacks.{module}").ATTACK
        found[attack.name] = attack
    return found
