"""Calls as plans: kernels of the catalogue, calls of cuBLAS and the copies around them, put together once.

What a call does depends on shapes, strides, types, GPU and options alone. It is worked out when they are seen
first; a call that comes again looks it up, allocates and launches.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.application.call_keys import ApplicationCall
from tuner.application.choice import GIVEN, Chosen, LaunchCount
from tuner.application.functions import Call, process_application
from tuner.application.keys import ALIGNED, Array, ArrayForm, examined
from tuner.application.running import ALLOCATES, CallArray, KernelRunner, LoadedKernel, TensorRunner
from tuner.devices.cuda.code import workspaces
from tuner.devices.cuda.launches import HomeContext
from tuner.linalg.operations import called
from tuner.linalg.residuals import RESIDUAL, Measure, refuse_residuals
from tuner.model.errors import DeviceError, InputError
from tuner.model.plan import (
    Buffer,
    BufferView,
    Configuration,
    LibraryCall,
    Operand,
    Plan,
    ProblemSpec,
    Scalar,
    Source,
    Stage,
    StageArgument,
    TensorMap,
    Work,
    Workload,
)

_SOURCE = Path(__file__).with_name("moves.cu")
_C = {"float32": "float", "float64": "double"}
_PIVOTS = {"int8": "signed char", "int16": "short", "int32": "int", "int64": "long long"}
_TYPES = _C | _PIVOTS
_THREADS, _WARP = 256, 32
_MOST_BLOCKS = 4096
_WIDE = 17  # rows and columns, from which on matrices are copied by squares
_MOST_AXES = 4  # before the matrices
_SHARED_ROWS = 12288  # whose numbers fit into 48 KiB


@cache
def _source() -> Source:
    return Source(str(_SOURCE), _SOURCE.read_text())


@dataclass(frozen=True)
class Matrices:
    """Matrices in a buffer, (..., rows, columns), with any strides.

    Attributes:
        buffer: of the recipe.
        elements: a stand-in of one byte an element: its shape, strides and address are what is looked at.
        origin: address of the buffer's first element in it.
    """

    buffer: str
    elements: NDArray[np.uint8]
    origin: int

    @staticmethod
    def of(buffer: str, shape: Sequence[int], strides: Sequence[int] | None = None) -> "Matrices":
        """Those of a whole buffer; strides are in elements, without gaps if not given."""
        if strides is None:
            steps = np.cumprod([1, *shape[:0:-1]])[::-1]
            strides = [int(step) for step in steps[: len(shape)]]
        stand_in = np.empty(1, np.uint8)
        elements = np.lib.stride_tricks.as_strided(stand_in, tuple(shape), tuple(strides), writeable=False)
        return Matrices(buffer, elements, stand_in.ctypes.data)

    def seen(self, change: Callable[[NDArray[np.uint8]], NDArray[np.uint8]]) -> "Matrices":
        """The same memory, seen in another way."""
        return Matrices(self.buffer, change(self.elements), self.origin)

    @property
    def turned(self) -> "Matrices":
        """Their transposes."""
        return self.seen(lambda one: one.swapaxes(-1, -2))

    def at(self, place: tuple[int, ...]) -> "Matrices":
        """One of them."""
        return self.seen(lambda one: one[place])

    def wide(self, lead: Sequence[int]) -> "Matrices":
        """Broadcast to a batch."""
        return self.seen(lambda one: np.broadcast_to(one, (*lead, *one.shape[-2:])))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all axes."""
        return self.elements.shape

    @property
    def lead(self) -> tuple[int, ...]:
        """Axes before the matrices."""
        return self.shape[:-2]

    @property
    def begin(self) -> int:
        """Elements of the buffer before the first one."""
        return int(self.elements.ctypes.data) - self.origin if self.elements.size else 0

    @property
    def contiguous(self) -> bool:
        """True where they follow each other without gaps."""
        return bool(self.elements.flags.c_contiguous)

    def leading(self) -> int | None:
        """Elements from one column to the next of a single column-major matrix; None of others."""
        (rows, columns), (down, across) = self.shape, self.elements.strides
        if rows > 1 and down != 1:
            return None
        if columns == 1:
            return max(1, rows)
        return None if across < max(1, rows) else int(across)


class TooManyAxesError(Exception):
    """A batch has more axes than copies follow; contiguous arrays have one."""


class _Launches(LaunchCount):
    """Counts launches of several kernels."""

    __slots__ = ("_counts",)

    def __init__(self, counts: Sequence[LaunchCount]) -> None:
        self._counts: Sequence[LaunchCount] = ()
        super().__init__()
        self._counts = counts

    @property
    def count(self) -> int:
        """Of none of them."""
        return 0

    @count.setter
    def count(self, number: int) -> None:
        for one in self._counts:
            one.count += number


class Recipe:
    """Puts a plan together, stage by stage."""

    def __init__(self, call: Call, given: Mapping[str, Array]) -> None:
        self._name, self._cp, self._device = call.name, call.cp, call.device
        self._application = process_application()
        self._given: dict[str, Matrices] = {}
        self._aligned: set[str] = set()
        self._buffers: dict[str, Buffer] = {}
        for key, array in given.items():
            steps = [step // array.itemsize for step in array.strides]
            self._given[key] = Matrices.of(key, array.shape, steps)
            self._buffers[key] = Buffer(key, array.dtype.name, tuple(array.shape), "in")
            if not array.data.ptr & ALIGNED:
                self._aligned.add(key)
        self._stages: list[Stage] = []
        self._joins: tuple[int, ...] = ()
        self._copies: dict[tuple[str, int, int], Matrices] = {}
        self._tallies: list[LaunchCount] = []
        self.dtype = next(iter(self._buffers.values())).dtype

    def given(self, name: str) -> Matrices:
        """An argument of the call."""
        return self._given[name]

    def is_read(self, matrices: Matrices) -> bool:
        """Return True if kernels read an argument where it is: without gaps, from an aligned address on."""
        return matrices.contiguous and not matrices.begin and matrices.buffer in self._aligned

    def array(self, name: str, *shape: int, dtype: str = "", out: bool = False) -> Matrices:
        """A new array: a result of the call, or one for its run alone."""
        number = sum(one.rpartition(" ")[0] == name for one in self._buffers)
        name = name if out else f"{name} {number}"
        self._buffers[name] = Buffer(name, dtype or self.dtype, shape, "out" if out else "scratch")
        return Matrices.of(name, shape)

    @property
    def results(self) -> list[str]:
        """Names of the results so far, in the order that a run gives them."""
        return [name for name, buffer in self._buffers.items() if buffer.role == "out"]

    # --- Stages.

    def move(
        self,
        source: Matrices,
        target: Matrices,
        *,
        part: str = "ALL",
        unit: bool = False,
        order: Matrices | None = None,
        scales: tuple[Matrices, bool, bool] | None = None,
        number: int | None = None,
        into: int = 0,
    ) -> None:
        """Copy matrices to an array without gaps, (batch, height, width); what the source lacks is zero.

        Args:
            source: (..., rows, columns).
            target: whole array, or a part of one without gaps.
            part: of the matrices that is read, ``ALL``, ``UPPER`` or ``LOWER``.
            unit: write ones on the diagonal.
            order: row numbers (..., columns), to be broadcast: element (i, j) is that of column ``order[j]``.
            scales: factors, whether of rows, and whether of columns.
            number: of the only matrix that is copied; None for all.
            into: number of the matrix of the target that it becomes.

        Raises:
            TooManyAxesError: the batch cannot be followed.
        """
        batch = math.prod(source.lead) if number is None else 1
        height, width = target.shape[-2:]
        steps = [source.elements.strides[:-2]]
        if order is not None:
            wide = np.broadcast_to(order.elements, (*source.lead, order.shape[-1]))
            steps.append(wide.strides[:-1])
        extents, merged = _merged(source.lead, steps)
        first, second = merged[0], merged[1] if order is not None else (0,) * _MOST_AXES
        down, across = source.elements.strides[-2:]
        by_squares = min(height, width) >= _WIDE or height * width >= 2**31
        way = ("TURNED" if abs(down) < abs(across) else "STRAIGHT") if by_squares else "NARROW"
        flags = [unit, order is not None, *(scales[1:] if scales else (False, False))]
        kinds = ", ".join("true" if flag else "false" for flag in flags)
        numbers = (
            *(source.begin, number or 0, batch, height, width, *source.shape[-2:], down, across),
            *extents[1:],
            *first,
            *second,
        )
        any_other = source.buffer
        self._stage(
            f"moved<{_TYPES[self._buffers[source.buffer].dtype]}, {part}, {kinds}, {way}>",
            (
                source.buffer,
                target.buffer,
                order.buffer if order is not None else any_other,
                scales[0].buffer if scales else any_other,
                Scalar("int64", target.begin + into * height * width),
                *map(_number, numbers),
            ),
            batch * -(-height // _WARP) * -(-width // _WARP) * _THREADS
            if by_squares
            else -(-batch * height * width // 4),
        )

    def substitute(
        self,
        triangles: Matrices,
        right: Matrices,
        made: Matrices,
        order: Matrices | None,
        *,
        lower: bool,
        unit: bool,
    ) -> None:
        """Solve triangular systems for a few right sides.

        Args:
            triangles: (..., n, n), n at most 128; one triangle is read.
            right: (..., n, k), with as many axes.
            made: whole array for the solutions, (..., k, n); it may be that of the right sides.
            order: row numbers (..., n), to be broadcast: row i of the right sides is that of ``order[i]``.
            lower: the triangle that is read.
            unit: take the diagonal as ones.

        Raises:
            TooManyAxesError: the batch cannot be followed.
        """
        n, many = right.shape[-2:]
        if not lower:
            triangles = triangles.seen(lambda one: one[..., ::-1, ::-1])
            right = right.seen(lambda one: one[..., ::-1, :])
        sources = [triangles, right]
        steps = [one.elements.strides[:-2] for one in sources]
        if order is not None:
            steps.append(np.broadcast_to(order.elements, (*right.lead, n)).strides[:-1])
        extents, merged = _merged(right.lead, steps)
        if order is None:
            merged.append((0,) * _MOST_AXES)
        together = min(many, 8 if n <= _WARP else 4)  # for which sums stay in registers
        flags = ", ".join("true" if one else "false" for one in (unit, order is not None, not lower))
        batch = math.prod(right.lead)
        strides = [step for one in sources for step in one.elements.strides[-2:]]
        numbers = (*(one.begin for one in sources), batch, many, *strides, *extents[1:], *sum(merged, ()))
        buffers = (triangles.buffer, right.buffer, made.buffer, (order or triangles).buffer)
        lanes = min(_WARP, max(4, 1 << (n - 1).bit_length()))
        self._stage(
            f"substituted<{_C[self.dtype]}, {n}, {together}, {flags}>",
            (*buffers, *map(_number, numbers)),
            batch * -(-many // together) * lanes,
        )

    def scale(self, target: Matrices, scales: Matrices, into: int) -> None:
        """Multiply element (i, j) of a matrix of a whole array by the j-th factor."""
        height, width = target.shape[-2:]
        numbers = [_number(one) for one in (into, height, width)]
        arguments: tuple[StageArgument, ...] = (target.buffer, scales.buffer, *numbers)
        self._stage(f"scaled<{_C[self.dtype]}>", arguments, height * width)

    def roots(self, pivots: Matrices, made: Matrices, number: int) -> None:
        """Powers of two near the inverse roots of the pivots of a matrix, (batch, n)."""
        count = pivots.shape[-1]
        arguments: tuple[StageArgument, ...] = (pivots.buffer, made.buffer, _number(number), _number(count))
        self._stage(f"rooted<{_C[self.dtype]}>", arguments, count)

    def probes(self, grams: Matrices, made: Matrices) -> None:
        """Vectors of random signs by columns (batch, n, width), whose norms grams (batch, n, n) tell."""
        (batch, n, width) = math.prod(made.lead), *made.shape[-2:]
        arguments: tuple[StageArgument, ...] = (grams.buffer, made.buffer, *map(_number, (batch, n, width)))
        self._stage(f"probed<{_C[self.dtype]}>", arguments, batch * n * width)

    def shift(self, grams: Matrices, share: float) -> None:
        """Add a share of themselves to the diagonals of grams (batch, n, n)."""
        rows, n = math.prod(grams.shape[:-1]), grams.shape[-1]
        arguments = (grams.buffer, Scalar(self.dtype, share), _number(rows), _number(n))
        self._stage(f"shifted<{_C[self.dtype]}>", arguments, rows)

    def near_unit(self, grams: Matrices, factor: Matrices, inverse: Matrices, off: Matrices) -> None:
        """Cholesky factors of grams near I and their inverses, and how far rows are off: ``off[row]``."""
        rows, n = math.prod(grams.shape[:-1]), grams.shape[-1]
        buffers = (grams.buffer, factor.buffer, inverse.buffer, off.buffer)
        self._stage(f"near_unit<{_C[self.dtype]}>", (*buffers, *map(_number, (rows, n))), 32 * rows)

    def exchanges(self, pivots: Matrices, count: int, rows: int, *, out: bool = False) -> Matrices:
        """Row numbers after exchanges, (batch, rows), by pivots (batch, count or more) from 0 on."""
        batch, pitch = pivots.shape
        order = self.array("order", batch, rows, dtype="int32", out=out)
        shared = rows <= _SHARED_ROWS
        kind = _PIVOTS[self._buffers[pivots.buffer].dtype]
        self._launch(
            f"exchanged<{kind}, {'true' if shared else 'false'}>",
            (pivots.buffer, order.buffer, *map(_number, (0, count, pitch, rows))),
            (batch, 32 if rows <= _THREADS else _THREADS),
            4 * rows if shared else 4,
        )
        return order

    def settle(self, pivots: Matrices, made: Matrices, info: Matrices, most: int) -> None:
        """Pivots from 0 of matrices that were filled up to squares; their info counts up to ``least``."""
        (batch, order), least = pivots.shape, made.shape[-1]
        numbers = map(_number, (batch, order, least, most))
        self._stage("settled", (pivots.buffer, made.buffer, info.buffer, *numbers), batch * least)

    def kernel(
        self,
        name: str,
        order: int,
        batch: int,
        arrays: Mapping[str, str | BufferView],
        *,
        rows: int = 0,
        last: Sequence[StageArgument] = (),
    ) -> None:
        """A kernel of the catalogue, on arrays by their names in its file; it gets others of its own.

        Args:
            name: of it.
            order: of the matrices.
            batch: of them.
            arrays: names and places of buffers, by the names of its file.
            rows: of the matrices, where they have more than columns.
            last: what its last arguments are, instead of what the file says.
        """
        taken = 1 if name in _ONE else 2
        tall = rows > order
        shape = (order, max(rows, order)) if name in _LARGE else (batch, order, order)
        form = ArrayForm(shape, self.dtype)
        asked = ApplicationCall(name, (form,) * taken, self._device, None, {"m": rows} if tall else {})
        loaded, plan = self._application.loaded(self._cp, asked)
        self._tallies.append(loaded.tally)
        known = {
            key: value if isinstance(value, BufferView) else BufferView(value, 0)
            for key, value in arrays.items()
        }
        for buffer in plan.buffers:
            if buffer.name in known:
                continue
            own = f"{name} {buffer.name}"
            if own not in self._buffers:
                self._buffers[own] = replace(buffer, name=own, role="scratch", input=None, restored=False)
            known[buffer.name] = BufferView(own, 0)
        base, before = len(self._stages), (*self._joins, len(self._stages) - 1)
        before = tuple(one for one in before if one >= 0)
        sides: dict[int, int] = {}
        for stage in plan.stages:
            after = tuple(one + base for one in stage.after)
            if stage.stream not in sides:
                after = tuple(sorted({*after, *before}))
            sides[stage.stream] = len(self._stages)
            arguments = tuple(_renamed(item, known) for item in stage.arguments)
            if last:
                arguments = (*arguments[: -len(last)], *last)
            library = stage.library and replace(
                stage.library,
                operands=tuple((letter, _shifted(one, known)) for letter, one in stage.library.operands),
            )
            self._stages.append(stage.changed(arguments=arguments, after=after, library=library))
        self._joins = tuple(place for side, place in sides.items() if side)

    def library(self, call: LibraryCall) -> None:
        """A call of cuBLAS."""
        empty = Source("", "")
        one = (1, 1, 1)
        self._add(Stage(call.routine, empty, "", (), one, one, 0, (), library=call))

    def multiply(
        self, left: Matrices, right: Matrices, made: Matrices, alpha: float = 1.0, beta: float = 0.0
    ) -> None:
        """``made = alpha left right + beta made`` by cuBLAS, of single matrices; made is row-major."""
        (rows, columns), inner = made.shape, left.shape[-1]
        target = ("c", Operand(made.buffer, made.begin, columns))  # its transpose, column-major
        operands = (self.operand("a", right.turned), self.operand("b", left.turned), target)
        self.library(LibraryCall("gemm", self.dtype, operands, columns, rows, inner, alpha, beta))

    def operand(self, letter: str, matrix: Matrices) -> tuple[str, Operand]:
        """A matrix as cuBLAS takes it: column-major, or the transpose of one that is, else a copy."""
        for turned, one in ((False, matrix), (True, matrix.turned)):
            leading = one.leading()
            if leading is not None:
                return letter, Operand(one.buffer, one.begin, leading, transposed=turned)
        rows, columns = matrix.shape
        copy = self._copies.get((letter, rows, columns))
        if copy is None:  # calls come one after another: the next one takes the same memory
            copy = self._copies[letter, rows, columns] = self.array("copy", 1, columns, rows)
        self.move(matrix.turned, copy)
        return letter, Operand(copy.buffer, 0, max(1, rows))

    def _stage(self, entry: str, arguments: tuple[StageArgument, ...], elements: int) -> None:
        blocks = min(_MOST_BLOCKS, max(1, -(-elements // _THREADS)))
        self._launch(entry, arguments, (blocks, _THREADS), 0)

    def _launch(
        self, entry: str, arguments: tuple[StageArgument, ...], extents: tuple[int, int], shared_bytes: int
    ) -> None:
        grid, block = ((extent, 1, 1) for extent in extents)
        name = entry.partition("<")[0]
        self._add(Stage(name, _source(), entry, ("--std=c++17",), grid, block, shared_bytes, arguments))

    def _add(self, stage: Stage) -> None:
        self._stages.append(stage.changed(after=self._joins))
        self._joins = ()

    # --- The plan.

    def loaded(self) -> LoadedKernel:
        """The plan, compiled and loaded."""
        plan = Plan(
            Workload(self._name, (), 1),
            Configuration(()),
            tuple(self._stages),
            tuple(self._buffers.values()),
            ProblemSpec("unchecked"),
            Work(0, 0),
        )
        program = self._application.program(self._cp, self._device, plan)
        made = [CallArray(one.name, one.shape, one.dtype) for one in plan.buffers]
        roles = [one.role for one in plan.buffers]
        of = {role: tuple(a for a, r in zip(made, roles, strict=True) if r == role) for role in _ROLES}
        spaces = tuple(CallArray(name, (size,), "uint8") for name, size in workspaces(program).items())
        inputs, outputs = of["in"], of["out"]
        return _LoadedRecipe(
            kernel=self._name,
            workload=plan.workload,
            chosen=Chosen(plan.configuration, GIVEN),
            device=self._device,
            program=program,
            home=HomeContext(self._cp, self._device),
            inputs=inputs,
            outputs=outputs,
            scratch=(*of["scratch"], *spaces),
            results=tuple(range(len(inputs), len(inputs) + len(outputs))),
            replaced=None,
            tally=_Launches(self._tallies),
            anywhere=True,
            refusal=ALLOCATES,
        )


class _LoadedRecipe(LoadedKernel):
    """A recipe, compiled and loaded."""

    def no_room(self, name: str, error: BaseException) -> DeviceError:
        """The error of an array that does not fit: of a kernel of the catalogue, or of the call."""
        owner = name.partition(" ")[0]
        if owner in _LARGE:
            return DeviceError(f"{owner}: output and scratch arrays do not fit: {error}")
        return DeviceError(f"{self.kernel}: copies and results do not fit on the GPU: {error}")


_ROLES = ("in", "out", "scratch")
_LARGE = ("potrf", "getrf", "geqrf")
_ONE = (*_LARGE, *(f"{name}-batched" for name in _LARGE))


def _number(value: int) -> Scalar:
    if not -(2**31) <= value < 2**31:
        raise InputError(f"tuner.linalg: elements of a matrix lie {value} elements apart; a copy lies closer")
    return Scalar("int32", int(value))


def _renamed(item: StageArgument, known: Mapping[str, BufferView]) -> StageArgument:
    if isinstance(item, str):
        view = known[item]
        return view if view.offset_elements else view.buffer
    if isinstance(item, BufferView):
        view = known[item.buffer]
        return BufferView(view.buffer, view.offset_elements + item.offset_elements)
    if isinstance(item, TensorMap):
        return replace(item, buffer=known[item.buffer].buffer)
    return item


def _shifted(operand: Operand, known: Mapping[str, BufferView]) -> Operand:
    view = known[operand.buffer]
    return replace(
        operand, buffer=view.buffer, offset_elements=view.offset_elements + operand.offset_elements
    )


def _merged(
    lead: Sequence[int], steps: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Axes of a batch with their strides, as few as there can be and filled up with ones."""
    axes: list[tuple[int, list[int]]] = []
    for extent, *own in zip(lead, *steps, strict=True):
        if extent == 1:
            continue
        if axes and all(outer == inner * extent for outer, inner in zip(axes[-1][1], own, strict=True)):
            axes[-1] = (axes[-1][0] * extent, list(own))
        else:
            axes.append((extent, list(own)))
    if len(axes) > _MOST_AXES:
        raise TooManyAxesError
    filled = [*[(1, [0] * len(steps))] * (_MOST_AXES - len(axes)), *axes]
    return tuple(extent for extent, _ in filled), [
        tuple(own[place] for _, own in filled) for place in range(len(steps))
    ]


# --- Calls that come again.


def on_host(array: Array) -> NDArray[Any]:
    """Values of an array of CuPy or a tensor, once the GPU has written them."""
    return np.asarray(array.get() if hasattr(array, "get") else array.cpu().numpy())


Results: TypeAlias = "Array | tuple[Array, ...]"
Finish: TypeAlias = Callable[[Sequence[Array], bool], Results]
"""Makes results of the arrays that a run wrote, and looks for failures where it is told to."""


@dataclass(frozen=True)
class Prepared:
    """A call that was worked out."""

    runner: KernelRunner
    finish: Finish

    def results(self, arrays: Sequence[Array], addresses: list[int], *, check: bool) -> Results:
        """Run it.

        Raises:
            LinAlgError: a matrix cannot be used.
        """
        made = self.runner.run(arrays, addresses, None)
        return self.finish(made if isinstance(made, tuple) else (made,), check)


Build: TypeAlias = Callable[..., "tuple[Recipe, Finish] | Results"]
"""Checks arguments and puts a recipe together; gives the results where there is nothing to run."""


def perform(
    name: str,
    build: Build,
    given: Mapping[str, Any],
    *options: Any,  # noqa: ANN401 - whatever callers have
    also: Mapping[str, Any] = MappingProxyType({}),
    check: bool | str = False,
    measure: Measure | None = None,
) -> Any:  # noqa: ANN401 - arrays of the caller's library
    """Results of a call; what it does is worked out when its arrays and options are seen first.

    Args:
        name: of the function.
        build: is called with the call, the arrays as CuPy's, and the options.
        given: matrices by name.
        options: of the call.
        also: arguments of other types, by name; they come behind the matrices.
        check: whether to wait for the GPU and look for failures; ``residual``: and at backward errors.
        measure: of the backward errors; None where there are none.

    Raises:
        LinAlgError: a matrix cannot be used, or a backward error is too large.
        InputError: an argument cannot be used.
        DeviceError: the GPU has no room.
    """
    head = (name, *[(type(option), option) for option in options])
    if measure is not None and isinstance(check, str) and check == RESIDUAL:
        with called(name, also, **given) as (call, *arrays):
            _, found = _performed(call, head, build, arrays, options, check=True)
            refuse_residuals(call, measure, arrays, found)
            return call.returned(found)
    check = _is_checked(name, check, measure)
    values = (*given.values(), *also.values())
    prepared, addresses, key = process_application().look(head, values)
    if prepared is not None:
        results: Results = prepared.results(values, addresses, check=check)
        return results
    with called(name, also, **given) as (call, *arrays):
        prepared, found = _performed(call, head, build, arrays, options, check=check)
        if prepared is not None and call.torch is not None:
            runner = TensorRunner(call.cp, call.torch, prepared.runner.loaded)
            process_application().keep(key, Prepared(runner, prepared.finish), call.torch)
        if isinstance(found, tuple):
            return tuple(call.returned(one) for one in found)
        return call.returned(found)


def _is_checked(name: str, check: object, measure: Measure | None) -> bool:
    """Return True if failures are looked for.

    Raises:
        InputError: the option has no such value.
    """
    if isinstance(check, (bool, np.bool_)):
        return bool(check)
    also = "" if measure is None else f", or {RESIDUAL!r}"
    raise InputError(f"tuner.linalg.{name}: check is {check!r}; it must be True or False{also}")


def _of_copies(
    call: Call,
    head: tuple[object, ...],
    build: Build,
    arrays: Sequence[Array],
    options: Sequence[Any],
    *,
    check: bool,
) -> Results:
    """Results by copies of the arrays, broadcast to all axes of the batch."""
    cp, dtype = call.cp, arrays[0].dtype
    if not all(array.flags.c_contiguous for array in arrays):  # mostly enough, and errors name these matrices
        made = [cp.ascontiguousarray(array) for array in arrays]
        return _performed(call, head, build, made, options, check=check)[1]
    matrices = [array for array in arrays if array.ndim > 1 and array.dtype == dtype]
    lead = np.broadcast_shapes(*(array.shape[:-2] for array in matrices))
    made = []
    for array in arrays:
        own = array.shape[-2:] if array.dtype == dtype else array.shape[-1:]  # pivots have a row each
        flat = array.ndim == 1 and array.dtype == dtype  # a right-hand side; pivots go with their matrices
        wide = array if flat else cp.broadcast_to(array, (*lead, *own))
        made.append(cp.ascontiguousarray(wide))
    return _performed(call, head, build, made, options, check=check)[1]


def _performed(
    call: Call,
    head: tuple[object, ...],
    build: Build,
    arrays: Sequence[Array],
    options: Sequence[Any],
    *,
    check: bool,
) -> tuple[Prepared | None, Results]:
    """The run of a call and its results, on arrays of CuPy; libraries with protocols lend them anew."""
    prepared, addresses, key = process_application().look(head, arrays)
    if prepared is None:
        try:
            found = build(call, *arrays, *options)
        except TooManyAxesError:  # seldom: copies of all the batch have one axis before the matrices
            return None, _of_copies(call, head, build, arrays, options, check=check)
        if not (isinstance(found, tuple) and isinstance(found[0], Recipe)):
            return None, found
        recipe, finish = found
        prepared = Prepared(KernelRunner(call.cp, recipe.loaded()), finish)
        _, addresses = examined(arrays)
        process_application().keep(key, prepared, None)
    return prepared, prepared.results(arrays, addresses, check=check)
