"""Calibration against simulated sensors whose truth is known: is the right model found, and how well?

Each sensor is calibrated with many seeds: of its noise, its update phase, its delay and the load's dithering.
Then a kernel of 0.2 s is measured on the lagging ones by integrating through the decay, with the C found and
with one that is 20 % too small. Two loads are none of the models': one that draws up to 4 % more as it warms
(with a time constant of 10 s, so that 25 s make most of it), and one whose power takes 15 ms (time constant)
to rise and to fall. Nothing here needs a GPU; all numbers are of simulated sensors. Some twelve minutes on
two cores with 200 seeds.

    python benchmarks/sensor_models.py --out benchmarks/results/sensor-models.json
"""

import bisect
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from provenance import command_line, provenance, save
from tuner.power.base import ProgramTimeline, Response
from tuner.power.energy.programs import program_energy
from tuner.power.response.calibrate import calibrate
from tuner.power.sensors.simulated import SimulatedSampler

from tuner.devices.simulated.device import SimulatedDevice

# --- a load that no model of a sensor supposes: it warms, and its power takes a while to rise and to fall

WARM_UP_S = 10.0  # time constant of the warming
IDLE_W, BUSY_W = 48.0, 173.0  # of a simulated K20c
_STEP_S = 0.05  # pieces of power while it warms,
_STEPS = 6.0  # and in the time constant of a rise
_REACHED = 1e-3  # of a step: what is left of it counts as nothing


class TroubledLoad:
    """Implements ``tuner.power.base.LoadSource`` and ``PowerSource`` on a virtual clock.

    Args:
        warming: share by which the load draws more once it is warm.
        rise_s: time constant with which its power rises and falls.
    """

    def __init__(self, warming: float = 0.0, rise_s: float = 0.0) -> None:
        self._warming, self._rise_s = warming, rise_s
        self._heat = self._level = 0.0
        self._ends_s = [0.0]
        self._watts = [IDLE_W]

    def now_s(self) -> float:
        """Present time."""
        return self._ends_s[-1]

    def sleep(self, seconds: float) -> None:
        """Stay idle."""
        self._draw(seconds, 0.0)

    def pulse(self, pulses: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """Play (busy, idle) seconds; returns the busy times."""
        played = []
        for busy_s, idle_s in pulses:
            begin_s = self.now_s()
            self._draw(busy_s, 1.0)
            played.append((begin_s, self.now_s()))
            self._draw(idle_s, 0.0)
        return played

    def power_segments(self, since_s: float) -> list[tuple[float, float, float]]:
        """(start, end, watts) pieces from ``since_s`` to now; idle before 0."""
        first = bisect.bisect_right(self._ends_s, since_s)
        if first >= len(self._ends_s):
            return []
        starts = [since_s, *self._ends_s[first:-1]]
        return list(zip(starts, self._ends_s[first:], self._watts[first:], strict=True))

    def _draw(self, seconds: float, target: float) -> None:
        """Append pieces of the mean power of a level that moves to its target."""
        left_s = seconds
        while left_s > 0:
            moves = self._rise_s > 0 and abs(self._level - target) > _REACHED
            step_s = min(left_s, self._rise_s / _STEPS if moves else _STEP_S)
            level = self._level = self._level if moves else target
            if moves:
                kept = math.exp(-step_s / self._rise_s)
                self._level = target + (level - target) * kept
                level = target + (level - target) * (1.0 - kept) * self._rise_s / step_s
            watts = IDLE_W + (BUSY_W - IDLE_W) * level * (1.0 + self._warming * self._heat)
            self._heat += (level - self._heat) * -math.expm1(-step_s / WARM_UP_S)
            self._ends_s.append(self._ends_s[-1] + step_s)
            self._watts.append(watts)
            left_s = left_s - step_s if left_s - step_s > 1e-12 else 0.0


# --- the command -----------------------------------------------------------------------------------

# (model, true C or window in seconds, options of the sampler)
SENSORS: Mapping[str, tuple[str, float, dict[str, Any]]] = {
    "lag 20 ms / 20 ms": ("lag", 0.02, {"period_s": 0.02, "capacitance_s": 0.02}),
    "lag 100 ms / 20 ms": ("lag", 0.1, {"period_s": 0.02, "capacitance_s": 0.1}),
    "lag 790 ms / 15 ms": ("lag", 0.79, {"period_s": 0.015, "capacitance_s": 0.79}),
    "lag 833 ms / 15 ms": ("lag", 0.833, {"period_s": 0.015, "capacitance_s": 0.833}),
    "boxcar 25 / 100 ms": ("boxcar", 0.025, {"period_s": 0.1, "window_s": 0.025}),
    "boxcar 100 / 100 ms": ("boxcar", 0.1, {"period_s": 0.1, "window_s": 0.1}),
    "ramp 1000 / 100 ms": ("ramp", 1.0, {"period_s": 0.1, "window_s": 1.0}),
    "counter / 100 ms": ("identity", 0.0, {"kind": "counter", "period_s": 0.1}),
    "identity / 100 ms": ("identity", 0.0, {"period_s": 0.1}),
}
TROUBLED: Mapping[str, tuple[str, dict[str, float]]] = {
    "lag 833 / 15 ms, warms": ("lag 833 ms / 15 ms", {"warming": 0.04}),
    "lag 100 / 20 ms, warms": ("lag 100 ms / 20 ms", {"warming": 0.04}),
    "lag 100 / 20 ms, rises": ("lag 100 ms / 20 ms", {"rise_s": 0.015}),
}
"""Sensors under a load that warms, or rises slowly."""
ALIASING = ("boxcar 25 / 100 ms", "identity / 100 ms")  # the sensors that must not be used for energy
ALLOWED = {"lag": 0.05, "boxcar": 0.10, "ramp": 0.10}  # errors of C and of windows
NOISE = 0.01
GPU = "sim:k20c"  # draws 48 W idle and 173 W under load
KERNEL_S = 0.2
IDLE_S, IDLE_AFTER_S = 8.0, 3.0  # before and after the kernel; how much of the latter counts as idle
WRONG_C = 0.8  # of the true one


def main() -> None:
    """Calibrate all sensors with all seeds, print and write the table."""
    parser = command_line(__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of a calibration, virtual")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    names = (*SENSORS, *TROUBLED)
    tasks = [(name, seed, options.seconds) for name in names for seed in range(options.seeds)]
    with ProcessPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(calibrated, tasks, chunksize=10))
    rows = [summary(name, [o for o in outcomes if o["sensor"] == name]) for name in names]
    show(rows)
    save(options.out, {"provenance": provenance(), "modelled": True, "noise": NOISE, "rows": rows})


def calibrated(task: tuple[str, int, float]) -> dict[str, Any]:
    """One calibration, and joules of a short kernel where the sensor lags."""
    name, seed, seconds = task
    base, trouble = TROUBLED.get(name, (name, {}))
    _, truth, given = SENSORS[base]
    device, sampler, delay_s = sensor(given, seed, trouble)
    (found,) = calibrate(device, [sampler], seconds=seconds, seed=seed)
    response = found.response
    size = response.capacitance_s + response.window_s
    sigma = response.capacitance_sigma_s + response.window_sigma_s
    outcome = {
        "sensor": name,
        "kind": response.kind,
        "error": size / truth - 1.0 if truth else 0.0,
        "within_95": abs(size - truth) <= 1.96 * sigma,
        "sigma": sigma / truth if truth else 0.0,
        "delay_error_s": response.delay_s - delay_s,
        "averages": response.averages,
        "uncorrected": bool(found.reason.startswith("uncorrected")),
    }
    if response.kind == "lag" and not trouble:
        outcome["joules"], outcome["joules_sigma"] = short_kernel(given, seed, response)
        wrong = replace(response, capacitance_s=WRONG_C * truth)
        outcome["joules_wrong_c"] = short_kernel(given, seed, wrong)[0]
    return outcome


def sensor(
    given: Mapping[str, Any], seed: int, trouble: Mapping[str, float] | None = None
) -> tuple[Any, Any, float]:
    """A simulated GPU with the sensor, at a random phase of its updates and with a random delay."""
    rng = np.random.default_rng(seed)
    device = TroubledLoad(**trouble) if trouble else SimulatedDevice(GPU)
    device.sleep(float(rng.uniform(1.0, 2.0)))
    delay_s = float(rng.uniform(0.0, given["period_s"]))
    options = {"kind": "stream", "noise": NOISE, "seed": seed, "delay_s": delay_s} | dict(given)
    return device, SimulatedSampler(device, **options), delay_s


def short_kernel(given: Mapping[str, Any], seed: int, response: Response) -> tuple[float, float]:
    """Relative error of the joules above idle of a short kernel, and their standard uncertainty."""
    device, sampler, _ = sensor(given, seed)
    began_s = device.now_s()
    device.sleep(IDLE_S)
    ((start_s, end_s),) = device.pulse([(KERNEL_S, IDLE_S)])
    idle, busy = (watts for _, _, watts in device.power_segments(start_s - 1e-3)[:2])
    timeline = ProgramTimeline(began_s, start_s, end_s, device.now_s(), idle_after_s=IDLE_AFTER_S)
    energy = program_energy(sampler.poll(), replace(sampler.info, response=response), timeline)
    if energy is None:
        raise RuntimeError("the recording holds no idle time")
    truth = (busy - idle) * KERNEL_S
    return energy.net_j / truth - 1.0, energy.net_sigma_j / truth


def summary(name: str, outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """What all seeds of a sensor say together."""
    kind, truth, given = SENSORS[TROUBLED.get(name, (name, {}))[0]]
    errors = np.array([o["error"] for o in outcomes])
    right = np.array([o["kind"] == kind for o in outcomes])
    row: dict[str, Any] = {
        "sensor": name,
        "period_s": given["period_s"],
        "model": kind,
        "size_s": truth,
        "seeds": len(outcomes),
        "right_model": float(right.mean()),
        "worst_error": float(np.abs(errors).max()) if truth else None,
        "within_allowed": float((right & (np.abs(errors) <= ALLOWED.get(kind, 0.0))).mean()),
        "covered_by_95": float(np.mean([o["within_95"] for o in outcomes])) if truth else None,
        "median_sigma": float(np.median([o["sigma"] for o in outcomes])) if truth else None,
        "worst_delay_error_s": float(np.abs([o["delay_error_s"] for o in outcomes]).max()),
        "aliasing_told_right": float(np.mean([o["averages"] != (name in ALIASING) for o in outcomes])),
        "uncorrected": sum(o["uncorrected"] for o in outcomes),
    }
    for key in ("joules", "joules_wrong_c"):
        if kind == "lag" and name not in TROUBLED:
            values = np.abs([o[key] for o in outcomes if key in o])
            row[key] = {
                "rms": float(np.sqrt(np.mean(values**2))),
                "worst": float(values.max()),
                "within_2_percent": float(np.mean(values <= 0.02)),
            }
    return row


def show(rows: list[dict[str, Any]]) -> None:
    """The table."""
    print(
        f"{'sensor (modelled)':22} model  C or window  95 % holds  delay    aliasing  0.2 s kernel: rms, <2 %"
    )
    print(f"{'':22} right  worst error  the truth   error    right     C found          C 20 % low")
    for row in rows:
        sized = row["worst_error"] is not None
        cells = [
            f"{row['sensor']:22} {row['right_model']:5.1%}",
            f"{row['worst_error']:10.2%}   {row['covered_by_95']:8.1%}" if sized else f"{'–':>10}   {'–':>8}",
            f"{1e3 * row['worst_delay_error_s']:6.2f} ms",
            f"{row['aliasing_told_right']:6.1%}",
        ]
        joules = (row[key] for key in ("joules", "joules_wrong_c") if key in row)
        cells += [f"{kernel['rms']:.2%}, {kernel['within_2_percent']:.1%}" for kernel in joules]
        print("  ".join(cells))


if __name__ == "__main__":
    main()
