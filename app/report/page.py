"""HTML page of a report: fill the template with a job's document and its report."""

import json
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from app.report import selection as choices
from app.report import summary_text
from app.report.attacks import attack_section, title_of
from app.report.correlations import correlations
from app.report.distributions import distributions
from app.report.formatting import humanised, named, number, visible
from app.report.guarantee import guarantee
from app.report.measure_tables import Figure, measure, own_figures
from app.report.page_table import Cell
from app.report.plots import changed, closest, risk_utility
from app.report.small_counts import THRESHOLD, Discretion
from app.report.style import CONTENT_SECURITY_POLICY, CSS
from app.report.survey_totals import survey_totals
from app.report.svg import Picture
from providers import PROVIDERS
from providers.attacks.registry import ATTACKS
from providers.measures import MEASURES
from providers.measures.meanings import MEANINGS

_OUTCOMES = {
    "SUCCESS": "The job succeeded.",
    "SUCCESS_WITH_INFO": "The job succeeded and reports events: see what happened to rows and fields.",
    "FAILURE": "The job failed.",
}
_TITLES = {
    "measures": ("Two tables compared", "A table is compared with its source, no matter how it was made."),
    "attacks": (
        "Attacks on a release",
        "A release is attacked as an intruder would; each success is compared with guessing and with control "
        "rows that were not in the source.",
    ),
    "frontier": (
        "Services and parameters compared",
        "Several services were run on one table, each with several parameters, and measured the same way.",
    ),
}

_SYMBOLS = {"low": "\u2713", "elevated": "!", "high": "\u2717", "unknown": "?"}
"""State of a headline -> symbol, so that colour is never the only difference."""

_GROUPS = {
    "risk": "Risk",
    "utility": "Utility",
    "happened": "Changes of the values",
    "other": "Other figures",
}
"""Group of measures -> its heading, in the order of the page."""


_IN_GUARANTEE = ("epsilon", "epsilon_total", "epsilon_bound", "invariants")
"""Figures of a service that its figure `guarantee` has too, which the page shows in a section of its own."""


def html_report(job: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    """Render the report as one self-contained HTML page without scripts.

    Parameters
    ----------
    job : mapping
        The job's document, as returned by `GET /v1/jobs/{id}`. Only the counts of its events are shown.
    report : mapping
        The report's JSON. Sections that it lacks are left out of the page or stated to be absent.
    """
    pictures = report.get("pictures") or {}
    threshold = int(pictures.get("threshold", THRESHOLD))
    discretion = Discretion(int(job.get("row_count") or 0), threshold)
    fields = [str(field["name"]) for field in (job.get("source") or {}).get("fields", ())]
    measures = {
        key: measure(key, each, fields, discretion) for key, each in (report.get("measures") or {}).items()
    }
    own = {
        name: figure for name, figure in (report.get("provider") or {}).items() if name not in _IN_GUARANTEE
    }
    members = _members_of_groups(report)
    guaranteed = guarantee(own.pop("guarantee", None), members)
    singles, tables = own_figures(own, fields, discretion)
    kind = str(job.get("service", ""))
    provider = PROVIDERS.get(kind)
    title, summary = (
        (provider.title, provider.summary) if provider else _TITLES.get(kind, (humanised(kind), ""))
    )
    return _template().render(
        css=Markup(CSS),  # noqa: S704 - our own file
        policy=CONTENT_SECURITY_POLICY,
        job=job,
        report=report,
        title=title,
        identifier=provider.identifier if provider else "",
        summary=summary,
        provider=provider,
        threshold=threshold,
        headline=_headline(report.get("headline") or {}),
        outcome=_OUTCOMES.get(str(job.get("outcome")), ""),
        sentences=summary_text.sentences(report.get("summary") or {}, len(fields), discretion, members),
        limits=report.get("limits") or (),
        guarantee=guaranteed,
        concerns=_by_concern(measures, report.get("measures") or {}),
        left_out=[(_measure_title(key, fields), why) for key, why in (report.get("left_out") or {}).items()],
        fields=distributions(pictures.get("fields") or [], threshold),
        fields_left_out=pictures.get("fields_left_out") or 0,
        pictures=_pictures(pictures, report.get("measures") or {}, discretion),
        has_pictures=bool(pictures.keys() - {"threshold"}),
        attacks=attack_section(report),
        only_attacks=kind == "attacks",
        frontier=choices.frontier(report.get("frontier") or {}, discretion),
        candidates=choices.candidates(report.get("candidates") or {}, discretion),
        events=summary_text.events(job.get("event_counts") or {}, discretion),
        parameters=[
            (name, _value(value))
            for name, value in {**(job.get("parameters") or {}), **(job.get("options") or {})}.items()
            if value is not None
        ],
        own_figures=singles,
        own_tables=tables,
        evidence=_evidence(job, discretion),
    )


def _members_of_groups(report: Mapping[str, Any]) -> str:
    """Return the word for the members of the groups: of a swap of whole households or units these."""
    figures = report.get("provider") or {}
    return next((name for name in ("households", "units") if isinstance(figures.get(name), Mapping)), "rows")


def _headline(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return state, title and sentences of the headline; None for a report of an earlier version."""
    sentences = [visible(str(each)) for each in given.get("sentences") or ()]
    if not sentences:
        return None
    state = str(given.get("state"))
    return {"state": state, "sentences": sentences, "symbol": _SYMBOLS.get(state, _SYMBOLS["unknown"])}


def _by_concern(
    measures: Mapping[str, Figure], given: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, str, list[Figure]]]:
    """Group the figures: risk, utility, what happened to the values, and those of unknown measures."""
    found: dict[str, list[Figure]] = {concern: [] for concern in _GROUPS}
    for key, figure in measures.items():
        concern = MEANINGS[key].group if key in MEANINGS else str(given[key].get("concerns"))
        found[concern if concern in found else "other"].append(figure)
    return [(concern, _GROUPS[concern], figures) for concern, figures in found.items() if figures]


def _pictures(
    pictures: Mapping[str, Any], measures: Mapping[str, Any], discretion: Discretion
) -> list[Picture]:
    """Draw all charts except the charts of single fields."""
    found: list[Picture | None] = []
    if point := pictures.get("risk_utility"):
        keys = [str(point[which]["key"]) for which in ("risk", "utility")]
        risk, utility = (choices.axis(key, measures) for key in keys)
        values = (point[which].get("value") for which in ("risk", "utility"))
        samples = ((measures.get(key) or {}).get("sample") for key in keys)
        shown_risk, shown_utility = map(discretion.figure, values, samples)
        found.append(risk_utility(point, risk, utility, (shown_risk, shown_utility)))
    if distances := pictures.get("dcr"):
        found.append(closest(distances, discretion.rows))
    if shares := pictures.get("changed"):
        found.append(changed(shares, discretion))
    if matrices := pictures.get("correlations"):
        found.append(correlations(matrices))
    if matrices := pictures.get("survey_correlations"):
        found.append(correlations(matrices, weighted=True))
    if totals := pictures.get("survey_totals"):
        found.append(survey_totals(totals))
    return [picture for picture in found if picture is not None]


def _measure_title(key: str, fields: list[str]) -> Cell:
    if key in MEASURES:
        return MEASURES[key].title
    if key in ATTACKS:
        return title_of(key)
    attack, _, secret = key.partition(".")
    if attack in ATTACKS and secret:
        return visible(f"{title_of(attack)}: {secret}")
    return named(key) if key in fields else humanised(key)


def _value(value: Any) -> str:
    """Format a parameter as JSON; empty and false ones are shown too, because they were in force."""
    return visible(value) if isinstance(value, str) else visible(json.dumps(value, ensure_ascii=False))


def _evidence(job: Mapping[str, Any], discretion: Discretion) -> list[tuple[str, Markup | str]]:
    """List the identifiers and digests of the run, with which a rerun can be compared."""
    source, destination = job.get("source") or {}, job.get("destination") or {}
    rows: list[tuple[str, Any]] = [
        ("Job", _code(job.get("id"))),
        ("Service and revision", f"{job.get('service')}, revision {job.get('revision')}"),
        ("Rerun of", _code(job.get("rerun_of"))),
        ("Reproduced", None if job.get("reproduced") is None else number(job["reproduced"])),
        ("Rows", discretion.count(discretion.rows)),
        ("Digest of the source", _code(source.get("digest"))),
        ("Digest of the destination", _code(destination.get("digest"))),
        ("Fingerprint of the seed", _code(job.get("seed_fingerprint"))),
        ("Submitted", _moment(job.get("created_at"))),
        ("Finished", _moment(job.get("finished_at"))),
    ]
    return [(name, value) for name, value in rows if value is not None]


def _code(text: Any) -> Markup | None:
    return None if not text else Markup("<code>{}</code>").format(visible(str(text)))


def _moment(text: Any) -> Markup | None:
    if not text:
        return None
    moment = datetime.fromisoformat(str(text))
    return Markup('<time datetime="{}">{} UTC</time>').format(text, f"{moment:%Y-%m-%d %H:%M:%S}")


def with_code(text: str) -> Markup:
    """Return a text as HTML, with the words between backticks as code."""
    parts = str(text).split("`")
    marked = (
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts)
    )
    return Markup("").join(marked)


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("app.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"name": named, "number": number, "with_code": with_code}
    return environment.get_template("report.html.j2")
