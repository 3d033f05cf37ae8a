"""Runs CUDA kernels on the host, so that their numerics are tested where there is no GPU.

A kernel's source is compiled by g++ behind ``tests/host/cuda_host.h``; the threads of a block are fibres
that change only at barriers and shuffles, in an order the test chooses. Only the tests use this.

``flags`` choose what is watched: ``FLAGS`` only the arrays' surroundings and barriers that are not met,
``CHECKED`` every access to memory and the barriers that order it, ``ADDRESSES`` the same code under
AddressSanitizer and UndefinedBehaviorSanitizer.
"""

import functools
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import host_library
import numpy as np
import numpy.typing as npt
from build_cache import BUILDS
from host_compile import (
    ADDRESSES,
    CHECKED,
    COMPILER,
    FLAGS,
    Barrier,
    HostRunError,
    barriers,
    compile_unit,
    stored_function,
    with_lines,
)
from host_launch import ORDERS, Argument, Extent, Function, Launch, Order, run_apart, run_here, unload

from tuner.model.elements import element_dtype, scalar_value
from tuner.model.plan import BufferView, Plan, Scalar, Source, Stage, StructValue, TensorMap
from tuner.problems.base import poison

__all__ = [
    "ADDRESSES",
    "CHECKED",
    "COMPILER",
    "FLAGS",
    "ORDERS",
    "Argument",
    "Barrier",
    "HostRunError",
    "Order",
]

JOBS = len(os.sched_getaffinity(0))  # compilations at a time
ENTRIES_PER_UNIT = 8  # instantiations that share the price of reading the headers
RESIDENT_BLOCKS = 2  # of a grid that is cut to what a device holds: each has to walk
MAX_THREADS = 1024

_functions: dict[str, Function] = {}  # compiled for this session, by content


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
        flags: options of g++.

    Raises:
        HostRunError: g++ does not accept the code; the message is g++'s.
    """
    _build([(source, tuple(options), list(entries))], flags)


def build_plans(plans: Sequence[Plan], flags: Sequence[str] = FLAGS) -> None:
    """Compiles every stage of the plans ahead, as many together as share source and options."""
    groups: dict[tuple[Source, tuple[str, ...]], list[str]] = {}
    for stage in (stage for plan in plans for stage in plan.stages if stage.library is None):
        groups.setdefault((stage.source, stage.options), []).append(stage.entry)
    _build([(*key, entries) for key, entries in groups.items()], flags)


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
    without: Barrier | None = None,
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
        without: a barrier to leave out, where it is one of this source and the build is ``CHECKED``.

    Raises:
        HostRunError: the code does not compile, or breaks a rule of the machine.
    """
    build(source, [entry], options, flags)
    function = _functions[_key(source, entry, options, flags)]
    removed = without.number if without and without.source_sha256 == source.sha256 else -1
    launch = Launch(grid, block, shared_bytes, order, seed, removed)
    try:
        if "-fsanitize=address,undefined" in flags:
            run_apart(function, launch, args, flags)
        else:
            run_here(function, launch, args)
    except HostRunError as error:
        message = with_lines(str(error), function.library, source)
        raise HostRunError(f"{source.path}, {entry}: {message}") from None


def barriers_reached(plan: Plan) -> list[Barrier]:
    """Barriers that launches of the plan have come to in the checked build, or others compiled with it."""
    found = []
    for stage in (stage for stage in plan.stages if stage.library is None):
        reached = _functions[_key(stage.source, stage.entry, stage.options, CHECKED)].reached()
        found += [barrier for barrier in barriers_of(stage.source) if barrier.number in reached]
    return list(dict.fromkeys(found))  # stages may share a source


@functools.cache
def barriers_of(source: Source) -> list[Barrier]:
    """The barriers of a source and its headers that the host compiles."""
    return barriers(source)


def forget() -> None:
    """Frees the memory and the files of all that was compiled."""
    for library in {function.library for function in _functions.values()}:
        unload(library)
        shutil.rmtree(library.parent)
    _functions.clear()


def needs_gpu(plan: Plan) -> str:
    """Why a plan cannot run on the host; empty where it can."""
    for stage in plan.stages:
        if stage.cooperative:
            return f"{stage.name}: blocks run one after another here, and these wait for each other"
        if stage.cluster * stage.threads_per_block > MAX_THREADS:
            return (
                f"{stage.name}: a cluster is one block here, and this one has more than {MAX_THREADS} threads"
            )
    return ""


def run_plan(
    plan: Plan,
    arrays: Mapping[str, npt.NDArray[Any]],
    *,
    flags: Sequence[str] = FLAGS,
    order: Order = "forward",
    seed: int = 0,
    without: Barrier | None = None,
) -> None:
    """Runs the stages of a plan one after another on ``arrays`` (one for each of its buffers, by name).

    Grids that a device would cut are cut to ``RESIDENT_BLOCKS``; a cluster of B blocks is one block of B
    times their threads and shared memory; in place of a tensor map the code gets zeros and copies by itself.

    Raises:
        HostRunError: as ``run``.
    """
    for stage in sorted(plan.stages, key=lambda stage: not stage.setup):  # the others in their order
        if stage.library is not None:
            host_library.run(stage.library, arrays)
            continue
        grid, block, shared_bytes = _geometry(stage)
        args: list[Argument] = []
        for argument in stage.arguments:
            if isinstance(argument, TensorMap):
                args.append(np.void(bytes(128)))
            elif isinstance(argument, StructValue):
                args.append(np.void(argument.bytes))
            elif isinstance(argument, Scalar):
                args.append(scalar_value(argument))
            elif isinstance(argument, BufferView):
                args.append(arrays[argument.buffer].reshape(-1)[argument.offset_elements :])
            else:
                assert isinstance(argument, str)
                args.append(arrays[argument])
        run(
            stage.source,
            stage.entry,
            grid,
            block,
            shared_bytes,
            args,
            options=stage.options,
            flags=flags,
            order=order,
            seed=seed,
            without=without,
        )


def run_plan_on_host(
    plan: Plan,
    inputs: Mapping[str, npt.NDArray[Any]],
    *,
    flags: Sequence[str] = FLAGS,
    order: Order = "forward",
    seed: int = 0,
    without: Barrier | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Runs a plan on inputs that must stay as they are, with everything else as a device would have it.

    Args:
        plan: what to run.
        inputs: an array for each buffer that is ``in`` or ``inout``; the latter are copied.
        flags: options of g++.
        order: see ``run``.
        seed: see ``run``.
        without: see ``run``.

    Returns:
        The buffers that are ``out`` or ``inout``. They and scratch hold garbage before the run, ``zeroed``
        zeros.

    Raises:
        HostRunError: as ``run``.
    """
    arrays = {}
    for buffer in plan.buffers:
        if buffer.role in ("in", "inout"):
            array = inputs[buffer.name].copy()
            array.flags.writeable = buffer.role == "inout"
        else:
            array = np.zeros(buffer.shape, element_dtype(buffer.dtype))
            if not buffer.zeroed:
                poison(array)
        arrays[buffer.name] = array
    run_plan(plan, arrays, flags=flags, order=order, seed=seed, without=without)
    return {b.name: arrays[b.name] for b in plan.buffers if b.role in ("out", "inout")}


def _build(wanted: Sequence[tuple[Source, tuple[str, ...], list[str]]], flags: Sequence[str]) -> None:
    units = []
    for source, options, entries in wanted:
        new = [entry for entry in dict.fromkeys(entries) if not _is_known(source, entry, options, flags)]
        cut = range(0, len(new), ENTRIES_PER_UNIT)
        units += [(source, options, new[i : i + ENTRIES_PER_UNIT]) for i in cut]
    with ThreadPoolExecutor(JOBS) as pool:
        list(pool.map(lambda unit: _build_unit(unit[0], unit[1], unit[2], flags), units))


def _build_unit(source: Source, options: Sequence[str], entries: Sequence[str], flags: Sequence[str]) -> None:
    with BUILDS.making(_key(source, "\0".join(entries), options, flags)):
        if all(_is_known(source, entry, options, flags) for entry in entries):  # another made it meanwhile
            return
        library = compile_unit(source, entries, options, flags)
    for i, entry in enumerate(entries):
        _functions[_key(source, entry, options, flags)] = Function(library, f"launch_{i}")


def _is_known(source: Source, entry: str, options: Sequence[str], flags: Sequence[str]) -> bool:
    """Whether an instantiation was compiled, in this session or an earlier one."""
    key = _key(source, entry, options, flags)
    if key not in _functions:
        stored = stored_function(source, entry, options, flags)
        if stored is None:
            return False
        _functions[key] = Function(*stored)
    return True


def _key(source: Source, entry: str, options: Sequence[str], flags: Sequence[str]) -> str:
    return "\0".join((source.sha256, entry, *options, "", *flags))


def _geometry(stage: Stage) -> tuple[Extent, Extent, int]:
    """Grid, block and shared memory on the host."""
    x, y, z = stage.grid
    if stage.resident:
        x = min(x, RESIDENT_BLOCKS * stage.cluster)
    block = (stage.block[0] * stage.cluster, *stage.block[1:])
    return (x // stage.cluster, y, z), block, stage.shared_bytes * stage.cluster
