"""Tables of measured attacks for the services' pages, made of the stored figures."""

import json
from typing import Any

from providers.attacks.figures import Successes, successes
from providers.attacks.methods.rotation import NEAR
from providers.attacks.registry import attacks_on
from website.papers import ATTACKS, KNOWN, SECRET

_CONFIDENCE = 0.95
_NEARNESS = (
    f" A value counts as recovered to within {NEAR:g} standard deviations; R2 is the share of the variance "
    "that is recovered, the mean over the fields."
)
_NOTES = {
    "RSWAP": "Neither table has geography. `workclass` and `occupation` of adult stand for two levels of it, "
    "`occ` of svcensus for one, and each person is a household."
}
"""Service -> text before its tables."""
_EVERYWHERE = ("singling_out_univariate", "singling_out_multivariate", "naive_guess")
"""Attacks that the sentence about the strongest one leaves out: a value that one row has singles it out in
every release that keeps values, and a naive guess measures no attack."""


def measured_runs(service: str) -> list[dict[str, Any]]:
    """Return the stored runs of a service, in the order of its page."""
    if not ATTACKS.is_file():
        return []
    stored: list[dict[str, Any]] = json.loads(ATTACKS.read_text(encoding="utf-8"))
    return [run for run in stored if run["service"] == service]


def attack_sections(service: str) -> list[str]:
    """Return the parts of the section about measured attacks as Markdown; none without figures."""
    runs = measured_runs(service)
    if not runs:
        return []
    parts = [
        "## Measured attacks",
        "An intruder with the service's parameters, but not the seed, attacks 1,000 persons of two public "
        "tables. Each run is made without a tenth of the rows, which are the control: "
        "success on these rows is no risk of the release. The baseline is the success without a link to the "
        "person: by the published values of each field, or by known rows if the attack has some (a tenth of "
        "all rows). 95 % intervals are in brackets.",
    ]
    if service in _NOTES:
        parts.append(_NOTES[service])
    for run in runs:
        data = run["data"]
        known = ", ".join(f"`{name}`" for name in KNOWN[data])
        secret = ", ".join(f"`{name}`" for name in SECRET[data])
        parts += [
            f"### `{data}`, `{json.dumps(run['parameters'])}`",
            f"Known: {known}. Secret: {secret}.{_NEARNESS if service == 'PABIDOT' else ''}",
            _table(service, run),
        ]
    return parts


def strongest_attacks(service: str) -> tuple[str, ...]:
    """Return a sentence for each stored run about its strongest attack, relative to control or baseline."""
    sentences = []
    for run in measured_runs(service):
        attacks = [attack for attack in run["attacks"] if attack["name"] not in _EVERYWHERE]
        # Values that a rotation hides: the share of variance says more than a count of near values, which
        # is high by a guess where most values of a field are equal.
        by_variance = any("r_squared" in attack for attack in attacks)
        best = (
            max(attacks, key=lambda each: each.get("r_squared", -1.0))
            if by_variance
            else max(attacks, key=_excess)
        )
        references = {"by a guess": best["baseline"], "on control rows": best["control"]}
        reference = max(references, key=lambda each: _rate(references[each]))
        compared = f", {reference} in {_percent(references[reference])} " if references[reference] else " "
        title = attacks_on(service)[best["name"]].title
        parameters = ", ".join(f"`{name}` {_shown(value)}" for name, value in run["parameters"].items())
        part = f" (`{best['part']}`)" if best["part"] else ""
        part += f" recovers the values with R2 {best['r_squared']:.2f} and" if by_variance else ""
        sentences.append(
            f"Measured on {run['data']} with {parameters}: the attack '{title}'{part} succeeds in "
            f"{_percent(best['attack'])}{compared}"
            "([measured attacks](#measured-attacks))."
        )
    return tuple(sentences)


def _excess(attack: dict[str, Any]) -> float:
    """Success beyond that on control rows or by guessing, relative to the attempts on which these fail."""
    most = max(_rate(attack["control"]), _rate(attack["baseline"]))
    return 0.0 if most >= 1 else (_rate(attack["attack"]) - most) / (1 - most)


def _rate(counts: list[int] | None) -> float:
    return counts[0] / counts[1] if counts else 0.0


def _table(service: str, run: dict[str, Any]) -> str:
    titles = {name: attack.title for name, attack in attacks_on(service).items()}
    lines = ["| attack | succeeds | baseline | control rows |", "| --- | --- | --- | --- |"]
    for attack in run["attacks"]:
        title = titles[attack["name"]] + (f": `{attack['part']}`" if attack["part"] else "")
        if "r_squared" in attack:
            title += f" (R2 {attack['r_squared']:.2f})"
        cells = [_with_interval(attack["attack"])]
        cells += ["-" if attack[key] is None else _percent(attack[key]) for key in ("baseline", "control")]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _with_interval(counts: list[int]) -> str:
    found: Successes = successes(counts[0], counts[1], _CONFIDENCE)
    return f"{_percent(counts)} ({100 * found.low:.1f} to {100 * found.high:.1f})"


def _percent(counts: list[int]) -> str:
    return f"{100 * counts[0] / counts[1]:.1f} %"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(f"({_shown(each)})" if isinstance(each, list) else f"{each}" for each in value)
    return json.dumps(value) if isinstance(value, bool) else f"{value}"
