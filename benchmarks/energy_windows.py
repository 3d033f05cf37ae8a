"""Is a window of 0.8 s enough, and is the energy of a pulsing load right? On a GPU, clocks as found.

(a) Three configurations of one scan, below the power limit, take turns; each is measured 40 times in a window
    of 0.8 s, with ten seconds of the same work in the middle. Stated is how far the short windows' joules per
    round are from those of the ten seconds: 95 % of them should be within 1 %.
(b) A load of all multiprocessors is on for 20 to 80 % of 20 to 200 ms, over 4 s; each pulse is up to 5 %
    longer or shorter, so that it keeps step with no sensor. The counter's mean power is held against the mix
    of the powers of the steady load and of the idle GPU, by the time the load was really on (which leaves out
    how long power takes to rise and fall), and against the driver's ring of 20 ms samples, corrected for lag.

Takes four minutes on an H200 and sets nothing; seconds on a simulated device, where every number is modelled:

    python benchmarks/energy_windows.py [--device cuda:0] [--out benchmarks/results/energy-windows-h200.json]
"""

import argparse
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from provenance import provenance

from tuner import registry
from tuner.candidates import fit_batches
from tuner.catalog import Catalog
from tuner.devices.sensors import open_clocks, open_meter, open_reading
from tuner.errors import InputError
from tuner.interfaces import Meter, PowerReading, Recording
from tuner.measure import Measurer
from tuner.model import Configuration, Measurement, Plan, Trial
from tuner.objective import COVERAGE
from tuner.window import suggested_window_s
from tuner.worker import open_device

WORKLOAD = "scan-lf:N=512"
CONFIGURATIONS = ({"P": 16, "L": 128}, {"P": 32, "L": 32}, {"P": 8, "L": 64})  # 590 to 615 W on an H200
REPEATS = 40
PRECISION = 0.01
REFERENCE_S = 10.0
PULSES = [(period_s, duty) for period_s in (0.02, 0.063, 0.2) for duty in (0.2, 0.5, 0.8)]
PULSED_S = 4.0
DITHER = 0.05  # of a pulse
STEADY_S, SETTLED_S = 3.0, 0.6


class Instruments(NamedTuple):
    """An open device with its meter and, where it has one, a second meter over its ring of samples."""

    device: Any
    measurer: Measurer
    meter: Meter
    ring: Meter | None
    window_s: float


@contextmanager
def instruments(spec: str) -> Iterator[Instruments]:
    """Open a device and its sensors."""
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
            ring = stack.enter_context(
                closing(registry.load("meter", "sampling")(sampler, None, device.now_s))
            )
        except InputError as error:
            print(f"without a second sensor: {error}")
        window_s = suggested_window_s(meter.info, PRECISION)
        measurer = stack.enter_context(Measurer(device, meter, clocks, window_s))
        yield Instruments(device, measurer, meter, ring, window_s)


# --- (a) short windows ---------------------------------------------------------------------------


def plans_of(tools: Instruments) -> list[Plan]:
    """The plans of the configurations: the default's values for every tunable that is not named."""
    catalog = Catalog.load()
    workload = catalog.workload(WORKLOAD)
    kernel = catalog.kernel(workload.kernel)
    (fitted,), _ = fit_batches([(kernel, workload)], tools.device.free_memory_bytes())
    usual = dict(kernel.default(fitted))

    def like(configuration: Configuration) -> int:
        return sum(configuration[name] == value for name, value in usual.items())

    space = list(kernel.space(fitted))
    chosen = [
        max((c for c in space if all(c[n] == v for n, v in named.items())), key=like)
        for named in CONFIGURATIONS
    ]
    return [kernel.plan(fitted, configuration) for configuration in chosen]


def short_windows(tools: Instruments) -> list[dict[str, Any]]:
    """Joules per round of short windows against those of ten seconds."""
    plans = plans_of(tools)
    trials = [Trial((plan.configuration,)) for plan in plans]
    long = Measurer(tools.device, tools.meter, None, REFERENCE_S)
    short: list[list[Measurement]] = [[] for _ in plans]
    references: list[Measurement] = []
    for repeat in range(REPEATS):
        for index, (trial, plan) in enumerate(zip(trials, plans, strict=True)):
            short[index].append(tools.measurer.measure(trial, [plan]))
        if repeat == REPEATS // 2 - 1:
            pairs = zip(trials, (measured[-1] for measured in short), strict=True)
            long.recall(pairs, [plans[0].workload])  # the answers were checked
            references = [long.measure(t, [plan]) for t, plan in zip(trials, plans, strict=True)]
    return [
        compared(plan, measured, reference)
        for plan, measured, reference in zip(plans, short, references, strict=True)
    ]


def compared(plan: Plan, measured: Sequence[Measurement], reference: Measurement) -> dict[str, Any]:
    """The short windows of one configuration against its long one."""
    energies = [m.energy for m in measured if m.energy is not None]
    if reference.energy is None or not energies:
        raise InputError(f"{plan.label()}: no energy: {', '.join(reference.flags)}")
    whole = reference.energy
    off = np.array([energy.joules / whole.joules - 1.0 for energy in energies])
    stated = np.array([energy.uncertainty_j for energy in energies]) / whole.joules
    both = np.hypot(stated, whole.uncertainty_j / whole.joules)
    return {
        "configuration": dict(plan.configuration),
        "windows": len(energies),
        "window_s": float(np.mean([m.window_s for m in measured])),
        "reference_j": whole.joules,
        "reference_u_j": whole.uncertainty_j,
        "watts": whole.watts,
        "mean_off": float(off.mean()),
        "sd": float(off.std(ddof=1)),
        "off_95": float(np.quantile(np.abs(off), 0.95)),
        "stated_u": float(np.median(stated)),
        "stated_u_last": float(np.median(stated[-10:])),
        "covered": float(np.mean(np.abs(off) <= COVERAGE * both)),
        "flags": sorted({flag for m in (*measured, reference) for flag in m.flags}),
        "joules": [energy.joules for energy in energies],
    }


# --- (b) pulsed loads ----------------------------------------------------------------------------


class Seen(NamedTuple):
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
    tools: Instruments, pulses: Sequence[tuple[float, float]]
) -> tuple[list[tuple[float, float]], Callable[[float, float], Seen]]:
    """Play pulses while both sensors record; what was played, and a way to ask for windows of it."""
    with ExitStack() as stack:
        recording = stack.enter_context(tools.meter.recording())
        second = None if tools.ring is None else stack.enter_context(tools.ring.recording())
        busy = tools.device.pulse(pulses)

    def seen(start_s: float, end_s: float) -> Seen:
        ring = None if second is None else reading_of(second, start_s, end_s)
        return Seen(reading_of(recording, start_s, end_s), ring)

    return busy, seen


def pulsed_loads(tools: Instruments) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Powers of the steady load and of the idle GPU, and each pulsed load against their mix."""
    ((begin_s, end_s),), seen = played(tools, [(STEADY_S, STEADY_S)])
    steady = seen(begin_s + SETTLED_S, end_s - SETTLED_S / 6.0)
    idle = seen(end_s + SETTLED_S, end_s + STEADY_S - SETTLED_S / 6.0)
    ends = {"busy_w": steady.meter.watts, "idle_w": idle.meter.watts}
    for name, one in (("busy", steady), ("idle", idle)):
        if one.ring is not None:
            ends[f"ring_{name}_w"] = one.ring.watts
    return ends, [pulsed(tools, period_s, duty, ends) for period_s, duty in PULSES]


def pulsed(tools: Instruments, period_s: float, duty: float, ends: dict[str, float]) -> dict[str, Any]:
    """One pulsed load: whole periods, from the begin of the first pulse to that of the last."""
    count = round(PULSED_S / period_s) + 1
    random = np.random.default_rng(round(1e3 * period_s))
    lengths_s = period_s * (1.0 + DITHER * random.uniform(-1.0, 1.0, count))
    busy, seen = played(
        tools, [(length_s * duty, length_s * (1.0 - duty)) for length_s in lengths_s.tolist()]
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


# --- what is shown -------------------------------------------------------------------------------


def show_short(rows: Sequence[dict[str, Any]]) -> None:
    """The table of (a)."""
    print("| configuration | W | 10 s, mJ | windows | mean off | sd | 95 % within | stated u | covered |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        named = ", ".join(f"{key}={row['configuration'][key]}" for key in CONFIGURATIONS[0])
        print(
            f"| {named} | {row['watts']:.0f} | {1e3 * row['reference_j']:.3f}"
            f" | {row['windows']} x {row['window_s']:.2f} s | {row['mean_off']:+.2%} | {row['sd']:.2%}"
            f" | {row['off_95']:.2%} | {row['stated_u']:.2%} | {row['covered']:.0%} |"
        )
        for flag in row["flags"]:
            print(f"  {named}: {flag}")


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


def main() -> None:
    """Measure, print, write the JSON."""
    logging.basicConfig(level=logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with instruments(options.device) as tools:
        identity = tools.device.identity
        label = "modelled: no GPU ran" if identity.modelled else f"driver {identity.driver}"
        print(f"{identity.name}, {tools.meter.info.name}, {label}")
        short = short_windows(tools)
        show_short(short)
        ends, pulses = pulsed_loads(tools)
        show_pulsed(ends, pulses)
    document = {
        "modelled": identity.modelled,
        "provenance": provenance(),
        "device": vars(identity),
        "sensor": tools.meter.info.name,
        "protocol": {
            "workload": WORKLOAD,
            "window_s": tools.window_s,
            "precision": PRECISION,
            "reference_s": REFERENCE_S,
            "pulsed_s": PULSED_S,
        },
        "short_windows": short,
        "ends": ends,
        "pulsed": pulses,
        "short_within": max(row["off_95"] for row in short),
        "pulsed_within": max(abs(row["off_mix"]) for row in pulses),
    }
    print(
        f"95 % of the short windows within {document['short_within']:.2%} of ten seconds (asked for: 1 %);"
        f" pulsed loads within {document['pulsed_within']:.2%} of the mix (asked for: 2.5 %)"
    )
    if options.out:
        options.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
