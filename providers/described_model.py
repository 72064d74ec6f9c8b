"""Base model whose fields are described by the docstrings below them.

pydantic's `use_attribute_docstrings` reads the source of each class when the class is made. For all models of
the service that takes 0.17 s of its start. Descriptions are needed in JSON schemas alone, so that this base
class reads them when a schema is made.
"""

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class DescribedModel(BaseModel):
    """A model whose JSON schema has the docstring below each field as its description.

    A description that is given to `Field` takes precedence. A field that a subclass declares again has no
    description but its own.
    """

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        shown = handler.resolve_ref_schema(schema).get("properties", {})
        for name, description in field_descriptions(cls).items():
            alias = cls.model_fields[name].alias or name
            if alias in shown:
                shown[alias]["description"] = description
        return schema


def field_descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return field name -> its description, of the fields that have one."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            declared = inspect.get_annotations(base)
            found = {name: text for name, text in found.items() if name not in declared}
            found |= _docstrings(base.__module__).get(base.__qualname__, {})
    given = {name: field.description for name, field in model.model_fields.items()}
    found |= {name: text for name, text in given.items() if text is not None}
    return {name: text for name, text in found.items() if name in given}


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return qualified class name -> annotated name -> its docstring; empty if the module has no source."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):
        return {}
    classes: dict[str, dict[str, str]] = {}
    _collect(ast.parse(source), "", classes)
    return classes


def _collect(node: ast.AST, prefix: str, classes: dict[str, dict[str, str]]) -> None:
    """Add the docstrings of the classes within a node, whose qualified names begin with a prefix."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            classes[prefix + child.name] = _fields_of(child)
            _collect(child, f"{prefix}{child.name}.", classes)
        elif isinstance(child, ast.FunctionDef):
            _collect(child, f"{prefix}{child.name}.<locals>.", classes)


def _fields_of(node: ast.ClassDef) -> dict[str, str]:
    """Return annotated name -> the docstring that follows it."""
    found: dict[str, str] = {}
    for statement, following in pairwise(node.body):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                found[name] = inspect.cleandoc(text)
    return found
