"""What a call of a tuned kernel costs: ``tuner.apply`` and ``tuner.plan`` beside calls of the libraries.

Three parts. ``host``: microseconds of Python and driver that a call takes to put its work into the stream, at
sizes where the GPU is faster than the host. ``end``: microseconds until the result is there, for one call
that is waited for (``wall``), and per call of many in a row between two events (``events``); the caches of
the GPU are warm. ``calls``: microseconds of the host and until the result is there, of ``tuner.apply``,
``tuner.plan`` and ``tuner.linalg`` on arrays of CuPy, and of PyTorch if that is there, with their ratios to
the same library's own calls. Contenders take turns in changing order; medians, with half of the range from
16 to 84 %.

    python benchmarks/apply_calls.py --out benchmarks/results/apply-calls-h200.json
    python benchmarks/apply_calls.py --calls --out calls.json
    python benchmarks/apply_calls.py --batched --out batched.json
"""

import argparse
import gc
import itertools
import json
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from headlines import write_table
from provenance import provenance, save

import tuner
from tuner.compiler.compiler import Compiler
from tuner.kernel_files.catalog import Catalog

# --- tables for docs/python.md ---------------------------------------------------------------------

PLAN = "tuner.plan"


def show(path: Path, page: Path | None) -> None:
    """Print the tables of a result, and put the first into a page where one is given."""
    document = json.loads(path.read_text())
    text = host_table(document["host"])
    print(f"{text}\n{end_table(document['end'])}")
    if page is not None:
        write_table(page, "apply-calls", text.rstrip())


def host_table(rows: Sequence[dict[str, Any]]) -> str:
    """Microseconds of the host: a row for each call, a column for each kernel."""
    problems = list(dict.fromkeys(_problem(row) for row in rows))
    by_call: dict[str, dict[str, str]] = {}
    for row in rows:
        figures = by_call.setdefault(row["contender"], {})
        figures[_problem(row)] = f"{row['host_us']:.1f} ± {row['host_spread_us']:.1f}"
    ordered = sorted(by_call, key=lambda name: not name.startswith("tuner."))
    lines = ([f"`{name}`" if "." in name else name, *_cells(by_call[name], problems)] for name in ordered)
    return _table(["call, µs of the host", *problems], lines)


def end_table(rows: Sequence[dict[str, Any]]) -> str:
    """Microseconds until the result is there, beside the fastest call of the libraries."""
    lines = []
    for _, group in groupby(sorted(rows, key=_place), key=_place):
        found = list(group)
        ours = [row for row in found if row["contender"] == PLAN]
        (plan,) = ours
        peers = [row for row in found if not row["ours"]]
        cells = [_n(plan["n"]), str(plan["batch"]), plan["kernel"], _origin(plan)]
        for figure in ("wall", "events"):
            peer = min(peers, key=lambda row: row[f"{figure}_us"])
            ratio = peer[f"{figure}_us"] / plan[f"{figure}_us"]
            cells += [_figure(plan, figure), _figure(peer, figure), peer["contender"], _ratio(ratio)]
        lines.append(cells)
    heads = ["N", "batch", "kernel", "configuration"]
    for title in ("one call, waited for", "a call of many in a row"):
        heads += [f"plan, {title}, µs", "fastest library, µs", "which", "× library"]
    return _table(heads, lines)


def _origin(row: dict[str, Any]) -> str:
    return row["note"].rpartition("(")[2].partition(":")[0].rstrip(")")


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 1 else f"**{ratio:.2f}**"


def _figure(row: dict[str, Any], figure: str) -> str:
    return f"{row[f'{figure}_us']:.1f} ± {row[f'{figure}_spread_us']:.1f}"


def _place(row: dict[str, Any]) -> tuple[str, int, int, str, bool]:
    chosen = row["configuration"] != "default"
    return row["kernel"].split("-")[0], row["n"], row["batch"], row["kernel"], chosen


def _problem(row: dict[str, Any]) -> str:
    return f"{row['kernel']} {row['batch']} × {_n(row['n'])}"


def _n(number: int) -> str:
    power = number.bit_length() - 1
    return f"2^{power}" if number >= 2**14 and number == 2**power else str(number)


def _cells(figures: dict[str, str], names: Iterable[str]) -> list[str]:
    return [figures.get(name, "–") for name in names]


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


# --- calls of the same problem: ours and those of the libraries ------------------------------------


@dataclass(frozen=True)
class Case:
    """A kernel at one problem.

    Attributes:
        kernel: ours.
        n: row length.
        batch: rows.
    """

    kernel: str
    n: int
    batch: int

    @property
    def family(self) -> str:
        """``scan``, ``tridiag`` or ``fft``."""
        return self.kernel.split("-", maxsplit=1)[0]


@dataclass(frozen=True)
class Contender:
    """One way to solve a case.

    Attributes:
        name: for tables.
        call: puts the work into the current stream.
        answer: the solution after a call; None where calls overwrite their input.
        ours: whether it is a call of this package.
        note: which configuration, and why.
        bound: whether it works on the same arrays each time and allocates nothing.
    """

    name: str
    call: Callable[[], Any]
    answer: Callable[[], Any] | None
    ours: bool = False
    note: str = ""
    bound: bool = False


def arrays_of(cp: Any, case: Case) -> tuple[tuple[Any, ...], Any]:
    """Inputs and output of a case; tridiagonal systems are diagonally dominant."""
    rng, shape = cp.random.default_rng(case.n + case.batch), (case.batch, case.n)
    if case.family == "fft":
        x = (rng.random(shape, cp.float32) - 0.5 + 1j * (rng.random(shape, cp.float32) - 0.5)).astype(
            cp.complex64
        )
        return (x,), cp.empty_like(x)
    parts = [rng.random(shape, cp.float32) - cp.float32(0.5) for _ in range(4)]
    if case.family == "scan":
        return (parts[0],), cp.empty_like(parts[0])
    a, c, d = parts[0], parts[1], parts[2]
    a[:, 0] = 0
    c[:, -1] = 0
    return (a, abs(a) + abs(c) + cp.float32(0.5), c, d), cp.empty_like(d)


def ours(case: Case, inputs: tuple[Any, ...], out: Any, configuration: str | None) -> list[Contender]:
    """``tuner.apply`` and ``tuner.plan``, each with and without arrays of the call's own."""
    settings: dict[str, Any] = {"configuration": configuration}
    plan = tuner.plan(case.kernel, *inputs, out=out, **settings)
    note = str(plan.chosen)
    return [
        Contender(name, call, lambda: out, ours=True, note=note)
        for name, call in (
            ("tuner.plan", plan),
            ("tuner.plan, arrays given", partial(plan, *inputs, out=out)),
            ("tuner.apply, out given", partial(tuner.apply, case.kernel, *inputs, out=out, **settings)),
            ("tuner.apply", partial(tuner.apply, case.kernel, *inputs, **settings)),
        )
    ]


def peers(cp: Any, case: Case, inputs: tuple[Any, ...], out: Any) -> list[Contender]:
    """The calls of CuPy and of the libraries below it; also as CUDA graphs, where that can be."""
    made = {"fft": _ffts, "scan": _scans, "tridiag": _solvers}[case.family](cp, case, inputs, out)
    captured = [_captured(cp, one) for one in made if one.bound]
    return [*made, *(one for one in captured if one is not None)]


def _captured(cp: Any, contender: Contender) -> Contender | None:
    """A call as a CUDA graph; None where the library does not let itself be captured."""
    contender.call()
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.runtime.deviceSynchronize()
    with stream:
        stream.begin_capture()
        try:
            contender.call()
        except Exception as error:  # noqa: BLE001 - whatever a library says
            print(f"{contender.name}: cannot be captured: {error}")
            with suppress(Exception):
                stream.end_capture()
            return None
        graph = stream.end_capture()
    keep = (graph, contender.call)
    return Contender(
        f"{contender.name}, CUDA graph", partial(_launched, graph, keep), contender.answer, bound=True
    )


def _launched(graph: Any, _kept: object) -> None:
    graph.launch()


def _ffts(cp: Any, case: Case, inputs: tuple[Any, ...], out: Any) -> list[Contender]:
    from cupy.cuda import cufft  # noqa: PLC0415 - CuPy's binding
    from cupyx.scipy import fft as scipy_fft  # noqa: PLC0415 - same

    (x,) = inputs
    plan = cufft.Plan1d(case.n, cufft.CUFFT_C2C, case.batch)
    made = scipy_fft.get_fft_plan(x, axes=1)
    return [
        Contender("cuFFT plan", partial(plan.fft, x, out, cufft.CUFFT_FORWARD), lambda: out, bound=True),
        Contender("cupyx.scipy.fft.fft, plan given", partial(scipy_fft.fft, x, plan=made), None),
        Contender("cupy.fft.fft", partial(cp.fft.fft, x), None),
    ]


def _scans(cp: Any, case: Case, inputs: tuple[Any, ...], out: Any) -> list[Contender]:
    """CuPy scans one row by CUB's DeviceScan, and several by a kernel of its own."""
    (x,) = inputs
    row, into = (x[0], out[0]) if case.batch == 1 else (x, out)
    name = "cupy.cumsum (CUB), out given" if case.batch == 1 else "cupy.cumsum, out given"
    found = [Contender(name, partial(cp.cumsum, row, axis=-1, out=into), lambda: out)]
    try:
        import torch  # noqa: PLC0415 - a peer, not a dependency
    except ImportError:
        return found
    torch.cuda.set_stream(torch.cuda.ExternalStream(cp.cuda.get_current_stream().ptr))
    given, written = torch.from_dlpack(x), torch.from_dlpack(out)
    call = partial(torch.cumsum, given, 1, out=written)
    return [*found, Contender("torch.cumsum, out given", call, lambda: out)]


def _solvers(cp: Any, case: Case, inputs: tuple[Any, ...], _: Any) -> list[Contender]:
    """They overwrite the right-hand sides; the copy that a caller may have to make is not counted."""
    from cupy_backends.cuda.libs import cusparse  # noqa: PLC0415 - CuPy's binding

    n, batch, handle = case.n, case.batch, cp.cuda.device.get_cusparse_handle()
    a, b, c, d = inputs
    x = d.copy()
    pointers = [array.data.ptr for array in (a, b, c, x)]
    size = cusparse.sgtsv2StridedBatch_bufferSizeExt(handle, n, *pointers, batch, n)
    room = cp.empty(max(size, 1), cp.uint8)
    strided = partial(_keeping, cusparse.sgtsv2StridedBatch, (a, b, c, x, room))
    found = [
        Contender(
            "cuSPARSE gtsv2StridedBatch",
            partial(strided, handle, n, *pointers, batch, n, room.data.ptr),
            None,
            bound=True,
        )
    ]
    if batch == 1:
        size = cusparse.sgtsv2_nopivot_bufferSizeExt(handle, n, 1, *pointers, n)
        single_room = cp.empty(max(size, 1), cp.uint8)
        single = partial(_keeping, cusparse.sgtsv2_nopivot, (a, b, c, x, single_room))
        call = partial(single, handle, n, 1, *pointers, n, single_room.data.ptr)
        found.append(Contender("cuSPARSE gtsv2_nopivot", call, None, bound=True))
    return found


def _keeping(function: Callable[..., None], _kept: object, *arguments: Any) -> None:
    """Call a function whose arguments are addresses, of arrays that are kept for it."""
    function(*arguments)


# --- calls on arrays of both libraries, beside the library's own -------------------------------------

LINALG = ((100, 32), (1, 150), (1, 400), (1, 1000))  # batch and order
BATCHED = tuple((10_000, n, dtype) for n in (5, 13, 27, 50, 100) for dtype in ("float32", "float64"))
MANY = 100  # more matrices have one right side, and triangles as many as rows
CALLS_IN_A_BLOCK = 10  # of linear algebra: a call may be a hundred launches
CHECKED = 8  # matrices
PAIR_S = 0.15  # of the turns of a pair of many matrices


@dataclass(frozen=True)
class Pair:
    """A call of ours and the library's own.

    Attributes:
        name: of ours.
        size: batch and order, or length of a row.
        ours: the call.
        own: name of the library's call.
        theirs: it.
        dtype: of the matrices.
        error: of an answer.
    """

    name: str
    size: tuple[int, int]
    ours: Callable[[], Any]
    own: str
    theirs: Callable[[], Any]
    dtype: str = "float32"
    error: Callable[[Any], float] | None = None


def torch_of(cp: Any) -> Any:
    """PyTorch, working in CuPy's current stream; None where it is not installed."""
    try:
        import torch  # noqa: PLC0415 - a peer, not a dependency
    except ImportError as error:
        print(f"calls on tensors are left out: no PyTorch ({error})")
        return None
    torch.cuda.set_stream(torch.cuda.ExternalStream(cp.cuda.get_current_stream().ptr))
    return torch


def pairs_of(cp: Any, torch: Any, only: Sequence[str], *, batched: bool) -> Iterator[tuple[str, Pair]]:
    """All pairs, with the library whose arrays they work on."""
    libraries = [("cupy", None), *([] if torch is None else [("torch", torch)])]
    if not batched:
        yield from ((name, pair) for name, library in libraries for pair in _applied(cp, library))
    problems = BATCHED if batched else [(*one, "float32") for one in LINALG]
    for problem, (name, library) in itertools.product(problems, libraries):
        yield from (
            (name, pair) for pair in _solved(cp, library, *problem) if pair.name.split(".")[-1] in only
        )


def _applied(cp: Any, torch: Any) -> list[Pair]:
    size = 16, 1024
    x = cp.random.default_rng(0).random(size, cp.float32)
    z = x.astype(cp.complex64)
    y, w = cp.empty_like(x), cp.empty_like(z)
    if torch is not None:
        x, y, z, w = (torch.from_dlpack(one) for one in (x, y, z, w))
    if torch is None:
        scan, fft = partial(cp.cumsum, x, axis=1, out=y), partial(cp.fft.fft, z)
    else:
        scan, fft = partial(torch.cumsum, x, 1, out=y), partial(torch.fft.fft, z)
    scans, ffts = ("cumsum, out given", scan), ("fft.fft", fft)
    return [
        Pair("tuner.apply scan-lf, out given", size, partial(tuner.apply, "scan-lf", x, out=y), *scans),
        Pair("tuner.apply scan-lf", size, partial(tuner.apply, "scan-lf", x), *scans),
        Pair("tuner.apply fft", size, partial(tuner.apply, "fft", z), *ffts),
        Pair("tuner.plan scan-lf", size, tuner.plan("scan-lf", x, out=y), *scans),
        Pair("tuner.plan fft", size, tuner.plan("fft", z, out=w), *ffts),
    ]


FUNCTIONS = ("gemm", "cholesky", "solve", "solve_triangular", "lu_factor", "qr")  # the slowest last


def _solved(cp: Any, torch: Any, batch: int, n: int, dtype: str) -> Iterator[Pair]:
    """Linear algebra of matrices a, positive definite ones p, and right sides b and c."""
    from cupyx.scipy import linalg as scipy_linalg  # noqa: PLC0415 - CuPy's

    rng, real = cp.random.default_rng(n), getattr(cp, dtype)
    a = 2 * rng.random((batch, n, n), real) - 1
    p = a + a.swapaxes(-1, -2) + 2 * n * cp.eye(n, dtype=dtype)
    b = rng.random((batch, n, 4 if batch <= MANY else 1), real)
    c = b if batch <= MANY else rng.random((batch, n, n), real)
    given = [one[0] if batch == 1 else one for one in (a, p, b, c)]
    a, p, b, c = given if torch is None else map(torch.from_dlpack, given)
    own: dict[str, tuple[str, Callable[[], Any]]]
    if torch is None:
        own = {
            "gemm": ("matmul", partial(cp.matmul, a, p)),
            "cholesky": ("linalg.cholesky", partial(cp.linalg.cholesky, p)),
            "solve": ("linalg.solve", partial(cp.linalg.solve, a, b)),
            "qr": ("linalg.qr", partial(cp.linalg.qr, a)),
        }
        triangular = partial(scipy_linalg.solve_triangular, p, c, lower=True)
        own["solve_triangular"] = ("cupyx solve_triangular", triangular)
        if batch == 1:
            own["lu_factor"] = ("cupyx lu_factor", partial(scipy_linalg.lu_factor, a))
    else:
        triangular = partial(torch.linalg.solve_triangular, p, c, upper=False)
        own = {
            "gemm": ("matmul", partial(torch.matmul, a, p)),
            "cholesky": ("cholesky_ex", partial(torch.linalg.cholesky_ex, p)),
            "solve": ("solve_ex", partial(torch.linalg.solve_ex, a, b)),
            "lu_factor": ("lu_factor_ex", partial(torch.linalg.lu_factor_ex, a)),
            "solve_triangular": ("solve_triangular", triangular),
            "qr": ("qr", partial(torch.linalg.qr, a)),
        }
    unchecked = {"check": False}
    ours: dict[str, tuple[tuple[Any, ...], Callable[[], Any]]] = {
        "gemm": ((a, p), partial(tuner.linalg.gemm, a, p)),
        "cholesky": ((p,), partial(tuner.linalg.cholesky, p, lower=True, **unchecked)),
        "solve": ((a, b), partial(tuner.linalg.solve, a, b, **unchecked)),
        "solve_triangular": (
            (p, c),
            partial(tuner.linalg.solve_triangular, p, c, lower=True, **unchecked),
        ),
        "lu_factor": ((a,), partial(tuner.linalg.lu_factor, a, **unchecked)),
        "qr": ((a,), partial(tuner.linalg.qr, a, "economic")),
    }
    for name in (one for one in FUNCTIONS if one in own):
        arrays, call = ours[name]
        error = partial(_error, name, *arrays)
        yield Pair(f"tuner.linalg.{name}", (batch, n), call, *own[name], dtype, error)


def _error(name: str, *arrays: Any) -> float:
    """Backward error of an answer, the last of the arrays, in units of roundoff times n and the numbers."""
    *given, found = (_few(one) for one in arrays)
    a, x = given[0][0], found[0]
    b = given[-1][0]
    left, right, wanted = {
        "gemm": lambda: (a, b, x),
        "cholesky": lambda: (x, x.swapaxes(-1, -2), a),
        "solve": lambda: (a, x, b),
        "solve_triangular": lambda: (np.tril(a), x, b),
        "lu_factor": lambda: (np.tril(x, -1) + np.eye(x.shape[-1]), np.triu(x), a),
        "qr": lambda: (x, found[1], a),
    }[name]()
    off = np.abs(left @ right - wanted)
    if name == "lu_factor":  # rows in another order: each is to be one of the matrix
        off = np.abs((left @ right)[..., :, None, :] - a[..., None, :, :]).max(-1).min(-1)[..., None]
    scale = np.abs(left).max((-1, -2)) * np.abs(right).max((-1, -2)) * a.shape[-1]
    u = np.finfo(str(arrays[0].dtype).rpartition(".")[2]).eps / 2
    return float((off.max((-1, -2)) / scale).max() / u)


def _few(arrays: Any) -> list[Any]:
    """Some of the matrices of each array on the host in float64, the last ones among them."""
    found = arrays if isinstance(arrays, (tuple, list)) else (arrays,)
    few = [one[-CHECKED:] if one.ndim > 2 else one for one in found]
    return [np.asarray(one.get() if hasattr(one, "get") else one.cpu().numpy(), "float64") for one in few]


def timed_pairs(
    cp: Any, torch: Any, only: Sequence[str], *, batched: bool, ends_s: float = math.inf
) -> Iterator[dict[str, Any]]:
    """A row for each pair: microseconds of the host, and until the result is there, with their ratios.

    Of many matrices the host is not looked at.
    """
    stream = cp.cuda.get_current_stream()
    for library, pair in pairs_of(cp, torch, only, batched=batched):
        row: dict[str, Any] = {"library": library, "call": pair.name, "peer": pair.own, "size": pair.size}
        row["dtype"] = pair.dtype
        if time.monotonic() > ends_s:
            yield {**row, "left_out": True}
            continue
        contenders = [Contender(pair.name, pair.ours, None), Contender(pair.own, pair.theirs, None)]
        if pair.error is not None:
            row["error"], row["peer_error"] = (pair.error(one.call()) for one in contenders)
        for _, contender in itertools.product(range(1 if batched else 4), contenders):
            contender.call()
        count = CALLS_IN_A_BLOCK if "linalg" in pair.name else IN_A_BLOCK
        blocks, figures = BLOCKS, (("host", count), ("wall", 0))
        if batched:
            once_s = sum(_block(one.call, stream, 0) for one in contenders) / 1e6
            blocks, figures = max(3, min(BLOCKS, int(PAIR_S / once_s))), (("wall", 0),)
        for figure, many in figures:
            samples = _turns(
                contenders,
                blocks,
                lambda call, many=many: _block(call, stream, many),  # type: ignore[misc]
            )
            (own, spread), (their, their_spread) = map(_summary, samples)
            row |= {f"{figure}_us": own, f"{figure}_spread_us": spread, f"peer_{figure}_us": their}
            row |= {f"peer_{figure}_spread_us": their_spread, f"{figure}_ratio": round(own / their, 3)}
        words = [
            f"{one} {row[f'{one}_us']:9.2f} us ({row[f'{one}_ratio']:.2f} x {pair.own})" for one, _ in figures
        ]
        errors = f"errors {row['error']:.2g}, {row['peer_error']:.2g}" if "error" in row else ""
        print(f"{library:6} {pair.name:32} {pair.size!s:12} {pair.dtype}", *words, errors, flush=True)
        yield row


# --- the command -----------------------------------------------------------------------------------

HOST_CASES = (
    Case("fft", 1024, 16),
    Case("fft-large", 2**16, 1),
    Case("fft-large", 2**20, 1),
    Case("scan-lf", 1024, 16),
    Case("tridiag-wm", 512, 16),
)
SIZES = {
    "fft": tuple(2**i for i in range(6, 14)),
    "fft-large": tuple(2**i for i in range(13, 21)),
    "scan-lf": (64, 256, 1024, 4096),
    "tridiag-wm": (64, 256, 512, 1024, 4096),
}
BATCHES = (1, 16, 1024)
MOST_ELEMENTS = 2**27  # of an array
IN_A_BLOCK = 100  # calls; fewer than the driver queues without waiting
BLOCKS = 60
ROUNDS = 60
EVENT_S = 0.002  # of calls in a row


def main() -> None:
    """Time what was asked for, print it, and write it down."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", action="store_true", help="only calls of both libraries, in minutes")
    parser.add_argument("--batched", action="store_true", help="only linear algebra of 10,000 small matrices")
    parser.add_argument("--only", nargs="+", choices=FUNCTIONS, default=FUNCTIONS, help="of linear algebra")
    parser.add_argument("--kernels", nargs="*", choices=SIZES, default=list(SIZES))
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds; what comes later is left out")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", type=Path, metavar="FILE", help="print a result; time nothing")
    parser.add_argument("--docs", type=Path, help="page to put the first into, between its marks")
    options = parser.parse_args()
    if options.show is not None:
        show(options.show, options.docs)
        return
    import cupy  # noqa: PLC0415 - so that --help needs no GPU

    ends_s = time.monotonic() + options.limit
    end_cases = [
        Case(kernel, n, batch)
        for kernel in options.kernels
        for n in SIZES[kernel]
        for batch in BATCHES
        if n * batch <= MOST_ELEMENTS
    ]
    host_cases = [case for case in HOST_CASES if case.kernel in options.kernels]
    if options.calls or options.batched:
        pairs: dict[str, Any] = {"provenance": provenance(), "calls": []}
        with cupy.cuda.Stream(non_blocking=True):
            torch, settings = torch_of(cupy), {"batched": options.batched, "ends_s": ends_s}
            for row in timed_pairs(cupy, torch, options.only, **settings):
                pairs["calls"].append(row)
                save(options.out, pairs)
        return
    cases = [*(("host", case) for case in host_cases), *(("end", case) for case in end_cases)]
    compile_defaults(cupy, [case for _, case in cases])
    document: dict[str, Any] = {"provenance": provenance(), "host": [], "end": [], "left_out": []}
    with cupy.cuda.Stream(non_blocking=True):
        for (part, case), configuration in itertools.product(cases, ("default", None)):
            if time.monotonic() > ends_s:
                document["left_out"].append([part, vars(case), configuration])
                continue
            rows = timed(cupy, part, case, configuration)
            document[part] += rows
            for row in rows:
                print(shown(row), flush=True)
            save(options.out, document)


def compile_defaults(cp: Any, cases: Sequence[Case]) -> None:
    """Compile every default configuration with all cores, so that the first calls find them."""
    catalog, stages = Catalog.load(), []
    for case in cases:
        kernel = catalog.kernel(case.kernel)
        workload = kernel.workload({"N": case.n}, case.batch)
        stages += kernel.plan(workload, kernel.default(workload)).stages
    with Compiler(f"sm_{cp.cuda.Device().compute_capability}") as compiler:
        compiler.compile(stages)


def timed(cp: Any, part: str, case: Case, configuration: str | None) -> list[dict[str, Any]]:
    """A row for each contender of a case."""
    inputs, out = arrays_of(cp, case)
    begun_s = time.perf_counter()
    contenders = ours(case, inputs, out, configuration)
    first_s = time.perf_counter() - begun_s
    contenders += peers(cp, case, inputs, out)
    errors = checked(contenders)
    for _, contender in itertools.product(range(3), contenders):
        contender.call()
    gc.collect()
    gc.disable()
    try:
        figures = host_us(cp, contenders) if part == "host" else end_us(cp, contenders)
    finally:
        gc.enable()
    return [
        {
            "kernel": case.kernel,
            "n": case.n,
            "batch": case.batch,
            "configuration": configuration or "as apply chooses",
            "contender": contender.name,
            "ours": contender.ours,
            "note": contender.note,
            "first_s": round(first_s, 3) if contender.ours else None,
            "difference": error,
            **figure,
        }
        for contender, figure, error in zip(contenders, figures, errors, strict=True)
    ]


def checked(contenders: Sequence[Contender]) -> list[float | None]:
    """Largest difference of each answer from the last that there is, relative to the largest element."""
    answers: list[Any] = []
    for contender in contenders:
        contender.call()
        answers.append(None if contender.answer is None else contender.answer().copy())
    known = [answer for answer in answers if answer is not None]
    scale = float(abs(known[-1]).max())
    return [None if one is None else float(abs(one - known[-1]).max()) / scale for one in answers]


def host_us(cp: Any, contenders: Sequence[Contender]) -> list[dict[str, float]]:
    """What a call takes of the host, waiting for nothing."""
    stream = cp.cuda.get_current_stream()
    samples = _turns(contenders, BLOCKS, lambda call: _block(call, stream))
    return [{"host_us": middle, "host_spread_us": spread} for middle, spread in map(_summary, samples)]


def _block(call: Callable[[], Any], stream: Any, count: int = IN_A_BLOCK) -> float:
    """Microseconds of a call among so many; of one that is waited for where there are none."""
    stream.synchronize()
    begun = time.perf_counter_ns()
    for _ in range(count or 1):
        call()
    if not count:
        stream.synchronize()
    ended = time.perf_counter_ns()
    stream.synchronize()
    return (ended - begun) / 1e3 / (count or 1)


def end_us(cp: Any, contenders: Sequence[Contender]) -> list[dict[str, float]]:
    """How long until the result is there."""
    stream = cp.cuda.get_current_stream()
    begin, end = cp.cuda.Event(), cp.cuda.Event()

    walls = [_summary(sample) for sample in _turns(contenders, ROUNDS, lambda call: _block(call, stream, 0))]
    slowest_us = max(middle for middle, _ in walls)
    count = int(min(IN_A_BLOCK, max(3, EVENT_S * 1e6 / slowest_us)))

    def in_a_row(call: Callable[[], Any]) -> float:
        begin.record(stream)
        for _ in range(count):
            call()
        end.record(stream)
        end.synchronize()
        return float(cp.cuda.get_elapsed_time(begin, end)) * 1e3 / count

    events = [_summary(sample) for sample in _turns(contenders, ROUNDS // 3, in_a_row)]
    return [
        {
            "wall_us": wall,
            "wall_spread_us": wall_spread,
            "events_us": event,
            "events_spread_us": event_spread,
        }
        for (wall, wall_spread), (event, event_spread) in zip(walls, events, strict=True)
    ]


def _turns(
    contenders: Sequence[Contender], rounds: int, measured: Callable[[Callable[[], Any]], float]
) -> list[list[float]]:
    samples: list[list[float]] = [[] for _ in contenders]
    order, rng = list(range(len(contenders))), random.Random(0)  # noqa: S311 - an order of turns
    for _ in range(rounds):
        rng.shuffle(order)
        for place in order:
            samples[place].append(measured(contenders[place].call))
    return samples


def _summary(sample: Sequence[float]) -> tuple[float, float]:
    low, middle, high = np.percentile(sample, (16, 50, 84))
    return round(float(middle), 3), round(float(high - low) / 2, 3)


def shown(row: dict[str, Any]) -> str:
    """A line for people."""
    figures = "  ".join(
        f"{name} {row[f'{name}_us']:9.2f} ± {row[f'{name}_spread_us']:.2f} us"
        for name in ("host", "wall", "events")
        if f"{name}_us" in row
    )
    place = f"{row['kernel']} N={row['n']} batch={row['batch']}"
    return f"{place:34} {row['contender']:34} {figures}  {row['note']}"


if __name__ == "__main__":
    main()
