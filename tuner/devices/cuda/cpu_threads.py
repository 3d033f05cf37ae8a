"""How many threads of the CPU the BLAS of SciPy computes with."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from tuner.devices.cuda.launches import LaunchRefusedError
from tuner.model.trial import Status

_WHEEL = "scipy.libs"  # where SciPy's wheels keep their BLAS; NumPy's have one of their own
_INSTALL = "pip install threadpoolctl, or gpu-tuner[hybrid]"


class CpuThreads:
    """Sets the threads of SciPy's BLAS, and says what came of it.

    Args:
        processors: that this process may use; those of its affinity if not given.
        find: gives threadpoolctl's controllers of that library; asks threadpoolctl if not given.

    Attributes:
        unknown: why nobody tells how many threads there are; empty where it is known.
    """

    def __init__(
        self, processors: int | None = None, find: Callable[[], Sequence[Any]] | None = None
    ) -> None:
        self._processors = processors or len(os.sched_getaffinity(0))
        self._find = find or _libraries
        self._libraries: Sequence[Any] | None = None
        self._in_use = -1
        self.unknown = ""

    def use(self, asked: int) -> int | None:
        """Have the BLAS compute with so many threads, 0 for as many as this process may use.

        Returns:
            How many there are; None where nobody tells.

        Raises:
            LaunchRefusedError: there are fewer processors, or the BLAS has fewer threads, or nothing sets
                them.
        """
        if asked > self._processors:
            raise _refused(
                f"asks for {asked} threads of the CPU, and this process may use {self._processors}"
                f" processor{'' if self._processors == 1 else 's'}"
            )
        libraries = self._found()
        if not libraries:
            if asked == 0:
                return None
            raise _refused(f"the threads of the CPU cannot be set: {self.unknown}")
        wanted = asked or self._processors
        if wanted != self._in_use:
            for library in libraries:
                library.set_num_threads(wanted)
            self._in_use = wanted
        found: int = min(library.num_threads for library in libraries)
        if found < asked:
            raise _refused(f"asks for {asked} threads of the CPU, and {self.name} computes with {found}")
        return found

    @property
    def name(self) -> str:
        """The BLAS, for people."""
        known = dict.fromkeys(f"{one.internal_api} {one.version}" for one in self._libraries or ())
        return f"SciPy's BLAS ({', '.join(known) or 'unknown'})"

    def _found(self) -> Sequence[Any]:
        """The library, looked for once; nothing where it is not known."""
        if self._libraries is None:
            try:
                self._libraries = self._find()
            except ImportError:
                self._libraries, self.unknown = (), _INSTALL
            else:
                self.unknown = "" if self._libraries else "threadpoolctl does not know this BLAS"
        return self._libraries


def _libraries() -> Sequence[Any]:
    import scipy.linalg.lapack  # noqa: F401, PLC0415 - loads the library that is looked for
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415 - an extra

    found = ThreadpoolController().select(user_api="blas").lib_controllers
    own = [one for one in found if _WHEEL in one.filepath]
    return own or found


def _refused(message: str) -> LaunchRefusedError:
    return LaunchRefusedError(Status.LAUNCH_ERROR, message)
