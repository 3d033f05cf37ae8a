"""Joules of a load that an emulated INA3221 shows, conversion by conversion (TI SBOS576, section 8.4.1)."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from jetson_trees import build, rail_files, write
from tuner.power.energy.mean_power import mean_power
from tuner.power.energy.samples import SampleSeries
from tuner.power.sensors.jetson import monitor_readings

PERIOD_S = 0.1
VOLTS = 5.0
IDLE_W, BUSY_W = 5.0, 20.0


class Chip:
    """The current register of one channel; three take turns, so that a third of conversions is its own.

    Args:
        sysfs: tree with the file that it writes.
        samples: N of its average.
        watts: power of the load over time.
        noise: of one conversion, relative.
        seed: of the noise.
    """

    def __init__(
        self, sysfs: Path, samples: int, watts: Callable[[float], float], noise: float, seed: int
    ) -> None:
        self.time_s = 0.0
        self._watts, self._noise, self._samples = watts, noise, samples
        self._random = np.random.default_rng(seed)
        self._file = rail_files(sysfs, "VDD_IN")[1]
        self._done = self._shown = 0
        self._register = watts(0.0) / VOLTS

    def now(self) -> float:
        return self.time_s

    def pass_to(self, time_s: float) -> None:
        """Convert until a time, and show the register in the file, in steps of 1 mA."""
        step_s = PERIOD_S / self._samples
        while (self._done + 1) * step_s <= time_s:
            self._done += 1
            amperes = self._watts((self._done - 2.0 / 3.0) * step_s) / VOLTS
            amperes *= 1.0 + self._noise * self._random.standard_normal()
            self._register += (amperes - self._register) / self._samples
        self.time_s = time_s
        milliamperes = round(self._register * 1000.0)
        if milliamperes != self._shown:
            self._shown = milliamperes
            write(self._file, milliamperes)


def measured(sysfs: Path, samples: int, seed: int, busy_s: tuple[float, float]) -> tuple[float, float]:
    """Relative error of the mean power of a window, and the stated standard uncertainty."""
    monitor = rail_files(sysfs, "VDD_IN")[0].parent
    for name, value in (
        ("update_interval", round(PERIOD_S * 1e3)),
        ("samples", samples),
        ("in1_input", 5000),
    ):
        write(monitor / name, value)
    start_s, end_s = busy_s

    def watts(time_s: float) -> float:
        return BUSY_W if start_s <= time_s < end_s else IDLE_W

    chip = Chip(sysfs, samples, watts, noise=0.02, seed=seed)
    offered = monitor_readings(0, responses=lambda _: None, now=chip.now, sysfs=sysfs)
    with closing(offered[0].open()) as sampler:
        samples_seen = []
        while chip.time_s < end_s + 0.3:
            chip.pass_to(chip.time_s + PERIOD_S / 5.0)
            samples_seen += sampler.poll()
        found = mean_power(SampleSeries.of(samples_seen), start_s + 0.25, end_s, sampler.info)
    return found.watts / BUSY_W - 1.0, found.uncertainty_w / BUSY_W


@pytest.mark.parametrize("samples", [4, 128])
def test_windows_are_unbiased_and_covered(samples: int, tmp_path: Path) -> None:
    """The register still rises when a window begins, and equation (6) knows by how much."""
    random, sysfs = np.random.default_rng(samples), build(tmp_path, "orin-nx")
    found = [measured(sysfs, samples, seed, (1.0 + random.uniform(0.0, PERIOD_S), 3.0)) for seed in range(6)]
    errors, stated = np.array(found).T

    assert abs(errors.mean()) < 0.004
    assert np.mean(np.abs(errors) <= 1.96 * stated) >= 5 / 6
    assert stated.max() < 0.03
