"""One compilation of stages for each architecture that the NVRTC of this machine serves."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from ctypes import CDLL, POINTER, byref, c_char_p, c_int, c_size_t, c_void_p, string_at

from tuner.compiler.compiler import CompiledStage, Compiler, usual_jobs
from tuner.compiler.cubin_cache import CubinCache, default_directory
from tuner.compiler.nvrtc import LOADER_NAMES, library_files
from tuner.compiler.nvrtc_choice import SERVER, described
from tuner.devices.base import Progress
from tuner.model.errors import CompileError
from tuner.model.plan import Stage

_MANGLED = "_Z"


def served_architectures() -> tuple[str, ...]:
    """The architectures that an NVRTC of this machine compiles for, as ``sm_90``; none without NVRTC."""
    cache = CubinCache(default_directory())
    libraries = described(library_files(), cache, SERVER) or described(LOADER_NAMES, cache, SERVER)
    return tuple(f"sm_{one}" for one in sorted({one for each in libraries for one in each.architectures}))


def compiled_for(
    stages: Mapping[str, Sequence[Stage]], progress: Progress | None = None
) -> dict[str, list[CompiledStage | CompileError]]:
    """Compile stages for architectures, several at a time.

    Args:
        stages: architecture -> what to compile for it.
        progress: called in this thread with (done, total) architectures.

    Returns:
        For each architecture and stage the code or the error.

    Raises:
        CompilerUnavailableError: no NVRTC serves an architecture.
    """

    def compiled(architecture: str) -> list[CompiledStage | CompileError]:
        with Compiler(architecture, jobs=1) as compiler:
            return compiler.compile(stages[architecture])

    found: dict[str, list[CompiledStage | CompileError]] = {}
    with ThreadPoolExecutor(min(usual_jobs(), max(1, len(stages)))) as pool:
        futures = {pool.submit(compiled, one): one for one in stages}
        for future in as_completed(futures):
            found[futures[future]] = future.result()
            if progress is not None:
                progress(len(found), len(stages))
    return {one: found[one] for one in stages}


def demangled(name: str) -> str | None:
    """A mangled name as C++ writes it, by the C++ library of this machine.

    Returns:
        None where the name is not mangled, or the library is not here.
    """
    if not name.startswith(_MANGLED):
        return None
    try:
        library = CDLL("libstdc++.so.6")
        demangle, release = getattr(library, "__cxa_demangle"), CDLL(None).free
    except (OSError, AttributeError):
        return None
    demangle.restype, release.argtypes = c_void_p, [c_void_p]
    demangle.argtypes = [c_char_p, c_char_p, POINTER(c_size_t), POINTER(c_int)]
    status = c_int()
    pointer = demangle(os.fsencode(name), None, None, byref(status))
    if not pointer:
        return None
    try:
        return string_at(pointer).decode()
    finally:
        release(pointer)
