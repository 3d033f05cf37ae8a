"""Power around a program as sensors show it: what tests trace, with the truth."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tuner.power.base import ProgramTimeline, Response, Sample, SensorInfo

Array = npt.NDArray[np.float64]

FINE_S = 0.0005  # resolution of the power behind the sensors
TICK_S = 0.1
TICK_SIGMA_S = 0.0013  # as an H200's counter is dated by polling
COUNTER = SensorInfo(
    *("counter", "counter", "gpu", TICK_S),
    resolution=0.001,
    response=Response("lag", capacitance_s=0.0146, delay_s=-0.0058, origin="calibrated"),
)
_TICK_BEFORE_S = 0.005  # the program starts so long after a tick was seen


@dataclass(frozen=True)
class Power:
    """True power: steps of (time, watts) from time 0 on; a program from ``start_s`` to ``end_s``."""

    steps: Sequence[tuple[float, float]]
    start_s: float
    end_s: float
    until_s: float

    def line(self, idle_s: float) -> ProgramTimeline:
        """The timeline of its recording."""
        return ProgramTimeline(self.start_s - idle_s, self.start_s, self.end_s, self.until_s)

    def times(self) -> Array:
        """Points of time, ``FINE_S`` apart, of the middles of which the power is known."""
        return np.arange(0.0, self.until_s + 1.0, FINE_S)

    def watts(self) -> Array:
        """Power from each point of time on."""
        at, watts = np.array(self.steps, dtype=np.float64).T
        return np.asarray(watts[np.searchsorted(at, self.times() + FINE_S / 2.0) - 1])

    def joules(self) -> float:
        """True energy of the program."""
        return self.energy(self.end_s) - self.energy(self.start_s)

    def energy(self, time_s: float) -> float:
        """True energy from time 0 on."""
        edges = [at for at, _ in self.steps] + [np.inf]
        return float(
            sum(max(0.0, min(time_s, b) - a) * w for (a, w), b in zip(self.steps, edges[1:], strict=True))
        )

    def shown(self, response: Response) -> Array:
        """What a sensor without noise shows at each point of time."""
        power = self.watts()
        if response.capacitance_s:
            from scipy.signal import lfilter  # noqa: PLC0415 - takes half a second, of one process

            kept = float(np.exp(-FINE_S / response.capacitance_s))
            power = lfilter([0.0, 1.0 - kept], [1.0, -kept], power, zi=[power[0]])[0]
        elif response.window_s:
            wide = round(response.window_s / FINE_S)
            energy = np.cumsum(np.concatenate((np.full(wide + 1, power[0]), power)))
            power = (energy[wide:] - energy[:-wide])[:-1] / wide
        return np.asarray(np.interp(self.times() - response.delay_s, self.times(), power))


def after_s(info: SensorInfo) -> float:
    """How long a recording goes on after a program."""
    return info.response.memory_s + 6.0 * info.period_s + 0.3


def samples_of(power: Power, info: SensorInfo, noise_w: float = 0.0, seed: int = 7) -> list[Sample]:
    """Samples of a power reading from 0 on, every period."""
    rng = np.random.default_rng(seed)
    times = np.arange(rng.uniform(0.0, info.period_s), power.until_s, info.period_s)
    watts = np.interp(times, power.times(), power.shown(info.response))
    watts += rng.normal(0.0, noise_w, len(times)) if noise_w else 0.0
    return [Sample(float(t), float(w)) for t, w in zip(times, watts, strict=True)]


def ticks_of(power: Power, idle_s: float, info: SensorInfo = COUNTER, seed: int = 7) -> list[Sample]:
    """Ticks of a counter as a recorder takes them: two while idle, two before and two after, and one."""
    rng = np.random.default_rng(seed)
    first_s = power.start_s - _TICK_BEFORE_S
    times = np.arange(first_s % TICK_S, power.until_s, TICK_S)
    energy = np.concatenate(([0.0], np.cumsum(power.shown(info.response)) * FINE_S))[:-1]
    joules = np.interp(times, power.times(), energy)
    before = int(np.argmin(np.abs(times - first_s)))
    early = [int(np.searchsorted(times, power.start_s - share * idle_s)) for share in (1.0, 0.5)]
    after = int(np.searchsorted(times, power.end_s))
    taken = sorted({*early, before - 1, before, after, after + 1, len(times) - 1})
    half_s = TICK_SIGMA_S * 3.0**0.5
    return [
        Sample(float(times[i] + rng.uniform(-half_s, half_s)), float(joules[i]), TICK_SIGMA_S) for i in taken
    ]
