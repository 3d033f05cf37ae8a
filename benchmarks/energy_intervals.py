"""Do the stated 95 % intervals of joules cover the truth? Simulated sensors under loads that are known.

A sensor of the kinds found on real boards, with noise of 1 % in each sample, looks at a power curve; the
meter turns its samples into a mean power with an uncertainty. Counted is how often the curve's own mean lies
within 1.96 uncertainties. Beside that stand the error's root mean square and the stated uncertainty, in
percent. Loads:

- steady: constant after a warm-up of 0.25 s;
- drift: 5 % up or down over the window;
- rounds: on and off with a period of 0.2 to 2 ms, on for 20 to 80 % of it, each length 2 % off at random;
- pulses: the same with 20 to 200 ms, in windows of 4 s: slower than most sensors sample;
- irregular: each pulse and each pause takes 20 to 200 ms, drawn anew, in windows of 4 s;
- in step: rounds of exactly the sensor's period, which the meter is told, as a trial tells it.

Noise is white; AR(1), with a correlation of 0.9 between neighbouring samples; or white on samples that are
taken 2 ms (standard deviation) from where they are dated to (a counter's ticks are dated by polls 4.5 ms
apart).

*Twelfth window*: of a meter that has seen eleven before, and knows the sensor's noise from them. *As long as
needed*: the same, each as long as those before have shown to be enough, and a full one behind it where it is
not; noise of a sample is a tenth there, as good sensors have it. Joined are
three repeats of one meter, and three whose loads truly differ by 0.5 % (varying; the truth is then the mean
of all such loads). Everything is modelled, nothing here runs on a GPU. 500 runs of all take a quarter of an
hour of one core.

    python benchmarks/energy_intervals.py --runs 500 --out benchmarks/results/energy-intervals.json
"""

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tuner.power.base import Sample
from tuner.power.energy.meter import SamplingMeter
from tuner.power.sensors.simulated import SimulatedSampler

from tuner.measurement.paired import join
from tuner.measurement.window import JouleWindows, suggested_window_s
from tuner.model.errors import InputError
from tuner.model.objective import COVERAGE
from tuner.model.trial import Energy, Measurement, Status, WorkloadResult

SENSORS: dict[str, dict[str, Any]] = {
    "lag 0.02 s, every 20 ms": {"kind": "ring", "period_s": 0.02, "capacitance_s": 0.02},
    "lag 0.1 s, every 20 ms": {"kind": "stream", "period_s": 0.02, "capacitance_s": 0.1},
    "lag 0.1 s, every 100 ms": {"kind": "stream", "period_s": 0.1, "capacitance_s": 0.1},
    "lag 0.79 s, every 15 ms": {"kind": "stream", "period_s": 0.015, "capacitance_s": 0.79},
    "lag 0.833 s, every 15 ms": {"kind": "stream", "period_s": 0.015, "capacitance_s": 0.833},
    "mean of 25 ms, every 100": {"kind": "stream", "period_s": 0.1, "window_s": 0.025},
    "mean of 100 ms, every 100": {"kind": "stream", "period_s": 0.1, "window_s": 0.1},
    "mean of 1 s, every 100 ms": {"kind": "stream", "period_s": 0.1, "window_s": 1.0},
    "counter, every 100 ms": {"kind": "counter", "period_s": 0.1},
    "ring, every 20 ms": {"kind": "ring", "period_s": 0.02, "window_s": 0.02},
}
LOADS = ("steady", "drift", "rounds", "pulses", "irregular", "in step")
JOINED = ("steady", "varying")
SMOOTH = ("steady", "drift", "rounds")
NOISE, GOOD_NOISE = 0.01, 0.001
NOISES: dict[str, dict[str, float]] = {
    "white": {},
    "AR(1) 0.9": {"correlation": 0.9},
    "2 ms": {"jitter_s": 0.002},
}
POLLS_S = 0.0045  # between two reads of a counter whose ticks jitter
PRECISION = 0.01  # what windows are chosen for
PULSES_WINDOW_S = 4.0
PULSES_S = 0.02, 0.2
BURSTS, WINDOWS, WARM_WINDOWS = 3, 12, 2
IDLE_W, BUSY_W, STEADY_W = 125.0, 600.0, 400.0
WARM_UP_S, REST_S = 0.25, 0.05
DRIFT, VARYING = 0.05, 0.005
SCATTER = 0.02  # of the length of a pulse
STEP_S = 0.005  # a drift is made of steps

Array = npt.NDArray[np.float64]


class Source:
    """A power curve in pieces; implements ``tuner.power.base.PowerSource``."""

    def __init__(self) -> None:
        self.ends: list[float] = [0.0]
        self.watts: list[float] = [IDLE_W]

    def draw(self, seconds: Array, watts: Array) -> None:
        """Append pieces."""
        self.ends += (self.ends[-1] + np.cumsum(seconds)).tolist()
        self.watts += watts.tolist()

    def now_s(self) -> float:
        """Present time."""
        return self.ends[-1]

    def power_segments(self, since_s: float) -> list[tuple[float, float, float]]:
        """(start, end, watts) pieces from ``since_s`` to now."""
        first = int(np.searchsorted(self.ends, since_s, side="right"))
        if first >= len(self.ends):
            return []
        starts = [since_s, *self.ends[first:-1]]
        return list(zip(starts, self.ends[first:], self.watts[first:], strict=True))

    def mean_w(self, start_s: float, end_s: float) -> float:
        """True mean power between two times."""
        joules = np.concatenate(([0.0], np.cumsum(np.diff(self.ends) * self.watts[1:])))
        return float(np.diff(np.interp([start_s, end_s], self.ends, joules))[0]) / (end_s - start_s)


class Window(NamedTuple):
    """What one window gave: stated mean and uncertainty, its degrees, and the truth."""

    watts: float
    uncertainty_w: float
    degrees: float | None
    truth_w: float


class PolledTicks:
    """A sampler whose ticks are dated by polling; implements ``tuner.power.base.PowerSampler``."""

    due_s = 0.0

    def __init__(self, sampler: SimulatedSampler, random: np.random.Generator) -> None:
        self._sampler = sampler
        self._random = random
        self.info = sampler.info

    def poll(self) -> list[Sample]:
        """The samples since the last call, each off by up to half the time between two polls."""
        half_s = POLLS_S / 2.0
        return [
            replace(s, time_s=s.time_s + self._random.uniform(-half_s, half_s), time_sigma_s=half_s / 3**0.5)
            for s in self._sampler.poll()
        ]

    def close(self) -> None:
        """Nothing to release."""


class Bench:
    """One simulated sensor, its meter, and the load it looks at."""

    def __init__(self, options: dict[str, Any], seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.source = Source()
        sampler = SimulatedSampler(self.source, seed=seed, **({"noise": NOISE} | options))
        polled = options["kind"] == "counter" and "jitter_s" in options
        self.meter = SamplingMeter(
            PolledTicks(sampler, self.random) if polled else sampler, None, self.source.now_s
        )
        self.rest(1.0 + self.random.random())

    def rest(self, seconds: float) -> None:
        """Stay idle."""
        self.source.draw(np.array([seconds]), np.array([IDLE_W]))

    def window(self, load: str, window_s: float, scale: float = 1.0) -> Window:
        """One window of a load, after a warm-up under it, as a trial has."""
        before = self.pieces(load, WARM_UP_S)
        inside = self.pieces(load, window_s)
        with self.meter.recording() as recording:
            self.source.draw(before[0], before[1] * scale)
            start_s = self.source.now_s()
            self.source.draw(inside[0], inside[1] * scale)
            end_s = self.source.now_s()
            self.source.draw(np.array([REST_S]), inside[1][-1:] * scale)
        reading = recording.reading(start_s, end_s, self.meter.info.period_s if load == "in step" else 0.0)
        self.rest(self.random.uniform(0.1, 0.3))
        if reading is None:
            raise InputError(recording.problem)
        truth_w = self.source.mean_w(start_s, end_s)
        return Window(reading.watts, reading.uncertainty_w, reading.degrees, truth_w)

    def pieces(self, load: str, seconds: float) -> tuple[Array, Array]:
        """Lengths and watts of about so many seconds of a load."""
        if load == "irregular":
            return self.irregular(seconds)
        if load in ("rounds", "pulses", "in step"):
            return self.pulsed(seconds, 0.0 if load == "in step" else SCATTER)
        count = max(1, round(seconds / STEP_S))
        if load != "drift" or seconds == WARM_UP_S:
            return np.array([seconds]), np.array([STEADY_W])
        slope = DRIFT * self.random.choice([-1.0, 1.0])
        middles = (np.arange(count) + 0.5) / count
        return np.full(count, seconds / count), STEADY_W * (1.0 + slope * middles)

    def irregular(self, seconds: float) -> tuple[Array, Array]:
        """Pulses and pauses of random lengths."""
        count = max(1, round(seconds / sum(PULSES_S)))
        lengths = self.random.uniform(*PULSES_S, 2 * count)
        return lengths, np.tile([BUSY_W, IDLE_W], count)

    def pulsed(self, seconds: float, scatter: float) -> tuple[Array, Array]:
        """A whole number of pulses; period and duty are those ``pulse`` drew."""
        period_s, duty = self.pulse
        count = max(1, round(seconds / period_s))
        lengths = np.tile([period_s * duty, period_s * (1.0 - duty)], count)
        lengths *= 1.0 + scatter * self.random.standard_normal(2 * count)
        return lengths, np.tile([BUSY_W, IDLE_W], count)

    def draw_pulse(self, load: str) -> None:
        """Choose period and duty of a pulsed load."""
        low_s, high_s = (0.0002, 0.002) if load == "rounds" else PULSES_S
        period_s = float(np.exp(self.random.uniform(np.log(low_s), np.log(high_s))))
        if load == "in step":
            period_s = self.meter.info.period_s
        self.pulse = period_s, float(self.random.uniform(0.2, 0.8))


def single(options: dict[str, Any], load: str, run: int) -> tuple[Window, float]:
    """One window of a fresh meter, and its length."""
    bench = Bench(options, seed=run)
    bench.draw_pulse(load)
    suggested_s = suggested_window_s(bench.meter.info, PRECISION)
    length_s = PULSES_WINDOW_S if load in ("pulses", "irregular") else suggested_s
    return bench.window(load, length_s), length_s


def known(options: dict[str, Any], load: str, run: int) -> tuple[Window, float]:
    """The last of twelve windows of one meter, and its length."""
    bench = Bench(options, seed=run)
    bench.draw_pulse(load)
    length_s = suggested_window_s(bench.meter.info, PRECISION)
    return [bench.window(load, length_s) for _ in range(WINDOWS)][-1], length_s


def needed(options: dict[str, Any], load: str, run: int) -> tuple[Window, float]:
    """The last of twelve trials of one meter, each in a window as short as may be, and its length."""
    bench = Bench(options | {"noise": GOOD_NOISE}, seed=run)
    bench.draw_pulse(load)
    full_s = suggested_window_s(bench.meter.info, PRECISION)
    lengths = JouleWindows(bench.meter.info, PRECISION, full_s)
    for number in range(WINDOWS):
        length_s = full_s if number < WARM_WINDOWS else lengths.short_s
        window = bench.window(load, length_s)
        if not lengths.suffices(repeat(window)) and length_s < full_s:
            length_s, window = full_s, bench.window(load, full_s)
        lengths.learn(replace(repeat(window), window_s=length_s))
    return window, length_s


def joined(options: dict[str, Any], load: str, run: int) -> tuple[Window, float]:
    """Three repeats of one meter, joined; in ``varying`` each load differs."""
    bench = Bench(options, seed=run)
    length_s = suggested_window_s(bench.meter.info, PRECISION)
    spread = VARYING if load == "varying" else 0.0
    windows = [
        bench.window("steady", length_s, 1.0 + spread * bench.random.standard_normal()) for _ in range(BURSTS)
    ]
    energy = join([repeat(window) for window in windows]).energy
    if energy is None:
        raise InputError("a repeat has no energy")
    truth_w = STEADY_W if spread else float(np.mean([window.truth_w for window in windows]))
    return Window(energy.joules, energy.uncertainty_j, energy.degrees, truth_w), BURSTS * length_s


def repeat(window: Window) -> Measurement:
    """A window as a repeat of rounds of one second."""
    energy = Energy(window.watts, window.uncertainty_w, window.watts, "", "", window.degrees)
    return Measurement((WorkloadResult(Status.OK, 1.0),), 1.0, energy=energy)


KINDS = {"single": single, "known": known, "needed": needed, "joined": joined}
SUFFIXES = {
    "single": "",
    "known": " (twelfth window)",
    "needed": " (as long as needed)",
    "joined": " x 3",
}


def case(sensor: str, kind: str, load: str, runs: int, noise: str = "white") -> dict[str, Any]:
    """How often the interval of one sensor under one load covers."""
    measure = KINDS[kind]
    options = SENSORS[sensor] | NOISES[noise]
    found = [measure(options, load, run) for run in range(runs)]
    windows = [window for window, _ in found]
    errors = np.array([(w.watts - w.truth_w) / w.truth_w for w in windows])
    stated = np.array([w.uncertainty_w / w.truth_w for w in windows])
    return {
        "sensor": sensor,
        "kind": kind,
        "load": load,
        "noise": noise,
        "window_s": float(np.mean([length_s for _, length_s in found])),
        "runs": runs,
        "covered": float(np.mean(np.abs(errors) <= COVERAGE * stated)),
        "error_rms": float(np.sqrt(np.mean(errors**2))),
        "error_mean": float(np.mean(errors)),
        "stated_rms": float(np.sqrt(np.mean(stated**2))),
        "stated_median": float(np.median(stated)),
    }


def cases() -> Iterator[tuple[str, str, str, str]]:
    """(sensor, kind, load, noise) of all."""
    for sensor, options in SENSORS.items():
        for noise in NOISES:
            if noise.startswith("AR") and options["kind"] == "counter":
                continue  # what a counter has counted has no noise that hangs together
            for load in LOADS if noise == "white" else SMOOTH:
                yield sensor, "single", load, noise
            if noise.startswith("AR"):
                yield sensor, "known", "steady", noise
            for load in SMOOTH:
                yield sensor, "needed", load, noise
            for load in JOINED if noise == "white" else JOINED[:1]:
                yield sensor, "joined", load, noise


def label(row: dict[str, Any]) -> str:
    """Load and noise of a row."""
    noise = "" if row["noise"] == "white" else f", {row['noise']}"
    return f"{row['load']}{SUFFIXES[row['kind']]}{noise}"


def main() -> None:
    """Count, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose names, as 'SENSOR | LOAD', contain this")
    options = parser.parse_args()
    print("everything modelled; noise of a sample 1 %; 95 % intervals")
    print("| sensor | load | windows | covered | error rms | stated u | median |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    chosen = [
        (sensor, kind, load, options.runs, noise)
        for sensor, kind, load, noise in cases()
        if options.only in f"{sensor} | {label({'load': load, 'kind': kind, 'noise': noise})}"
    ]
    rows = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for row in pool.map(case, *zip(*chosen, strict=True)):
            rows.append(row)
            print(
                f"| {row['sensor']} | {label(row)}"
                f" | {row['window_s']:.2f} s | {row['covered']:.1%} | {row['error_rms']:.3%}"
                f" | {row['stated_rms']:.3%} | {row['stated_median']:.3%} |",
                flush=True,
            )
    if options.out:
        from provenance import provenance, save  # noqa: PLC0415 - the counting is also done by a test, from elsewhere

        document = {"modelled": True, "provenance": provenance(), "noise": NOISE, "rows": rows}
        save(options.out, document)


if __name__ == "__main__":
    main()
