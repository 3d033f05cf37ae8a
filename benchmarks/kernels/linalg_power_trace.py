"""Power over time of schemes that a child process runs one after another, and joules of each.

The child says when each ran, on the system's monotonic clock, which is that of the samples.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.power.base import PowerSampler, Sample, SensorInfo, Span
from tuner.power.energy.programs import corrected_power
from tuner.power.energy.spans import span_energy

from tuner.joules.traces import IdleTimes, Recorder, run_traced
from tuner.joules.watching import gpu_for, opened, opened_host
from tuner.model.errors import InputError

SIGMAS = 1.96  # standard uncertainties to either side cover 95 %
_COUNTER_S = 0.02  # between reads of a counter
_IDLE_S = 0.5  # before the child starts
_AROUND_S = 0.25  # of power that is kept before a scheme, and behind it

Readings = Sequence[tuple[SensorInfo, Sequence[Sample]]]


@dataclass(frozen=True)
class Traced:
    """What the sensors saw while the child ran.

    Attributes:
        code: exit code of the child.
        parts: readings of the GPU together, and each of the host's by itself.
    """

    code: int
    parts: Sequence[Readings]


class OftenRead:
    """A sampler whose counter is read again and again: a trace reads counters at its ends only."""

    def __init__(self, sampler: PowerSampler) -> None:
        self._sampler = sampler
        self.info = replace(sampler.info, longest_pause_s=2 * _COUNTER_S)

    @property
    def due_s(self) -> float:
        """See ``PowerSampler.due_s``."""
        return self._sampler.due_s

    def poll(self) -> list[Sample]:
        """See ``PowerSampler.poll``."""
        return self._sampler.poll()

    def close(self) -> None:
        """See ``PowerSampler.close``."""
        self._sampler.close()


def traced(command: Sequence[str], scope: str, sensor: str | None) -> Traced:
    """Run a command, and record power.

    Raises:
        TunerError: no sensor answers, none shows power over time, or the command cannot be started.
    """
    sensors = [sensor] if sensor else []
    gpu = gpu_for(None, sensors, "this benchmark", scope)
    with opened(gpu, sensors) as of_gpu, opened_host(scope) as of_host:
        if all(sampler.info.kind == "counter" for sampler in of_gpu):
            names = ", ".join(sampler.info.name for sampler in of_gpu)
            raise InputError(f"{names}: a counter shows no power over time; name another --sensor")
        samplers = [OftenRead(one) if one.info.kind == "counter" else one for one in (*of_gpu, *of_host)]
        recorder = Recorder(samplers)
        outcome = run_traced(command, recorder, IdleTimes(_IDLE_S))
        readings = [(channel.info, tuple(channel.samples)) for channel in recorder.channels]
    count = len(of_gpu)
    return Traced(outcome.exit_code, [readings[:count], *([one] for one in readings[count:])])


def figures(found: Traced, span: Span, idle: Span, runs: int, flops: float) -> dict[str, Any]:
    """Joules and power over time of a scheme; joules and Gflop/s/W are of one run, with 95 % intervals.

    Args:
        found: of all schemes.
        span: when this one ran.
        idle: when nothing ran.
        runs: how often it ran, one after another.
        flops: of a run.

    Raises:
        InputError: the sensors showed nothing of it.
    """
    joules, sigma_j, counted = spent(found, span)
    idle_j, idle_sigma_j, _ = spent(found, idle)
    share = span.duration_s / idle.duration_s
    net_j, net_sigma_j = joules - idle_j * share, math.hypot(sigma_j, idle_sigma_j * share)
    row: dict[str, Any] = {"seconds": span.duration_s / runs, "counted": counted}
    row["joules"] = _shown(joules / runs, sigma_j / runs)
    row["net_joules"] = _shown(net_j / runs, net_sigma_j / runs)
    row["mean_w"] = joules / span.duration_s
    rate = 1e-9 * flops * runs / joules
    row["gflops_per_w"] = _shown(rate, rate * sigma_j / joules)
    return row | _curve(found, span)


def spent(found: Traced, span: Span) -> tuple[float, float, list[Mapping[str, str]]]:
    """Joules of a span, their standard uncertainty, and by which sensors.

    Raises:
        InputError: the sensors showed nothing of it.
    """
    joules, variance_j2, counted = 0.0, 0.0, []
    for readings in found.parts:
        energy = span_energy(readings, span)
        if energy is None:
            names = ", ".join(info.name for info, _ in readings)
            raise InputError(f"{names} showed nothing of {span.duration_s:.2g} s; --seconds must be longer")
        joules += energy.joules
        variance_j2 += energy.sigma_j**2
        counted.append({"scope": energy.scope, "sensor": energy.sensor})
    return joules, math.sqrt(variance_j2), counted


def _curve(found: Traced, span: Span) -> dict[str, Any]:
    """Power of the GPU over time, corrected for how the sensor follows it; time 0 is the begin."""
    info, samples = next(one for one in found.parts[0] if one[0].kind != "counter")
    shown = corrected_power(samples, info)
    times_s = shown.times_s - shown.age_s - span.start_s
    kept = (times_s >= -_AROUND_S) & (times_s <= span.duration_s + _AROUND_S)
    return {
        "times_s": [round(float(time_s), 4) for time_s in times_s[kept]],
        "watts": [round(float(watts), 1) for watts in shown.corrected_w[kept]],
        "curve": {"scope": info.scope, "sensor": info.name},
    }


def _shown(value: float, sigma: float) -> dict[str, float]:
    return {"value": value, "half": SIGMAS * sigma}
