"""Statements that every call runs, without SQLAlchemy's execution.

SQLAlchemy takes four times as long as SQLite for a statement on one row. Here a statement is compiled once,
with the functions that make the driver's values of Python's and Python's of the driver's. Statements for
PostgreSQL have numbered parameters, as `Statements.run` of its connections needs them.
"""

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

_Convert = Callable[[Any], Any] | None

_Driver = Any
"""Connection of the driver: a `sqlite3.Connection` or a `ServerConnection`."""

_DRIVER = "rowveil_driver"
"""Key of `Session.info`."""

_MISSING = object()
"""Stands for the value of a parameter that each execution must give."""


class QuickStatement:
    """A statement with parameters by name, for connections of the driver."""

    def __init__(
        self, statement: sa.Executable, dialect: sa.Dialect, names: Iterable[str] | None = None
    ) -> None:
        """Compile a query, or a statement that sets the columns ``names``.

        It may not have a parameter for a list, which SQLAlchemy expands at each execution.
        """
        assert isinstance(statement, sa.ClauseElement)
        self._on_server = dialect.name != "sqlite"
        kind: Any = type(dialect)
        numbering = kind(paramstyle="numeric_dollar") if self._on_server else dialect
        compiled = statement.compile(dialect=numbering, column_keys=None if names is None else list(names))
        assert isinstance(compiled, sa.sql.compiler.SQLCompiler)
        assert not compiled.literal_execute_params | compiled.post_compile_params
        assert compiled.positional
        self.statement = statement
        self.text = str(compiled)
        """SQL of the statement."""
        self._bytes = self.text.encode()
        self._dialect = dialect
        self._parameters = [self._parameter(compiled, name) for name in compiled.positiontup or ()]
        columns = list(getattr(statement, "exported_columns", ()))
        self._row: Any = namedtuple("Row", [_key(column) for column in columns], rename=True)  # type: ignore[misc]
        self._columns: list[_Convert] = [
            column.type.dialect_impl(dialect).result_processor(dialect, None) for column in columns
        ]

    def _parameter(self, compiled: sa.sql.compiler.SQLCompiler, name: str) -> tuple[str, Any, _Convert]:
        bind = compiled.binds[name]
        convert = bind.type.dialect_impl(self._dialect).bind_processor(self._dialect)
        return name, _MISSING if bind.required else bind.effective_value, convert

    def run(self, connection: _Driver, given: Mapping[str, Any]) -> tuple[list[Any], int]:
        """Return the rows, and the number of rows that were changed.

        Raises the driver's error; KeyError if a parameter is missing.
        """
        values: list[Any] = []
        for name, default, convert in self._parameters:
            value = given.get(name, default)
            if value is _MISSING:
                raise KeyError(name)
            values.append(value if convert is None else convert(value))
        if self._on_server:
            rows, count = connection.statements.run(self._bytes, values)
        else:
            cursor = connection.execute(self.text, values)
            rows, count = cursor.fetchall(), cursor.rowcount
        if not self._columns:
            return [], count
        found = [
            self._row._make(
                [
                    value if convert is None else convert(value)
                    for value, convert in zip(row, self._columns, strict=True)
                ]
            )
            for row in rows
        ]
        return found, count

    def translated(self, error: Exception) -> Exception:
        """Return an error of the driver as SQLAlchemy raises it, without the parameters."""
        made: Exception = sa.exc.DBAPIError.instance(
            self.text, None, error, errors_of(self._dialect), dialect=self._dialect
        )
        return made


def errors_of(dialect: sa.Dialect) -> type[Exception]:
    """Return the base class of the driver's errors."""
    found: type[Exception] = dialect.loaded_dbapi.Error
    return found


def _key(column: Any) -> str:
    return column.key or "_"


_compiled: dict[tuple[int, str, frozenset[str]], QuickStatement] = {}


def quick_statement(
    statement: sa.Executable, dialect: sa.Dialect, given: Mapping[str, Any]
) -> QuickStatement:
    """Return a statement that is built once, compiled for parameters of these names."""
    key = id(statement), dialect.name, frozenset(given)
    quick = _compiled.get(key)
    if quick is None:  # which holds the statement, so that its id stays its own
        set_columns = given if isinstance(statement, sa.UpdateBase) else None
        quick = _compiled[key] = QuickStatement(statement, dialect, set_columns)
    return quick


def give_driver(session: Session, connection: sa.Connection) -> None:
    """Let `execute` use the driver's connection of a session, whose transaction has begun."""
    session.info[_DRIVER] = connection.connection.driver_connection


def execute(session: Session, statement: sa.Executable, given: Mapping[str, Any]) -> tuple[list[Any], int]:
    """Execute a statement that is built once, in the session's transaction.

    Return its rows, and the number of rows that were changed. Changes of objects are not flushed before it.
    Raises sqlalchemy.exc.DBAPIError.
    """
    driver = session.info.get(_DRIVER)
    if driver is None:
        result = session.connection().execute(statement, dict(given))
        assert isinstance(result, sa.CursorResult)
        return (list(result) if result.returns_rows else []), result.rowcount
    dialect = session.get_bind().dialect
    quick = quick_statement(statement, dialect, given)
    try:
        return quick.run(driver, given)
    except errors_of(dialect) as error:
        raise quick.translated(error) from error
