"""Is a window of 0.8 s enough, and is the energy of a pulsed load right? On a GPU, clocks as found.

(a) The GPU is warmed by 20 s of the work that follows. Then three configurations of one scan, below the power
    limit, take turns in windows of 0.8 s, 40 each; three references of ten seconds of each lie before,
    between and after them. Stated is how far the short windows' joules per round are from the references;
    95 % of them should be within 1 %. Once from the reference *interpolated* between the two around a window,
    which leaves out the drift of a GPU that goes on warming up, and once from the *mean* of the three, which
    does not. Beside it: the drift, the uncertainty that a window states of itself, and how much the ratio of
    two configurations scatters from turn to turn, in which drift cancels. No window is measured again here,
    as a run would do with one in which the host stalled (``unsteady``); the flags tell of it.
(b) Pulsed loads against the mix of steady load and idle, with pulses of many lengths.

Takes four and a half minutes on an H200 and sets nothing; seconds on a simulated device, where every number
is modelled:

    python benchmarks/energy_windows.py [--device cuda:0] [--out benchmarks/results/energy-windows-h200.json]
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from provenance import command_line, provenance, save
from tuner.power.base import Meter, PowerReading, Recording
from tuner.power.energy.meter import SamplingMeter
from tuner.power.nvml.health import Thermometer

from tuner.devices.base import Device
from tuner.devices.choice import open_device
from tuner.devices.sensors import open_clocks, open_meter, open_reading
from tuner.kernel_files.catalog import Catalog
from tuner.measurement.settle import SettingLock
from tuner.measurement.window import WindowRunner, suggested_window_s
from tuner.model.errors import InputError
from tuner.model.objective import COVERAGE
from tuner.model.plan import Configuration, Plan
from tuner.search.candidates import fit_batches

# --- is the energy of a pulsed load right? Part (b) of ``energy_windows.py`` ----------------------

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


# --- the command -----------------------------------------------------------------------------------

WORKLOAD = "scan-lf:N=512"
CONFIGURATIONS = (  # 590 to 675 W even on an H200 that draws much: at its limit of 700 W power swings
    {"P": 16, "L": 128, "cap": 512},
    {"P": 32, "L": 32, "cap": 0},
    {"P": 2, "L": 1024, "cap": 0},
)
PRECISION = 0.01
WARM_S, WARM_STEP_S = 20.0, 1.0
REFERENCES = 3
REFERENCE_S = 10.0
TURNS = 20  # of short windows between two references

Array = npt.NDArray[np.float64]


class Tools(NamedTuple):
    """An open device with its sensors, what runs windows on it, and its thermometer."""

    sensors: Sensors
    windows: WindowRunner
    window_s: float
    celsius: Callable[[], float | None]


@contextmanager
def tools_of(spec: str, window_s: float | None = None) -> Iterator[Tools]:
    """Open a device and its sensors; short windows are what the sensor asks for, if no length is given."""
    with ExitStack() as stack:
        device = stack.enter_context(closing(open_device(spec).device))
        clocks, _ = open_clocks(device)
        if clocks is not None:
            stack.enter_context(closing(clocks))
        meter, why = open_meter(device, clocks)
        if meter is None:
            raise InputError(why)
        stack.enter_context(closing(meter))
        ring = None
        name = "simulated-ring" if device.identity.modelled else "nvml-power-ring"
        try:
            sampler = open_reading(device, name)
            ring = stack.enter_context(closing(SamplingMeter(sampler, None, device.now_s)))
        except InputError as error:
            print(f"without a second sensor: {error}")

        def celsius() -> float | None:
            return None

        if not device.identity.modelled:
            gauge = Thermometer(device.identity.uuid)
            celsius = stack.enter_context(closing(gauge)).read
        yield Tools(
            Sensors(device, meter, ring),
            WindowRunner(device, meter, SettingLock(clocks)),
            window_s or suggested_window_s(meter.info, PRECISION),
            celsius,
        )


def plans_of(device: Device) -> list[Plan]:
    """The plans of the configurations: the default's values for every tunable that is not named."""
    catalog = Catalog.load()
    workload = catalog.workload(WORKLOAD)
    kernel = catalog.kernel(workload.kernel)
    (fitted,), _ = fit_batches([(kernel, workload)], device.free_memory_bytes())
    usual = dict(kernel.default(fitted))

    def like(configuration: Configuration) -> int:
        return sum(configuration.get(name) == value for name, value in usual.items())

    space = list(kernel.space(fitted))
    chosen = [
        max((c for c in space if all(c[n] == v for n, v in named.items())), key=like)
        for named in CONFIGURATIONS
    ]
    return [kernel.plan(fitted, configuration) for configuration in chosen]


# --- (a) short windows ---------------------------------------------------------------------------


def warmed(tools: Tools, plan: Plan) -> list[float]:
    """Twenty seconds of one plan; mean power of each second, in watts."""
    with tools.sensors.meter.recording() as recording:
        record = tools.sensors.device.run([plan], WARM_S)
    edges = np.arange(record.start_s, record.end_s, WARM_STEP_S)
    readings = [recording.reading(a, a + WARM_STEP_S) for a in edges[:-1].tolist()]
    return [reading.watts for reading in readings if reading is not None]


def measured(tools: Tools, plan: Plan, window_s: float) -> dict[str, Any]:
    """One window of one plan: when it was, joules of a round, and what else is known of it."""
    now_s = tools.sensors.device.now_s
    begun_s = now_s()
    found = tools.windows.run([plan], window_s)
    if found.energy is None or not found.makespan_s:
        raise InputError(f"{plan.label()}: no energy: {', '.join(map(str, found.flags))}")
    return {
        "time_s": (begun_s + now_s()) / 2.0,
        "joules": found.energy.joules,
        "u_j": found.energy.uncertainty_j,
        "watts": found.energy.watts,
        "round_s": found.window_s / found.rounds,
        "median_round_s": found.makespan_s,
        "clock_mhz": found.clock_mhz,
        "celsius": tools.celsius(),
        "flags": [str(flag) for flag in found.flags],
    }


def short_windows(tools: Tools) -> dict[str, Any]:
    """Warm the GPU, take turns, compare."""
    plans = plans_of(tools.sensors.device)
    warm_up_w = warmed(tools, plans[0])
    windows: list[list[dict[str, Any]]] = [[] for _ in plans]
    references: list[list[dict[str, Any]]] = [[] for _ in plans]
    for part in range(REFERENCES):
        for index, plan in enumerate(plans):
            references[index].append(measured(tools, plan, REFERENCE_S))
        for _ in range(TURNS if part < REFERENCES - 1 else 0):
            for index, plan in enumerate(plans):
                windows[index].append(measured(tools, plan, tools.window_s))
    rows = [compared(*parts) for parts in zip(plans, windows, references, strict=True)]
    joules = [column(one, "joules") for one in windows]
    ratios = [joules[a] / joules[b] for a, b in combinations(range(len(plans)), 2)]
    return {
        "warm_up_w": warm_up_w,
        "configurations": rows,
        "turn_by_turn_sd": max(float(ratio.std(ddof=1) / ratio.mean()) for ratio in ratios),
    }


def column(windows: Sequence[dict[str, Any]], key: str) -> Array:
    """One number of each window."""
    return np.array([window[key] for window in windows])


def compared(
    plan: Plan, windows: Sequence[dict[str, Any]], references: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """The short windows of one configuration against its references."""
    joules, times_s = column(windows, "joules"), column(windows, "time_s")
    long_j, long_s = column(references, "joules"), column(references, "time_s")
    interpolated = np.interp(times_s, long_s, long_j)
    return {
        "configuration": dict(plan.configuration),
        "watts": float(column(references, "watts").mean()),
        "drift": float(long_j[-1] / long_j[0] - 1.0),
        "drift_s": float(long_s[-1] - long_s[0]),
        "stated_u": float(np.median(column(windows, "u_j") / joules)),
        "from_interpolated": scatter(joules, interpolated, column(windows, "u_j")),
        "from_mean": scatter(joules, np.full(len(joules), long_j.mean()), column(windows, "u_j")),
        "flags": sorted({flag for window in (*windows, *references) for flag in window["flags"]}),
        "windows": list(windows),
        "references": list(references),
    }


def scatter(joules: Array, reference_j: Array, u_j: Array) -> dict[str, float]:
    """How far joules are from a reference, relative to it."""
    off = joules / reference_j - 1.0
    return {
        "mean": float(off.mean()),
        "sd": float(off.std(ddof=1)),
        "within_95": float(np.quantile(np.abs(off), 0.95)),
        "covered": float(np.mean(np.abs(joules - reference_j) <= COVERAGE * u_j)),
    }


# --- what is shown -------------------------------------------------------------------------------


def show_short(found: dict[str, Any]) -> None:
    """The table of (a)."""
    warm = found["warm_up_w"]
    print(f"warm-up: {warm[0]:.1f} W in the first second, {warm[-1]:.1f} W in the last of {len(warm)}")
    print("| configuration | W | drift | against | windows | mean off | sd | 95 % within | covered |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in found["configurations"]:
        named = ", ".join(f"{key}={row['configuration'][key]}" for key in CONFIGURATIONS[0])
        drift = f"{row['drift']:+.2%} in {row['drift_s']:.0f} s"
        for label, key in (("interpolated", "from_interpolated"), ("mean", "from_mean")):
            off = row[key]
            print(
                f"| {named} | {row['watts']:.0f} | {drift} | {label} | {len(row['windows'])}"
                f" | {off['mean']:+.2%} | {off['sd']:.2%} | {off['within_95']:.2%} | {off['covered']:.0%} |"
            )
        print(f"  {named}: a window states u = {row['stated_u']:.2%}", *row["flags"], sep="; ")
    print(f"the ratio of two configurations, turn by turn, scatters by {found['turn_by_turn_sd']:.2%} (sd)")


def main() -> None:
    """Measure, print, write the JSON."""
    logging.basicConfig(level=logging.ERROR)
    parser = command_line(__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--window", type=float, help="length of the short windows in s, such as a run's 0.34")
    options = parser.parse_args()
    begun_s = time.monotonic()
    with tools_of(options.device, options.window) as tools:
        identity = tools.sensors.device.identity
        label = "modelled: no GPU ran" if identity.modelled else f"driver {identity.driver}"
        print(f"{identity.name}, {tools.sensors.meter.info.name}, {label}")
        short = short_windows(tools)
        show_short(short)
        ends, pulses = pulsed_loads(tools.sensors)
        show_pulsed(ends, pulses)
    rows = short["configurations"]
    document = {
        "modelled": identity.modelled,
        "provenance": provenance(),
        "device": vars(identity),
        "sensor": tools.sensors.meter.info.name,
        "protocol": {
            "workload": WORKLOAD,
            "window_s": tools.window_s,
            "precision": PRECISION,
            "warm_s": WARM_S,
            "reference_s": REFERENCE_S,
            "pulsed_s": PULSED_S,
        },
        "short_windows": short,
        "ends": ends,
        "pulsed": pulses,
        "short_within_of_interpolated": max(row["from_interpolated"]["within_95"] for row in rows),
        "short_within_of_mean": max(row["from_mean"]["within_95"] for row in rows),
        "pulsed_within": max(abs(row["off_mix"]) for row in pulses),
        "took_s": time.monotonic() - begun_s,
    }
    print(
        f"95 % of the short windows within {document['short_within_of_interpolated']:.2%} of the interpolated"
        f" ten seconds, {document['short_within_of_mean']:.2%} of their mean (asked for: 1 %); pulsed loads"
        f" within {document['pulsed_within']:.2%} of the mix (asked for: 2.5 %); {document['took_s']:.0f} s"
    )
    save(options.out, document)


if __name__ == "__main__":
    main()
