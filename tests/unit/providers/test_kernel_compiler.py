"""Replaced parts of numba's compiler do what numba's own do, as far as kernels can see."""

import hashlib
import inspect
from typing import Any

import numba
import numpy as np
import pytest
from numba.core import event, ir
from numba.core.cpu import CPUTargetOptions
from numba.core.typing import templates
from numba.np import arrayobj

import providers.kernel_cache  # noqa: F401 - it replaces the parts
from providers import kernel_compiler
from providers.kernel_compiler import njit


def test_a_kernel_has_no_wrapper_for_c_unless_it_is_wanted() -> None:
    def double(number: int) -> int:
        return 2 * number

    without, wanted = njit()(double), njit(no_cfunc_wrapper=False)(double)
    assert without(4) == wanted(4) == 8
    for kernel, has_wrapper in ((without, False), (wanted, True)):
        (overload,) = kernel.overloads.values()
        names = [function.name for function in overload.library.get_defined_functions()]
        assert any(name.startswith("cfunc.") for name in names) == has_wrapper


def test_an_array_of_another_shape_is_refused() -> None:
    """Without the shapes, whose text would be compiled into each kernel."""

    @njit()
    def assign(target: Any, source: Any) -> None:
        target[:] = source

    target = np.zeros(3)
    assign(target, np.arange(3.0))
    np.testing.assert_array_equal(target, [0.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="cannot assign an array to a slice of another shape"):
        assign(target, np.arange(4.0))


def test_callers_with_other_options_share_an_implementation_unless_it_inherits_them() -> None:
    """An implementation inherits the model of errors: division by zero raises in one caller alone."""

    def remainders(numbers: Any) -> Any:
        return np.floor_divide(numbers[0], numbers[1]), np.empty(len(numbers), np.int16)

    numbers = np.array([1, 0])
    with pytest.raises(ZeroDivisionError):
        njit(nogil=True)(lambda numbers: divmod(numbers[0], numbers[1]))(numbers)
    assert njit(error_model="numpy")(lambda numbers: divmod(numbers[0], numbers[1]))(numbers) == (0, 0)
    shared = [
        templates._OverloadFunctionTemplate._get_impl.__name__,
        *(len(njit(**options)(remainders)(numbers)[1]) for options in ({}, {"nogil": True})),
    ]
    assert shared == ["_implementation", 2, 2]


def test_calls_with_constants_and_narrow_integers_share_one_function() -> None:
    """Unsigned integers and floats stay as they are: calculations with them give other types."""

    @njit()
    def power(base: Any, exponent: Any, negate: Any = False) -> Any:
        return -(base**exponent) if negate else base**exponent

    @njit()
    def powers(numbers: Any) -> Any:
        first = power(numbers[0], 2) + power(7, numbers[1]) + power(numbers[0], exponent=3, negate=True)
        return first, power(np.uint64(3), 2, False), power(0.5, numbers[1], numbers[0] > 0)

    numbers = np.array([-100_000, 2], np.int32)
    assert powers(numbers) == (10**10 + 49 + 10**15, 9, 0.25)
    kinds = {tuple(str(kind) for kind in signature) for signature in power.signatures}
    whole = [("int64", "int64", "omitted(default=False)"), ("int64", "int64", "bool")]
    assert kinds == {*whole, ("uint64", "int64", "bool"), ("float64", "int64", "bool")}


def test_events_reach_their_listeners() -> None:
    class Names(event.Listener):  # type: ignore[misc]  # numba has no types
        def __init__(self) -> None:
            self.seen: list[tuple[bool, str]] = []

        def on_start(self, event: Any) -> None:
            self.seen.append((True, event.kind))

        def on_end(self, event: Any) -> None:
            self.seen.append((False, event.kind))

    listener = Names()
    with event.install_listener("numba:compile", listener):
        njit()(lambda number: number + 1)(1)
    assert listener.seen == [(True, "numba:compile"), (False, "numba:compile")]


def test_variables_of_an_instruction_are_numbas() -> None:
    place = ir.Loc("file", 1)
    scope = ir.Scope(None, place)
    one, two, three = (ir.Var(scope, name, place) for name in ("one", "two", "three"))
    call = ir.Expr.call(one, [two, (three, two)], {"key": one}, place)
    assignment = ir.Assign(call, three, place)
    expected = _numbas_variables(assignment, assignment.__dict__)
    assert [each.name for each in assignment.list_vars()] == [each.name for each in expected]
    assert len(expected) == 6


def _numbas_variables(instruction: Any, value: Any) -> list[Any]:
    """numba's own method, which `kernel_compiler` replaces."""
    if isinstance(value, ir.Var):
        return [value]
    if isinstance(value, ir.Inst):
        return value.list_vars()  # type: ignore[no-any-return]
    if isinstance(value, (list, tuple)):
        return [each for inner in value for each in _numbas_variables(instruction, inner)]
    if isinstance(value, dict):
        return [each for inner in value.values() for each in _numbas_variables(instruction, inner)]
    return []


def test_another_numba_keeps_its_own_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event, "start_event", "numba's own")
    monkeypatch.setattr(numba, "__version__", "0.69.0")
    assert not kernel_compiler.install()
    assert event.start_event == "numba's own"


def test_numba_has_the_parts_that_are_replaced() -> None:
    """They are those of numba 0.68. If not, compare them with `providers.kernel_compiler`."""
    parts = (
        kernel_compiler._original_start,
        kernel_compiler._original_end,
        kernel_compiler._numbas_implementation,
        templates._OverloadFunctionTemplate._build_impl,
        CPUTargetOptions.finalize,
        kernel_compiler._numbas_variables,
        kernel_compiler._numbas_call_template,
        arrayobj.fancy_setslice,
    )
    text = "".join(inspect.getsource(part) for part in parts)
    assert hashlib.blake2b(text.encode(), digest_size=8).hexdigest() == "4a751c1beafbb9d2"
