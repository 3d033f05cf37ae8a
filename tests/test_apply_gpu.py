"""``tuner.apply`` on a real GPU: every shipped kernel against CuPy in double precision."""

import math
import re
import threading
from typing import Any

import numpy as np
import pytest
from gpu_kernels import compile_ahead

import tuner
from tuner.application.calls import Application
from tuner.application.choice import UntunedAnswers
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.sizes import combinations, listed
from tuner.kernel_files.source_folder import kernels_root
from tuner.model.errors import InputError
from tuner.model.plan import Plan

pytestmark = pytest.mark.gpu

CATALOG = Catalog.load(search_path=[kernels_root()])
DEFAULT: dict[str, Any] = {"configuration": "default"}  # compiled for all cases at once, below
MOST = 2**23  # elements, so that the largest transforms fit once


def lengths(kernel: KernelFile) -> list[int]:
    """Ends and middle of what a kernel takes, and odd lengths between."""
    values = kernel.sizes["N"]
    shown = [int(value) for value in listed(values) if int(value) <= MOST]
    odd = [N for N in (3, 63, 777, 1025) if isinstance(values, range) and N in values]
    return sorted({shown[0], shown[len(shown) // 2], shown[-1], *odd})


def cases(problem: str) -> list[tuple[str, int, int]]:
    """Kernels of a problem, batches (one row among them) and lengths."""
    kernels = [CATALOG.kernel(name) for name in CATALOG.names]
    return [
        (kernel.name, batch, N)
        for kernel in kernels
        if kernel.problem.name == problem
        and not {"boundary", "K"} & set(kernel.sizes)  # periodic, or of several right sides: test_tridiag_gpu
        for N in lengths(kernel)
        for batch in sorted({1, min(7, MOST // N), min(1000, MOST // N)})
    ]


@pytest.fixture(scope="module", autouse=True)
def _compiled(cp: Any) -> None:
    """Every default configuration in the cache on disk, compiled by all cores at once."""
    plans: list[Plan] = []
    for problem in ("scan", "fft", "tridiagonal"):
        for name, batch, N in cases(problem):
            kernel = CATALOG.kernel(name)
            for sizes in combinations({**kernel.sizes, "N": (N,)}):
                workload = kernel.workload(sizes, batch)
                plans.append(kernel.plan(workload, kernel.default(workload)))
    compile_ahead(cp, plans)


def filled(cp: Any, shape: tuple[int, ...], dtype: str) -> Any:
    rng = cp.random.default_rng(sum(shape))
    if dtype == "int32":
        return rng.integers(-(2**20), 2**20, shape).astype(dtype)
    parts = [2 * rng.random(shape) - 1 for _ in range(2 if dtype == "complex64" else 1)]
    return (parts[0] if len(parts) == 1 else parts[0] + 1j * parts[1]).astype(dtype)


@pytest.mark.parametrize(("name", "batch", "N"), cases("scan"))
def test_scan(cp: Any, name: str, batch: int, N: int) -> None:
    """Sums of rows are cupy.cumsum's within 1e-6 of the row's largest."""
    x = filled(cp, (batch, N), "float32")
    reference = cp.cumsum(x.astype(cp.float64), axis=1)
    y = tuner.apply(name, x, **DEFAULT)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert float((abs(y - reference).max(axis=1) / abs(reference).max(axis=1)).max()) <= 1e-6


@pytest.mark.parametrize("form", ["inclusive", "exclusive"])
@pytest.mark.parametrize("dtype", ["float64", "int32"])
@pytest.mark.parametrize("name", ["scan-ks", "scan-lf", "scan-long"])
def test_scan_forms(cp: Any, name: str, dtype: str, form: str) -> None:
    """The type follows from the array and the form from its name; whole numbers are summed exactly."""
    for shape in ((65, 1000), (1000,)):
        x = filled(cp, shape, dtype)
        y = tuner.apply(name, x, form=form, **DEFAULT)
        reference = cp.cumsum(x, axis=-1, dtype=dtype) - (x if form == "exclusive" else 0)
        assert (y.shape, y.dtype) == (shape, np.dtype(dtype))
        assert float(abs(y - reference).max()) <= (0 if dtype == "int32" else 1e-11)


@pytest.mark.parametrize(("name", "batch", "N"), cases("fft"))
def test_fft(cp: Any, name: str, batch: int, N: int) -> None:
    """Transforms are cupy.fft's within 1e-7 per level, and the inverse leads back."""
    x = filled(cp, (batch, N), "complex64")
    reference = cp.fft.fft(x.astype(cp.complex128), axis=1)
    y = tuner.apply(name, x, **DEFAULT)
    allowed = 1e-7 * max(1.0, math.log2(N))
    assert distance(cp, y, reference) <= allowed
    back = tuner.apply(name, y, direction="inverse", **DEFAULT)
    assert distance(cp, back, cp.fft.ifft(y.astype(cp.complex128), axis=1)) <= allowed
    assert distance(cp, back, x) <= 2 * allowed


def distance(cp: Any, y: Any, reference: Any) -> float:
    return float(cp.linalg.norm(y - reference) / cp.linalg.norm(reference))


@pytest.mark.parametrize(("name", "batch", "N"), cases("tridiagonal"))
def test_tridiagonal(cp: Any, name: str, batch: int, N: int) -> None:
    """The solution satisfies the system: its defect is within 1e-6 of the largest terms."""
    a, c, d = (filled(cp, (batch + extra, N), "float32")[:batch] for extra in (0, 1, 2))
    b = (abs(a) + abs(c) + 0.5).astype(cp.float32)
    x = tuner.apply(name, a, b, c, d, **DEFAULT).astype(cp.float64)
    defect = b * x - d
    defect[:, 1:] += a[:, 1:] * x[:, :-1]
    defect[:, :-1] += c[:, :-1] * x[:, 1:]
    assert float((abs(defect).max(axis=1) / (abs(b).max(axis=1) * abs(x).max(axis=1))).max()) <= 1e-6


def test_output_and_streams(cp: Any) -> None:
    """A given output is written in the stream that is named, in the order of that stream."""
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        x = filled(cp, (4096, 1024), "float32")
        y = cp.zeros_like(x)
    for _ in range(20):
        assert tuner.apply("scan-lf", x, out=y, stream=stream, **DEFAULT) is y
        with stream:
            x[...] = y / 1024
    with stream:
        again = cp.cumsum(x, axis=1)
    stream.synchronize()
    assert bool(cp.isfinite(again).all())
    assert float(abs(x - y / 1024).max()) == 0


def test_streams_do_not_meet(cp: Any) -> None:
    """Calls with scratch arrays on several streams at once all give the right answer."""
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(4)]
    inputs = [filled(cp, (4 + i, 2**16), "complex64") for i in range(4)]
    cp.cuda.runtime.deviceSynchronize()
    outputs: list[Any] = [None] * 4
    for _ in range(10):
        for i, stream in enumerate(streams):
            outputs[i] = tuner.apply("fft-large", inputs[i], stream=stream, **DEFAULT)
    cp.cuda.runtime.deviceSynchronize()
    for x, y in zip(inputs, outputs, strict=True):
        assert distance(cp, y, cp.fft.fft(x.astype(cp.complex128), axis=1)) <= 2e-6


def plan_cases(cp: Any) -> list[tuple[str, list[Any]]]:
    """Kernels with one input and with several, with one stage, and with several and scratch arrays."""
    z, x = filled(cp, (3, 2**16), "complex64"), filled(cp, (16, 1024), "float32")
    a, c, d = (filled(cp, (5 + extra, 512), "float32")[:5] for extra in (0, 1, 2))
    b = (abs(a) + abs(c) + 0.5).astype(cp.float32)
    return [
        ("fft", [z[:, :1024].copy()]),
        ("fft-large", [z]),
        ("scan-lf", [x]),
        ("tridiag-wm", [a, b, c, d]),
    ]


def test_plans(cp: Any) -> None:
    """A plan gives what apply gives: on its own arrays, on others, on other streams and in other threads."""
    for name, arrays in plan_cases(cp):
        wanted = tuner.apply(name, *arrays, **DEFAULT)
        plan = tuner.plan(name, *arrays, **DEFAULT)
        for _ in range(3):
            plan.out[...] = 0
            assert plan() is plan.out
            assert bool((plan.out == wanted).all()), name
        others = [array.copy() for array in arrays]
        others[0] *= 0.5
        y, stream = cp.zeros_like(wanted), cp.cuda.Stream(non_blocking=True)
        cp.cuda.runtime.deviceSynchronize()
        assert plan(*others, out=y, stream=stream) is y
        stream.synchronize()
        assert bool((y == tuner.apply(name, *others, **DEFAULT)).all()), name
        shaped = tuner.plan(name, *(array.shape for array in arrays), **DEFAULT)
        assert bool((shaped(*arrays) == wanted).all()), name
        threads = [threading.Thread(target=plan, kwargs={"stream": stream}) for _ in range(4)]
        plan.out[...] = 0
        cp.cuda.runtime.deviceSynchronize()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stream.synchronize()
        assert bool((plan.out == wanted).all()), name


def test_plans_in_graphs(cp: Any) -> None:
    """Runs of a plan can be captured into a CUDA graph."""
    x = filled(cp, (16, 1024), "complex64")
    plan = tuner.plan("fft", x, **DEFAULT)
    wanted = plan().copy()
    plan.out[...] = 0
    cp.cuda.runtime.deviceSynchronize()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        plan()
        graph = stream.end_capture()
        graph.launch(stream)
    stream.synchronize()
    assert bool((plan.out == wanted).all())


def test_memory_of_plans(cp: Any) -> None:
    """Dropping a plan gives its scratch arrays and its output back to the pool."""
    x, pool = filled(cp, (4, 2**18), "complex64"), cp.get_default_memory_pool()
    tuner.plan("fft-large", x, **DEFAULT)
    held = pool.used_bytes()
    plan = tuner.plan("fft-large", x, **DEFAULT)
    plan()
    assert pool.used_bytes() >= held + x.nbytes
    del plan
    assert pool.used_bytes() == held


def test_untuned(cp: Any, tmp_path: Any) -> None:
    """Where nothing was tuned what the kernel file states is taken, and runs."""
    x = filled(cp, (2**8, 2**14), "complex64")
    application = Application(CATALOG, tmp_path / "none.db", untuned=UntunedAnswers())
    assert application.chosen("fft-large", [x], {}).origin.startswith("stated by its kernel file")
    right = cp.fft.fft(x.astype(cp.complex128))
    assert distance(cp, application.apply("fft-large", [x], {}), right) <= 1e-6


def test_arrays_that_cannot_be_used(cp: Any) -> None:
    """Strided, misaligned and overlapping arrays are refused with words, not copied."""
    x = filled(cp, (64, 64), "float32")
    refused = [
        ([x.T], None, "x is not contiguous"),
        ([x[:, ::2]], None, "x is not contiguous"),
        ([x.ravel()[1:65]], None, "x begins 4 bytes past a multiple of 16"),
        ([x[:32]], x[16:48], "out overlaps x"),
        ([x.get()], None, "x is a numpy.ndarray"),
        ([x], x.astype(cp.float64), "out is float64"),
    ]
    before = x.copy()
    for arrays, out, words in refused:
        with pytest.raises(InputError, match=re.escape(words)):
            tuner.apply("scan-lf", *arrays, out=out, **DEFAULT)
    assert bool((x == before).all())


def test_chosen(cp: Any) -> None:
    """What is chosen is a configuration of the kernel, and can be given again."""
    x = filled(cp, (128, 512), "float32")
    choice = tuner.chosen("scan-lf", x)
    kernel = CATALOG.kernel("scan-lf")
    assert set(choice.configuration) == set(kernel.tunables)
    again = tuner.apply("scan-lf", x, configuration=choice.configuration)
    assert bool((again == tuner.apply("scan-lf", x)).all())
