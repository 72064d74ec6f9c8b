"""Every fenced example of the documentation does what its page says, against the real service."""

import csv
import gzip
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.parquet
import pytest

from demo.people import TYPES, people
from tests.docs.blocks import ADDRESS, PAGES, ROOT, Block, Reader, blocks, pages_with
from tests.references.storage import Storage

RUN = ("sh", "python")
SERVED = Block("sh", "make serve\n")
"""What the fixture `address` has done already, as its reader would."""
ELSEWHERE = {
    "choosing.md": "tests/data/test_choosing_page.py",
    "choosing-a-method.md": "tests/docs/test_choosing_a_method.py",
    **{f"services/{page.name}": "tests/data/test_worked_examples.py" for page in PAGES.glob("services/*.md")},
}
"""Page whose JSON is run -> by what."""
NOT_TYPED_IN = {
    "clients.md": "a service at an address of the reader's own",
    "command_line.md": "tables with fields of the reader's own",
    "deployment.md": "Docker, and a Kubernetes cluster",
}
"""Page whose examples are not run here -> what they would take."""
NINTH = "adding-a-provider.md"
BY_REFERENCE = "references.md"
COPIED = ("app", "providers", "demo", "migrations", "tests", "docs", "openapi")


def as_csv(rows: list[dict[str, object]], delimiter: str = ",") -> str:
    sink = io.StringIO()
    writer = csv.DictWriter(sink, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return sink.getvalue()


def put_tables(folder: Path) -> None:
    """The tables that pages take for granted: people as CSV, as somebody else's CSV, as Parquet."""
    rows = people(400)
    folder.joinpath("people.csv").write_text(as_csv(rows), encoding="utf-8")
    folder.joinpath("people.csv.gz").write_bytes(gzip.compress(as_csv(rows, ";").encode("windows-1252")))
    columns = {name: [row[name] for row in rows] for name in TYPES if name not in ("income", "interviewed")}
    columns["income"] = [None if row["income"] is None else float(row["income"]) for row in rows]
    pyarrow.parquet.write_table(pa.table(columns), folder / "people.parquet")


@pytest.fixture
def reader(tmp_path: Path, address: str, service_home: Path) -> Reader:
    person = Reader(tmp_path, address, service_home)
    person.settle()
    put_tables(tmp_path)
    return person


@pytest.fixture(scope="module")
def known(client: httpx.Client, key: str) -> dict[str, str]:
    """What pages call KEY, BUFFER and JOB."""
    content = as_csv(people(400)).encode()
    upload = client.post("/v1/buffers", content=content, headers={"content-type": "text/csv"})
    buffer = upload.raise_for_status().json()["id"]
    call = {
        "source": {"buffer": buffer},
        "parameters": {"swap_fields": ["income"], "control_field": "town"},
        "retain_source": True,
    }
    job = (
        client.post("/v1/services/CDSWAP", json=call, headers={"prefer": "wait=60"}).raise_for_status().json()
    )
    assert job["state"] == "succeeded"
    return {"KEY": key, "BUFFER": buffer, "JOB": job["id"]}


@pytest.mark.parametrize(
    "page", [page for page in pages_with(*RUN) if page not in (NINTH, BY_REFERENCE, *NOT_TYPED_IN)]
)
def test_the_examples_of_a_page(page: str, reader: Reader, known: dict[str, str]) -> None:
    """Typed in one after the other, each succeeds and prints what the page says."""
    examples = [block for block in blocks(PAGES / page) if block.language in RUN and block != SERVED]
    put = {"4fGk0aZ2Qp": "$(rowveil keys list | awk '/ada/ {print $1}')"}  # the key that was made just now
    reader.run(examples, known, put)


def test_the_examples_by_reference(reader: Reader, known: dict[str, str], storage: Storage) -> None:
    """Between two real buckets, below the prefixes that the service there allows."""
    source = "people/date=2026-11-21/people.parquet"
    storage.s3.upload_file(str(reader.folder / "people.parquet"), "given", source)
    examples = [block for block in blocks(PAGES / BY_REFERENCE) if block.language in RUN]
    put = {"s3://microdata/": "s3://given/", "s3://released/people/": "s3://released/out/people/"}
    other = Reader(reader.folder, str(storage.client.base_url).rstrip("/"), storage.home)
    other.run(examples, known, put)
    assert storage.object("released", "out/people/2026-11-21.parquet")[:4] == b"PAR1"


def test_the_ninth_provider(tmp_path: Path) -> None:
    """Its files put into a copy of the repository, it runs, agrees with its twin, and is described."""
    for name in COPIED:
        left = shutil.ignore_patterns("__pycache__", ".hypothesis")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=left)
    for name in ("pyproject.toml", "alembic.ini"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    examples = []
    for block in blocks(PAGES / NINTH):
        named = re.match(r"# (\S+/\S+)\n", block.text)
        if named is not None:
            (tmp_path / named[1]).write_text(block.text.removeprefix(named[0]), encoding="utf-8")
        elif block.language == "diff":
            apply(block.text, tmp_path)
        elif block.language in RUN:
            examples.append(block)
    Reader(tmp_path, ADDRESS, tmp_path / "var", tmp_path).run(examples, {}, {})
    assert "RANKSWAP: Rank swapping in blocks" in (tmp_path / "docs/services/RANKSWAP.md").read_text()
    assert '"runRankswap"' in (tmp_path / "openapi/openapi.json").read_text()


def apply(difference: str, folder: Path) -> None:
    """Make the changes that a page shows, which has no line numbers."""
    for part in re.split(r"^--- a/.*\n", difference, flags=re.MULTILINE)[1:]:
        name, _, hunks = part.removeprefix("+++ b/").partition("\n")
        path = folder / name
        text = path.read_text(encoding="utf-8")
        for hunk in re.split(r"^@@.*\n", hunks, flags=re.MULTILINE)[1:]:
            lines = hunk.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] in " -")
            after = "".join(line[1:] for line in lines if line[0] in " +")
            assert text.count(before) == 1, f"{name} has not once\n{before}"
            text = text.replace(before, after)
        path.write_text(text, encoding="utf-8")


def test_serving_is_what_the_service_of_these_tests_does() -> None:
    """`make serve`, which the quick start begins with: the key of one's own, then the service."""
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "serve"],  # noqa: S607 - as a reader has it
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-2:] == [
        ".venv/bin/python -m app keys own",
        ".venv/bin/python -m app serve",
    ]
    assert SERVED in blocks(PAGES / "quick-start.md")


def test_every_example_is_run() -> None:
    """A block is in a language that a test runs here, or on a page that is named above, and why."""
    for page in sorted(PAGES.rglob("*.md")):
        name = page.relative_to(PAGES).as_posix()
        for block in blocks(page) if name not in NOT_TYPED_IN else ():
            if block.language == "json":
                assert page.name in (ROOT / ELSEWHERE[name]).read_text() or name.startswith("services/"), name
            elif name == NINTH:
                assert block.language in (*RUN, "diff", "yaml")
            else:
                assert block.language in (*RUN, ""), f"{name} has a block of {block.language or 'text'}"
