"""Calls whose stream is being captured into a CUDA graph.

A capture takes launches alone. Loading code, allocating and waiting make it fail, and memory that goes back
to a pool afterwards is written by every replay. Such calls are refused before they do any of it.
"""

import sys
from types import ModuleType

from tuner.application.keys import Stream
from tuner.model.errors import DeviceError, InputError

COMPILES = "the first call for these arrays compiles the kernel; make a tuner.plan before the capture"
PLANS = "a plan allocates memory and loads the kernel; make it before the capture"
ALLOCATES = "it allocates copies and results; call it before the capture, or capture a tuner.plan"
ALLOCATES_OUTPUT = "this call allocates its output; give out"
ALLOCATES_SCRATCH = "this call allocates scratch arrays; make a tuner.plan before the capture"
ALLOCATES_OUTPUT_OF_PLAN = "the plan allocates its output; give out, or call it once before the capture"
WAITS = "it waits for the stream of an array; bind that array to a tuner.plan before the capture"


def is_captured(cp: ModuleType, handle: int) -> bool:
    """True while a stream of the current GPU, given by its handle, is being captured into a CUDA graph.

    So is PyTorch's current one, whichever is asked for: a capture by PyTorch forbids allocations in all.

    Raises:
        DeviceError: it is the default stream, which other streams that are captured wait for.
    """
    torch = getattr(sys.modules.get("torch"), "cuda", None)  # without it PyTorch is half imported
    try:
        if cp.cuda.runtime.streamIsCapturing(handle):
            return True
        return torch is not None and torch.is_initialized() and bool(torch.is_current_stream_capturing())
    except RuntimeError as error:  # CuPy's is one, too
        raise DeviceError(f"the GPU refuses a call beside a capture: {error}") from error


def refuse_capture(cp: ModuleType, kernel: str, stream: Stream | None, device: int, fault: str) -> None:
    """Refuse what a capture cannot take.

    Args:
        cp: CuPy.
        kernel: what messages call the kernel.
        stream: of the call, as CuPy's; None for CuPy's current one.
        device: number of the current GPU.
        fault: what the call would do, and what would be right.

    Raises:
        InputError: the stream is being captured.
    """
    on = cp.cuda.get_current_stream(device) if stream is None else stream
    if is_captured(cp, on.ptr):
        raise InputError(captured(kernel, fault))


def captured(kernel: str, fault: str) -> str:
    """What a refused call is told."""
    return f"{kernel}: its stream is being captured into a CUDA graph: {fault}"
