"""Several intruders of one attack: the strongest is reported, and each is judged.

Known fields that a release changed are noise in a search, so that an intruder who knows more of them would
look weaker. Hence an intruder who uses only the unchanged fields attacks as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from providers.attacks.figures import AttackResult, Risk, Successes, risk_of, unknown_risk

ALL_FIELDS, UNCHANGED_FIELDS = "all_fields", "unchanged_fields"
"""Names of the intruders of an attack who differ by the fields that they use only."""

INTRUDERS = (
    "nearest",
    "model",
    "nearest_unchanged",
    "model_unchanged",
    ALL_FIELDS,
    UNCHANGED_FIELDS,
)
"""Names of all intruders, which are keys in the details of a result."""

FIELDS = "fields"
"""Key in the details of an intruder: fields that the intruder used, if not all."""

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

    def document(self) -> dict[str, Any]:
        """Return it as the details of a result have it."""
        found: dict[str, Any] = {"attack": self.attack, "control": self.control, "risk": self.risk}
        return found if self.used is None else {**found, FIELDS: list(self.used)}


def strongest(runs: Mapping[str, Run]) -> str:
    """Return the name of the intruder whose successes are reported.

    Parameters
    ----------
    runs : mapping of str to Run
        One or more intruders by name; of equals the first is chosen. All have control rows, or none has.

    Notes
    -----
    The order is that of the lower limit of the risk beyond control rows, or else beyond the baseline, then of
    the risk, its upper limit, and the success. An intruder with a part of the fields comes first only if the
    interval of the risk excludes 0: by few fields many rows are equally near, so that the risk has a large
    error. A verdict judges every intruder by itself.
    """
    return max(runs, key=lambda name: _strength(runs[name]))


def details_of(runs: Mapping[str, Run], stronger: str) -> dict[str, Any]:
    """Return the details of a result with several intruders."""
    found: dict[str, Any] = {"intruder": stronger}
    used = runs[stronger].used
    if used is not None:
        found[USED] = list(used)
    found |= {name: run.document() for name, run in runs.items()}
    if len({run.baseline for run in runs.values()}) > 1:
        for name, run in runs.items():
            found[name]["baseline"] = run.baseline
    return found


def results_of(result: AttackResult) -> list[AttackResult]:
    """Return the result of each intruder by itself, the reported one first."""
    reported = result.details.get("intruder")
    names = [name for name in INTRUDERS if name in result.details]
    if reported not in names:
        return [result]
    found = []
    for name in sorted(names, key=lambda name: name != reported):
        run = result.details[name]
        details = {USED: run[FIELDS]} if FIELDS in run else {}
        baseline = run.get("baseline", result.baseline)
        found.append(AttackResult(run["attack"], baseline, run["control"], run["risk"], result.note, details))
    return found


def _strength(run: Run) -> tuple[float, bool, float, float, float]:
    other = run.baseline if run.control is None else run.control
    if other is None:
        risk = Risk(run.attack.rate, run.attack.low, run.attack.high)
    else:
        risk = risk_of(run.attack, other) or unknown_risk(run.attack, other)
    return risk.low, run.used is None or risk.low > 0, risk.value, risk.high, run.attack.rate
