"""Scans of one long row against CUB's DeviceScan, side by side in one run on one GPU.

For every case some configurations of the kernel are timed, and every form of CUB: as it comes, and with other
tunings. The best few of both go with bare copies into interleaved rounds. The first half of those rounds
chooses configuration and form, the second half is reported. Times are medians with a cold L2 (160 MB are
zeroed before every repeat) of everything that a call puts into the stream: the kernel's board set to zero and
its launch, CUB's initialisation and its launch. CUB's temporary storage is allocated before. Forms of CUB
whose error is not allowed do not count. *Of a copy* is of the fastest copy, by the bytes that are moved.

    python benchmarks/kernels/long_scan_peers.py --out benchmarks/results/long-scan-peers-h200.json
                                                 [--seconds 200] [--only complex]
"""

import ctypes
import functools
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from cold_timing import copy_bandwidth, median, spread
from peer_libraries import Peer
from provenance import command_line, provenance, save
from sweep import Bench, Data, Result, allowed_error, bare, opened

from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Configuration, Workload

# --- what is scanned, and right answers in float64 ------------------------------------------------


PIECE = 2**16  # elements whose errors are joined by one block


@dataclass(frozen=True)
class Case:
    """One row: its type, what is done with it, and its length.

    Attributes:
        dtype: of the elements.
        operator: ``sum`` or ``min``.
        form: ``inclusive`` or ``exclusive``.
        n: elements.
    """

    dtype: str
    operator: str
    form: str
    n: int

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.form} {self.operator}, {self.dtype}, N = 2^{self.n.bit_length() - 1}"

    @property
    def sizes(self) -> dict[str, int | str]:
        """Of the workload."""
        return {"N": self.n, "dtype": self.dtype, "operator": self.operator, "form": self.form}


CASES = (
    *(Case("float32", "sum", "inclusive", 2**k) for k in (24, 28, 20, 22, 26, 30, 21, 23, 25, 27, 29)),
    *(Case("complex64", "sum", "inclusive", 2**k) for k in (26, 22)),
    *(Case(dtype, "sum", "inclusive", 2**k) for dtype in ("int32", "float64", "int64") for k in (22, 26)),
    Case("float32", "sum", "exclusive", 2**26),
    Case("float32", "min", "inclusive", 2**26),
)


class LongRow(Data):
    """One row whose error is joined by many blocks."""

    def error(self, cp: Any, answer: Any = None) -> float:
        """See ``Data.error``; of whole numbers and least values, how many differ."""
        given = (self.output if answer is None else answer).reshape(-1, PIECE)
        right = self.reference.reshape(-1, PIECE)
        if self.scale is None:
            return float(_differing(cp)(given, right, axis=1).sum())
        if given.dtype.kind == "c":
            given, right = (one.view(one.real.dtype).reshape(-1, PIECE) for one in (given, right))
        errors = _largest(cp)(given, right, axis=1).max() / self.scale
        return float(errors) if bool(cp.isfinite(errors)) else math.inf


@functools.cache
def _largest(cp: Any) -> Any:
    code = "(abs(double(y) - right) <= 1e300 ? abs(double(y) - right) : 1e308)"
    return cp.ReductionKernel("T y, float64 right", "float64 z", code, "max(a, b)", "z = a", "0", "largest")


@functools.cache
def _differing(cp: Any) -> Any:
    return cp.ReductionKernel(
        "T y, T right", "float64 z", "double(y != right)", "a + b", "z = a", "0", "differing"
    )


def make(cp: Any, case: Case) -> LongRow:
    """A random row and its answer, in float64 or exact."""
    rng = cp.random.Generator(cp.random.Philox4x3210(1))
    if case.dtype == "complex64":
        x = _uniform(cp, rng, "float32", 2 * case.n).view(cp.complex64)
    elif case.dtype.startswith("float"):
        x = _uniform(cp, rng, case.dtype, case.n)
    else:
        x = rng.integers(-(2**31), 2**31, (1, case.n)).astype(case.dtype)
    exact = case.operator == "min" or x.dtype.kind == "i"
    if case.operator == "min":
        right = _least(cp, x)
    else:
        right = cp.cumsum(x[0], dtype=x.dtype if exact else cp.result_type(x.dtype, cp.float64))[None]
        if case.form == "exclusive":
            right -= x
    scale = None if exact else abs(right).max()
    return LongRow("scan", case.n, (x,), cp.empty_like(x), right, scale)


def _uniform(cp: Any, rng: Any, dtype: str, count: int) -> Any:
    """One row of numbers in [-1, 1)."""
    return 2 * rng.random((1, count), dtype=getattr(cp, dtype)) - 1


def _least(cp: Any, x: Any) -> Any:
    """Least values so far, by doubling."""
    y = x.copy()
    step = 1
    while step < y.shape[1]:
        y[:, step:] = cp.minimum(y[:, step:], y[:, :-step].copy())
        step *= 2
    return y


# --- CUB's DeviceScan -----------------------------------------------------------------------------


HERE = Path(__file__).parent
CTYPES = {
    "float32": "float",
    "float64": "double",
    "int32": "int",
    "int64": "long long",
    "complex64": "Complex",
}
FORMS_PER_UNIT = 4
# Threads and elements of 4 bytes: 48 KB of them are more than static shared memory holds.
TUNINGS = ((128, 16), (128, 24), (256, 16), (256, 24), (384, 16), (512, 12), (512, 20))
DELAYS = ((688, 1140), (350, 450))
ALL_DELAYS = ("sum_tuned<float",)  # what is tried with each of them


@dataclass(frozen=True)
class Form:
    """One instantiation of CUB: its settings, its function, and the cases that it is for."""

    form: str
    function: str
    asked: tuple[str, str, str]


def asked_of(case: Case) -> tuple[str, str, str]:
    """What cases have in common that the same forms are for."""
    return case.dtype, case.operator, case.form


def forms() -> list[Form]:
    """All that are compiled."""
    found = []
    for asked in dict.fromkeys(map(asked_of, CASES)):
        function = _function(*asked[1:])
        element = CTYPES[asked[0]]
        found += [
            Form(f"default, counts of {bits} bits", f"{function}<{element}, {count}>", asked)
            for bits, count in ((32, "int"), (64, "long long"))
        ]
        found += _tuned("sum_tuned", element, asked) if function == "sum" else ()
    return found


def _function(operator: str, form: str) -> str:
    """The function of ``cub_long.cuh``; that of inclusive sums has ``_tuned`` beside it."""
    if operator == "min":
        return "least"
    return "sum" if form == "inclusive" else "exclusive_sum"


def _tuned(function: str, element: str, asked: tuple[str, str, str]) -> Iterator[Form]:
    named = f"{function}<{element}"
    for threads, items in TUNINGS:
        for delay, latency in DELAYS if named in ALL_DELAYS else DELAYS[:1]:
            words = f"{function}: {threads} threads, {items} per thread (of 4 bytes), delay {delay} ns"
            yield Form(words, f"{named}, {threads}, {items}, {delay}, {latency}>", asked)


def compiled(listed: list[Form], architecture: int, folder: Path) -> list[Any]:
    """The functions of the forms, from libraries of a few each that are compiled at a time.

    Raises:
        OSError: there is no nvcc.
        subprocess.CalledProcessError: it fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    flags = [f"-arch=sm_{architecture}", "-O3", "-std=c++17", f"-I{HERE}", "-shared", "-Xcompiler", "-fPIC"]

    def library(first: int) -> list[Any]:
        part = listed[first : first + FORMS_PER_UNIT]
        text = '#include "cub_long.cuh"\n' + "".join(_definition(k, form) for k, form in enumerate(part))
        source, made = folder / f"cub-long-{first}.cu", folder / f"cub-long-{first}.so"
        source.write_text(text)
        subprocess.run(["nvcc", *flags, "-o", str(made), str(source)], check=True)
        loaded = ctypes.CDLL(str(made.resolve()))
        return [getattr(loaded, f"form_{k}") for k in range(len(part))]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [one for part in pool.map(library, range(0, len(listed), FORMS_PER_UNIT)) for one in part]


def _definition(k: int, form: Form) -> str:
    parameters = (
        "void* room, size_t* bytes, const void* const* x, void* y, long long n, long long ends,"
        " cudaStream_t stream"
    )
    call = f"{form.function}(room, bytes, x, y, n, ends, stream)"
    return f'extern "C" int form_{k}({parameters}) {{ return {call}; }}\n'


def peers(cp: Any, functions: list[Any], listed: list[Form]) -> Iterator[tuple[Form, Callable[..., Peer]]]:
    """The forms, and what makes each ready for a row."""

    def ready(form: Form, function: Any, data: LongRow) -> Peer:
        inputs = (ctypes.c_void_p * len(data.inputs))(*(x.data.ptr for x in data.inputs))
        stream = ctypes.c_void_p(cp.cuda.get_current_stream().ptr)
        counts = (ctypes.c_longlong(data.n), ctypes.c_longlong(0))
        arrays = (inputs, ctypes.c_void_p(data.output.data.ptr), *counts, stream)
        size = ctypes.c_size_t(0)
        if function(None, ctypes.byref(size), *arrays):
            raise RuntimeError(f"{form.function} does not tell its size")
        room = cp.empty(max(size.value, 1), cp.uint8)
        call = functools.partial(function, ctypes.c_void_p(room.data.ptr), ctypes.byref(size), *arrays)
        return Peer("cub.DeviceScan", form.form, call, lambda: data.output, keep=room)

    for form, function in zip(listed, functions, strict=True):
        yield form, functools.partial(ready, form, function)


ROUNDS = 22
FINALISTS = 4
FAIR = 10  # times the error allowed to us: CUB adds up floats as floats
LEAST = 1024  # elements of a tile


def shortlist(kernel: KernelFile, workload: Workload) -> list[Configuration]:
    """Pipelines; tiles of 8 KiB and more by shuffles, some of them in more ways to wait and to stay."""
    wide = dict(workload.sizes)["dtype"] in ("float64", "int64", "complex64")
    least, middling = (LEAST, (8, 12, 16, 24)) if wide else (2 * LEAST, (16, 24))

    def wanted(c: Configuration) -> bool:
        if c["slots"]:
            return True
        tile, quick = int(c["P"]) * int(c["L"]), c.get("pause", 0) == 0
        plain = c["blocks"] == 1 and c.get("groups", 1) == 1 and quick
        if not c["shuffle"] or not least <= tile <= 32768:
            return False
        middle = c["P"] in middling and c["L"] in (128, 256)
        simple = plain and c["L"] in (128, 256, 512) and int(c["P"]) >= 8
        return simple or (middle and (c["blocks"] == 1 or quick))

    widest: dict[tuple[Any, ...], Configuration] = {}
    for c in kernel.space(workload):
        if wanted(c):
            key = tuple(value for name, value in c.items() if name != "E")
            if key not in widest or int(c["E"]) > int(widest[key]["E"]):
                widest[key] = c
    return list(widest.values())


def main() -> None:
    """Measure, print a line for each case, write the JSON after each."""
    parser = command_line(__doc__, must_save=True)
    parser.add_argument("--build", type=Path, default=Path("build-cub-long"), help="folder for CUB's library")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no case is begun after these")
    parser.add_argument("--only", default="", help="cases whose names this regular expression finds")
    options = parser.parse_args()
    bench, begin = opened(), time.monotonic()
    cases = [case for case in CASES if re.search(options.only, case.name)]
    listed = [form for form in forms() if form.asked in map(asked_of, cases)]
    functions = compiled(listed, int(bench.cp.cuda.Device().compute_capability), options.build)
    copy_gb_s = copy_bandwidth(bench.cp, bench.timer)
    document: dict[str, Any] = {"provenance": {**provenance(), "copy_gb_s": copy_gb_s}, "rows": []}
    print(f"copy: {copy_gb_s:.0f} GB/s; CUB built after {time.monotonic() - begin:.0f} s", flush=True)
    for case in cases:
        if time.monotonic() - begin > options.seconds:
            print(f"left out: {case.name}")
            continue
        row = contest(bench, case, list(peers(bench.cp, functions, listed)), copy_gb_s)
        document["rows"].append(row)
        save(options.out, document)
        print(line(row), flush=True)
        bench.cp.get_default_memory_pool().free_all_blocks()


def contest(
    bench: Bench, case: Case, listed: list[tuple[Form, Callable[..., Peer]]], copy_gb_s: float
) -> dict[str, Any]:
    """Our best configuration, CUB's best form and the fastest copy of one row."""
    cp, kernel = bench.cp, bench.catalog.kernel("scan-long")
    data = make(cp, case)
    workload = kernel.workload(case.sizes, batch=1)
    results = bench.sweep(kernel, workload, data, 5, shortlist(kernel, workload))
    chosen = [r for r in results if not r.trouble][:FINALISTS]
    tried = []
    for peer in (ready(data) for form, ready in listed if form.asked == asked_of(case)):
        data.poison(cp)
        peer.run()
        error = data.error(cp)
        if error <= FAIR * allowed_error(data.family, data.n):
            tried.append((median([bench.timer.once(peer.run) for _ in range(5)]), error, peer))
    tried.sort(key=lambda one: one[0])
    moves = bare(cp, "scan", data.inputs, data.output)
    runs = {f"{r.configuration}": r.run for r in chosen}
    runs |= {peer.key: peer.run for _, _, peer in tried[:FINALISTS]} | moves
    times = bench.timer.interleaved(runs, ROUNDS, seed=case.n)
    moved_bytes = sum(array.nbytes for array in (*data.inputs, data.output))
    return {
        **case.sizes,
        "name": case.name,
        **_row(times, chosen, tried, list(moves), moved_bytes / (2 * data.output.nbytes)),
        "bytes": moved_bytes,
        "roofline_ms": moved_bytes / copy_gb_s / 1e6,
        "wrong": [f"{r.configuration}: {r.trouble}" for r in results if r.trouble.startswith("wrong")],
        "troubles": sum(bool(r.trouble) for r in results),
        "configurations": [{**dict(r.configuration), "ms": r.ms} for r in results if not r.trouble],
        "forms": [{"form": peer.form, "ms": ms, "error": error} for ms, error, peer in tried],
    }


def _row(
    times: dict[str, list[float]], chosen: list[Result], tried: list[Any], moves: list[str], copies: float
) -> dict[str, Any]:
    """What the second half of the rounds says of those that the first half chose.

    Args:
        times: of each contender, a time for every round.
        chosen: our configurations.
        tried: time alone, error and peer of each form of CUB.
        moves: names of the bare copies.
        copies: bytes that are moved, by those of a copy.
    """
    half = ROUNDS // 2

    def best(names: list[str]) -> str:
        return min(names, key=lambda name: median(times[name][:half]))

    ours, copy = best([f"{r.configuration}" for r in chosen]), best(moves)
    peer = best([peer.key for _, _, peer in tried if peer.key in times])
    ms, peer_ms, copy_ms = (median(times[name][half:]) for name in (ours, peer, copy))
    return {
        "configuration": ours,
        "ms": ms,
        "spread_ms": spread(times[ours][half:]),
        "error": next(r.error for r in chosen if f"{r.configuration}" == ours),
        "peer": peer,
        "peer_ms": peer_ms,
        "peer_error": next(error for _, error, one in tried if one.key == peer),
        "peer_default_ms": next((one for one, _, p in tried if p.form.startswith("default")), math.nan),
        "copy": copy,
        "copy_ms": copy_ms,
        "ratio": peer_ms / ms,
        "of_copy": copies * copy_ms / ms,
    }


def line(row: dict[str, Any]) -> str:
    """One case, for the terminal."""
    rate = f"{row['bytes'] / row['ms'] / 1e6:.0f} GB/s"
    ours = f"{row['ms']:.4f} ± {row['spread_ms']:.4f} ms, {rate}, {100 * row['of_copy']:.1f} % of a copy"
    by_default = f"{row['peer_default_ms']:.4f} as it comes"
    peer = f"{row['ratio']:.3f} x CUB ({row['peer_ms']:.4f}, {row['peer']}; {by_default})"
    errors = f"error {row['error']:.1e} (CUB {row['peer_error']:.1e})"
    wrong = f"wrong {len(row['wrong'])}, left out {row['troubles']}"
    return f"{row['name']:60} {ours}  {peer}  {errors}  {row['configuration']}  {wrong}"


if __name__ == "__main__":
    main()
