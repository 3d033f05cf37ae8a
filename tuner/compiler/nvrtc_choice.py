"""Chooses the NVRTC library for an architecture: the newest that supports it."""

import logging
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.compiler import nvrtc
from tuner.compiler.cubin_cache import CubinCache
from tuner.model.errors import ChildError, CompilerUnavailableError
from tuner.system.processes import Child

_log = logging.getLogger(__name__)

SERVER = "tuner.compiler.nvrtc:CompileServer"
"""What loads a library in a child."""

_TIMEOUT_S = 60.0  # to load a library from a cold disk


@dataclass(frozen=True)
class Library:
    """An NVRTC library.

    Attributes:
        path: file, or name the dynamic loader knows.
        size: bytes of the file, which tell builds of one version apart; 0 for a name.
        version: e.g. ``12.9``.
        architectures: what it compiles for, e.g. ``(50, 52, ...)``.
    """

    path: str
    size: int
    version: str
    architectures: tuple[int, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """The version as numbers."""
        return tuple(map(int, self.version.split(".")))


def choose(
    architecture: str, libraries: Sequence[str | Path] | None, cache: CubinCache, server: str = SERVER
) -> Library:
    """The newest library that serves an architecture.

    Args:
        architecture: e.g. ``sm_90``.
        libraries: paths or loader names to choose from; those found on this machine if None.
        cache: remembers what each library serves, so that none is loaded to find out again.
        server: what loads a library in a child.

    Raises:
        CompilerUnavailableError: none serves it; the message says what each serves.
    """
    number = re.fullmatch(r"sm_(\d+)[af]?", architecture)
    if number is None:
        raise CompilerUnavailableError(f"{architecture!r} is not a real architecture such as sm_90")
    wanted = int(number[1])
    known = described(nvrtc.library_files() if libraries is None else libraries, cache, server)
    if libraries is None and not any(wanted in library.architectures for library in known):
        known += described(nvrtc.LOADER_NAMES, cache, server)
    serving = [library for library in known if wanted in library.architectures]
    if not serving:
        found = "; ".join(
            f"{library.path} ({library.version}) serves " + " ".join(f"sm_{a}" for a in library.architectures)
            for library in known
        )
        raise CompilerUnavailableError(
            f"no NVRTC compiles for {architecture}: {found or 'none is installed'}; "
            "the package nvidia-cuda-nvrtc-cu12 serves sm_50 and up"
        )
    return max(serving, key=lambda library: library.order)


def described(libraries: Iterable[str | Path], cache: CubinCache, server: str) -> list[Library]:
    """The libraries that load, each file once; from memory where the file has not changed."""
    known = cache.load_libraries()
    learnt = dict(known)
    found = {}
    for library in map(str, libraries):
        is_file = os.sep in library
        path = os.path.realpath(library) if is_file else library
        try:
            status = Path(path).stat() if is_file else None
            stamp = f"{path} {status.st_size} {status.st_mtime_ns}" if status else ""
            version, architectures = learnt[stamp] if stamp in learnt else _ask(path, server)
        except (OSError, CompilerUnavailableError, ChildError) as error:
            _log.info("NVRTC %s: %s", path, error)
            continue
        if status:  # what a name stands for may change unseen
            learnt[stamp] = version, architectures
        found[path] = Library(path, status.st_size if status else 0, version, architectures)
    if learnt != known:
        cache.store_libraries(learnt)
    return list(found.values())


def _ask(path: str, server: str) -> tuple[str, tuple[int, ...]]:
    """Load a library in a child, which may crash, and have it describe itself."""
    with Child(server, path, name=path) as child:
        version, architectures = child.call("describe", timeout_s=_TIMEOUT_S)
        return version, architectures
