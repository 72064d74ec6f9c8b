"""Modules that a command, the service's start and a request import: by name, never by time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HEAVY = {
    "alembic", "cryptography", "dask", "distributed", "fastapi", "httpcore", "httpx", "jinja2", "jwt",
    "markdown_it", "numba", "numpy", "obstore", "pandas", "prometheus_client", "pydantic",
    "scipy", "sklearn", "sqlalchemy", "uvicorn",
    "pyarrow._compute", "pyarrow.lib", "pydantic.v1", "sqlalchemy.dialects.postgresql",
}  # fmt: skip
"""Packages and modules that take a noticeable part of a second, or of 100 MB."""

LIST = f"""
import json, sys
loaded = sorted(set({sorted(HEAVY)!r}) & set(sys.modules))
print("\\n" + json.dumps(loaded))
"""


def loaded_by(code: str, **variables: str) -> set[str]:
    """Run the code in a process of its own; return the heavy packages that it imported."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROWVEIL_")}
    ran = subprocess.run(
        [sys.executable, "-c", code + LIST],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return set(json.loads(ran.stdout.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["serv"], [], ["serve", "--help"]])
def test_help_and_usage_errors_import_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
from app.__main__ import main
try:
    main({arguments!r})
except SystemExit as left:
    assert left.code == {0 if any("-" in each for each in arguments) else 2}
"""
    assert loaded_by(code) == set()


def test_a_worker_collects_garbage_though_imports_do_not() -> None:
    code = """
import gc
import app.engine.fork_server_setup
assert not gc.isenabled()
import app.worker.preload
assert gc.isenabled()
"""
    loaded_by(code)


def test_invalid_settings_are_reported_before_a_service_is_imported() -> None:
    code = "from app.__main__ import main\nassert main(['serve']) == 2"
    assert loaded_by(code, ROWVEIL_PORT="none") == {"pydantic"}


SERVICE = """
import sys
import uvicorn
from app import __main__ as command
uvicorn.Server.run = lambda server: None
command._begin_workers = lambda: None
sys.argv = ["rowveil", "serve"]
command.main()
from app.jobs.stores import Stores
from app.settings import Settings
Stores.open(Settings()).close()
"""
"""The command `serve` up to the first request, without its workers."""


def test_the_service_starts_without_what_only_workers_and_rare_requests_need(tmp_path: Path) -> None:
    """Alembic is imported by the first start, which makes the tables, and by no other.

    An idle service holds neither pyarrow, nor models of pydantic's first version, nor the dialect of a
    database that it does not use: together 45 MB.
    """
    first = loaded_by(SERVICE, ROWVEIL_HOME=str(tmp_path))
    second = loaded_by(SERVICE, ROWVEIL_HOME=str(tmp_path))
    assert first - second == {"alembic", "sqlalchemy.dialects.postgresql"}
    assert second == {
        "cryptography", "fastapi", "numpy", "prometheus_client", "pydantic", "sqlalchemy", "uvicorn",
    }  # fmt: skip


ADMINISTRATION = """
from app.__main__ import main
commands = "keys own", "keys list", "audit verify", "ledger --verify", "rotate-keys", "reseal", "migrate"
for command in commands:
    assert main(command.split()) == 0, command
"""


def test_administration_runs_without_numba(tmp_path: Path) -> None:
    assert "sqlalchemy" in (loaded := loaded_by(ADMINISTRATION, ROWVEIL_HOME=str(tmp_path)))
    assert "numba" not in loaded


def test_a_deferred_module_is_imported_once_when_it_is_used() -> None:
    """Many threads may use it at the same time; names that were bound before give its members."""
    code = """
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from app.lean import defer
defer("pyarrow.compute")
import pyarrow as pa, pyarrow.compute as pc
import pyarrow.compute as other
assert "pyarrow._compute" not in sys.modules
together = Barrier(8)
def add(number):
    together.wait()
    return pc.sum(pa.array([number, 1])).as_py()
with ThreadPoolExecutor(8) as pool:
    assert list(pool.map(add, range(8))) == list(range(1, 9))
import pyarrow.compute as imported
assert imported is sys.modules["pyarrow.compute"] is pa.compute
assert other.sum is pc.sum is imported.sum
assert imported.__file__ and issubclass(pc.Expression, object)
for name in ("no_such_function", "__wrapped__"):
    try:
        getattr(pc, name)
    except AttributeError:
        continue
    raise AssertionError(name)
before = sys.modules["pyarrow.compute"]
defer("pyarrow.compute")
assert sys.modules["pyarrow.compute"] is before
"""
    assert "pyarrow._compute" in loaded_by(code)


@pytest.mark.parametrize(
    "use",
    [
        "assert pa.__version__ == __import__('pyarrow').__version__",
        "import pyarrow.parquet as pq; assert pq.ParquetFile",
        "import pyarrow.lib; assert pyarrow.lib.Table is pa.Table",
        "import pyarrow.ipc as ipc; assert ipc.RecordBatchFileReader is pa.RecordBatchFileReader",
        "import pickle; assert pickle.loads(b'cpyarrow.lib\\nint8\\n.')() == pa.int8()",
        "import pyarrow.lib, pyarrow.ipc, importlib; importlib.reload(pyarrow.ipc)",
        "pa.int8(); import pyarrow.compute; assert pyarrow.compute.sum",
    ],
)
def test_each_use_of_a_deferred_package_imports_it_once(use: str) -> None:
    """A second execution of a submodule would make other classes of the same names."""
    code = f"""
import sys
from app.lean import defer
defer("pyarrow", "pyarrow.compute")
import pyarrow as pa, pyarrow.compute
assert "pyarrow.lib" not in sys.modules
{use}
import pyarrow
assert pyarrow is sys.modules["pyarrow"] is not pa
assert pyarrow.compute.sum(pyarrow.array([1, 2])).as_py() == 3
assert pyarrow.Table is pa.Table is sys.modules["pyarrow.lib"].Table
assert sys.modules["pyarrow.lib"].__spec__.origin.endswith(".so")
assert pa.table({{"a": [1]}}).column("a").type == pa.int64()
"""
    assert "pyarrow.lib" in loaded_by(code)


def test_threads_may_import_a_deferred_package_in_different_ways() -> None:
    code = """
import importlib
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from app.lean import defer
defer("pyarrow", "pyarrow.compute")
import pyarrow as pa, pyarrow.compute as pc
together = Barrier(6)
uses = [
    lambda: pa.table({"a": [1]}).num_rows,
    lambda: pc.sum(pa.array([1])).as_py(),
    lambda: len([importlib.import_module("pyarrow.lib").Table]),
    lambda: len([importlib.import_module("pyarrow.parquet").ParquetFile]),
    lambda: len([importlib.import_module("pyarrow").schema]),
    lambda: len([importlib.import_module("pyarrow.compute").equal]),
]
def use(number):
    together.wait()
    return uses[number]()
with ThreadPoolExecutor(6) as pool:
    assert list(pool.map(use, range(6))) == [1] * 6
"""
    for _ in range(5):
        assert "pyarrow.lib" in loaded_by(code)


def test_an_issuer_needs_its_own_libraries(tmp_path: Path) -> None:
    """Shows that the assertions above look at modules that the service does import when it needs them."""
    issuer = {"ROWVEIL_OIDC_ISSUER": "https://issuer.example", "ROWVEIL_OIDC_AUDIENCE": "rowveil"}
    assert {"httpx", "jwt"} <= loaded_by(SERVICE, ROWVEIL_HOME=str(tmp_path), **issuer)


def test_the_first_request_for_help_imports_what_renders_it() -> None:
    assert loaded_by("import app.help.routes") & {"jinja2", "markdown_it"} == set()
    code = "from app.help import routes\nassert routes._find('glossary').status == 200"
    assert {"jinja2", "markdown_it"} <= loaded_by(code)
