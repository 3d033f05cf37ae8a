"""The child processes of a compiler: as many as there is work for, and none when there is none."""

import threading
import time

from tuner.model.errors import CompilerUnavailableError
from tuner.system.processes import Child


class CompileChildren:
    """Children with one loaded NVRTC library each; may be used by several threads.

    A child starts when all others are busy, up to ``jobs`` of them, and ends when nothing has been asked of
    it for ``idle_s``: each holds about 30 MB of its own (Linux, NVRTC 12.9).

    Args:
        server: ``module:callable`` that makes of a library what compiles.
        library: path, or a name the dynamic loader knows.
        jobs: children at a time.
        idle_s: seconds without work after which a child ends.
    """

    def __init__(self, server: str, library: str, jobs: int, idle_s: float) -> None:
        self._server = server
        self._library = library
        self._jobs = jobs
        self._idle_s = idle_s
        self._changed = threading.Condition()
        self._idle: list[tuple[float, Child]] = []  # with the time it fell idle, the latest last
        self._children: set[Child] = set()
        self._reaping = False
        self._closed = False

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
            return answer
        finally:
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
            child = Child(self._server, self._library, name="compiler")
            self._children.add(child)
            return child

    def _give_back(self, child: Child) -> None:
        with self._changed:
            kept = child.alive and child in self._children
            if kept:
                self._idle.append((time.monotonic(), child))
                if not self._reaping:
                    self._reaping = True
                    threading.Thread(target=self._reap, name="compile-reaper", daemon=True).start()
            else:
                self._children.discard(child)
            self._changed.notify_all()  # the reaper waits here, too
        if not kept:
            child.close(grace_s=0.0)

    def _reap(self) -> None:
        """End children that have idled too long; ends itself when no child idles."""
        while True:
            with self._changed:
                if self._idle:
                    left_s = self._idle[0][0] + self._idle_s - time.monotonic()
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
