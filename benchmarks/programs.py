"""Whole programs on modelled GPUs: what the answer of few runs loses against a sweep of every clock.

Twelve shapes of programs (flat, bound by arithmetic or memory, phases, gaps of input and output, several
processes) run on seven modelled GPUs, by `tuner program run`'s own search: six settings, and the best in turn
with the default. Times scatter by 0.3 % from run to run, joules by 0.5 %, standard deviations. The sweep
knows every clock without noise. All numbers are modelled; no GPU is needed, and nothing is set.

    python benchmarks/programs.py --out benchmarks/results/programs-modelled.json
"""

import itertools
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from provenance import command_line, provenance, save
from tuner.power.base import ClockReading

from tuner.devices.choice import open_device
from tuner.devices.gpu_models import GpuModel, gpu_model
from tuner.devices.sensors import open_clocks
from tuner.devices.simulated.time_model import active_watts, bandwidth, idle_watts, load_watts
from tuner.measurement.settle import SettingLock
from tuner.model.objective import Objective
from tuner.model.trial import Energy, Trial
from tuner.programs.measuring import ProgramMeasurer, ProgramRun
from tuner.programs.program import Program
from tuner.programs.tuning import tune_program
from tuner.search.request import SearchRequest
from tuner.search.session import TrialEvent
from tuner.search.setup import MeasurementSetup

GPUS = ("jetson-tx1", "jetson-xavier", "jetson-orin", "v100", "a100", "h100", "h200")
BOUND = 0.05
TIME_NOISE, JOULES_NOISE = 0.003, 0.005
TOP_S = 100.0  # a run at the highest clock


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


def modelled(gpu: GpuModel, shape: Sequence[Phase], clock_mhz: float) -> tuple[float, float]:
    """Seconds and joules of a run at a clock, without noise."""
    top = gpu.clocks_mhz[0]
    slower = top / clock_mhz
    starved = bandwidth(gpu, top) / bandwidth(gpu, clock_mhz)
    total_s = total_j = 0.0
    for phase in shape:
        gpu_s = phase.share * TOP_S * phase.busy
        cores_s, memory_s = gpu_s * phase.cores * slower, gpu_s * (1.0 - phase.cores) * starved
        host_s = phase.share * TOP_S * ((1.0 - phase.busy) if not phase.overlapped else 1.0)
        took_s = max(cores_s + memory_s, host_s) if phase.overlapped else cores_s + memory_s + host_s
        square = gpu.voltage.squared(clock_mhz)
        memory_w = (
            active_watts(gpu, clock_mhz) + (gpu.power.memory_w + gpu.power.transport_w * square) / starved
        )
        idle_s = max(0.0, took_s - cores_s - memory_s)
        total_s += took_s
        total_j += (
            cores_s * load_watts(gpu, clock_mhz) + memory_s * memory_w + idle_s * idle_watts(gpu, clock_mhz)
        )
    return total_s, total_j


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
        runs: of the program in all.
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


def search(gpu: GpuModel, name: str, bound: float | None, seed: int, folder: Path) -> Outcome:
    """Search the clocks of one program, and hold the answer against the sweep."""
    shape = SHAPES[name]
    noise = random.Random(f"{gpu.name} {name} {bound} {seed}")  # noqa: S311 - no secrets
    program = Program((name,))

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
        measurer = ProgramMeasurer(
            program,
            run,
            SettingLock(clocks),
            precision=request.energy_precision,
            needs_energy=True,
            tell=lambda _sentence: None,
        )
        yield MeasurementSetup(device, measurer, clocks, "", "modelled", 0.0, ())
        device.close()

    heard = Silent()
    request = SearchRequest(objective="energy", clocks="auto", max_slowdown=bound, energy_precision=0.005)
    found = tune_program(
        program, request, heard, opened, device=f"sim:{gpu.name}", database=folder / "programs.db"
    )
    answer, default = found.trials[found.answer or 0], found.trials[found.default or 0]
    true = {mhz: modelled(gpu, shape, mhz) for mhz in gpu.clocks_mhz}
    top_s = true[gpu.clocks_mhz[0]][0]
    limit_s = top_s * (1.0 + (bound if bound is not None else 1e9))
    best_mhz = min((mhz for mhz in true if true[mhz][0] <= limit_s), key=lambda mhz: true[mhz][1])
    clock_mhz = answer[0].clock_mhz or 0
    time = Objective("time")
    return Outcome(
        gpu.name,
        name,
        bound,
        clock_mhz,
        best_mhz,
        true[clock_mhz][1] / true[best_mhz][1] - 1.0,
        true[clock_mhz][0] / top_s - 1.0,
        time.cost(answer[1]) / time.cost(default[1]) - 1.0,
        heard.runs,
    )


def summary(outcomes: Sequence[Outcome]) -> dict[str, float | int]:
    """Means and extremes over searches."""
    return {
        "searches": len(outcomes),
        "mean_loss": statistics.fmean(one.loss for one in outcomes),
        "worst_loss": max(one.loss for one in outcomes),
        "mean_runs": statistics.fmean(one.runs for one in outcomes),
        "most_runs": max(one.runs for one in outcomes),
        "worst_slowdown": max(one.slowdown for one in outcomes),
        "worst_measured_slowdown": max(one.measured_slowdown for one in outcomes),
    }


def main() -> int:
    """Search, print a table, write what was found; 1 where a bound was exceeded as measured."""
    parser = command_line(__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="searches of each program, GPU and bound")
    parser.add_argument("--bounded", action="store_true", help="searches under the slowdown limit alone")
    options = parser.parse_args()
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        bounds = {"5 % slower at most": BOUND} | ({} if options.bounded else {"any slowdown": None})
        cases = itertools.product(GPUS, SHAPES, bounds.values(), range(options.seeds))
        for number, (gpu, shape, bound, seed) in enumerate(cases):
            place = Path(folder) / str(number)  # no search knows the answer of another
            place.mkdir()
            outcomes.append(search(gpu_model(gpu), shape, bound, seed, place))
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
