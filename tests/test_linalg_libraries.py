"""Every call of ``tuner.linalg`` on arrays of every library, in every situation of streams and captures.

All tests run on fakes, and marked ``gpu`` on a GPU with CuPy and PyTorch.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import fake_torch
import host_build
import lent_arrays
import numpy as np
import pytest
from fake_apply import CapturingStream
from fake_linalg import HostCompiler, linalg_cupy
from fake_linalg_large import HostLibraries
from linalg_cases import N, positive, random
from numpy.typing import NDArray

import tuner.application
from tuner import linalg
from tuner.application.calls import Application
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import DeviceError, InputError

CALLS: Mapping[str, Callable[[Any, Any], Any]] = {
    "cholesky": lambda a, _: linalg.cholesky(a, lower=True),
    "cholesky of R": lambda a, _: linalg.cholesky(a),
    "lu_factor": lambda a, _: linalg.lu_factor(a),
    "lu_factor of a tall one": lambda _, b: linalg.lu_factor(b),
    "lu": lambda a, _: linalg.lu(a),
    "lu of a tall one": lambda _, b: linalg.lu(b, permute_l=True),
    "lu by rows": lambda a, _: linalg.lu(a, p_indices=True),
    "qr": lambda _, b: linalg.qr(b, "economic"),
    "qr raw": lambda _, b: linalg.qr(b, "raw"),
    "qr r": lambda a, _: linalg.qr(a, "r"),
    "solve": linalg.solve,
    "solve a positive one": lambda a, b: linalg.solve(a, b, assume_a="pos", check=False),
    "lu_solve": lambda a, b: linalg.lu_solve(linalg.lu_factor(a), b),
    "solve_triangular": lambda a, b: linalg.solve_triangular(a, b, check=False),
    "trsm": linalg.trsm,
    "trsm from the right": lambda a, _: linalg.trsm(a, a, side="right"),
    "gemm": lambda a, b: linalg.gemm(a, b, beta=0.5, c=b),
    "gemm of squares": lambda a, _: linalg.gemm(a, a),
    "gemm with nothing": lambda a, b: linalg.gemm(a, b, alpha=0),
    "apply": lambda a, _: tuner.apply("gemm-batched", a, a, configuration="default"),
}
LIBRARIES = ("cupy", "torch", "dlpack", "interface")
RESULTS = {"interface": "cupy"}  # has no way to take them
K = 3


def test_every_call_is_in_the_table() -> None:
    """A new function of ``tuner.linalg`` is tried with all libraries."""
    assert {name.split()[0] for name in CALLS} == {*linalg.__all__, "apply"}


class FakeWorld:
    """Fakes of CuPy and PyTorch. A late write is done when something comes behind it in its stream."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        if host_build.COMPILER is None:
            pytest.skip("needs g++")
        self.cp = linalg_cupy(patch, folder)
        self.torch: Any = fake_torch.fake_torch(patch, self.cp)

    def lent(self, library: str, values: NDArray[Any], producer: Any = None) -> Any:
        """An array of a library with these values, whose writes are in the stream of the producer."""
        array = self.cp.empty(values.shape, values.dtype.name)
        array[...] = values
        if library == "torch":
            return self.torch.of(array)
        if library == "cupy":
            return array
        made = (fake_torch.DlpackArray if library == "dlpack" else fake_torch.InterfaceArray)(array)
        made.producer = producer
        return made

    def turned(self, tensor: Any) -> Any:
        return self.torch.of(tensor.held.swapaxes(-1, -2))

    def write_late(self, stream: Any, array: Any, values: NDArray[Any]) -> None:
        held = getattr(array, "held", array)
        stream.late.append(lambda: held.__setitem__(..., values))

    def stream(self) -> Any:
        return self.cp.cuda.Stream(non_blocking=True)

    def current_of_torch(self, stream: Any) -> AbstractContextManager[Any]:
        return fake_torch.TorchStream(self.torch, stream.ptr)

    @contextmanager
    def captured(self, capturer: str) -> Iterator[None]:
        """A capture that nothing is to be put into."""
        stream: CapturingStream = self.stream()
        allocations = self.cp.allocations
        stream.begin_capture()
        with self.current_of_torch(stream) if capturer == "torch" else stream:
            yield
        assert stream.end_capture().works == []
        assert self.cp.allocations == allocations

    def kind(self, array: Any) -> str:
        kinds = {fake_torch.Tensor: "torch", fake_torch.DlpackArray: "dlpack", self.cp.ndarray: "cupy"}
        return kinds[type(array)]

    def values(self, array: Any) -> NDArray[Any]:
        return np.array(getattr(array, "held", array))

    def spoilt(self, how: str, tensor: Any) -> Any:
        changes: dict[str, tuple[str, Any]] = {
            "gradient": ("requires_grad", True),
            "conjugate": ("conjugated", True),
            "sparse": ("layout", self.torch.sparse_csr),
            "host": ("device", self.torch.device("cpu")),
            "empty": ("data_ptr", lambda: 0),
            "tangent": ("tangent", tensor),
        }
        setattr(tensor, *changes[how])
        return tensor

    def differentiating(self) -> AbstractContextManager[Any]:
        return nullcontext()

    @contextmanager
    def without_gradients(self) -> Iterator[None]:
        self.torch.gradients = False
        yield
        self.torch.gradients = True


class GpuWorld:
    """CuPy and PyTorch on a GPU. A late write waits for some 50 ms of the GPU."""

    def __init__(self, patch: pytest.MonkeyPatch, application: Application) -> None:
        self.cp = pytest.importorskip("cupy")
        self.torch = pytest.importorskip("torch")
        if not self.torch.cuda.is_available():
            pytest.skip("this PyTorch has no GPU")
        patch.setattr(tuner.application, "_application", lambda: application)
        spin = "void spin() { for (long long begin = clock64(); clock64() - begin < 100000000;); }"
        self._spin = self.cp.RawKernel(f'extern "C" __global__ {spin}', "spin")
        self._kept: list[Any] = []

    def lent(self, library: str, values: NDArray[Any], producer: Any = None) -> Any:
        array = self.cp.asarray(values)
        self.cp.cuda.runtime.deviceSynchronize()
        if library == "torch":
            tensor = self.torch.from_numpy(values.copy()).cuda()
            self.torch.cuda.synchronize()
            return tensor
        if library == "cupy":
            return array
        if library == "dlpack":
            return lent_arrays.Borrowed(array, producer)
        return lent_arrays.Interface(array, producer=producer)

    def turned(self, tensor: Any) -> Any:
        return tensor.mT

    def write_late(self, stream: Any, array: Any, values: NDArray[Any]) -> None:
        held = self.cp.from_dlpack(array) if self.kind(array) == "torch" else getattr(array, "held", array)
        new = self.cp.asarray(values)
        with stream:
            held[...] = held  # compiled and loaded before
            self._spin((1,), (1,), ())
        self.cp.cuda.runtime.deviceSynchronize()
        with stream:
            self._spin((1,), (1,), ())
            held[...] = new
        self._kept.append(new)  # its memory is of another stream

    def stream(self) -> Any:
        return self.cp.cuda.Stream(non_blocking=True)

    def current_of_torch(self, stream: Any) -> AbstractContextManager[Any]:
        entered: AbstractContextManager[Any] = self.torch.cuda.stream(
            self.torch.cuda.ExternalStream(stream.ptr)
        )
        return entered

    @contextmanager
    def captured(self, capturer: str) -> Iterator[None]:
        """A capture that is still whole: its own work alone is replayed."""
        marker, stream = self.cp.zeros(4), self.cp.cuda.Stream()  # which is in order with the default one
        tensor = self.torch.zeros(4, device="cuda")
        marker += 1
        tensor.add_(1)
        self.cp.cuda.runtime.deviceSynchronize()
        if capturer == "torch":
            graph = self.torch.cuda.CUDAGraph()
            with self.torch.cuda.graph(graph):
                tensor.add_(1)
                yield
            graph.replay()
        else:
            with stream:
                stream.begin_capture()
                marker += 1
                yield
                stream.end_capture().launch(stream)
        self.cp.cuda.runtime.deviceSynchronize()
        assert float(tensor[0]) + float(marker[0]) == 3

    def kind(self, array: Any) -> str:
        kinds = {self.torch.Tensor: "torch", lent_arrays.Borrowed: "dlpack", self.cp.ndarray: "cupy"}
        return kinds.get(type(array), "interface")

    def values(self, array: Any) -> NDArray[Any]:
        self.cp.cuda.runtime.deviceSynchronize()
        if self.kind(array) == "torch":
            return np.asarray(array.cpu())
        return np.asarray(getattr(array, "held", array).get())

    def spoilt(self, how: str, tensor: Any) -> Any:
        if how == "tangent":
            return self.torch.autograd.forward_ad.make_dual(tensor, tensor)
        if how == "gradient":
            return tensor.clone().requires_grad_()
        if how == "conjugate":
            return self.torch.complex(tensor, tensor).conj().imag  # is negated when it is read
        if how == "empty":
            return self.torch._efficientzerotensor(tensor.shape, dtype=tensor.dtype, device="cuda")
        return tensor.to_sparse() if how == "sparse" else tensor.cpu()

    def differentiating(self) -> AbstractContextManager[Any]:
        level: AbstractContextManager[Any] = self.torch.autograd.forward_ad.dual_level()
        return level

    def without_gradients(self) -> AbstractContextManager[Any]:
        mode: AbstractContextManager[Any] = self.torch.inference_mode()
        return mode


World = FakeWorld | GpuWorld


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Application:
    """With the defaults, as nothing is stored."""
    return Application(Catalog.load(), Path(tmp_path_factory.mktemp("linalg"), "tuner.db"))


@pytest.fixture(params=["fakes", pytest.param("gpu", marks=pytest.mark.gpu)])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    if request.param == "gpu":
        return GpuWorld(monkeypatch, request.getfixturevalue("application"))
    return FakeWorld(monkeypatch, tmp_path)


def matrices(order: int = N) -> tuple[NDArray[Any], NDArray[Any]]:
    return positive(4, n=order), random(4, order, K)


def cases(world: World) -> Iterator[tuple[str, NDArray[Any], NDArray[Any]]]:
    """Every call on small matrices, and on a GPU also on some that its batched kernels do not take."""
    for order in (N,) if isinstance(world, FakeWorld) else (N, 150):
        for call in CALLS:
            if call != "apply" or order == N:
                yield call, *matrices(order)


def flat(results: Any) -> list[Any]:
    if isinstance(results, tuple):
        return [part for one in results for part in flat(one)]
    return [results]


def of(world: World, call: str, a: NDArray[Any], b: NDArray[Any]) -> list[NDArray[Any]]:
    """What a call gives for arrays of CuPy in its current stream."""
    return [world.values(one) for one in flat(CALLS[call](world.lent("cupy", a), world.lent("cupy", b)))]


def check(world: World, call: str, library: str, results: Any, wanted: list[NDArray[Any]]) -> None:
    for one, right in zip(flat(results), wanted, strict=True):
        assert world.kind(one) == RESULTS.get(library, library), call
        found = world.values(one)
        assert (found.dtype, found.shape) == (right.dtype, right.shape), call
        assert np.allclose(found, right), f"{call} of {library}"


@pytest.mark.parametrize("library", LIBRARIES)
def test_results_are_of_the_library_of_the_arguments(world: World, library: str) -> None:
    """Every call gives every library what it gives CuPy, as an array of that library."""
    for call, a, b in cases(world):
        given = world.lent(library, a), world.lent(library, b)
        check(world, call, library, CALLS[call](*given), of(world, call, a, b))
        assert np.array_equal(world.values(given[0]), a), call
        assert np.array_equal(world.values(given[1]), b), call


@pytest.mark.parametrize("library", LIBRARIES)
def test_tall_matrices(world: World, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    """Their QR calls another function, whose results are of the library, too."""
    if isinstance(world, FakeWorld):
        monkeypatch.setattr("tuner.devices.cuda.code.GpuLibraries", HostLibraries)
    b = random(150, 2)
    for _ in range(2):  # worked out, and looked up
        check(world, "qr", library, CALLS["qr"](b, world.lent(library, b)), of(world, "qr", b, b))


@pytest.mark.parametrize("library", LIBRARIES)
def test_streams_that_write_late(world: World, library: str) -> None:
    """A call reads what the stream of its arguments has written, however late that is."""
    for call, a, b in cases(world):
        wanted, stream = of(world, call, a, b), world.stream()
        given = [world.lent(library, np.ones_like(one), stream) for one in (a, b)]
        for array, values in zip(given, (a, b), strict=True):
            world.write_late(stream, array, values)
        if library == "torch":
            with world.current_of_torch(stream):
                results = CALLS[call](*given)
        elif library == "cupy":
            with stream:
                results = CALLS[call](*given)
        else:
            results = CALLS[call](*given)
        check(world, call, library, results, wanted)


@pytest.mark.parametrize("order", [("cupy", "torch"), ("torch", "cupy"), ("torch", "dlpack")])
def test_arrays_of_several_libraries(world: World, order: tuple[str, str]) -> None:
    """One tensor makes it PyTorch's call, which waits for what the streams of the others have written."""
    a, b = matrices()
    for call in ("solve", "gemm"):
        wanted, streams = of(world, call, a, b), [world.stream(), world.stream()]
        with world.current_of_torch(streams[0]), streams[1]:
            owners = [streams[library != "torch"] for library in order]
            given = [
                world.lent(library, np.ones_like(one), owner)
                for library, one, owner in zip(order, (a, b), owners, strict=True)
            ]
            for owner, array, values in zip(owners, given, (a, b), strict=True):
                world.write_late(owner, array, values)
            results = CALLS[call](*given)
        check(world, call, "torch", results, wanted)


@pytest.mark.parametrize("capturer", ["torch", "cupy"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_captures_are_refused(world: World, library: str, capturer: str) -> None:
    """In a capture nothing is launched, allocated or waited for, and the capture goes on."""
    a, b = matrices()
    given = world.lent(library, a), world.lent(library, b)
    calls = [call for call in CALLS if call != "apply"]  # which may have nothing to allocate
    for warm in (False, True):
        with world.captured(capturer):
            for call in calls:
                with pytest.raises(InputError, match=r"tuner\.linalg\.[a-z_]+: its stream is being captured"):
                    CALLS[call](*given)
        if not warm:
            for call in calls:
                CALLS[call](*given)


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # PyTorch's own, of tangents
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("gradient", "is a torch tensor that requires a gradient, which kernels do not compute"),
        ("tangent", "is a torch tensor with a tangent, which kernels do not compute"),
        ("conjugate", "is a torch tensor that is conjugated or negated only when it is read"),
        ("sparse", "is a torch tensor of layout torch.sparse"),
        ("host", "is a torch tensor on cpu; it must be on a GPU"),
        ("empty", "cannot be read as an array on a GPU: it has no memory of its own"),
    ],
)
def test_tensors_that_cannot_be_used(world: World, how: str, told: str) -> None:
    """Each argument is refused in the same words, before anything is compiled or launched."""
    a, b = matrices()
    compiled = [] if isinstance(world, GpuWorld) else HostCompiler.compiled
    for place in (0, 1):
        given = [world.lent("torch", one) for one in (a, b)]
        with world.differentiating():
            given[place] = world.spoilt(how, given[place])
            for call in ("solve", "trsm", "gemm", "solve_triangular"):
                with pytest.raises(InputError, match=rf"^tuner\.linalg\.{call}: {'ab'[place]} .*{told}"):
                    CALLS[call](*given)
    assert compiled == []


def test_tensors_of_any_strides(world: World) -> None:
    """Transposes and parts of tensors are read as they are, but for ``apply``, which copies nothing."""
    a, b = matrices()
    for call in set(CALLS) - {"apply"}:
        wanted = of(world, call, a, b)
        given = [world.turned(world.lent("torch", one.swapaxes(-1, -2).copy())) for one in (a, b)]
        check(world, call, "torch", CALLS[call](*given), wanted)


def test_gradients_that_are_not_recorded(world: World) -> None:
    """Without gradients, and in PyTorch's inference mode, a parameter is a tensor as any other."""
    a, b = matrices()
    given = world.spoilt("gradient", world.lent("torch", a)), world.lent("torch", b)
    for call in CALLS:
        wanted = of(world, call, a, b)
        with world.without_gradients():
            check(world, call, "torch", CALLS[call](*given), wanted)


@pytest.mark.parametrize("library", LIBRARIES)
def test_empty_batches(world: World, library: str) -> None:
    """No matrices, and no columns, give empty arrays of the same library."""
    for a, b in ((positive(0), random(0, N, K)), (positive(2), random(2, N, 0))):
        for call in CALLS:
            if call == "apply" or (call.startswith(("qr", "lu")) and not b.shape[-1]):
                continue
            given = world.lent(library, a), world.lent(library, b)
            check(world, call, library, CALLS[call](*given), of(world, call, a, b))


def test_memory_of_results_is_of_pytorch(world: World) -> None:
    """Results are made in PyTorch's current stream by its allocator, and outlive the arguments."""
    a, b = matrices()
    stream = world.stream()
    with world.current_of_torch(stream):
        given = [world.lent("torch", one) for one in (a, b)]
        wanted = of(world, "solve", a, b)
        if isinstance(world, FakeWorld):
            world.torch.made_in.clear()
        result = CALLS["solve"](*given)
        del given
        check(world, "solve", "torch", result, wanted)
    if isinstance(world, FakeWorld):
        assert {*world.torch.made_in} == {stream.ptr}
        assert world.cp.current == []
    else:
        held = world.torch.cuda.memory_allocated()
        del result
        assert world.torch.cuda.memory_allocated() < held


def test_memory_of_pytorch_runs_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Copies that PyTorch has no memory for are an error of the device."""
    world = FakeWorld(monkeypatch, tmp_path)
    a = world.lent("torch", positive(4))

    def full(*_: object, **__: object) -> None:
        raise world.torch.cuda.OutOfMemoryError("CUDA out of memory")

    world.torch.empty = full
    with pytest.raises(DeviceError, match=r"^tuner\.linalg\.cholesky: copies and results do not fit.*CUDA"):
        linalg.cholesky(a)


def test_arrays_on_two_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever their library, arrays are on one GPU, which is that of the results."""
    world = FakeWorld(monkeypatch, tmp_path)
    a, b = matrices()
    for library in LIBRARIES:
        with world.cp.cuda.Device(1):
            there, right = world.lent(library, a), world.lent(library, b)
        if library == "torch":
            assert there.device.index == 1
        found: Any = linalg.solve(there, right)
        assert getattr(found, "held", found).gpu == 1
        with pytest.raises(InputError, match=r"solve: b is on GPU 0; it must be on GPU 1 as a is"):
            linalg.solve(there, world.lent(library, b))
