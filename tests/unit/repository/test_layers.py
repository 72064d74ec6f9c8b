"""The layout that docs/architecture.md promises: folders, floors, and contracts that hold them."""

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp
import pytest

from providers import PROVIDERS

ROOT = Path(__file__).parents[3]
PACKAGES = ("app", "providers", "rowveil_client")
MOST_FILES = 24
MOST_FLOORS = 10
TWIN_FOLDERS = ("swapping", "neighbours")
"""Method families whose out-of-core runs take several files."""

BROKEN = {
    "The command line validates requests by app.requests, never by a route": (
        "app/cli/verify.py",
        "app.api.routes.health",
    ),
    "Measures use what they share, never each other": (
        "providers/measures/risk/pscr.py",
        "providers.measures.risk.dcr",
    ),
    "Inside the measures: assessment takes the measures, which read a comparison": (
        "providers/measures/shared/comparison.py",
        "providers.measures.assessment",
    ),
    "The service uses the algorithms, never the other way, and each layer only those below it": (
        "app/store/blobs/batches.py",
        "app.jobs.service",
    ),
    "Inside the API: routes and pages use what they share, never each other": (
        "app/api/auth/scopes.py",
        "app.api.routes.health",
    ),
    "The algorithms know nothing of HTTP, databases or jobs": ("providers/results.py", "fastapi"),
    "A worker needs no database, no HTTP and none of the service": (
        "app/formats/errors.py",
        "app.store.sql.db",
    ),
    "SQL is only in app.store.sql": ("app/jobs/fairness/limits.py", "sqlalchemy"),
    "Methods use shared machinery, never each other; services put them together": (
        "providers/grouping/groups.py",
        "providers.swapping.swap",
    ),
    "The method families are independent; only binning uses swapping": (
        "providers/rotation/moments.py",
        "providers.neighbours.kdtree",
    ),
}
"""Contract -> a file, and an import that breaks the contract when the file has it."""


def contracts() -> list[str]:
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [contract["name"] for contract in configuration["tool"]["importlinter"]["contracts"]]


def test_every_contract_is_broken_here_once() -> None:
    assert sorted(BROKEN) == sorted(contracts())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what import-linter reads."""
    folder = tmp_path_factory.mktemp("checkout")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.fixture
def restored(checkout: Path, contract: str) -> Iterator[Path]:
    """The copy, in which the file that breaks a contract is restored afterwards."""
    file = checkout / BROKEN[contract][0]
    text = file.read_bytes()
    yield checkout
    file.write_bytes(text)


def lint(checkout: Path) -> subprocess.CompletedProcess[str]:
    """Lint the copy. What the files import is cached there, until a file changes."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports"))],
        cwd=checkout,
        env={"PYTHONPATH": str(checkout), "COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("contract", BROKEN)
def test_a_broken_contract_fails_the_lint(restored: Path, contract: str) -> None:
    """The import is written into the file; the lint fails and names the contract."""
    file, imported = BROKEN[contract]
    with (restored / file).open("a") as source:
        source.write(f"\nimport {imported}\n")
    done = lint(restored)
    assert done.returncode == 1, done.stdout
    assert f"{contract} BROKEN" in " ".join(done.stdout.split())


def test_services_are_files_named_as_in_the_url() -> None:
    files = {path.stem for path in (ROOT / "providers" / "services").glob("*.py")} - {"__init__"}
    assert files == {identifier.lower() for identifier in PROVIDERS}


@pytest.mark.parametrize("package", ["app", "providers"])
def test_no_folder_is_crowded(package: str) -> None:
    for folder in (ROOT / package).rglob("*"):
        if folder.is_dir():
            assert len(list(folder.glob("*.py"))) <= MOST_FILES, folder


@pytest.mark.parametrize("family", TWIN_FOLDERS)
def test_an_out_of_core_twin_has_the_name_of_its_file(family: str) -> None:
    """A name that is in both folders belongs to twins; each family has at least one such pair."""
    folder = ROOT / "providers" / family
    own = {path.stem for path in folder.glob("*.py")}
    twins = {path.stem for path in (folder / "out_of_core").glob("*.py")}
    assert len((own & twins) - {"__init__"}) >= 1


@cache
def imports(package: str) -> dict[str, set[str]]:
    """Module of the package -> modules of the package that it imports."""
    graph = grimp.build_graph(package, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def folder_of(module: str) -> str:
    """Return the folder of a module; a module of the package itself is a floor of its own."""
    is_folder = any(other.startswith(f"{module}.") for other in imports("providers"))
    parent = module.rpartition(".")[0]
    return module if is_folder or parent == "providers" else parent


def floors(arrows: dict[str, set[str]]) -> dict[str, int]:
    """Return the longest chain of arrows below each node, itself included; fail on a circle."""
    found: dict[str, int] = {}

    def floor(node: str, above: tuple[str, ...]) -> int:
        assert node not in above, f"a circle of imports: {' -> '.join((*above, node))}"
        if node not in found:
            below = (floor(other, (*above, node)) for other in arrows.get(node, ()))
            found[node] = 1 + max(below, default=0)
        return found[node]

    for node in arrows:
        floor(node, ())
    return found


@pytest.mark.parametrize("package", ["app", "providers"])
def test_modules_do_not_import_in_a_circle(package: str) -> None:
    floors(imports(package))


def test_folders_of_providers_stand_on_ten_floors_without_a_circle() -> None:
    folders: dict[str, set[str]] = {}
    for module, imported in imports("providers").items():
        below = folders.setdefault(folder_of(module), set())
        below |= {folder_of(other) for other in imported} - {folder_of(module)}
    assert max(floors(folders).values()) <= MOST_FLOORS
