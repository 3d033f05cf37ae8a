"""Arrays of other libraries as CuPy arrays of the same memory; nothing is copied.

PyTorch's tensors are taken by their addresses. All else is taken by DLPack or the CUDA array interface, as
CuPy does: the owner puts what the array waits for before the stream that is current here. PyTorch is never
imported: who has a tensor has done so.
"""

import ctypes
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

from tuner.application.keys import Array
from tuner.model.elements import element_dtype
from tuner.model.errors import InputError

Value: TypeAlias = Any
"""Object that a caller passes for an array."""

_ON_GPU = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged
_VERSIONED = b"dltensor_versioned"  # the name of capsules since DLPack 1.0
_FLAGS_BYTES = 24  # of DLManagedTensorVersioned, behind two numbers and two pointers
_READ_ONLY = 1
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_REFUSED = (BufferError, LookupError, RuntimeError, TypeError, ValueError)  # by owners that lend no memory


@dataclass(frozen=True)
class BorrowedArray:
    """An array of a call.

    Attributes:
        array: its memory as a CuPy array; the bits of a torch ``bfloat16`` as ``uint16``.
        original: the caller's; None for one that was allocated.
        dtype: name of its type, as kernel files have it.
    """

    array: Array
    original: Value | None
    dtype: str

    @property
    def shown(self) -> Value:
        """The caller's, or CuPy's where there is none."""
        return self.array if self.original is None else self.original


def own(arrays: Sequence[Array]) -> tuple[BorrowedArray, ...]:
    """CuPy arrays as they are."""
    return tuple(BorrowedArray(array, array, array.dtype.name) for array in arrays)


def torch_of(values: Sequence[Value]) -> ModuleType | None:
    """PyTorch, when one of the values is a tensor."""
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)  # without one it is half imported
    return torch if kind is not None and any(isinstance(value, kind) for value in values) else None


def on_host(value: Value) -> bool:
    """True for a torch tensor on the CPU: where all are, PyTorch may know no GPU to ask for a stream."""
    return torch_of([value]) is not None and value.device.type != "cuda"


def gpu_of(cp: ModuleType, value: Value) -> int:
    """The GPU whose current stream an array is to be borrowed in; the current one where it tells none."""
    if isinstance(value, cp.ndarray):
        return int(value.data.device_id)
    if torch_of([value]) is not None:
        return int(value.device.index or 0)
    try:
        if _by_dlpack(value):
            kind, number = value.__dlpack_device__()
            if kind in _ON_GPU:
                return int(number)
        address = value.__cuda_array_interface__["data"][0]
        if address:
            return int(cp.cuda.runtime.pointerGetAttributes(address).device)
    except (AttributeError, *_REFUSED):
        pass  # borrow tells why
    return int(cp.cuda.runtime.getDevice())


def borrow(cp: ModuleType, kernel: str, label: str, value: Value, *, written: bool = False) -> BorrowedArray:
    """An array of whatever library as a CuPy array.

    Raises:
        InputError: it is no array on a GPU, or does not give its memory away; the message says what would be
            right.
    """
    if isinstance(value, cp.ndarray):
        return own([value])[0]
    torch = torch_of([value])
    try:
        fault = _fault(value, written=written) if torch is None else _torch_fault(torch, value)
        if not fault:
            if torch is None:
                return _of_protocol(cp, value, written=written)
            return borrowed_tensor(cp, value)
    except _REFUSED as error:
        raise InputError(f"{kernel}: {label} cannot be read as an array on a GPU: {error}") from error
    raise InputError(f"{kernel}: {label} is {fault}")


def borrowed_tensor(cp: ModuleType, tensor: Value) -> BorrowedArray:
    """A torch tensor on a GPU, with any strides; it lives as long as the CuPy array.

    Raises:
        TypeError: NumPy has no such type.
        ValueError: it stands for numbers that are nowhere in memory.
    """
    if tensor.numel() and not tensor.data_ptr():
        raise ValueError("it has no memory of its own; its clone() has")
    name = str(tensor.dtype).removeprefix("torch.")
    if name == "complex32":  # NumPy does not know it
        raise TypeError("no kernel takes complex32; its to(torch.complex64) is one that they take")
    dtype, shape, strides = element_dtype(name), tuple(tensor.shape), None
    size = tensor.numel() * dtype.itemsize
    if not tensor.is_contiguous():
        strides = tuple(step * dtype.itemsize for step in tensor.stride())
        size = dtype.itemsize + sum(
            (extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)
        )
    memory = cp.cuda.UnownedMemory(tensor.data_ptr(), size, tensor, tensor.device.index)
    return BorrowedArray(cp.ndarray(shape, dtype, cp.cuda.MemoryPointer(memory, 0), strides), tensor, name)


def torch_streams(torch: ModuleType) -> Callable[[int], int]:
    """Return what tells the handle of PyTorch's current stream of a GPU; a tensor is there already."""
    raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    if raw is not None:  # makes no object of the stream; what PyTorch compiles calls it, too
        found: Callable[[int], int] = raw
        return found
    return lambda device: int(torch.cuda.current_stream(device).cuda_stream)


class TensorForms:
    """The forms of torch tensors, which decide whether a kernel can run on them, and their addresses."""

    def __init__(self, torch: ModuleType) -> None:
        self.torch = torch
        self.kind = torch.Tensor
        self._gradients = torch.is_grad_enabled
        self._forward = torch.autograd.forward_ad

    def examined(self, tensors: Sequence[Value]) -> tuple[list[object], list[int]]:
        """As ``keys.examined``, of torch tensors on a GPU; strides are in elements.

        Raises:
            TypeError: one is no plain tensor, or may be one that ``borrow`` refuses.
            RuntimeError: one has no strides or no memory.
        """
        forms: list[object] = []
        addresses: list[int] = []
        kind = self.kind
        for tensor in tensors:
            address = tensor.data_ptr() if tensor.__class__ is kind else 0
            if (
                not address
                or (tensor.requires_grad and self._gradients())
                or tensor.is_conj()
                or tensor.is_neg()
            ):
                raise TypeError("this is to be looked at closely")
            forms += (tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.layout)
            addresses.append(address)
        if getattr(self._forward, "_current_level", 0) >= 0 and any(
            self._forward.unpack_dual(tensor).tangent is not None for tensor in tensors
        ):
            raise TypeError("one has a tangent")
        return forms, addresses


class TorchMemory:
    """PyTorch's allocator in the place of CuPy's, of the stream that is current in both.

    Tensors of its memory are PyTorch's own: ``record_stream`` counts, and it goes back to PyTorch's cache.
    """

    def __init__(self, cp: ModuleType, torch: ModuleType, device: int) -> None:
        self._cp, self._torch, self._device = cp, torch, device
        self._on = torch.device("cuda", device)
        self._held: weakref.WeakValueDictionary[int, Value] = weakref.WeakValueDictionary()

    def allocate(self, size: int) -> Any:  # noqa: ANN401 - cupy.cuda.MemoryPointer
        """New memory of some bytes, as CuPy's allocators give it; it lives as long as arrays in it do.

        Raises:
            torch.cuda.OutOfMemoryError: it does not fit.
        """
        held = self._torch.empty(size, dtype=self._torch.uint8, device=self._on)
        address = held.data_ptr()
        self._held[address] = held
        return self._cp.cuda.MemoryPointer(self._cp.cuda.UnownedMemory(address, size, held, self._device), 0)

    def tensor(self, array: Array) -> Value:
        """An array of this memory as a tensor of the same memory, shape and strides."""
        dtype, unit = getattr(self._torch, array.dtype.name), array.itemsize
        if not array.size:  # no memory is found by its address
            return self._torch.empty(array.shape, dtype=dtype, device=self._on)
        begin = array.data.mem.ptr
        strides = tuple(step // unit for step in array.strides)
        made = self._torch.empty(0, dtype=dtype, device=self._on)
        storage = self._held[begin].untyped_storage()
        return made.set_(storage, (array.data.ptr - begin) // unit, array.shape, strides)


def is_waited_for(cp: ModuleType, value: Value) -> bool:
    """True for what is taken by a protocol: the owner's stream is waited for."""
    return not isinstance(value, cp.ndarray) and torch_of([value]) is None


def _by_dlpack(value: Value) -> bool:
    return hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__")


class _Writable:
    """An array with DLPack, unless that marks it as read-only; CuPy does not look."""

    def __init__(self, owner: Value) -> None:
        self.owner = owner

    def __dlpack_device__(self) -> tuple[int, int]:
        """As the array has it."""
        device: tuple[int, int] = self.owner.__dlpack_device__()
        return device

    def __dlpack__(self, **options: Any) -> Any:  # noqa: ANN401 - a capsule, and what its protocol has
        """As the array has it.

        Raises:
            BufferError: it is read-only.
        """
        capsule = self.owner.__dlpack__(**options)
        if ctypes.pythonapi.PyCapsule_IsValid(ctypes.py_object(capsule), _VERSIONED):
            pointer = _pointer_of(capsule, _VERSIONED)
            if ctypes.c_uint64.from_address(pointer + _FLAGS_BYTES).value & _READ_ONLY:
                raise BufferError("it is marked as read-only, and the kernel writes it")
        return capsule


def _of_protocol(cp: ModuleType, value: Value, *, written: bool) -> BorrowedArray:
    lent = _Writable(value) if written else value
    array = cp.from_dlpack(lent) if _by_dlpack(value) else cp.asarray(value)
    return BorrowedArray(array, value, array.dtype.name)


def _fault(value: Value, *, written: bool) -> str:
    """Return the reason why a value other than a torch tensor cannot be borrowed; empty if it can be."""
    kind = f"a {type(value).__module__}.{type(value).__qualname__}"
    on_host = _by_dlpack(value) and value.__dlpack_device__()[0] not in _ON_GPU
    interface = None if on_host else getattr(value, "__cuda_array_interface__", None)
    if on_host or (interface is None and not _by_dlpack(value)):
        return f"{kind}; it must be an array on a GPU (cupy.asarray copies one to it)"
    if written and interface is not None and interface["data"][1]:
        return f"{kind} that must not be written; it must be one that may be, e.g. a CuPy array"
    return ""


def _torch_fault(torch: ModuleType, tensor: Value) -> str:
    """Return the reason why a torch tensor cannot be borrowed; empty if it can be."""
    if on_host(tensor):
        return f"a torch tensor on {tensor.device}; it must be on a GPU (its cuda() is)"
    if tensor.layout is not torch.strided:
        return f"a torch tensor of layout {tensor.layout}; it must be a dense one (its to_dense() is)"
    if tensor.requires_grad and torch.is_grad_enabled():
        return (
            "a torch tensor that requires a gradient, which kernels do not compute; its detach() does not,"
            " or call this under torch.no_grad()"
        )
    if torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None:
        return "a torch tensor with a tangent, which kernels do not compute; its detach() has none"
    if tensor.is_conj() or tensor.is_neg():
        return (
            "a torch tensor that is conjugated or negated only when it is read; its"
            " resolve_conj().resolve_neg() is written out"
        )
    return ""
