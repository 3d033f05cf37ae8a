"""Streams of other libraries as CuPy streams, by their handles."""

from types import ModuleType

from tuner.devices.cuda.types import Stream


class _Handle:
    """A stream of somebody else's, as CUDA's stream protocol has it.

    Args:
        handle: the CUstream.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """Version of the protocol, and the handle."""
        return 0, self._handle


def stream_of(cp: ModuleType, handle: int) -> Stream:
    """A stream of the current GPU by its handle; CuPy does not destroy it.

    CuPy before 14 has another call for it, which 14 advises against.
    """
    foreign = getattr(cp.cuda.Stream, "from_external", None)
    stream: Stream = cp.cuda.ExternalStream(handle) if foreign is None else foreign(_Handle(handle))
    return stream
