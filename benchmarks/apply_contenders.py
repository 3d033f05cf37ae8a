"""Calls that solve the same problem on the same arrays: ours and those of the libraries, made ready to time.

The libraries are used as one who knows them would: plans, handles and buffers are made before, outputs are
given where a call takes them, nothing waits for the GPU. Calls that allocate nothing are also timed as CUDA
graphs, as ``tuner.plan`` launches its own.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import tuner

OURS = ("scan-lf", "tridiag-wm", "fft", "fft-large")


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
