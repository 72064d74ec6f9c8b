"""Declaration of an attack."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from providers.attacks.figures import AttackResult
from providers.attacks.tables import AttackTables

Results = AttackResult | dict[str, AttackResult]


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack on a release."""

    name: str
    """Key of the attack in reports."""
    title: str
    meaning: str
    """One sentence for reports: what it means that the attack succeeds."""
    source: str
    """Paper that describes the attack."""
    run: Callable[[AttackTables], Results]
    """Attack the release, or raise NotApplicable with the reason; returns an object by field if there are
    several. It reports its progress, from 0 to 1, to `tables.progress`."""
    services: Collection[str] = ()
    """Services whose rule the attack uses; empty: it attacks any release."""
    cost: str = ""
    """Running time in the rows n of the release and the attacks a."""
