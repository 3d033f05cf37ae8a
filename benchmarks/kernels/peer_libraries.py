"""Forms of NVIDIA's libraries that kernels are compared with: cuFFT, cuSPARSE, and scans of rows by CUB.

CUB is compiled with nvcc, one library per length of row; ``peers.py --cub-build FOLDER`` keeps them.
"""

import ctypes
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from sweep import Data

# --- a form of a peer, ready to time --------------------------------------------------------------


@dataclass(frozen=True)
class Peer:
    """One contender.

    Attributes:
        name: of the routine, as tables name it. The fastest form of each name is reported.
        form: the settings that set this form apart from the others of the same name.
        run: solves the whole batch once, on the current stream.
        answer: where the solution is afterwards, in the layout of ``Data.output``.
        prepare: restores what a run destroys; not timed.
        keep: what has to live as long as this.
    """

    name: str
    form: str
    run: Callable[[], None]
    answer: Callable[[], Any]
    prepare: Callable[[], None] | None = None
    keep: Any = None

    @property
    def key(self) -> str:
        """Name and form."""
        return f"{self.name}, {self.form}" if self.form else self.name


@dataclass(frozen=True)
class Calls:
    """How the batch is dealt to calls.

    Attributes:
        chunks: calls in one graph; 0 for a plain call of the whole batch.
        streams: chains of the graph.
    """

    chunks: int = 0
    streams: int = 1

    def __str__(self) -> str:
        if not self.chunks:
            return "one call"
        return f"{self.chunks} calls in a graph, {self.streams} streams"


# --- C functions: CuPy's bindings lack captures and settings --------------------------------------


class VendorLibrary:
    """A library: the copy that this process has loaded already, else the system's, else a Python package's.

    Raises:
        OSError: it is nowhere.
    """

    def __init__(self, stem: str, versions: Sequence[int]) -> None:
        maps = Path("/proc/self/maps").read_text().splitlines()
        loaded = sorted({line.split()[-1] for line in maps if f"/{stem}.so" in line})
        self._library: ctypes.CDLL | None = None
        packaged = [
            str(path)
            for folder in sys.path
            for path in sorted(Path(folder).glob(f"nvidia/*/lib/{stem}.so.*"))
        ]
        for name in [*loaded, *(f"{stem}.so.{version}" for version in versions), *packaged]:
            with suppress(OSError):
                self._library = ctypes.CDLL(name)
                break
        if self._library is None:
            raise OSError(f"{stem} was not found")

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            RuntimeError: it is not there, or answers anything but 0.
        """
        function = getattr(self._library, name, None)
        if function is None:
            raise RuntimeError(f"{name} is not in this version")
        status = function(*arguments)
        if status:
            raise RuntimeError(f"{name} answers {status}")


def address(array: Any, offset_bytes: int = 0) -> ctypes.c_void_p:
    """Of a CuPy array's data."""
    return ctypes.c_void_p(array.data.ptr + offset_bytes)


def launched(cp: Any, launch: Callable[[int, int], None], calls: Calls) -> Callable[[], None]:
    """What runs all chunks: a call on the default stream, or a graph of calls that begin and end together.

    ``launch`` is given the number of a chunk and the stream to use.
    """
    if not calls.chunks:
        return lambda: launch(0, 0)
    chains = [cp.cuda.Stream(non_blocking=True) for _ in range(calls.streams)]
    events = [cp.cuda.Event(disable_timing=True) for _ in chains]
    first = chains[0]
    first.begin_capture()
    try:
        events[0].record(first)
        for chain in chains[1:]:
            chain.wait_event(events[0])
        for chunk in range(calls.chunks):
            launch(chunk, chains[chunk % calls.streams].ptr)
        for chain, event in zip(chains[1:], events[1:], strict=True):
            event.record(chain)
            first.wait_event(event)
    except RuntimeError:
        with suppress(RuntimeError):
            first.end_capture()  # a call that cannot be captured spoils the capture, and no more
        raise
    graph = first.end_capture()
    graph.upload()
    return graph.launch  # type: ignore[no-any-return]


# --- cuFFT ----------------------------------------------------------------------------------------


NAME = "cuFFT"
_C2C, _FORWARD = 0x29, -1
_PATIENT_JIT = 1  # NVFFT_PLAN_PROPERTY_INT64_PATIENT_JIT
_POINT = 8
_SHORT = 2**13  # up to here a transform takes one pass over memory, and chunks have little to gain
_SHORT_CALLS = ((1, 1), (2, 2), (4, 4))
_CALLS = (
    *((1, 1), (2, 1), (4, 1), (8, 1)),
    *((2, 2), (4, 2), (8, 2), (16, 2), (32, 2), (64, 2)),
    *((16, 3), (32, 3), (4, 4), (8, 4), (16, 4), (32, 4)),
)


@dataclass(frozen=True)
class Settings:
    """How a plan is made.

    Attributes:
        own_area: the caller gives the work area; otherwise the plan takes one.
        in_place: output over input.
        layout: strides are said, though they are the default ones.
        patient: the library may compile kernels for the plan.
    """

    own_area: bool = False
    in_place: bool = False
    layout: bool = False
    patient: bool = False

    def __str__(self) -> str:
        words = {
            "caller's work area": self.own_area,
            "in place": self.in_place,
            "advanced layout": self.layout,
            "patient JIT": self.patient,
        }
        return ", ".join(word for word, chosen in words.items() if chosen) or "default plan"


_SETTINGS = (
    Settings(),
    Settings(own_area=True),
    Settings(in_place=True),
    Settings(layout=True),
    Settings(patient=True),
    Settings(patient=True, in_place=True),
)


class CufftPeers:
    """The library that CuPy loads, by its C functions; ``failed`` holds what it refused."""

    def __init__(self, cp: Any) -> None:
        from cupy.cuda import cufft  # noqa: PLC0415 - loads the library that goes with CuPy's CUDA

        cufft.getVersion()
        self._cp, self._library = cp, VendorLibrary("libcufft", (12, 11))
        self.failed: dict[str, str] = {}

    @property
    def version(self) -> int:
        """Of the library, as it gives it."""
        number = ctypes.c_int()
        self._library.call("cufftGetVersion", ctypes.byref(number))
        return number.value

    def peers(self, data: Data) -> list[Peer]:
        """Every form that this version of the library runs."""
        forms = [(settings, Calls()) for settings in _SETTINGS]
        for numbers in _SHORT_CALLS if data.n <= _SHORT else _CALLS:
            if numbers[0] <= data.batch:
                ways = (Settings(), Settings(patient=True), Settings(in_place=True))
                forms += [(settings, Calls(*numbers)) for settings in ways]
        peers = []
        for settings, calls in forms:
            try:
                peers.append(self._peer(data, settings, calls))
            except RuntimeError as error:  # noqa: PERF203 - each form may be refused
                self.failed[f"{NAME}, {settings}, {calls}"] = str(error)
        return peers

    def _peer(self, data: Data, settings: Settings, calls: Calls) -> Peer:
        cp, (x,), y = self._cp, data.inputs, data.output
        source = y if settings.in_place else x
        count = data.batch // max(1, calls.chunks)
        plans = [_Plan(self._library, cp, (data.n, count), settings) for _ in range(calls.streams)]

        def launch(chunk: int, stream: int) -> None:
            plan = plans[chunk % calls.streams]
            if calls.chunks:
                plan.use(stream)
            plan.forward(source, y, chunk * count * data.n * _POINT)

        prepare = (lambda: cp.copyto(y, x)) if settings.in_place else None
        run = launched(cp, launch, calls)
        form = f"{settings}, {calls}"
        return Peer(NAME, form, run, lambda: y, prepare, keep=plans)


class _Plan:
    """A plan of ``shape[1]`` rows of ``shape[0]`` points, side by side; it lives as long as the object."""

    def __init__(self, library: VendorLibrary, cp: Any, shape: tuple[int, int], settings: Settings) -> None:
        self._library, self._handle, self._area = library, ctypes.c_int(), None
        library.call("cufftCreate", ctypes.byref(self._handle))
        if settings.patient:
            library.call("cufftSetPlanPropertyInt64", self._handle, _PATIENT_JIT, ctypes.c_longlong(1))
        if settings.own_area:
            library.call("cufftSetAutoAllocation", self._handle, 0)
        length, size = (ctypes.c_longlong * 1)(shape[0]), ctypes.c_size_t()
        sides = (length if settings.layout else None, ctypes.c_longlong(1), ctypes.c_longlong(shape[0]))
        last = (_C2C, ctypes.c_longlong(shape[1]), ctypes.byref(size))
        library.call("cufftMakePlanMany64", self._handle, 1, length, *sides, *sides, *last)
        if settings.own_area:
            self._area = cp.empty(max(size.value, 1), cp.uint8)
            library.call("cufftSetWorkArea", self._handle, address(self._area))

    def __del__(self) -> None:
        self._library.call("cufftDestroy", self._handle)

    def use(self, stream: int) -> None:
        """Run there from now on."""
        self._library.call("cufftSetStream", self._handle, ctypes.c_void_p(stream))

    def forward(self, x: Any, y: Any, offset_bytes: int) -> None:
        """Transform the plan's batch that begins so far into the arrays."""
        arrays = address(x, offset_bytes), address(y, offset_bytes)
        self._library.call("cufftExecC2C", self._handle, *arrays, _FORWARD)


# --- cuSPARSE -------------------------------------------------------------------------------------


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


# --- CUB ------------------------------------------------------------------------------------------

HERE = Path(__file__).parent
ROWS, DEVICE = HERE / "cub_rows.cuh", HERE / "cub_device.cuh"
SIZES = tuple(2**k for k in range(6, 14))
_STATIC_SHARED_BYTES = 48 * 1024
_LOADS = ("DIRECT", "VECTORIZE", "TRANSPOSE", "WARP_TRANSPOSE")
_SCANS = ("WARP_SCANS", "RAKING", "RAKING_MEMOIZE")


@dataclass(frozen=True)
class Form:
    """One instantiation.

    Attributes:
        name: of the part of CUB.
        form: its settings, for tables.
        function: of the header, with its template arguments.
        header: that declares it.
    """

    name: str
    form: str
    function: str
    header: Path


def forms(n: int, cub_version: int) -> list[Form]:
    """All that are tried for rows of ``n`` elements, a power of two of 64 or more."""
    found = [*_warp_rows(n), *_warp_items(n), *_block_rows(n), *_chunks(n), *_by_key(n)]
    if cub_version >= 300500:
        found += [*_by_key_tuned(n), *_segmented(n)]
    return list(dict.fromkeys(found))


def _warp_rows(n: int) -> Iterator[Form]:
    """Rows of a warp or of a part of one, in vectors, neighbouring lanes side by side."""
    for width, vector in ((4, "float4"), (2, "float2")):
        for lanes in (4, 8, 16, 32):
            held = n // lanes
            if held < width or held > 64 or (width == 2 and held > 4):
                continue
            for rows in (rows for rows in (1, 2, 4) if rows * held <= 32 or rows == 1):
                for threads in (64, 128, 256, 512):
                    form = f"{lanes} lanes a row, {vector}, {rows} rows a lane, {threads} threads"
                    function = f"launch_warp_rows<{vector}, {n}, {lanes}, {rows}, {threads}"
                    yield Form("cub.WarpScan", form, f"{function}>", ROWS)
                    if width == 4 and threads == 256 and rows == 2:
                        yield Form("cub.WarpScan", f"{form}, persistent", f"{function}, 8>", ROWS)


def _warp_items(n: int) -> Iterator[Form]:
    """Rows of a warp or of a part of one by ``WarpLoad``, a thread's elements neighbours in memory."""
    for lanes in (8, 16, 32):
        if not 2 <= n // lanes <= 32:
            continue
        for way in ("TRANSPOSE", "VECTORIZE"):
            for threads in (128, 256):
                if way == "TRANSPOSE" and 4 * threads * (n // lanes) > _STATIC_SHARED_BYTES:
                    continue
                arguments = f"{n}, {lanes}, {threads}, cub::WARP_LOAD_{way}, cub::WARP_STORE_{way}"
                yield Form(
                    "cub.WarpScan",
                    f"{lanes} lanes a row, {n // lanes} neighbours a lane, {way.lower()}, {threads} threads",
                    f"launch_warp_items<{arguments}>",
                    ROWS,
                )


def _block_rows(n: int) -> Iterator[Form]:
    """One ``BlockScan`` for a row."""
    for threads in (32, 64, 128, 256, 512, 1024):
        if not 1 <= n // threads <= 32:
            continue
        for way in _LOADS:
            if n // threads == 1 and way != "DIRECT":
                continue
            for scan in _SCANS if way in ("VECTORIZE", "WARP_TRANSPOSE") else _SCANS[:1]:
                arguments = (
                    f"{n}, {threads}, cub::BLOCK_LOAD_{way}, cub::BLOCK_STORE_{way}, cub::BLOCK_SCAN_{scan}"
                )
                form = f"{threads} threads, {n // threads} per thread, {way.lower()}, {scan.lower()}"
                yield Form("cub.BlockScan", form, f"launch_block_row<{arguments}>", ROWS)


def _chunks(n: int) -> Iterator[Form]:
    """Rows of a block in chunks of float4: by ``BlockScan`` with a carry, by warps that exchange totals."""
    for threads in (32, 64, 128, 256, 512, 1024):
        if not 1 <= n // (4 * threads) <= 16:
            continue
        for blocks in (1, min(32, 1024 // threads), min(32, 2048 // threads)):
            form = f"{threads} threads, chunks of float4, {blocks} blocks"
            for scan in _SCANS[:2]:
                function = f"launch_block_chunks<{n}, {threads}, {blocks}, cub::BLOCK_SCAN_{scan}>"
                yield Form("cub.BlockScan", f"{form}, {scan.lower()}", function, ROWS)
            if threads > 32:
                function = f"launch_warps_of_row<{n}, {threads}, {blocks}>"
                yield Form("cub.WarpScan", f"{form}, one barrier", function, ROWS)


def _by_key(n: int) -> Iterator[Form]:
    """The whole batch by one segmented scan; the row's number by a shift is the key."""
    log, name = n.bit_length() - 1, "cub.DeviceScan by key"
    for key, width in (("unsigned", 32), ("unsigned short", 16), ("unsigned char", 8)):
        yield Form(name, f"keys of {width} bits by a shift", f"by_key<{log}, {key}>", DEVICE)
    yield Form(name, "index, row starts by a mask", f"by_index<{log}>", DEVICE)


def _by_key_tuned(n: int) -> Iterator[Form]:
    """The same with other tunings; the default for keys of 16 bits is 128 threads with 22 elements each."""
    log = n.bit_length() - 1
    for threads, items in ((128, 12), (128, 16), (128, 19), (128, 24), (192, 16), (256, 11), (256, 16)):
        for delay, latency in ((312, 865), (0, 865)):
            yield Form(
                "cub.DeviceScan by key",
                f"keys of 16 bits by a shift, {threads} threads, {items} per thread, delay {delay} ns",
                f"by_key_tuned<{log}, {threads}, {items}, {delay}, {latency}>",
                DEVICE,
            )


def _segmented(n: int) -> Iterator[Form]:
    """The whole batch by ``DeviceSegmentedScan``, as it comes and with other tunings."""
    log, name = n.bit_length() - 1, "cub.DeviceSegmentedScan"
    yield Form(name, "default", f"segmented<{log}>", DEVICE)
    one_row = [(threads, n // threads) for threads in (32, 64, 128, 256, 512) if 1 <= n // threads <= 32]
    for threads, items in (*one_row, (128, 8), (128, 16)):
        segments = max(1, threads * items // n)
        form = f"{threads} threads, {items} per thread, {segments} rows a block"
        if segments == 1 or (threads, items) not in one_row:
            way = "cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::BLOCK_STORE_WARP_TRANSPOSE"
            function = f"segmented_tuned<{log}, {threads}, {items}, {way}, {segments}>"
            yield Form(name, form, function, DEVICE)


class CubPeers:
    """Compiles the forms of several lengths in the background, and hands them out ready to time."""

    def __init__(self, cp: Any, sizes: Sequence[int], folder: Path) -> None:
        self._cp = cp
        self.version, self._builds = build(sizes, folder, int(cp.cuda.Device().compute_capability))

    def peers(self, data: Data) -> list[Peer]:
        """Every form for the rows of ``data``."""
        library, listed = self._builds[data.n].result()
        return [self._peer(data, form, getattr(library, f"form_{k}")) for k, form in enumerate(listed)]

    def _peer(self, data: Data, form: Form, function: Any) -> Peer:
        cp, batch = self._cp, data.batch
        x, y = (ctypes.c_void_p(array.data.ptr) for array in (*data.inputs, data.output))
        stream = ctypes.c_void_p(cp.cuda.get_current_stream().ptr)
        if form.header == ROWS:
            run, room = _checked(function, x, y, batch, stream), None
        else:
            size = ctypes.c_size_t(0)
            _checked(function, None, ctypes.byref(size), x, y, batch, stream)()
            room = cp.empty(max(size.value, 1), cp.uint8)
            address = ctypes.c_void_p(room.data.ptr)
            run = _checked(function, address, ctypes.byref(size), x, y, batch, stream)
        return Peer(form.name, form.form, run, lambda: data.output, keep=room)


def _checked(function: Any, *arguments: Any) -> Callable[[], None]:
    def run() -> None:
        status = function(*arguments)
        if status:
            raise RuntimeError(f"{function.__name__} answers CUDA error {status}")

    return run


def build(
    sizes: Sequence[int], folder: Path, architecture: int
) -> "tuple[int, dict[int, Future[tuple[ctypes.CDLL, list[Form]]]]]":
    """CUB's version, and libraries and their forms by length, being compiled.

    Raises:
        OSError: there is no nvcc.
        subprocess.CalledProcessError: it fails.
    """
    flags = [f"-arch=sm_{architecture}", "-O3", "-std=c++17"]
    version = cub_version(flags)
    folder.mkdir(parents=True, exist_ok=True)
    pool = ThreadPoolExecutor(os.cpu_count())

    def one(n: int) -> tuple[ctypes.CDLL, list[Form]]:
        listed = forms(n, version)
        return ctypes.CDLL(str(_compiled(listed, version, flags, folder / f"cub-{n}"))), listed

    builds = {n: pool.submit(one, n) for n in sizes}
    pool.shutdown(wait=False)
    return version, builds


def cub_version(flags: Sequence[str]) -> int:
    """Of the headers that nvcc finds, e.g. 300500 for 3.5.0."""
    answer = subprocess.run(
        ["nvcc", *flags, "-E", "-x", "cu", "-"],
        input="#include <cub/version.cuh>\nCUB_VERSION\n",
        capture_output=True,
        text=True,
        check=True,
    )
    return int(answer.stdout.split()[-1])


def _compiled(listed: Sequence[Form], version: int, flags: Sequence[str], stem: Path) -> Path:
    """The library of some forms; one that was compiled from the same text is taken again."""
    text = "".join(f"#include <{header.name}>\n" for header in (ROWS, DEVICE))
    for k, form in enumerate(listed):
        row = "const float* x, float* y, int batch, cudaStream_t stream", "x, y, batch, stream"
        room = "void* room, size_t* bytes, ", "room, bytes, "
        declared, given = row if form.header == ROWS else (room[0] + row[0], room[1] + row[1])
        text += f'extern "C" int form_{k}({declared}) {{ return {form.function}({given}); }}\n'
    hashed = "".join([text, ROWS.read_text(), DEVICE.read_text(), flags[0], str(version)])
    stem = stem.with_name(f"{stem.name}-{hashlib.sha256(hashed.encode()).hexdigest()[:16]}")
    source, library = stem.with_suffix(".cu"), stem.with_suffix(".so")
    if not library.exists():
        source.write_text(text)
        partial = stem.with_suffix(".part")
        subprocess.run(
            ["nvcc", *flags, f"-I{HERE}", "-shared", "-Xcompiler", "-fPIC", "-o", str(partial), str(source)],
            check=True,
        )
        partial.rename(library)
    return library
