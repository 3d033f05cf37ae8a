"""Backends: one for each language that stages are written in, with compile children of its own.

A backend decides what a child is asked, and what beside the stage an answer depends on. All else is the
compiler's: the disk cache, what is under way, and what the answers are taken for.
"""

import re
import threading
import time
from pathlib import PurePath
from typing import ClassVar

from tuner.compiler.nvrtc import Output
from tuner.model.errors import ChildCrashedError, ChildTimeoutError, CompileError, CompilerUnavailableError
from tuner.model.plan import Stage
from tuner.system.processes import Child, forget_in_forks

FATAL = re.compile(r"\b(?:error|fatal)\b")
"""Marks the lines of a compiler's log that say why there is no code."""

IDLE_S = 2.0
"""Time without work after which the last child ends: the pause between two trials, and no more."""

_BESIDE_PART = 1 / 8  # of that where another child idles too: 0.25 s, which starting one takes


class CompileChildren:
    """Children with one loaded NVRTC library each; may be used by several threads.

    A child starts when all others are busy, up to ``jobs`` of them. One that nothing is asked of ends soon
    where another idles too, else after ``idle_s``: each holds about 25 MB of its own (Linux, NVRTC 12.9).
    A forked process leaves them to its parent and starts its own.

    Args:
        idle_s: seconds without work after which the last child ends.
        python: interpreter of the children; this one if not given.
    """

    def __init__(self, server: str, library: str, jobs: int, idle_s: float, python: str = "") -> None:
        self._server = server
        self._library = library
        self._jobs = jobs
        self._idle_s = idle_s
        self._python = python
        self._closed = False
        self.forget()
        forget_in_forks(self)

    def forget(self) -> None:
        """Have no children, and no thread that ends them: at first, and in a forked process."""
        self._changed = threading.Condition()
        self._idle: list[tuple[float, Child]] = []  # with the time it fell idle, the latest last
        self._children: set[Child] = set()
        self._reaping = False

    def __len__(self) -> int:
        """Children that live."""
        with self._changed:
            return len(self._children)

    def call(self, method: str, *args: object, timeout_s: float) -> object:
        """Call a method of the server in a child that has no other work; see ``Child.call``.

        Waiting for a child counts towards no time-out.

        Raises:
            ChildError: as `Child.call`; that child is gone, the others are not touched.
            CompilerUnavailableError: these children are closed, or what the server raised.
        """
        child = self._take()
        try:
            answer: object = child.call(method, *args, timeout_s=timeout_s)
        except ChildCrashedError:  # one that lives is not to be trusted: code of a user's may have run there
            child.close(grace_s=0.0)
            raise
        else:
            return answer
        finally:
            self._give_back(child)

    def adopt(self, child: Child) -> None:
        """Have a child that was started elsewhere, with the same server and library, wait for work."""
        with self._changed:
            self._children.add(child)
        self._give_back(child)

    def close(self) -> None:
        """End all children, those at work too; none starts afterwards."""
        with self._changed:
            self._closed = True
            children = list(self._children)
            self._children.clear()
            self._idle.clear()
            self._changed.notify_all()
        for child in children:
            child.close(grace_s=0.0)

    def _take(self) -> Child:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._idle or len(self._children) < self._jobs)
            if self._closed:
                raise CompilerUnavailableError("this compiler is closed")
            if self._idle:
                return self._idle.pop()[1]  # the latest: those that idle longest are the ones to end
            child = Child(self._server, self._library, name="compiler", whole=True, python=self._python)
            self._children.add(child)
            return child

    def _give_back(self, child: Child) -> None:
        with self._changed:
            reused = child.alive and child in self._children
            if reused:
                self._idle.append((time.monotonic(), child))
                if not self._reaping:
                    self._reaping = True
                    threading.Thread(target=self._reap, name="compile-reaper", daemon=True).start()
            else:
                self._children.discard(child)
            self._changed.notify_all()  # the reaper waits here, too
        if not reused:
            child.close(grace_s=0.0)

    def _reap(self) -> None:
        """End children that have idled too long; ends itself when no child idles."""
        while True:
            with self._changed:
                if self._idle:
                    most_s = self._idle_s if len(self._idle) == 1 else _BESIDE_PART * self._idle_s
                    left_s = self._idle[0][0] + most_s - time.monotonic()
                    if left_s > 0:
                        self._changed.wait(left_s)
                        continue
                    _, child = self._idle.pop(0)
                    self._children.discard(child)
                    self._changed.notify_all()
                else:
                    self._reaping = False  # the next child that is given back begins anew
                    return
            child.close()


class Backend:
    """Compiles the stages of one language for one architecture; may be used by several threads.

    Args:
        architecture: real architecture, e.g. ``sm_90``.
        jobs: children at a time.
        library: argument of the server in a child.
        server: import path of another server than the backend's own.
        idle_s: time without work after which a child ends; the backend's own if not given.
    """

    SERVER: ClassVar[str]
    """Import path ``module:callable`` of what a compile child serves."""

    IDLE_S: ClassVar[float] = IDLE_S

    TIMEOUT_S: ClassVar[float] = 60.0
    """Longest wait for one compilation."""

    def __init__(
        self,
        architecture: str,
        jobs: int,
        library: str = "",
        *,
        server: str | None = None,
        idle_s: float | None = None,
    ) -> None:
        self._architecture = architecture
        idle_s = self.IDLE_S if idle_s is None else idle_s
        self._children = CompileChildren(server or self.SERVER, library, jobs, idle_s)

    @property
    def version(self) -> str:
        """Version of the compiler; part of every key.

        Raises:
            CompilerUnavailableError: it is not installed, or has no such architecture.
        """
        raise NotImplementedError

    def refused(self, stage: Stage) -> CompileError | None:
        """Return the error for a stage that this compiler must not be given, or None."""
        del stage
        return None

    def key(self, stage: Stage) -> tuple[object, ...]:
        """Parts that an answer depends on beside ``Stage.code``, architecture and version, for JSON."""
        del stage
        return ()

    def compile(self, stage: Stage, timeout_s: float) -> Output | CompileError:
        """Compile a stage in a child.

        Returns:
            What is cached; or an error that another try may not have.

        Raises:
            CompilerUnavailableError: the compiler itself fails, or is closed.
        """
        raise NotImplementedError

    def lasting(self, output: Output) -> bool:
        """Return True if the same stage has the same answer tomorrow, so that it is cached."""
        del output
        return True

    def another_try(self, stage: Stage, output: Output) -> Stage | None:
        """Return a stage that may compile in the place of one that does not, or None."""
        del stage, output
        return None

    def error(self, stage: Stage, output: Output) -> str:
        """The error of a stage that does not compile, in one line."""
        del stage
        return first_error(output.log)

    def close(self) -> None:
        """End the children, those at work too; nothing is compiled afterwards."""
        self._children.close()

    def _asked(
        self, stage: Stage, timeout_s: float, *args: object, children: CompileChildren | None = None
    ) -> Output | CompileError:
        """The answer of a child to ``compile`` with some arguments; its end, or a time-out, is an error."""
        try:
            answer = (children or self._children).call("compile", *args, timeout_s=timeout_s)
        except ChildTimeoutError:
            return CompileError(f"{label(stage)}: not compiled within {timeout_s:.3g} s")
        except ChildCrashedError as error:
            return CompileError(f"{label(stage)}: {in_one_line(error)}")
        if not isinstance(answer, Output):
            raise TypeError(f"a compile child answered {type(answer)}")
        return answer


def label(stage: Stage) -> str:
    """The words for a stage in messages."""
    return f"stage {stage.name!r}, {stage.entry} of {stage.source.path}"


def in_one_line(error: Exception) -> str:
    """An error, of one with a traceback what happened and with which exception."""
    first, *others = str(error).strip().splitlines()
    return ": ".join([first, *others[-1:]])


def file_name(stage: Stage) -> str:
    """Name of a stage's source, which messages have."""
    return PurePath(stage.source.path).name


def first_error(log: str) -> str:
    """The first error of a log, with file and line where the compiler states them."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if FATAL.search(line)), lines[0] if lines else "no log")
