"""``rowveil_client``: a DataFrame in, and a DataFrame of the same library out."""

import subprocess
import sys
from typing import Any

import httpx
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from providers.tables.digest import table_digest
from rowveil_client import Problem, Rowveil
from tests.cli.conftest import SEED
from tests.cli.people import people
from tests.cli.test_run import PARAMETERS
from tests.naive.agreement import swap
from tests.survey_runs import RUNS, WEIGHTED, survey

KINDS = {"arrow": lambda table: table, "pandas": pa.Table.to_pandas, "polars": pl.from_arrow}


@pytest.fixture
def rowveil(client: httpx.Client) -> Rowveil:
    key = client.headers.get("authorization", "").removeprefix("Bearer ") or None
    return Rowveil(str(client.base_url), key)


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_comes_back_as_what_it_was(rowveil: Rowveil, kind: str) -> None:
    given: Any = KINDS[kind](people())
    with rowveil:
        released = rowveil.cdswap(given, swap_fields=["income"], control_field="city", seed=SEED)
        again = rowveil.cdswap(people(), swap_fields=["income"], control_field="city", seed=SEED)
    assert type(released) is type(given)
    table = released if kind == "arrow" else pa.Table.from_pydict(_columns(released))
    assert table.to_pydict() == again.to_pydict()
    assert table["city"].to_pylist() == people()["city"].to_pylist()
    assert table["income"].to_pylist() != people()["income"].to_pylist()


def _columns(frame: Any) -> Any:
    return frame.to_dict("list") if isinstance(frame, pd.DataFrame) else frame.to_dict(as_series=False)


def test_a_table_of_many_pieces_comes_back_whole(rowveil: Rowveil) -> None:
    """The table is far larger than one read of the response."""
    source = people(50_000)
    with rowveil:
        released = rowveil.cdswap(source, swap_fields=["income"], control_field="city", report="none")
    assert released.drop(["income"]).equals(source.drop(["income"]))
    assert sorted(released["income"].to_pylist()) == sorted(source["income"].to_pylist())


@pytest.mark.parametrize("service", PARAMETERS)
def test_every_service_has_a_method(rowveil: Rowveil, service: str) -> None:
    with rowveil:
        released = getattr(rowveil, service.lower())(people(), **PARAMETERS[service], report="none")
        assert rowveil.job["service"] == service
    assert released.schema.names == people().schema.names
    assert released.num_rows == 400


def test_what_is_reported_of_a_run(rowveil: Rowveil) -> None:
    with rowveil:
        rowveil.dswap(people(), swap_fields=["income"], candidates=2)
        assert len(rowveil.report()["candidates"]["table"]) == 2
        assert rowveil.manifest()["manifest"]["job"] == rowveil.job["id"]


def test_the_release_of_the_last_run_or_another_table_is_attacked(rowveil: Rowveil) -> None:
    """Two attacks in a row have the same run; the buffers of all tables are deleted."""
    asked: dict[str, Any] = {"known": ["age", "city"], "secret": ["income"], "attacks": 40, "seed": SEED}
    table = people().to_pandas()
    with rowveil:
        released = rowveil.dswap(table, swap_fields=["income"], seed=SEED)
        run = rowveil.job["id"]
        report = rowveil.attack(table, **asked)
        assert rowveil.job["parameters"]["job"] == run
        assert report["control"] == "sister"
        assert rowveil.attack(table, **asked)["attacks"] == report["attacks"]
        other = rowveil.attack(table, released, control=people(450).slice(400), **asked)
        assert other["control"] == "given"
        assert rowveil.job["control"]["digest"].startswith("sha256t:")
        with pytest.raises(Problem, match="did you mean 'income'"):
            rowveil.attack(table, released, secret=["incom"])
        with pytest.raises(Problem, match="/known: must be a list; a text was sent"):
            rowveil.attack(table, released, known="age", secret=["income"])


def test_the_parameters_that_surveys_need_are_passed_on(rowveil: Rowveil) -> None:
    """Each run gives the bytes of its parameters; a comparison has all of them as points."""
    table = pa.Table.from_pylist(survey())
    services = [{"service": service, "parameters": parameters} for service, parameters in RUNS.values()]
    with rowveil:
        for name, (service, parameters) in RUNS.items():
            getattr(rowveil, service.lower())(table, **parameters, seed=SEED)
            expected = swap(service, table, parameters, int(SEED, 16).to_bytes(32, "big")).table
            assert rowveil.job["destination"]["digest"] == table_digest(expected), name
        rowveil.attack(table, known=["age", "sex"], secret=["end"], attacks=30)
        notes = [each.get("note", "") for each in rowveil.report()["attacks"]["reidentification"].values()]
        assert all("The repair of checks excluded exchanges" in note for note in notes)
        utility = "domain_totals.change_in_errors"
        found = rowveil.frontier(
            table, services, risk="changed_share", utility=utility, measures=WEIGHTED, seed=SEED
        )["frontier"]
    assert [point["parameters"] for point in found["points"]] == [given for _, given in RUNS.values()]


def test_a_refusal_is_the_service_s_own_problem(rowveil: Rowveil, client: httpx.Client) -> None:
    """The error has code and pointers; the uploaded buffer is deleted."""
    with rowveil, pytest.raises(Problem, match="did you mean 'income'") as caught:
        rowveil.dswap(people(), swap_fields=["incom"])
    assert (caught.value.status, caught.value.code) == (422, "invalid_parameter")
    assert caught.value.errors[0]["pointer"] == "/parameters/swap_fields/0"


def test_a_job_that_fails_is_a_problem(rowveil: Rowveil) -> None:
    alone = people(1)
    with rowveil, pytest.raises(Problem) as caught:
        rowveil.dswap(alone, swap_fields=["income"], suppression={"policy": "fail"})
    assert caught.value.code == "unswappable_rows"
    assert rowveil.job["state"] == "failed"


def test_no_table_is_refused_before_anything_is_sent() -> None:
    with Rowveil("http://127.0.0.1:9") as nobody, pytest.raises(TypeError, match="is a pandas or polars"):
        nobody.dswap([{"income": 1}], swap_fields=["income"])


def test_progress_is_shown_where_it_is_asked_for(
    client: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    key = client.headers.get("authorization", "").removeprefix("Bearer ") or None
    with Rowveil(str(client.base_url), key, progress=True) as rowveil:
        rowveil.dswap(people(), swap_fields=["income"])
    assert "%|" in capsys.readouterr().err
    with Rowveil(str(client.base_url), key) as rowveil:
        rowveil.dswap(people(), swap_fields=["income"])
    assert capsys.readouterr().err == ""


def test_it_brings_nothing_of_the_service_along() -> None:
    """The client imports neither the service, its kernels, pandas nor polars."""
    heavy = "{'app', 'providers', 'numba', 'fastapi', 'pandas', 'polars'}"
    script = f"import sys, rowveil_client; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_integers_next_to_nulls_keep_their_digits(rowveil: Rowveil) -> None:
    """A float has 53 bits; pandas has nullable integers, and given ones are returned as such."""
    beyond = [2**53 + 1 + 2 * row for row in range(40)]
    given = pd.DataFrame({"id": beyond, "own": pd.array([None, *beyond[1:]], dtype="Int64"), "town": "Cork"})
    given.loc[0, "town"] = "Athens"
    with rowveil:
        released = rowveil.cdswap(given, swap_fields=["id"], control_field="town")
    assert [str(kind) for kind in released.dtypes[:2]] == ["Int64", "Int64"]
    assert released["id"].isna().sum() == 1  # of the one person of Athens
    assert sorted(released["id"].dropna()) == beyond[1:]
    assert released["own"].tolist()[1:] == beyond[1:]


class Faulty(httpx.BaseTransport):
    """Service that accepts a job, and then gives the listed responses in turn."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        made = {"id": "1", "state": "queued"}
        if request.method == "POST":
            return httpx.Response(201, json=made)
        if request.method == "DELETE":
            raise httpx.ConnectError("away")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def calling(*answers: httpx.Response | Exception) -> Rowveil:
    rowveil = Rowveil("http://service", timeout=30)
    rowveil._client = httpx.Client(base_url="http://service", transport=Faulty(*answers))
    return rowveil


def test_a_service_that_restarts_is_waited_for() -> None:
    """The service or a proxy does not respond; a buffer that cannot be deleted is left to its expiry."""
    failed = {"id": "1", "state": "failed", "error": {"detail": "it failed", "code": "worker_died"}}
    with (
        calling(
            httpx.ConnectError("away"),
            httpx.ConnectError("away"),
            httpx.Response(502, text="<h1>Bad gateway</h1>"),
            httpx.Response(503, json={"status": 503, "detail": "not yet"}),
            httpx.Response(200, text=""),
            httpx.Response(200, json=failed),
        ) as rowveil,
        pytest.raises(Problem, match="it failed") as caught,
    ):
        rowveil.dswap(people(), swap_fields=["income"])
    assert caught.value.code == "worker_died"


@pytest.mark.parametrize("content", ["[]", '"away"', '{"message": "no such host"}', "<p>away</p>"])
def test_what_a_proxy_answers_is_a_problem_as_well(content: str) -> None:
    events, job = httpx.Response(404), httpx.Response(403, text=content)
    with calling(events, job) as rowveil, pytest.raises(Problem, match="403 Forbidden") as caught:
        rowveil.dswap(people(), swap_fields=["income"])
    assert caught.value.status == 403
    assert rowveil.job["id"] == "1"
