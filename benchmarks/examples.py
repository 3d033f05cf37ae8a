"""Tunes the examples on this GPU, and holds each answer to a sweep of every configuration by CuPy.

For each example: ``tuner run`` as a process of its own, with empty caches; then every configuration, compiled
to cubins, loaded and launched by CuPy, back to back between CUDA events, in turn; then the fastest of these
and our answer once more, in an order drawn anew in every round. Medians of this one timer are compared. What
the time does not suffice for is left out of a sweep, at random, and said.

    python benchmarks/examples.py --json benchmarks/results/examples-h200.json [--only NAME ...] [--limit 450]
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cold_timing import median
from provenance import provenance

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.devices.cuda import probe
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Configuration, Plan, Scalar, Stage
from tuner.problems.lookup import problem_for

# --- times every configuration of a kernel by CuPy, for ``examples.py``: neutral towards who chose them

BATCH_S = 5e-4  # runs back to back between two events take about this long
MOST_RUNS = 32
FIRST_ROUNDS, SLOW = 3, 1.3  # rounds of all; what is slower than the best by this factor gets no more
FINALISTS, FINAL_ROUNDS = 8, 40
FINAL_S = 3.0  # what the finalists take, about

Run = Callable[[], None]


@dataclass(frozen=True)
class Swept:
    """What a sweep has found.

    Attributes:
        timed: configurations that were timed.
        times: seconds of the finalists.
    """

    timed: int
    times: Mapping[Configuration, float]

    @property
    def best(self) -> Configuration:
        """The fastest."""
        return min(self.times, key=self.times.__getitem__)


class Sweeper:
    """Loads and times configurations by CuPy; ``cubins`` is a folder for what is compiled."""

    def __init__(self, cp: Any, cubins: Path) -> None:
        self._cp = cp
        self._compiler = Compiler(probe.gpu_limits(cp, 0).architecture, cubins)
        self._begin, self._end = cp.cuda.Event(), cp.cuda.Event()
        self._stream = cp.cuda.Stream(non_blocking=True)

    def close(self) -> None:
        """End what compiles."""
        self._compiler.close()

    def sweep(self, plans: Sequence[Plan], answer: Configuration | None, until: float) -> Swept:
        """Times of a space, ``answer`` among the finalists; what comes after ``until`` is left out."""
        plans = list(plans)
        random.Random(1).shuffle(plans)  # noqa: S311 - an order, not a secret
        runs = self._runs(plans)
        first: dict[Configuration, float] = {}
        for configuration, run in runs.items():
            if not first or time.monotonic() < until - FINAL_S or configuration == answer:
                with suppress(self._cp.cuda.driver.CUDADriverError):  # more registers than a block may have
                    first[configuration] = self._first(run)
        chosen = sorted(first, key=first.__getitem__)[:FINALISTS]
        if answer is not None and answer in first:
            chosen = list(dict.fromkeys([*chosen, answer]))
        return Swept(len(first), self._final({one: runs[one] for one in chosen}, first))

    def _runs(self, plans: Sequence[Plan]) -> dict[Configuration, Run]:
        """What runs each plan once, of those that compile."""
        made = iter(self._compiler.compile([stage for plan in plans for stage in plan.stages]))
        arrays = self._arrays(plans[0])
        self._cp.cuda.runtime.deviceSynchronize()  # they are made on another stream
        runs = {}
        for plan in plans:
            compiled = [next(made) for _ in plan.stages]
            self._add_scratch(arrays, plan)
            launches = [
                self._launch(stage, code, arrays)
                for stage, code in zip(plan.stages, compiled, strict=True)
                if isinstance(code, CompiledStage)
            ]
            if len(launches) == len(plan.stages):
                runs[plan.configuration] = _together(launches)
        self._cp.cuda.runtime.deviceSynchronize()
        return runs

    def _arrays(self, plan: Plan) -> dict[str, Any]:
        """Inputs as the tuner makes them (in kind, not in value), and outputs."""
        sizes = {**dict(plan.workload.sizes), "batch": plan.workload.batch}
        inputs = problem_for(plan.problem).inputs(np, np.random.default_rng(0), plan.buffers, sizes)
        arrays = {name: self._cp.asarray(array) for name, array in inputs.items()}
        self._add_scratch(arrays, plan)
        return arrays

    def _add_scratch(self, arrays: dict[str, Any], plan: Plan) -> None:
        """Arrays that no input is made for; those of other configurations may be larger."""
        for buffer in plan.buffers:
            if buffer.name not in arrays or arrays[buffer.name].size < buffer.elements:
                arrays[buffer.name] = self._cp.zeros(buffer.shape, buffer.dtype)

    def _launch(self, stage: Stage, code: CompiledStage, arrays: Mapping[str, Any]) -> Run:
        module = self._cp.cuda.function.Module()
        module.load(code.cubin)
        for lowered, (_, buffer) in zip(code.symbols, stage.symbols, strict=True):
            self._fill(module, lowered, arrays[buffer])
        function = module.get_function(code.lowered_name)
        arguments = tuple(_value(one, arrays) for one in stage.arguments)
        if stage.shared_bytes + code.resources.static_shared_bytes > 48 * 1024:
            driver = self._cp.cuda.driver
            wanted = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.funcSetAttribute(function.ptr, wanted, stage.shared_bytes)
        grid, block, shared_bytes, stream = stage.grid, stage.block, stage.shared_bytes, self._stream

        def run() -> None:
            function(grid, block, arguments, shared_mem=shared_bytes, stream=stream)

        return run

    def _fill(self, module: Any, symbol: str, array: Any) -> None:
        """Copy an array to a variable of the module."""
        runtime = self._cp.cuda.runtime
        runtime.memcpy(
            int(module.get_global_var(symbol)), array.data.ptr, array.nbytes, runtime.memcpyDeviceToDevice
        )

    def _first(self, run: Run) -> float:
        """Seconds of a run, by few batches."""
        self._timed(run, 1)
        count = _batch(self._timed(run, 1))
        return median([self._timed(run, count) for _ in range(FIRST_ROUNDS)])

    def _final(
        self, runs: Mapping[Configuration, Run], first: Mapping[Configuration, float]
    ) -> dict[Configuration, float]:
        """Seconds of the finalists, medians of rounds in which each has its turn."""
        least = min(first[one] for one in runs)
        order = [one for one in runs if first[one] <= SLOW * least]
        late = {one: first[one] for one in runs if one not in order}
        times: dict[Configuration, list[float]] = {one: [] for one in order}
        generator = random.Random(2)  # noqa: S311 - an order, not a secret
        for _ in range(FINAL_ROUNDS):
            generator.shuffle(order)
            for one in order:
                times[one].append(self._timed(runs[one], _batch(first[one])))
        return {**{one: median(found) for one, found in times.items()}, **late}

    def _timed(self, run: Run, count: int) -> float:
        """Seconds of one of ``count`` runs back to back, behind one that hides the launch."""
        run()
        self._begin.record(self._stream)
        for _ in range(count):
            run()
        self._end.record(self._stream)
        self._end.synchronize()
        return float(self._cp.cuda.get_elapsed_time(self._begin, self._end)) / 1e3 / count


def _batch(run_s: float) -> int:
    return max(1, min(MOST_RUNS, round(BATCH_S / max(run_s, 1e-7))))


def _together(launches: Sequence[Run]) -> Run:
    def run() -> None:
        for launch in launches:
            launch()

    return run


def _value(argument: Any, arrays: Mapping[str, Any]) -> Any:
    """An argument as CuPy takes it."""
    if isinstance(argument, str):
        return arrays[argument]
    if isinstance(argument, Scalar):
        return np.dtype(argument.dtype).type(argument.value)
    raise TypeError(f"examples pass arrays and numbers, not {type(argument).__name__}")


# --- the command -----------------------------------------------------------------------------------

FOLDER = Path(__file__).resolve().parents[1] / "examples"
TUNER = (sys.executable, "-c", "from tuner.cli.main import main; main()")
MORE = {"matmul": ({}, {"dtype": "float16"})}  # examples with two workloads
TUNING_SHARE = 0.6  # of the time that is left, for the runs of the tuner
TARGET = 0.02


@dataclass
class Row:
    """What became of one example.

    Attributes:
        workload: name.
        configurations: size of its space.
        swept: how many of these were timed by CuPy.
        evaluations: trials of the tuner.
        wall_s: of the tuner's process.
        check: ``right``, or what was wrong.
        answer: our configuration.
        best: the fastest of the sweep.
        answer_s: time of ours, by the sweep's timer.
        best_s: time of the fastest, by the same.
        own_s: time of ours, as the tuner measured it.
        trouble: why there is no answer, or empty.
    """

    workload: str
    configurations: int = 0
    swept: int = 0
    evaluations: int = 0
    wall_s: float = 0.0
    check: str = ""
    answer: str = ""
    best: str = ""
    answer_s: float | None = None
    best_s: float | None = None
    own_s: float | None = None
    trouble: str = ""

    @property
    def loss(self) -> float | None:
        """How much slower our answer is than the fastest of the sweep, as a share."""
        return None if self.answer_s is None or self.best_s is None else self.answer_s / self.best_s - 1


def names() -> list[str]:
    """The examples."""
    return sorted(path.parent.name for path in FOLDER.glob("*/kernel.toml"))


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the rows with their origin to this file")
    parser.add_argument("--only", nargs="+", choices=names(), default=names(), metavar="NAME")
    parser.add_argument(
        "--limit", type=float, default=450.0, metavar="S", help="seconds in all (%(default)s)"
    )
    parser.add_argument("--objective", default="time", choices=["time", "energy"])
    options = parser.parse_args(arguments)
    if options.limit <= 0:
        parser.error("--limit is above 0")
    return options


def main() -> None:
    """Tune and sweep one example after another, print the table, write the JSON."""
    options = parsed()
    end = time.monotonic() + options.limit
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
    cp = probe.open_cupy(0)
    jobs = [(name, more) for name in options.only for more in MORE.get(name, ({},))]
    rows = []
    with tempfile.TemporaryDirectory(prefix="examples-") as folder:
        sweeper = Sweeper(cp, Path(folder) / "cubins")
        for number, (name, more) in enumerate(jobs):
            share = (end - time.monotonic()) / (len(jobs) - number)
            row = one(sweeper, name, more, time.monotonic() + share, options.objective)
            rows.append(row)
            print(told(row), flush=True)
            if options.json is not None:
                document = {"provenance": provenance(), "rows": [asdict(r) | {"loss": r.loss} for r in rows]}
                options.json.write_text(json.dumps(document, indent=1) + "\n")
        sweeper.close()
    print(table(rows))


def one(sweeper: "Sweeper", name: str, more: Mapping[str, str], until: float, objective: str) -> Row:
    """Tune and sweep one workload."""
    kernel = load_kernel_file(FOLDER / name / "kernel.toml")
    workload = kernel.workload({"N": kernel.sizes["N"][0]} | dict(more))
    row = Row(str(workload), configurations=len(kernel.space(workload)))
    answer = tuned(row, kernel, TUNING_SHARE * (until - time.monotonic()), objective)
    try:
        plans = [kernel.plan(workload, configuration) for configuration in kernel.space(workload)]
        found = sweeper.sweep(plans, answer, until)
        row.swept, row.best, row.best_s = found.timed, str(found.best), found.times[found.best]
        row.answer_s = None if answer is None else found.times.get(answer)
    except Exception as error:  # noqa: BLE001 - one example must not end the others
        row.trouble = row.trouble or f"sweep: {type(error).__name__}: {error}"
    return row


def tuned(row: Row, kernel: KernelFile, limit_s: float, objective: str) -> Configuration | None:
    """Our answer, by a process with empty caches; what it tells of itself is put into the row."""
    with tempfile.TemporaryDirectory(prefix="tuned-", ignore_cleanup_errors=True) as folder:
        out = Path(folder) / "run.json"
        command = [*TUNER, "run", row.workload, "--kernel", str(kernel.path), "--objective", objective]
        command += ["--device", "cuda:0", "--time-limit", f"{max(limit_s, 5):.0f}"]
        command += ["--database", f"{folder}/runs.db", "--json", str(out)]
        environment = {**os.environ, "XDG_CACHE_HOME": f"{folder}/cache"}
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        row.wall_s = time.monotonic() - began
        if done.returncode or not out.exists():
            row.trouble = f"tuner run: {done.stderr.strip()[-300:] or done.returncode}"
            return None
        document = json.loads(out.read_text())
    trials = document["trials"]
    row.evaluations = document["space"]["measured"]
    wrong = sum(trial["status"] == "wrong-answer" for trial in trials)
    row.check = f"{wrong} of {len(trials)} wrong" if wrong else "right"
    best = document["best"]
    if best is None:
        row.trouble = "tuner run: no answer"
        return None
    row.own_s = best["time_s"]
    answer = Configuration(best["configurations"][row.workload])
    row.answer = str(answer)
    return answer


def told(row: Row) -> str:
    """One line of what was just done."""
    swept = f"{row.swept} of {row.configurations} swept"
    return (
        f"{row.workload}: {row.wall_s:.1f} s, {row.evaluations} evaluations, {swept} {row.trouble}".rstrip()
    )


def table(rows: Sequence[Row]) -> str:
    """The rows for people."""
    lines = [
        f"{'workload':28}{'answer':>11}{'best swept':>12}{'loss':>8}{'evaluations':>13}{'wall':>8}  check",
    ]
    for row in rows:
        loss = "–" if row.loss is None else f"{row.loss:.1%}"
        lines.append(
            f"{row.workload:28}{_us(row.answer_s):>11}{_us(row.best_s):>12}{loss:>8}"
            f"{row.evaluations:>7} of {row.configurations:<4}{row.wall_s:>6.1f} s  {row.trouble or row.check}"
        )
    met = sum(row.loss is not None and row.loss <= TARGET and row.check == "right" for row in rows)
    lines.append(f"{met} of {len(rows)} within {TARGET:.0%} of the sweep, with right answers")
    return "\n".join(lines)


def _us(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e6:.1f} µs"


if __name__ == "__main__":
    main()
