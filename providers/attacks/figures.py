"""Results of attacks: success counts with Wilson intervals, and risks relative to control rows."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from providers.measures.shared.repeats import share_interval

Control = Literal["given", "sister", "none"]
"""Origin of the control rows: given by the caller; withheld from a sister release of the same service;
none."""


@dataclass(frozen=True, slots=True)
class Successes:
    """Number of attacks that succeeded, and the confidence interval of their rate."""

    successes: int
    tries: int
    """Number of attacks, 1 or more."""
    rate: float
    """Successes divided by tries."""
    low: float
    high: float
    """Limits of Wilson's interval, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Risk:
    """Success of an attack beyond that on control rows, with its confidence interval; 0 to 1 in a result."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class AttackResult:
    """Result of one attack on one release."""

    attack: Successes
    baseline: Successes | None
    """The same attempts by guessing, without the link between the fields of a released row; None: no such
    guess."""
    control: Successes | None
    """The same attack on rows that were not in the source; None if there are no such rows."""
    risk: Risk | None
    """(attack - control) / (1 - control); None without control rows, or if all attacks on them succeed."""
    note: str | None = None
    """Limit of the attack that a reader must know."""
    details: dict[str, Any] = field(default_factory=dict)
    """Further figures in plain JSON."""


@dataclass(frozen=True, slots=True)
class AttackFigures:
    """Results of all attacks on a release."""

    attacks: dict[str, AttackResult | dict[str, AttackResult]]
    """Name of the attack -> its result; for `inference` an object by secret field."""
    left_out: dict[str, str]
    """Name of an attack, ``fields.`` and a field's name, or an attack, a dot and a secret -> reason for which
    it was left out. A secret that is left out may have a result, which is not judged."""
    control: Control
    sampled: dict[str, int] = field(default_factory=dict)
    """``attacks``: number of attacks of each kind, if the table is too large for the requested number;
    ``training_rows``: rows of the release on which a model was trained, if not all. Empty if nothing was
    sampled."""

    def report(self) -> dict[str, Any]:
        """Return the figures as plain JSON."""
        return asdict(self)


def successes(count: int, tries: int, confidence: float) -> Successes:
    """Return the success count with Wilson's interval.

    Parameters
    ----------
    count : int
        Number of successes.
    tries : int
        Number of attacks, 1 or more.
    confidence : float
        Probability with which the interval covers the true rate; between 0 and 1.
    """
    interval = share_interval(count / tries, tries, confidence)
    return Successes(int(count), int(tries), count / tries, interval["low"], interval["high"])


def share_of(share: float, tries: int, effective: float, confidence: float) -> Successes:
    """Return an estimated share of successful attacks, with the interval of fewer attacks.

    Parameters
    ----------
    share : float
        Estimate of the rate, 0 to 1.
    tries : int
        Number of attacks, 1 or more. Reported, with the nearest number of successes.
    effective : float
        Number of attacks whose observed share would be as uncertain as the estimate; above 0.
    confidence : float
    """
    interval = share_interval(share, effective, confidence)
    return Successes(round(share * tries), tries, share, min(share, interval["low"]), interval["high"])


def risk_of(attack: Successes, control: Successes | None) -> Risk | None:
    """Return the risk (attack - control) / (1 - control), cut to 0 to 1, with its interval.

    None without control rows, and if every attack on them succeeds.
    """
    found = uncut_risk(attack, control)
    return Risk(_cut(found.value), _cut(found.low), _cut(found.high)) if found else None


def uncut_risk(attack: Successes, control: Successes | None) -> Risk | None:
    """Return (attack - control) / (1 - control) with its interval; below 0 if control attacks succeed more.

    None without control rows, and if every attack on them succeeds.

    Notes
    -----
    The risk is 1 - R with the ratio R = (1 - attack) / (1 - control) of two independent shares of failures.
    The interval of R follows from the two Wilson intervals by the method of variance estimates recovery;
    unlike the delta method of Giomi et al. it is not symmetric, and it does not shrink to a point where no
    attack succeeds.

    References
    ----------
    Giomi, Boenisch, Wehmeyer and Tasnadi 2023, A unified framework for quantifying privacy risk in
    synthetic data, Proceedings on Privacy Enhancing Technologies 2023(2), 312-328,
    doi:10.56553/popets-2023-0055: the risk. Donner and Zou 2012, Closed-form confidence intervals for
    functions of the normal mean and standard deviation, Statistical Methods in Medical Research 21,
    347-359, doi:10.1177/0962280210383082: the interval of a ratio.
    """
    if control is None or control.rate >= 1.0:
        return None
    one, two = 1 - attack.rate, 1 - control.rate
    one_high, two_low = 1 - attack.low, 1 - control.high
    root = math.sqrt(
        max(0.0, (one * two) ** 2 - one_high * two_low * (2 * one - one_high) * (2 * two - two_low))
    )
    # next to a confidence of 1 all attacks on control rows may succeed: the ratio has no upper limit then
    most = (one * two + root) / (two_low * (2 * two - two_low)) if two_low > 0 else math.inf
    return Risk(1 - one / two, 1 - most, 1 - _least_ratio(attack, control))


def unknown_risk(attack: Successes, control: Successes) -> Risk:
    """Return the risk where every attack on control rows, or every guess, succeeds: 0 with an interval.

    The ratio of failures has no upper limit then, so that the lower limit of the risk is 0. Its upper limit
    is that of `uncut_risk`, which is 1 if every attack succeeds. It is 0 only if the attack clearly succeeds
    less often than the control.
    """
    return Risk(0.0, 0.0, _cut(1 - _least_ratio(attack, control)))


def _least_ratio(attack: Successes, control: Successes) -> float:
    """Lower limit of the ratio of failures (1 - attack) / (1 - control), also where no control attack fails.

    It is the smaller root R of (x - R y)^2 = (x - x_low)^2 + R^2 (y_high - y)^2, Donner and Zou's equation 9.
    """
    one, two, one_low, two_high = 1 - attack.rate, 1 - control.rate, 1 - attack.high, 1 - control.low
    if one <= 0 or one_low <= 0:
        return 0.0
    root = math.sqrt(
        max(0.0, (one * two) ** 2 - one_low * two_high * (2 * one - one_low) * (2 * two - two_high))
    )
    found = one * two + root
    return one_low * (2 * one - one_low) / found if found > 0 else math.inf


def _cut(value: float) -> float:
    return min(1.0, max(0.0, value))
