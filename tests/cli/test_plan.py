"""``rowveil plan``: what a job would need, for people and as JSON, and errors that name the option."""

import json
from typing import Any

import pytest

from tests.cli.conftest import Desk

SWAP = ("DSWAP", "--swap-fields", "income")


def _planned(desk: Desk, *more: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(desk.done("plan", "in.parquet", *SWAP, *more, "--json"))
    return found


def test_a_small_table_runs_in_memory_on_any_number_of_workers(desk: Desk) -> None:
    planned = _planned(desk)
    assert (planned["service"], planned["rows"]) == ("DSWAP", 400)
    assert [each["workers"] for each in planned["estimates"]] == [1, 4, 16]
    assert {(each["way"], each["units"]) for each in planned["estimates"]} == {("in memory", 1)}
    assert all(0 < each["low"] <= each["seconds"] <= each["high"] for each in planned["estimates"])


def test_a_long_table_is_divided(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is a sample of it: rows and bytes grow in proportion, and 16 workers are faster than one."""
    monkeypatch.setenv("ROWVEIL_WORKER_MEMORY_BYTES", "1000000000")
    one, many = _planned(desk, "--rows", "1000000000", "--workers", "1,16")["estimates"]
    assert (one["way"], one["units"]) == ("out of core", 1)
    assert many["way"] == "divided"
    assert 1 < many["units"] <= 32
    assert many["seconds"] < one["seconds"]
    smaller = _planned(desk, "--rows", "500000000", "--workers", "1,16")["estimates"]
    assert [each["written_bytes"] for each in smaller] == pytest.approx(
        [one["written_bytes"] / 2, many["written_bytes"] / 2], rel=0.01
    )


def test_slow_storage_takes_longer(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWVEIL_WORKER_MEMORY_BYTES", "1000000000")
    given = ("--rows", "1000000000", "--workers", "16")
    (fast,) = _planned(desk, *given, "--storage-bandwidth", "1000000000000")["estimates"]
    (slow,) = _planned(desk, *given, "--storage-bandwidth", "10000000")["estimates"]
    # In the slow one every byte passes at 10 MB/s.
    assert slow["seconds"] > (slow["read_bytes"] + slow["written_bytes"]) / 10e6 * 0.9
    assert slow["seconds"] > 10 * fast["seconds"]


def test_text_has_a_row_for_each_number_and_the_assumptions(desk: Desk) -> None:
    lines = desk.done("plan", "in.parquet", *SWAP, "--workers", "1,2").splitlines()
    assert lines[0].startswith("DSWAP on 400 rows of ")
    assert [line.split()[0] for line in lines[3:6]] == ["workers", "1", "2"]
    assert "assumed: transfers of 2 GB/s by all workers" in lines[-1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ("DSWAP", "--swap-fields", "incme"),
            "--swap-fields, item 1: unknown field 'incme'; did you mean 'income'?",
        ),
        ((*SWAP, "--workers", "four"), "--workers: 'four' is no list of positive numbers such as 1,4,16"),
        ((*SWAP, "--workers", "0"), "--workers: '0' is no list"),
        ((*SWAP, "--rows", "-1"), "argument --rows: '-1' is no positive whole number"),
        ((*SWAP, "--worker-bandwidth", "1e9"), "'1e9' is no positive whole number"),
        (("DSWAPP",), "there is no 'DSWAPP'; did you mean 'DSWAP'?"),
    ],
)
def test_an_error_names_the_option(desk: Desk, given: tuple[str, ...], message: str) -> None:
    code, out, err = desk.call("plan", "in.parquet", *given)
    assert (code, out) == (2, "")
    assert message in err


def test_a_job_that_runs_in_memory_only_says_how_much(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWVEIL_WORKER_MEMORY_BYTES", "20000000")
    code, out, err = desk.call(
        "plan", "in.parquet", "MEDS", "--swap-fields", "income,hours", "--k", "3", "--rows", "9000000"
    )
    assert (code, out) == (1, "")
    assert "the job runs in memory only" in err
    assert "ROWVEIL_WORKER_MEMORY_BYTES" in err
