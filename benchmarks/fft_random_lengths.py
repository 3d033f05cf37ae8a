"""Transforms of random lengths, untuned, against cuFFT's best call, on one GPU.

200 random integers to 8192, and 60 to 2^24 of which every power of two has as many; four types; full batches,
and batches of 1 and 16. Ours is ``tuner.plan`` without a stored answer. Of either side a plan's call and the
same as a CUDA graph take turns in drawn order, and the faster median counts. Full batches begin with a cold
L2, small ones are repeated with warm caches. All answers are held against cuFFT's. Lengths come in drawn
order, so that what a time limit leaves is a sample, too. Kernels of lengths to come are compiled meanwhile
(some 17 s of a CPU for each length, so that few CPUs keep a GPU waiting). Every length is stored when it is
measured; one that is refused is left out, with the reason.

    python benchmarks/fft_random_lengths.py --out benchmarks/results/fft-random-lengths-h200.json
    python benchmarks/fft_random_lengths.py --out some.json --only complex128 1 16 --lengths 6848 6579
    python benchmarks/fft_random_lengths.py --planes --out benchmarks/results/fft-awkward-planes-h200.json
    python benchmarks/fft_random_lengths.py --show benchmarks/results/fft-random-lengths-h200.json
"""

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError  # another class before Python 3.11
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cold_timing import Timer, median, spread
from provenance import command_line, provenance, save

from tuner.application.calls import Application
from tuner.application.choice import UntunedAnswers
from tuner.compiler.compiler import Compiler, usual_jobs
from tuner.devices.cuda import probe
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import DeviceUnavailableError, TunerError
from tuner.model.plan import Stage

SHORT, LONG = 8192, 2**24
TYPES = ("complex64", "complex128", "float32", "float64")
BATCHES = ("full", "1", "16")
TARGETS = {  # geometric mean, least; None where none is stated
    ("short", "full"): ({"complex64": 1.3, "complex128": 1.2, "float32": 1.6, "float64": 1.6}, 0.8),
    ("short", "small"): (dict.fromkeys(TYPES, 0.95), None),
    ("long", "full"): (dict.fromkeys(TYPES, 1.3), 0.85),
    ("long", "small"): (dict.fromkeys(TYPES, 0.95), None),
    ("planes", "full"): (dict.fromkeys(TYPES[:2], 0.9), 0.9),
    ("planes", "small"): (dict.fromkeys(TYPES[:2], 0.9), 0.9),
}
PLANES = (
    (97, 1013),
    (333, 777),
    (4000, 3000),
    (1009, 640),
    (210, 1999),
    (111, 3700),
    (2048, 1011),
    (83, 5000),
)
LIMITS = {"complex64": 2e-6, "float32": 2e-6, "complex128": 4e-15, "float64": 4e-15}  # of relative L2 errors
TOGETHER = 3  # lengths whose kernels are compiled at a time
ROUNDS, REPEATS = 9, 20  # of each call; runs in a row of small batches
NOISE, ATTEMPTS = 0.1, 5  # spread over median, at which a problem is timed again; how often at most


def lengths(seed: int, short: int = 200, long: int = 60) -> list[tuple[int, ...]]:
    """The shapes of rows, in drawn order: without repetition, short and long ones mixed."""
    rng = random.Random(seed)  # noqa: S311 - lengths, not secrets
    few = rng.sample(range(2, SHORT + 1), short)
    many: dict[int, None] = {}
    while len(many) < long:
        many[round(2 ** rng.uniform(math.log2(SHORT + 1), math.log2(LONG)))] = None
    drawn = [*few, *many]
    rng.shuffle(drawn)
    return [(n,) for n in drawn]


def largest_prime(number: int) -> int:
    """The largest prime factor; 1 of 1."""
    largest, divisor = 1, 2
    while number > 1:
        while number % divisor == 0:
            largest, number = divisor, number // divisor
        divisor += 1 if divisor * divisor <= number else max(1, number - divisor)
    return largest


# --- a table of what was measured -------------------------------------------------------------------


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each kind of length, batch and type the geometric mean, the least row, and the targets."""
    found = []
    for (kind, size), (means, least) in TARGETS.items():
        for dtype, mean in means.items():
            some = [
                row
                for row in rows
                if row["dtype"] == dtype
                and kind == ("planes" if "x" in str(row["N"]) else "long" if row["N"] > SHORT else "short")
                and (row["which"] == "full") == (size == "full")
            ]
            if not some:
                continue
            worst = min(some, key=lambda row: float(row["ratio"]))
            achieved = math.exp(sum(math.log(row["ratio"]) for row in some) / len(some))
            found.append(
                {
                    "lengths": kind,
                    "batches": size,
                    "dtype": dtype,
                    "rows": len(some),
                    "mean": achieved,
                    "least": worst["ratio"],
                    "least_of": {name: worst[name] for name in ("N", "batch", "largest_prime")},
                    "target_mean": mean,
                    "target_least": least,
                    "met": achieved >= mean and (least is None or worst["ratio"] >= least),
                    "correct": all(row["correct"] for row in some),
                }
            )
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The summary as text, a line for each."""
    sides = f"{'lengths':8}{'batches':8}{'type':12}{'rows':>5}"
    lines = [f"{sides}{'mean':>7}{'target':>8}{'least':>7}{'target':>8}  least of"]
    for one in summary(rows):
        least, of = one["target_least"], one["least_of"]
        lines.append(
            f"{one['lengths']:8}{one['batches']:8}{one['dtype']:12}{one['rows']:5}{one['mean']:7.2f}"
            f"{one['target_mean']:8.2f}{one['least']:7.2f}{least or math.nan:8.2f}"
            f"  {of['N']} (prime {of['largest_prime']}), batch {of['batch']}"
            f"{'' if one['met'] else '  missed'}{'' if one['correct'] else '  WRONG'}"
        )
    return "\n".join(lines)


# --- one problem, on a GPU --------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """Rows of one length, or planes of one height and width."""

    shape: tuple[int, ...]
    dtype: str
    which: str
    full_bytes: int

    @property
    def batch(self) -> int:
        """Rows; of a full batch as many as ``full_bytes`` hold."""
        item = {"complex64": 8, "complex128": 16, "float32": 4, "float64": 8}[self.dtype]
        return (
            max(1, self.full_bytes // (item * math.prod(self.shape)))
            if self.which == "full"
            else int(self.which)
        )

    @property
    def kernel(self) -> str:
        """What the caller names."""
        if len(self.shape) > 1:
            return "fft-2d"
        return "fft" if self.dtype.startswith("complex") else "fft-real"

    @property
    def spec(self) -> str:
        """As ``tuner run`` takes it."""
        sizes = ",".join(f"{name}={n}" for name, n in zip("MN"[-len(self.shape) :], self.shape, strict=True))
        return f"{self.kernel}:{sizes},dtype={self.dtype},batch={self.batch}"


def stages(catalog: Catalog, problem: Problem, gpu: str) -> tuple[Stage, ...]:
    """What ``tuner.plan`` is going to compile, as far as the kernel file states it."""
    workload = catalog.workload(problem.spec)
    kernel = catalog.kernel(workload.kernel)
    stated = kernel.stated_answers(workload, gpu)
    return kernel.plan(workload, stated[0] if stated else kernel.default(workload)).stages


def cufft_call(x: Any, y: Any) -> Callable[[], None]:
    """CuFFT's plan for the rows or planes of ``x``, to ``y``."""
    from cupy.cuda import cufft  # noqa: PLC0415 - CuPy's binding
    from cupyx.scipy.fft import get_fft_plan  # noqa: PLC0415 - same

    if x.ndim > 2:
        plan = get_fft_plan(x, axes=(1, 2))
    else:
        kind = {"D": "Z2Z", "F": "C2C", "d": "D2Z", "f": "R2C"}[x.dtype.char]
        plan = cufft.Plan1d(x.shape[1], getattr(cufft, f"CUFFT_{kind}"), len(x))
    return partial(plan.fft, x, y, cufft.CUFFT_FORWARD)


def captured(cp: Any, call: Callable[[], Any]) -> Callable[[], None]:
    """The same call as a CUDA graph."""
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        try:
            call()
        finally:
            graph = stream.end_capture()
    graph.upload()
    launch: Callable[[], None] = graph.launch
    return launch


def contest(cp: Any, timer: Timer, application: Application, problem: Problem) -> dict[str, Any]:
    """Both sides of one problem: microseconds of a run, by their faster call."""
    n, batch = math.prod(problem.shape), problem.batch
    rng = cp.random.Generator(cp.random.Philox4x3210(n))
    real = problem.dtype.startswith("float")
    x = cp.empty((batch, *problem.shape), problem.dtype)
    flat = x.view("float32" if x.dtype.char in "fF" else "float64").reshape(-1)
    for begin in range(0, len(flat), 2**25):
        part = flat[begin : begin + 2**25]
        part[...] = rng.standard_normal(part.shape, dtype=cp.float32)
    wide = {"f": "complex64", "d": "complex128"}.get(x.dtype.char, x.dtype)
    y, other = (cp.empty((batch, n // 2 + 1) if real else x.shape, wide) for _ in range(2))
    plan = application.plan(problem.kernel, [x], {}, out=y)
    calls: dict[str, Callable[[], Any]] = {"ours": plan, "cuFFT": cufft_call(x, other)}
    for call in calls.values():
        call()
    off = float(cp.linalg.norm((y - other).ravel()) / cp.linalg.norm(other.ravel()))
    failed = {}
    for name in list(calls):
        try:
            calls[f"{name}, graph"] = captured(cp, calls[name])
        except Exception as error:  # noqa: BLE001, PERF203 - whatever a library says
            failed[name] = str(error)
    scale = 1e3
    if problem.which != "full":
        calls = {name: partial(repeat, call) for name, call in calls.items()}
        scale /= REPEATS
    for seed in range(n, n + ATTEMPTS):
        times = timer.interleaved(calls, ROUNDS, seed=seed)
        best = {
            side: min((name for name in calls if name.startswith(side)), key=lambda name: median(times[name]))
            for side in ("ours", "cuFFT")
        }
        if all(spread(times[name]) < NOISE * median(times[name]) for name in best.values()):
            break
    ours, peer = (median(times[best[side]]) * scale for side in ("ours", "cuFFT"))
    return {
        "N": n if len(problem.shape) == 1 else "x".join(map(str, problem.shape)),
        "largest_prime": largest_prime(n),
        "dtype": problem.dtype,
        "which": problem.which,
        "batch": batch,
        "kernel": plan.workload.kernel,
        "configuration": str(plan.chosen.configuration),
        "call": best["ours"],
        "us": ours,
        "spread_us": spread(times[best["ours"]]) * scale,
        "peer": best["cuFFT"],
        "peer_us": peer,
        "peer_spread_us": spread(times[best["cuFFT"]]) * scale,
        "ratio": peer / ours,
        "error": off,
        "correct": off <= LIMITS[problem.dtype],
        "not_captured": failed,
    }


def repeat(call: Callable[[], Any]) -> None:
    """Runs in a row."""
    for _ in range(REPEATS):
        call()


def groups(drawn: Sequence[tuple[int, ...]], size: int) -> Iterator[Sequence[tuple[int, ...]]]:
    """Consecutive parts."""
    return (drawn[at : at + size] for at in range(0, len(drawn), size))


def compiled(compiler: Compiler, catalog: Catalog, gpu: str, problems: Sequence[Problem]) -> float:
    """Compile to the cache what plans of problems need; one that is refused is told when its turn comes.

    Returns:
        Seconds it took.
    """
    begin = time.monotonic()
    wanted: dict[Stage, None] = {}
    for problem in problems:
        with suppress(TunerError):
            wanted.update(dict.fromkeys(stages(catalog, problem, gpu)))
    compiler.compile(list(wanted))
    return time.monotonic() - begin


def measure(options: argparse.Namespace, document: dict[str, Any]) -> None:
    """Measure until all is done or time is over; what was measured is in the document, and stored."""
    end = time.monotonic() + options.seconds
    cp = probe.import_cupy("this benchmark")
    timer, catalog = Timer(cp), Catalog.load()
    limits, gpu = probe.gpu_limits(cp, 0), probe.gpu_name(cp, 0)
    drawn = [(n,) for n in options.lengths] if options.lengths else lengths(options.seed)
    types = [one for one in TYPES if one in options.only] or TYPES
    batches = [one for one in BATCHES if one in options.only] or BATCHES
    if options.planes:
        drawn, types = list(PLANES), [one for one in types if one.startswith("complex")]
    parts = [
        [
            Problem(shape, dtype, which, options.bytes)
            for shape in part
            for dtype in types
            for which in batches
        ]
        for part in groups(drawn, TOGETHER)
    ]
    done = 0
    with (
        TemporaryDirectory() as folder,
        ThreadPoolExecutor(1) as ahead,
        Compiler(limits.architecture, jobs=max(2, usual_jobs() - 2)) as compiler,
    ):
        application = Application(catalog, Path(folder) / "none.db", None, UntunedAnswers())
        compilations = [ahead.submit(compiled, compiler, catalog, gpu, part) for part in parts]
        try:
            for compilation, part in zip(compilations, parts, strict=True):
                seconds = compilation.result(max(0.0, end - time.monotonic()))
                print(f"compiled the next in {seconds:.1f} s", flush=True)
                for shape in dict.fromkeys(problem.shape for problem in part):
                    if time.monotonic() > end:
                        return
                    shown = ratios(
                        cp, timer, application, [one for one in part if one.shape == shape], document
                    )
                    done += 1
                    store(options.out, document)
                    size = "x".join(map(str, shape))
                    print(f"{done:4} / {len(drawn)}  {size:>9}  x cuFFT: {'  '.join(shown)}", flush=True)
        except FutureTimeoutError:
            return
        finally:
            ahead.shutdown(wait=False, cancel_futures=True)
            print(f"measured {done} of {len(drawn)} lengths", flush=True)


def ratios(
    cp: Any, timer: Timer, application: Application, problems: Sequence[Problem], document: dict[str, Any]
) -> list[str]:
    """Measure problems, to rows of the document or to what it leaves out; what is shown of each."""
    shown = []
    for problem in problems:
        try:
            row = contest(cp, timer, application, problem)
            document["rows"].append(row)
            shown.append(f"{row['ratio']:.2f}{'' if row['correct'] else ' WRONG'}")
        except Exception as error:  # noqa: BLE001 - whatever a library says of one length, others go on
            document["left_out"].append({**vars(problem), "why": f"{type(error).__name__}: {error}"})
            shown.append("-")
        cp.get_default_memory_pool().free_all_blocks()
    return shown


def store(path: Path | None, document: dict[str, Any]) -> None:
    """Store what was measured so far, with its summary."""
    document["summary"] = summary(document["rows"])
    save(path, document)


def main() -> None:
    """Measure, or show what was measured."""
    parser = command_line(__doc__)
    parser.add_argument("--only", nargs="*", default=[], choices=[*TYPES, *BATCHES], help="types and batches")
    parser.add_argument("--lengths", nargs="*", type=int, help="these instead of the random ones")
    parser.add_argument("--planes", action="store_true", help="eight awkward planes instead of lengths")
    parser.add_argument("--seed", type=int, default=53, help="of the random lengths")
    parser.add_argument("--seconds", type=float, default=430, help="after which no length is begun")
    parser.add_argument("--bytes", type=int, default=2**28, help="of the input of a full batch")
    parser.add_argument("--show", type=Path, help="a result, instead of measuring")
    options = parser.parse_args()
    if options.show is not None:
        print(table(json.loads(options.show.read_text())["rows"]))
        return
    document: dict[str, Any] = {"provenance": provenance(), "rows": [], "left_out": [], "summary": []}
    try:
        measure(options, document)
    except DeviceUnavailableError as error:
        print(f"{error}\nThis benchmark needs a CUDA GPU.", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted: what was measured is kept", flush=True)
    store(options.out, document)
    print(table(document["rows"]))
    for one in document["left_out"]:
        print(f"left out: {one}")


if __name__ == "__main__":
    main()
