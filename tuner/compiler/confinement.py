"""Compile children see the headers of their source, and write nothing: Landlock holds them to it.

Beside the lists of what options and sources may ask for, this is what holds where a list has a gap. It is of
Linux 5.13 and needs no right; where it is missing, the lists stand alone. Of the files of the system, what
NVRTC loads stays readable.
"""

import ctypes
import os
import resource
import struct
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

_Result = TypeVar("_Result")

MOST_BYTES = 6 * 2**30
"""Address space of a compile child: a source that would take more than a machine has fails instead."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all architectures
_GIVE_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38
_EXECUTE, _READ_FILE, _READ_DIRECTORY = 1 << 0, 1 << 2, 1 << 3
_BITS_OF_VERSION = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # rights of the file system that a version knows
_READ = _EXECUTE | _READ_FILE | _READ_DIRECTORY
_ATTRIBUTES = struct.Struct("=Q")
_RULE = struct.Struct("=Qi")
_STACK_BYTES = 2**28  # NVRTC raises the limit of a main thread's stack, and cannot that of another
_OF_THE_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/dev/null", "/dev/urandom")


def bound_memory(most_bytes: int = MOST_BYTES) -> None:
    """Limit the address space of this process, and leave no core file of it."""
    for limit, most in ((resource.RLIMIT_AS, most_bytes), (resource.RLIMIT_CORE, 0)):
        soft, hard = resource.getrlimit(limit)
        value = most if soft == resource.RLIM_INFINITY else min(most, soft)
        resource.setrlimit(limit, (value, hard))


def supported() -> bool:
    """Whether this kernel confines."""
    return _version() > 0


def confined(work: Callable[[], _Result], readable: Iterable[str]) -> _Result:
    """Call a function in a thread that can read some folders and write nowhere; freely without Landlock.

    Args:
        work: what to call.
        readable: folders and files, beside the libraries of the system; those that are missing are left out.

    Returns:
        What the function returns; what it raises is raised.
    """
    version = _version()
    if version <= 0:
        return work()
    results: list[_Result] = []
    errors: list[BaseException] = []

    def inside() -> None:
        try:
            _restrict(version, [*_OF_THE_SYSTEM, *readable])
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - handed to who called
            errors.append(error)

    before = threading.stack_size(_STACK_BYTES)
    try:
        thread = threading.Thread(target=inside, name="confined")
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def library_folders() -> list[str]:
    """Folders of the libraries that this process has loaded from elsewhere than the system's places."""
    names = (line.split(maxsplit=5)[5:] for line in Path("/proc/self/maps").read_text().splitlines())
    files = {name[0] for name in names if name and name[0].startswith("/") and ".so" in name[0]}
    return sorted({str(Path(file).parent) for file in files if "nvrtc" in Path(file).name})


def _version() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_GIVE_VERSION)))


def _restrict(version: int, readable: Iterable[str]) -> None:
    """Take from this thread, and those it starts, all rights on files but reading below some paths."""
    libc = ctypes.CDLL(None, use_errno=True)
    handled = (1 << _BITS_OF_VERSION.get(version, max(_BITS_OF_VERSION.values()))) - 1
    attributes = _ATTRIBUTES.pack(handled)
    ruleset = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "no Landlock rules can be made")
    try:
        for path in readable:
            _allow(libc, ruleset, path)
        if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.syscall(
            _RESTRICT_SELF, ruleset, ctypes.c_uint(0)
        ):
            raise OSError(ctypes.get_errno(), "this thread cannot be confined")
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not on this machine
        return
    try:
        rights = _READ if Path(f"/proc/self/fd/{place}").is_dir() else _READ_FILE | _EXECUTE
        rule = _RULE.pack(rights, place)
        if libc.syscall(_ADD_RULE, ruleset, ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint(0)):
            raise OSError(ctypes.get_errno(), f"{path}: no Landlock rule can be made")
    finally:
        os.close(place)
