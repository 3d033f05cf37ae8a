"""What calls of libraries ask of a modelled GPU: bytes and operations by their dimensions.

The tile, its registers and shared memory, and the efficiency are those of no library in particular; the
numbers are modelled like all of a simulated device.
"""

import math
from dataclasses import dataclass

import numpy as np

from tuner.model.chains import LibraryCall

EFFICIENCY = 0.8
"""Of the arithmetic lanes, at best: a large product of matrices."""

_TILE = 64  # elements of the result along each axis
_THREADS = 128
_REGISTERS = 128
_SHARED_BYTES = 16 * 1024
_WORD = 4


@dataclass(frozen=True)
class LibraryWork:
    """The work of one call.

    Attributes:
        operations: floating-point operations, as papers count them.
        issued: fused operations of lanes of its precision, at the efficiency of a library.
        instructions: thread instructions.
        bytes: device memory moved.
        read_bytes: of which loads.
        tiles: blocks.
        threads: threads of a block.
        registers: of a thread.
        shared_bytes: of a block.
        doubles: its precision is double.
    """

    operations: float
    issued: float
    instructions: float
    bytes: float
    read_bytes: float
    tiles: int
    threads: int = _THREADS
    registers: int = _REGISTERS
    shared_bytes: int = _SHARED_BYTES
    doubles: bool = False


def library_work(call: LibraryCall) -> LibraryWork:
    """The work of a call, by its dimensions."""
    operations, read, written = _counted(call)
    dtype = np.dtype(call.dtype)
    item, is_complex = dtype.itemsize, dtype.kind == "c"
    doubles = item == (16 if is_complex else 8)
    products = 4 if is_complex and call.routine != "fft" else 1  # of real numbers, for one of its own
    words = min(1.0, item / _WORD)  # of a half a half
    issued = operations / 2 * products * words / EFFICIENCY
    tiles = math.ceil(call.m / _TILE) * math.ceil(call.n / _TILE)
    moved, loaded = item * (read + written), float(item * read)
    return LibraryWork(operations, issued, 1.25 * issued, moved, loaded, tiles, doubles=doubles)


def _counted(call: LibraryCall) -> tuple[float, int, int]:
    """Operations, and the elements that are read and written."""
    m, n, k = call.m, call.n, call.k
    if call.routine == "gemm":
        return 2.0 * m * n * k, m * k + k * n + (m * n if call.beta else 0), m * n
    if call.routine == "syrk":
        half = n * (n + 1) // 2
        return 2.0 * half * k, n * k + (half if call.beta else 0), half
    if call.routine == "trsm":
        order = m if call.side == "left" else n
        return float(m * n * order), order * (order + 1) // 2 + m * n, m * n
    return 5.0 * m * n * math.log2(max(2, n)), m * n, m * n
