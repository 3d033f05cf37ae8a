"""Times every configuration of a kernel by CuPy, for ``examples.py``: neutral towards who chose them."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cold_timing import median

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.devices.cuda import probe
from tuner.model.plan import Configuration, Plan, Scalar, Stage
from tuner.problems.lookup import problem_for

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
