"""A PyTorch of the fake CuPy's arrays, and arrays of libraries with DLPack or the CUDA array interface."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_apply import DriverCupy
from fake_cupy import DeviceArray, OutOfMemoryError


class Dtype:
    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"torch.{self.name}"


class TorchDevice:
    def __init__(self, kind: str, index: int | None = None) -> None:
        self.type = kind
        self.index = index

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TorchDevice) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


class Tensor:
    """A tensor of the memory of ``held``; it has no protocol, so that nobody can take it by one."""

    def __init__(self, held: Any, dtype: Dtype, layout: object, device: TorchDevice) -> None:
        self.held = held
        self.dtype = dtype
        self.layout = layout
        self.device = device
        self.shape = held.shape
        self.requires_grad = self.conjugated = False
        self.tangent: Any = None

    def data_ptr(self) -> int:
        address: int = self.held.data.ptr
        return address

    def numel(self) -> int:
        return int(self.held.size)

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.held.itemsize for step in self.held.strides)

    def is_contiguous(self) -> bool:
        return bool(self.held.flags.c_contiguous)

    def swapaxes(self, one: int, other: int) -> "Tensor":
        return Tensor(self.held.swapaxes(one, other), self.dtype, self.layout, self.device)

    def cpu(self) -> Any:
        return SimpleNamespace(numpy=lambda: np.array(self.held))

    def is_conj(self) -> bool:
        return self.conjugated

    def is_neg(self) -> bool:
        return False

    def view(self, dtype: Dtype) -> "Tensor":
        return Tensor(self.held.view(np.uint16), dtype, self.layout, self.device)

    def untyped_storage(self) -> DeviceArray:
        held: DeviceArray = self.held
        return held

    def set_(self, storage: DeviceArray, offset: int, shape: Any, strides: Any) -> "Tensor":
        unit = self.held.itemsize
        steps = [step * unit for step in strides]
        made = np.ndarray.__new__(np.ndarray, shape, self.held.dtype, storage, offset * unit, steps)
        self.held = made.view(DeviceArray)
        self.held.gpu, self.shape = storage.gpu, self.held.shape
        return self


class TorchStream:
    """A stream of PyTorch; within ``torch.cuda.stream`` it is the current one."""

    def __init__(self, torch: "FakeTorch", handle: int, device: int = 0) -> None:
        self.torch = torch
        self.cuda_stream = handle
        self.device = TorchDevice("cuda", device)

    def __enter__(self) -> None:
        self.torch.streams.append(self)

    def __exit__(self, *_: object) -> None:
        assert self.torch.streams.pop() is self


class FakeTorch(ModuleType):
    """Stands for the module ``torch``; ``made_in`` are the handles of the streams that it allocated in."""

    def __init__(self, cp: DriverCupy) -> None:
        super().__init__("torch")
        self.cp = cp
        self.Tensor = Tensor
        self.strided, self.sparse_csr = "torch.strided", "torch.sparse_csr"
        self.device = TorchDevice
        self.gradients = True
        self.streams = [TorchStream(self, 0)]
        self.made_in: list[int] = []
        for name in (
            "float16",
            "bfloat16",
            "float32",
            "float64",
            "int32",
            "complex64",
            "uint8",
            "uint16",
            "int16",
        ):
            setattr(self, name, Dtype(name))
        self.float8_e4m3fn, self.complex32 = Dtype("float8_e4m3fn"), Dtype("complex32")
        self.autograd = SimpleNamespace(forward_ad=SimpleNamespace(unpack_dual=lambda tensor: tensor))
        self.cuda = SimpleNamespace(
            current_stream=lambda _: self.streams[-1],
            default_stream=lambda device: TorchStream(self, 0, device),
            ExternalStream=lambda handle, device: TorchStream(self, handle, device),
            stream=lambda stream: stream,
            OutOfMemoryError=OutOfMemoryError,
            is_initialized=lambda: True,
            is_current_stream_capturing=lambda: cp.by_handle[self.streams[-1].cuda_stream].works is not None,
        )

    def is_grad_enabled(self) -> bool:
        return self.gradients

    def empty(self, shape: Any, dtype: Dtype, device: TorchDevice) -> Tensor:
        self.made_in.append(self.streams[-1].cuda_stream)
        held = self.cp.adopted
        if held is None:
            held = self.cp.empty(shape, np.uint16 if dtype.name == "bfloat16" else dtype.name)
        held.gpu = device.index or 0
        return Tensor(held, dtype, self.strided, device)

    def tensor(self, *shape: int, dtype: str = "float32", device: int = 0) -> Tensor:
        made = self.empty(shape, getattr(self, dtype), TorchDevice("cuda", device))
        self.made_in.clear()
        made.held[...] = np.arange(made.held.size).reshape(shape) % 7
        return made

    def of(self, held: DeviceArray) -> Tensor:
        return Tensor(held, Dtype(held.dtype.name), self.strided, TorchDevice("cuda", held.gpu))


def fake_torch(patch: pytest.MonkeyPatch, cp: DriverCupy) -> FakeTorch:
    torch = FakeTorch(cp)
    patch.setitem(sys.modules, "torch", torch)
    return torch


class DlpackArray:
    """An array of a library of the array API: it has DLPack, and its namespace takes arrays by it."""

    def __init__(self, held: DeviceArray, kind: int = 2) -> None:
        self.held = held
        self.kind = kind
        self.taken_in: Any = None
        self.producer: Any = None

    def __dlpack__(self, **_: object) -> object:
        return self.held

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, self.held.gpu

    def __array_namespace__(self) -> Any:
        return SimpleNamespace(from_dlpack=self.taken)

    @staticmethod
    def taken(array: DeviceArray) -> "DlpackArray":
        """As JAX takes arrays."""
        if not array.flags.c_contiguous:
            raise RuntimeError("UNIMPLEMENTED: from_dlpack got array with non-default layout")
        return DlpackArray(array)


class InterfaceArray:
    """An array with the CUDA array interface alone."""

    def __init__(self, held: DeviceArray, *, readonly: bool = False) -> None:
        self.held = held
        self.producer: Any = None
        self.__cuda_array_interface__ = {"data": (held.data.ptr, readonly)}
