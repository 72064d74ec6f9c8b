"""Verdict on a release: risk of each attack against thresholds, with the sentences that say why."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from providers.attacks.figures import AttackFigures, AttackResult, Risk, Successes, risk_of, unknown_risk
from providers.attacks.intruders import USED, results_of
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
    """Success beyond the success on control rows; without control rows beyond the baseline; without both the
    success itself. 0 if every attack on control rows, or every guess, succeeds: only the interval is
    meaningful then."""
    low: float
    high: float
    """Bounds of the risk's interval."""
    against: Against
    """Success with which the success of the attack is compared."""
    reason: str
    """Reason for the state, as a sentence."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """State of a release, which is the state of its worst attack."""

    state: State
    reasons: list[str]
    """Sentences about the attacks that decide, the worst first; one about the worst attack if all are low.
    Then one about each secret that is not judged."""
    attacks: list[AttackState]
    """State of each attack, the worst first."""

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return asdict(self)


def judge(figures: AttackFigures, thresholds: Thresholds) -> Verdict:
    """Return the verdict on the figures of a suite of attacks.

    An attack is `high` if its risk is above that bound and its interval excludes 0; `elevated` if its risk is
    above the lower bound, or if its interval reaches above the higher one: too few attacks cannot show that a
    risk is low. Where every control attack, or every guess, succeeds, the risk is not known, and its interval
    decides. Of several intruders of one attack, the worst state counts, so that no state falls because there
    is one more. A suite without any attack is `elevated`, because it shows nothing.

    A secret that `left_out` names is not judged: every guess of it is right. The last reasons say so.
    """
    found, not_judged = [], []
    for name, field, result in _each(figures.attacks):
        reason = None if field is None else figures.left_out.get(f"{name}.{field}")
        if reason is None:
            found.append(_worst(name, field, result, thresholds))
        else:
            not_judged.append(f"{_words(name, field)} is not judged: {reason}.")
    states = sorted(found, key=lambda each: (-STATES.index(each.state), -each.value))
    if not states:
        return Verdict("elevated", ["No attack could be made: the risk is not known.", *not_judged], [])
    worst = states[0]
    deciding = [each for each in states if each.state == worst.state] if worst.state != "low" else [worst]
    return Verdict(worst.state, [*(each.reason for each in deciding), *not_judged], states)


def _worst(name: str, field: str | None, result: AttackResult, thresholds: Thresholds) -> AttackState:
    """Return the state of the intruder with the worst one; the reported intruder if all are low."""
    states = [_state(name, field, each, thresholds) for each in results_of(result)]
    if all(each.state == "low" for each in states):
        return states[0]
    return max(states, key=lambda each: (STATES.index(each.state), each.low, each.value))


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
    against, risk = _risk(result)
    state: State = "low"
    if risk.value > bounds.high and risk.low > 0:
        state = "elevated" if name in SINGLING_OUT else "high"
    elif risk.value > bounds.elevated or risk.high > bounds.high:
        state = "elevated"
    words = f"{_words(name, field)}{_used(result)}"
    found = [f"{words} succeeds in {_percent(result.attack)} of {result.attack.tries} attempts"]
    if result.control is not None:
        found.append(f"{_percent(result.control)} on rows that were not in the source")
    if result.baseline is not None:
        found.append(f"{_percent(result.baseline)} by guessing")
    unknown = _is_unknown(result) and state != "low"
    why = _why_unknown(against, risk) if unknown else _why(name, state, risk, bounds)
    reason = f"{', '.join(found)}: {why}."
    return AttackState(name, field, state, risk.value, risk.low, risk.high, against, reason)


def _is_unknown(result: AttackResult) -> bool:
    """Whether every attack on control rows succeeds, or without a control every guess."""
    other = result.baseline if result.control is None else result.control
    return result.risk is None and other is not None and other.rate >= 1


def _risk(result: AttackResult) -> tuple[Against, Risk]:
    """Return the success used for comparison, and the risk with its interval."""
    attack = result.attack
    if result.risk is not None:
        return "control", result.risk
    if result.control is not None:
        return "control", unknown_risk(attack, result.control)
    if result.baseline is None:
        return "nothing", Risk(attack.rate, attack.low, attack.high)
    return "baseline", risk_of(attack, result.baseline) or unknown_risk(attack, result.baseline)


def _why(name: str, state: State, risk: Risk, bounds: Bounds) -> str:
    found = f"risk {_interval(risk)}"
    if state == "low":
        return f"{found}, at most {bounds.elevated:g}"
    if state == "high":
        return f"{found}, above {bounds.high:g}"
    if risk.value > bounds.high and name in SINGLING_OUT and risk.low > 0:
        return f"{found}, above {bounds.high:g}, but it isolates a record and learns nothing else about it"
    if risk.value > bounds.high:
        return f"{found}, above {bounds.high:g}, but its interval includes 0: make more attacks"
    if risk.value > bounds.elevated:
        return f"{found}, above {bounds.elevated:g}"
    reach = f"but its interval reaches above {bounds.high:g}: make more attacks"
    return f"{found}, at most {bounds.elevated:g}, {reach}"


def _why_unknown(against: Against, risk: Risk) -> str:
    """Return the reason why the risk is not known, and the remedy."""
    if against == "control":
        reason, more = "every attack on rows that were not in the source succeeds", "give more control rows"
    else:
        reason, more = "every guess succeeds", "give control rows"
    return (
        f"{reason}, so that the risk is not known ({risk.low:.3f} to {risk.high:.3f}): make more attacks, "
        f"{more}, set a smaller 'tolerance', or name a secret with rarer values"
    )


def _interval(risk: Risk) -> str:
    return f"{risk.value:.3f} ({risk.low:.3f} to {risk.high:.3f})"


def _used(result: AttackResult) -> str:
    """Name the fields that the strongest intruder used, if these are only the unchanged ones."""
    names = [f"'{name}'" for name in result.details.get(USED, ())]
    if not names:
        return ""
    shown = names if len(names) <= _NAMED else [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} others"]
    listed = " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
    return f" by the unchanged field{'s' * (len(names) > 1)} {listed} alone"


_NAMED = 4
"""Most fields that a sentence names."""

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
