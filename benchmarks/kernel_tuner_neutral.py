"""Times the configurations of a space by CUDA events, in turn, for whichever tuner chose them.

First every configuration, a few launches each, cold L2 (160 MB are set to zero before each); those that are
twice as slow as the best after two launches get no more. Then the finalists, 200 launches each, in an order
drawn anew in every round, once with cold L2 and once behind a launch of the same (warm L2).

    python kernel_tuner_neutral.py TASK.json OUT.json [--finalists 3 17 ...]
"""

import argparse
import json
import os
import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cold_timing import Timer, median, spread

LAUNCHES = 9
SOON = 2  # launches after which slow ones are left
SLOW = 2.0  # times the best
BEST = 5  # of all, that are finalists beside those given
FINAL_LAUNCHES = 200

Run = Callable[[], None]


def main() -> None:
    """Time all, then the finalists, and write the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("task", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--finalists", type=int, nargs="*", default=[])
    options = parser.parse_args()
    task = json.loads(options.task.read_text())
    import cupy  # noqa: PLC0415 - --help needs no GPU

    runs = runs_of(cupy, task)
    timer = Timer(cupy)
    every = all_times(timer, runs)
    medians = {number: median(times) for number, times in every.items()}
    best = sorted(medians, key=medians.__getitem__)[:BEST]
    chosen = {number: runs[number] for number in dict.fromkeys([*options.finalists, *best])}
    cold = timer.interleaved(named(chosen), FINAL_LAUNCHES, seed=1)
    warm = warm_times(cupy, chosen)
    document = {
        "ms": [medians[number] for number in range(len(runs))],
        "launches": [len(every[number]) for number in range(len(runs))],
        "finalists": {
            str(number): {
                "cold_ms": median(cold[str(number)]),
                "cold_spread_ms": spread(cold[str(number)]),
                "warm_ms": median(warm[number]),
                "warm_spread_ms": spread(warm[number]),
            }
            for number in chosen
        },
    }
    options.out.write_text(json.dumps(document))


def named(runs: dict[int, Run]) -> dict[str, Run]:
    """The runs by text, as the timer wants them."""
    return {str(number): run for number, run in runs.items()}


def all_times(timer: Timer, runs: dict[int, Run]) -> dict[int, list[float]]:
    """Milliseconds of each configuration, cold; slow ones are timed ``SOON`` times."""
    times = timer.interleaved(named(runs), SOON)
    least = min(min(found) for found in times.values())
    fast = {key: run for key, run in named(runs).items() if min(times[key]) <= SLOW * least}
    for key, more in timer.interleaved(fast, LAUNCHES - SOON, seed=2).items():
        times[key] += more
    return {number: times[str(number)] for number in runs}


def warm_times(cp: Any, runs: dict[int, Run]) -> dict[int, list[float]]:
    """Milliseconds of each run right behind another launch of the same, which hides the launch itself."""
    begin, end = cp.cuda.Event(), cp.cuda.Event()
    times: dict[int, list[float]] = {number: [] for number in runs}
    order = list(runs)
    rng = random.Random(3)  # noqa: S311 - an order, not a secret
    for _ in range(FINAL_LAUNCHES):
        rng.shuffle(order)
        for number in order:
            runs[number]()
            begin.record()
            runs[number]()
            end.record()
            end.synchronize()
            times[number].append(float(cp.cuda.get_elapsed_time(begin, end)))
    return times


def runs_of(cp: Any, task: dict[str, Any]) -> dict[int, Run]:
    """Every configuration, compiled by CuPy as in Kernel Tuner's run, on one set of arrays."""
    code, options = Path(task["source"]).read_text(), tuple(task["options"])
    names = [instance_name(task, row) for row in task["configurations"]]

    def function(name: str) -> Any:
        return cp.RawModule(code=code, options=options, name_expressions=[name]).get_function(name)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        functions = list(pool.map(function, names))
    most = allowed_shared_bytes(names, task["launches"])
    for name, function_of_name in zip(names, functions, strict=True):
        if most[name]:
            function_of_name.max_dynamic_shared_size_bytes = most[name]
    arguments = arrays(cp, task)
    return {
        number: _run(function, launch, arguments)
        for number, (function, launch) in enumerate(zip(functions, task["launches"], strict=True))
    }


def allowed_shared_bytes(names: list[str], launches: list[dict[str, Any]]) -> dict[str, int]:
    """Dynamic shared memory that each function must be allowed.

    Configurations that differ in the launch alone are one function of the driver's, which keeps what was
    asked for last.
    """
    most: dict[str, int] = dict.fromkeys(names, 0)
    for name, launch in zip(names, launches, strict=True):
        most[name] = max(most[name], launch["shared_bytes"])
    return most


def _run(function: Any, launch: dict[str, Any], arguments: tuple[Any, ...]) -> Run:
    grid, block, shared = tuple(launch["grid"]), tuple(launch["block"]), launch["shared_bytes"]
    return lambda: function(grid, block, arguments, shared_mem=shared)


def instance_name(task: dict[str, Any], row: list[Any]) -> str:
    """The name of the template's instance: words that are tunables are replaced by their labels."""
    labels = dict(zip(task["tunables"], row, strict=True))
    return re.sub(r"\w+", lambda word: str(labels.get(word[0], word[0])), task["kernel"])


def arrays(cp: Any, task: dict[str, Any]) -> tuple[Any, ...]:
    """Random inputs in [-1, 1), outputs and scalars."""
    rng = cp.random.default_rng(0)
    found = []
    for one in task["arguments"]:
        if "value" in one:
            found.append(cp.dtype(one["dtype"]).type(one["value"]))
        else:
            found.append(2 * rng.random(one["shape"], dtype=one["dtype"]) - 1)
    return tuple(found)


if __name__ == "__main__":
    main()
