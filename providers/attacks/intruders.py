"""Several intruders of one attack, of whom the strongest is reported.

Known fields that a release changed are noise in a search, so that an intruder who knows more of them would
look weaker. Hence an intruder who uses the unchanged fields alone attacks as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from providers.attacks.figures import Risk, Successes, risk_of, unknown_risk

ALL_FIELDS, UNCHANGED_FIELDS = "all_fields", "unchanged_fields"
"""Names of the intruders of an attack who differ by the fields that they use only."""

USED = "used"
"""Key in the details of a result: fields that the strongest intruder used, if not all."""


@dataclass(frozen=True, slots=True)
class Run:
    """Successes of one intruder."""

    attack: Successes
    control: Successes | None
    baseline: Successes | None
    used: Sequence[str] | None = None
    """Fields that the intruder used; None: all of them."""

    @property
    def risk(self) -> Risk | None:
        """Risk relative to control rows; None without them, and if all attacks on them succeed."""
        return risk_of(self.attack, self.control)

    def document(self, *, with_baseline: bool = False) -> dict[str, Any]:
        """Return it as the details of a result have it."""
        found: dict[str, Any] = {"attack": self.attack, "control": self.control, "risk": self.risk}
        return found | ({"baseline": self.baseline} if with_baseline else {})


def strongest(runs: Mapping[str, Run]) -> tuple[str, Risk | None]:
    """Return the name of the intruder with the highest risk, and the risk of the strongest intruder.

    Parameters
    ----------
    runs : mapping of str to Run
        One or more intruders by name; of equals the first is chosen. All have control rows, or none has.

    Notes
    -----
    The order is that of the risk beyond control rows, or else beyond the baseline, then of its upper limit,
    then of the success. Value and limits of the returned risk are the largest of all intruders. Hence the
    upper limit holds for the truly strongest intruder as often as that of a single one, whichever is chosen,
    and no state of a verdict falls because there is one intruder more. The lower limit is not adjusted for
    the choice.
    """
    chosen = max(runs, key=lambda name: _strength(runs[name]))
    if runs[chosen].risk is None:
        return chosen, None
    risks = [_risk(run.attack, run.control) for run in runs.values()]
    return chosen, Risk(*(max(getattr(risk, each) for risk in risks) for each in ("value", "low", "high")))


def details_of(runs: Mapping[str, Run], stronger: str, *, with_baseline: bool = False) -> dict[str, Any]:
    """Return the details of a result with several intruders."""
    found: dict[str, Any] = {"intruder": stronger}
    used = runs[stronger].used
    if used is not None:
        found[USED] = list(used)
    return found | {name: run.document(with_baseline=with_baseline) for name, run in runs.items()}


def _strength(run: Run) -> tuple[float, float, float]:
    risk = _risk(run.attack, run.baseline if run.control is None else run.control)
    return risk.value, risk.high, run.attack.rate


def _risk(attack: Successes, other: Successes | None) -> Risk:
    if other is None:
        return Risk(attack.rate, attack.low, attack.high)
    return risk_of(attack, other) or unknown_risk(attack, other)
