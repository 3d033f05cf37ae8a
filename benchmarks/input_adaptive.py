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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from provenance import provenance

from tuner.compiler.compiler import Compiler
from tuner.compiler.contract import plan_resources
from tuner.devices.base import Device
from tuner.devices.choice import open_device
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.size_condition import written_out
from tuner.model.plan import Plan
from tuner.model.trial import Status
from tuner.prediction.training_set import Sizes
from tuner.search.candidates import plan_bytes
from tuner.studies.training import draw, drawn_sizes

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


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="all eight without any")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--count", type=int, default=48, help="inputs of each kernel")
    parser.add_argument("--seconds", type=float, default=450.0, help="when to end, with what there is")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--compile", metavar="SM", help=argparse.SUPPRESS)  # of the processes that do
    parser.add_argument("--room", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.kernels if name not in INPUTS]
    if unknown:
        parser.error(f"{unknown[0]} is none of {', '.join(INPUTS)}")
    if options.compile is None:
        measure(options)
    else:
        compile_all(options)


if __name__ == "__main__":
    main()
