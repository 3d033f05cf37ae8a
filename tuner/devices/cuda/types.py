"""Protocols for the parts of CuPy that the CUDA device uses, since CuPy has no type information."""

from collections.abc import Sequence
from typing import Any, Protocol


class CudaEvent(Protocol):
    """A point in a stream; with timing, its time can be told from another's."""

    ptr: int

    def record(self, stream: "Stream") -> None:
        """Put the event into a stream."""

    def synchronize(self) -> None:
        """Wait until the device has passed it."""


class Graph(Protocol):
    """Launches captured once and replayed with one call."""

    graph: int
    graphExec: int  # noqa: N815 - CuPy's name

    def launch(self, stream: "Stream") -> None:
        """Replay into a stream."""

    def upload(self, stream: "Stream") -> None:
        """Bring it to the device."""


class Stream(Protocol):
    """A queue of the device."""

    ptr: int

    def __enter__(self) -> object:
        """Make it CuPy's current one."""

    def __exit__(self, *error: object) -> None:
        """Make the one before the current one again."""

    def wait_event(self, event: CudaEvent) -> None:
        """Hold back later work until the event has passed."""

    def begin_capture(self) -> None:
        """Record what follows instead of running it."""

    def end_capture(self) -> Graph:
        """What was recorded, ready to replay."""

    def synchronize(self) -> None:
        """Wait until everything in it is done."""


class Array(Protocol):
    """A device array; ``data`` is what a kernel is given."""

    data: Any
    dtype: Any
    nbytes: int
    ndim: int
    real: Any
    shape: tuple[int, ...]
    size: int

    def __len__(self) -> int:
        """Extent of the first axis."""

    def get(self) -> Any:  # noqa: ANN401 - a NumPy array of whatever dtype
        """A copy on the host."""

    def reshape(self, *shape: int) -> "Array":
        """The same elements in another shape."""

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401 - an array again
        """Part of it."""

    def __setitem__(self, key: Any, value: Any) -> None:  # noqa: ANN401 - whatever NumPy takes
        """Write a part."""


class CudaFunction(Protocol):
    """A ``__global__`` function loaded onto the device."""

    ptr: int

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[object],
        shared_mem: int,
        stream: Stream | None,
        *,
        enable_cooperative_groups: bool = False,
    ) -> None:
        """Put one launch into a stream, None for the current one."""
