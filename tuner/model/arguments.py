"""What is passed to a kernel by value."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scalar:
    """A kernel argument passed by value; ``dtype`` is a NumPy dtype name."""

    dtype: str
    value: int | float


@dataclass(frozen=True)
class StructValue:
    """A struct passed by value.

    Attributes:
        fields: (name, NumPy dtype name) of each, in the order of the struct.
        bytes: the struct, laid out and padded as C does.
    """

    fields: tuple[tuple[str, str], ...]
    bytes: bytes


@dataclass(frozen=True)
class TensorMap:
    """A 128-byte CUtensorMap passed by value: how boxes of a buffer are copied to shared memory.

    The buffer is taken as a contiguous matrix, rows one after another; what a box takes from beyond it is
    zero.

    Attributes:
        buffer: name of the plan's buffer.
        element: NumPy dtype name of an element of the map; it may join elements of the buffer.
        dims: elements along a row, and rows.
        box: elements along a row, and rows, copied at a time.
        promotion_bytes: size to which fetches into the second-level cache are widened; 0 for none.
    """

    buffer: str
    element: str
    dims: tuple[int, int]
    box: tuple[int, int]
    promotion_bytes: int = 0
