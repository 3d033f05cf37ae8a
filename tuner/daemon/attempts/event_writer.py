"""What a job's process tells its daemon: lines into a pipe, which never hold the measuring up for long."""

import math
import os
import select
import time
from collections.abc import Mapping
from typing import Any

from tuner.daemon.attempts.messages import SPENT, Ending, ending_line, line
from tuner.model.objective import UNITS
from tuner.search.driver import TrialEvent

_COMPILED_EVERY_S = 0.2  # as often as somebody watching can see
_WAIT_S = 0.5  # for a daemon that is slow to read, before news is lost; trials are in the database anyway
_ENDING_WAIT_S = 5.0  # for the last line, on which more depends
_LONGEST_SENTENCE = 2000  # characters
_ANSWER = (
    *("configurations", "clock_mhz", "time_s", "time_s_uncertainty"),
    *("energy_j", "energy_j_uncertainty", "bursts", "flags"),
)


class Teller:
    """Writes events into a pipe; one that is full for too long, or closed, loses them.

    Args:
        pipe: descriptor of its end; made non-blocking.
        objective: name of the objective whose costs are told.
    """

    def __init__(self, pipe: int, objective: str) -> None:
        self._pipe = pipe
        self._unit = UNITS.get(objective, "")
        self._torn = False  # half a line was written
        self._full = False
        self._compiled_s = -math.inf
        os.set_blocking(pipe, False)

    def compiled(self, done: int, total: int) -> None:
        """So many of the configurations are compiled."""
        now_s = time.monotonic()
        if done == total or now_s - self._compiled_s >= _COMPILED_EVERY_S:
            self._compiled_s = now_s
            self._tell("compiled", {"done": done, "total": total})

    def measured(self, event: TrialEvent) -> None:
        """A trial has ended, and is stored."""
        self._tell(
            "trial",
            {
                "number": event.number,
                "status": event.measurement.status.value,
                "cost": _finite(event.cost),
                "best": _finite(event.best_cost),
                "unit": self._unit,
                "joules": event.joules,
                "watts": None if event.measurement.energy is None else event.measurement.energy.watts,
                "clock_mhz": event.measurement.clock_mhz,
                "expected": event.expected,
                "confirming": event.confirming,
            },
        )

    def told(self, sentence: str) -> None:
        """What the policy says of itself."""
        self._tell("told", {"sentence": sentence[:_LONGEST_SENTENCE]})

    def run(self, number: int, resumed: int) -> None:
        """The run in the database, and the trials it has from earlier attempts."""
        self._tell("run", {"run": number, "resumed": resumed})

    def spent(self, seconds: float, joules: float) -> None:
        """What the attempt has taken so far."""
        self._tell(SPENT, {"seconds": seconds, "joules": joules})

    def answer(self, document: Mapping[str, Any]) -> None:
        """What was found, in short; ``document`` is the run's."""
        best = document["best"]
        summary = None if best is None else {name: best[name] for name in _ANSWER}
        words = ("status", "objective", "modelled", "against_default")
        self._tell("answer", {"summary": {**{name: document[name] for name in words}, "best": summary}})

    def end(self, ending: Ending) -> None:
        """The last line; the pipe is closed."""
        self._write(ending_line(ending), _ENDING_WAIT_S)
        self.close()

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._pipe)

    def _tell(self, kind: str, data: Mapping[str, Any]) -> None:
        self._write(line(kind, data), 0.0 if self._full else _WAIT_S)

    def _write(self, text: bytes, wait_s: float) -> None:
        """Write a line whole, or lose it: after a full wait the next ones are lost without one."""
        rest = memoryview(b"\n" + text if self._torn else text)
        deadline_s = time.monotonic() + wait_s
        begun = False
        while rest:
            try:
                count = os.write(self._pipe, rest)
            except BlockingIOError:
                if not self._ready(deadline_s):
                    self._full, self._torn = True, self._torn or begun
                    return
                continue
            except OSError:  # the daemon is gone, and this process will be
                return
            rest, begun = rest[count:], True
        self._full = self._torn = False

    def _ready(self, deadline_s: float) -> bool:
        """Wait until there is room in the pipe, at most until the deadline."""
        left_s = deadline_s - time.monotonic()
        watch = select.poll()
        watch.register(self._pipe, select.POLLOUT)
        return left_s > 0 and bool(watch.poll(1000.0 * left_s))


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
