"""SIGTERM in a job's process: an order to stop that is heeded once, and not in the middle of storing.

Measuring that gives way: what was measured while others were on the GPU counts for nothing.
"""

import contextlib
import logging
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from tuner.daemon.attempts.gpu_users import Watcher
from tuner.errors import Interrupted
from tuner.interfaces import Device, Measurer
from tuner.model import Measurement, Plan, Trial, Workload

_LOG = logging.getLogger(__name__)


class Stopping:
    """Whether the process is to stop; the order is raised as ``KeyboardInterrupt``, like Ctrl-C.

    One that is swallowed on its way, as in a destructor, is raised again by the next ``check``.

    Attributes:
        asked: True from the first SIGTERM on.
        at_once: called when it comes, wherever the program is; must neither wait nor raise.
    """

    def __init__(self) -> None:
        self.asked = False
        self.at_once: Callable[[], None] = lambda: None
        self._deaf = 1  # until ``listen``

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """From here on SIGTERM is noted; what a terminal sends is not: the daemon decides on that."""
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        before = {number: signal.getsignal(number) for number in numbers}
        signal.signal(signal.SIGTERM, self._stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # whatever the daemon does
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def listen(self) -> None:
        """From here on an order to stop is raised where the program is; one that has come is raised now.

        Raises:
            KeyboardInterrupt: it has.
        """
        self._deaf -= 1
        self.check()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """An order that comes meanwhile is heeded at the end of the block."""
        asked_before = self.asked
        self._deaf += 1
        try:
            yield
        finally:
            self._deaf -= 1
        if self.asked and not asked_before:
            self._raise()

    def done(self) -> None:
        """From here on an order changes nothing: there is nothing left to stop."""
        self._deaf += 1

    def check(self) -> None:
        """Stop here if that was asked for.

        Raises:
            KeyboardInterrupt: it was.
        """
        if self.asked:
            self._raise()

    def sleep(self, seconds: float) -> None:
        """Wait; an order to stop ends that."""
        self.check()
        time.sleep(seconds)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        first, self.asked = not self.asked, True
        if first:
            self.at_once()
            self._raise()

    def _raise(self) -> None:
        if not self._deaf:
            raise KeyboardInterrupt("told to stop")


class GuardedMeasurer:
    """Wraps a measurer: looks before and after each trial who is on the GPU, and stops where others are.

    Args:
        measurer: measures; stays the caller's.
        device: where it measures.
        stopping: whether the process is to stop.
        watcher: who is on the GPU; None where nobody is to be looked for.
        spent: hears after each measurement what the attempt has taken: seconds of windows, and joules.

    Attributes:
        others: who came; empty while nobody has.
        joules: that were spent, as far as they were measured.
    """

    def __init__(
        self,
        measurer: Measurer,
        device: Device,
        stopping: Stopping,
        watcher: Watcher | None,
        spent: Callable[[float, float], None],
    ) -> None:
        self._inner = measurer
        self._gpu = device
        self._stopping = stopping
        self._watcher = watcher
        self._spent = spent
        self._told = ""
        self.others = ""
        self.joules = 0.0

    @property
    def windows_s(self) -> float:
        """See ``Measurer.windows_s``."""
        return self._inner.windows_s

    @property
    def notices(self) -> tuple[str, ...]:
        """See ``Measurer.notices``."""
        return self._inner.notices

    def measure(self, trial: Trial, plans: Sequence[Plan]) -> Measurement:
        """See ``Measurer.measure``.

        Raises:
            Interrupted: others were on the GPU before or after; the clock is given back, the worker gone.
            KeyboardInterrupt: the process is to stop.
        """
        self._stopping.check()
        self._give_way()
        measurement = self._inner.measure(trial, plans)
        self._took(measurement.energy_total_j)
        self._give_way()
        return measurement

    def measure_idle(self, clock_mhz: int | None) -> float:
        """See ``Measurer.measure_idle``; raises as ``measure`` does."""
        self._stopping.check()
        spent_j = self._inner.measure_idle(clock_mhz)
        self._took(spent_j)
        self._give_way()
        return spent_j

    def with_idle(self, measurement: Measurement, clock_mhz: int | None) -> Measurement:
        """See ``Measurer.with_idle``."""
        return self._inner.with_idle(measurement, clock_mhz)

    def recall(self, trials: Sequence[tuple[Trial, Measurement]], workloads: Sequence[Workload]) -> None:
        """See ``Measurer.recall``."""
        self._inner.recall(trials, workloads)

    def close(self) -> None:
        """See ``Measurer.close``."""
        self._inner.close()

    def leave(self) -> None:
        """Give back the clock and the GPU; nothing is measured afterwards."""
        self._inner.close()
        self._gpu.close()

    def _took(self, joules: float) -> None:
        self.joules += joules
        self._spent(self.windows_s, self.joules)

    def _give_way(self) -> None:
        """Stop where others are on the GPU."""
        if self._watcher is None:
            return
        identity = self._gpu.identity
        seen = self._watcher.look(identity.spec, identity.uuid, self._gpu.own_processes())
        if seen.busy:
            self.others = seen.why
            self.leave()
            raise Interrupted(seen.why)
        if seen.why != self._told:
            self._told = seen.why
            _LOG.warning("nobody tells who else is on the GPU: %s", seen.why)
