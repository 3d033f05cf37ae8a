"""Waits for a GPU through the libraries that a program has imported already; imports none itself."""

import sys
from typing import Any


def synchronize(index: int) -> str:
    """Wait until a GPU has done what CuPy, or torch, has queued on all streams of this process.

    Args:
        index: CUDA's number of the GPU.

    Returns:
        Why it was not waited for; empty where it was.
    """
    torch = getattr(sys.modules.get("torch"), "cuda", None)
    cupy = getattr(sys.modules.get("cupy"), "cuda", None)
    try:
        if torch is not None and torch.is_initialized():
            return _by_torch(torch, index)
        if cupy is not None:
            return _by_cupy(cupy, index)
    except (RuntimeError, AttributeError) as error:  # AttributeError: half imported, or an old release
        return f"{type(error).__name__}: {error}"
    return "neither CuPy nor torch has used a GPU in this process"


def _by_torch(torch: Any, index: int) -> str:  # noqa: ANN401 - torch is no dependency
    if torch.is_current_stream_capturing():
        return "torch captures a CUDA graph"
    torch.synchronize(index)
    return ""


def _by_cupy(cupy: Any, index: int) -> str:  # noqa: ANN401 - CuPy ships no type information
    if cupy.get_current_stream().is_capturing():
        return "CuPy captures a CUDA graph"
    cupy.Device(index).synchronize()
    return ""
