"""NVRTC through ctypes: its libraries, their architectures, and one compilation.

It is bound here, not through CuPy, because two versions must serve side by side (CUDA 13 dropped what is
below sm_75, CUDA 12.9 still reaches sm_50), because a compile child must start fast and stay small (it
imports hardly more than this module), and because resources are compiled facts on machines without CuPy too.
"""

import contextlib
import ctypes
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tuner.compiler.confinement import bound_memory, confined, library_folders
from tuner.compiler.ptx import excerpt
from tuner.model.errors import CompilerUnavailableError
from tuner.untrusted.compiler_options import check_name_expression, check_options

LOADER_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12")
"""What to ask the dynamic loader for, where no file serves."""


class Output(NamedTuple):
    """The result of one compilation.

    Attributes:
        cubin: the code; None where it does not compile.
        lowered_name: mangled name of the entry; empty where it does not compile.
        log: NVRTC's program log with the reports of ptxas.
        symbols: mangled names of the variables asked for, in their order.
        ptx: of the entry and what it calls (``ptx.excerpt``); empty where NVRTC gives none.
    """

    cubin: bytes | None
    lowered_name: str
    log: str
    symbols: tuple[str, ...] = ()
    ptx: str = ""


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

        Args:
            name: what messages call the translation unit.
            text: CUDA C++.
            headers: (include name, text).
            entry: name expression of the ``__global__`` function.
            options: with a real architecture, e.g. ``--gpu-architecture=sm_90``.
            symbols: ``__constant__`` and ``__device__`` variables that are kept, and whose names are told.

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
            kept = excerpt(ptx, lowered_name, tuple(names))
            return Output(self._data(program, "CUBIN"), lowered_name, log, tuple(names), kept)

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
    """What a compile child serves: NVRTC, held to what a kernel may have it do.

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
        folders = [one.removeprefix(_INCLUDE_PATH) for one in options if one.startswith(_INCLUDE_PATH)]
        check_options(options, folders, own=True)
        for expression in (entry, *symbols):
            check_name_expression(expression)
        if self._builtins is None:
            self._builtins = _loaded_builtins(self._readable)
        compiled = super().compile
        return confined(
            lambda: compiled(name, text, headers, entry, options, symbols), [*self._readable, *folders]
        )
