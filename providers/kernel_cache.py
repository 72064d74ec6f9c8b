"""Content-addressed numba cache.

numba's own locators read only the path and the modification time of a kernel's file. A compiled kernel
also contains the functions that it calls in other files, and the modification times of a checkout carry no
information. Here the state of a kernel is a hash of its own definition and of all definitions of this
package that it names, directly or indirectly: functions, constants, classes, decorators. Comments,
docstrings and line numbers do not count. So an edit recompiles exactly the kernels that it can change, and
checkouts with the same definitions share compiled kernels, whatever their paths.

`providers` registers `SourceState` with numba before numba is imported. numba imports this module when it
reads the first kernel's decorator, which is early enough to install `providers.kernel_linking`.
"""

import ast
import contextlib
import errno
import functools
import hashlib
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from numba.core import config
from numba.core.caching import Cache, _CacheLocator

from providers import kernel_compiler, kernel_linking
from providers.compiled_services import state_of_texts

kernel_linking.install()
kernel_compiler.install()

_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextlib.contextmanager
def _unless_refused(_: Cache) -> Iterator[None]:
    """Go on without the cache where the system refuses access to it, as in a confined worker."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSED:
            raise


Cache._guard_against_spurious_io_errors = _unless_refused

PACKAGE = Path(__file__).parent

Definition = tuple[str, str]
"""Module, without the package's name, and a name that a statement of the module binds."""

_WHOLE = "*"
"""Name that stands for all definitions of a module."""

_UNNAMED = ""
"""Name of the statements of a module that bind no name, such as calls."""

_COMPILING = ("kernel_compiler", "kernel_linking")
"""Modules that determine the machine code of all kernels, so that all of them depend on them."""


class SourceState(_CacheLocator):  # type: ignore[misc]  # numba has no types
    """Cache locator for the kernels of this package; numba's own locators serve all other files."""

    def __init__(self, function: Callable[..., Any], source: Path) -> None:
        self._module = module_of(source)
        self._py_file = str(source)  # for the warning about a kernel that cannot be cached
        name = function.__qualname__.partition(".")[0]
        self._state = states().get(f"{self._module}:{name}") or state_of_package()

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Self | None:
        """Return the locator; None if the function is not of this package or no cache folder is set."""
        source = Path(py_file).resolve()
        if not config.CACHE_DIR or PACKAGE.resolve() not in source.parents:
            return None
        return cls(py_func, source)

    def get_cache_path(self) -> str:
        """Return the folder for the module's kernels, in all their states."""
        return str(Path(config.CACHE_DIR) / self._module)

    def get_source_stamp(self) -> str:
        """Return the state; numba does not use kernels that were compiled in another one."""
        return self._state

    def get_disambiguator(self) -> str:
        """Return the state, which becomes part of the names of the kernel's files."""
        return self._state


def module_of(source: Path) -> str:
    """Return the dotted name of a file of this package, without the package's own name."""
    parts = source.resolve().relative_to(PACKAGE.resolve()).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def state_of_package() -> str:
    """Return a hash of the texts of all modules of this package."""
    return state_of_texts(PACKAGE)


@functools.cache
def states() -> Mapping[str, str]:
    """Return the state of each decorated function of this package's modules, by ``module:name``.

    The cache folder keeps them for the package's text, because parsing the package takes a second.
    """
    version = f"{sys.implementation.cache_tag}-{state_of_package()}"
    kept = Path(config.CACHE_DIR or tempfile.gettempdir()) / f"states-{version}.json"
    with contextlib.suppress(OSError, ValueError):
        if config.CACHE_DIR:
            found: dict[str, str] = json.loads(kept.read_bytes())
            return found
    found = computed_states()
    if config.CACHE_DIR:
        with contextlib.suppress(OSError):  # a folder that cannot be written to only costs the time again
            _write(kept, json.dumps(found))
    return found


def computed_states() -> dict[str, str]:
    """Return the state of each decorated function of the modules that use numba, read from their files."""
    package = Definitions({module_of(file): file for file in PACKAGE.rglob("*.py")})
    return {
        f"{module}:{name}": package.state((module, name))
        for module, file in package.files.items()
        if "numba" in (text := file.read_text()) or "decorators" in text
        for name in package.parsed(module).decorated
    }


def _write(file: Path, text: str) -> None:
    """Write a file so that other processes see all of it or nothing."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=file.parent, prefix=".states-")
    try:
        with os.fdopen(handle, "w") as written:
            written.write(text)
        Path(draft).replace(file)
    except OSError:
        Path(draft).unlink(missing_ok=True)
        raise


@dataclass(slots=True)
class _Statements:
    """The statements of a module that bind one name."""

    text: bytes = b""
    """Hashes of their syntax trees, without docstrings and places."""
    names: set[tuple[str, str]] = field(default_factory=set)
    """Names that they use, each with the attribute that they take of it, or an empty text."""
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Imports inside them: local name -> module, with the package's name, and name there."""


@dataclass(slots=True)
class _Module:
    """A parsed module."""

    statements: dict[str, _Statements]
    imports: dict[str, tuple[str, str]]
    """Local name -> module, with the package's name, and name there, `*` for the whole module."""
    decorated: list[str]
    """Names of functions with a decorator."""


class Definitions:
    """All modules, and the definitions that a definition depends on."""

    def __init__(self, files: dict[str, Path]) -> None:
        self.files = files
        self._parsed: dict[str, _Module] = {}
        self._uses: dict[Definition, frozenset[Definition]] = {}

    def parsed(self, module: str) -> _Module:
        """Return a module's statements."""
        if module not in self._parsed:
            self._parsed[module] = _parse(self.files[module].read_bytes())
        return self._parsed[module]

    def with_used(self, definition: Definition) -> set[Definition]:
        """Return a definition, all that it uses, directly or indirectly, and the way kernels are linked."""
        waiting = [definition, *((each, _WHOLE) for each in _COMPILING if each in self.files)]
        found = set(waiting)
        while waiting:
            new = self._used_by(waiting.pop()) - found
            found |= new
            waiting.extend(new)
        return found

    def state(self, definition: Definition) -> str:
        """Return a hash of a definition and of all that it uses."""
        state = hashlib.blake2b(digest_size=16)
        for module, name in sorted(self.with_used(definition)):
            statements = self.parsed(module).statements.get(name)
            state.update(f"{module}\0{name}\0".encode() + (statements.text if statements else b""))
        return state.hexdigest()

    def _used_by(self, definition: Definition) -> frozenset[Definition]:
        if definition not in self._uses:
            self._uses[definition] = frozenset(self._find_uses(*definition))
        return self._uses[definition]

    def _find_uses(self, module: str, name: str) -> Iterator[Definition]:
        parsed = self.parsed(module)
        if name == _WHOLE:
            yield from ((module, each) for each in parsed.statements)
            return
        yield module, _UNNAMED
        statements = parsed.statements.get(name)
        if statements is None:
            return
        for used, attribute in statements.names:
            if used in parsed.statements:
                yield module, used
            for imports in (statements.imports, parsed.imports):
                if used in imports:
                    yield from self._imported(*imports[used], attribute)

    def _imported(self, source: str, name: str, attribute: str) -> Iterator[Definition]:
        """Yield the definition that an import names, followed through the modules that import it, too."""
        package, _, module = source.partition(".")
        if package != PACKAGE.name:
            return
        inner = f"{module}.{name}" if module else name
        if name != _WHOLE and inner in self.files:
            module, name = inner, _WHOLE
        if module not in self.files:
            return
        parsed = self.parsed(module)
        if name == _WHOLE and attribute and (attribute in parsed.statements or attribute in parsed.imports):
            name = attribute
        if name in parsed.imports and name not in parsed.statements:
            yield from self._imported(*parsed.imports[name], "")
        else:
            yield module, name


def _parse(text: bytes) -> _Module:
    """Parse a module."""
    statements: dict[str, _Statements] = defaultdict(_Statements)
    module = _Module(statements, {}, [])
    for statement in _without_texts(ast.parse(text).body):
        found = _Statements()
        assigned = _read(statement, found)
        found.text = hashlib.blake2b(ast.dump(statement).encode(), digest_size=16).digest()
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            module.imports |= found.imports
            continue
        if isinstance(statement, ast.FunctionDef) and statement.decorator_list:
            module.decorated.append(statement.name)
        scope = statement if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) else None
        for name in [scope.name] if scope else assigned or [_UNNAMED]:
            statements[name].text += found.text
            statements[name].names |= found.names
            statements[name].imports |= found.imports
        if not scope:  # such as imports under `if TYPE_CHECKING`
            module.imports |= found.imports
    return module


def _read(statement: ast.stmt, found: _Statements) -> set[str]:
    """Add the names and imports of a statement, remove its docstrings, and return the names it assigns to."""
    assigned = set()
    bases = set()
    for node in ast.walk(statement):
        match node:
            case ast.Attribute(value=ast.Name(id=name) as base, attr=attribute):
                bases.add(base)
                found.names.add((name, attribute))
            case ast.Name(id=name, ctx=ast.Store()):
                assigned.add(name)
            case ast.Name(id=name) if node not in bases:
                found.names.add((name, ""))
            case ast.Constant(value=str(name)) if name.isidentifier():  # a quoted annotation
                found.names.add((name, ""))
            case ast.ImportFrom(module=source, names=names):
                found.imports |= {each.asname or each.name: (source or "", each.name) for each in names}
            case ast.Import(names=names):
                for each in names:
                    found.imports[each.asname or each.name.partition(".")[0]] = (each.name, _WHOLE)
            case ast.FunctionDef() | ast.ClassDef():
                node.body = _without_texts(node.body)
    return assigned


def _without_texts(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements without docstrings."""
    return [
        each
        for each in body
        if not (
            isinstance(each, ast.Expr)
            and isinstance(each.value, ast.Constant)
            and isinstance(each.value.value, str)
        )
    ]
