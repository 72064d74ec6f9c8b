"""Console forms: every value that a schema allows can be entered and is read back unchanged."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser

from tests.e2e.console import Console, console
from tests.survey_runs import RUNS, survey

pytestmark = pytest.mark.browser

FIELDS = sorted({"age", "income", "town", "size", *survey(1)[0]})
EXAMPLES = {
    path.stem: tomllib.loads(path.read_text()) for path in sorted(Path("docs/examples").glob("*.toml"))
}
GIVEN: list[tuple[str, dict[str, Any]]] = [
    ("DSWAP", {"swap_fields": ["income", "age"], "locked": True, "rate": 0.25, "nulls": "keep"}),
    ("DSWAP", {"swap_field_indices": [2, 1], "suppression": {"policy": "drop"}}),
    (
        "DSWAP",
        {"suppression": {"policy": "replace", "replacement": {"income": 0, "town": "none", "age": None}}},
    ),
    ("DSWAP", {"rate": 0.1, "risk": {"key_fields": ["town", "age"], "weight": "size", "k": 5}}),
    ("DDSWAP", {"rate": 0.1, "risk": {"field": "income"}}),
    ("DSWAP", {"household": "size"}),
    ("CDSWAP", {"swap_fields": ["income"], "control_field": "age", "classifier": {"breaks": [18, 30.5, 65]}}),
    ("CDSWAP", {"control_field": "age", "classifier": {"breaks": ["2020-01-01", "2021-01-01"]}}),
    (
        "CDSWAP",
        {"control_field": "town", "classifier": {"groups": {"north": ["Oslo", "7"]}, "other": "fail"}},
    ),
    ("CDSWAP", {"control_field": ["town", "age"], "classifier": ["identity", {"prefix": 2}]}),
    ("DDSWAP", {"swap_fields": ["income"], "control_field": ["town", "age"], "block_size": 10}),
    ("MEWS", {"swap_fields": ["age", "income"], "width": [5, 1000.5], "origin": 0, "scale": "sd"}),
    ("MEWS", {"swap_fields": ["age"], "bins": 20, "singletons": "keep"}),
    ("MEDS", {"swap_fields": ["age"], "k": 50, "standardise": False}),
    ("RWN", {"k": 3, "q": 0.5, "ordinal_fields": {"size": ["small", "large"]}, "ties": "index"}),
    ("PABIDOT", {"fields": ["age", "income"], "sigma": 0, "shuffle": False}),
    ("LOCALITY", {"fields": ["age"], "domain": {"age": [0, 120]}, "iterations": {"total": 4000}}),
    ("LOCALITY", {"fields": ["age"], "iterations": 100, "margin": 0.5, "decimals": 0}),
    *RUNS.values(),
]
ROUND_TRIP = """async ([schema, fields, values]) => {
  const { form } = await import("/console/form.js");
  const made = form(schema, { document: schema, fields: fields.map((name) => ({ name, type: "string" })) });
  document.querySelector("main").replaceChildren(made.node);
  const empty = made.value();
  made.set(values);
  const again = form(schema, { document: schema, fields: fields.map((name) => ({ name, type: "string" })) });
  again.set({ ...made.value() });
  return [empty, made.value(), again.value()];
}"""


@pytest.fixture(scope="module")
def tab(browser: Browser, client: httpx.Client) -> Iterator[Console]:
    with console(browser, client) as opened:
        opened.open("nowhere")
        yield opened


def schema_of(client: httpx.Client, service: str) -> dict[str, Any]:
    schema: dict[str, Any] = (
        client.get(f"/v1/services/{service}").raise_for_status().json()["parameters_schema"]
    )
    return schema


@pytest.mark.parametrize(("service", "values"), GIVEN)
def test_what_is_given_comes_out(
    tab: Console, client: httpx.Client, service: str, values: dict[str, Any]
) -> None:
    """Every kind of value; and an untouched form is empty, so that every default applies."""
    empty, out, again = tab.evaluate(ROUND_TRIP, [schema_of(client, service), FIELDS, values])
    assert empty == {}
    assert out == values
    assert again == values


@pytest.mark.parametrize("service", EXAMPLES)
def test_the_worked_examples_can_be_filled_in(tab: Console, client: httpx.Client, service: str) -> None:
    """Each is read back as on the service's page, without values that equal the default."""
    schema = schema_of(client, service)
    values = EXAMPLES[service]["parameters"]
    fields = sorted({name for value in values.values() for name in names_in(value)})
    _, out, _ = tab.evaluate(ROUND_TRIP, [schema, fields, values])
    defaults = {name: each.get("default") for name, each in schema["properties"].items()}
    given, made = (
        {name: value for name, value in each.items() if value != defaults[name]} for each in (values, out)
    )
    assert made == given


def names_in(value: Any) -> list[str]:
    """Return the strings in it that may be names of fields."""
    if isinstance(value, dict):
        return [*value, *(name for each in value.values() for name in names_in(each))]
    if isinstance(value, list):
        return [name for each in value for name in names_in(each)]
    return [value] if isinstance(value, str) else []


def test_every_parameter_has_its_explanation(tab: Console, client: httpx.Client) -> None:
    """The explanation is the schema's text in words, linked to its control for screen readers."""
    show = """async (schema) => {
      const { form } = await import("/console/form.js");
      const { parts, node } = form(schema, { document: schema, fields: [{ name: "a", type: "int64" }] });
      document.querySelector("main").replaceChildren(node);
      const said = (node) => node.getAttribute("aria-describedby");
      node.querySelectorAll(".tip").forEach((meaning) => meaning.remove());
      const words = (id) => document.getElementById(id).textContent;
      const of = (part) => said(part.node) ?? said(part.focus);
      return Object.fromEntries(Object.entries(parts).map(([name, part]) =>
        [name, of(part).split(" ").map((id) => words(id)).join("")]));
    }"""
    describe = "async (texts) => texts.map((await import('/console/words.js')).describe)"
    for service in client.get("/v1/services").json()["services"]:
        schema = service["parameters_schema"]
        suggested = tab.evaluate(show, schema)
        assert suggested.keys() == schema["properties"].keys()
        for name, each in schema["properties"].items():
            words = each["description"].replace("\n", " ")
            words = words.replace("true: ", "Ticked: ").replace("false: ", "not ticked: ")
            [words] = tab.evaluate(describe, [words])
            assert "`" not in words
            assert not re.search(r"[a-z]_[a-z]", words)
            assert suggested[name] == words, (service["identifier"], name)


def test_csv_is_read_as_it_was_written(tab: Console) -> None:
    """Quoted commas, quotes and line ends; an empty cell is null, a quoted one not; a cut row is dropped."""
    text = 'a,"b ""c""",\r\n1,"x,\ny",\r\n,"",3\n4,5'
    read = "async ([text, whole]) => (await import('/console/csv.js')).records(text, whole)"
    rows = [["a", 'b "c"', None], ["1", "x,\ny", None], [None, "", "3"]]
    assert tab.evaluate(read, [text, False]) == rows
    assert tab.evaluate(read, [text, True]) == [*rows, ["4", "5"]]
    assert tab.evaluate(read, ["", True]) == []
    for delimiter in ";|^]\\-":
        script = "async ([text, sign]) => (await import('/console/csv.js')).records(text, true, sign)"
        assert tab.evaluate(script, [f"a,b{delimiter}c\n", delimiter]) == [["a,b", "c"]]


@pytest.mark.parametrize(
    ("name", "kind", "values", "role"),
    [
        ("income", "decimal(10,2)", range(40), "sensitive"),
        ("town", "string", [row % 5 for row in range(40)], "known"),
        ("postcode", "string", range(40), "known"),
        ("person_id", "int64", range(40), "identifier"),
        ("x", "string", range(40), "identifier"),
        ("x", "string", [row % 5 for row in range(40)], "known"),
        ("x", "float64", range(80), "sensitive"),
        ("x", "timestamp", range(40), "other"),
        ("agency", "int64", [1] * 40, "other"),
        ("amount_paid", "float64", range(80), "sensitive"),
        ("customerId", "int64", [1] * 40, "identifier"),
        ("userid", "int64", [1] * 40, "identifier"),
        ("ori_hid", "int64", [1] * 40, "household"),
        ("db030", "int64", [1] * 40, "household"),
        ("hh_size", "int64", [1] * 40, "known"),
        ("strata", "string", [row % 5 for row in range(40)], "stratum"),
        ("unit", "int64", [row // 2 for row in range(60)], "household"),
        ("unit", "int64", [row % 30 for row in range(60)], "other"),
        ("income", "int64", [row // 2 for row in range(60)], "sensitive"),
        ("sampling_weight", "float64", range(80), "weight"),
        ("fnlwgt", "int64", range(80), "weight"),
        ("Whole_weight", "float64", range(80), "sensitive"),
        *((name, "int64", [1] * 40, "sensitive") for name in ("hourlyWage1", "taxPaid", "account_balance")),
        *((name, "int64", [1] * 40, "known") for name in ("ageGroup", "zip5", "birthYear", "statusId")),
        *((name, "int64", [1] * 40, "identifier") for name in ("addressLine1", "ID", "taxId")),
        *(
            (name, "int64", [1] * 40, "other")
            for name in ("page", "taxonomy", "discount", "costume", "fSize")
        ),
    ],
)
def test_roles_are_guessed(tab: Console, name: str, kind: str, values: Any, role: str) -> None:
    """Roles depend on the name, the type, and the number and order of distinct values."""
    script = """async ([field, cells]) => {
      const { guess } = await import("/console/roles.js");
      const known = cells.map(String);
      const counts = known.map((cell) => known.filter((other) => other === cell).length);
      return guess(field, {
        rows: cells.length, nulls: 0, distinct: new Set(known).size, distinct_is_exact: true,
        runs: known.filter((cell, at) => cell !== known[at - 1]).length, largest_count: Math.max(...counts),
      }).role;
    }"""
    cells = [str(value) for value in values]
    assert tab.evaluate(script, [{"name": name, "type": kind}, cells]) == role


OTHER_LANGUAGES = {
    "known": (
        "Geschlecht Alter Altersgruppe Geburtsjahr Wohnort PLZ Bundesland Familienstand Schulabschluss "
        "Staatsangehörigkeit Haushaltsgröße Haushaltsgroesse sexe annee_naissance code_postal commune "
        "nom_commune diplome situation_familiale pays edad sexo código_postal municipio estado_civil "
        "nivelEducativo año_nacimiento eta età sesso comune titolo_studio stato_civile CAP leeftijd "
        "geslacht gemeente opleidingsniveau burgerlijke_staat geboortedatum"
    ),
    "sensitive": (
        "Einkommen Haushaltsnettoeinkommen Bruttolohn Monatsgehalt Vermögen Miete Schulden Körpergewicht "
        "revenu revenus_annuels salaire loyer montant_impots poids ingresos renta_anual gastos enfermedad "
        "reddito stipendio spesa_mensile malattia inkomen huur schulden brutoloon Umsatz"
    ),
    "identifier": (
        "Nachname Vorname Straße Telefonnummer Personalnummer Patienten_Nr lfdNr nom prénom adresse "
        "num_client identifiant NIR nombre nombre_completo apellidos dni dirección nome cognome "
        "codice_fiscale indirizzo achternaam voornaam BSN klantnummer"
    ),
    "household": (
        "HaushaltID Haushaltsnummer haushalts_nr num_menage id_hogar codice_famiglia huishoudnummer"
    ),
    "stratum": "Schichtung strate estrato strato",
    "weight": "Hochrechnungsfaktor Gewichtung pondération factor_expansion peso_campionario weegfactor",
    "other": (
        "Ortung Sprechstunde Adresstyp nombre_enfants nombre_pieces cap_shape land_area pays_rent hat_nie "
        "alternative etage"
    ),
}


def test_roles_are_guessed_from_names_in_five_other_languages(tab: Console) -> None:
    """German, French, Spanish, Italian and Dutch, with accents or without; not words of another meaning."""
    script = """async (names) => {
      const { guess } = await import("/console/roles.js");
      return names.map((name) => guess({ name, type: "int64" }, { rows: 40, nulls: 0, distinct: 1 }).role);
    }"""
    for role, text in OTHER_LANGUAGES.items():
        names = text.split()
        found = dict(zip(names, tab.evaluate(script, names), strict=True))
        assert found == dict.fromkeys(names, role)


def test_the_reason_of_a_role_spells_the_name_as_the_table_does(tab: Console) -> None:
    script = """async (name) => {
      const { guess } = await import("/console/roles.js");
      return guess({ name, type: "int64" }, null).why;
    }"""
    for name, spelled in (
        ("Haushaltsgröße", "Haushaltsgröße"),
        ("lieu_naissance_2", "naissance"),
        ("Wohn-Straße", "Straße"),
    ):
        assert tab.evaluate(script, name) == f"its name has “{spelled}”"


def test_the_weight_role_fills_in_the_design_of_the_survey(tab: Console) -> None:
    """Domains, strata and clusters follow from the roles; a table without a weight gets none of them."""
    script = """async ([fields]) => {
      const { suggestion, WEIGHT_OPTIONS } = await import("/console/roles.js");
      const found = WEIGHT_OPTIONS.map((name) => suggestion(name, {}, fields, {}) ?? null);
      return [suggestion("weight_fields", {}, fields, {}) ?? null, ...found];
    }"""
    fields = [
        {"name": "income", "type": "int64", "role": "sensitive", "distinct": 300},
        {"name": "age", "type": "int64", "role": "known", "distinct": 60},
        {"name": "town", "type": "string", "role": "known", "distinct": 7},
        {"name": "parish", "type": "string", "role": "known", "distinct": 400},
        {"name": "part", "type": "int64", "role": "stratum", "distinct": 4},
        {"name": "hid", "type": "int64", "role": "household", "distinct": 200},
    ]
    weight = {"name": "w", "type": "float64", "role": "weight", "distinct": 90}
    assert tab.evaluate(script, [[*fields, weight]]) == [["w"], ["town", "part"], "part", "hid"]
    assert tab.evaluate(script, [fields]) == [None, None, None, None]
    twice = {**fields[4], "name": "other"}
    assert tab.evaluate(script, [[*fields, twice, weight]])[2] is None


def test_the_household_role_fills_in_the_household(tab: Console, client: httpx.Client) -> None:
    """Services that move whole households get the field; a table without that role gets none."""
    script = """async ([schema, fields]) => {
      const { suggestion } = await import("/console/roles.js");
      return suggestion("household", schema, fields, {}) ?? null;
    }"""
    fields = [{"name": "income", "type": "int64", "role": "sensitive"}]
    home = {"name": "hid", "type": "int64", "role": "household"}
    for service in ("DSWAP", "CDSWAP", "DDSWAP", "RSWAP"):
        schema = schema_of(client, service)["properties"]["household"]
        assert tab.evaluate(script, [schema, [*fields, home]]) == "hid"
        assert tab.evaluate(script, [schema, fields]) is None
