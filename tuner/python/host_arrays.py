"""Arrays of NumPy, CuPy, PyTorch and others as NumPy arrays on the host."""

from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.model.errors import InputError

HostArray = npt.NDArray[Any]
_ON_GPU = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged


def is_array(value: object) -> bool:
    """True for what ``on_host`` takes: arrays, and not scalars."""
    if isinstance(value, np.ndarray):
        return True
    if isinstance(value, np.generic | bool | int | float | complex | str | bytes):
        return False
    return any(hasattr(value, name) for name in ("__dlpack__", "__cuda_array_interface__", "__array__"))


def gpu_of(value: Any) -> int | None:  # noqa: ANN401 - an array of any library
    """Number of the GPU that an array is on; None for the host, and where the array does not tell."""
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack_device__"):
        return None
    try:
        kind, number = value.__dlpack_device__()
    except Exception:  # noqa: BLE001 - whatever a library raises: it does not tell
        return None
    return int(number) if int(kind) in _ON_GPU else None


def on_host(value: Any, label: str) -> HostArray:  # noqa: ANN401 - an array of any library
    """A C-contiguous NumPy array of the same values; a copy where the array lies on a GPU.

    Args:
        value: an array of NumPy, of CuPy, of PyTorch, or of whatever has ``__array__`` or DLPack.
        label: what messages call it.

    Raises:
        InputError: it cannot be copied, is empty, or holds Python objects.
    """
    try:
        copied = copied_to_host(value)
        array = np.ascontiguousarray(copied, copied.dtype.newbyteorder("=")).reshape(copied.shape or (1,))
    except Exception as error:  # whatever a library raises
        raise InputError(f"{label}: {type(value).__name__} cannot be copied to the host: {error}") from error
    if array.dtype.hasobject:
        raise InputError(f"{label}: an array of Python objects cannot be given to a kernel")
    if not array.size:
        raise InputError(f"{label}: is empty: shape {array.shape}")
    return array


def copied_to_host(value: Any) -> HostArray:  # noqa: ANN401 - same
    """An array of any library as NumPy's, in whatever layout; NumPy's own is not copied.

    Args:
        value: see ``is_array``. What a library raises passes through.
    """
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach") and hasattr(value, "cpu"):  # PyTorch
        return np.asarray(value.detach().cpu().numpy())
    if hasattr(value, "get") and hasattr(value, "__cuda_array_interface__"):  # CuPy
        return np.asarray(value.get())
    if hasattr(value, "__dlpack__"):
        with suppress(BufferError, RuntimeError, TypeError):  # of a GPU: another way may do
            return np.from_dlpack(value)
    if hasattr(value, "copy_to_host"):  # Numba
        return np.asarray(value.copy_to_host())
    return np.asarray(value)
