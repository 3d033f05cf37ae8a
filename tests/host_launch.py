"""One launch of a compiled kernel, in this process or under AddressSanitizer in another."""

import _ctypes
import ctypes
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from host_addresses import runner
from host_compile import HostRunError

Order = Literal["forward", "reverse", "shuffle"]
ORDERS: tuple[Order, ...] = ("forward", "reverse", "shuffle")
Argument = npt.NDArray[Any] | np.generic | int | float
Extent = int | tuple[int, ...]

GUARD_BYTES = 1024
GUARD = 0xFF  # NaN as float32 and float64, -1 as an integer
ALIGNMENT = 256  # what cudaMalloc promises


class _Index(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class _Argument(ctypes.Structure):
    _fields_ = [
        ("value", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("is_pointer", ctypes.c_int),
        ("writable", ctypes.c_int),
        ("extent", ctypes.c_size_t),
    ]


class _Launch(ctypes.Structure):
    _fields_ = [
        ("grid", _Index),
        ("block", _Index),
        ("shared_bytes", ctypes.c_size_t),
        ("order", ctypes.c_int),
        ("seed", ctypes.c_uint64),
        ("removed", ctypes.c_int),
    ]


@dataclass(frozen=True)
class Launch:
    """Blocks, threads of a block, dynamic shared memory, order of threads, a barrier to leave out or -1."""

    grid: Extent
    block: Extent
    shared_bytes: int
    order: Order
    seed: int
    removed: int = -1

    def packed(self) -> _Launch:
        """As the runtime takes it."""
        order = ORDERS.index(self.order)
        grid, block = _Index(*_xyz(self.grid)), _Index(*_xyz(self.block))
        return _Launch(grid, block, self.shared_bytes, order, self.seed, self.removed)


def unload(library: Path) -> None:
    """Takes a library out of this process, if it is there."""
    loaded = _loaded.pop(library, None)
    if loaded is not None:
        _ctypes.dlclose(loaded._handle)


def _load(library: Path) -> ctypes.CDLL:
    if library not in _loaded:
        _loaded[library] = ctypes.CDLL(str(library))
    return _loaded[library]


_loaded: dict[Path, ctypes.CDLL] = {}


@dataclass(frozen=True)
class Function:
    """A compiled instantiation: the library it is in, and its name there."""

    library: Path
    name: str

    def loaded(self) -> Any:
        """The function, in this process; it returns what went wrong, or nothing."""
        function = getattr(_load(self.library), self.name)
        function.restype = ctypes.c_char_p
        return function

    def reached(self) -> set[int]:
        """Numbers of the barriers that launches from this library have come to in this process."""
        flags = (ctypes.c_ubyte * 256).in_dll(_load(self.library), "cuda_host_reached")
        return {number for number, flag in enumerate(flags) if flag}


_turns: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)  # a library runs one launch at a time


def run_here(function: Function, launch: Launch, args: Sequence[Argument]) -> None:
    """Runs a launch in this process.

    Raises:
        HostRunError: the machine found something.
    """
    places = [_placed(arg) if isinstance(arg, np.ndarray) else _scalar(arg) for arg in args]
    pointers = [ctypes.c_void_p(place.ctypes.data) for place in places]
    table = (_Argument * len(args))()
    for i, (arg, place) in enumerate(zip(args, places, strict=True)):
        if isinstance(arg, np.ndarray):
            table[i] = _Argument(ctypes.addressof(pointers[i]), 8, 1, arg.flags.writeable, place.nbytes)
        else:
            table[i] = _Argument(place.ctypes.data, place.itemsize)
    with _turns[function.library]:
        trouble = function.loaded()(ctypes.byref(launch.packed()), table, ctypes.c_size_t(len(args))).decode()
    if trouble:
        raise HostRunError(trouble)
    for i, (arg, place) in enumerate(zip(args, places, strict=True)):
        if isinstance(arg, np.ndarray):
            _check_guards(i, place)
            _take_back(i, arg, place.tobytes())


def run_apart(function: Function, launch: Launch, args: Sequence[Argument], flags: Sequence[str]) -> None:
    """Runs a launch of a unit built with ``flags`` under their sanitizers, in another process.

    Raises:
        HostRunError: the sanitizers or the machine found something.
    """
    given = [
        (arg.tobytes(), True, arg.flags.writeable)
        if isinstance(arg, np.ndarray)
        else (_scalar(arg).tobytes(), False, False)
        for arg in args
    ]
    results = iter(
        runner(tuple(flags)).launch(function.library, function.name, bytes(launch.packed()), given)
    )
    for i, arg in enumerate(args):
        if isinstance(arg, np.ndarray):
            _take_back(i, arg, next(results))


def _xyz(extent: Extent) -> tuple[int, int, int]:
    x, y, z = (*((extent,) if isinstance(extent, int) else extent), 1, 1)[:3]
    return x, y, z


def _scalar(value: np.generic | float) -> npt.NDArray[Any]:
    dtype = (
        value.dtype if isinstance(value, np.generic) else np.int32 if isinstance(value, int) else np.float32
    )
    array = np.array([value], dtype)
    return _placed(array).view(array.dtype)  # a struct may be aligned to more than its words


def _placed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A copy of the bytes, aligned as on a device, with guards before and behind."""
    room = np.full(array.nbytes + 2 * GUARD_BYTES + ALIGNMENT, GUARD, np.uint8)
    skip = -(room.ctypes.data + GUARD_BYTES) % ALIGNMENT + GUARD_BYTES
    room[skip : skip + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
    return room[skip : skip + array.nbytes]


def _check_guards(position: int, place: npt.NDArray[Any]) -> None:
    room = place.base
    if not isinstance(room, np.ndarray):
        raise TypeError("a placed array is a part of its room")
    skip = place.ctypes.data - room.ctypes.data
    if (room[:skip] != GUARD).any() or (room[skip + place.nbytes :] != GUARD).any():
        raise HostRunError(f"argument {position}: written outside of the array")


def _take_back(position: int, array: npt.NDArray[Any], result: bytes) -> None:
    if array.flags.writeable:
        array[...] = np.frombuffer(result, array.dtype).reshape(array.shape)
    elif result != array.tobytes():
        raise HostRunError(f"argument {position}: a read-only array was written")
