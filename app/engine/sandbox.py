"""Rights that a worker process gives up on Linux before its first task: files, network, other programs.

Landlock (Linux 5.13) limits files to those that a worker needs: libraries, the kernel cache, and the blobs,
scratch and progress files of the shared folder. It also keeps the worker out of the memory and the
environment of other processes, and out of TCP. A seccomp filter refuses new sockets, other programs, input
typed into the terminal of the service, and system calls that reach into other processes or the system's
set-up, or change modes, owners and times of files, which Landlock does not cover. Neither can be undone by
the process.

The two are called through the C library: there is no maintained package for them. They are applied before the
process starts a thread, because they hold for the calling thread and for those that it starts.
"""

import contextlib
import ctypes
import errno
import importlib
import os
import platform
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

# linux/landlock.h
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_TRUNCATE = 1 << 14
_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: _TRUNCATE, 5: 1 << 15}
"""Rights on files that a version of Landlock adds."""
_TCP_SINCE, _TCP = 4, 0b11
_SCOPES_SINCE, _SCOPES = 6, 0b11  # abstract Unix sockets, signals
_OF_FILES = 1 | _WRITE_FILE | _READ_FILE | _TRUNCATE
"""Rights that a rule about a single file may have."""

_READ = _READ_FILE | _READ_DIR

_WRITE = _READ | _WRITE_FILE | _TRUNCATE | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 13
"""Read; remove and make files and folders; rename between folders."""

# linux/prctl.h, linux/seccomp.h, linux/audit.h
_SET_SECCOMP, _NO_NEW_PRIVS, _FILTER = 22, 38, 2
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EACCES
_UNKNOWN = 0x00050000 | errno.ENOSYS
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
_NETWORK = {"x86_64": (41, 42, 49), "aarch64": (198, 203, 200)}
"""Numbers of `socket`, `connect`, `bind`."""
_OTHERS = {
    # execve, execveat, ptrace, process_vm_readv, process_vm_writev, pidfd_getfd, add_key, request_key,
    # keyctl, mount, unshare, setns, bpf; io_uring_setup, which could open sockets without the calls above
    "x86_64": (59, 322, 101, 310, 311, 438, 248, 249, 250, 165, 272, 308, 321, 425),
    "aarch64": (221, 281, 117, 270, 271, 438, 217, 218, 219, 40, 97, 268, 280, 425),
}
_OF_THE_MACHINE = {
    # init_module, finit_module, delete_module, kexec_load, kexec_file_load, reboot, settimeofday,
    # clock_settime, clock_adjtime, adjtimex, swapon, swapoff, acct, quotactl, open_by_handle_at,
    # perf_event_open; iopl, ioperm
    "x86_64": (175, 313, 176, 246, 320, 169, 164, 227, 305, 159, 167, 168, 163, 179, 304, 298, 172, 173),
    "aarch64": (105, 273, 106, 104, 294, 142, 170, 112, 266, 171, 224, 225, 89, 60, 265, 241),
}
"""Calls that reach the whole machine, for a service that runs as root."""
_IOCTL = {"x86_64": 16, "aarch64": 29}
_TYPING = (0x5412, 0x541C)
"""Requests of `ioctl` that type into a terminal: TIOCSTI, TIOCLINUX. A worker inherits the service's standard
error, and a shell would run what is typed there as soon as the service ends."""
_OWNERS_ONLY = {
    # chmod, fchmod, fchmodat, fchmodat2, chown, fchown, lchown, fchownat
    "x86_64": (90, 91, 268, 452, 92, 93, 94, 260),
    "aarch64": (52, 53, 452, 55, 54),
}
"""Calls that change the mode or the owner of a file, which Landlock does not cover."""
_ATTRIBUTES = {
    # setxattr, lsetxattr, fsetxattr, setxattrat, removexattr, lremovexattr, fremovexattr, removexattrat;
    # utime, utimes, futimesat, utimensat
    "x86_64": (188, 189, 190, 463, 197, 198, 199, 466, 132, 235, 261, 280),
    "aarch64": (5, 6, 7, 463, 14, 15, 16, 466, 88),
}
"""Calls that change other attributes of a file, which Landlock does not cover."""
_PRIORITIES = {"x86_64": 251, "aarch64": 30}
"""Number of `ioprio_set`."""
_OF_PROCESSES = {
    # prlimit64, sched_setaffinity, sched_setscheduler, sched_setparam, sched_setattr
    "x86_64": (302, 203, 144, 142, 314),
    "aarch64": (261, 122, 119, 118, 274),
}
"""Calls whose first argument is the process that they change."""
_SET_PRIORITY = {"x86_64": 141, "aarch64": 140}
_CLONE, _CLONE3 = {"x86_64": 56, "aarch64": 220}, 435
_NEW_NAMESPACES = 0x7E020000
"""Flags of `clone` that create name spaces. `clone3` has them in memory, where a filter cannot see them."""
_Step = tuple[int, int, int, int]
"""Instruction of a filter: code, steps to skip if true and if false, operand."""
_FIRST, _SECOND = 16, 24
"""Offsets of the low halves of the first arguments in struct seccomp_data."""

_SYSTEM = (
    "/usr", "/lib", "/lib64", "/sys", "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom",
    "/etc/ld.so.cache", "/etc/localtime", "/etc/timezone", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group",
)  # fmt: skip
"""Files and folders of the system that libraries read."""

_KERNEL = (
    "/proc/self", "/proc/sys", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version",
)  # fmt: skip
"""Files and folders that the kernel makes, and that libraries and the limit of memory read.

A rule holds for the inode that a path has when the rule is made. The kernel drops inodes of `/proc` when it
needs memory and makes new ones at the next access, unless they are open: the worker keeps these open.
"""

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - semaphores of libraries


@dataclass(frozen=True, slots=True)
class Confinement:
    """Folders and rights of a worker in addition to its libraries."""

    writable: tuple[str, ...]
    """Folders of the task's files."""
    compiles: bool = False
    """Whether it may write kernels that it compiles to their cache, which other processes run. Otherwise it
    compiles missing kernels for itself."""
    network: bool = False
    """Whether it may open sockets, for example to export traces."""


def landlock_version() -> int:
    """Return the version of Landlock that the system offers; 0 if there is none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)))


def offered() -> list[str]:
    """Return the means of this system to confine a worker."""
    if sys.platform != "linux":
        return []
    version = landlock_version()
    return [
        *([f"Landlock {version}"] if version else []),
        *(["seccomp"] if platform.machine() in _ARCHITECTURES else []),
    ]


def confine(confinement: Confinement) -> None:
    """Give up everything else, as far as the system offers it. Irreversible; call it before any thread.

    Raises OSError: the system offers it, and refuses.
    """
    if sys.platform != "linux":
        return
    if _libc().prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise _error()
    version = landlock_version()
    if version:
        _restrict_files(confinement, version)
    if platform.machine() in _ARCHITECTURES:
        _filter_calls(platform.machine(), confinement.network)


def _restrict_files(confinement: Confinement, version: int) -> None:
    rights = sum(added for since, added in _RIGHTS.items() if since <= version)
    tcp = _TCP if version >= _TCP_SINCE and not confinement.network else 0
    scopes = _SCOPES if version >= _SCOPES_SINCE else 0
    attributes = struct.pack("=QQQ", rights, tcp, scopes)
    size = 8 if version < _TCP_SINCE else 16 if version < _SCOPES_SINCE else 24
    rules = _libc().syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0)
    if rules < 0:
        raise _error()
    try:
        # The import sets the folder of the kernel cache, if nothing else has.
        importlib.import_module("providers")
        kernels = os.environ["NUMBA_CACHE_DIR"]
        for folder in (*confinement.writable, *((kernels,) if confinement.compiles else ())):
            with contextlib.suppress(OSError):  # a rule needs a folder; one on a read-only disk is only read
                Path(folder).mkdir(mode=0o700, exist_ok=True)
            _allow(rules, folder, _WRITE & rights)
        _allow(rules, kernels, _READ)
        _allow(rules, _SHARED_MEMORY, _WRITE & rights)
        for path in _SYSTEM:
            _allow(rules, path, _READ)
        for path in _KERNEL:
            _allow(rules, path, _READ, keep_open=True)
        for path, listed_only in _library_paths():
            _allow(rules, path, _READ_DIR if listed_only else _READ)
        _allow(rules, "/dev/null", (_READ_FILE | _WRITE_FILE) & rights)
        if _libc().syscall(_RESTRICT_SELF, rules, 0):
            raise _error()
    finally:
        os.close(rules)


def _allow(rules: int, path: str, rights: int, *, keep_open: bool = False) -> None:
    """Allow rights below a folder, or on a file, if it exists. Raises OSError."""
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # a library's folder that is not there
        return
    try:
        if not os.path.isdir(path):  # noqa: PTH112 - of the path that was opened
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, opened)
        if _libc().syscall(_ADD_RULE, rules, _PATH_BENEATH, rule, 0):
            raise _error()
    finally:
        if not keep_open:
            os.close(opened)


def _library_paths() -> Iterator[tuple[str, bool]]:
    """Yield the paths that imports read, and whether only names of files may be read there.

    A folder of the module path outside of Python's own may contain anything, such as a home with keys: only
    its modules and packages may be read.
    """
    prefixes = {str(Path(prefix).resolve()) for prefix in (sys.prefix, sys.base_prefix)}
    for prefix in prefixes:
        yield prefix, False
    for entry in {str(Path(entry).resolve()) for entry in sys.path}:
        if any(Path(entry).is_relative_to(prefix) for prefix in prefixes):
            continue
        yield entry, True
        for child in _modules(entry):
            yield child, False


def _modules(folder: str) -> Iterator[str]:
    with contextlib.suppress(OSError), os.scandir(folder) as children:
        for child in children:
            if child.is_dir():
                if (Path(child.path) / "__init__.py").is_file() or child.name.endswith((".libs", "-info")):
                    yield child.path
            elif child.name.endswith((".py", *EXTENSION_SUFFIXES)):
                yield child.path


def _filter_calls(machine: str, network: bool) -> None:
    """Refuse system calls of this architecture with EACCES, and all calls of another one."""
    refused = (*_OTHERS[machine], *_OWNERS_ONLY[machine], *_ATTRIBUTES[machine], _PRIORITIES[machine])
    refused += _OF_THE_MACHINE[machine]
    if not network:
        refused += _NETWORK[machine]
    architecture, number = 4, 0  # offsets in struct seccomp_data
    refuse, allow = (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)
    own = ((_EQUAL, 2, 0, 0), (_EQUAL, 1, 0, os.getpid()), refuse, allow)  # 0 is the caller, too
    program: list[_Step] = [
        (_LOAD, 0, 0, architecture),
        *((_EQUAL, 1, 0, _ARCHITECTURES[machine]), refuse),
        (_LOAD, 0, 0, number),
        *((_AT_LEAST, 0, 1, _X32), refuse),
    ]
    for call in refused:
        program += _if_call(call, refuse)
    for call in _OF_PROCESSES[machine]:
        program += _if_call(call, (_LOAD, 0, 0, _FIRST), *own)
    # setpriority of a process: neither of a group nor of a user
    a_process = ((_LOAD, 0, 0, _FIRST), (_EQUAL, 1, 0, os.PRIO_PROCESS), refuse)
    program += _if_call(_SET_PRIORITY[machine], *a_process, (_LOAD, 0, 0, _SECOND), *own)
    first, second = _TYPING
    typing = ((_LOAD, 0, 0, _SECOND), (_EQUAL, 1, 0, first), (_EQUAL, 0, 1, second), refuse, allow)
    program += _if_call(_IOCTL[machine], *typing)
    new_namespaces = ((_LOAD, 0, 0, _FIRST), (_ANY_BIT, 0, 1, _NEW_NAMESPACES), refuse, allow)
    program += _if_call(_CLONE[machine], *new_namespaces)
    program += _if_call(_CLONE3, (_RETURN, 0, 0, _UNKNOWN))  # the C library then calls clone
    program.append(allow)
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in program))
    filtered = struct.pack("@HP", len(program), ctypes.addressof(code))
    if _libc().prctl(_SET_SECCOMP, _FILTER, filtered, 0, 0):
        raise _error()


def _if_call(call: int, *steps: _Step) -> list[_Step]:
    """Return steps that are run only for one call, whose number is loaded; they end the filter."""
    return [(_EQUAL, 0, len(steps), call), *steps]


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"a worker cannot give up its rights: {os.strerror(number)}")
