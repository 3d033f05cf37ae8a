"""Stated curves of time and power over the clock, and trials that follow them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from recorded_samples import GPU, measured, workload, written

from tuner.model.plan import Configuration
from tuner.model.trial import Measurement, Trial
from tuner.recordings.values import RecordedSpace


@dataclass(frozen=True)
class StatedLine:
    """Time and power of a round over the clock.

    Attributes:
        memory_s: part of the time that the clock does not change.
        cores_s_mhz: part of the cores: seconds times MHz.
        exponent: of the norm that joins the two; 1 for their sum.
        static_w: power that the clock does not change.
        switched_w: power of what switches, at the highest clock.
        knee_mhz: voltage is constant below and rises linearly above.
        low: voltage below the knee, by that at the highest clock.
        clocks_mhz: supported, highest first.
    """

    memory_s: float
    cores_s_mhz: float
    exponent: float
    static_w: float
    switched_w: float
    knee_mhz: float
    low: float
    clocks_mhz: tuple[int, ...] = tuple(range(1980, 344, -15))

    def time_s(self, mhz: float) -> float:
        """Seconds of a round."""
        parts = self.memory_s**self.exponent + (self.cores_s_mhz / mhz) ** self.exponent
        return float(parts ** (1 / self.exponent))

    def watts(self, mhz: float) -> float:
        """Mean power of a round."""
        top = self.clocks_mhz[0]
        volts = self.low + (1 - self.low) * max(0.0, (mhz - self.knee_mhz) / (top - self.knee_mhz))
        return self.static_w + self.switched_w * mhz / top * volts**2

    def joules(self, mhz: float) -> float:
        """Energy of a round."""
        return self.watts(mhz) * self.time_s(mhz)

    def measurement(self, mhz: int, slower: float = 1.0, noise: float = 0.0) -> Measurement:
        """A trial at a clock; ``noise`` is relative, of its joules."""
        time_s = slower * self.time_s(mhz)
        one = measured(time_s, slower * self.joules(mhz) * (1 + noise))
        assert one.energy is not None
        energy = replace(one.energy, uncertainty_j=0.002 * one.energy.joules)
        return replace(one, energy=energy, makespan_uncertainty_s=0.0005 * time_s)


FLAT = StatedLine(304e-6, 0.385, 16.0, 120.0, 350.0, 1100.0, 0.65)
"""As ``tridiag-wm`` on an H200: the same time from 1,400 MHz on."""

CORES = StatedLine(0.0, 0.6, 1.0, 90.0, 400.0, 900.0, 0.7)
"""A time proportional to 1/f: every lower clock is slower."""

BOTH = StatedLine(200e-6, 0.2, 1.0, 90.0, 400.0, 900.0, 0.7)
"""Memory and cores that wait for each other: their times are added."""


def trials(
    line: StatedLine, configurations: Mapping[Configuration, float], noise: float = 0.0
) -> dict[Trial, Measurement]:
    """Every configuration at every clock, each slower by its factor; noise alternates in sign."""
    return {
        Trial((one,), mhz): line.measurement(mhz, slower, noise * (-1) ** i)
        for one, slower in configurations.items()
        for i, mhz in enumerate(line.clocks_mhz)
    }


def flat_recording(path: Path) -> Path:
    """A recording of the flat curve with three configurations, the second one the best."""
    one = workload()
    slower = {
        found.configuration: factor for found, factor in zip(one.candidates, (1.05, 1.0, 1.02), strict=False)
    }
    provenance = {"date": "2026-11-01", "window_s": 0.2}
    written(path, RecordedSpace((one,), GPU, None, trials(FLAT, slower, 0.001), "counter", provenance))
    return path
