r"""Input-adaptive kernels: every configuration at many inputs, and how well inputs are predicted from others.

Every configuration of a kernel is timed at ``--count`` inputs, spread evenly in the logarithm of their sizes,
up to arrays of 2^31 elements. On a GPU, all eight kernels in eight minutes:

    python benchmarks/input_adaptive.py --device cuda:0 --out sweeps.json

The file is written anew after each kernel; the same command goes on with the inputs that it lacks, and a
measurement that comes to ``--seconds`` ends with what it has. Clocks as found; nothing is set, and no answer
is checked (tests/kernels/test_adaptive_kernels_gpu.py does). Each configuration has up to three looks:

* look 1, all: three single rounds;
* look 2, those near the best of look 1: a window of 3 ms, unless a round takes a third of that; another one
  where it says more than look 1 did, and the lower counts;
* look 3, the best six: two more windows; the median of the three counts.

Arrays of 24 KiB to 2 MiB would go round in so many sets that each window takes a tenth of a second to make
ready: there, every configuration has a window of 1 ms of single rounds, each behind a flush of the L2
(``"single": true`` of the input).

Left out are configurations that have so few threads that they would take three times the best, by a bound on
the pace of one thread (5 ns for a number from memory, 1 ns for a multiplication with an addition), and
those with the fewest threads where others took twenty times the best for long. On a simulated device every
number is modelled.

From the sweeps follow, as the tables of the G-ADAPT paper, on any machine:

* Table I: what each method predicts for an input from the others, by the best of the whole space;
* Fig. 2, 3, 5 and 6: what the worst, the default, the best single configuration and the versions cost;
* the same with the block size alone as tunable, as in the paper;
* a training as `tuner train` does by default, which measures a part: what it says, and what is true.

    python benchmarks/input_adaptive.py --analyse sweeps.json --out .../input-adaptive-h200.json
    python benchmarks/input_adaptive.py --show .../input-adaptive-h200.json
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from provenance import provenance, save
from tuner.policies.independent import places

from tuner.compiler.compiler import Compiler
from tuner.compiler.contract import plan_resources
from tuner.devices.base import Device
from tuner.devices.choice import open_device
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.size_condition import written_out
from tuner.model.plan import Configuration, Plan, TunableValue
from tuner.model.trial import Status
from tuner.prediction.methods import forest_of
from tuner.prediction.model import Accuracy, LeftOut, rounded
from tuner.prediction.portfolio import portfolio_of
from tuner.prediction.training_set import FeatureTable, InputTrials, Sizes, TrainingSet
from tuner.search.candidates import plan_bytes
from tuner.studies.learning import accuracies, allowed_of, between_of, feature_table
from tuner.studies.training import TrainingRequest, draw, drawn_sizes, evaluations_of, looks_guided

# --- inputs ----------------------------------------------------------------------------------------

_IMAGE = ("H=1..10^7, W=1..10^7, R=[2, 4, 8, 16]", (("H", "W"),))
_MATRIX = ("H=1..10^7, W=1..10^7", (("H", "W"),))
_PRODUCT = (("M", "K"), ("K", "N"), ("M", "N"))
INPUTS: Mapping[str, tuple[str, Sequence[Sequence[str]]]] = {  # ranges, and the shapes of its arrays
    "reduction": ("N=2^10..2^31", (("N",),)),
    "transpose-naive": _MATRIX,
    "transpose": _MATRIX,
    "scalar-product": ("P=1..10^7, L=1..10^7", (("P", "L"),)),
    "mvmul": _MATRIX,
    "convolution-rows": _IMAGE,
    "matmul-split-k": ("M=1..10^6, N=1..10^6, K=1..10^6", _PRODUCT),
    "convolution-columns": _IMAGE,
}
COMPILED_TOGETHER = (  # one process for each, in this order
    ("reduction", "transpose-naive", "transpose", "scalar-product", "mvmul", "convolution-rows"),
    ("matmul-split-k", "convolution-columns"),
)
MOST_ELEMENTS = 2**31  # of an array
MOST_PRODUCTS = 2**35  # of matrices
SEED = 1


def inputs_of(kernel: KernelFile, count: int, room_bytes: int) -> list[Sizes]:
    """The inputs of a kernel, the first of them spread as evenly as all.

    Args:
        kernel: of ``INPUTS``.
        count: how many.
        room_bytes: that the arrays may take.
    """
    ranges, shapes = INPUTS[kernel.name]

    def allowed(sizes: Sizes) -> bool:
        numbers = [int(value) for name, value in sizes.items() if name != "R"]
        if any(math.prod(int(sizes[name]) for name in shape) > MOST_ELEMENTS for shape in shapes):
            return False
        if len(shapes) > 1 and math.prod(numbers) > MOST_PRODUCTS:
            return False
        workload = kernel.workload(sizes)
        return plan_bytes(kernel.plan(workload, kernel.default(workload))) <= room_bytes

    return draw(drawn_sizes(kernel, ranges), count, SEED, allowed)


# --- measuring -------------------------------------------------------------------------------------

WINDOW_S, SINGLE_WINDOW_S = 3e-3, 1e-3
_FEW_BYTES, _MANY_BYTES = 24 * 1024, 2 * 1024 * 1024  # of a set of arrays: between them, single rounds
_GLITCH = 1.2  # times look 1, which is never too short
_NEAR, _NEAR_S = 2.0, 15e-6  # of the best of look 1: those that get a window
_LONG = 1 / 3  # of a window: a single round that long says enough
_BEST = 6  # that are measured again
_HOPELESS, _NOTABLE_S = 3.0, 2e-3  # times the best, and seconds, from which on nothing is launched
_WASTED, _MOST_WASTED_S = 20.0, 0.3  # times the best, and seconds in all of rounds that took as long
_LEAST_S = {"bytes": 5e-9 / 4, "operations": 1e-9 / 2}  # that a single thread takes for one, at least


@dataclass
class Timed:
    """One configuration at one input.

    Attributes:
        place: of the configuration, among those of the input.
        look: that its time is of; 0 where it was not launched or failed.
        time_s: of a round.
    """

    place: int
    look: int = 0
    time_s: float = math.inf


def bound_s(plan: Plan) -> float:
    """A time that the threads of a plan take at least, were nothing but their own pace in their way."""
    stage = next(stage for stage in plan.stages if not stage.setup)
    threads = max(1, math.prod(stage.grid) * stage.threads_per_block)
    return max(
        plan.work.bytes / threads * _LEAST_S["bytes"], plan.work.operations / threads * _LEAST_S["operations"]
    )


def is_single(plans: Sequence[Plan]) -> bool:
    """True where an input is timed by single rounds."""
    return _FEW_BYTES < plan_bytes(plans[0]) < _MANY_BYTES


def looked_at(device: Device, plans: Sequence[Plan]) -> list[Timed]:
    """Time the configurations of an input, those with most threads first."""
    timed = [Timed(place) for place in range(len(plans))]
    single = is_single(plans)

    def time_s(place: int, window_s: float) -> float:
        if single:
            record = device.run_single([plans[place]], SINGLE_WINDOW_S)
        else:
            record = device.run([plans[place]], window_s)
        ok = record.results[0].status is Status.OK and record.makespan_s is not None
        return float(record.makespan_s or math.inf) if ok else math.inf

    best_s, wasted_s = math.inf, 0.0
    for one in sorted(timed, key=lambda one: bound_s(plans[one.place])):
        least_s = bound_s(plans[one.place])
        if least_s > max(_NOTABLE_S, _HOPELESS * best_s):
            continue
        one.time_s = time_s(one.place, 0.0)
        one.look = int(math.isfinite(one.time_s))
        best_s = min(best_s, one.time_s)
        wasted_s += one.time_s if _WASTED < one.time_s / best_s < math.inf else 0.0
        if wasted_s > _MOST_WASTED_S:
            break  # those that are left have fewer threads still
    for one in timed:
        if one.look and one.time_s <= _NEAR * best_s + _NEAR_S:
            if one.time_s < _LONG * WINDOW_S and not single:
                first_s, one.time_s = one.time_s, time_s(one.place, WINDOW_S)
                if one.time_s > _GLITCH * first_s:
                    one.time_s = min(one.time_s, time_s(one.place, WINDOW_S))
            one.look = 2 if math.isfinite(one.time_s) else 0
    best = sorted((one for one in timed if one.look > 1), key=lambda one: one.time_s)[:_BEST]
    again = [[time_s(one.place, WINDOW_S) for one in best] for _ in range(2)]
    for one, *others in zip(best, *again, strict=True):
        one.time_s, one.look = statistics.median([one.time_s, *others]), 3
    return timed


def swept(
    device: Device, kernel: KernelFile, inputs: Sequence[Sizes], table: dict[str, int], until_s: float
) -> Iterator[dict[str, Any]]:
    """The inputs of a kernel with their times, while there is time; the table gets what is new in it."""
    for sizes in inputs:
        begun = time.monotonic()
        if begun < until_s:
            plans = plans_of(kernel, sizes)
            timed = looked_at(device, plans)
            rows = [list(written(kernel, plan).values()) for plan in plans]
            places = [table.setdefault(json.dumps(row), len(table)) for row in rows]
            yield {
                "sizes": list(sizes.values()),
                "places": places,
                "times_us": [_short_us(one.time_s) for one in timed],
                "looks": "".join(str(one.look) for one in timed),
                "single": is_single(plans),
                "seconds": round(time.monotonic() - begun, 2),
            }


def _short_us(time_s: float) -> float | None:
    return float(f"{1e6 * time_s:.5g}") if math.isfinite(time_s) else None


def plans_of(kernel: KernelFile, sizes: Sizes) -> list[Plan]:
    """All configurations of an input, as plans."""
    workload = kernel.workload(sizes)
    return [kernel.plan(workload, configuration) for configuration in kernel.space(workload)]


def written(kernel: KernelFile, plan: Plan) -> dict[str, Any]:
    """A configuration with a value for every tunable; None for one that it has not."""
    values = dict(written_out(kernel.recipe, plan.configuration))
    return {name: values.get(name) for name in kernel.tunables}


def programs_of(kernel: KernelFile, inputs: Sequence[Sizes]) -> Iterator[Plan]:
    """A plan for every program, but for some that only certain sizes launch."""
    seen: set[tuple[Any, ...]] = set()
    for sizes in inputs:
        workload = kernel.workload(sizes)
        stages = kernel.plan(workload, kernel.default(workload)).stages
        of_sizes = tuple(option for stage in stages for option in stage.options)
        for configuration in kernel.space(workload):
            key = of_sizes, written_out(kernel.recipe, configuration)
            if key not in seen:
                seen.add(key)
                yield kernel.plan(workload, configuration)


def compile_all(options: argparse.Namespace) -> None:
    """Compile the programs of the inputs that the file lacks; the cache on disk keeps them."""
    os.nice(10)  # who measures goes first
    known = json.loads(options.out.read_text()) if options.out.exists() else {"kernels": {}}
    catalog = Catalog.load()
    with Compiler(options.compile) as compiler:
        for name in options.kernels:
            kernel = catalog.kernel(name)
            inputs = inputs_of(kernel, options.count, options.room)
            lacking = _missing(inputs, _known(known, kernel))
            found = plan_resources(compiler, list(programs_of(kernel, lacking)))
            failed = sum(isinstance(one, Exception) for one in found)
            print(f"{name} is compiled: {len(found)} configurations, {failed} failed", flush=True)


class Compiling:
    """Compiles the kernels in processes of their own, beside the measurement of those before them.

    Args:
        options: of the command.
        architecture: of the device.
        room: bytes that the arrays of an input may take.
    """

    def __init__(self, options: argparse.Namespace, architecture: str, room: int) -> None:
        self._ready: dict[str, threading.Event] = {}
        self._processes: list[subprocess.Popen[str]] = []
        for group in COMPILED_TOGETHER:
            names = [name for name in group if name in (options.kernels or INPUTS)]
            if not names:
                continue
            self._ready |= {name: threading.Event() for name in names}
            words = [sys.executable, __file__, *names, "--compile", architecture, "--room", str(room)]
            words += ["--count", str(options.count), "--out", str(options.out)]
            process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)  # its errors are shown
            self._processes.append(process)
            threading.Thread(target=self._follow, args=(process, names), daemon=True).start()

    def _follow(self, process: "subprocess.Popen[str]", names: Sequence[str]) -> None:
        for line in process.stdout or ():
            print(f"          {line}", end="", flush=True)
            name = line.partition(" ")[0]
            if name in self._ready:
                self._ready[name].set()
        for name in names:  # where it failed: the device compiles what it is given
            self._ready[name].set()

    def is_ready(self, kernel: str) -> bool:
        """True where a kernel is compiled, or nobody compiles it."""
        return self._ready[kernel].is_set()

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.terminate()
            process.wait()


def measure(options: argparse.Namespace) -> None:
    """Measure what the file lacks, and write it after every kernel."""
    begun = time.monotonic()
    known = json.loads(options.out.read_text()) if options.out.exists() else {}
    catalog = Catalog.load()
    with ExitStack() as stack:
        device = open_device(options.device, SEED, run_timeout_s=20.0).device
        stack.callback(device.close)
        limits = device.limits
        room = device.free_memory_bytes() // 4
        document: dict[str, Any] = {
            "modelled": device.identity.modelled,
            "provenance": provenance(),
            "device": asdict(device.identity),
            "multiprocessors": None if limits is None else limits.multiprocessors,
            "kernels": dict(known.get("kernels", {})),
        }
        kernels = [catalog.kernel(name) for name in options.kernels or INPUTS]
        inputs = {kernel.name: inputs_of(kernel, options.count, room) for kernel in kernels}
        before = {kernel.name: _known(document, kernel) for kernel in kernels}
        missing = [(kernel, _missing(inputs[kernel.name], before[kernel.name])) for kernel in kernels]
        compiling = Compiling(options, "sm_90" if limits is None else limits.architecture, room)
        stack.callback(compiling.close)
        while missing:
            ready = [one for one in missing if not one[1] or compiling.is_ready(one[0].name)]
            now = time.monotonic()
            left_s = begun + options.seconds - now
            if not ready and left_s > 0.0:
                time.sleep(0.1)
                continue
            share_s = max(0.0, left_s) / len(missing)
            kernel, lacking = (ready or missing)[0]
            missing.remove((kernel, lacking))
            of_kernel = before[kernel.name]
            table = {json.dumps(row): place for place, row in enumerate(of_kernel.get("configurations", ()))}
            found = [*of_kernel.get("inputs", ()), *swept(device, kernel, lacking, table, now + share_s)]
            document["kernels"][kernel.name] = {
                "source": kernel.fingerprint,
                "sizes": list(kernel.sizes),
                "tunables": list(kernel.tunables),
                "configurations": [json.loads(row) for row in table],
                "inputs": found,
            }
            _save(options.out, document)
            _tell(kernel.name, found, options.count, time.monotonic() - begun)


def _known(document: Mapping[str, Any], kernel: KernelFile) -> Mapping[str, Any]:
    """What the file has of a kernel; nothing where its source was another one."""
    known: Mapping[str, Any] = document["kernels"].get(kernel.name, {})
    return known if known.get("source") == kernel.fingerprint else {}


def _missing(inputs: Sequence[Sizes], known: Mapping[str, Any]) -> list[Sizes]:
    there = {tuple(one["sizes"]) for one in known.get("inputs", ())}
    return [sizes for sizes in inputs if tuple(sizes.values()) not in there]


def _save(path: Path, document: Mapping[str, Any]) -> None:
    """Replace the file, whole at any time; a line for every input."""
    partial = path.with_suffix(".part")
    text = json.dumps(document, separators=(",", ":")).replace('{"sizes":', '\n{"sizes":')
    partial.write_text(text + "\n")
    partial.replace(path)


def _tell(name: str, found: Sequence[Mapping[str, Any]], count: int, seconds: float) -> None:
    times = [time_us for one in found for time_us in one["times_us"]]
    left_out = sum(time_us is None for time_us in times)
    print(
        f"{seconds:6.1f} s  {name}: {len(found)} of {count} inputs, {len(times)} configurations,"
        f" {left_out} left out or failed",
        flush=True,
    )


# --- analysing -------------------------------------------------------------------------------------

METHODS = ("forest", "versions", "g-adapt", "one for all")
_SIGMAS = {"1": 0.02, "2": 0.005, "3": 0.002}  # relative, by look
BLOCK_SIZE: Mapping[str, tuple[Sequence[str], Mapping[str, TunableValue]]] = {
    # the tunables of a paper-sized space, and values of others; the rest as by default
    "reduction": (("B",), {}),
    "transpose": (("ROWS", "TILE"), {}),
    "matmul-split-k": (("BM", "BN"), {"BK": 16, "TM": 4, "TN": 4}),
    "mvmul": (("B",), {}),
    "scalar-product": (("B",), {}),
    "transpose-naive": (("BLOCK_X", "BLOCK_Y"), {}),
}


def analyse(path: Path, names: Sequence[str], out: Path) -> None:
    """Analyse the sweeps of a file, and write the results after each kernel."""
    sweeps = json.loads(path.read_text())
    results = json.loads(out.read_text())["kernels"] if out.exists() else {}
    for name in names or list(sweeps["kernels"]):
        kernel = Catalog.load().kernel(name)
        known = sweeps["kernels"][name]
        data = _training_set(known)
        table = feature_table(kernel, sweeps["multiprocessors"])
        results[name] = {
            "single": sum(one.get("single", False) for one in known["inputs"]),
            "left_out": sum(time_us is None for one in known["inputs"] for time_us in one["times_us"]),
            **_analysed(kernel, table, data),
        }
        save(
            out,
            {
                "modelled": sweeps["modelled"],
                "provenance": sweeps["provenance"],
                "device": sweeps["device"],
                "kernels": {name: results[name] for name in INPUTS if name in results},
            },
        )
        print(f"{name}: {json.dumps(results[name]['accuracy']['forest'])}", flush=True)


def _training_set(known: Mapping[str, Any]) -> TrainingSet:
    found = [
        Configuration(
            {n: value for n, value in zip(known["tunables"], row, strict=True) if value is not None}
        )
        for row in known["configurations"]
    ]
    return TrainingSet.of(
        (dict(zip(known["sizes"], one["sizes"], strict=True)), found[place], 1e-6 * time_us, _SIGMAS[look])
        for one in known["inputs"]
        for place, time_us, look in zip(one["places"], one["times_us"], one["looks"], strict=True)
        if time_us is not None
    )


def _analysed(kernel: KernelFile, table: FeatureTable, data: TrainingSet) -> dict[str, Any]:
    left_out = accuracies(table, kernel, data, "forest", lambda *_: None)
    return {
        "inputs": len(data.inputs),
        "trials": data.trials,
        "configurations": len(data.configurations),
        "accuracy": _judged(left_out),
        "figures": _figures(kernel, data, left_out),
        "block_size_only": _block_size_only(kernel, table, data),
        "training": _trained(kernel, table, data),
    }


def _judged(left_out: Mapping[str, Sequence[LeftOut]]) -> dict[str, Any]:
    return {method: rounded(asdict(Accuracy.of(one))) for method, one in left_out.items()}


def _figures(
    kernel: KernelFile, data: TrainingSet, left_out: Mapping[str, Sequence[LeftOut]]
) -> dict[str, Any]:
    """By input: costs of the worst, the default, the best single and the predicted one, by the best."""
    by_method = {
        method: {tuple(one.sizes.values()): round(one.slowdown, 4) for one in found}
        for method, found in left_out.items()
    }
    rows = []
    for one in data.inputs:
        default = one.place(written_out(kernel.recipe, kernel.default(kernel.workload(one.sizes))))
        key = tuple(one.sizes.values())
        rows.append(
            {
                "sizes": list(key),
                "best_us": round(1e6 * one.lowest, 3),
                "worst": round(float(one.slowdowns.max()), 3),
                "default": None if default is None else round(float(one.slowdowns[default]), 3),
                **{method: found.get(key) for method, found in by_method.items()},
            }
        )
    gains = [row["one for all"] / row["versions"] for row in rows if row["versions"] and row["one for all"]]
    return {
        "rows": rows,
        "best_configurations": len({one.configurations[int(one.costs.argmin())] for one in data.inputs}),
        "single_by_versions": round(statistics.fmean(gains), 3),
        "least_single_by_versions": round(min(gains), 3),
    }


def _block_size_only(kernel: KernelFile, table: FeatureTable, data: TrainingSet) -> dict[str, Any] | None:
    """Leave-one-out in a space as small as the paper's."""
    if kernel.name not in BLOCK_SIZE:
        return None
    free, fixed = BLOCK_SIZE[kernel.name]
    inputs = []
    for one in data.inputs:
        default = {**written_out(kernel.recipe, kernel.default(kernel.workload(one.sizes))), **fixed}
        kept = [
            place
            for place, configuration in enumerate(one.configurations)
            if all(configuration.get(name) == value for name, value in default.items() if name not in free)
        ]
        if len(kept) > 1:
            found = tuple(one.configurations[place] for place in kept)
            inputs.append(InputTrials(one.sizes, found, one.costs[kept], one.sigmas[kept]))
    small = TrainingSet(tuple(inputs))
    return {
        "configurations": len(small.configurations),
        "accuracy": _judged(accuracies(table, kernel, small, "forest", lambda *_: None)),
    }


def _trained(kernel: KernelFile, table: FeatureTable, data: TrainingSet) -> dict[str, Any]:
    """A training that measures a part of the sweeps as `tuner train` does; what it says, and what is true."""
    request = TrainingRequest(kernel.name, [one.sizes for one in data.inputs])
    seen: list[InputTrials] = []
    for number, one in enumerate(data.inputs, start=1):
        scores = None
        if looks_guided(request, len(seen)):
            scores = list(forest_of(table, TrainingSet(tuple(seen))).scores(one.sizes, one.configurations))
        count = evaluations_of(request, number, len(one.configurations), guided=scores is not None)
        seen.append(_part(one, places(len(one.configurations), scores, count, number)))
    versions = portfolio_of(
        TrainingSet(tuple(seen)),
        forest=forest_of(table, TrainingSet(tuple(seen))),
        between=between_of(kernel, data),
        allowed=allowed_of(kernel),
    ).versions
    for place, (part, one) in enumerate(zip(seen, data.inputs, strict=True)):
        wanted = {*part.configurations, *versions}
        seen[place] = _part(one, [at for at, found in enumerate(one.configurations) if found in wanted])
    left_out = accuracies(table, kernel, TrainingSet(tuple(seen)), "forest", lambda *_: None)
    by_sizes = {tuple(one.sizes.items()): one for one in data.inputs}
    true = {
        method: [_by_the_sweep(one, by_sizes[tuple(one.sizes.items())]) for one in found]
        for method, found in left_out.items()
    }
    return {
        "share": round(sum(len(one.costs) for one in seen) / data.trials, 4),
        "says": _judged(left_out),
        "true": _judged(true),
    }


def _part(one: InputTrials, chosen: Sequence[int]) -> InputTrials:
    """Some of the trials of an input."""
    found = tuple(one.configurations[place] for place in chosen)
    return InputTrials(one.sizes, found, one.costs[list(chosen)], one.sigmas[list(chosen)])


def _by_the_sweep(found: LeftOut, one: InputTrials) -> LeftOut:
    """What was predicted, by the best of the whole space."""
    place = one.configurations.index(found.configuration)
    return replace(found, slowdown=float(one.slowdowns[place]), exact=one.is_tie(place), whole=True)


# --- tables ----------------------------------------------------------------------------------------

Row = Mapping[str, Any]


def tables(kernels: Mapping[str, Row]) -> str:
    """All tables, in Markdown."""
    return "\n\n".join(
        (
            "Each input predicted from the others (Table I):\n\n" + _accuracy(kernels),
            "What the choice costs, by the best of each input (Fig. 2, 3, 5 and 6):\n\n" + _costs(kernels),
            "With the block size alone as tunable, as in the paper:\n\n" + _block_size(kernels),
            "A training that measures a part of the sweeps:\n\n" + _training(kernels),
        )
    )


def _accuracy(kernels: Mapping[str, Row]) -> str:
    head = ("kernel", "method", "within 5 %", "10 %", "mean", "worst", "best of 4 within 5 %")
    rows = []
    for name, kernel in kernels.items():
        for method in METHODS[:-1]:  # what the last costs is in the next table
            found = kernel["accuracy"][method]
            rows.append(
                (
                    f"`{name}`" if method == METHODS[0] else "",
                    method,
                    *map(_percent, found["within"][1:]),
                    f"{found['mean']:.3f}",
                    f"{found['worst']:.2f}",
                    _percent(found["within_of_first"][1]),
                )
            )
    return _table(head, rows)


def _costs(kernels: Mapping[str, Row]) -> str:
    head = (
        *("kernel", "configurations", "different bests", "worst: median", "default: mean"),
        *("one for all: mean", "versions: mean", "one for all by versions", "least"),
    )
    rows = []
    for name, kernel in kernels.items():
        figures = kernel["figures"]
        worst, default, single, versions = (
            [row[column] for row in figures["rows"] if row[column] is not None]
            for column in ("worst", "default", "one for all", "versions")
        )
        rows.append(
            (
                f"`{name}`",
                str(kernel["configurations"]),
                str(figures["best_configurations"]),
                f"{statistics.median(worst):.2f}",
                *(f"{statistics.fmean(one):.2f}" for one in (default, single, versions)),
                f"{figures['single_by_versions']:.2f} ×",
                f"{figures['least_single_by_versions']:.2f} ×",
            )
        )
    return _table(head, rows)


def _block_size(kernels: Mapping[str, Row]) -> str:
    head = (
        *("kernel", "configurations", "forest within 5 %", "10 %", "mean"),
        *("g-adapt within 5 %", "mean"),
    )
    rows = [
        (
            f"`{name}`",
            str(small["configurations"]),
            *map(_percent, small["accuracy"]["forest"]["within"][1:]),
            f"{small['accuracy']['forest']['mean']:.3f}",
            _percent(small["accuracy"]["g-adapt"]["within"][1]),
            f"{small['accuracy']['g-adapt']['mean']:.3f}",
        )
        for name, kernel in kernels.items()
        if (small := kernel["block_size_only"]) is not None
    ]
    return _table(head, rows)


def _training(kernels: Mapping[str, Row]) -> str:
    head = (
        *("kernel", "trials", "versions within 5 %, it says", "true", "mean, it says", "true"),
        *("forest: mean", "of complete sweeps"),
    )
    rows = []
    for name, kernel in kernels.items():
        one = kernel["training"]
        says, true = one["says"]["versions"], one["true"]["versions"]
        rows.append(
            (
                f"`{name}`",
                _percent(one["share"]),
                *(_percent(found["within"][1]) for found in (says, true)),
                *(f"{found['mean']:.3f}" for found in (says, true)),
                f"{one['true']['forest']['mean']:.3f}",
                f"{kernel['accuracy']['forest']['mean']:.3f}",
            )
        )
    return _table(head, rows)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def main() -> None:
    """Measure, analyse or show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="all eight without any")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--count", type=int, default=48, help="inputs of each kernel")
    parser.add_argument("--seconds", type=float, default=450.0, help="when to end, with what there is")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--analyse", type=Path, metavar="SWEEPS", help="measure nothing")
    only.add_argument("--show", type=Path, metavar="RESULT", help="print the tables of a result")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compile", metavar="SM", help=argparse.SUPPRESS)  # of the processes that do
    parser.add_argument("--room", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.kernels if name not in INPUTS]
    if unknown:
        parser.error(f"{unknown[0]} is none of {', '.join(INPUTS)}")
    if options.show is not None:
        print(tables(json.loads(options.show.read_text())["kernels"]))
    elif options.out is None:
        parser.error("--out is missing")
    elif options.analyse is not None:
        analyse(options.analyse, options.kernels, options.out)
    elif options.compile is None:
        measure(options)
    else:
        compile_all(options)


if __name__ == "__main__":
    main()
