"""The parameters that surveys need as options of the command line: run, frontier and attack."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from providers.tables.digest import table_digest
from tests.cli.conftest import SEED, Desk
from tests.naive.agreement import swap
from tests.survey_runs import RUNS, WEIGHTED, survey

TABLE = pa.Table.from_pylist(survey())
KNOWN = ["--known", "age,sex,area", "--secret", "income", "--attacks", "30", "--seed-file", "seed"]


@pytest.fixture
def surveyed(desk: Desk) -> Desk:
    pq.write_table(TABLE, "survey.parquet")
    return desk


def options(parameters: dict[str, Any], prefix: str = "-") -> list[str]:
    """Return the parameters as options; those of a nested model have its name before theirs."""
    written = []
    for name, value in parameters.items():
        flag = f"{prefix}-{name.replace('_', '-')}"
        if isinstance(value, dict):
            written += options(value, flag)
        elif isinstance(value, bool):
            written.append(flag)
        elif isinstance(value, list):
            plain = all(isinstance(each, str) for each in value)
            written += [flag, ",".join(value) if plain else json.dumps(value)]
        else:
            written += [flag, str(value)]
    return written


@pytest.mark.parametrize("name", RUNS)
def test_the_options_give_the_bytes_of_the_parameters(surveyed: Desk, name: str) -> None:
    service, parameters = RUNS[name]
    given = [*options(parameters), "--seed-file", "seed"]
    surveyed.done("run", service, "survey.parquet", "out.parquet", *given)
    expected = swap(service, TABLE, parameters, int(SEED, 16).to_bytes(32, "big")).table
    assert table_digest(pq.read_table("out.parquet")) == table_digest(expected)


def test_a_frontier_and_its_weighted_measures(surveyed: Desk) -> None:
    """All runs are points, compared by the totals of the domains that the weights estimate."""
    services = [{"service": service, "parameters": parameters} for service, parameters in RUNS.values()]
    Path("services.json").write_text(json.dumps(services))
    figures = ["--risk", "changed_share", "--utility", "domain_totals.change_in_errors"]
    weighted = options(WEIGHTED, "--measures")
    surveyed.done(
        "frontier", "survey.parquet", "--services", "@services.json", *figures, *weighted,
        "--report", "frontier.json", "--seed-file", "seed",
    )  # fmt: skip
    points = json.loads(Path("frontier.json").read_text())["frontier"]["points"]
    assert [point["parameters"] for point in points] == [parameters for _, parameters in RUNS.values()]
    assert not [point for point in points if "error" in point]


def test_a_release_by_risk_is_attacked_by_its_rule(surveyed: Desk) -> None:
    service, parameters = RUNS["risk, DSWAP"]
    given = [*options(parameters), "--seed-file", "seed", "--manifest", "manifest.json"]
    surveyed.done("run", service, "survey.parquet", "out.parquet", *given)
    out = surveyed.done(
        "attack", "survey.parquet", "out.parquet", *KNOWN, "--made-by", "manifest.json", "--json"
    )
    found = json.loads(out)["attacks"]["reidentification"]["income"]
    assert found["details"]["selection_by_risk"] is True


def test_an_error_in_a_nested_parameter_names_its_option(surveyed: Desk) -> None:
    """Unknown key fields and expressions that are none."""
    cases = (
        (["--risk-key-fields", "age,sxe", "--rate", "0.3"], "--risk-key-fields, item 2: unknown"),
        (["--checks", "start <"], "--checks, item 1: check 'start <'"),
        (["--household", "hosehold"], "--household: unknown field 'hosehold'"),
    )
    for given, message in cases:
        arguments = ["run", "DSWAP", "survey.parquet", "out.parquet", "--swap-fields", "income", *given]
        code, _, err = surveyed.call(*arguments)
        assert (code, message in err) == (2, True), err
