"""Names on the pages exist: files, tests, operations, commands with their options, and services."""

import contextlib
import io
import re
from collections.abc import Iterator
from functools import cache

import orjson

from app.__main__ import main
from providers import PROVIDERS
from tests.docs.blocks import ELSEWHERE, PAGES, ROOT

_TOP = (
    "app|benchmarks|clients|demo|deploy|docs|examples|migrations|openapi|providers|rowveil_client|tests|tools|"
    "website"
)
_PLACE = rf"`((?:{_TOP})/[\w./-]+)`"
_INVENTED = {"docs/examples/RANKSWAP.toml"}
"""Files that a reader makes."""


@cache
def _pages() -> dict[str, str]:
    """Return the text of each page that is written by hand, by its path."""
    paths = [*sorted(PAGES.glob("*.md")), *(ROOT / name for name in (*ELSEWHERE, "SECURITY.md"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def _found(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield page and first group of each place where the pattern is found."""
    for page, text in _pages().items():
        yield from ((page, found[1]) for found in re.finditer(pattern, text))


def test_files_exist() -> None:
    named = [(page, place) for page, place in _found(_PLACE) if place not in _INVENTED]
    assert [each for each in named if not (ROOT / each[1]).exists()] == []


def test_tests_exist() -> None:
    modules = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}
    source = "".join(path.read_text(encoding="utf-8") for path in modules.values())
    functions = set(re.findall(r"^ *(?:async )?def (test_\w+)", source, re.MULTILINE))
    known = modules.keys() | functions
    assert [each for each in _found(r"`(test_\w+(?:\.py)?)`") if each[1] not in known] == []


def test_operations_exist() -> None:
    document = orjson.loads((ROOT / "openapi/openapi.json").read_bytes())
    known = {
        re.compile(f"{method.upper()} " + re.sub(r"\{\w+\}", r"[^/ ]+", path))
        for path, methods in document["paths"].items()
        for method in methods
    } | {re.compile("GET /openapi.json"), re.compile(r"POST /v1/services/\{identifier\}")}
    named = _found(r"`((?:GET|POST|PUT|PATCH|DELETE) /[^`? ]*)")
    assert [each for each in named if not any(one.fullmatch(each[1]) for one in known)] == []


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([\w-]+(?: [\w-]+)*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    known = {name for several in targets for name in several.split()}
    assert [each for each in _found(r"`make ([\w-]+)") if each[1] not in known] == []


def _options(*command: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main([*command, "--help"])
    return out.getvalue()


def test_commands_and_their_options_exist() -> None:
    known = set(re.findall(r"^    ([a-z][\w-]*)", _options(), re.MULTILINE))
    assert [each for each in _found(r"`rowveil ([a-z][\w-]*)") if each[1] not in known] == []
    page = _pages()["docs/command_line.md"]
    options = {name for name in re.findall(r"(?<![\w-])--[a-z][\w-]*", page) if name != "--help"}
    texts = [_options("run", "CDSWAP"), _options("run", "DSWAP"), _options("plan", "x", "DSWAP")]
    texts += [_options(name) for name in ("measures", "frontier", "attack", "verify")]
    assert options <= set(re.findall(r"--[a-z][\w-]*", "".join(texts)))


def test_pages_about_all_services_name_each() -> None:
    for page in ("README.md", "docs/choosing-a-method.md", "docs/from-optim.md"):
        named = set(re.findall(r"services/(\w+)\.md", _pages()[page]))
        assert PROVIDERS.keys() - named == set(), page


def test_the_overview_leads_to_every_page() -> None:
    linked = set(re.findall(r"\((\S+\.md)[)#]", _pages()["docs/index.md"]))
    assert {path.name for path in PAGES.glob("*.md")} - linked == {"index.md"}


def test_the_page_on_sdcmicro_names_the_household_risk() -> None:
    """It said that the hierarchical risk has no counterpart, which `population_uniques` has."""
    lines = _pages()["docs/from-sdcmicro.md"].splitlines()
    (row,) = (line for line in lines if line.startswith("| `indivRisk`"))
    assert "`household_risk`" in row
    assert row.index("`modRisk` has no counterpart") > row.index("`household_risk`")
