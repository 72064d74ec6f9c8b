"""Schemas of report figures: each measure has one, undefined figures are absent, and no object is open."""

import dataclasses
import json
from typing import Any, get_type_hints

import pyarrow as pa
import pytest

from app.api.figure_schemas import BinFigures, LocalityCounts, Measures, ServiceFigures, SummaryFigures
from app.api.measure_schemas.shared import MeasureFigure
from app.api.report_schemas import Report
from app.worker.run_swap import report_of
from providers import PROVIDERS
from providers.attacks.figures import AttackResult
from providers.attacks.registry import attacks_on
from providers.measures import MEASURES
from providers.measures.assessment import MeasureOptions, Release, assess
from providers.measures.run_figures import measures_stream, release_of_run
from providers.progress import no_progress
from providers.randomness.chacha20 import Stream
from providers.results import Summary
from tests.reports.documents import report
from tests.reports.schema import CONTRACT, report_errors

SCHEMAS = json.loads(CONTRACT.read_text(encoding="utf-8"))["components"]["schemas"]


def test_every_measure_has_a_model() -> None:
    assert set(Measures.model_fields) == set(MEASURES)
    members = Measures.model_json_schema()["properties"]
    for key, measure in MEASURES.items():
        name = members[key]["$ref"].rpartition("/")[2]
        properties = SCHEMAS[name]["properties"]
        assert set(measure.report(0.0)) <= set(properties), key
        assert set(MeasureFigure.model_fields) <= set(properties), key


def test_every_attack_is_a_member_of_one_type() -> None:
    """Generators cannot read a union: a member is an object of results exactly if its attack returns one."""
    attacks = {name: attack for service in (None, *PROVIDERS) for name, attack in attacks_on(service).items()}
    properties = SCHEMAS["Attacks"]["properties"]
    assert set(properties) == set(attacks)
    for name, attack in attacks.items():
        several = get_type_hints(attack.run)["return"] != AttackResult
        assert ("additionalProperties" in properties[name]) is several, name


def test_the_summary_of_a_run_has_its_figures() -> None:
    assert {field.name for field in dataclasses.fields(Summary)} <= set(SummaryFigures.model_fields)


def test_figures_of_services_share_no_name_with_another_meaning() -> None:
    """A service has one flat object of figures, so that each name has one model."""
    own = set(ServiceFigures.__annotations__)
    assert not own & (set(BinFigures.__annotations__) | set(LocalityCounts.__annotations__))


def test_no_object_of_a_report_is_open() -> None:
    """Each object declares its members, or the model of all of them; parameters are those of a service."""
    open_objects, seen = [], set()

    def visit(name: str, schema: Any) -> None:
        if isinstance(schema, list):
            for inner in schema:
                visit(name, inner)
        if not isinstance(schema, dict):
            return
        if "$ref" in schema:
            target = schema["$ref"].rpartition("/")[2]
            if target not in seen:
                seen.add(target)
                visit(target, SCHEMAS[target])
        closed = "properties" in schema or isinstance(schema.get("additionalProperties"), dict)
        members = schema.get("additionalProperties")
        if schema.get("type") == "object" and (
            not closed or (isinstance(members, dict) and members.get("$ref", "").endswith("/JsonValue"))
        ):
            open_objects.append(name)
        for key, inner in schema.items():
            visit(f"{name}/{key}" if key not in ("properties", "items", "anyOf") else name, inner)

    visit("Report", SCHEMAS["Report"])
    assert {"Measures", "ServiceFigures", "SummaryFigures", "Pictures", "AttackDetails"} <= seen
    assert sorted(open_objects) == [
        "FrontierPoint/parameters",
        "ParameterAdvice/parameters",
        "ParameterTry/change",
    ]


UNDECLARED = {
    "a measure": lambda one: one["measures"].update(luck={"value": 1.0}),
    "a part of a value": lambda one: one["measures"]["delta_rho"]["value"].update(median=0.1),
    "another type": lambda one: one["measures"]["pscr"].update(value="low"),
    "a text that is missing": lambda one: one["measures"]["pscr"].pop("formula"),
    "a figure of the service": lambda one: one["provider"].update(class_count=170),
    "a figure of the summary": lambda one: one["summary"].update(lost=0),
    "a null": lambda one: one["provider"].update(matching_bits=None),
}


@pytest.mark.parametrize("change", UNDECLARED)
def test_an_undeclared_figure_is_found(change: str) -> None:
    document = report()
    assert report_errors(document) == []
    UNDECLARED[change](document)
    assert report_errors(document) != []


def test_an_undefined_figure_is_absent_and_an_unknown_one_stays() -> None:
    """A stored report of another version keeps its figures."""
    stored = report()
    stored["measures"]["delta_rho"]["value"] = {"mean": 0.1, "sd": None, "earlier": [None, {"part": None}]}
    stored["provider"] = {"earlier_figure": 3, "swapping_distance": {"ranks": {"mean": None}}}
    sent = Report.model_validate(stored).document()
    assert sent["measures"]["delta_rho"]["value"] == {"mean": 0.1, "earlier": [None, {}]}
    assert sent["provider"] == {"earlier_figure": 3, "swapping_distance": {"ranks": {}}}
    assert sent["measures"]["pscr"] == stored["measures"]["pscr"]


def test_all_measures_of_a_weighted_survey_are_as_declared() -> None:
    """Real values of every measure that two tables alone have."""
    rows = 240
    source = pa.table(
        {
            "age": [18 + row * 37 % 61 for row in range(rows)],
            "income": [20_000.0 + row * 7919 % 50_000 for row in range(rows)],
            "city": [("Athens", "Dublin", "Zurich")[row * 7 % 3] for row in range(rows)],
            "hours": [row * 13 % 40 + 1 for row in range(rows)],
            "job": [("clerk", "nurse")[row * 11 % 5 % 2] for row in range(rows)],
            "weight": [1.0 + row % 9 for row in range(rows)],
        }
    )
    incomes = source["income"].to_pylist()
    destination = source.set_column(1, "income", pa.array([*incomes[3:], *incomes[:3]]))
    options = MeasureOptions(
        key_fields=("age", "city"),
        sensitive_fields=("job",),
        weight_fields=("weight",),
        domain_fields=("city",),
        target="income",
        query_fields=("age", "income", "hours", "job"),
    )
    release = Release(source=source, destination=destination, aligned=True)
    measured = dataclasses.asdict(assess(release, options, Stream(bytes(32), "measures", 1)))
    document = report(rows) | measured
    sent = Report.model_validate(json.loads(json.dumps(document))).document()
    assert report_errors(sent) == []
    of_a_run = {"inversion_bits", "phi", "p_privacy", "enumeration_attack", "prediction"}
    assert set(MEASURES) - set(sent["measures"]) == of_a_run


def sent_report(service: str, table: pa.Table, parameters: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Run the service, measure the release if there are options, and return the report as it is sent."""
    provider = PROVIDERS[service]
    params = provider.check(provider.params.model_validate(parameters), table.schema)
    result = provider.swap(table, params, provider.stream(bytes(32)), no_progress)
    document = report_of(service, result, 128)
    if options:
        release = release_of_run(provider, params, table, result, 128)
        document |= dataclasses.asdict(assess(release, MeasureOptions(**options), measures_stream(bytes(32))))
    return Report.model_validate(json.loads(json.dumps(document))).document()


PEOPLE = pa.table(
    {
        "person": [row // 2 for row in range(24)],
        "age": [row // 2 % 3 for row in range(24)],
        "sex": [row // 2 % 2 for row in range(24)],
        "income": [float(row * row % 17) for row in range(24)],
    }
)


@pytest.mark.parametrize(
    ("service", "parameters", "rows", "absent"),
    [
        ("MEWS", {"swap_fields": ["income"], "bins": 100, "singletons": "keep"}, 5, ["chance"]),
        ("MEWS", {"swap_fields": ["income"], "bins": 100}, 1, ["chance", "p"]),
        ("MEDS", {"swap_fields": ["income"], "k": 2}, 1, ["chance", "p", "p_eq1"]),
        ("MEDS", {"swap_fields": ["income"], "k": 2}, 3, ["p", "p_eq1"]),
    ],
)
def test_figures_of_bins_without_a_partner_are_absent(
    service: str, parameters: dict[str, Any], rows: int, absent: list[str]
) -> None:
    """The contract required `chance` also of a smallest bin of one row, which has none."""
    sent = sent_report(service, PEOPLE.slice(0, rows), parameters)
    assert report_errors(sent) == []
    value = sent["measures"]["p_privacy"]["value"]
    assert not value.keys() & set(absent)
    assert value.keys() >= {"minimal_depth", "chance", "p"} - set(absent)


def test_changes_of_no_rows_have_no_share() -> None:
    """The contract required `none` of the rows of a table without rows."""
    sent = sent_report("DSWAP", PEOPLE.slice(0, 0), {"swap_fields": ["income"]}, key_fields=("age",))
    assert report_errors(sent) == []
    assert "none" not in sent["measures"]["changed_share"]["per_row"]


def test_measures_of_units_name_their_field() -> None:
    """The contract declared `unit` for `record_linkage` alone."""
    keys = {"key_fields": ("age", "sex"), "sensitive_fields": ("income",)}
    sent = sent_report("DSWAP", PEOPLE, {"swap_fields": ["income"], "unit_id": "person"}, **keys)
    assert report_errors(sent) == []
    counting = ("unique_combinations", "mean_k", "k_anonymity", "l_diversity", "t_closeness", "suda")
    for key in (*counting, "record_linkage"):
        assert sent["measures"][key]["unit"] == "person", key
