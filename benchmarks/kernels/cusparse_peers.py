"""Forms in which cuSPARSE solves batches of tridiagonal systems."""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from answers import Data
from peer import Calls, Peer
from vendor_library import VendorLibrary, address, launched

STRIDED, INTERLEAVED = "cuSPARSE gtsv2StridedBatch", "cuSPARSE gtsvInterleavedBatch"
ONE_SYSTEM = ("gtsv2_nopivot", "gtsv2")
ALGORITHMS = ("Thomas", "LU", "QR")
LETTERS = {"float32": "S", "float64": "D", "complex64": "C"}
_STRIDED_CALLS = ((0, 1), (1, 1), (4, 1), (16, 1), (4, 4), (16, 4), (64, 4), (16, 8), (32, 8), (64, 8))
_USUAL_CALLS = ((0, 1), (1, 1), (4, 4), (16, 4))
_JOINED = tuple(2**k for k in (11, 12, 13, 14, 16))
_JOINED_CALLS = ((0, 1), (1, 1), (16, 4), (32, 8))
_INTERLEAVED_CALLS = ((0, 1), (1, 1), (2, 2), (4, 4), (8, 1))


@dataclass(frozen=True)
class Rows:
    """How systems lie, where it is not as in the arrays that were given.

    Attributes:
        joined: systems that are solved as one longer system, with zeros where they meet.
        padding: numbers between two systems.
        shift_bytes: from one of the arrays to the next, beyond whole allocations.
    """

    joined: int = 1
    padding: int = 0
    shift_bytes: int = 0

    def __str__(self) -> str:
        joined = f", {self.joined} systems joined" if self.joined > 1 else ""
        padded = f", stride N + {self.padding}" if self.padding else ""
        return joined + padded + (f", arrays shifted by {self.shift_bytes} bytes" if self.shift_bytes else "")


class CusparsePeers:
    """The library that CuPy loads, with a handle for each stream; ``failed`` holds what it refused."""

    def __init__(self, cp: Any) -> None:
        cp.cuda.device.get_cusparse_handle()  # CuPy loads the library that goes with its CUDA
        self._cp, self._library = cp, VendorLibrary("libcusparse", (12, 13))
        self._handles: dict[int, ctypes.c_void_p] = {}
        self.failed: dict[str, str] = {}

    @property
    def version(self) -> int:
        """Of the library, as it gives it."""
        number = ctypes.c_int()
        self._library.call("cusparseGetVersion", self._handle(0), ctypes.byref(number))
        return number.value

    def peers(self, data: Data) -> list[Peer]:
        """Every form that this version of the library runs."""
        room = Room(self._cp)
        return [
            *self._strided_forms(data, room),
            *self._one_system_forms(data, room),
            *self._interleaved_forms(data, room),
        ]

    def usual(self, data: Data, *, interleaved: bool) -> list[Peer]:
        """Each routine as it comes, and the strided one in a few graphs; for long systems and other types.

        Args:
            data: the systems.
            interleaved: whether to try the routine of a thread a system, which takes long for few systems.
        """
        room, found = Room(self._cp), []
        for calls in (Calls(*numbers) for numbers in _USUAL_CALLS if max(1, numbers[0]) <= data.batch):
            key = f"{STRIDED}, {calls}"
            found += self._tried(key, lambda c=calls: self._strided(data, room, c, Rows()))
        found += self._one_system_forms(data, room)
        if interleaved:
            shape = (1, data.n, data.batch)
            work = [self._cp.zeros(shape, data.output.dtype) for _ in range(4)]
            for algorithm, name in enumerate(ALGORITHMS):
                key = f"{INTERLEAVED}, {name}"
                found += self._tried(
                    key, lambda a=algorithm: self._interleaved(data, room, (a, Calls()), work)
                )
        return found

    def _handle(self, stream: int) -> ctypes.c_void_p:
        if stream not in self._handles:
            handle = ctypes.c_void_p()
            self._library.call("cusparseCreate", ctypes.byref(handle))
            self._library.call("cusparseSetStream", handle, ctypes.c_void_p(stream))
            self._handles[stream] = handle
        return self._handles[stream]

    def _strided_forms(self, data: Data, room: "Room") -> Iterator[Peer]:
        """One call, chunks that stay in the L2, systems joined to longer ones and in other places."""
        for calls in (Calls(*numbers) for numbers in _STRIDED_CALLS):
            yield from self._tried(
                f"{STRIDED}, {calls}", lambda c=calls: self._strided(data, room, c, Rows())
            )
        joined = [Rows(joined=length // data.n) for length in _JOINED if length > data.n]
        for rows, calls in product(joined, (Calls(*numbers) for numbers in _JOINED_CALLS)):
            key = f"{STRIDED}, {calls}{rows}"
            yield from self._tried(key, lambda c=calls, r=rows: self._strided(data, room, c, r))
        for rows in (Rows(padding=4), Rows(padding=32), Rows(shift_bytes=1024), Rows(shift_bytes=65536)):
            yield from self._tried(f"{STRIDED}{rows}", lambda r=rows: self._strided(data, room, Calls(), r))

    def _strided(self, data: Data, room: "Room", calls: Calls, rows: Rows) -> Peer:
        """The right-hand sides are overwritten by the solution."""
        cp, n = self._cp, data.n * rows.joined
        stride, count = n + rows.padding, data.batch // rows.joined // max(1, calls.chunks)
        *matrix, d = data.inputs
        given = not rows.padding and not rows.shift_bytes
        arrays = [*matrix, data.output] if given else _placed(cp, data.inputs, rows)
        x, size = arrays[3], ctypes.c_size_t()
        routine = f"cusparse{_letter(data)}gtsv2StridedBatch"
        addresses = [address(array) for array in arrays]
        sizes = (count, stride, ctypes.byref(size))
        self._library.call(f"{routine}_bufferSizeExt", self._handle(0), n, *addresses, *sizes)
        work = room.pieces(size.value, calls.streams, 4 * rows.shift_bytes)

        def launch(chunk: int, stream: int) -> None:
            at = [address(array, chunk * count * stride * x.itemsize) for array in arrays]
            piece = work[chunk % calls.streams]
            self._library.call(routine, self._handle(stream), n, *at, count, stride, piece)

        run = launched(cp, launch, calls)
        unknowns = x[:, : data.n]
        return Peer(
            STRIDED, f"{calls}{rows}", run, lambda: unknowns, lambda: cp.copyto(unknowns, d), keep=room
        )

    def _one_system_forms(self, data: Data, room: "Room") -> Iterator[Peer]:
        """The whole batch as one system, with zeros where its parts meet."""
        for name in ONE_SYSTEM:
            yield from self._tried(f"cuSPARSE {name}", lambda name=name: self._one_system(data, room, name))

    def _one_system(self, data: Data, room: "Room", name: str) -> Peer:
        """The right-hand side is overwritten by the solution."""
        cp, x = self._cp, data.output
        *matrix, d = data.inputs
        run = self.solver(room, name, matrix, x.reshape(1, -1))
        form = "the batch as one system"
        return Peer(f"cuSPARSE {name}", form, run, lambda: x, lambda: cp.copyto(x, d), keep=room)

    def solver(self, room: "Room", name: str, matrix: Sequence[Any], right: Any) -> Callable[[], None]:
        """What solves the batch as one system, by a routine of ``ONE_SYSTEM``.

        Args:
            room: for its work space.
            name: of the routine.
            matrix: below, on and above the diagonal.
            right: right sides of shape (sides, rows of the batch), overwritten by the solutions.
        """
        (sides, n), size = right.shape, ctypes.c_size_t()
        arguments = (self._handle(0), n, sides, *map(address, (*matrix, right)), n)
        routine = f"cusparse{LETTERS[right.dtype.name]}{name}"
        self._library.call(f"{routine}_bufferSizeExt", *arguments, ctypes.byref(size))
        (work,) = room.pieces(size.value, 1)

        def run() -> None:
            self._library.call(routine, *arguments, work)

        return run

    def _interleaved_forms(self, data: Data, room: "Room") -> Iterator[Peer]:
        """Every algorithm, in one call and in chunks that stay in the L2."""
        padded = [(Calls(), 32), (Calls(), 160)]
        for calls, padding in (*((Calls(*numbers), 0) for numbers in _INTERLEAVED_CALLS), *padded):
            chunks = max(1, calls.chunks)
            shape = (chunks, data.n, data.batch // chunks + padding)
            work = [self._cp.zeros(shape, data.output.dtype) for _ in range(4)]
            work[1][...] = 1  # what is added are systems of their own
            for algorithm, name in enumerate(ALGORITHMS):
                form = f"{INTERLEAVED}, {name}, {calls}"
                yield from self._tried(
                    form, lambda a=algorithm, c=calls, w=work: self._interleaved(data, room, (a, c), w)
                )

    def _interleaved(self, data: Data, room: "Room", way: tuple[int, Calls], work: list[Any]) -> Peer:
        """Rows of a system lie a chunk apart; destroys its arrays. The conversion is not counted."""
        cp, n, batch, (algorithm, calls) = self._cp, data.n, data.batch, way
        chunks, _, count = work[0].shape
        given, added = batch // chunks, count - batch // chunks
        size = ctypes.c_size_t()
        routine = f"cusparse{_letter(data)}gtsvInterleavedBatch"
        addresses = [address(array) for array in work]
        sizes = (count, ctypes.byref(size))
        self._library.call(f"{routine}_bufferSizeExt", self._handle(0), algorithm, n, *addresses, *sizes)
        pieces = room.pieces(size.value, calls.streams)

        def launch(chunk: int, stream: int) -> None:
            at = [address(array, chunk * count * n * work[0].itemsize) for array in work]
            piece = pieces[chunk % calls.streams]
            self._library.call(routine, self._handle(stream), algorithm, n, *at, count, piece)

        def interleave() -> None:
            for source, target in zip(data.inputs, work, strict=True):
                cp.copyto(target[:, :, :given], source.reshape(chunks, given, n).transpose(0, 2, 1))

        def rows() -> Any:
            return work[3][:, :, :given].transpose(0, 2, 1).reshape(batch, n)

        form = f"{ALGORITHMS[algorithm]}, {calls}" + (f", {added} systems added" if added else "")
        run = launched(cp, launch, calls)
        return Peer(INTERLEAVED, form, run, rows, interleave, keep=room)

    def _tried(self, key: str, make: Callable[[], Peer]) -> Iterator[Peer]:
        try:
            yield make()
        except (RuntimeError, MemoryError) as error:
            self.failed[key] = str(error)


class Room:
    """Work space that the forms of one problem share: they run one after another."""

    def __init__(self, cp: Any) -> None:
        self._cp, self._arrays = cp, [cp.empty(512, cp.uint8)]

    def pieces(self, piece_bytes: int, streams: int, first_bytes: int = 0) -> list[ctypes.c_void_p]:
        """A piece for each stream; what was handed out before stays valid."""
        aligned = -(-piece_bytes // 512) * 512  # as an allocation is
        if self._arrays[-1].nbytes < first_bytes + streams * aligned:
            self._arrays.append(self._cp.empty(first_bytes + streams * aligned, self._cp.uint8))
        return [address(self._arrays[-1], first_bytes + k * aligned) for k in range(streams)]


def _letter(data: Data) -> str:
    """Of the routines for the type of the numbers."""
    return LETTERS[data.output.dtype.name]


def _placed(cp: Any, sources: tuple[Any, ...], rows: Rows) -> list[Any]:
    """Copies of arrays, elsewhere."""
    placed = []
    for k, source in enumerate(sources):
        batch, n = source.shape
        skipped = k * rows.shift_bytes // source.itemsize
        flat = cp.ones(skipped + batch * (n + rows.padding), source.dtype)
        placed.append(flat[skipped:].reshape(batch, n + rows.padding))
        placed[-1][:, :n] = source
    return placed
