"""The backend of Triton: Python files, compiled by the interpreter that has Triton and what they import."""

import sys
import threading
from pathlib import Path

from tuner.compiler.backend import Backend, CompileChildren, in_one_line, label
from tuner.compiler.nvrtc import Output
from tuner.compiler.triton_server import digest
from tuner.model.errors import ChildError, CompileError, CompilerUnavailableError
from tuner.model.plan import Stage

_CHILD_BYTES = 2**29  # of a child: Triton, ptxas beside it, and perhaps PyTorch
_MOST_CHILDREN = 12
_KEY_TIMEOUT_S = 60.0  # to import what a file imports from a cold disk


class TritonBackend(Backend):
    """Compiles jitted functions; a stage may name the interpreter as the command that builds it.

    Children are those of all architectures of this process, as what they import takes seconds.
    """

    SERVER = "tuner.compiler.triton_server:TritonServer"
    IDLE_S = 60.0

    def __init__(self, architecture: str, jobs: int, *, idle_s: float | None = None) -> None:
        super().__init__(architecture, jobs, idle_s=idle_s)
        self._pools: dict[str, CompileChildren] = {}
        self._keys: dict[tuple[str, ...], tuple[str, ...] | str] = {}
        self._lock = threading.Lock()
        self._closed = False

    @property
    def version(self) -> str:
        """Nothing: interpreters may differ, and a key has the version of its own."""
        return ""

    def refused(self, stage: Stage) -> CompileError | None:
        """Return the error of a stage where Triton is not installed, or its file cannot be run, or None."""
        known = self._known(stage)
        return CompileError(f"{label(stage)}: {known}") if isinstance(known, str) else None

    def key(self, stage: Stage) -> tuple[object, ...]:
        """Triton's own key: its version, the function with all that it calls, ptxas."""
        return tuple(self._known(stage))

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

    def lasting(self, output: Output) -> bool:
        """Return False of what fails: memory, a full disk or a function of the user's may be why."""
        return output.cubin is not None

    def close(self) -> None:
        """Leave the children to other architectures, or end them."""
        super().close()
        with self._lock:
            self._closed = True
            pools, self._pools = self._pools, {}
        for python in pools:
            _leave(python)

    def _known(self, stage: Stage) -> tuple[str, ...] | str:
        """The key of a stage's function, or why there is none; asked for once."""
        about = (stage.source.path, stage.source.sha256, stage.entry, _python(stage))
        with self._lock:
            known = self._keys.get(about)
        if known is None:
            known = self._asked_key(stage)
            with self._lock:
                self._keys[about] = known
        return known

    def _asked_key(self, stage: Stage) -> tuple[str, ...] | str:
        children = self._children_of(stage)
        try:
            answer = children.call("key", *_about(stage), self._architecture, timeout_s=_KEY_TIMEOUT_S)
        except (CompileError, ChildError, CompilerUnavailableError) as error:
            return in_one_line(error)
        return tuple(map(str, answer)) if isinstance(answer, tuple) else repr(answer)

    def _children_of(self, stage: Stage) -> CompileChildren:
        python = _python(stage)
        with self._lock:
            if self._closed:
                raise CompilerUnavailableError("this compiler is closed")
            if python not in self._pools:
                self._pools[python] = _joined(python)
            return self._pools[python]


# --- The children of an interpreter: they serve all architectures, as long as one backend has them.

_SHARED: dict[str, tuple[CompileChildren, int]] = {}
_OF_SHARED = threading.Lock()


def _joined(python: str) -> CompileChildren:
    with _OF_SHARED:
        children, users = _SHARED.get(python, (None, 0))
        if children is None:
            most = max(1, min(_MOST_CHILDREN, _free_bytes() // _CHILD_BYTES))
            named = python or sys.executable
            children = CompileChildren(TritonBackend.SERVER, named, most, TritonBackend.IDLE_S, python)
        _SHARED[python] = children, users + 1
        return children


def _leave(python: str) -> None:
    with _OF_SHARED:
        children, users = _SHARED.pop(python)
        if users > 1:
            _SHARED[python] = children, users - 1
            return
    children.close()


def _free_bytes() -> int:
    """Memory that may be taken without others losing theirs."""
    for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return _CHILD_BYTES


def _python(stage: Stage) -> str:
    """The interpreter that a stage names; empty for this one."""
    return stage.build[0] if stage.build else ""


def _about(stage: Stage) -> tuple[str, str, str]:
    """The file of a stage, a digest of the text that it must have, and the function."""
    return str(Path(stage.source.path).absolute()), digest(stage.source.text), stage.entry


def _option(text: str) -> tuple[str, bool | int]:
    """An option of Triton from its text, as ``num_warps=4``."""
    name, _, value = text.partition("=")
    return name, value == "true" if value in ("true", "false") else int(value)
