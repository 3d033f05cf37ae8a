"""Times the configurations of a space by CUDA events, for whichever tuner chose them, in both timings.

*Back to back* is a launch among launches of the same; *single* is one launch with a cold L2 (160 MB are set
to zero before it). All configurations are compiled by CuPy with the same options. First each is launched
alone twice; those that take twice as long as the best get no more. The others have a few rounds in both
timings. The best of either, and those that were chosen, have 60 rounds more, in an order drawn anew in
every round; of these the medians count.

    python kernel_tuner_neutral.py TASK-FOLDER OUT.json [--finalists 3 17 ...]
"""

import argparse
import json
import os
import random
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cold_timing import Timer, median

SLOW = 2.0  # times the best
ROUNDS, FINAL_ROUNDS = 5, 60
BEST = 4  # of each timing, that are finalists beside those given
BATCH_MS = 1.0  # launches back to back between two events take about this long
LEAST_RUNS, MOST_RUNS = 2, 64

Run = Callable[[], None]


def main() -> None:
    """Time all, then the finalists, and write their medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--finalists", type=int, nargs="*", default=[])
    options = parser.parse_args()
    import cupy  # noqa: PLC0415 - --help needs no GPU

    judge = Judge(cupy, runs_of(cupy, options.folder))
    chosen = judge.finalists(options.finalists)
    options.out.write_text(json.dumps(judge.medians(chosen, FINAL_ROUNDS)))


class Judge:
    """Times runs in turn; ``cp`` is CuPy, ``runs`` has one for each configuration."""

    def __init__(self, cp: Any, runs: Sequence[Run]) -> None:
        self._cp, self._runs, self._timer = cp, runs, Timer(cp)
        self._begin, self._end = cp.cuda.Event(), cp.cuda.Event()
        self._order = random.Random(1)  # noqa: S311 - an order, not a secret
        for run in runs:
            self._timer.once(run)
        self._first_ms = [self._timer.once(run) for run in runs]

    def finalists(self, given: Iterable[int]) -> list[int]:
        """Those given, and the best of either timing."""
        least = min(self._first_ms)
        fast = [number for number, ms in enumerate(self._first_ms) if ms <= SLOW * least]
        found = self.medians(fast, ROUNDS).values()
        best = [number for medians in found for number in sorted(medians, key=medians.__getitem__)[:BEST]]
        return list(dict.fromkeys([*given, *best]))

    def medians(self, numbers: Iterable[int], rounds: int) -> dict[str, dict[int, float]]:
        """Milliseconds of each by timing, over rounds in which each has its turn."""
        order = list(numbers)
        times: dict[str, dict[int, list[float]]] = {
            timing: {number: [] for number in order} for timing in ("back_to_back", "single")
        }
        for _ in range(rounds):
            self._order.shuffle(order)
            for number in order:
                times["back_to_back"][number].append(self._back_to_back(number))
                times["single"][number].append(self._timer.once(self._runs[number]))
        return {timing: {n: median(ms) for n, ms in found.items()} for timing, found in times.items()}

    def _back_to_back(self, number: int) -> float:
        """Milliseconds of one of several launches, behind one that hides the launch itself."""
        run = self._runs[number]
        count = max(LEAST_RUNS, min(MOST_RUNS, round(BATCH_MS / max(self._first_ms[number], 1e-3))))
        run()
        self._begin.record()
        for _ in range(count):
            run()
        self._end.record()
        self._end.synchronize()
        return float(self._cp.cuda.get_elapsed_time(self._begin, self._end)) / count


def runs_of(cp: Any, folder: Path) -> list[Run]:
    """Every configuration, compiled by CuPy on every core, on one set of arrays."""
    task = json.loads((folder / "task.json").read_text())
    options = tuple(options_of(task, folder))

    def function(number: int) -> Any:
        module = cp.RawModule(code=text_of(task, number), options=options, name_expressions=["TUNED_KERNEL"])
        return module.get_function("TUNED_KERNEL")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        functions = list(pool.map(function, range(len(task["configurations"]))))
    arguments = tuple(arrays(cp, task, folder))
    return [_run(one, launch, arguments) for one, launch in zip(functions, task["launches"], strict=True)]


def _run(function: Any, launch: dict[str, Any], arguments: tuple[Any, ...]) -> Run:
    grid, block, shared = tuple(launch["grid"]), tuple(launch["block"]), launch["shared_bytes"]
    if shared:
        function.max_dynamic_shared_size_bytes = max(function.max_dynamic_shared_size_bytes, shared)
    return lambda: function(grid, block, arguments, shared_mem=shared)


def text_of(task: dict[str, Any], number: int) -> str:
    """The source of a configuration, its macros before it, as Kernel Tuner writes it."""
    macros = "".join(f"#define {name} {values[number]}\n" for name, values in task["macros"].items())
    return f"{macros}#line 1\n{task['source']}"


def options_of(task: dict[str, Any], folder: Path) -> list[str]:
    """Compiler options, with the folder of the headers."""
    return [*task["options"], *([f"-I{folder}"] if task["headers"] else [])]


def arrays(cp: Any, task: dict[str, Any], folder: Path) -> list[Any]:
    """Random inputs in [-1, 1), stored ones of whole numbers, outputs and scalars."""
    import numpy as np  # noqa: PLC0415 - Kernel Tuner hides PyTorch before

    some = 2 * np.random.default_rng(0).random(2**20, dtype="float32") - 1
    found = []
    for one in task["arguments"]:
        if "value" in one:
            found.append(np.dtype(one["dtype"]).type(one["value"]))
        elif (folder / f"{one['buffer']}.npy").exists():
            found.append(cp.asarray(np.load(folder / f"{one['buffer']}.npy")))
        elif one["role"] in ("in", "inout"):
            found.append(cp.asarray(np.resize(some.astype(one["dtype"]), one["shape"])))
        else:
            found.append(cp.empty(one["shape"], one["dtype"]))
    return found


if __name__ == "__main__":
    main()
