"""NVIDIA's libraries by their C functions: CuPy's bindings offer neither stream capture nor every setting."""

import ctypes
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from peer import Calls


class VendorLibrary:
    """A library: the copy that this process has loaded already, else the system's, else a Python package's.

    Raises:
        OSError: it is nowhere.
    """

    def __init__(self, stem: str, versions: Sequence[int]) -> None:
        maps = Path("/proc/self/maps").read_text().splitlines()
        loaded = sorted({line.split()[-1] for line in maps if f"/{stem}.so" in line})
        self._library: ctypes.CDLL | None = None
        packaged = [
            str(path)
            for folder in sys.path
            for path in sorted(Path(folder).glob(f"nvidia/*/lib/{stem}.so.*"))
        ]
        for name in [*loaded, *(f"{stem}.so.{version}" for version in versions), *packaged]:
            with suppress(OSError):
                self._library = ctypes.CDLL(name)
                break
        if self._library is None:
            raise OSError(f"{stem} was not found")

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            RuntimeError: it is not there, or answers anything but 0.
        """
        function = getattr(self._library, name, None)
        if function is None:
            raise RuntimeError(f"{name} is not in this version")
        status = function(*arguments)
        if status:
            raise RuntimeError(f"{name} answers {status}")


def address(array: Any, offset_bytes: int = 0) -> ctypes.c_void_p:
    """Of a CuPy array's data."""
    return ctypes.c_void_p(array.data.ptr + offset_bytes)


def launched(cp: Any, launch: Callable[[int, int], None], calls: Calls) -> Callable[[], None]:
    """What runs all chunks: a call on the default stream, or a graph of calls that begin and end together.

    ``launch`` is given the number of a chunk and the stream to use.
    """
    if not calls.chunks:
        return lambda: launch(0, 0)
    chains = [cp.cuda.Stream(non_blocking=True) for _ in range(calls.streams)]
    events = [cp.cuda.Event(disable_timing=True) for _ in chains]
    first = chains[0]
    first.begin_capture()
    try:
        events[0].record(first)
        for chain in chains[1:]:
            chain.wait_event(events[0])
        for chunk in range(calls.chunks):
            launch(chunk, chains[chunk % calls.streams].ptr)
        for chain, event in zip(chains[1:], events[1:], strict=True):
            event.record(chain)
            first.wait_event(event)
    except RuntimeError:
        with suppress(RuntimeError):
            first.end_capture()  # a call that cannot be captured spoils the capture, and no more
        raise
    graph = first.end_capture()
    graph.upload()
    return graph.launch  # type: ignore[no-any-return]
