"""NVRTC through ctypes, confined by Landlock: its libraries, their architectures, and one compilation.

It is bound here, not through CuPy, because two versions must serve side by side (CUDA 13 dropped what is
below sm_75, CUDA 12.9 still reaches sm_50), because a compile child must start fast and stay small (it
imports hardly more than this module), and because resources are compiled facts on machines without CuPy too.
"""

import contextlib
import ctypes
import importlib.util
import os
import resource
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tuner.compiler.ptx import excerpt
from tuner.model.errors import CompilerUnavailableError
from tuner.system.untrusted.compiler_options import check_name_expression, check_options

if TYPE_CHECKING:
    from tuner.model.plan import LaunchDemands  # a compile child starts without it

# --- Compile children see the headers of their source, and write nothing: Landlock holds them to it.
#
# Beside the lists of what options and sources may ask for, this is what holds where a list has a gap. It is
# of Linux 5.13 and needs no right; where it is missing, the lists stand alone. Of the files of the system,
# what NVRTC loads stays readable.

_Result = TypeVar("_Result")

MOST_BYTES = 6 * 2**30
"""Address space of a compile child: a source that would take more than a machine has fails instead."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all architectures
_GIVE_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIRECTORY, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_BITS_OF_VERSION = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # rights of the file system that a version knows
_READ = _EXECUTE | _READ_FILE | _READ_DIRECTORY
_ATTRIBUTES = struct.Struct("=Q")
_RULE = struct.Struct("=Qi")
_STACK_BYTES = 2**28  # NVRTC raises the limit of a main thread's stack, and cannot that of another
_OF_THE_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/dev/null", "/dev/urandom")


def bound_memory() -> None:
    """Limit the address space of this process, and leave no core file of it."""
    for limit, most in ((resource.RLIMIT_AS, MOST_BYTES), (resource.RLIMIT_CORE, 0)):
        soft, hard = resource.getrlimit(limit)
        value = most if soft == resource.RLIM_INFINITY else min(most, soft)
        resource.setrlimit(limit, (value, hard))


def supported() -> bool:
    """Return True if this Linux kernel supports Landlock."""
    return _version() > 0


def confined(work: Callable[[], _Result], readable: Iterable[str], writable: Iterable[str] = ()) -> _Result:
    """Call a function in a thread that can read and write some folders only; freely without Landlock.

    Processes that it starts are held to the same.

    Args:
        work: function of no arguments.
        readable: folders and files beside the libraries of the system; those that are missing are left out.
        writable: folders and files that it may do anything to.

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
            _restrict(version, [*_OF_THE_SYSTEM, *readable], writable)
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


def _restrict(version: int, readable: Iterable[str], writable: Iterable[str]) -> None:
    """Take from this thread, and those it starts, all rights on files but those below some paths."""
    libc = ctypes.CDLL(None, use_errno=True)
    handled = (1 << _BITS_OF_VERSION.get(version, max(_BITS_OF_VERSION.values()))) - 1
    attributes = _ATTRIBUTES.pack(handled)
    ruleset = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "no Landlock rules can be made")
    try:
        for path in readable:
            _allow(libc, ruleset, path, _READ, _READ_FILE | _EXECUTE)
        for path in writable:
            _allow(libc, ruleset, path, handled, handled & (_READ_FILE | _WRITE_FILE | _TRUNCATE))
        if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.syscall(
            _RESTRICT_SELF, ruleset, ctypes.c_uint(0)
        ):
            raise OSError(ctypes.get_errno(), "this thread cannot be confined")
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, of_folder: int, of_file: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not on this machine
        return
    try:
        rights = of_folder if Path(f"/proc/self/fd/{descriptor}").is_dir() else of_file
        rule = _RULE.pack(rights, descriptor)
        if libc.syscall(_ADD_RULE, ruleset, ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint(0)):
            raise OSError(ctypes.get_errno(), f"{path}: no Landlock rule can be made")
    finally:
        os.close(descriptor)


# --- NVRTC itself: where it is, and one compilation.

LOADER_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12")
"""Library names for the dynamic loader, if no library file can be used."""


class Output(NamedTuple):
    """The result of one compilation.

    Attributes:
        cubin: the code; None where it does not compile.
        lowered_name: mangled name of the entry; empty where it does not compile.
        log: the compiler's log with the reports of ptxas.
        symbols: mangled names of the variables asked for, in their order.
        ptx: of the entry and what it calls (``ptx.excerpt``); empty where the compiler gives none.
        demands: what launches must have beside what the stage says; None where that is all.
    """

    cubin: bytes | None
    lowered_name: str
    log: str
    symbols: tuple[str, ...] = ()
    ptx: str = ""
    demands: "LaunchDemands | None" = None


def library_files() -> list[Path]:
    """Files of NVRTC found on this machine: wheels, then CUDA toolkits."""
    return [path for folder in _folders() for path in sorted(folder.glob("libnvrtc.so.*[0-9]"))]


def _folders() -> Iterator[Path]:
    spec = importlib.util.find_spec("nvidia")
    for entry in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(entry, "cuda_nvrtc", "lib")  # the wheel of CUDA 12
        yield from sorted(Path(entry).glob("cu[0-9]*/lib"), reverse=True)  # those from CUDA 13 on
    roots = [Path(os.environ[name]) for name in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(name)]
    for root in [*roots, *sorted(Path("/usr/local").glob("cuda*"), reverse=True)]:
        yield root / "lib64"
    yield Path(sys.prefix, "lib")  # conda's toolkits


class Nvrtc:
    """One loaded NVRTC library.

    Args:
        library: path, or a name the dynamic loader knows.

    Raises:
        CompilerUnavailableError: it cannot be loaded, or is older than CUDA 11.2.
    """

    def __init__(self, library: str) -> None:
        try:
            self._library = ctypes.CDLL(library)
            _ = self._library.nvrtcGetSupportedArchs, self._library.nvrtcGetCUBIN
        except (OSError, AttributeError) as error:
            raise CompilerUnavailableError(f"{library}: {error}") from error
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def describe(self) -> tuple[str, tuple[int, ...]]:
        """Version, e.g. ``12.9``, and the architectures served, e.g. ``(50, 52, ...)``."""
        major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self._check(self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        architectures = (ctypes.c_int * count.value)()
        self._check(self._library.nvrtcGetSupportedArchs(architectures))
        return f"{major.value}.{minor.value}", tuple(architectures)

    def compile(  # noqa: PLR0917 - crosses a pipe as it stands
        self,
        name: str,
        text: str,
        headers: tuple[tuple[str, str], ...],
        entry: str,
        options: tuple[str, ...],
        symbols: tuple[str, ...] = (),
    ) -> Output:
        """Compile one entry of a translation unit to a cubin.

        The options name a real architecture. ``symbols`` are variables that are kept, and whose mangled names
        are returned.

        Raises:
            CompilerUnavailableError: NVRTC itself fails.
        """
        with self._program(name, text, headers) as program:
            expressions = [entry.encode(), *(f"&{symbol}".encode() for symbol in symbols)]
            failed = 0
            for expression in expressions:
                failed = failed or self._library.nvrtcAddNameExpression(program, expression)
            encoded = [option.encode() for option in options]
            failed = failed or self._library.nvrtcCompileProgram(
                program, len(encoded), (ctypes.c_char_p * len(encoded))(*encoded)
            )
            raw = self._data(program, "ProgramLog").decode(errors="replace")
            log = raw.replace("\0", "")  # one ends it, and some stand before what ptxas says
            if failed:
                reason = self._library.nvrtcGetErrorString(failed).decode()
                return Output(None, "", log or reason)
            lowered_name, *names = (self._lowered(program, expression) for expression in expressions)
            ptx = ""
            with contextlib.suppress(CompilerUnavailableError):  # none is made, as of code for linking
                ptx = self._data(program, "PTX").decode(errors="replace")
            own_ptx = excerpt(ptx, lowered_name, tuple(names))
            return Output(self._data(program, "CUBIN"), lowered_name, log, tuple(names), own_ptx)

    def _lowered(self, program: ctypes.c_void_p, expression: bytes) -> str:
        lowered = ctypes.c_char_p()
        self._check(self._library.nvrtcGetLoweredName(program, expression, ctypes.byref(lowered)))
        return (lowered.value or b"").decode()

    @contextlib.contextmanager
    def _program(
        self, name: str, text: str, headers: tuple[tuple[str, str], ...]
    ) -> Iterator[ctypes.c_void_p]:
        program = ctypes.c_void_p()
        strings = ctypes.c_char_p * len(headers)
        self._check(
            self._library.nvrtcCreateProgram(
                ctypes.byref(program),
                text.encode(),
                name.encode(),
                len(headers),
                strings(*(body.encode() for _, body in headers)),
                strings(*(include.encode() for include, _ in headers)),
            )
        )
        try:
            yield program
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _data(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        data = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, data))
        return data.raw

    def _check(self, status: int) -> None:
        if status:
            raise CompilerUnavailableError(f"NVRTC: {self._library.nvrtcGetErrorString(status).decode()}")


# --- What a compile child answers.

_INCLUDE_PATH = "--include-path="
_BUILTINS = "libnvrtc-builtins.so*"


def _loaded_builtins(folders: Iterable[str]) -> list[ctypes.CDLL]:
    """Load the library of built-in functions that lies beside NVRTC.

    NVRTC opens it by its bare name with the first compilation. The dynamic loader may find another copy
    then, which cannot be read any more.
    """
    loaded = []
    for file in (file for folder in folders for file in Path(folder).glob(_BUILTINS)):
        with contextlib.suppress(OSError):  # of another build, or no library
            loaded.append(ctypes.CDLL(str(file)))
    return loaded


class CompileServer(Nvrtc):
    """Server of a compile child process: NVRTC, restricted to what a kernel may have it do.

    The parent has checked the options; this is the last line. A compilation reads no file but the headers of
    its include paths and what NVRTC itself loads, and writes none, where the kernel has Landlock.

    Args:
        library: path, or a name the dynamic loader knows.

    Raises:
        CompilerUnavailableError: as `Nvrtc`.
    """

    def __init__(self, library: str) -> None:
        bound_memory()
        super().__init__(library)
        self._readable = library_folders()
        self._builtins: list[ctypes.CDLL] | None = None
        empty = tempfile.mkdtemp()
        os.chdir(empty)  # NVRTC looks for headers in the working directory, too
        Path(empty).rmdir()

    def compile(  # noqa: PLR0917 - crosses a pipe as it stands
        self,
        name: str,
        text: str,
        headers: tuple[tuple[str, str], ...],
        entry: str,
        options: tuple[str, ...],
        symbols: tuple[str, ...] = (),
    ) -> Output:
        """Compile one entry of a translation unit to a cubin; see ``Nvrtc.compile``.

        Raises:
            RefusedOptionError: an option, or the entry, is not as a kernel may have it.
            CompilerUnavailableError: NVRTC itself fails.
        """
        folders = [
            option.removeprefix(_INCLUDE_PATH) for option in options if option.startswith(_INCLUDE_PATH)
        ]
        check_options(options, folders, own=True)
        for expression in (entry, *symbols):
            check_name_expression(expression)
        if self._builtins is None:
            self._builtins = _loaded_builtins(self._readable)
        compiled = super().compile
        return confined(
            lambda: compiled(name, text, headers, entry, options, symbols), [*self._readable, *folders]
        )
