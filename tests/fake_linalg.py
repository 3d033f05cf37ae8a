"""``tuner.linalg`` on a fake GPU whose kernels are the catalogue's, compiled and run on the host."""

import ctypes
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import host_build
import numpy as np
import pytest
from fake_apply import GPU, DriverCupy
from fake_cuda import LIMITS
from fake_cupy import DeviceArray, Kernel, Pointer

import tuner.application
from tuner.application.calls import Application
from tuner.compiler.compiler import CompiledStage
from tuner.devices.cuda import direct, probe
from tuner.kernel_files.catalog import Catalog
from tuner.model.elements import element_dtype
from tuner.model.errors import CompileError
from tuner.model.plan import BufferView, Resources, Stage, StructValue


class HostKernel(Kernel):
    """A kernel of the catalogue: arrays, then numbers."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(self._called, 1e-6)
        self.stage = stage
        kinds = [_kind(one) for one in stage.arguments]
        parameters = [
            inspect.Parameter(f"p{place}", inspect.Parameter.POSITIONAL_ONLY, annotation=kind)
            for place, kind in enumerate(kinds)
        ]
        self.action = _Signed(inspect.Signature(parameters))

    def _called(self) -> None:
        """Launches say what is run."""

    def launch(self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any]) -> None:
        stage = self.stage
        plain: list[Any] = [np.asarray(one) if isinstance(one, DeviceArray) else one for one in args]
        begins = {"moved": {0: 5}, "substituted": {0: 4, 1: 5}}.get(stage.name)
        if begins is not None:
            for place, number in begins.items():
                plain[place], before = _memory(plain[place])
                plain[number] += before
        elif stage.name == "exchanged":
            assert plain[0].flags.c_contiguous
        else:  # rows may lie apart, and those of an output are written
            plain = [
                _memory(one, writeable=one.flags.writeable)[0]
                if isinstance(one, np.ndarray) and not one.flags.c_contiguous
                else one
                for one in plain
            ]
        shape = (tuple(grid), tuple(block), stage.shared_bytes)
        host_build.run(stage.source, stage.entry, *shape, plain, options=stage.options)


def _kind(argument: Any) -> Any:
    """What tells how many bytes an argument takes: an array's address, or a number or struct of some type."""
    if isinstance(argument, (str, BufferView)):
        return np.ndarray
    if isinstance(argument, StructValue):
        return np.dtype(f"V{len(argument.bytes)}")
    return element_dtype(argument.dtype)


def _memory(array: Any, *, writeable: bool = False) -> tuple[Any, int]:
    """The memory of an array from its lowest address on, and how many elements its first one is behind that.

    The host's machine copies what it is given, and copies arrays with gaps without them.
    """
    steps = [(extent - 1) * step for extent, step in zip(array.shape, array.strides, strict=True)]
    lowest = sum(step for step in steps if step < 0)
    span = 1 + (sum(step for step in steps if step > 0) - lowest) // array.itemsize
    first = array[tuple(slice(-1, None) if step < 0 else slice(1) for step in steps)]
    whole = np.lib.stride_tricks.as_strided(first, (span,), (array.itemsize,), writeable=writeable)
    return whole, -lowest // array.itemsize


class _Signed:
    """What tells the driver the kinds of a kernel's parameters."""

    def __init__(self, signature: inspect.Signature) -> None:
        self.__signature__ = signature

    def __call__(self, *_: object) -> None:
        raise AssertionError("it is launched")


class LinalgCupy(DriverCupy):
    """CuPy as far as ``tuner.linalg`` needs it."""

    def __init__(self) -> None:
        super().__init__({})
        self.allocators: list[Callable[[int], Any]] = []
        self.owners: dict[int, Any] = {}
        self.kept: list[Any] = []
        self.cuda.UnownedMemory = self._unowned
        self.cuda.using_allocator = self.using_allocator

    def zeros(self, shape: Any, dtype: Any = np.float64) -> DeviceArray:
        made = self.empty(shape, dtype)
        made.fill(0)
        return made

    def broadcast_to(self, array: Any, shape: Any) -> DeviceArray:
        return np.broadcast_to(array, shape, subok=True).view(DeviceArray)

    def where(self, condition: Any, one: Any, other: Any) -> DeviceArray:
        made: DeviceArray = np.where(condition, one, other).view(DeviceArray)
        return made

    def from_dlpack(self, other: Any) -> DeviceArray:
        return self.asarray(other)

    def asarray(self, values: Any) -> DeviceArray:
        """An array; of another library's its memory, once the stream that made it has written it."""
        if getattr(values, "producer", None) is not None:
            values.producer.settle()
        held = getattr(values, "held", values)
        return held if isinstance(held, DeviceArray) else super().asarray(held)

    @contextmanager
    def using_allocator(self, allocate: Callable[[int], Any]) -> Iterator[None]:
        self.allocators.append(allocate)
        yield
        self.allocators.pop()

    def memory_of(self, array: DeviceArray) -> Any:
        """The whole memory of an array: NumPy's, which is the allocator's from when it is asked for."""
        root: Any = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        address = root.__array_interface__["data"][0]
        if self.allocators and address not in self.owners:
            held = (ctypes.c_uint8 * root.nbytes).from_address(address)
            self.adopted = np.frombuffer(held, np.uint8).view(DeviceArray)
            self.allocators[-1](root.nbytes)
            self.adopted = None
            self.kept.append(root)
        return SimpleNamespace(ptr=address)

    def _unowned(self, address: int, size: int, owner: Any, device: int) -> int:
        assert size >= 0
        assert device >= 0
        if owner is not None:  # else it is somebody's already
            self.owners[address] = owner
        return address


class HostCompiler:
    """Makes kernels that run on the host; keeps the entries."""

    nvrtc_version = GPU.runtime
    closed = False
    compiled: list[str]
    cp: LinalgCupy

    def __init__(self, architecture: str) -> None:
        assert architecture == LIMITS.architecture

    def compile(self, stages: Sequence[Stage], _: object = None) -> list[CompiledStage | CompileError]:
        return [self._compiled(stage) for stage in stages]

    def _compiled(self, stage: Stage) -> CompiledStage:
        name = f"{stage.entry} {stage.shared_bytes} {stage.block}"
        HostCompiler.compiled.append(stage.entry)
        HostCompiler.cp.kernels.setdefault(name, HostKernel(stage))
        return CompiledStage(b"cubin", name, Resources(32, architecture="sm_90"), "")


def linalg_cupy(patch: pytest.MonkeyPatch, folder: Path) -> LinalgCupy:
    """A CuPy for ``tuner.linalg``, with an empty database."""
    cp = LinalgCupy()
    pointed = vars(Pointer)["ptr"].__get__

    def ptr(pointer: Pointer) -> int:
        address: int = pointed(pointer)
        cp.seen(pointer.array, address)
        return address

    HostCompiler.compiled, HostCompiler.cp = [], cp
    patch.setattr(Pointer, "ptr", property(ptr))
    patch.setattr(Pointer, "mem", property(lambda pointer: cp.memory_of(pointer.array)), raising=False)
    patch.setattr(DeviceArray, "__new__", cp.ndarray_at, raising=False)
    patch.setattr(direct, "Compiler", HostCompiler)
    patch.setattr(probe, "import_cupy", lambda _: cp)
    patch.setattr(probe, "gpu_limits", lambda *_: LIMITS)
    patch.setattr(probe, "gpu_name", lambda *_: GPU.name)
    patch.setattr(probe, "gpu_uuid", lambda _: GPU.uuid)
    patch.setattr(probe, "driver_version", lambda _: GPU.driver)
    application = Application(Catalog.load(), folder / "tuner.db")
    patch.setattr(tuner.application, "_application", lambda: application)
    return cp
