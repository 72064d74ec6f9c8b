"""Decorator of kernels, and faster replacements of parts of numba's compiler.

numba is written in Python, and compiling a kernel is for the most part Python. `install` replaces parts that
take long and that kernels do not need (decision 0045). `providers.kernel_cache` calls it before the first
kernel is compiled. The code of kernels stays the same, except for the message of one error.
"""

from collections.abc import Callable
from typing import Any

import numba
from numba.core import dispatcher, event, ir, targetconfig, types
from numba.core.typing import templates
from numba.extending import overload
from numba.np import arrayobj

from providers.kernel_linking import NUMBA


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return numba's decorator. Kernels have no wrapper for C, which nothing calls."""
    decorator: Callable[[Callable[..., Any]], Any] = numba.njit(**{"no_cfunc_wrapper": True} | options)
    return decorator


def install() -> bool:
    """Replace the parts from now on; return whether this is a numba that they fit."""
    if not numba.__version__.startswith(NUMBA):
        return False
    event.start_event, event.end_event = _start_event, _end_event
    templates._OverloadFunctionTemplate._get_impl = _implementation
    ir.Inst._rec_list_vars = _variables
    dispatcher._DispatcherBase.get_call_template = _call_template
    arrayobj.raise_with_shape_context = _refuse_shapes
    return True


_original_start, _original_end = event.start_event, event.end_event
_numbas_implementation = templates._OverloadFunctionTemplate._get_impl
_numbas_variables = ir.Inst._rec_list_vars
_numbas_call_template = dispatcher._DispatcherBase.get_call_template


def _start_event(kind: str, data: Any = None) -> None:
    """Broadcast the start of an event, if anything listens: numba's lock alone has thousands."""
    if event._registered[kind]:
        _original_start(kind, data)


def _end_event(kind: str, data: Any = None, exc_details: Any = None) -> None:
    """Broadcast the end of an event, if anything listens."""
    if event._registered[kind]:
        _original_end(kind, data, exc_details)


def _implementation(template: Any, arguments: Any, keywords: dict[str, Any]) -> Any:
    """Return the implementation of an overloaded function, such as `np.empty`, for types of arguments.

    numba compiles one for each set of the callers' options. Here callers share one, if those options
    are equal that an implementation inherits (`numba.core.cpu.CPUTargetOptions.finalize`).
    """
    flags = targetconfig.ConfigStack.top_or_none()
    inherited = flags and (flags.nrt, flags.error_model, flags.forceinline, str(flags.fastmath))
    key = template.context, tuple(arguments), tuple(keywords.items()), inherited
    found = template._impl_cache.get(key)
    return found if found is not None else template._build_impl(key, arguments, keywords)


def _call_template(function: Any, arguments: Any, keywords: dict[str, Any]) -> Any:
    """Return the template of a call whose integers are of one type, and of which no values are known.

    numba compiles a function again for each constant that a caller gives, such as a field's number, and for
    rows of 32 and of 64 bits. Here one serves all: calculations have 64 bits in any case, and LLVM knows
    the constant and the range where it inlines the function.
    """
    return _numbas_call_template(
        function,
        tuple(_common_type(each) for each in arguments),
        {name: _common_type(kind) for name, kind in keywords.items()},
    )


def _common_type(kind: Any) -> Any:
    if isinstance(kind, types.BooleanLiteral):
        return types.boolean
    if isinstance(kind, types.IntegerLiteral):
        kind = kind.literal_type
    return types.int64 if isinstance(kind, types.Integer) and kind.signed else kind


def _variables(instruction: Any, value: Any) -> list[Any]:
    """Return the variables of a value that belongs to an instruction. Most values are places without any."""
    kind = value.__class__
    if kind is ir.Var:
        return [value]
    if kind in _WITHOUT_VARIABLES:
        return []
    if isinstance(value, ir.Inst):
        found: list[Any] = value.list_vars()
        return found
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return [value] if isinstance(value, ir.Var) else []
    return [each for inner in value for each in _variables(instruction, inner)]


_WITHOUT_VARIABLES = frozenset({ir.Loc, str, int, bool, float, type(None)})


def _refuse_shapes(source: Any, target: Any) -> None:
    """Raise the error of an assignment to a slice of another shape."""


@overload(_refuse_shapes)  # type: ignore[untyped-decorator]  # numba's carry no types
def _refusal(source: Any, target: Any) -> Callable[[Any, Any], None]:
    """Raise it without the shapes: to print them, each kernel had numba's functions for text linked."""

    def refuse(source: Any, target: Any) -> None:
        raise ValueError("cannot assign an array to a slice of another shape")

    return refuse
