"""Dashboard and alerts use existing metrics and labels, in valid PromQL."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram

from app.engine import engine
from app.engine.engine import Failure
from app.help.documents import address
from app.jobs.failure_errors import problem_of
from app.jobs.job_metrics import CODES
from app.telemetry.metrics import Metrics
from providers.errors import ParameterError, ProviderError, SourceError, UnswappableError

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
OF_PROMETHEUS = {
    "up": {"job", "instance"},
    "probe_ssl_earliest_cert_expiry": {"job", "instance"},  # of the blackbox exporter
}


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_alert_has_a_section_of_the_runbook() -> None:
    """Each section has the alert's severity, a first look and a remedy; each rule links to its section."""
    page = DEPLOY.parent / "docs" / "alerts.md"
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL))
    assert list(sections) == [rule["alert"] for rule in alerts()]
    for rule in alerts():
        section = sections[rule["alert"]]
        assert section.startswith(f"*{rule['labels']['severity']}.* ")
        assert "\n- **Look:** " in section
        assert "\n- **Do:** " in section
        assert rule["annotations"]["runbook"] == f"/help/{address(page.name)}#{rule['alert'].lower()}"


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DEPLOY / "grafana" / "rowveil.json").read_text())["panels"]
    return found


def queries() -> dict[str, str]:
    asked = {f"alert {rule['alert']}": rule["expr"] for rule in alerts()}
    for panel in panels():
        for target in panel["targets"]:
            asked[f"panel {panel['title']}, {target['refId']}"] = target["expr"]
    return asked


def series() -> dict[str, set[str]]:
    """Return name of a series -> its labels, including those that Prometheus adds."""
    known = dict(OF_PROMETHEUS)
    metrics = Metrics()
    for collector in vars(metrics).values():
        if not isinstance(collector, Counter | Gauge | Histogram):
            continue
        labels = {*collector._labelnames, "job", "instance"}
        for family in collector.describe():
            for suffix in {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(
                family.type, [""]
            ):
                known[family.name + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
    for family in metrics.registry.collect():
        if family.name.startswith("process_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            known[name] = {"job", "instance"}
    return known


@pytest.mark.parametrize(("place", "query"), queries().items(), ids=list(queries()))
def test_a_query_parses_and_names_what_there_is(place: str, query: str) -> None:
    known = series()
    plain = query.replace("$__rate_interval", "5m")
    promql_parser.parse(plain)
    used = re.findall(r"\b((?:rowveil|process|probe)_\w+|up\b)(?:\{([^}]*)\})?", plain)
    assert used, place
    for name, matchers in used:
        assert name in known, f"{place}: there is no series {name}"
        labels = set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)", matchers))
        labels |= {
            label.strip() for group in re.findall(r"\bby \(([^)]*)\)", plain) for label in group.split(",")
        }
        assert labels <= known[name], f"{place}: {name} has no label {labels - known[name]}"


def test_every_series_of_ours_is_on_the_dashboard_or_in_an_alert() -> None:
    """Every metric is used, except a few that exist for manual queries."""
    asked = " ".join(queries().values())
    names = {name.removesuffix("_sum").removesuffix("_count").removesuffix("_bucket") for name in series()}
    unasked = {name for name in names if name.startswith("rowveil_") and name not in asked}
    assert unasked == {"rowveil_build_info", "rowveil_buffers", "rowveil_blobs"}


def test_the_scraper_has_the_job_the_rules_and_the_address_that_the_files_name() -> None:
    """The alerts name the job; Compose publishes the port; a key stays out of the configuration."""
    folder = DEPLOY / "prometheus"
    settings = yaml.safe_load((folder / "prometheus.yml").read_text())
    (scraped,) = settings["scrape_configs"]
    jobs = {job for query in queries().values() for job in re.findall(r'job="([^"]*)"', query)}
    assert jobs == {scraped["job_name"], "rowveil-proxy"}  # the latter of the blackbox exporter
    assert settings["rule_files"] == ["alerts.yml"]
    ports = yaml.safe_load((DEPLOY.parent / "compose.yaml").read_text())["services"]["service"]["ports"]
    assert [f"{target}:8080" for target in scraped["static_configs"][0]["targets"]] == ports
    assert scraped["authorization"] == {"type": "Bearer", "credentials_file": "metrics.key"}
    guide = (DEPLOY.parent / "docs" / "observability.md").read_text()
    assert "openssl rand -base64 32 > metrics.key" in guide
    made = yaml.safe_load((DEPLOY.parent / "compose.yaml").read_text())["services"]["service"]["environment"]
    assert made["ROWVEIL_METRICS_KEY_FILE"].endswith("/metrics.key")


def test_the_tests_of_the_rules_pass_and_have_every_alert() -> None:
    """Each alert fires beyond its limit and not just below it; needs promtool, of the package prometheus."""
    folder = DEPLOY / "prometheus"
    tests = yaml.safe_load((folder / "alerts_test.yml").read_text())["tests"]
    expected = " ".join(
        sample["labels"] for test in tests for sample in test["promql_expr_test"][0]["exp_samples"]
    )
    assert set(re.findall(r'alertname="(\w+)"', expected)) == {rule["alert"] for rule in alerts()}
    named = set(re.findall(r"\b(?:rowveil|probe)_\w+", " ".join(rule["expr"] for rule in alerts())))
    for test in tests[:2]:  # within, and beyond all limits
        assert named <= {series["series"].partition("{")[0] for series in test["input_series"]}
    if shutil.which("promtool") is None:
        pytest.skip("there is no promtool")
    command = ["promtool", "test", "rules", "alerts_test.yml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_says_what_to_do() -> None:
    for rule in alerts():
        assert {"summary", "action"} <= rule["annotations"].keys()
        assert rule["labels"]["severity"] in ("page", "ticket")
    assert len({rule["alert"] for rule in alerts()}) == len(alerts())


def test_a_number_that_prometheus_has_extrapolated_is_shown_without_decimals() -> None:
    """Increases are not whole: of 120 requests in 10 minutes it may say 126.13999999999999."""
    for rule in alerts():
        if re.search(r"\b(?:increase|rate)\(", rule["expr"]):
            assert "{{ $value }}" not in rule["annotations"]["summary"], rule["alert"]


def test_no_failure_that_the_service_can_name_is_reported_as_one_that_it_cannot() -> None:
    """`other` alerts the operator: a full or unavailable destination would count as the service's fault."""
    codes = {value for name, value in vars(engine).items() if name.isupper() and isinstance(value, str)}
    assert "destination_not_sent" in codes
    codes |= {kind.code for kind in (ProviderError, ParameterError, SourceError, UnswappableError)}
    assert {problem_of(Failure(code, "it failed"))["code"] for code in codes - {engine.CANCELLED}} <= CODES


def test_panels_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
