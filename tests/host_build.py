"""Runs CUDA kernels on the host, so that their numerics are tested where there is no GPU.

A kernel's source is compiled by g++ behind ``tests/host/cuda_host.h``; the threads of a block are fibres
that change only at barriers and shuffles, in an order the test chooses. Only the tests use this.
"""

import ctypes
import functools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from host_addresses import runner
from host_compile import ADDRESSES, CHECKED, COMPILER, FLAGS, HostRunError, compile_unit, runtime, with_lines

from tuner.model import Plan, Scalar, Source, TensorMap

__all__ = ["ADDRESSES", "CHECKED", "COMPILER", "FLAGS", "HostRunError"]

Order = Literal["forward", "reverse", "shuffle"]
ORDERS: tuple[Order, ...] = ("forward", "reverse", "shuffle")
Argument = npt.NDArray[Any] | np.generic | int | float
Extent = int | tuple[int, ...]

GUARD_BYTES = 1024
GUARD = 0xFF  # NaN as float32 and float64, -1 as an integer
ALIGNMENT = 256  # what cudaMalloc promises
JOBS = len(os.sched_getaffinity(0))  # compilations at a time
ENTRIES_PER_UNIT = 8  # instantiations that share the price of reading the headers


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
    ]


def read_source(path: Path, headers: Sequence[Path] = ()) -> Source:
    """The source at ``path`` with every ``*.cuh`` beside it and in the ``headers`` folders."""
    found = {
        file.name: file.read_text() for folder in (*headers, path.parent) for file in folder.glob("*.cuh")
    }
    return Source(str(path), path.read_text(), tuple(sorted(found.items())))


def build(
    source: Source, entries: Sequence[str], options: Sequence[str] = (), flags: Sequence[str] = FLAGS
) -> None:
    """Compiles instantiations of a source ahead, several to a unit; those compiled before cost nothing.

    Args:
        source: code and headers.
        entries: name expressions of ``__global__`` functions.
        options: NVRTC options; the ``-D`` among them are passed on.
        flags: options of g++, e.g. with ``-fsanitize=...``.

    Raises:
        HostRunError: g++ does not accept the code; the message is g++'s.
    """
    wanted = [e for e in dict.fromkeys(entries) if _key(source, e, options, flags) not in _functions]
    units = [wanted[i : i + ENTRIES_PER_UNIT] for i in range(0, len(wanted), ENTRIES_PER_UNIT)]
    if units:
        runtime(tuple(flags))  # once, before the threads ask for it
    with ThreadPoolExecutor(JOBS) as pool:
        libraries = list(pool.map(lambda unit: compile_unit(source, unit, options, flags), units))
    for unit, library in zip(units, libraries, strict=True):
        for i, entry in enumerate(unit):
            _functions[_key(source, entry, options, flags)] = _Function(library, f"launch_{i}")


def run(  # noqa: PLR0917 - a launch, in the order CUDA gives it
    source: Source,
    entry: str,
    grid: Extent,
    block: Extent,
    shared_bytes: int,
    args: Sequence[Argument],
    *,
    options: Sequence[str] = (),
    flags: Sequence[str] = FLAGS,
    order: Order = "forward",
    seed: int = 0,
) -> None:
    """Runs one launch; arrays are read and written in place, as if they lay on the device.

    Args:
        source: code and headers.
        entry: name expression, e.g. ``scan_lf<64, 4, 32>``.
        grid: blocks along x, y, z.
        block: threads along x, y, z.
        shared_bytes: dynamic shared memory.
        args: the kernel's arguments; a Python int is passed as int32, a float as float32. An array that is
            not writeable must come back unchanged.
        options: NVRTC options.
        flags: options of g++.
        order: how warps and lanes take turns; in ``shuffle``, warps also change places wherever lanes meet.
        seed: of the order ``shuffle``.

    Raises:
        HostRunError: the code does not compile, or breaks a rule of the machine.
    """
    build(source, [entry], options, flags)
    launch = _Launch(_Index(*_xyz(grid)), _Index(*_xyz(block)), shared_bytes, ORDERS.index(order), seed)
    function = _functions[_key(source, entry, options, flags)]
    try:
        if "-fsanitize=address,undefined" in flags:
            _run_apart(function, launch, args, flags)
        else:
            _run_here(function, launch, args)
    except HostRunError as error:
        message = with_lines(str(error), function.library, source)
        raise HostRunError(f"{source.path}, {entry}: {message}") from None


def run_on_host(  # noqa: PLR0917 - a launch, in the order CUDA gives it
    source_path: Path,
    entry: str,
    grid: Extent,
    block: Extent,
    shared_bytes: int,
    args: Sequence[Argument],
    *,
    headers: Sequence[Path] = (),
    options: Sequence[str] = (),
    order: Order = "forward",
    seed: int = 0,
) -> None:
    """``run`` for a source file; ``headers`` are folders of ``*.cuh`` beside its own."""
    source = read_source(source_path, headers)
    run(source, entry, grid, block, shared_bytes, args, options=options, order=order, seed=seed)


def build_plans(plans: Sequence[Plan], flags: Sequence[str] = FLAGS) -> None:
    """Compiles every stage of the plans ahead, as many together as share source and options."""
    groups: dict[tuple[Source, tuple[str, ...]], list[str]] = {}
    for stage in (stage for plan in plans for stage in plan.stages):
        groups.setdefault((stage.source, stage.options), []).append(stage.entry)
    for (source, options), entries in groups.items():
        build(source, entries, options, flags)


def run_plan(
    plan: Plan,
    arrays: Mapping[str, npt.NDArray[Any]],
    *,
    flags: Sequence[str] = FLAGS,
    order: Order = "forward",
    seed: int = 0,
) -> None:
    """Runs the stages of a plan one after another on ``arrays`` (one for each of its buffers, by name).

    Raises:
        HostRunError: as ``run``; or a stage takes a tensor map, which only a GPU reads.
    """
    for stage in plan.stages:
        args: list[Argument] = []
        for argument in stage.arguments:
            if isinstance(argument, TensorMap):
                raise HostRunError(f"{stage.name}: only a GPU reads tensor maps")
            if isinstance(argument, Scalar):
                args.append(np.dtype(argument.dtype).type(argument.value))
            else:
                args.append(arrays[argument])
        run(
            stage.source,
            stage.entry,
            stage.grid,
            stage.block,
            stage.shared_bytes,
            args,
            options=stage.options,
            flags=flags,
            order=order,
            seed=seed,
        )


@dataclass(frozen=True)
class _Function:
    """A compiled instantiation."""

    library: Path
    name: str

    def loaded(self) -> Any:
        """The function, in this process; it returns what went wrong, or nothing."""
        function = getattr(_load(self.library), self.name)
        function.restype = ctypes.c_char_p
        return function


_functions: dict[str, _Function] = {}  # compiled for this session, by content
_load = functools.cache(ctypes.CDLL)


def _run_here(function: _Function, launch: _Launch, args: Sequence[Argument]) -> None:
    places = [_placed(arg) if isinstance(arg, np.ndarray) else _scalar(arg) for arg in args]
    pointers = [ctypes.c_void_p(place.ctypes.data) for place in places]
    table = (_Argument * len(args))()
    for i, (arg, place) in enumerate(zip(args, places, strict=True)):
        if isinstance(arg, np.ndarray):
            table[i] = _Argument(ctypes.addressof(pointers[i]), 8, 1, arg.flags.writeable, place.nbytes)
        else:
            table[i] = _Argument(place.ctypes.data, place.itemsize)
    trouble = function.loaded()(ctypes.byref(launch), table, ctypes.c_size_t(len(args))).decode()
    if trouble:
        raise HostRunError(trouble)
    for i, (arg, place) in enumerate(zip(args, places, strict=True)):
        if isinstance(arg, np.ndarray):
            _check_guards(i, place)
            _take_back(i, arg, place.tobytes())


def _run_apart(function: _Function, launch: _Launch, args: Sequence[Argument], flags: Sequence[str]) -> None:
    given = [
        (arg.tobytes(), True, arg.flags.writeable)
        if isinstance(arg, np.ndarray)
        else (_scalar(arg).tobytes(), False, False)
        for arg in args
    ]
    results = iter(runner(tuple(flags)).launch(function.library, function.name, bytes(launch), given))
    for i, arg in enumerate(args):
        if isinstance(arg, np.ndarray):
            _take_back(i, arg, next(results))


def _key(source: Source, entry: str, options: Sequence[str], flags: Sequence[str]) -> str:
    return "\0".join((source.sha256, entry, *options, "", *flags))


def _xyz(extent: Extent) -> tuple[int, int, int]:
    x, y, z = (*((extent,) if isinstance(extent, int) else extent), 1, 1)[:3]
    return x, y, z


def _scalar(value: np.generic | float) -> npt.NDArray[Any]:
    if isinstance(value, np.generic):
        return np.array([value])
    return np.array([value], np.int32 if isinstance(value, int) else np.float32)


def _placed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A copy of the bytes, aligned as on a device, with guards before and behind."""
    room = np.full(array.nbytes + 2 * GUARD_BYTES + ALIGNMENT, GUARD, np.uint8)
    skip = -(room.ctypes.data + GUARD_BYTES) % ALIGNMENT + GUARD_BYTES
    room[skip : skip + array.nbytes] = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
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
