"""Package: list of providers, location of compiled kernels, and contents of the wheel."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from providers import PROVIDERS
from providers.compiled_services import MEASURES_NAME
from providers.errors import ParameterError, UnswappableError
from providers.warm import _PARAMETERS, NAMES, warm

ROOT = Path(__file__).parents[3]


def cache_folder(**environment: str) -> Path:
    """Return a fresh interpreter's kernel folder, with a private cache folder."""
    script = (
        "import os, providers; folder = os.environ['NUMBA_CACHE_DIR']; "
        "assert not os.stat(folder).st_mode & 0o022; print(folder)"
    )
    inherited = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
    run = subprocess.run(
        [sys.executable, "-c", script],
        env=inherited | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(run.stdout.strip())


def test_providers_are_listed_in_order() -> None:
    """Each one has its identifier as key."""
    identifiers = ["DSWAP", "CDSWAP", "DDSWAP", "MEWS", "MEDS", "RWN", "PABIDOT", "LOCALITY", "RSWAP"]
    assert list(PROVIDERS) == identifiers
    assert all(provider.identifier == identifier for identifier, provider in PROVIDERS.items())
    for provider in PROVIDERS.values():
        for part in (
            "guarantees", "changes", "limits", "repeated_releases", "special_values", "cost", "instead",
            "references",
        ):  # fmt: skip
            assert getattr(provider, part), (provider.identifier, part)


@pytest.mark.slow
def test_kernels_are_kept_in_a_private_folder(tmp_path: Path) -> None:
    """Only its owner can write to it."""
    folder = cache_folder(XDG_CACHE_HOME=str(tmp_path))
    assert folder == tmp_path / "rowveil" / "kernels"
    assert folder.stat().st_mode & 0o077 == 0
    assert cache_folder(XDG_CACHE_HOME=str(tmp_path)) == folder


@pytest.mark.slow
def test_a_given_folder_is_used(tmp_path: Path) -> None:
    """NUMBA_CACHE_DIR of the environment wins."""
    assert cache_folder(NUMBA_CACHE_DIR=str(tmp_path)) == tmp_path


@pytest.mark.slow
def test_a_folder_that_cannot_be_trusted_is_not_used(tmp_path: Path) -> None:
    """A folder that others can write to, or none at all, is replaced by a temporary one."""
    folder = cache_folder(XDG_CACHE_HOME=str(tmp_path))
    folder.chmod(0o777)
    replaced = cache_folder(XDG_CACHE_HOME=str(tmp_path), TMPDIR=str(tmp_path))
    assert replaced.name.startswith("rowveil-kernels-")
    assert not replaced.exists()  # it went with the process that made it
    (tmp_path / "file").touch()
    assert cache_folder(XDG_CACHE_HOME=str(tmp_path / "file"), TMPDIR=str(tmp_path)).parent == tmp_path


def test_warm_runs_every_provider() -> None:
    """No provider is missing when kernels are loaded."""
    assert set(_PARAMETERS) == set(PROVIDERS)
    assert sorted(NAMES) == sorted((*PROVIDERS, MEASURES_NAME))
    warm()


def test_only_services_that_shuffle_compile_the_shuffle(monkeypatch: pytest.MonkeyPatch) -> None:
    """LOCALITY, which is compiled next to DSWAP, does not compile it a second time."""
    compiled: list[str] = []
    monkeypatch.setattr("providers.warm.record", lambda name: None)  # since some kernels are left out
    for name in ("LOCALITY", "DSWAP"):
        monkeypatch.setattr("providers.warm._warm_swaps_out_of_core", lambda name=name: compiled.append(name))
        warm([name])
    assert compiled == ["DSWAP"]


AFTER_WARM = """
import importlib, math, pkgutil

import numba
import numpy as np
import pyarrow as pa
import providers
from providers.neighbours import kdtree
from providers.kernel_progress import is_compiled, kernels_of
from providers.warm import warm
from tests.naive.agreement import swap
from tests.property.out_of_core import swap_out_of_core
from tests.property.tables import KINDS, NESTED, NUMERIC, array

modules = [
    importlib.import_module(found.name) for found in pkgutil.walk_packages(providers.__path__, "providers.")
]

def compiled():
    return {
        (module.__name__, name): set(kernel.signatures)
        for module in modules
        for name, kernel in vars(module).items()
        if hasattr(kernel, "signatures")
    }

def numbers(rows, kind):
    # nothing beyond what float64 can measure, and some null where `kind` allows one
    values = [value for value in KINDS[kind][1] if not isinstance(value, float) or abs(value) < 1e200]
    random = np.random.default_rng(rows)
    return pa.table({
        kind: array(kind, ([*values, None] * rows)[:rows]),
        "other": random.normal(size=rows), "third": random.integers(0, 9, rows), "label": ["x"] * rows,
        "fourth": random.random(rows),
    })

numba.set_num_threads(1)  # which is all the same to what is compiled
warm()
before = compiled()
missing = [name for name, kernel in kernels_of(providers).items() if not is_compiled(kernel)]
assert not missing, missing  # each kernel that is counted is compiled
for rows, controls in ((40, [*KINDS, "one"]), (9000, ["float64", "string", "one"])):
    pools = {name: [*values, None] * rows for name, (_, values) in KINDS.items()}
    columns = {name: array(name, values[:rows]) for name, values in pools.items()}
    table = pa.table({**columns, "one": [1] * rows})
    for control in set(controls) - set(NESTED):
        fields = [name for name in KINDS if name != control]
        for rate, nulls in ((1.0, "swap"), (0.5, "keep")):
            shared = {"swap_fields": fields[::4], "rate": rate, "nulls": nulls}
            swap("CDSWAP", table, {**shared, "control_field": control})
            swap("DDSWAP", table, {**shared, "control_field": control, "block_size": 4})
    swap("DSWAP", table, {"swap_fields": list(KINDS)})
    swap("DSWAP", table, {"swap_fields": list(KINDS), "locked": True})
    at_risk = {"swap_fields": ["int8", "string"], "rate": 0.4, "risk": {"key_fields": ["date32"], "k": 0}}
    swap("DSWAP", table, at_risk)
    swap("CDSWAP", table, {**at_risk, "control_field": "int64"})
    swap("DDSWAP", table, {**at_risk, "control_field": "float64", "block_size": 4})
    homes = table.append_column("home", pa.array([row // 2 for row in range(rows)]))
    for change in ({"rate": 0.5}, {"mechanism": "permutation", "rate": 0.5}, at_risk):
        at_home = {**change, "swap_fields": ["int8", "string"], "household": "home", "nulls": "keep"}
        swap("DSWAP", homes, at_home)
        swap("CDSWAP", homes, {**at_home, "control_field": "int64"})
        swap("DDSWAP", homes, {**at_home, "control_field": "float64", "block_size": 4})
    swap("DSWAP", homes, {"swap_fields": ["int8", "string"], "household_check": "home"})
    for name in ("int8", "int64", "string", "large_string", "date32", "bool"):
        area = table.column(name).fill_null(table.column(name).drop_null()[0])
        moved = pa.table({"area": area, "like": area, "age": range(rows)})
        for similar in ([], [["like"]], [["age"], ["like", "age"]]):
            chosen = {"hierarchy": ["area"], "risk_fields": ["age"], "swap_rate": 0.3}
            swap("RSWAP", moved, {**chosen, "similar": similar})
    for name in NUMERIC:
        for fields in ([name], [name, "other"], [name, "other", "third"]):
            degree = 30 if len(fields) > 1 else 2  # of a few values, however many cells are tried
            for cut in (
                {"bins": 7}, {"degree": degree, "others": "univariate"}, {"width": 0.1, "scale": "sd"}
            ):
                swap("MEWS", numbers(rows, name), {"swap_fields": fields, "nulls": "keep", **cut})
        for how in ({"k": 3}, {"degree": 5, "method": "mdav", "others": "univariate"}):
            for fields in ([name], [name, "other", "third"]):
                swap("MEDS", numbers(rows, name), {"swap_fields": fields, "nulls": "keep", **how})
    numeric = [name for name in NUMERIC if name not in ("float64", "decimal128")]
    swap("PABIDOT", table, {"fields": numeric, "nulls": "drop_from_fit"})
    whole = pa.table({"a": range(rows), "b": [float(row % 7) for row in range(rows)], "t": ["x"] * rows})
    swap("PABIDOT", whole, {"sigma": 0, "selection": "definition"})
    swap("PABIDOT", whole, {"shuffle": False})
    finite = {name: [x for x in pool if x not in (math.inf, -math.inf)] for name, pool in pools.items()}
    table = pa.table({name: array(name, (values * 2)[:rows]) for name, values in finite.items()})
    near = [name for name in KINDS if name not in NESTED]
    for changes in ({"epsilon": 0.5, "q": 0.5}, {"k": 80, "neighbours": "sample", "sample_size": rows // 2}):
        swap("RWN", table, {"distance_fields": near, **changes})
        swap("RWN", table, {"distance_fields": ["int64"], "perturb_fields": ["string"], **changes})
    swap("RWN", table, {"distance_fields": near, "neighbours": "own_sample", "sample_size": rows // 3})
    for size in (2, rows // 3, rows - 2):
        swap("RWN", table, {"distance_fields": near, "neighbours": "pairs", "sample_size": size})
small, kdtree._SMALL_TABLE = kdtree._SMALL_TABLE, 4096
swap("RWN", numbers(9000, "int64"), {"distance_fields": ["int64", "other"], "q": 0.5})
kdtree._SMALL_TABLE = small
outside = pa.table({
    "a": np.random.default_rng(1).normal(size=20_000), "c": np.arange(20_000) % 5,
    "i": pa.array(np.arange(20_000), mask=np.arange(20_000) % 9 == 0),
})
for service, parameters in (
    ("DSWAP", {"swap_fields": ["a", "i"]}),
    ("CDSWAP", {"swap_fields": ["a", "i"], "control_field": "c"}),
    ("DDSWAP", {"swap_fields": ["i"], "control_field": "a", "block_size": 10}),
    ("MEWS", {"swap_fields": ["a", "i"], "width": 0.3, "scale": "sd", "nulls": "keep"}),
    ("PABIDOT", {"fields": ["a", "c"]}),
    ("LOCALITY", {"fields": ["a"], "segment_size": 50, "iterations": 1}),
    ("RWN", {"q": 0.5}),
    ("RWN", {"k": 80, "neighbours": "sample", "sample_size": 9000, "perturb_fields": ["i"]}),
):
    swap_out_of_core(service, outside, parameters, 1_500_000, 5000)
large = {"categorical_fields": ["c"], "epsilon": 0.4, "categorical_weight": 0.1}
swap_out_of_core("RWN", outside.slice(0, 4000), large, 400_000, 1000)
few = [name for name in KINDS if name in ("int8", "int64", "uint64", "date32", "decimal32", "decimal64")]
floats = pa.table({"f": array("float64", [0.5, None, 2.0, 3.5, 3.5, 9.0, 10.0] * 9), "i": range(63)})
for law in ("rounded", "hit_and_run", "paper"):
    for change in (
        {"bounds": "column", "sigma": 1, "start": "data"},
        {"bounds": "keep", "decimals": 1},
        {"relations": [{"rows": {"0": 1}, "at_most": 1e30, "field": "f"}], "selection": "nearest"},
        {"ties": "equal", "margin": 0.5, "iterations": {"total": 9}},
        {"ties": "one_sided", "duplicates": "spread", "decimals": 0},
    ):
        parameters = {"walk": law, **change}
        swap("LOCALITY", floats, {"fields": ["f", "i"], **parameters})
        if "decimals" not in change and "relations" not in change:  # float64 cannot distinguish some
            swap("LOCALITY", table.slice(0, 40), {"fields": few, **parameters})
new = {name: found - before[name] for name, found in compiled().items() if found - before[name]}
assert not new, new
"""


@pytest.mark.slow
def test_nothing_is_compiled_after_warm() -> None:
    """Kernels for all types of a job are loaded."""
    run = subprocess.run(
        [sys.executable, "-c", AFTER_WARM], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]


@pytest.mark.parametrize("error", [ParameterError("what", "/parameters/rate"), UnswappableError("3 rows")])
def test_errors_survive_pickling(error: ParameterError | UnswappableError) -> None:
    """A worker's error arrives unchanged."""
    import pickle

    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (type(again), again.message, again.pointer, str(again)) == (
        type(error),
        error.message,
        error.pointer,
        str(error),
    )


@pytest.mark.slow
def test_the_wheel_has_what_is_read_at_run_time(tmp_path: Path) -> None:
    """The page's templates and style, the console, the help, and the migrations, in addition to the code."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
    for name in ("report.html.j2", "parts.html.j2", "report.css"):
        assert f"app/report/templates/{name}" in names
    for path in (ROOT / "app" / "console").rglob("*.*"):
        assert path.relative_to(ROOT).as_posix() in names
    for path in (ROOT / "docs").rglob("*.*"):
        assert f"app/{path.relative_to(ROOT).as_posix()}" in names
    for name in ("page.html.j2", "help.css", "search.js", "navigation.json"):
        assert f"app/help/{name}" in names
    for name in ("app/migrations/env.py", "app/api/pages/swagger.js", "rowveil_client/__init__.py"):
        assert name in names


@pytest.mark.slow
def test_a_worker_loads_nothing_that_talks_to_a_database() -> None:
    """It needs no database, and would start a second later."""
    said = "import sys, app.worker.run_ingest, app.worker.run_job; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", said], cwd=ROOT, check=False).returncode == 0
