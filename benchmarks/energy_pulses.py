"""Is the energy of a pulsed load right? Part (b) of ``energy_windows.py``.

A load of all multiprocessors is on for 20 to 80 % of 20 to 200 ms, over 4 s; each pulse is up to 5 % longer
or shorter, so that it keeps step with no sensor. The meter's mean power is held against the mix of the powers
of the steady load and of the idle GPU, by the time the load was really on (which leaves out how long power
takes to rise and fall), and against the driver's ring of 20 ms samples, corrected for lag.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
from tuner.power.base import Meter, PowerReading, Recording

from tuner.model.errors import InputError
from tuner.model.objective import COVERAGE

PULSES = [(period_s, duty) for period_s in (0.02, 0.063, 0.2) for duty in (0.2, 0.5, 0.8)]
PULSED_S = 4.0
DITHER = 0.05  # of a pulse
STEADY_S, SETTLED_S = 3.0, 0.6


class Sensors(NamedTuple):
    """A device that can be pulsed, its meter, and a second meter over its ring of samples if it has one."""

    device: Any
    meter: Meter
    ring: Meter | None


class SensorPair(NamedTuple):
    """Mean power of a window by the meter and by the ring."""

    meter: PowerReading
    ring: PowerReading | None


def reading_of(recording: Recording, start_s: float, end_s: float) -> PowerReading:
    """A window's mean power; without one there is nothing to compare."""
    reading = recording.reading(start_s, end_s)
    if reading is None:
        raise InputError(recording.problem)
    return reading


def played(
    sensors: Sensors, pulses: Sequence[tuple[float, float]]
) -> tuple[list[tuple[float, float]], Callable[[float, float], SensorPair]]:
    """Play pulses while both sensors record; what was played, and a way to ask for windows of it."""
    with ExitStack() as stack:
        recording = stack.enter_context(sensors.meter.recording())
        second = None if sensors.ring is None else stack.enter_context(sensors.ring.recording())
        busy = sensors.device.pulse(pulses)

    def seen(start_s: float, end_s: float) -> SensorPair:
        ring = None if second is None else reading_of(second, start_s, end_s)
        return SensorPair(reading_of(recording, start_s, end_s), ring)

    return busy, seen


def pulsed_loads(sensors: Sensors) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Powers of the steady load and of the idle GPU, and each pulsed load against their mix."""
    ((begin_s, end_s),), seen = played(sensors, [(STEADY_S, STEADY_S)])
    steady = seen(begin_s + SETTLED_S, end_s - SETTLED_S / 6.0)
    idle = seen(end_s + SETTLED_S, end_s + STEADY_S - SETTLED_S / 6.0)
    ends = {"busy_w": steady.meter.watts, "idle_w": idle.meter.watts}
    for name, one in (("busy", steady), ("idle", idle)):
        if one.ring is not None:
            ends[f"ring_{name}_w"] = one.ring.watts
    return ends, [pulsed(sensors, period_s, duty, ends) for period_s, duty in PULSES]


def pulsed(sensors: Sensors, period_s: float, duty: float, ends: dict[str, float]) -> dict[str, Any]:
    """One pulsed load: whole periods, from the begin of the first pulse to that of the last."""
    count = round(PULSED_S / period_s) + 1
    random = np.random.default_rng(round(1e3 * period_s))
    lengths_s = period_s * (1.0 + DITHER * random.uniform(-1.0, 1.0, count))
    busy, seen = played(
        sensors, [(length_s * duty, length_s * (1.0 - duty)) for length_s in lengths_s.tolist()]
    )
    start_s, end_s = busy[0][0], busy[-1][0]
    share = sum(b - a for a, b in busy[:-1]) / (end_s - start_s)
    mix_w = share * ends["busy_w"] + (1.0 - share) * ends["idle_w"]
    found = seen(start_s, end_s)
    row = {
        "period_s": (end_s - start_s) / (count - 1),
        "busy_share": share,
        "mix_w": mix_w,
        "watts": found.meter.watts,
        "uncertainty_w": found.meter.uncertainty_w,
        "off_mix": found.meter.watts / mix_w - 1.0,
        "notes": list(found.meter.notes),
    }
    if found.ring is not None:
        row |= {
            "ring_w": found.ring.watts,
            "ring_uncertainty_w": found.ring.uncertainty_w,
            "off_ring": found.meter.watts / found.ring.watts - 1.0,
        }
    return row


def show_pulsed(ends: dict[str, float], rows: Sequence[dict[str, Any]]) -> None:
    """The table of (b)."""
    print(", ".join(f"{name} {watts:.1f}" for name, watts in ends.items()))
    print("| period | busy | mix | counter | off | ring | counter against ring |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        ring = "-"
        if "ring_w" in row:
            ring = f"{row['ring_w']:.1f} +- {COVERAGE * row['ring_uncertainty_w']:.1f} W"
        off_ring = f"{row['off_ring']:+.2%}" if "ring_w" in row else "-"
        print(
            f"| {1e3 * row['period_s']:.1f} ms | {row['busy_share']:.1%} | {row['mix_w']:.1f} W"
            f" | {row['watts']:.1f} +- {COVERAGE * row['uncertainty_w']:.1f} W | {row['off_mix']:+.2%}"
            f" | {ring} | {off_ring} |"
        )
