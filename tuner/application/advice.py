"""Asks the daemon for the best configuration, and reports uses to it.

A caller of kernels never waits long for it, and never sees its troubles.
"""

import atexit
import contextlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from tuner.client.client import Client
from tuner.client.values import Best, Use
from tuner.model.device import DeviceIdentity
from tuner.model.errors import DaemonError, DaemonRefusedError, InputError, TunerError
from tuner.model.plan import Workload
from tuner.model.workload_name import WorkloadName

_LOG = logging.getLogger(__name__)

_ANSWER_S = 0.05  # the daemon answers within milliseconds; compiling, which follows, takes longer than this
_TELL_S = 0.2  # for telling uses; also what the end of a process may be held up
_LATER_S = 60.0  # a daemon that was in trouble is not asked again before
_EVERY_S = 60.0  # between tellings of uses
_MOST_TALLIES = 4096  # as many as the daemon counts; what is worked out after that is not counted
_AT_ONCE = 256  # uses in one request


class LaunchCount:
    """Launches of a configuration: a launch adds to ``count`` and does nothing else."""

    __slots__ = ("count", "told")

    def __init__(self) -> None:
        self.count = 0
        self.told = 0


class Advisor:
    """Asks the daemon, and reports uses once a minute and at the end of the process.

    Args:
        connect: makes a client with a time-out in seconds.
        every_s: between tellings.
    """

    def __init__(
        self,
        connect: Callable[[float], Client] = lambda timeout_s: Client(timeout_s=timeout_s),
        every_s: float = _EVERY_S,
    ) -> None:
        self._connect = connect
        self._every_s = every_s
        self._not_before_s = -float("inf")
        self._said = False
        self._devices: dict[str, str] = {}
        self._tallies: dict[Use, LaunchCount] = {}
        self._lock = threading.Lock()
        self._telling = threading.Lock()
        self._ended = threading.Event()
        self._process = 0

    def best(
        self, workload: Workload, device: DeviceIdentity, objective: str, *, count: float
    ) -> Best | None:
        """The daemon's answer for a workload alone, with clocks as found; None without one.

        Args:
            workload: the kernel at its problem, with its batch.
            device: the GPU; the daemon may know it by another number.
            objective: ``time`` or ``energy``.
            count: uses of the answer; 0 for one that is only looked at.
        """
        use = self._use(workload, device, objective)
        if use is None:
            return None
        try:
            return self._connect(_ANSWER_S).best(
                *use.workloads, objective=objective, device=use.device, clocks_as_found=True, count=count
            )
        except TunerError as error:
            self._note(error)
            return None

    def tally(self, workload: Workload, device: DeviceIdentity) -> LaunchCount:
        """Where launches for which ``best`` was asked with a count of one are counted."""
        use = self._use(workload, device, "time") if self._devices else None
        with self._lock:
            if use is None or (use not in self._tallies and len(self._tallies) >= _MOST_TALLIES):
                return LaunchCount()
            if self._process != os.getpid():  # the first one, also after a fork
                self._process = os.getpid()
                self._tallies.clear()
                threading.Thread(target=self._tell_now_and_then, name="tuner-uses", daemon=True).start()
                atexit.register(self.tell)
            tally = self._tallies.setdefault(use, LaunchCount())
            tally.told += 1  # the daemon counted the question
            return tally

    def tell(self) -> None:
        """Report new uses to the daemon; failed reports are repeated next time."""
        if self._process != os.getpid():  # a fork: what was counted before it is its parent's to tell
            return
        with self._telling, contextlib.suppress(TunerError):
            with self._lock:
                counted = [(use, tally, tally.count - tally.told) for use, tally in self._tallies.items()]
            new = iter([(use, tally, uses) for use, tally, uses in counted if uses > 0])
            while batch := list(itertools.islice(new, _AT_ONCE)):
                self._connect(_TELL_S).used(*(replace(use, count=float(uses)) for use, _, uses in batch))
                with self._lock:
                    for _, tally, uses in batch:
                        tally.told += uses

    def close(self) -> None:
        """Tell what there is, and nothing more after that."""
        self.tell()
        self._ended.set()
        atexit.unregister(self.tell)

    def _tell_now_and_then(self) -> None:
        while not self._ended.wait(self._every_s):
            self.tell()

    def _use(self, workload: Workload, device: DeviceIdentity, objective: str) -> Use | None:
        """A question as the daemon counts it; None where it has not that GPU, or there is no daemon."""
        if time.monotonic() < self._not_before_s:
            return None
        if device.uuid not in self._devices:
            self._look()
        if device.uuid not in self._devices:
            return None
        spec = str(WorkloadName.parse(str(workload)).with_batch(workload.batch))
        return Use((spec,), objective, self._devices[device.uuid], None, clocks_as_found=True)

    def _look(self) -> None:
        """Learn by which names the daemon knows its GPUs."""
        try:
            client = self._connect(_ANSWER_S)
            path = client.address.path
            if path is not None and not path.exists():
                return  # most machines have no daemon: nothing to say
            rows = client.status().get("devices", [])
            self._devices = {str(row["uuid"]): str(row["spec"]) for row in rows}
        except (TunerError, OSError) as error:
            self._note(error)
        except (LookupError, TypeError) as error:
            self._note(DaemonError(f"its status is invalid: {error!r}"))

    def _note(self, error: Exception) -> None:
        """Say once what the trouble is; a daemon in trouble is left alone for a while."""
        if isinstance(error, InputError | DaemonRefusedError):
            _LOG.debug("the daemon gave no answer: %s", error)
            return
        self._not_before_s = time.monotonic() + _LATER_S
        level = logging.DEBUG if self._said else logging.INFO
        self._said = True
        _LOG.log(level, "configurations are chosen without the daemon: %s", error)
