"""Every fenced example of the documentation does what its page says, against the real service."""

import csv
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet
import pytest

from demo.people import TYPES, people
from tests.docs.blocks import ADDRESS, PAGES, ROOT, Block, Reader, blocks, pages, pages_with, sample_table
from tests.references.storage import Storage

RUN = ("sh", "python")
SERVED = Block("sh", "make serve\n")
"""Command that the fixture `address` has already run."""
WITHOUT_ADDRESS = "examples/with_pandas.py people.parquet released.parquet"
"""Example that uses the default address."""
MADE = re.compile(r"(?:make \w+ +#.*\n)+")
"""Targets of the Makefile: everything there is, this test included."""
ELSEWHERE = {
    "attacks.md": "tests/unit/app/test_settings.py",
    "choosing.md": "tests/data/test_choosing_page.py",
    "choosing-a-method.md": "tests/docs/test_choosing_a_method.py",
    **{f"services/{page.name}": "tests/data/test_worked_examples.py" for page in PAGES.glob("services/*.md")},
}
"""Page whose JSON is run -> by what."""
RUN_ELSEWHERE = {
    "deployment.md": "tests/docs/test_deployment.py",
    "../clients/python/README.md": "tests/clients/test_generated.py",
}
"""Page whose commands are run -> by what."""
CLIENTS = "clients.md"
TYPESCRIPT = "tests/clients/test_generated.py"
"""Runs what that page has in TypeScript."""
ON_THE_SAMPLE = (CLIENTS, "command_line.md", "scaling.md")
"""Pages that go on where the quick start has made its table."""
FRONT = "../README.md"
NINTH = "adding-a-provider.md"
BY_REFERENCE = "references.md"
COPIED = ("app", "providers", "rowveil_client", "website", "demo", "migrations", "tests", "docs", "openapi")


PROMETHEUS = """
prometheus() {
    test "$*" = --config.file=prometheus.yml
    for named in $(sed -n 's/ *credentials_file: //p; s/^rule_files: .\\(.*\\)./\\1/p' prometheus.yml); do
        test -s "$named" || { echo "prometheus.yml names $named, which is missing"; return 1; }
    done
}
"""
"""Stands in for Prometheus, which is not installed: every file that its configuration names is there."""


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
    person = Reader(tmp_path, address, service_home, shell=PROMETHEUS)
    person.settle()
    put_tables(tmp_path)
    return person


@pytest.fixture(scope="module")
def known(client: httpx.Client, key: str) -> dict[str, str]:
    """Values of KEY, BUFFER and JOB in the pages."""
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
    "page", [page for page in pages_with(*RUN) if page not in (NINTH, BY_REFERENCE, *RUN_ELSEWHERE)]
)
def test_the_examples_of_a_page(page: str, reader: Reader, known: dict[str, str]) -> None:
    """Typed in one after the other, each succeeds and prints what the page says."""
    examples = [
        block
        for block in blocks(PAGES / page)
        if block.language in RUN and block != SERVED and not MADE.fullmatch(block.text)
    ]
    if page in ON_THE_SAMPLE:
        examples.insert(0, sample_table())
    put = {
        "4fGk0aZ2Qp": "$(rowveil keys list | awk '/ada/ {print $1}')",  # the key that was made just now
        WITHOUT_ADDRESS: f"{WITHOUT_ADDRESS} {reader.address}",
    }
    reader.run(examples, known, put)
    if page == FRONT:
        (documented,) = (elided(block.text) for block in blocks(PAGES / page) if block.language == "json")
        printed = json.loads((reader.folder / "0.out").read_text())
        hold_within(documented, printed)


def elided(text: str) -> Any:
    """Return a document without the ellipsis at its end."""
    assert text.count(", …}") == 1
    return json.loads(text.replace(", …}", "}"))


def hold_within(documented: Any, printed: Any) -> None:
    """Check that the output has everything that the page shows, except random values."""
    if isinstance(documented, dict):
        assert documented.keys() <= printed.keys()
        for name, value in documented.items():
            if name not in ("id", "seed_fingerprint", "digest"):
                hold_within(value, printed[name])
    elif isinstance(documented, list):
        assert len(documented) == len(printed)
        for one, other in zip(documented, printed, strict=True):
            hold_within(one, other)
    else:
        assert documented == printed


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
    """Every step of the page is carried out in a copy of the repository.

    The new service passes the linters, agrees with its naive twin, is described and answers over HTTP.
    """
    for name in COPIED:  # with compiled modules, which are compiled again where their file changes
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns(".hypothesis"))
    for name in ("pyproject.toml", "alembic.ini", "mkdocs.yml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    examples, written = [], set()
    for block in blocks(PAGES / NINTH):
        named = re.match(r"# (\S+/\S+)\n", block.text)
        if named is not None:
            (tmp_path / named[1]).write_text(block.text.removeprefix(named[0]), encoding="utf-8")
            written.add(named[1])
        elif block.language == "diff":
            apply(block.text, tmp_path)
        elif block.language in RUN:
            examples.append(block)
    assert written == {
        "providers/services/rankswap.py",
        "tests/naive/rankswap.py",
        "tests/golden/cases/rankswap.yml",
    }
    Reader(tmp_path, ADDRESS, tmp_path / "var", tmp_path).run(examples)
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
    assert made("serve")[-2:] == [".venv/bin/python -m app keys own", ".venv/bin/python -m app serve"]
    assert SERVED in blocks(PAGES / "quick-start.md")


def test_serving_says_what_the_quick_start_shows(tmp_path: Path) -> None:
    """Both commands, one after the other, on a home as new as its reader's."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (shown,) = (block.text for block in blocks(PAGES / "quick-start.md") if block.language == "")
    begun = [command.replace("serve", "serve &") for command in made("serve")[-2:]]
    looking = "for _ in $(seq 900); do grep -q ready said && break; kill -0 $!; sleep 0.1; done"
    script = f"set -eu; {{ {begun[0]}; {begun[1]} }} > said; {looking}; kill $!; wait $!"
    given = {"PYTHONPATH": str(ROOT), "ROWVEIL_PORT": "0", "ROWVEIL_WARM_WORKERS": "false"}
    subprocess.run(["bash", "-c", script], cwd=tmp_path, env=os.environ | given, check=True, timeout=120)  # noqa: S607 - as a reader has it
    said = re.sub(r"(127\.0\.0\.1):\d+", r"\1:8080", (tmp_path / "said").read_text())
    assert re.fullmatch(re.escape(shown).replace("…", r"\S+"), said), said


def test_what_the_front_page_has_made_is_there_to_be_made() -> None:
    """`make demo` and `make test`: their own tests run what they do; the second runs this."""
    (block,) = (block for block in blocks(PAGES / FRONT) if MADE.fullmatch(block.text))
    targets = [line.split()[1] for line in block.text.splitlines()]
    assert [made(target)[-1].removeprefix(".venv/bin/python -m ").split()[0] for target in targets] == [
        "demo",
        "pytest",
    ]


def made(target: str) -> list[str]:
    """The commands of one of the Makefile's targets."""
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", target],  # noqa: S607 - as a reader has it
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_command_is_there_without_what_testing_needs(tmp_path: Path) -> None:
    """`rowveil` in `.venv/bin`, as the Makefile puts it there, is of its checkout wherever it is typed."""
    checkout, elsewhere = tmp_path / "a checkout", tmp_path / "elsewhere"
    (checkout / ".venv/bin").mkdir(parents=True)
    (elsewhere / "app").mkdir(parents=True)
    (elsewhere / "app/__init__.py").write_text("raise SystemExit('another app')", encoding="utf-8")
    python = checkout / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    for name in ("app", "providers"):
        (checkout / name).symlink_to(ROOT / name)
    placed = make(checkout, "--old-file=.venv/.service", ".venv/bin/rowveil")
    assert placed.returncode == 0, placed.stderr
    command = [str(checkout / ".venv/bin/rowveil"), "run", "CDSWAP", "none.csv", "out.csv"]
    done = subprocess.run(
        [*command, "--swap-fields", "a", "--control-field", "two words"],
        cwd=elsewhere,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "none.csv cannot be read" in done.stderr


def test_an_environment_that_cannot_be_made_says_what_it_takes(tmp_path: Path) -> None:
    """Half of one, as Python leaves without its own pip, would be taken for a whole one the next time."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nmkdir -p .venv/bin; touch .venv/bin/python; exit 1\n", encoding="utf-8")
    python.chmod(0o755)
    done = make(tmp_path, f"PYTHON={python}", ".venv/bin/python")
    assert done.returncode != 0
    assert "python3.11-venv" in done.stdout
    assert not (tmp_path / ".venv").exists()


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A target of the Makefile, in another folder."""
    return subprocess.run(
        ["make", "--directory", str(folder), "--file", str(ROOT / "Makefile"), *arguments],  # noqa: S607 - as a reader has it
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_example_is_run() -> None:
    """A block is in a language that a test runs here, or on a page that a test named above runs."""
    for name in pages():
        page = PAGES / name
        for block in blocks(page):
            if name in RUN_ELSEWHERE:
                assert page.name in (ROOT / RUN_ELSEWHERE[name]).read_text(), name
            elif name == CLIENTS and block.language == "ts":
                assert name in (ROOT / TYPESCRIPT).read_text()
            elif name == FRONT and block.language == "json":
                continue  # what its example prints
            elif block.language == "json":
                assert page.name in (ROOT / ELSEWHERE[name]).read_text() or name.startswith("services/"), name
            elif name == NINTH:
                assert block.language in (*RUN, "diff", "yaml")
            else:
                assert block.language in (*RUN, ""), f"{name} has a block of {block.language or 'text'}"
