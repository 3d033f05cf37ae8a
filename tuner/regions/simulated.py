"""A simulated GPU in real time: it computes while a region is open, and is idle otherwise."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict

import numpy.random  # noqa: F401 - now, not first in a recording's thread: a fork would cut that short

from tuner.devices import power
from tuner.devices.gpus import gpu_model
from tuner.devices.simulated.round_model import idle_watts, load_watts
from tuner.interfaces.power import PowerSampler
from tuner.model.errors import InputError, UnknownNameError

_LEAST_S = 0.001  # shorter pieces are joined to one at their mean power
_HISTORY_S = 3.0  # of idle power before the first region
_PIECES = 8192  # that are kept: more than sensors look back


class SimulatedLoad:
    """Power over real time: that of the model's load while regions are open, else idle power.

    Implements ``tuner.interfaces.power.PowerSource`` and what a recording tells of regions.

    Args:
        name: of a simulated GPU, with or without ``sim:``.
        now: the clock, in seconds.

    Raises:
        UnknownNameError: no such GPU.
    """

    def __init__(self, name: str, now: Callable[[], float] = time.monotonic) -> None:
        self.gpu = gpu_model(name)
        mhz = self.gpu.clocks_mhz[0]
        self.idle_w, self.load_w = idle_watts(self.gpu, mhz), load_watts(self.gpu, mhz)
        self._now = now
        self._lock = threading.Lock()
        self._pieces: deque[tuple[float, float, float]] = deque(maxlen=_PIECES)
        self._since_s = now() - _HISTORY_S
        self._open = 0
        self._seen = False

    def begin(self, time_s: float) -> None:
        """A region begins."""
        with self._lock:
            self._pass(time_s)
            self._open += 1

    def end(self, time_s: float) -> None:
        """A region ends."""
        with self._lock:
            self._pass(time_s)
            self._open -= 1

    def now_s(self) -> float:
        """Present time; three seconds ago until ``seen``, so that sensors opened then have a history."""
        return self._now() if self._seen else self._since_s

    def seen(self) -> None:
        """All sensors are opened."""
        self._seen = True

    def power_segments(self, since_s: float) -> list[tuple[float, float, float]]:
        """(start, end, watts) pieces from ``since_s`` to now; before what is kept the GPU was idle."""
        with self._lock:
            self._pass(self._now())
            known = [(max(start, since_s), end, w) for start, end, w in self._pieces if end > since_s]
        first_s = known[0][0] if known else self._since_s
        return [(since_s, first_s, self.idle_w), *known] if since_s < first_s else known

    def _pass(self, time_s: float) -> None:
        """Let time pass at the present power."""
        begin_s, self._since_s = self._since_s, max(self._since_s, time_s)
        watts = self.load_w if self._open > 0 else self.idle_w
        if self._since_s <= begin_s:
            return
        if self._pieces and self._since_s - self._pieces[-1][0] < _LEAST_S:
            start, end, before_w = self._pieces.pop()
            joules = before_w * (end - start) + watts * (self._since_s - begin_s)
            self._pieces.append((start, self._since_s, joules / (self._since_s - start)))
        else:
            self._pieces.append((begin_s, self._since_s, watts))


def simulated_samplers(load: SimulatedLoad, sensor: str | None = None) -> list[PowerSampler]:
    """The samplers of a simulated GPU: its best reading of power, and its counter.

    Args:
        load: the GPU's power.
        sensor: a reading by its name, instead.

    Raises:
        InputError: it has no such reading, or none at all.
    """
    models = {f"simulated-{model.name}": model for model in load.gpu.sensors}
    if not models:
        raise InputError(f"device='sim:{load.gpu.name}' has no power sensor")
    if sensor is not None and sensor not in models:
        raise UnknownNameError(f"sensor={sensor!r}: choose from {', '.join(models)}")
    if sensor is not None:
        chosen = [models[sensor]]
    else:
        counters = [model for model in models.values() if model.kind == "counter"]
        chosen = [*counters[:1], *[model for model in models.values() if model.kind != "counter"][:1]]
    samplers = [power.simulated_sampler(load, asdict(model)) for model in chosen]
    load.seen()
    return samplers
