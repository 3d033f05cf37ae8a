"""The backend of Triton: Python files, compiled by the interpreter that has Triton and what they import."""

import sys
import threading
from pathlib import Path

from tuner.compiler.backend import Backend, CompileChildren, label
from tuner.compiler.nvrtc import Output
from tuner.compiler.triton_server import digest
from tuner.model.errors import ChildCrashedError, ChildTimeoutError, CompileError
from tuner.model.plan import Stage

_CHILD_BYTES = 2**29  # of a child: Triton, ptxas beside it, and perhaps PyTorch
_KEY_TIMEOUT_S = 60.0  # to import what a file imports from a cold disk


class TritonBackend(Backend):
    """Compiles jitted functions; a stage may name the interpreter as the command that builds it."""

    SERVER = "tuner.compiler.triton_server:TritonServer"
    IDLE_S = 60.0  # what a child imports takes seconds

    def __init__(self, architecture: str, jobs: int, *, idle_s: float | None = None) -> None:
        self._jobs = max(1, min(jobs, _free_bytes() // _CHILD_BYTES))
        super().__init__(architecture, self._jobs, sys.executable, idle_s=idle_s)
        self._elsewhere: dict[str, CompileChildren] = {}
        self._keys: dict[tuple[str, ...], tuple[object, ...]] = {}
        self._lock = threading.Lock()

    @property
    def version(self) -> str:
        """Nothing: interpreters may differ, and a key has the version of its own."""
        return ""

    def key(self, stage: Stage) -> tuple[object, ...]:
        """What Triton itself holds an answer by: its version, the function with all that it calls, ptxas."""
        about = (stage.source.path, stage.source.sha256, stage.entry, self._python(stage))
        with self._lock:
            if about not in self._keys:
                self._keys[about] = self._asked_key(stage)
            return self._keys[about]

    def compile(self, stage: Stage, timeout_s: float) -> Output | CompileError:
        """Compile a function for its specialisation."""
        parameters = tuple(
            (one.parameter, one.dtype, one.alignment, one.constant, one.told) for one in stage.specialisation
        )
        options = tuple(_option(text) for text in stage.options)
        try:
            return self._asked(
                *(stage, timeout_s, *_about(stage), parameters, options, self._architecture),
                children=self._children_of(stage),
            )
        except CompileError as error:
            return CompileError(f"{label(stage)}: {error}")

    def close(self) -> None:
        """End the children, those at work too; nothing is compiled afterwards."""
        super().close()
        with self._lock:
            for children in self._elsewhere.values():
                children.close()

    def _asked_key(self, stage: Stage) -> tuple[object, ...]:
        try:
            answer = self._children_of(stage).call(
                "key", *_about(stage), self._architecture, timeout_s=_KEY_TIMEOUT_S
            )
        except (CompileError, ChildTimeoutError, ChildCrashedError) as error:
            return ("no key", str(error))  # it does not compile either
        return tuple(map(str, answer)) if isinstance(answer, tuple) else ("no key", repr(answer))

    def _python(self, stage: Stage) -> str:
        return stage.build[0] if stage.build else ""

    def _children_of(self, stage: Stage) -> CompileChildren:
        python = self._python(stage)
        if not python:
            return self._children
        if python not in self._elsewhere:
            self._elsewhere[python] = CompileChildren(self.SERVER, python, self._jobs, self.IDLE_S, python)
        return self._elsewhere[python]


def _about(stage: Stage) -> tuple[str, str, str]:
    """The file of a stage, a digest of the text that it must have, and the function."""
    return str(Path(stage.source.path).absolute()), digest(stage.source.text), stage.entry


def _option(text: str) -> tuple[str, bool | int]:
    """An option of Triton from its text, as ``num_warps=4``."""
    name, _, value = text.partition("=")
    return name, value == "true" if value in ("true", "false") else int(value)


def _free_bytes() -> int:
    """Memory that may be taken without others losing theirs."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return _CHILD_BYTES
