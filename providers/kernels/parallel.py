"""Parallel kernels whose loops are compiled as functions of their own.

`parallel` is the decorator of a kernel with loops over `prange`. numba's own parallel kernels infer the types
of a loop's body twice, rewrite it in a dozen passes, and wrap it twice, which is most of the time that they
take to compile. Here the body of a loop becomes an ordinary function of a range, which numba's threads call
(decision 0045):

    @parallel
    def double(values):                       def double(values):
        for row in prange(len(values)):  ->       run_in_threads(loop, 0, len(values), 1, (values,))
            values[row] *= 2
                                              def loop(start, stop, values):
                                                  for row in range(start, stop):
                                                      values[row] *= 2

The module of a kernel imports numpy as `np`, which loops use to index arrays by unsigned numbers.
Each thread gets one range of consecutive indices, of a length that differs by one at most. Waking a thread
takes some 10 us, so that a loop over rows has the option `least`, the fewest indices for which a thread is
worth it. A loop of one range runs in the calling thread. A loop writes to arrays only: a variable that it
assigns is its own in each iteration, so that the decorator refuses sums. An exception of the body reaches
the caller of the kernel, after all threads have ended.
"""

import ast
import functools
import itertools
import linecache
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from providers.numba import are_left_out, cgutils, get_num_threads, intrinsic, ir, njit, types

_RUN = "__run_in_threads"
"""Name of `run_in_threads` in the module of a kernel."""

_INDEX = "__index"
"""Prefix of the loop's variable as an unsigned number: numba does not count it from an array's end."""

_RANGE = ("__start", "__stop")
"""First index of a thread and the one after its last: the first arguments of a loop's function."""


ROWS_OF_A_THREAD = 1 << 16
"""`least` of a loop with one or two memory accesses in each iteration: some 50 us of work."""


def ranges_of(rows: int, least: int = ROWS_OF_A_THREAD) -> int:
    """Return the number of ranges, one for each thread, into which a kernel divides `rows` rows."""
    return 1 if rows < 2 * least else min(int(get_num_threads()), rows // least)


def parallel(function: Any = None, least: int = 1, **options: Any) -> Any:
    """Return a kernel that runs the iterations of its `prange` loops in numba's threads.

    Parameters
    ----------
    function : callable, optional
        Function of a module. Without it the decorator is returned, as for ``@parallel(error_model="numpy")``.
    least : int
        Fewest indices of a thread, unless there is only one.
    **options
        Options of `numba.njit` for the kernel and its loops, besides ``cache`` and ``nogil``.
    """
    if function is None:
        return functools.partial(parallel, least=least, **options)
    if are_left_out():
        return njit()(function)
    kernel, loops = _split(function, least)
    namespace = function.__globals__
    namespace[_RUN] = run_in_threads
    for loop in loops:
        namespace[loop.__name__] = njit(
            nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options
        )(loop)
    return njit(cache=True, nogil=True, **options)(kernel)


@intrinsic
def run_in_threads(typingctx: Any, loop: Any, first: Any, last: Any, least: Any, arguments: Any) -> Any:
    """Call ``loop(start, stop, *arguments)`` in each thread, for ranges that make up `first` to `last` - 1.

    Parameters
    ----------
    loop : njit function
        Without a result.
    first, last : int
        First index, and the one after the last. Nothing is called if there is none.
    least : int
        Fewest indices of a thread, unless there is only one.
    arguments : tuple
    """
    kinds = (types.int64, types.int64, *(types.unliteral(kind) for kind in arguments.types))
    typingctx.resolve_function_type(loop, kinds, {})  # compiles it
    compiled = loop.dispatcher.overloads[kinds]

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        from numba.core.typed_passes import _reload_parfors

        library = context.active_code_library
        library.add_linking_library(compiled.library)
        library._reload_init.add(_reload_parfors)  # starts the threads where the kernel is loaded
        _reload_parfors()
        first, last, fewest = (
            context.cast(builder, value, kind, types.int64)
            for value, kind in zip(values[1:4], signature.args[1:4], strict=True)
        )
        given = cgutils.unpack_tuple(builder, values[4], len(arguments.types))
        given = [
            context.cast(builder, value, kind, wanted)
            for value, kind, wanted in zip(given, arguments.types, kinds[2:], strict=True)
        ]
        _call_in_threads(context, builder, compiled.fndesc, (first, last, fewest), given)
        return context.get_dummy_value()

    return types.void(loop, first, last, least, arguments), codegen


def _call_in_threads(
    context: Any, builder: Any, description: Any, bounds: tuple[Any, Any, Any], given: list[Any]
) -> None:
    """Generate the call of numba's thread pool, and the function that each thread calls.

    The pool calls a function for the numbers 0, 1, ... of ranges. It passes pointers to arguments that
    move by a step from one number to the next. The first pointer moves by one byte from the null pointer, so
    that it is the number itself. The second does not move: it is the struct with all that the threads share.
    A single range is run by the calling thread. ``bounds``: first index, the one after the last, and the
    fewest indices of a thread.
    """
    word, code, byte_pointer = ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
    problem = context.call_conv.get_function_type(types.none, ()).args[1].pointee  # of an exception
    shared_type = ir.LiteralStructType([word, word, word, code, problem, *(value.type for value in given)])
    task_type = ir.FunctionType(
        ir.VoidType(), [byte_pointer.as_pointer(), word.as_pointer(), word.as_pointer(), byte_pointer]
    )
    task = ir.Function(builder.module, task_type, builder.module.get_unique_name("run_range"))
    task.linkage = "internal"
    _generate_task(context, task, description, shared_type)

    def outside(name: str, result: Any, *arguments: Any) -> Any:
        return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)

    zero, one = word(0), word(1)
    first, last, fewest = bounds
    count = builder.sub(last, first)
    with builder.if_then(builder.icmp_signed(">", count, zero)):
        available = builder.call(outside("get_num_threads", word), [])
        worthwhile = builder.sdiv(count, fewest)
        worthwhile = builder.select(builder.icmp_signed("<", worthwhile, one), one, worthwhile)
        is_fewer = builder.icmp_signed("<", worthwhile, available)
        threads = builder.select(is_fewer, worthwhile, available)
        shared = cgutils.alloca_once(builder, shared_type)
        for index, value in enumerate((first, count, threads, code(0), problem(None), *given)):
            builder.store(value, cgutils.gep_inbounds(builder, shared, 0, index))
        pointers = [byte_pointer(None), builder.bitcast(shared, byte_pointer)]
        lists = []
        for kind, numbers in ((byte_pointer, pointers), (word, (threads,)), (word, (one, zero))):
            numbers_of_call = cgutils.alloca_once(builder, kind, size=len(numbers))
            for index, value in enumerate(numbers):
                builder.store(value, cgutils.gep_inbounds(builder, numbers_of_call, index))
            lists.append(builder.bitcast(numbers_of_call, byte_pointer))
        with builder.if_else(builder.icmp_signed("==", threads, one)) as (alone, together):
            with alone:
                of_task = [
                    builder.bitcast(each, kind) for each, kind in zip(lists, task_type.args[:3], strict=True)
                ]
                builder.call(task, [*of_task, byte_pointer(None)])
            with together:
                pool = outside("numba_parallel_for", ir.VoidType(), *[byte_pointer] * 5, word, word, word)
                called = builder.bitcast(task, byte_pointer)
                builder.call(pool, [called, *lists, byte_pointer(None), zero, word(len(pointers)), threads])
                # The pool makes the number of threads of this call that of the caller, who would keep it.
                builder.call(
                    outside("set_num_threads", ir.VoidType(), code), [builder.trunc(available, code)]
                )
        status = context.call_conv._get_return_status(
            builder,
            builder.load(cgutils.gep_inbounds(builder, shared, 0, _CODE)),
            builder.load(cgutils.gep_inbounds(builder, shared, 0, _CODE + 1)),
        )
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)


_CODE = 3
"""Place of the loop's error code in the struct that threads share, after first index, count and ranges."""


def _generate_task(context: Any, task: Any, description: Any, shared_type: Any) -> None:
    """Generate the function that a thread calls for the ranges of consecutive numbers.

    Range k of n has the indices from count * k / n to count * (k + 1) / n - 1, counted from the first.
    """
    builder = ir.IRBuilder(task.append_basic_block())
    word = ir.IntType(64)
    pointers, dimensions, _, _ = task.args
    number = builder.ptrtoint(builder.load(pointers), word)
    following = builder.add(number, builder.load(dimensions))
    place = builder.load(cgutils.gep_inbounds(builder, pointers, 1))
    shared = builder.bitcast(place, shared_type.as_pointer())

    def member(index: int) -> Any:
        return builder.load(cgutils.gep_inbounds(builder, shared, 0, index))

    first, count, ranges = member(0), member(1), member(2)
    bounds = [
        builder.add(first, builder.udiv(builder.mul(count, each), ranges)) for each in (number, following)
    ]
    given = [member(index) for index in range(_CODE + 2, len(shared_type.elements))]
    status, _ = context.call_conv.call_function(
        builder,
        context.declare_function(builder.module, description),
        description.restype,
        description.argtypes,
        [*bounds, *given],
    )
    with cgutils.if_unlikely(builder, status.is_error):
        # Of several threads' exceptions one remains; all have the same code.
        builder.store(status.excinfoptr, cgutils.gep_inbounds(builder, shared, 0, _CODE + 1))
        builder.store(status.code, cgutils.gep_inbounds(builder, shared, 0, _CODE))
    builder.ret_void()


# ------------------------------------------------------------------------------- syntax trees


def _split(function: FunctionType, least: int) -> tuple[FunctionType, list[FunctionType]]:
    """Return the function with calls of `run_in_threads` for its loops, and the functions of the loops.

    Both have the places of the file in their tracebacks.
    """
    file, line = function.__code__.co_filename, function.__code__.co_firstlineno
    tree = ast.parse("".join(_lines(linecache.getlines(file, function.__globals__)[line - 1 :])))
    ast.increment_lineno(tree, line - 1)
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)  # noqa: S101 - the decorator stands above one
    definition.decorator_list = []
    splitter = _Splitter(definition, least)
    definition = splitter.visit(definition)
    if not splitter.loops:
        raise TypeError(f"{function.__qualname__} has no loop over prange: use njit")
    found: dict[str, FunctionType] = {}
    module = ast.Module([*splitter.loops, definition], [])
    exec(compile(ast.fix_missing_locations(module), file, "exec"), function.__globals__, found)  # noqa: S102
    kernel = functools.update_wrapper(found.pop(function.__name__), function)
    del kernel.__wrapped__  # it is not called
    for name, loop in found.items():
        loop.__module__, loop.__qualname__ = function.__module__, name
    return kernel, list(found.values())  # type: ignore[return-value]  # the type of `update_wrapper`


def _lines(lines: list[str]) -> Iterator[str]:
    """Yield the lines of the function at the top of a module's rest."""
    begun = False
    for line in lines:
        if begun and line[0] not in " \n\t#)":
            return
        begun = begun or line.startswith("def ")
        yield line


class _Splitter(ast.NodeTransformer):
    """Replaces a function's loops by calls, and keeps them as functions."""

    def __init__(self, function: ast.FunctionDef, least: int) -> None:
        self._function, self._least = function, least
        arguments = {each.arg for each in function.args.args}
        self._bound = arguments | set(_stored(function.body))
        self.loops: list[ast.FunctionDef] = []

    def visit_For(self, loop: ast.For) -> ast.AST:
        """Return a call instead of a loop over `prange`."""
        iterable = loop.iter
        if not (isinstance(iterable, ast.Call) and ast.unparse(iterable.func) == "prange"):
            return self.generic_visit(loop)
        assert isinstance(loop.target, ast.Name)  # noqa: S101 - prange yields integers
        self._check(loop)
        own = set(_stored([loop]))
        used = [each.id for each in ast.walk(loop) if isinstance(each, ast.Name) and each is not loop.target]
        taken = [name for name in dict.fromkeys(used) if name in self._bound - own]
        name = f"{self._function.name}__loop{len(self.loops) + 1}"
        self.loops.append(_loop_function(name, loop, taken, own))
        first, last = iterable.args if len(iterable.args) > 1 else (ast.Constant(0), iterable.args[0])
        given = ast.Tuple([_name(each) for each in taken], ast.Load())
        call = ast.Call(_name(_RUN), [_name(name), first, last, ast.Constant(self._least), given], [])
        return ast.copy_location(ast.Expr(call), loop)

    def _check(self, loop: ast.For) -> None:
        """Refuse a loop whose iterations depend on one another, or end the loop."""
        where = f"{self._function.name}, line {loop.lineno}"
        if any(isinstance(each, (ast.Return, ast.Yield)) for each in ast.walk(loop)):
            raise TypeError(f"{where}: a loop over prange cannot return; write the result to an array")
        seen = {loop.target.id} if isinstance(loop.target, ast.Name) else set()
        assigned = set(_stored(loop.body))
        for name, is_stored in itertools.chain.from_iterable(map(_accesses, loop.body)):
            if is_stored:
                seen.add(name)
            elif name in assigned - seen:
                raise TypeError(
                    f"{where}: `{name}` is read before the iteration assigns it; sums over iterations need"
                    " an array with an element for each range of them"
                )


def _loop_function(name: str, loop: ast.For, taken: list[str], own: set[str]) -> ast.FunctionDef:
    """Return the function of a loop: its arrays of constant shape are allocated once for all iterations."""
    assert isinstance(loop.target, ast.Name)  # noqa: S101 - see the caller
    index = loop.target.id
    allocated = [each for each in loop.body if _is_allocation(each, own)]
    rest = [each for each in loop.body if each not in allocated]
    body: list[ast.stmt] = rest
    if list(_stored(rest)).count(index) == 0:
        unsigned = f"{_INDEX}_{index}"
        body = [_Unsigned(index, unsigned).visit(each) for each in rest]
        convert = ast.Call(ast.Attribute(_name("np"), "uint64", ast.Load()), [_name(index)], [])
        body = [ast.Assign([ast.Name(unsigned, ast.Store())], convert), *body]
    places = ast.Call(_name("range"), [_name(each) for each in _RANGE], [])
    inner = ast.copy_location(ast.For(loop.target, places, body, []), loop)
    arguments = [ast.arg(each) for each in (*_RANGE, *taken)]
    function = ast.FunctionDef(
        name, ast.arguments([], arguments, None, [], [], None, []), [*allocated, inner], []
    )
    return ast.copy_location(function, loop)


def _is_allocation(statement: ast.stmt, own: set[str]) -> bool:
    """Whether a statement assigns an array of `np.empty` whose shape is that of every iteration."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return False
    if ast.unparse(statement.value.func) != "np.empty" or not isinstance(statement.targets[0], ast.Name):
        return False
    return not own & {each.id for each in ast.walk(statement.value) if isinstance(each, ast.Name)}


class _Unsigned(ast.NodeTransformer):
    """Replaces a loop's variable by its unsigned number where it is the index of an array."""

    def __init__(self, index: str, unsigned: str) -> None:
        self._index, self._unsigned = index, unsigned

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Replace an index, alone or in a tuple."""
        self.generic_visit(node)
        if isinstance(node.slice, ast.Tuple):
            node.slice.elts = [self._replaced(each) for each in node.slice.elts]
        else:
            node.slice = self._replaced(node.slice)
        return node

    def _replaced(self, node: ast.expr) -> ast.expr:
        is_index = isinstance(node, ast.Name) and node.id == self._index
        return _name(self._unsigned) if is_index else node


def _accesses(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """Yield the names of a statement or expression in order, and whether each is assigned."""
    match node:
        case ast.Name(id=name, ctx=context):
            yield name, isinstance(context, ast.Store)
        case ast.Assign(targets=targets, value=value):
            yield from itertools.chain.from_iterable(map(_accesses, (value, *targets)))
        case ast.AugAssign(target=target, value=value):
            if isinstance(target, ast.Name):
                yield target.id, False
            yield from itertools.chain.from_iterable(map(_accesses, (value, target)))
        case ast.For(target=target, iter=iterable, body=body):
            yield from itertools.chain.from_iterable(map(_accesses, (iterable, target, *body)))
        case _:
            yield from itertools.chain.from_iterable(map(_accesses, ast.iter_child_nodes(node)))


def _stored(body: list[Any]) -> Iterator[str]:
    """Yield the names that statements assign."""
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())
