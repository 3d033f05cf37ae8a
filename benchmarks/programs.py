"""Whole programs on modelled GPUs: what the answer of few runs loses against a sweep of every clock.

Twelve shapes of programs (flat, bound by arithmetic or memory, phases, gaps of input and output, several
processes) run on seven modelled GPUs, by `tuner program run`'s own search: six settings, and the best in turn
with the default. Times scatter by 0.3 % from run to run, joules by 0.5 %, standard deviations. The sweep
knows every clock without noise. All numbers are modelled; no GPU is needed, and nothing is set.

With `--phases` each program is one run of two hours, whose steps of half a second scatter by 2 %, on a GPU
that takes 2 % more joules once it is warm: clocks are chosen in windows of these steps. With `--beats` such a
run marks no step: its power is shown by the modelled sensors, with a counter beside those of servers, and
the beat is found there. A step that draws one power from its beginning to its end has none.

    python benchmarks/programs.py --out benchmarks/results/programs-modelled.json
"""

import itertools
import math
import random
import statistics
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from provenance import command_line, provenance, save
from tuner.power.base import ClockReading
from tuner.power.sensors.simulated import SimulatedSampler

from tuner.devices.choice import open_device
from tuner.devices.gpu_models import GpuModel, SensorModel, gpu_model
from tuner.devices.sensors import open_clocks
from tuner.devices.simulated.time_model import active_watts, bandwidth, idle_watts, load_watts
from tuner.joules.traces import Recorder, RunningCommand
from tuner.measurement.settle import SettingLock
from tuner.model.errors import InputError
from tuner.model.objective import Objective
from tuner.model.trial import Energy, Trial
from tuner.programs.beats import BEAT
from tuner.programs.measuring import ProgramMeasurer, ProgramRun
from tuner.programs.phases import WINDOW_S, PhaseMeasurer, StepWindows
from tuner.programs.program import Program
from tuner.programs.tuning import tune_program
from tuner.search.request import SearchRequest
from tuner.search.session import TrialEvent
from tuner.search.setup import MeasurementSetup

GPUS = ("jetson-tx1", "jetson-xavier", "jetson-orin", "v100", "a100", "h100", "h200")
BOUND = 0.05
TIME_NOISE, JOULES_NOISE = 0.003, 0.005
TOP_S = 100.0  # a run at the highest clock
RUN_S = 7200.0  # one that is tuned in phases
STEP_S, STEP_NOISE = 0.5, 0.02  # of its steps
COUNTER = SensorModel("counter", kind="counter", period_s=0.1, noise=0.0005)
KEPT_S = 60.0  # of the past, for sensors that are read now and then
WARMING, WARM_S = 0.02, 120.0  # joules that a warm GPU takes more, and its time constant


@dataclass(frozen=True)
class Phase:
    """A part of a program.

    Attributes:
        share: of the time at the highest clock.
        cores: of its time there, the part that is as long as the clock is slow; the rest waits for memory.
        busy: of its time there, the part in which the GPU works; else it waits for the host.
        overlapped: whether host and GPU work at the same time, as several processes do.
    """

    share: float
    cores: float
    busy: float = 1.0
    overlapped: bool = False


SHAPES: dict[str, tuple[Phase, ...]] = {
    "flat": (Phase(1.0, 0.0, 0.05),),
    "compute-bound": (Phase(1.0, 1.0),),
    "memory-bound": (Phase(1.0, 0.0),),
    "balanced": (Phase(1.0, 0.5),),
    "mostly compute": (Phase(1.0, 0.8),),
    "mostly memory": (Phase(1.0, 0.2),),
    "phases, compute then memory": (Phase(0.5, 1.0), Phase(0.5, 0.0)),
    "phases, long memory": (Phase(0.2, 1.0), Phase(0.8, 0.1)),
    "gaps of input and output": (Phase(0.6, 0.7), Phase(0.4, 0.0, 0.0)),
    "short kernels, host between": (Phase(1.0, 0.6, 0.5),),
    "several processes": (Phase(1.0, 0.6, 0.8, overlapped=True),),
    "processes that wait for the host": (Phase(0.3, 1.0), Phase(0.7, 0.5, 0.4, overlapped=True)),
}


def parts(gpu: GpuModel, shape: Sequence[Phase], clock_mhz: float) -> Iterator[tuple[float, float]]:
    """Seconds and watts of the parts of a run at a clock, without noise."""
    top = gpu.clocks_mhz[0]
    slower = top / clock_mhz
    starved = bandwidth(gpu, top) / bandwidth(gpu, clock_mhz)
    for phase in shape:
        gpu_s = phase.share * TOP_S * phase.busy
        cores_s, memory_s = gpu_s * phase.cores * slower, gpu_s * (1.0 - phase.cores) * starved
        host_s = phase.share * TOP_S * ((1.0 - phase.busy) if not phase.overlapped else 1.0)
        took_s = max(cores_s + memory_s, host_s) if phase.overlapped else cores_s + memory_s + host_s
        square = gpu.voltage.squared(clock_mhz)
        memory_w = (
            active_watts(gpu, clock_mhz) + (gpu.power.memory_w + gpu.power.transport_w * square) / starved
        )
        yield cores_s, load_watts(gpu, clock_mhz)
        yield memory_s, memory_w
        yield max(0.0, took_s - cores_s - memory_s), idle_watts(gpu, clock_mhz)


def modelled(gpu: GpuModel, shape: Sequence[Phase], clock_mhz: float) -> tuple[float, float]:
    """Seconds and joules of a run at a clock, without noise."""
    each = list(parts(gpu, shape, clock_mhz))
    return sum(seconds for seconds, _ in each), sum(seconds * watts for seconds, watts in each)


class ModelledSteps:
    """Implements ``Windows`` of a run that goes on.

    Attributes:
        passed_s: since it began.
        slowest: true slowdown of the slowest window.
        errors: none; steps are marked.
    """

    least_s = WINDOW_S
    over = True  # of the rest nothing is asked

    def __init__(self, gpu: GpuModel, shape: Sequence[Phase], noise: random.Random) -> None:
        self._gpu, self._shape, self._noise = gpu, shape, noise
        self.passed_s = self.slowest = 0.0
        self.errors: list[float] = []

    def __call__(self, trial: Trial, most_s: float, times: int) -> ProgramRun:
        """A window at the clock of a trial."""
        time_s, joules = modelled(self._gpu, self._shape, trial.clock_mhz or 0)
        self.slowest = max(
            self.slowest, time_s / modelled(self._gpu, self._shape, self._gpu.clocks_mhz[0])[0] - 1.0
        )
        step_s, step_j = time_s / TOP_S * STEP_S, joules / TOP_S * STEP_S
        times = max(1, min(times, int(most_s / step_s) if most_s < math.inf else times))
        scatter = STEP_NOISE / math.sqrt(times)
        factor = self._noise.gauss(1.0, scatter)
        warm = 1.0 + WARMING * (1.0 - math.exp(-self.passed_s / WARM_S))
        step_s *= factor * self._noise.gauss(1.0, JOULES_NOISE / 5.0)
        step_j *= factor * self._noise.gauss(1.0, JOULES_NOISE) * warm
        self.passed_s += step_s * times + 1.0 + step_s  # the clock settles, and a step begins
        energy = Energy(
            step_j, math.hypot(JOULES_NOISE, scatter) * step_j, step_j / step_s, "modelled", "gpu"
        )
        return ProgramRun(step_s, energy, clock=ClockReading(trial.clock_mhz), scatter=scatter, times=times)

    def rest(self) -> tuple[int, float]:
        """Nothing: what a clock takes is known."""
        return 0, 0.0


class ModelledCommand:
    """A run whose power sensors show, in place of ``RunningCommand``; time goes on as it is attended.

    Args:
        gpu: modelled, with its sensors.
        shape: of a step.
        noise: of steps.

    Attributes:
        clock_mhz: that is set now.
        recorder: of its sensors.
    """

    exit_code = None

    def __init__(self, gpu: GpuModel, shape: Sequence[Phase], noise: random.Random) -> None:
        self._gpu, self._shape, self._noise = gpu, shape, noise
        self._now_s = self._drawn_s = 0.0
        self._segments: list[tuple[float, float, float]] = []
        self.clock_mhz = gpu.clocks_mhz[0]
        models = [next(sensor for sensor in gpu.sensors if sensor.kind != "counter")]
        if not gpu.name.startswith("jetson"):
            models.insert(0, COUNTER)
        samplers = [SimulatedSampler(self, seed=noise.getrandbits(32), **asdict(model)) for model in models]
        self.recorder = Recorder(samplers, now=self.now_s)

    def now_s(self) -> float:
        """Present time."""
        return self._now_s

    def power_segments(self, since_s: float) -> list[tuple[float, float, float]]:
        """Beginning, end and watts of what was drawn from a time until now."""
        first = bisect_right(self._segments, since_s, key=lambda segment: segment[1])
        return [
            (max(start, since_s), min(end, self._now_s), watts)
            for start, end, watts in self._segments[first:]
            if start < self._now_s
        ]

    def attend(self, until_s: float) -> list[tuple[float, str]]:
        """Let time go on; the program marks nothing."""
        while self._drawn_s <= until_s:
            factor = self._noise.gauss(1.0, STEP_NOISE) * STEP_S / TOP_S
            warm = 1.0 + WARMING * (1.0 - math.exp(-self._drawn_s / WARM_S))
            for seconds, watts in parts(self._gpu, self._shape, self.clock_mhz):
                if seconds > 0.0:
                    end_s = self._drawn_s + factor * seconds
                    self._segments.append((self._drawn_s, end_s, warm * watts))
                    self._drawn_s = end_s
        del self._segments[: bisect_right(self._segments, until_s - KEPT_S, key=lambda segment: segment[1])]
        self._now_s = until_s
        self.recorder.poll()
        return []

    def edge(self) -> None:
        """Poll all readings."""
        self.recorder.edge(lambda seconds: self.attend(self._now_s + seconds))

    def stop_recording(self) -> None:
        """Nothing more is asked."""


class ModelledBeats(StepWindows):
    """Windows of a modelled run, whose steps are those that its power shows.

    Attributes:
        slowest: true slowdown of the slowest window.
        errors: of the beat in each window, relative to whole steps.
    """

    def __init__(self, gpu: GpuModel, shape: Sequence[Phase], noise: random.Random) -> None:
        self.errors: list[float] = []
        self._run = ModelledCommand(gpu, shape, noise)
        self._times_s = {mhz: modelled(gpu, shape, mhz)[0] for mhz in gpu.clocks_mhz}
        self.slowest = 0.0
        super().__init__(cast(RunningCommand, self._run), BEAT, WINDOW_S, lambda _sentence: None)

    @property
    def passed_s(self) -> float:
        """Time since the run began."""
        return self._run.now_s()

    def __call__(self, trial: Trial, most_s: float, times: int) -> ProgramRun:
        """A window at the clock of a trial."""
        self._run.clock_mhz = trial.clock_mhz or 0
        slowdown = self._times_s[self._run.clock_mhz] / self._times_s[max(self._times_s)] - 1.0
        self.slowest = max(self.slowest, slowdown)
        run = super().__call__(trial, most_s, times)
        if run.failure is None:
            beats = run.duration_s / ((1.0 + slowdown) * STEP_S)
            self.errors.append(abs(beats / max(1, round(beats)) - 1.0))
        return run

    def rest(self) -> tuple[int, float]:
        """Nothing: what a clock takes is known."""
        return 0, 0.0


class Silent:
    """Hears a search, and counts its runs."""

    def __init__(self) -> None:
        self.runs = 0

    def compiled(self, done: int, total: int) -> None:
        """Nothing is compiled."""

    def measured(self, event: TrialEvent) -> None:
        """A run has ended."""
        self.runs += event.repeat > 0 or event.number > 0

    def told(self, sentence: str) -> None:
        """Nobody reads it."""

    def warming(self, watts: float, seconds: float) -> None:
        """Nothing warms up."""


@dataclass(frozen=True)
class Outcome:
    """What a search found.

    Attributes:
        gpu: modelled.
        shape: of the program.
        bound: slowdown allowed; None for any.
        clock_mhz: of the answer.
        best_mhz: of the sweep's best.
        loss: joules of the answer by those of the best allowed clock, less 1.
        slowdown: true one of the answer.
        measured_slowdown: as the turns with the default showed it.
        runs: of the program in all; windows, where it is one run.
        share: of that run that the choice took; 0 for whole runs.
        slowest: true slowdown of its slowest window; 0 likewise.
        found: False where no beat was found, and the default stayed.
        beat_error: of the beats of its windows, relative to whole steps without scatter; the mean.
    """

    gpu: str
    shape: str
    bound: float | None
    clock_mhz: int
    best_mhz: int
    loss: float
    slowdown: float
    measured_slowdown: float
    runs: int
    share: float = 0.0
    slowest: float = 0.0
    found: bool = True
    beat_error: float = 0.0


def search(gpu: GpuModel, name: str, bound: float | None, seed: int, folder: Path, *, phase: str) -> Outcome:
    """Search the clocks of one program, and hold the answer against the sweep."""
    shape = SHAPES[name]
    noise = random.Random(f"{gpu.name} {name} {bound} {seed}")  # noqa: S311 - no secrets
    program = Program((name,), phase=phase)
    steps = ModelledBeats(gpu, shape, noise) if phase == BEAT else ModelledSteps(gpu, shape, noise)

    def run(trial: Trial, _most_s: float, _times: int) -> ProgramRun:
        time_s, joules = modelled(gpu, shape, trial.clock_mhz or 0)
        time_s *= noise.gauss(1.0, TIME_NOISE)
        joules *= noise.gauss(1.0, JOULES_NOISE)
        energy = Energy(joules, JOULES_NOISE * joules, joules / time_s, "modelled", "gpu")
        return ProgramRun(time_s, energy, {}, clock=ClockReading(trial.clock_mhz))

    @contextmanager
    def opened(spec: str | None, request: SearchRequest, *_: object) -> Iterator[MeasurementSetup]:
        device, _notice = open_device(spec)
        clocks, _why = open_clocks(device)
        lock = SettingLock(clocks)
        measurer = ProgramMeasurer(
            program,
            run,
            lock,
            precision=request.energy_precision,
            needs_energy=True,
            tell=lambda _sentence: None,
        )
        if phase:
            measurer = PhaseMeasurer(program, steps, lock, bound, tell=lambda _sentence: None)
        yield MeasurementSetup(device, measurer, clocks, "", "modelled", 0.0, ())
        device.close()

    heard = Silent()
    request = SearchRequest(objective="energy", clocks="auto", max_slowdown=bound, energy_precision=0.005)
    clock_mhz = top_mhz = gpu.clocks_mhz[0]
    measured_slowdown, is_found = 0.0, True
    try:
        found = tune_program(
            program, request, heard, opened, device=f"sim:{gpu.name}", database=folder / "programs.db"
        )
    except InputError:
        if phase != BEAT:
            raise
        is_found = False
    else:
        answer, default = found.trials[found.answer or 0], found.trials[found.default or 0]
        clock_mhz, time = answer[0].clock_mhz or 0, Objective("time")
        measured_slowdown = time.cost(answer[1]) / time.cost(default[1]) - 1.0
    true = {mhz: modelled(gpu, shape, mhz) for mhz in gpu.clocks_mhz}
    top_s = true[top_mhz][0]
    limit_s = top_s * (1.0 + (bound if bound is not None else 1e9))
    best_mhz = min((mhz for mhz in true if true[mhz][0] <= limit_s), key=lambda mhz: true[mhz][1])
    return Outcome(
        gpu.name,
        name,
        bound,
        clock_mhz,
        best_mhz,
        true[clock_mhz][1] / true[best_mhz][1] - 1.0,
        true[clock_mhz][0] / top_s - 1.0,
        measured_slowdown,
        heard.runs,
        steps.passed_s / RUN_S,
        steps.slowest,
        is_found,
        statistics.fmean(steps.errors or [0.0]),
    )


def summary(outcomes: Sequence[Outcome]) -> dict[str, float | int]:
    """Means and extremes over searches; those without a beat are counted alone."""
    searches, outcomes = len(outcomes), [one for one in outcomes if one.found] or outcomes
    return {
        "searches": searches,
        "found": sum(one.found for one in outcomes),
        "mean_loss": statistics.fmean(one.loss for one in outcomes),
        "worst_loss": max(one.loss for one in outcomes),
        "mean_runs": statistics.fmean(one.runs for one in outcomes),
        "most_runs": max(one.runs for one in outcomes),
        "worst_slowdown": max(one.slowdown for one in outcomes),
        "worst_measured_slowdown": max(one.measured_slowdown for one in outcomes),
        "mean_share": statistics.fmean(one.share for one in outcomes),
        "most_share": max(one.share for one in outcomes),
        "slowest_window": max(one.slowest for one in outcomes),
        "mean_beat_error": statistics.fmean(one.beat_error for one in outcomes),
    }


def main() -> int:
    """Search, print a table, write what was found; 1 where a bound was exceeded as measured."""
    parser = command_line(__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="searches of each program, GPU and bound")
    parser.add_argument("--bounded", action="store_true", help="searches under the slowdown limit alone")
    parser.add_argument("--phases", action="store_true", help="one run of two hours, tuned while it goes on")
    parser.add_argument("--beats", action="store_true", help="the same, of a run that marks no step")
    options = parser.parse_args()
    phase = BEAT if options.beats else "step" if options.phases else ""
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        bounds = {"5 % slower at most": BOUND} | ({} if options.bounded else {"any slowdown": None})
        cases = itertools.product(GPUS, SHAPES, bounds.values(), range(options.seeds))
        for number, (gpu, shape, bound, seed) in enumerate(cases):
            place = Path(folder) / str(number)  # no search knows the answer of another
            place.mkdir()
            outcomes.append(search(gpu_model(gpu), shape, bound, seed, place, phase=phase))
    rows = {
        words: summary([one for one in outcomes if one.bound == bound]) for words, bound in bounds.items()
    }
    for words, row in rows.items():
        numbers = ", ".join(
            f"{key.replace('_', ' ')} {value if isinstance(value, int) else f'{value:.4f}'}"
            for key, value in row.items()
        )
        print(f"{words} (modelled): {numbers}")
    for one in sorted(outcomes, key=lambda one: -one.loss)[:5]:
        print(f"most lost: {one}")
    shapes = {shape: summary([one for one in outcomes if one.shape == shape]) for shape in SHAPES}
    save(
        options.out,
        {
            "provenance": provenance(),
            "modelled": True,
            "noise": {"time": TIME_NOISE, "joules": JOULES_NOISE},
            "rows": rows,
            "shapes": shapes,
            "searches": [asdict(one) for one in outcomes],
        },
    )
    return int(rows["5 % slower at most"]["worst_measured_slowdown"] > BOUND)


if __name__ == "__main__":
    sys.exit(main())
