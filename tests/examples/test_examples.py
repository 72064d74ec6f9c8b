"""Examples, each run as its reader would run it, against the real service."""

import os
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest

from examples.airflow_task import swap_object
from tests.references.storage import Storage
from tests.references.tables import as_file, of_file

EXAMPLES = Path(__file__).parents[2] / "examples"
OF_FILES = [[sys.executable, "with_pandas.py"], [sys.executable, "with_polars.py"], ["sh", "with_curl.sh"]]


def people(rows: int = 3000) -> pa.Table:
    return pa.table(
        {
            "income": [20_000 + 7 * row for row in range(rows)],
            "town": [f"Town-{row % 9}" for row in range(rows)],
            "née": [None if row % 5 else row / 8 for row in range(rows)],
        }
    )


def hold_swapped(source: pa.Table, released: pa.Table) -> None:
    """Check that incomes moved, each within its town, and nothing else did."""
    assert released.schema.names == source.schema.names
    assert released.drop(["income"]).to_pylist() == source.drop(["income"]).to_pylist()
    assert released["income"].to_pylist() != source["income"].to_pylist()
    by_town = [("town", "ascending"), ("income", "ascending")]
    assert released.select(["town", "income"]).sort_by(by_town).to_pylist() == (
        source.select(["town", "income"]).sort_by(by_town).to_pylist()
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    pyarrow.parquet.write_table(people(), tmp_path / "people.parquet")
    return tmp_path / "people.parquet"


@pytest.mark.parametrize("command", OF_FILES)
def test_a_file_is_swapped(address: str, key: str, file: Path, command: list[str]) -> None:
    released = file.parent / "released.parquet"
    program, script = command
    run([program, str(EXAMPLES / script), str(file), str(released), address], key)
    hold_swapped(people(), pyarrow.parquet.read_table(released))


def test_the_shell_says_how_it_came_out(address: str, key: str, file: Path) -> None:
    odd = file.rename(file.with_name("people [1].parquet"))  # curl would look for a range of names
    done = completed(["sh", str(EXAMPLES / "with_curl.sh"), str(odd), f"{odd}.released", address], key)
    assert re.fullmatch(r"job [0-9a-f-]{36}: SUCCESS\n", done.stdout), done


def test_a_query_is_swapped_a_batch_at_a_time(address: str, key: str, tmp_path: Path) -> None:
    source = people(250_000)
    with duckdb.connect(str(tmp_path / "people.duckdb")) as database:
        database.register("given", source)
        database.execute("CREATE TABLE people AS SELECT * FROM given")
    run([sys.executable, str(EXAMPLES / "with_duckdb.py"), str(tmp_path / "people.duckdb"), address], key)
    with duckdb.connect(str(tmp_path / "people.duckdb")) as database:
        hold_swapped(source, database.sql("FROM released").to_arrow_table())


def test_the_task_swaps_an_object_once_however_often_it_is_tried(storage: Storage) -> None:
    storage.s3.put_object(Bucket="given", Key="day/people.parquet", Body=as_file(people(), ".parquet"))
    parameters = {"swap_fields": ["income"], "control_field": "town"}
    to = "s3://released/out/day/people.parquet"
    address = str(storage.client.base_url)

    def tried() -> dict[str, object]:
        return swap_object("s3://given/day/people.parquet", to, "CDSWAP", parameters, address, "day/1")

    first = tried()
    hold_swapped(people(), of_file(storage.object("released", "out/day/people.parquet"), ".parquet"))
    assert tried() == first
    with pytest.raises(RuntimeError, match="no such object"):
        swap_object("s3://given/none.parquet", to, "CDSWAP", parameters, address, "day/2")


@pytest.mark.parametrize("command", OF_FILES)
def test_an_example_says_what_the_service_says(
    address: str, key: str, tmp_path: Path, command: list[str]
) -> None:
    """The table lacks a field: the error has the problem's text, and the buffer is deleted."""
    pyarrow.parquet.write_table(pa.table({"wage": [1, 2], "town": ["a", "b"]}), tmp_path / "people.parquet")
    program, script = command
    files = [str(tmp_path / "people.parquet"), str(tmp_path / "released.parquet")]
    done = completed([program, str(EXAMPLES / script), *files, address], key)
    assert done.returncode != 0
    assert "income" in done.stderr
    assert not (tmp_path / "released.parquet").exists()


@pytest.mark.parametrize("command", OF_FILES)
def test_an_example_without_a_key_says_so(address: str, file: Path, command: list[str]) -> None:
    program, script = command
    done = completed([program, str(EXAMPLES / script), str(file), str(file), address], "")
    assert done.returncode != 0
    assert "Authorization" in done.stderr


def completed(command: list[str], key: str) -> subprocess.CompletedProcess[str]:
    """Run a program with the caller's key."""
    environment = os.environ | {"ROWVEIL_API_KEY": key}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def run(command: list[str], key: str) -> None:
    """Run a program that must succeed."""
    done = completed(command, key)
    assert done.returncode == 0, done.stderr
