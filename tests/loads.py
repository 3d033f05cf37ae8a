"""Simulated readings under a known load, for tests of their identification."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tuner.power.base import Response, Sample
from tuner.power.response.calibrate import Identification, calibrate, rhythm, schedule
from tuner.power.response.models import PowerCurve, shown_joules, shown_watts
from tuner.power.sensors.simulated import SimulatedSampler

from tuner.devices.simulated.device import SimulatedDevice

Busy = list[tuple[float, float]]
IDLE_W, BUSY_W = 60.0, 260.0


def sensed(seed: int, **options: Any) -> tuple[SimulatedDevice, SimulatedSampler]:
    """A simulated GPU and a noisy sensor of it, its updates at a random phase."""
    device = SimulatedDevice("sim:k20c")
    device.sleep(float(np.random.default_rng(seed).uniform(1.0, 2.0)))
    options = {"kind": "stream", "noise": 0.01, "seed": seed, **options}
    return device, SimulatedSampler(device, **options)


def calibrated(seed: int, seconds: float, **options: Any) -> Identification:
    """The identification of one such sensor."""
    device, sampler = sensed(seed, **options)
    (found,) = calibrate(device, [sampler], seconds=seconds, seed=seed)
    return found


def played(periods_s: Sequence[float], seconds: float, seed: int = 0) -> tuple[Busy, Busy, float]:
    """(Busy times, square waves, end) of a calibration's load, played without a hitch from 0."""
    rng = np.random.default_rng(seed)
    busy, squares, now_s = [], [], 0.0
    for burst in (*rhythm(seconds, rng), *schedule(periods_s, seconds, rng)):
        begin_s = now_s
        for busy_s, idle_s in burst.pulses:
            busy.append((now_s, now_s + busy_s))
            now_s += busy_s + idle_s
        if burst.square:
            squares.append((begin_s, now_s))
    return busy, squares, now_s


def samples(
    busy: Busy, times_s: np.ndarray, response: Response, *, counter: bool = False, noise_w: float = 0.0
) -> list[Sample]:
    """What a reading shows of a load of 200 W over 60 W at these times."""
    curve = PowerCurve.of_load(busy, IDLE_W, BUSY_W)
    values = (shown_joules if counter else shown_watts)(curve, times_s, response)
    values = values + noise_w * np.random.default_rng(1).standard_normal(len(values))
    return [Sample(float(time_s), float(value)) for time_s, value in zip(times_s, values, strict=True)]
