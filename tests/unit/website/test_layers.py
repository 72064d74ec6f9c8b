"""The picture of the layers shows the real imports."""

from pathlib import Path

import grimp
import pytest

from website.layers import layers, layers_picture, module_imports


def test_the_imports_are_those_that_import_linter_sees() -> None:
    """grimp, which import-linter uses, finds the same imports."""
    graph = grimp.build_graph("app", "providers")
    imports = module_imports()
    assert imports == {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def test_every_arrow_leads_down() -> None:
    """A box is above all that it imports, and every box but those of the lowest floor has an arrow."""
    graph = layers()
    floors = {name: number for number, floor in enumerate(graph.floors) for name in floor}
    assert all(floors[source] < floors[target] for source, target in graph.arrows)
    assert {name for arrow in graph.arrows for name in arrow} == floors.keys()


def repository(folder: Path, files: dict[str, str]) -> Path:
    for name, text in {"app/__init__.py": "", "providers/__init__.py": "", **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_arrows_that_follow_from_others_are_left_out(tmp_path: Path) -> None:
    """The API imports the store directly and through the jobs: only the longer way is drawn."""
    root = repository(
        tmp_path,
        {
            "app/api/routes.py": "import app.jobs.service\nfrom app.store.sql import jobs\n",
            "app/jobs/service.py": "def run():\n    from app.store.sql.jobs import claim\n",
            "app/store/sql/jobs.py": "import providers.errors\n",
            "providers/errors.py": "",
        },
    )
    assert {arrow for arrow in layers(root).arrows if arrow[0].startswith("app.")} == {
        ("app.api", "app.jobs"),
        ("app.jobs", "app.store.sql"),
        ("app.store.sql", "providers: __init__, errors"),
    }
    assert layers_picture(root).count("<rect class=") == 6  # the ground, and five boxes


def test_a_circle_of_folders_is_refused(tmp_path: Path) -> None:
    """It has no floors."""
    root = repository(
        tmp_path, {"app/api/a.py": "import app.jobs.b\n", "app/jobs/b.py": "from app.api import a\n"}
    )
    with pytest.raises(ValueError, match=r"app\.api -> app\.jobs -> app\.api"):
        layers(root)
