"""Code libraries of kernels that become machine code once.

numba has a code library for each compiled function. It optimises the library, generates its machine code, and
then links it into the library of every caller, where it optimises and generates the code again. Here a
library keeps the modules of all functions that it calls, until the address of one of its functions is
requested. Only the addresses of functions that Python calls are requested. Their modules are linked, and LLVM
sees each of them together with all that it calls, once (decisions 0025 and 0045).

`providers.kernel_cache` installs this before the first kernel is compiled or loaded.
"""

import contextlib
import zlib
from collections.abc import Callable, Iterable
from typing import Any, Self

import numba
from llvmlite import binding
from numba.core import cgutils
from numba.core import codegen as numba_codegen
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler import Compiler
from numba.core.compiler_lock import require_global_compiler_lock
from numba.core.environment import lookup_environment

NUMBA = "0.68."
"""Versions of numba whose code libraries these replace; with another version numba's own are used."""

_ENVIRONMENT = "_ZN08NumbaEnv"
"""Prefix of the names of the variables in which functions find their environments."""

_ADDRESSES = "numba.dynamic.globals"
"""Prefix of the names of the variables with addresses that are valid in this process alone."""

_LOOP_BODY = "__numba_parfor_gufunc"
"""Prefix of the names of the libraries with the body of a parallel loop."""

_FASTEST = 1
"""Level of compression."""

_LINKED, _COMPILED = "linked", "compiled"
"""Kinds of a library in the cache: for its callers alone, or with machine code."""


class LinkedLibrary(JITCodeLibrary):  # type: ignore[misc]  # numba has no types
    """Code library that is optimised and compiled when the address of one of its functions is needed."""

    def __init__(self, codegen: JITCPUCodegen, name: str) -> None:
        super().__init__(codegen, name)
        self.is_optimised_first = False
        """Whether callers link the optimised module; set before it is finalised."""
        self._is_compiled = False
        self._mentions_addresses = False
        """Whether the module has addresses of this process, even such as it only loads."""
        self._modules: dict[bytes, None] = {}
        """Compressed bitcode of the library's own module, for callers, and of the modules of all functions
        that it calls."""

    def add_ir_module(self, ir_module: Any) -> None:
        """Add a module's functions to the library."""
        self._raise_if_finalized()
        text = cgutils.normalize_ir_text(str(ir_module))
        self._mentions_addresses = self._mentions_addresses or _ADDRESSES in text
        module = binding.parse_assembly(text)
        module.verify()
        self._optimize_functions(module)
        self._final_module.link_in(module)

    def _optimize_functions(self, ll_module: Any) -> None:
        """Clean each function and remove its counts of references that cancel out; the rest waits.

        numba's pass that removes them gives up in large functions, such as those with their callees inlined.
        Functions without counts are cleaned too: else LLVM inlines others, and LOCALITY took 16 % longer.
        """
        ll_module.data_layout = self._codegen._data_layout
        builder = self._codegen._pass_builder()
        passes = binding.create_new_function_pass_manager()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        passes.add_refprune_pass(numba_codegen._parse_refprune_flags())
        for function in ll_module.functions:
            if not function.is_declaration:
                passes.run(function, builder)

    def finalize(self) -> None:
        """Note the modules that the library's functions call. Nothing can be added afterwards."""
        require_global_compiler_lock()
        self._raise_if_finalized()
        called: dict[bytes, None] = {}
        addresses: dict[str, None] = {}
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            called |= library._modules
            addresses |= dict.fromkeys(library._dynamic_globals)
        if self.is_optimised_first:
            self._link(called)
            self._optimize_final_module()
            called = {}
        self._finalized = True
        self._finalize_dynamic_globals()
        self._dynamic_globals = list(addresses | dict.fromkeys(self._dynamic_globals))  # type: ignore[has-type]
        self._modules = {_for_callers(self._final_module): None, **called}

    def _link(self, modules: Iterable[bytes]) -> None:
        """Link modules, in any order. LLVM drops those of their functions that nothing calls any more."""
        for module in modules:
            self._final_module.link_in(binding.parse_bitcode(zlib.decompress(module)))
        for function in self._final_module.functions:
            if function.linkage == binding.Linkage.weak_odr:
                function.linkage = "linkonce_odr"

    def _finalize_dynamic_globals(self) -> None:
        """Note the addresses of this process that the code uses, without those that it only loads."""
        if self._is_compiled:  # numba asks once more
            return
        self._dynamic_globals.clear()
        if self._mentions_addresses:
            passes = binding.create_new_module_pass_manager()
            passes.add_instruction_combine_pass()
            passes.add_global_dead_code_eliminate_pass()
            passes.run(self._final_module, self._codegen._pass_builder())
            super()._finalize_dynamic_globals()

    def get_pointer_to_function(self, name: str) -> int:
        """Return the address of a function, or 0 if the library has none of that name.

        It is also 0 for the Python wrapper that numba gives to the body of a parallel loop: only the function
        that contains the loop calls the body.
        """
        self._ensure_finalized()
        if not self._is_compiled:
            if self._name.startswith(_LOOP_BODY) or not self._defines(name):
                return 0
            self._compile()
        return int(super().get_pointer_to_function(name))

    def _defines(self, name: str) -> bool:
        with contextlib.suppress(NameError):
            return not self._final_module.get_function(name).is_declaration
        return False

    def _compile(self) -> None:
        """Link the functions that the library's functions call, optimise them, and generate machine code."""
        self._codegen._check_llvm_bugs()
        self._link(list(self._modules)[1:])  # after its own
        self._optimize_final_module()
        self._final_module.verify()
        self._is_compiled = True
        self._finalize_final_module()
        for variable in self._final_module.global_variables:
            environment = variable.name.startswith(_ENVIRONMENT) and lookup_environment(variable.name)
            if environment:
                self._codegen.set_env(variable.name, environment)

    def _get_module_for_linking(self) -> Any:
        """Return the library's own module as callers link it."""
        self._ensure_finalized()
        return binding.parse_bitcode(zlib.decompress(next(iter(self._modules))))

    def serialize_using_object_code(self) -> tuple[str, str, Any]:
        """Return the form in which the cache keeps the library."""
        self._ensure_finalized()
        modules = tuple(self._modules)
        if not self._is_compiled:
            return self.name, _LINKED, modules
        symbols = frozenset(each.name for each in self.get_defined_functions()) | frozenset(
            each.name for each in self._final_module.global_variables if not each.is_declaration
        )
        return self.name, _COMPILED, (self._get_compiled_object(), modules, symbols)

    @classmethod
    def _unserialize(cls, codegen: JITCPUCodegen, state: tuple[str, str, Any]) -> Self:
        """Return a library from the cache. Its modules are parsed only if a caller is compiled."""
        name, kind, data = state
        if kind not in (_LINKED, _COMPILED):
            library: Self = super()._unserialize(codegen, state)
            library._is_compiled = True
            library._modules = {_for_callers(library._shared_module): None}
            return library
        library = codegen.create_library(name)
        library._disable_inspection = True
        if kind == _LINKED:
            library._modules = dict.fromkeys(data)
            library._finalized = True
            return library
        code, modules, symbols = data
        library._modules = dict.fromkeys(modules)
        library.enable_object_caching()
        library._set_compiled_object(code)
        library._is_compiled = True
        library._finalize_final_module()
        codegen._engine._defined_symbols |= symbols
        return library


def _for_callers(module: Any) -> bytes:
    """Return the compressed bitcode of a module whose functions may be defined several times.

    They are weak, since LLVM does not link functions that may be dropped before it has linked a caller.
    """
    copy = module.clone()
    for function in copy.functions:
        if not function.is_declaration and function.linkage == binding.Linkage.external:
            function.linkage = "weak_odr"
    return zlib.compress(copy.as_bitcode(), _FASTEST)


class OptimisedFirst(Compiler):  # type: ignore[misc]  # numba has no types
    """Compiler of functions that are optimised completely before their callers link them.

    It is the ``pipeline_class`` of a decorator. What callers inline is then optimised twice, which takes
    longer to compile. Without it LLVM leaves some loops slower, since its passes come to them in another
    order (decision 0025).
    """

    def compile_extra(self, func: Callable[..., Any]) -> Any:
        """Compile a function, like numba's own method, into a library that has been marked."""
        library = self.state.targetctx.codegen().create_library(func.__qualname__)
        library.enable_object_caching()
        library.is_optimised_first = True
        self.state.library = library
        return super().compile_extra(func)


def install() -> bool:
    """Have numba use these libraries from now on; return whether this is a numba that they fit."""
    if not numba.__version__.startswith(NUMBA):
        return False
    if JITCPUCodegen._library_class is not LinkedLibrary:
        JITCPUCodegen._library_class = LinkedLibrary
        JITCPUCodegen.set_env = _setting_environments(JITCPUCodegen.set_env)
    return True


def _setting_environments(set_env: Any) -> Any:
    """Return numba's method for codes that are in memory; a linked library has no variable to set yet."""

    def set_env_if_compiled(codegen: JITCPUCodegen, env_name: str, env: Any) -> None:
        if codegen._engine.is_symbol_defined(env_name):
            set_env(codegen, env_name, env)

    return set_env_if_compiled
