"""Where the time of a factorisation of one large matrix goes: its stages by their names.

Each stage of the default, or of the configuration that is given, is timed apart: all its launches of a run
one after another in one graph, without those of other stages. The whole run is a graph of all of them in
their streams. What stages take apart has no overlap; it says how long a chain of them is.

    python benchmarks/kernels/linalg_large_stages.py getrf --n 1024 4096 --dtype float32
    python benchmarks/kernels/linalg_large_stages.py getrf --n 4096 --set NB=512 IB=16
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from cold_timing import Timer, median
from linalg_large_operations import DTYPES, OPERATIONS
from linalg_large_sets import LargeSets, drawn
from linalg_runs import order

from tuner.compiler.compiler import Compiler
from tuner.devices.cuda import probe
from tuner.devices.cuda.code import CodeCache
from tuner.devices.cuda.launches import StageLaunch, Step
from tuner.devices.cuda.rounds import SideStreams
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import TunerError
from tuner.model.plan import Plan, Workload

REPEATS = 5


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kernel", choices=OPERATIONS)
    parser.add_argument("--n", nargs="+", type=order(2, 32768), default=[1024, 4096], help="orders")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="values of tunables")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code."""
    options = parsed(words)
    try:
        cp = probe.open_cupy(0)
        limits = probe.gpu_limits(cp, 0)
        compiler = Compiler(limits.architecture)
    except TunerError as error:
        print(f"{error}\nThis benchmark needs a CUDA GPU.", file=sys.stderr)
        return 2
    with compiler:
        kernel = Catalog.load().kernel(options.kernel)
        for n in options.n:
            for dtype in options.dtype:
                workload = kernel.workload({"n": n, "dtype": dtype})
                plan = plan_with(kernel, workload, options.set)
                print(plan.label(), flush=True)
                _Stages(cp, CodeCache(cp, compiler, limits), plan).show()
    return 0


def plan_with(kernel: KernelFile, workload: Workload, chosen: Sequence[str]) -> Plan:
    """The configuration with the chosen values that has most of the default's."""
    default = {name: str(value) for name, value in kernel.default(workload).items()}
    wanted = dict(word.split("=", 1) for word in chosen)

    def likeness(values: dict[str, str]) -> tuple[int, int]:
        return len(values.items() & wanted.items()), len(values.items() & default.items())

    space = {c: {name: str(value) for name, value in c.items()} for c in kernel.space(workload)}
    return kernel.plan(workload, max(space, key=lambda c: likeness(space[c])))


class _Stages:
    def __init__(self, cp: Any, code: CodeCache, plan: Plan) -> None:
        self._cp, self._plan, self._timer = cp, plan, Timer(cp)
        self._sets = LargeSets(cp, plan, {name: cp.asarray(host) for name, host in drawn(plan).items()})
        self._steps = code.launches(plan, self._sets.arrays[0])
        self._stream, self._sides = cp.cuda.Stream(non_blocking=True), SideStreams(cp)

    def show(self) -> None:
        """Print the time of the run, and of its stages by name."""
        whole_ms = self._timed(self._steps)
        self._line("all", self._steps, whole_ms)
        by_name: dict[str, list[Step]] = {}
        for step in self._steps:
            name = self._plan.stages[step.place].name if isinstance(step, StageLaunch) else "other"
            by_name.setdefault(name, []).append(step)
        for name, steps in by_name.items():
            self._line(name, steps, self._timed(steps, beside=False))

    @staticmethod
    def _line(name: str, steps: Sequence[Step], time_ms: float) -> None:
        each_us = time_ms * 1e3 / len(steps)
        print(f"  {name:15} {len(steps):5} launches {time_ms:9.3f} ms {each_us:8.2f} us each", flush=True)

    def _timed(self, steps: Sequence[Step], *, beside: bool = True) -> float:
        """Median time of a graph of launches, in their streams or in one."""
        self._put(steps, beside=beside)  # loads what is loaded when first used
        self._cp.cuda.runtime.deviceSynchronize()
        self._stream.begin_capture()
        self._put(steps, beside=beside)
        graph = self._stream.end_capture()
        graph.upload(self._stream)
        self._stream.synchronize()
        current = self._cp.cuda.get_current_stream
        return median(
            [self._timer.once(lambda: graph.launch(current()), self._sets.restore) for _ in range(REPEATS)]
        )

    def _put(self, steps: Sequence[Step], *, beside: bool) -> None:
        if beside and any(isinstance(step, StageLaunch) and step.side for step in steps):
            self._sides.enqueue(steps, self._stream)
            return
        for step in steps:
            step.enqueue(self._stream)


if __name__ == "__main__":
    sys.exit(main())
