"""Verdict on a release: risk of each attack against thresholds, with the sentences that say why."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from providers.attacks.figures import AttackFigures, AttackResult, Successes, risk_of
from providers.attacks.thresholds import Bounds, Thresholds

State = Literal["low", "elevated", "high"]

STATES: tuple[State, ...] = ("low", "elevated", "high")
"""All states, in ascending order of risk."""

SINGLING_OUT = ("singling_out_univariate", "singling_out_multivariate")
"""Attacks that isolate a record and learn nothing else; they raise the verdict to `elevated` at most."""

Against = Literal["control", "baseline", "nothing"]


@dataclass(frozen=True, slots=True)
class AttackState:
    """State of one attack."""

    attack: str
    field: str | None
    """Secret field, for an attack on one field."""
    state: State
    value: float
    """Success beyond the control's; without a control beyond the baseline's; else the success itself."""
    low: float
    high: float
    """Bounds of the risk's interval."""
    against: Against
    """Success that the attack's is compared with."""
    reason: str
    """Sentence that says why."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """State of a release: that of its worst attack."""

    state: State
    reasons: list[str]
    """Sentences about the attacks that decide, the worst first; one about the worst attack if all are low."""
    attacks: list[AttackState]
    """State of each attack, the worst first."""

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return asdict(self)


def judge(figures: AttackFigures, thresholds: Thresholds) -> Verdict:
    """Return the verdict on the figures of a suite of attacks.

    An attack is `high` if its risk is above that bound and its interval excludes 0; `elevated` if its risk is
    above the lower bound, or if its interval reaches above the higher one: too few attacks cannot show that a
    risk is low. A suite without any attack is `elevated`, because it shows nothing.
    """
    states = sorted(
        (_state(name, field, result, thresholds) for name, field, result in _each(figures.attacks)),
        key=lambda each: (-STATES.index(each.state), -each.value),
    )
    if not states:
        return Verdict("elevated", ["No attack could be made: the risk is not known."], [])
    worst = states[0]
    deciding = [each for each in states if each.state == worst.state] if worst.state != "low" else [worst]
    return Verdict(worst.state, [each.reason for each in deciding], states)


def _each(
    attacks: Mapping[str, AttackResult | Mapping[str, AttackResult]],
) -> Iterator[tuple[str, str | None, AttackResult]]:
    """Yield name, secret field and result of each attack."""
    for name, found in attacks.items():
        if isinstance(found, AttackResult):
            yield name, None, found
        else:
            for field, result in found.items():
                yield name, field, result


def _state(name: str, field: str | None, result: AttackResult, thresholds: Thresholds) -> AttackState:
    bounds = thresholds.of(name)
    against, value, low, high = _risk(result)
    state: State = "low"
    if value > bounds.high and low > 0:
        state = "elevated" if name in SINGLING_OUT else "high"
    elif value > bounds.elevated or high > bounds.high:
        state = "elevated"
    found = [f"{_words(name, field)} succeeds in {_percent(result.attack)} of {result.attack.tries} attempts"]
    if result.control is not None:
        found.append(f"{_percent(result.control)} on rows that were not in the source")
    if result.baseline is not None:
        found.append(f"{_percent(result.baseline)} by guessing")
    risk = f"risk {value:.3f} ({low:.3f} to {high:.3f})"
    reason = f"{', '.join(found)}: {risk}, {_why(name, state, value, low, bounds)}."
    return AttackState(name, field, state, value, low, high, against, reason)


def _risk(result: AttackResult) -> tuple[Against, float, float, float]:
    """Return what the success is compared with, the risk and its interval."""
    attack, guess = result.attack, result.baseline
    if result.risk is not None:
        return "control", result.risk.value, result.risk.low, result.risk.high
    if result.control is not None:  # every attack on control rows succeeds
        return "control", 0.0, 0.0, 0.0
    if guess is None:
        return "nothing", attack.rate, attack.low, attack.high
    risk = risk_of(attack, guess)
    return ("baseline", 0.0, 0.0, 0.0) if risk is None else ("baseline", risk.value, risk.low, risk.high)


def _why(name: str, state: State, value: float, low: float, bounds: Bounds) -> str:
    if state == "low":
        return f"at most {bounds.elevated:g}"
    if state == "high":
        return f"above {bounds.high:g}"
    if value > bounds.high and name in SINGLING_OUT and low > 0:
        return f"above {bounds.high:g}, but it isolates a record and learns nothing else of it"
    if value > bounds.high:
        return f"above {bounds.high:g}, but its interval includes 0: make more attacks"
    if value > bounds.elevated:
        return f"above {bounds.elevated:g}"
    return f"at most {bounds.elevated:g}, but its interval reaches above {bounds.high:g}: make more attacks"


_TITLES = {
    "singling_out_univariate": "Singling out by one field",
    "singling_out_multivariate": "Singling out by several fields",
    "linkability": "Linking two sets of known fields",
    "membership": "Membership inference",
    "reidentification": "Re-identification",
}


def _words(name: str, field: str | None) -> str:
    title = _TITLES.get(name) or name[:1].upper() + name[1:].replace("_", " ")
    return title if field is None else f"{title} of '{field}'"


def _percent(found: Successes) -> str:
    return f"{100 * found.rate:.1f} %"
