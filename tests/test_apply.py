"""``tuner.apply``: kernels on a caller's arrays, and what it says of arrays they cannot run on."""

import ast
import inspect
import logging
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_apply import Bench, FakeCompiler
from fake_cupy import CUDADriverError, DeviceArray

import tuner
from tuner.application import keys
from tuner.application.calls import Application
from tuner.devices.cuda.direct import DirectGpu
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import DeviceError, DeviceUnavailableError, InputError, TunerError, UnknownNameError
from tuner.model.plan import Language, Source, Stage, Workload

# --- what it runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 63), (1, 2), (64,), (4096,)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_sizes_follow_from_the_array(bench: Bench, shape: tuple[int, ...], dtype: str) -> None:
    """Rows, or one row, of any type the kernel takes give an array of the same shape and type."""
    x = bench.array(*shape, dtype=dtype)
    y = bench.apply("sums", x)
    assert isinstance(y, DeviceArray)
    assert (y.shape, y.dtype) == (shape, np.dtype(dtype))
    assert np.array_equal(y, np.cumsum(x, axis=-1))


def test_further_sizes(bench: Bench) -> None:
    """What arrays do not tell is named, and has the kernel file's default otherwise."""
    x = bench.array(3, 64)
    exclusive = bench.apply("sums", x, form="exclusive")
    assert np.array_equal(exclusive, np.cumsum(x, axis=1) - x)
    assert FakeCompiler.compiled == ["sums<exclusive>"]
    bench.apply("sums", x, N=64, dtype="float32")
    assert FakeCompiler.compiled == ["sums<exclusive>", "sums<inclusive>"]


def test_a_call_after_an_interrupted_one_compiles(bench: Bench) -> None:
    """Ctrl-C ends the compiler and what it compiles, and a notebook goes on."""
    x = bench.array(4, 8)
    FakeCompiler.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        bench.apply("sums", x)
    np.testing.assert_array_equal(bench.apply("sums", x), np.cumsum(x, axis=-1))


@pytest.mark.parametrize(("language", "ended"), [("cuda", False), ("triton", True)])
def test_children_of_triton_do_not_outlive_a_call(bench: Bench, language: Language, ended: bool) -> None:
    """Those of NVRTC wait for the next call, for two seconds; Triton's would for a minute."""
    gpu, one = DirectGpu(bench.cp, 0), (1, 1, 1)
    stage = Stage("sums", Source("k", "", language=language), "sums", (), one, one, 0, ())
    for _ in range(2):
        gpu.compile([stage])
        assert FakeCompiler.last.closed == ended


def test_output_of_the_caller(bench: Bench) -> None:
    """An output array that is given is written to and returned."""
    for shape in ((3, 64), (64,)):
        x, y = bench.array(*shape), bench.array(*shape)
        assert bench.apply("sums", x, out=y) is y
        assert np.array_equal(y, np.cumsum(x, axis=-1))


def test_several_outputs(bench: Bench) -> None:
    """Outputs come in the order of the kernel file, those worked on in place among them."""
    a, weights, total = bench.array(3, 16), bench.array(8), bench.array(3, 8)
    before = total.copy()
    results = bench.apply("blend", a, weights, total, N=8)
    assert results[0] is total
    assert np.array_equal(np.concatenate(results[1:], axis=1), a)
    assert np.array_equal(total, before + weights * (a[:, :8] + a[:, 8:]))
    left, right = bench.array(3, 8), bench.array(3, 8)
    assert bench.apply("blend", a, weights, total, N=8, out=(left, right))[1:] == (left, right)
    flat = bench.apply("blend", bench.array(16), weights, bench.array(8))
    assert [result.shape for result in flat] == [(8,)] * 3


def test_streams(bench: Bench) -> None:
    """The kernel runs in the current stream, or in the one that is named."""
    x, kernel = bench.array(3, 64), bench.cp.kernels["sums"]
    own = bench.cp.cuda.Stream(non_blocking=True)
    with own:
        bench.apply("sums", x)
    assert kernel.streams == {own}
    named = bench.cp.cuda.Stream(non_blocking=True)
    bench.apply("sums", x, stream=named)
    assert kernel.streams == {own, named}
    assert bench.cp.current == []


def test_gpu_of_the_arrays(bench: Bench) -> None:
    """The GPU that holds the arrays runs the kernel and holds the output; the current one stays."""
    with bench.cp.cuda.Device(1):
        x = bench.array(3, 64)
    y = bench.apply("sums", x)
    assert y.gpu == 1
    assert bench.cp.gpu == 0
    assert bench.application._gpus[1].identity.uuid == "GPU-1"


def test_later_calls_only_launch(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is worked out twice: a second call evaluates no plan, compiles nothing and looks nothing up."""
    for batch in (3, 5):
        bench.apply("sums", bench.array(batch, 64))
    assert FakeCompiler.compiled == ["sums<inclusive>"]  # another batch is another plan of the same code

    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(KernelFile, "plan", never)
    monkeypatch.setattr("tuner.application.calls.workload_for", never)
    for batch in (3, 5, 3):
        x = bench.array(batch, 64)
        assert np.array_equal(bench.apply("sums", x), np.cumsum(x, axis=1))


def test_calls_kept_are_bounded(bench: Bench) -> None:
    """A program whose batch never repeats does not fill the memory with plans."""
    bench.application = Application(bench.catalog, bench.database, kept=4)
    for batch in range(1, 20):
        bench.apply("sums", bench.array(batch, 64))
    assert len(bench.application._calls) == 4


def test_scratch_is_given_back(bench: Bench) -> None:
    """A call leaves nothing behind but its output."""
    x = bench.array(3, 64)
    held = bench.cp.allocated_bytes
    y = bench.apply("sums", x)
    assert bench.cp.allocated_bytes == held + y.nbytes


def test_choice_is_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """At level DEBUG the first call says what it chose and why."""
    with caplog.at_level(logging.DEBUG, logger="tuner"):
        for _ in range(2):
            bench.apply("sums", bench.array(3, 64))
    assert caplog.messages == ["sums:N=64, batch 3, cuda:0: P=2 L=64 (default)"]


# --- what it refuses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda b: b.apply(None, b.array(3, 64)), InputError, "kernel is None; it must be the name of"),
        (
            lambda b: b.apply("blend", b.array(3, 16), b.array(8), b.array(8)),
            InputError,
            "total has shape (8,); for blend:N=8 and a batch of 3 it must be (3, 8)",
        ),
        (
            lambda b: b.apply("blend", b.array(16), b.array(8), b.array(3, 8)),
            InputError,
            "total has shape (3, 8); for blend:N=8 and a batch of 1 it must be (1, 8)",
        ),
        (
            lambda b: b.apply("pair", b.array(4096, 64), b.array(64)),
            InputError,
            "b has shape (64,); for pair:N=64 and a batch of 4096 it must be (4096, 64)",
        ),
        (
            lambda b: b.chosen("blend", b.array(3, 10), b.array(8), b.array(3, 8)),
            InputError,
            "a has shape (3, 10); for blend:N=8 and a batch of 3 it must be (3, 16)",
        ),
        (lambda b: b.apply("sum", b.array(3, 64)), UnknownNameError, "unknown kernel 'sum'"),
        (lambda b: b.apply("sums"), InputError, "sums takes 1 array (x); 0 given: x missing"),
        (
            lambda b: b.apply("blend", b.array(3, 16)),
            InputError,
            "blend takes 3 arrays (a, weights, total); 1 given: weights, total missing",
        ),
        (lambda b: b.apply("sums", b.array(3, 64), b.array(3, 64)), InputError, "takes 1 array (x); 2 given"),
        (
            lambda b: b.apply("sums", np.zeros((3, 64))),
            InputError,
            "x is a numpy.ndarray; it must be an array on a GPU",
        ),
        (lambda b: b.apply("sums", [1.0, 2.0]), InputError, "x is a builtins.list; it must be an array"),
        (
            lambda b: b.apply("sums", b.array(2, 3, 64)),
            InputError,
            "x has shape (2, 3, 64); it must be (batch, N), or (N) for a batch of one",
        ),
        (
            lambda b: b.apply("sums", b.array(3, 5000)),
            UnknownNameError,
            "N=5000; choose N from the whole numbers from 2 to 4096 (x: float32 of shape (3, 5000))",
        ),
        (lambda b: b.apply("sums", b.array(0, 64)), InputError, "batch is 0; it must be a whole number"),
        (lambda b: b.apply("sums", b.array(3, 0)), UnknownNameError, "sums has no N=0"),
        (
            lambda b: b.apply("sums", b.array(3, 64), N=63),
            InputError,
            "x has shape (3, 64); for sums:N=63 and a batch of 3 it must be (3, 63)",
        ),
        (
            lambda b: b.apply("sums", b.array(3, 64, dtype="complex64")),
            InputError,
            "x has dtype complex64; it must be float32 or float64 or int32",
        ),
        (
            lambda b: b.apply("sums", b.array(3, 64), dtype="float64"),
            InputError,
            "x has dtype float32; it must be float64",
        ),
        (
            lambda b: b.apply("sums", b.array(3, 64), dtype="float16"),
            UnknownNameError,
            "sums has no dtype=float16",
        ),
        (lambda b: b.apply("sums", b.array(3, 64), from_=3), UnknownNameError, "unknown size 'from_'"),
        (lambda b: b.apply("sums", b.array(3, 64), form="upwards"), UnknownNameError, "no form=upwards"),
        (lambda b: b.apply("sums", b.array(3, 64), form=[1]), InputError, "sizes are whole numbers or names"),
        (lambda b: b.apply("sums", b.array(3, 64), batch=3), InputError, "batch is not given"),
        (
            lambda b: b.apply("blend", b.array(3, 16), b.array(8), b.array(3, 4)),
            InputError,
            "total has shape (3, 4); for blend:N=8 and a batch of 3 it must be (3, 8)",
        ),
        (
            lambda b: b.apply("blend", b.array(3, 10), b.array(8), b.array(3, 8)),
            InputError,
            "a has shape (3, 10); for blend:N=8 and a batch of 3 it must be (3, 16)",
        ),
        (
            lambda b: b.apply("sums", b.array(64, 3).T),
            InputError,
            "x is not contiguous (strides (4, 12) of shape (3, 64)); cupy.ascontiguousarray",
        ),
        (lambda b: b.apply("sums", b.array(65)[1:]), InputError, "x begins 4 bytes past a multiple of 16"),
        (lambda b: b.apply("sums", b.array(64), stream=7), InputError, "stream is a builtins.int"),
    ],
)
def test_arrays_that_cannot_be_used(bench: Bench, call: Any, kind: type[Exception], words: str) -> None:
    """What cannot be used is refused before anything runs; the words name it and what would be right."""
    with pytest.raises(kind, match=re.escape(words)):
        call(bench)
    assert bench.cp.kernels["sums"].runs == bench.cp.kernels["blend"].runs == 0


def test_numbers_that_are_no_sizes_stay_refused(bench: Bench) -> None:
    """What equals a size without being one is refused before and after the size itself was run."""
    x = bench.array(3, 60)
    for _ in range(2):
        with pytest.raises(UnknownNameError, match=re.escape("sums has no N=60.0")):
            bench.apply("sums", x, N=60.0)
        bench.apply("sums", x, N=60)


def test_threads_share_the_first_call(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that make the same first call at the same time work it out once, and all run it."""
    worked_out = []

    def counted(*given: Any) -> Any:
        worked_out.append(given)
        return keys.workload_for(*given)

    monkeypatch.setattr("tuner.application.calls.workload_for", counted)
    x, barrier = bench.array(3, 64), threading.Barrier(4)
    bench.application._lock.acquire()  # until every thread has found that the call is not known yet
    missed = threading.Semaphore(0)

    class Calls(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            found = super().get(key, default)
            missed.release()
            return found

    bench.application._calls = Calls()
    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(lambda: (barrier.wait(), bench.apply("sums", x))[1]) for _ in range(4)]
        for _ in done:
            assert missed.acquire(timeout=60)
        bench.application._lock.release()
        assert all(np.array_equal(one.result(), np.cumsum(x, axis=1)) for one in done)
    assert len(worked_out) == 1


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (lambda b, _: b.array(4, 64), "out is float32 of shape (4, 64); it must be float32 of shape (3, 64)"),
        (lambda b, _: b.array(3, 64, dtype="float64"), "out is float64 of shape (3, 64); it must be float32"),
        (lambda b, _: b.array(64, 3).T, "out is not contiguous"),
        (lambda b, _: b.array(193)[1:].reshape(3, 64), "out begins 4 bytes past a multiple of 16"),
        (lambda _, x: x, "out overlaps x; it must be an array of its own"),
        (lambda b, _: (b.array(3, 64), b.array(3, 64)), "out has 2 arrays; it takes 1 (y)"),
        (lambda *_: np.zeros((3, 64), np.float32), "out is a numpy.ndarray; it must be an array on a GPU"),
    ],
)
def test_outputs_that_cannot_be_used(bench: Bench, out: Any, words: str) -> None:
    """An output of another form, or one that shares memory with an input, is refused before anything runs."""
    x = bench.array(3, 64)
    with pytest.raises(InputError, match=re.escape(words)):
        bench.apply("sums", x, out=out(bench, x))
    assert bench.cp.kernels["sums"].runs == 0


def test_partial_overlap(bench: Bench) -> None:
    """Outputs that share a part of an input, or of each other, are refused; neighbours in memory are not."""
    memory = bench.array(12, 64)
    with pytest.raises(InputError, match="out overlaps x"):
        bench.apply("sums", memory[:3], out=memory[2:5])
    assert bench.apply("sums", memory[:3], out=memory[3:6]).shape == (3, 64)
    a, weights, total = bench.array(3, 16), bench.array(8), bench.array(3, 8)
    with pytest.raises(InputError, match=re.escape("out (right) overlaps left")):
        bench.apply("blend", a, weights, total, out=(memory[:1, :24].reshape(3, 8),) * 2)


def test_arrays_of_several_gpus(bench: Bench) -> None:
    """All arrays, and the stream, are on one GPU."""
    with bench.cp.cuda.Device(1):
        far, stream = bench.array(3, 64), bench.cp.cuda.Stream(non_blocking=True)
    x = bench.array(3, 64)
    with pytest.raises(InputError, match="out is on GPU 1; it must be on GPU 0 as the first array is"):
        bench.apply("sums", x, out=far)
    with pytest.raises(InputError, match="stream is on GPU 1; the arrays are on GPU 0"):
        bench.apply("sums", x, stream=stream)


def test_no_gpu(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a driver the words say so; an unknown kernel is told first."""
    monkeypatch.undo()
    monkeypatch.setattr("tuner.devices.cuda.probe.driver_problem", lambda: "no NVIDIA driver")
    with pytest.raises(DeviceUnavailableError, match=re.escape("tuner.apply('sums'): no NVIDIA driver")):
        bench.apply("sums", np.zeros((3, 64)))
    for function in ("plan", "chosen"):
        with pytest.raises(DeviceUnavailableError, match=re.escape(f"tuner.{function}('sums'): no NVIDIA")):
            getattr(bench, function)("sums", np.zeros((3, 64)))
    with pytest.raises(UnknownNameError):
        bench.apply("no-such-kernel", np.zeros((3, 64)))


def test_no_memory(bench: Bench) -> None:
    """Where the output does not fit the error is one of this package."""
    x = bench.array(3, 64)
    bench.cp.memory_bytes = bench.cp.allocated_bytes + 100
    with pytest.raises(DeviceError, match="sums: output and scratch arrays do not fit"):
        bench.apply("sums", x)


def test_refused_launch(bench: Bench) -> None:
    """What the driver refuses is an error of this package with the driver's words."""
    bench.cp.kernels["sums"].seconds = -1.0
    with pytest.raises(DeviceError, match=r"the GPU refuses the launch: .*OUT_OF_RESOURCES") as caught:
        bench.apply("sums", bench.array(3, 64))
    assert isinstance(caught.value.__cause__, CUDADriverError)


# --- the catalogue and the module -----------------------------------------------------------------


MOST_LOOPED = 4096  # the first size of a kernel with loops


def some_workloads(kernel: KernelFile) -> list[Workload]:
    """Of each combination of names the smallest, the largest and two other sizes.

    The arrays of long loops are like those of short ones, and take long to plan.
    """
    found: dict[tuple[object, ...], list[Workload]] = {}
    for one in kernel.workloads():
        if not kernel.recipe.loops or int(one.sizes[0][1]) <= MOST_LOOPED:
            found.setdefault(tuple(value for _, value in one.sizes if isinstance(value, str)), []).append(one)
    return [
        each[place]
        for each in found.values()
        for place in sorted({0, len(each) // 3, 2 * len(each) // 3, len(each) - 1})
    ]


def shipped() -> list[Any]:
    catalog = Catalog.load()
    return [pytest.param(catalog.kernel(name), id=name) for name in catalog.names]


@pytest.mark.parametrize("kernel", shipped())
def test_shipped_kernels_are_told_by_their_arrays(kernel: KernelFile) -> None:
    """Arrays made for a workload lead back to it, with the optional sizes that they do not tell."""
    told = {"N", "dtype", "H", "W", "M", "K", "P", "L", "DIM", "ROWS", "COLUMNS"}
    if kernel.name == "streamcluster":
        told.remove("K")  # as many rows as there are centres has only the output
    if kernel.name.startswith("tridiag-several"):
        told.remove("K")  # of K N numbers in a row it could be any that divides them
    for workload in some_workloads(kernel):
        small = kernel.workload(dict(workload.sizes), 3)
        plan = kernel.plan(small, kernel.default(small))
        if plan.buffers == kernel.plan(workload, kernel.default(workload)).buffers:  # it knows no batch
            small = workload
        inputs = [b for b in plan.buffers if b.role in ("in", "inout")]
        forms = [keys.ArrayForm(b.shape, b.dtype) for b in inputs]
        hidden = {name: value for name, value in small.sizes if name not in told}
        if kernel.name.startswith("fft-real") and hidden["direction"] == "inverse":
            hidden["N"] = dict(small.sizes)["N"]  # as many frequencies have rows of two lengths
        assert keys.workload_for(kernel, forms, hidden) == small
        keys.check_forms(kernel, forms, plan)


def test_import_is_light() -> None:
    """``import tuner`` loads none of what applying needs; the functions are there all the same."""
    code = (
        "import sys, tuner; later = {f'tuner.{name}' for name in ('fft', 'linalg', 'scan', 'tridiagonal')};"
        "assert not ({'numpy', 'cupy', 'sqlite3'} | later) & set(sys.modules);"
        "print(tuner.apply.__name__, tuner.chosen.__name__, tuner.plan.__name__);"
        "assert not later & set(sys.modules); print(tuner.linalg.qr.__module__, tuner.fft.fft.__module__);"
        "assert tuner.scan.cumsum and tuner.tridiagonal.solve"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["apply", "chosen", "plan", "tuner.linalg.factorisations", "tuner.fft"]
    assert set(tuner.__all__) <= set(dir(tuner))
    with pytest.raises(AttributeError, match="module 'tuner' has no attribute 'aply'"):
        _ = tuner.aply  # type: ignore[attr-defined]  # the point of the test


def test_page_shows_the_function() -> None:
    """docs/python.md names every argument there is, and examples, PyTorch's too, call with those."""
    docs = Path(__file__).parent.parent / "docs"
    text = (docs / "python.md").read_text().partition("## Running tuned kernels")[2]
    tensors = (docs / "pytorch.md").read_text().partition("## A kernel of your own")[0]
    parameters = inspect.signature(tuner.apply).parameters
    named = {name for name, p in parameters.items() if p.kind is not p.VAR_KEYWORD}
    assert named == {
        name.strip("`")
        for name in re.findall(r"^\| (`?\w+`?) \|", text.partition("### Plans")[0], re.MULTILINE)[1:]
    }
    calls = [
        node
        for example in re.findall(r"^```python\n(.*?)^```$", text + tensors, re.MULTILINE | re.DOTALL)
        for node in ast.walk(ast.parse(example))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("tuner.")
    ]
    assert {ast.unparse(call.func) for call in calls} == {"tuner.apply", "tuner.chosen", "tuner.plan"}
    for call in calls:
        kernel = Catalog.load().kernel(ast.literal_eval(call.args[0]))
        keys.check_count(kernel, len(call.args) - 1)
        assert {str(keyword.arg) for keyword in call.keywords} <= named | set(kernel.sizes)


def test_errors_of_the_functions() -> None:
    """``tuner.apply``, ``tuner.plan`` and ``tuner.chosen`` look in the user's catalogue."""
    for function in (tuner.apply, tuner.plan, tuner.chosen):
        with pytest.raises(TunerError, match=r"unknown kernel 'scan-ff'.*scan-lf"):
            function("scan-ff", None)
