"""What untuned calls of kernels choose, against the default, the analytical rules and a search, on one GPU.

Every case is a kernel at sizes that nobody tuned for it, with arrays of 256 MiB and more, or of about 1 MiB.
Configurations of its space are compiled ahead in other processes and timed a few times each. The fastest
go with what an untuned call chooses, the kernel file's default and the choice of the rules (asked without the
answers that the file states) into interleaved rounds. The first half of these says which is the best, the
second half is reported. Times are medians; large arrays begin with a cold L2, small ones run 20 times in a
row, as a CUDA graph. Every answer of these rounds is checked. Each row is stored when it is measured.

    python benchmarks/kernels/untuned_choice.py --out benchmarks/results/untuned-choice-h200.json
    python benchmarks/kernels/untuned_choice.py --out some.json --only tridiag-wm scan-lf --which full
    python benchmarks/kernels/untuned_choice.py --show benchmarks/results/untuned-choice-h200.json

With ``--first-calls 3`` fresh processes, without and with cached code, say instead what first calls take:

    python benchmarks/kernels/untuned_choice.py --first-calls 3 --out benchmarks/results/first-calls-h200.json
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError  # another class before Python 3.11
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from cold_timing import median, spread
from provenance import command_line, provenance, save
from sweep import Bench, opened

from tuner.application.choice import UntunedAnswers
from tuner.compiler.compiler import Compiler, usual_jobs
from tuner.compiler.contract import plan_resources
from tuner.devices.base import Device
from tuner.devices.cuda.answer_check import AnswerCheck, CheckedRuns
from tuner.devices.cuda.answer_kernels import AnswerKernels
from tuner.devices.cuda.arrays import BufferPool, Inputs
from tuner.devices.cuda.direct import DirectGpu
from tuner.devices.cuda.rounds import RoundRunner
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import CompileError, TunerError
from tuner.model.jobs import DeviceLimits
from tuner.model.plan import Configuration, Plan, Progress, Resources, Workload
from tuner.search.candidates import PreparedWorkload, prepare
from tuner.search.explaining import analytical_choice

LIMIT = 1.03  # of the time of an untuned call over the better of default and rules
FULL_BYTES, SMALL_BYTES = 2**28, 2**20  # of an array of rows
ROUNDS, REPEATS, QUICK = 18, 20, 3
FINALISTS = 4
AHEAD = 5  # processes that compile, each with several compilers
HOPELESS = 1.3  # times the fastest so far, by a single run
BYTES = {"float64": 8, "complex64": 8}


@dataclass(frozen=True)
class Case:
    """A kernel at one size, with many rows (``full``) or few (``small``)."""

    kernel: str
    dtype: str
    n: int
    which: str
    further: str = ""

    @property
    def spec(self) -> str:
        """As ``tuner run`` takes it."""
        room = FULL_BYTES if self.which == "full" else SMALL_BYTES
        batch = max(1, room // (BYTES.get(self.dtype, 4) * self.n))
        return f"{self.kernel}:N={self.n}{self.further},dtype={self.dtype},batch={batch}"


def cases() -> list[Case]:
    """All of them: one size of each kernel, then the next; last the kernels that no call chooses itself."""
    real, all_types = ("float32", "float64"), ("float32", "float64", "complex64")
    rows = (1000, 100, 300, 3000, 1001, 4096, 37, 128, 2048, 3001, 512, 1024, 101, 256)
    long = (10**6, 100_000, 2**26 + 3, 10**7, 2**20)
    by_name = ("tridiag-lf", "scan-ks", "tridiag-pcr", "tridiag-cr")
    parts: list[tuple[str, Sequence[str], Sequence[int], Sequence[str]]] = [
        ("tridiag-wm", all_types, rows, [""]),
        ("scan-lf", real, (*rows, 5000, 8192), [""]),
        ("scan-lf", ["int32"], (1000, 100, 5000), [""]),
        ("tridiag-large", all_types, (5000, 10**6, 50_000, 8192, 2**17, 2**20), [""]),
        ("scan-long", real, (*long, 9000), [""]),
        ("scan-flags", real, (1000, *long), [""]),
        ("tridiag-periodic", real, (1000, 100, 3000, 300, 1024), [""]),
        ("tridiag-several", real, (1000, 100, 300), [",K=2", ",K=4"]),
        ("scan-offsets", real, (1000, *long[:2]), [",ends=100"]),
        *((one, real[:1], rows[:6], [""]) for one in by_name),
    ]
    found = {
        Case(kernel, dtype, sizes[place], which, extra): None
        for place in range(max(len(sizes) for _, _, sizes, _ in parts))
        for kernel, types, sizes, further in parts
        if place < len(sizes)
        for dtype in types
        for extra in further
        for which in ("full", "small")
    }
    # right answers of these take the host seconds
    last = [Case("linear-recurrence", "float32", 100_000, which) for which in ("full", "small")]
    return [*sorted(found, key=lambda case: case.kernel in by_name), *last]


# --- configurations of a case, compiled ahead in another process ------------------------------------


@dataclass(frozen=True)
class Shortlist:
    """What is timed of a case.

    Attributes:
        listed: configurations that compile without spills, and those that are named.
        rules: what the analytical rules choose; None where they have no answer.
        seconds: it took.
    """

    listed: tuple[Configuration, ...]
    rules: Configuration | None
    seconds: float


@dataclass(frozen=True)
class Identity:
    """What candidates ask of the identity of a GPU."""

    name: str
    spec: str = "cuda:0"


class LimitsOnly:
    """A GPU as far as untuned calls and candidates ask for it; nothing runs."""

    def __init__(self, name: str, limits: DeviceLimits, compiler: Compiler) -> None:
        self.identity = Identity(name)
        self.limits = limits
        self._compiler = compiler

    def resources(
        self, plans: Sequence[Plan], progress: Progress | None = None
    ) -> list[tuple[Resources, ...] | CompileError]:
        """Compile plans in parallel, with the cache on disk."""
        return plan_resources(self._compiler, plans, progress)


_GPU: list[LimitsOnly] = []  # of the process that compiles
_CATALOG: list[Catalog] = []


def begin(name: str, limits: DeviceLimits) -> None:
    """Make what ``shortlist`` needs in its process."""
    _GPU[:] = [LimitsOnly(name, limits, Compiler(limits.architecture, jobs=max(2, usual_jobs() // AHEAD)))]
    _CATALOG[:] = [Catalog.load()]


def named(kernel: KernelFile, workload: Workload, gpu: str) -> list[Configuration]:
    """The default, and the answers that the kernel file states."""
    return list(dict.fromkeys([kernel.default(workload), *kernel.stated_answers(workload, gpu)]))


def shortlist(spec: str, most: int) -> Shortlist:
    """The named configurations, what the rules choose, and others, compiled.

    Others come in drawn order, first those whose threads exchange data as those of the default.
    """
    begun = time.monotonic()
    (gpu,), (catalog,) = _GPU, _CATALOG
    device = cast("Device", gpu)
    workload = catalog.workload(spec)
    kernel = catalog.kernel(workload.kernel)
    (item,) = prepare([(kernel, workload)], device)
    first = named(kernel, workload, gpu.identity.name)
    others = [one.configuration for one in item.candidates if one.configuration not in first]
    random.Random(1).shuffle(others)  # noqa: S311 - an order, not a secret
    alike = [kernel.roles[role] for role in ("radix", "shuffle") if role in kernel.roles]
    others.sort(key=lambda one: sum(one.get(name) != first[0].get(name) for name in alike))
    chosen = [*first, *others[: max(0, most - len(first))]]
    reports = gpu.resources([item.plans.get(one) or kernel.plan(workload, one) for one in chosen])
    listed = [
        one
        for one, report in zip(chosen, reports, strict=True)
        if not isinstance(report, CompileError)
        and (one in first or not any(part.spill_bytes or part.local_bytes for part in report))
    ]
    rules = by_rules(item, device)
    listed += [rules] if rules is not None and rules not in listed else []
    return Shortlist(tuple(listed), rules, time.monotonic() - begun)


def by_rules(item: PreparedWorkload, device: Device) -> Configuration | None:
    """What the analytical rules choose when the answers that the file states are not told."""
    untold = tuple(replace(one, stated=0) for one in item.candidates)
    choice, _ = analytical_choice(replace(item, candidates=untold, stated=()), device)
    return None if choice is None else choice.configuration


# --- one case -----------------------------------------------------------------------------------------


class Workbench:
    """The arrays of one case after another, and the launches and checks of configurations on them."""

    def __init__(self, bench: Bench) -> None:
        self._bench, self.cp = bench, bench.cp
        self._kernels = AnswerKernels(bench.cp, bench.compiler)

    def use(self, kernel: KernelFile, workload: Workload) -> None:
        """Make the arrays of a case; those of the one before are given back."""
        self._kernel, self._workload = kernel, workload
        self._pool = BufferPool(self.cp)
        inputs = Inputs(self.cp, self._pool, self._kernels)
        runner = RoundRunner(self.cp)
        self._answers = AnswerCheck(
            self.cp,
            CheckedRuns(self.cp, self._pool, self._bench.code, runner, self._kernels, inputs),
        )
        self.cp.get_default_memory_pool().free_all_blocks()
        inputs.load(self.plan(kernel.default(workload)), 1)
        self.cp.cuda.runtime.deviceSynchronize()

    def plan(self, configuration: Configuration) -> Plan:
        """The plan of a configuration."""
        return self._kernel.plan(self._workload, configuration)

    def wrong(self, configuration: Configuration) -> str:
        """What is wrong with the answers; empty where nothing is."""
        status, words = self._answers.check(self.plan(configuration), 1)
        return "" if status.value == "ok" else f"{status.value}: {words}"

    def run(self, configuration: Configuration) -> Callable[[], None]:
        """A run on the current stream."""
        plan = self.plan(configuration)
        arrays = self._pool.sets(plan, 1)[0]
        stream = self.cp.cuda.get_current_stream()
        for step in self._bench.code.preparation(plan, arrays):
            step.enqueue(stream)
        launches = self._bench.code.launches(plan, arrays)

        def once(_kept: Mapping[str, Any] = arrays) -> None:  # launches hold addresses
            on = self.cp.cuda.get_current_stream()
            for launch in launches:
                launch.enqueue(on)

        return once

    def repeated(self, once: Callable[[], None]) -> Callable[[], None]:
        """Many runs in a row, as a graph."""
        stream = self.cp.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            try:
                for _ in range(REPEATS):
                    once()
            finally:
                graph = stream.end_capture()
        graph.upload()
        launch: Callable[[], None] = graph.launch
        return launch

    def timed(
        self, listed: Sequence[Configuration], certain: Sequence[Configuration], *, repeat: bool
    ) -> dict[Configuration, tuple[float, Callable[[], None]]]:
        """Milliseconds of each by a few runs, the fastest first, and what runs it again."""
        found: dict[Configuration, tuple[float, Callable[[], None]]] = {}
        least = math.inf
        for one in listed:
            try:
                once = self.run(one)
                once()
                run = self.repeated(once) if repeat else once
                ms = self._bench.timer.once(run)
                if ms < HOPELESS * least or one in certain:
                    ms = median([ms, *(self._bench.timer.once(run) for _ in range(QUICK - 1))])
            except (TunerError, self.cp.cuda.driver.CUDADriverError) as trouble:
                print(f"  {one}: {trouble}", flush=True)
                continue
            found[one], least = (ms, run), min(least, ms)
        return dict(sorted(found.items(), key=lambda item: item[1][0]))

    def finalists(
        self, listed: Sequence[Configuration], certain: Sequence[Configuration], *, repeat: bool
    ) -> dict[Configuration, Callable[[], None]]:
        """Runs of those that take part in any case, and of the fastest, all of right answers."""
        timed = self.timed(listed, certain, repeat=repeat)
        right: dict[Configuration, Callable[[], None]] = {}
        for one in dict.fromkeys([*(one for one in certain if one in timed), *timed]):
            if len(right) >= FINALISTS + len(certain):
                break
            trouble = self.wrong(one)
            if trouble:
                print(f"  {one}: {trouble}", flush=True)
            else:
                right[one] = timed[one][1]
        return right


def contest(
    bench: Bench, workbench: Workbench, answers: UntunedAnswers, case: Case, short: Shortlist
) -> dict[str, Any]:
    """Times of one case: untuned, default, rules, and the best."""
    workload, kernel = bench.catalog.workload(case.spec), bench.catalog.kernel(case.kernel)
    gpu = cast("DirectGpu", LimitsOnly(bench.gpu_name, bench.limits, bench.compiler))
    default = kernel.default(workload)
    answer = answers.answer(kernel, workload, gpu)
    untuned = default if answer is None else answer.configuration
    certain = list(dict.fromkeys([untuned, default, *([short.rules] if short.rules else [])]))
    workbench.use(kernel, workload)
    small = case.which == "small"
    runs = workbench.finalists(short.listed, certain, repeat=small)
    missing = [str(one) for one in certain if one not in runs]
    if missing:
        raise TunerError(f"no right answer of {', '.join(missing)}")
    times = bench.timer.interleaved({str(one): run for one, run in runs.items()}, ROUNDS, seed=case.n)
    best = min(runs, key=lambda one: median(times[str(one)][: ROUNDS // 2]))
    scale = 1e3 / (REPEATS if small else 1)

    def told(one: Configuration) -> dict[str, Any]:
        reported = times[str(one)][ROUNDS // 2 :]
        return {
            "configuration": str(one),
            "us": median(reported) * scale,
            "spread_us": spread(reported) * scale,
        }

    row = {
        "workload": case.spec,
        "kernel": case.kernel,
        "which": case.which,
        "configurations_timed": len(short.listed),
        "untuned": told(untuned) | {"stated": answer is not None},
        "default": told(default),
        "rules": None if short.rules is None else told(short.rules),
        "best": told(best),
    }
    better = min(row[name]["us"] for name in ("default", "rules") if row[name])
    row["over_better"] = row["untuned"]["us"] / better
    row["over_best"] = row["untuned"]["us"] / row["best"]["us"]
    row["met"] = row["over_better"] <= LIMIT
    return row


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each kernel and kind of batch the mean and the worst row, over the better of default and rules."""
    found = []
    for kernel in dict.fromkeys(row["kernel"] for row in rows):
        for which in ("full", "small"):
            some = [row for row in rows if (row["kernel"], row["which"]) == (kernel, which)]
            if not some:
                continue
            worst = max(some, key=lambda row: float(row["over_better"]))
            found.append(
                {
                    "kernel": kernel,
                    "which": which,
                    "rows": len(some),
                    "mean_over_better": math.exp(
                        sum(math.log(row["over_better"]) for row in some) / len(some)
                    ),
                    "most_over_better": worst["over_better"],
                    "worst": worst["workload"],
                    "most_over_best": max(row["over_best"] for row in some),
                    "met": all(row["met"] for row in some),
                }
            )
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The summary for people."""
    lines = ["time of the untuned choice over the better of default and rules, and over the best found"]
    lines += [
        f"{one['kernel']:18} {one['which']:5} {one['rows']:3} rows: mean {one['mean_over_better']:.3f},"
        f" most {one['most_over_better']:.3f} ({one['worst']}), over the best at most"
        f" {one['most_over_best']:.3f}{'' if one['met'] else f'  > {LIMIT}'}"
        for one in summary(rows)
    ]
    return "\n".join(lines)


# --- first calls in fresh processes -------------------------------------------------------------------

FIRST = """
import json, sys, time
import tuner, cupy as cp
name = sys.argv[1]
def dominant(n):
    a = cp.full((n, n), 0.5, "float32")
    a[cp.arange(n), cp.arange(n)] = n
    return a
call = {
    "scan": lambda n: tuner.scan.cumsum(cp.ones((64, n), "float32"), axis=1),
    "tridiagonal": lambda n: tuner.tridiagonal.solve(*(cp.full((64, n), v, "float32") for v in (1, 4, 1, 1))),
    "fft": lambda n: tuner.fft.fft(cp.ones((64, n), "complex64")),
    "linalg.cholesky": lambda n: tuner.linalg.cholesky(dominant(n)),
    "linalg.solve": lambda n: tuner.linalg.solve(dominant(n), cp.ones((n, 4), "float32")),
    "linalg.qr": lambda n: tuner.linalg.qr(dominant(n)),
}[name]
(cp.ones(8, "float32") + cp.ones(8, "float32")).sum().get()
cp.full((64, 8), 1, "float32"), cp.ones((64, 8), "complex64"), dominant(8)
getattr(tuner, name.partition(".")[0])
def timed(n):
    cp.cuda.runtime.deviceSynchronize()
    begin = time.perf_counter()
    call(n)
    cp.cuda.runtime.deviceSynchronize()
    return time.perf_counter() - begin
first, again, other = timed(1000), timed(1000), timed(1001)
print(json.dumps({"first_s": first, "again_s": again, "other_length_s": other}))
"""


def first_calls(repeats: int) -> Iterator[dict[str, Any]]:
    """Seconds of first calls without and with cached code, each in a process of its own."""
    for name in ("scan", "tridiagonal", "fft", "linalg.cholesky", "linalg.solve", "linalg.qr"):
        for _ in range(repeats):
            with TemporaryDirectory() as folder:
                folders = {f"XDG_{kind}_HOME": folder for kind in ("CACHE", "DATA", "CONFIG", "STATE")}
                for cached in (False, True):
                    made = subprocess.run(
                        [sys.executable, "-c", FIRST, name],
                        check=False,
                        capture_output=True,
                        text=True,
                        env={**os.environ, **folders},
                    )
                    if made.returncode:
                        print(made.stderr, flush=True)
                        continue
                    yield {"call": f"tuner.{name}", "cached_code": cached, **json.loads(made.stdout)}


def measure(options: argparse.Namespace, document: dict[str, Any]) -> None:
    """Measure until all is done or the time is over; what was measured is in the document, and stored."""
    if options.first_calls:
        document["first_calls"] = []
        for row in first_calls(options.first_calls):
            document["first_calls"].append(row)
            save(options.out, document)
            print(row, flush=True)
        return
    end = time.monotonic() + options.seconds
    bench = opened()
    workbench, answers = Workbench(bench), UntunedAnswers()
    wanted = [
        case
        for case in cases()
        if (not options.only or case.kernel in options.only)
        and case.which in options.which
        and (not options.types or case.dtype in options.types)
    ]
    context = multiprocessing.get_context("spawn")
    arguments = (bench.gpu_name, bench.limits)
    with ProcessPoolExecutor(AHEAD, context, initializer=begin, initargs=arguments) as pool:
        made = [pool.submit(partial(shortlist, case.spec, options.most)) for case in wanted]
        try:
            in_time = takewhile(lambda _: time.monotonic() < end, zip(wanted, made, strict=True))
            for case, short in in_time:
                try:
                    found = short.result(max(0.0, end - time.monotonic()))
                    row = contest(bench, workbench, answers, case, found)
                except TunerError as error:
                    document["left_out"].append({"workload": case.spec, "why": str(error)})
                    print(f"left out: {case.spec}: {error}", flush=True)
                    continue
                document["rows"].append(row)
                document["summary"] = summary(document["rows"])
                save(options.out, document)
                print(
                    f"{len(document['rows']):3} / {len(wanted)}  {case.spec:55}"
                    f" {row['untuned']['us']:8.1f} us, {row['over_better']:.3f} x the better,"
                    f" {row['over_best']:.3f} x the best of {row['configurations_timed']}",
                    flush=True,
                )
        except FutureTimeoutError:
            print("time is over: what was measured is kept", flush=True)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def main() -> None:
    """Measure, or show what was measured."""
    parser = command_line(__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="kernels")
    parser.add_argument("--types", nargs="*", default=[], help="types of elements")
    parser.add_argument("--which", nargs="*", default=["full", "small"], choices=["full", "small"])
    parser.add_argument("--most", type=int, default=120, help="configurations of a case")
    parser.add_argument("--seconds", type=float, default=1500, help="after which no case is begun")
    parser.add_argument("--first-calls", type=int, default=0, help="processes of each kind")
    parser.add_argument("--show", type=Path, help="a result, instead of measuring")
    options = parser.parse_args()
    if options.show is not None:
        print(table(json.loads(options.show.read_text())["rows"]))
        return
    document: dict[str, Any] = {"provenance": provenance(), "rows": [], "left_out": [], "summary": []}
    try:
        measure(options, document)
    except KeyboardInterrupt:
        print("interrupted: what was measured is kept", flush=True)
    save(options.out, document)
    print(table(document["rows"]))


if __name__ == "__main__":
    main()
