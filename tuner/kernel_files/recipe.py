"""A kernel file with all expressions parsed: arguments, stages, library stages and loops."""

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias, cast

from tuner.kernel_files.formulas import Environment, Formula, Place, Template, with_derived
from tuner.kernel_files.input_reader import FileRecipe, InputRecipe
from tuner.kernel_files.measured_answers import MeasuredAnswers
from tuner.kernel_files.schema import DTYPES, MAPPED_DTYPES, OPERANDS, LibraryStageTable, Routine
from tuner.kernel_files.sizes import SizeValues
from tuner.model.elements import BFLOAT16, element_dtype, struct_bytes
from tuner.model.errors import KernelFileError, suggestion
from tuner.model.expressions.arithmetic import NoValue
from tuner.model.expressions.callables import Expression
from tuner.model.plan import (
    Buffer,
    BufferRole,
    BufferView,
    LibraryCall,
    Operand,
    ProblemSpec,
    Resources,
    Scalar,
    Source,
    Stage,
    StageArgument,
    StructValue,
    TensorMap,
    TunableValue,
    Work,
)
from tuner.space.enumeration import Condition
from tuner.system.untrusted.compiler_options import RefusedOptionError, check_name_expression, check_options

# --- Arguments of a kernel file with all expressions parsed: arrays, views, values, structs, tensor maps.

# CUDA driver API, cuTensorMapEncodeTiled
MAX_BOX = 256
MAX_TENSOR_DIMENSION = 2**32
ALIGNMENT_BYTES = 16
PROMOTIONS = (0, 64, 128, 256)
_WHOLE_TYPES = {
    f"{sign}int{bits}": (0 if sign else -(2 ** (bits - 1)), 2**bits - 1 if sign else 2 ** (bits - 1) - 1)
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
}
_LARGEST = {"float16": 65504.0, BFLOAT16: 3.3895313892515355e38, "float32": 3.4028234663852886e38}


@dataclass(frozen=True)
class BufferRecipe:
    """An array whose element type and shape are not evaluated yet.

    ``row_pitch`` says that its rows may lie apart, ``in_place`` names the input whose memory it may be.
    """

    name: str
    role: BufferRole
    dtype: Template
    shape: tuple[Formula, ...]
    input: InputRecipe | None = None
    restored: bool = False
    row_pitch: bool = False
    in_place: str | None = None

    def evaluated(self, env: Environment) -> Buffer:
        """The buffer of one configuration.

        Raises:
            KernelFileError: the type is none of NumPy's that can be used, an axis is not a whole number, or
                the array cannot hold its input.
        """
        dtype = known_dtype(self.dtype.place, self.dtype.fill(env), DTYPES)
        shape = tuple(axis.whole(env, least=1) for axis in self.shape)
        values = None if self.input is None else self.input.evaluated(env, dtype, shape)
        return Buffer(self.name, dtype, shape, self.role, values, self.restored)


class BufferTable(dict[str, Buffer]):
    """The buffers of one configuration by name, each evaluated when it is first asked for."""

    def __init__(self, recipes: Sequence[BufferRecipe], env: Environment) -> None:
        super().__init__()
        self._recipes = {recipe.name: recipe for recipe in recipes}
        self._env = env

    def __missing__(self, name: str) -> Buffer:
        self[name] = found = self._recipes[name].evaluated(self._env)
        return found


@dataclass(frozen=True)
class ViewRecipe:
    """A buffer from one of its elements on."""

    buffer: str
    offset: Formula

    def evaluated(self, env: Environment, buffers: Mapping[str, Buffer]) -> BufferView:
        """The view of one configuration, and one step.

        Raises:
            KernelFileError: it begins beyond its array.
        """
        return BufferView(self.buffer, self.offset.whole(env, 0, buffers[self.buffer].elements - 1))


@dataclass(frozen=True)
class ScalarRecipe:
    """A kernel argument passed by value."""

    name: str
    dtype: Template
    value: Formula

    def evaluated(self, env: Environment) -> Scalar:
        """The scalar of one configuration, whole where its type is.

        Raises:
            KernelFileError: the type is none that can be used, or cannot hold the value.
        """
        dtype = known_dtype(self.dtype.place, self.dtype.fill(env), DTYPES)
        if dtype in _WHOLE_TYPES:
            return Scalar(dtype, self.value.whole(env, *_WHOLE_TYPES[dtype]))
        number = self.value.number(env)
        if abs(number) > _LARGEST.get(dtype, math.inf):
            raise self.value.place.error(f"{self.value} is {number}, which is beyond {dtype}")
        return Scalar(dtype, int(bool(number)) if dtype == "bool" else float(number))


@dataclass(frozen=True)
class StructRecipe:
    """A struct passed by value."""

    name: str
    fields: tuple[ScalarRecipe, ...]

    def evaluated(self, env: Environment) -> StructValue:
        """The struct of one configuration.

        Raises:
            KernelFileError: as of scalars.
        """
        scalars = [field.evaluated(env) for field in self.fields]
        names = tuple((field.name, one.dtype) for field, one in zip(self.fields, scalars, strict=True))
        return StructValue(names, struct_bytes(scalars))


@dataclass(frozen=True)
class TensorMapRecipe:
    """A tensor map; evaluated only for stages that take it."""

    place: Place
    buffer: BufferRecipe
    element: Template
    dims: tuple[Formula, Formula]
    box: tuple[Formula, Formula]
    promotion: Formula

    def evaluated(self, env: Environment) -> TensorMap:
        """The tensor map of one configuration.

        Raises:
            KernelFileError: CUDA cannot make it, or it reaches beyond its array.
        """
        element = known_dtype(self.element.place, self.element.fill(env), MAPPED_DTYPES)
        size = element_dtype(element).itemsize
        dims = _pair(self.dims, env, MAX_TENSOR_DIMENSION)
        box = _pair(self.box, env, MAX_BOX)
        for name, inner in (("dims", dims[0]), ("box", box[0])):
            if inner * size % ALIGNMENT_BYTES:
                raise self.place.error(
                    f"a row of {name} takes {inner * size} bytes; it must be a multiple of {ALIGNMENT_BYTES}"
                )
        buffer = self.buffer.evaluated(env)
        available = buffer.elements * element_dtype(buffer.dtype).itemsize
        if math.prod(dims) * size > available:
            raise self.place.error(
                f"dims take {math.prod(dims) * size} bytes, and {buffer.name} has {available}"
            )
        promotion = self.promotion.whole(env, least=0)
        if promotion not in PROMOTIONS:
            listed = ", ".join(map(str, PROMOTIONS))
            raise self.promotion.place.error(f"{self.promotion} is {promotion}; choose from {listed}")
        return TensorMap(buffer.name, element, dims, box, promotion)


ArgumentRecipe = str | ScalarRecipe | StructRecipe | TensorMapRecipe
"""A parameter of a function: the name of a buffer, or what is passed by value."""

ParameterRecipe = ArgumentRecipe | ViewRecipe
"""Parameter of a stage: an argument, or a buffer from one of its elements on."""


def known_dtype(place: Place, given: str, dtypes: tuple[str, ...]) -> str:
    """The type itself.

    Raises:
        KernelFileError: it is not among ``dtypes``.
    """
    if given not in dtypes:
        raise place.error(f"{given!r} is not one of {', '.join(dtypes)}{suggestion(given, dtypes)}")
    return given


def _pair(formulas: tuple[Formula, Formula], env: Environment, most: int) -> tuple[int, int]:
    return cast("tuple[int, int]", tuple(formula.whole(env, 1, most) for formula in formulas))


def values_of(item: ParameterRecipe) -> Iterator[Formula]:
    """Yield the formulas of an argument that may depend on the number of a step."""
    if isinstance(item, ViewRecipe):
        yield item.offset
    elif isinstance(item, ScalarRecipe):
        yield item.value
    elif isinstance(item, StructRecipe):
        yield from (field.value for field in item.fields)


def parameter(item: ParameterRecipe, env: Environment, buffers: Mapping[str, Buffer]) -> StageArgument:
    """A parameter of one configuration, and one step.

    Raises:
        KernelFileError: its value cannot be had.
    """
    if isinstance(item, str):
        return item
    return item.evaluated(env, buffers) if isinstance(item, ViewRecipe) else item.evaluated(env)


# --- Loops of launches, written out.

MAX_LAUNCHES = 10_000
"""Stages of one run; a graph of so many takes tens of megabytes."""

BETWEEN = " (between steps)"
"""Follows the name of an output: the array that takes turns with it."""

_OUTPUTS = ("out", "inout")

AnyStageRecipe: TypeAlias = "StageRecipe | LibraryStageRecipe"


@dataclass(frozen=True)
class Predecessor:
    """A stage that must have ended: the one of the same step, or of one so many steps before."""

    name: str
    before: int = 0

    @classmethod
    def parse(cls, text: str) -> "Predecessor":
        """``name``, or ``name@-1`` for the step before, up to ``name@-9``."""
        name, _, steps = text.rpartition("@-")
        return cls(name, int(steps)) if len(steps) == 1 and steps in "123456789" and name else cls(text)


@dataclass(frozen=True)
class LoopRecipe:
    """A loop whose steps are not counted yet.

    Attributes:
        place: the table.
        repeat: steps.
        index: name of a step's number.
        swaps: pairs of buffers: a step reads the first and writes the second.
        derived: named expressions of a step, in their order.
    """

    place: Place
    repeat: Formula
    index: str
    swaps: tuple[tuple[str, str], ...]
    derived: Mapping[str, Formula] = field(default_factory=dict)

    @cached_property
    def varying(self) -> frozenset[str]:
        """The names whose values depend on the step."""
        found = {self.index}
        for name, formula in self.derived.items():
            if not found.isdisjoint(formula.expression.names):
                found.add(name)
        return frozenset(found)

    def with_constants(self, env: Environment) -> dict[str, TunableValue | NoValue]:
        """An environment with the named expressions that are the same in all steps.

        Raises:
            KernelFileError: one has no result.
        """
        values = dict(env)
        for name, formula in self.derived.items():
            if name not in self.varying:
                values[name] = formula.value_or_none(values)
        return values

    def put_step(self, step: int, values: dict[str, TunableValue | NoValue]) -> None:
        """Put the number of a step, and the named expressions that depend on it, among the values.

        Raises:
            KernelFileError: one has no result.
        """
        values[self.index] = step
        for name, formula in self.derived.items():
            if name in self.varying:
                values[name] = formula.value_or_none(values)

    def names(self, count: int, buffers: Mapping[str, Buffer]) -> "Names":
        """Which arrays stand for the swapped names in each step.

        Raises:
            KernelFileError: the arrays of a pair differ, may not be written, or the result of the last step
                is not in an output.
        """
        return Names(tuple(self._pair(buffers[a], buffers[b], count) for a, b in self.swaps))

    def _pair(self, first: Buffer, second: Buffer, count: int) -> "_SwappedPair":
        key = f"swap of {first.name} and {second.name}"
        if (first.dtype, first.shape) != (second.dtype, second.shape):
            raise self.place.error(
                f"{key}: {first.dtype} {list(first.shape)} is no {second.dtype} {list(second.shape)};"
                " they must have the same type and shape"
            )
        if second.role == "in" or (first.role == "in" and second.role != "out"):
            raise self.place.error(
                f"{key}: the roles are {first.role} and {second.role}; a step reads the first and writes the"
                " second, so that in and out can be swapped, and any that are not in"
            )
        odd = count % 2 == 1
        if second.role == "out" and (first.role == "in" or (first.role in ("scratch", "zeroed") and not odd)):
            return _SwappedPair(first.name, second.name, count, keeps_first=True)
        last, other = (second, first) if odd else (first, second)
        if last.role not in _OUTPUTS and other.role in _OUTPUTS:
            raise self.place.error(
                f"{key}: after {count} steps the result lies in {last.name}, whose role is {last.role}, and"
                f" {other.name} is the output; make the steps {'even' if odd else 'odd'} in number"
            )
        return _SwappedPair(first.name, second.name, count, keeps_first=False)


@dataclass(frozen=True)
class _SwappedPair:
    """Two names that change places from step to step.

    Attributes:
        keeps_first: the first array is read by the first step only, and the last step writes to the second;
            an array more stands between them.
    """

    first: str
    second: str
    count: int
    keeps_first: bool

    def at(self, step: int) -> tuple[tuple[str, str], ...]:
        """(name, array that stands for it) of both in a step."""
        if not self.keeps_first:
            names = (self.first, self.second)
            return tuple(zip(names, names[::-1] if step % 2 else names, strict=True))
        return ((self.first, self._after(step)), (self.second, self._after(step + 1)))

    def _after(self, steps: int) -> str:
        """The array with the result of so many steps."""
        if steps == 0:
            return self.first
        return self.second if (self.count - steps) % 2 == 0 else self.second + BETWEEN


@dataclass(frozen=True)
class Names:
    """Arrays that the swapped names of a loop stand for."""

    pairs: tuple[_SwappedPair, ...]

    def at(self, step: int) -> tuple[tuple[str, str], ...]:
        """(name, array) in a step, of those that are another array."""
        return tuple((name, array) for pair in self.pairs for name, array in pair.at(step) if name != array)


def written_out(
    stages: Sequence[AnyStageRecipe],
    loops: Mapping[str, LoopRecipe],
    env: Environment,
    buffers: Mapping[str, Buffer],
) -> tuple[Stage, ...]:
    """The stages of a run in order, those of loops once for every step.

    Raises:
        KernelFileError: an expression has no result, a stage cannot be launched, or there are too many.
    """
    found: list[Stage] = []
    ended: dict[str, int] = {}
    for name, body in itertools.groupby(stages, key=lambda stage: stage.loop):
        if name:
            _Steps(loops[name], tuple(body), env, buffers).put(found, ended)
            continue
        for recipe in body:
            if recipe.when is not None and not recipe.when.value(env):
                continue
            stage = recipe.evaluated(env, buffers)
            if stage is not None:
                _put(stage, [ended.get(one.name) for one in recipe.after], found)
                ended[recipe.name] = len(found) - 1
    return tuple(found)


class _Steps:
    """The steps of one loop; what is the same in all of them is evaluated once."""

    def __init__(
        self,
        loop: LoopRecipe,
        body: tuple[AnyStageRecipe, ...],
        env: Environment,
        buffers: Mapping[str, Buffer],
    ) -> None:
        self._loop = loop
        self._body = body
        self._env = loop.with_constants(env)
        self._buffers = buffers
        self._varying = [recipe.varying(loop.varying) for recipe in body]
        # a stage by the names of the file, and on the arrays of a step; None where there is nothing to do
        self._known: dict[tuple[int, tuple[tuple[str, str], ...]], tuple[Stage | None, Stage | None]] = {}

    def put(self, found: list[Stage], ended: dict[str, int]) -> None:
        """Add the stages of all steps to those found, and note where those of each name ended last."""
        loop, names_of_body = self._loop, {recipe.name for recipe in self._body}
        count = loop.repeat.whole(self._env, least=1)
        if count > MAX_LAUNCHES:
            raise self._too_long(count)
        names = loop.names(count, self._buffers)
        steps: list[dict[str, int]] = []
        for step in range(count):
            now: dict[str, int] = {}
            steps.append(now)
            for recipe, stage in self._step_told(step, names):
                after = [
                    (steps[step - one.before] if one.name in names_of_body else ended).get(one.name)
                    for one in recipe.after
                    if one.before <= step
                ]
                _put(stage, after, found)
                now[recipe.name] = len(found) - 1
            ended.update(now)
            if len(found) > MAX_LAUNCHES:
                raise self._too_long(count)

    def _too_long(self, count: int) -> KernelFileError:
        return self._loop.place.error(
            f"repeat: {self._loop.repeat} is {count}; a run has at most {MAX_LAUNCHES} launches"
        )

    def _step_told(self, step: int, names: Names) -> Iterator[tuple[AnyStageRecipe, Stage]]:
        """The stages of a step; errors name it."""
        try:
            yield from self._step(step, names)
        except KernelFileError as error:
            raise KernelFileError(f"{error} (in step {step} of {self._loop.place.key})") from error

    def _step(self, step: int, names: Names) -> Iterator[tuple[AnyStageRecipe, Stage]]:
        env = self._env
        self._loop.put_step(step, env)
        arrays = names.at(step)
        for number, recipe in enumerate(self._body):
            if recipe.when is not None and not recipe.when.value(env):
                continue
            key = number, arrays
            stage, renamed = self._known.get(key, (None, None))
            if key not in self._known or self._varying[number]:
                if stage is None:
                    stage = recipe.evaluated(env, self._buffers)
                else:
                    stage = recipe.stepped(stage, self._varying[number], env, self._buffers)
                renamed = _renamed(stage, dict(arrays)) if stage and arrays else stage
                self._known[key] = stage, renamed
            if renamed is not None:
                yield recipe, renamed


def _put(stage: Stage, after: Sequence[int | None], found: list[Stage]) -> None:
    waits = tuple(sorted({index for index in after if index is not None}))
    found.append(stage.changed(after=waits) if waits else stage)


def _renamed(stage: Stage, arrays: Mapping[str, str]) -> Stage:
    """A stage on other arrays, by the names it knows them by."""
    arguments = tuple(_renamed_argument(item, arrays) for item in stage.arguments)
    return stage.changed(arguments=arguments, library=_renamed_call(stage.library, arrays))


def _renamed_argument(item: StageArgument, arrays: Mapping[str, str]) -> StageArgument:
    if isinstance(item, str):
        return arrays.get(item, item)
    if isinstance(item, BufferView | TensorMap) and item.buffer in arrays:
        return replace(item, buffer=arrays[item.buffer])
    return item


def _renamed_call(call: LibraryCall | None, arrays: Mapping[str, str]) -> LibraryCall | None:
    if call is None:
        return None
    operands = tuple(
        (letter, replace(operand, buffer=arrays.get(operand.buffer, operand.buffer)))
        for letter, operand in call.operands
    )
    return replace(call, operands=operands)


# --- Stages that a library runs, before their expressions are evaluated.

NO_SOURCE = Source("", "")
MAX_LIBRARY_DIMENSION = 2**31 - 1  # cuBLAS, cuFFT and LAPACK count in int
MAX_CPU_THREADS = 4096
_TYPES = ("float32", "float64")
_COMPLEX = ("complex64", "complex128")
_INDICES = ("pivots", "info")  # arrays of int32


@dataclass(frozen=True)
class OperandRecipe:
    """A matrix of a routine."""

    place: Place
    buffer: str
    offset: Formula
    leading: Formula | None
    transposed: Formula

    def evaluated(self, env: Environment, buffer: Buffer, extent: tuple[int, int]) -> Operand:
        """The matrix of one configuration, and one step.

        Args:
            env: values of all names.
            buffer: where it lies.
            extent: rows and columns that the routine asks for, after transposing.

        Raises:
            KernelFileError: it reaches beyond its array.
        """
        transposed = bool(self.transposed.number(env))
        rows, columns = extent[::-1] if transposed else extent
        offset = self.offset.whole(env, 0)
        leading = (
            rows if self.leading is None else self.leading.whole(env, max(1, rows), MAX_LIBRARY_DIMENSION)
        )
        end = offset + (columns - 1) * leading + rows
        if end > buffer.elements:
            raise self.place.error(
                f"{rows} x {columns} elements from {offset} on, ld {leading}, end at {end};"
                f" {buffer.name} has {buffer.elements}"
            )
        return Operand(self.buffer, offset, leading, transposed)


@dataclass(frozen=True)
class LibraryStageRecipe:
    """A stage that a library runs.

    Attributes:
        table: the keys that hold no expressions.
        matrices: by letter.
        numbers: the formulas of ``m``, ``n``, ``k``, ``alpha``, ``beta``, ``inverse``, ``threads`` and
            ``first``; those that are not given are left out.
    """

    place: Place
    table: LibraryStageTable
    matrices: Mapping[str, OperandRecipe]
    numbers: Mapping[str, Formula]
    when: Formula | None
    stream: Formula
    after: tuple[Predecessor, ...]

    @property
    def name(self) -> str:
        """Its name."""
        return self.table.name

    @property
    def loop(self) -> str:
        """The loop it is part of; empty for none."""
        return self.table.loop or ""

    @property
    def source(self) -> Source:
        """Nothing that is compiled."""
        return NO_SOURCE

    def varying(self, names: Collection[str]) -> frozenset[str | int]:
        """See ``StageRecipe.varying``."""
        used = [*self.numbers.values(), *(matrix.offset for matrix in self.matrices.values())]
        used += [matrix.leading for matrix in self.matrices.values() if matrix.leading is not None]
        varies = any(not one.expression.names.isdisjoint(names) for one in used)
        return frozenset({"library"} if varies else ())

    def stepped(
        self, stage: Stage, fields: Collection[str | int], env: Environment, buffers: Mapping[str, Buffer]
    ) -> Stage | None:
        """See ``StageRecipe.stepped``.

        Raises:
            KernelFileError: as ``evaluated``.
        """
        del fields
        call = self._call(env, buffers)
        return None if call is None else stage.changed(library=call)

    def evaluated(self, env: Environment, buffers: Mapping[str, Buffer]) -> Stage | None:
        """The call of one configuration, and of the first step of its loop; None where a dimension is 0.

        Raises:
            KernelFileError: a matrix reaches beyond its array, or the types of the arrays do not fit.
        """
        call, stream = self._call(env, buffers), self.stream.whole(env, 0, 7)
        if call is None:
            return None
        return Stage(self.name, NO_SOURCE, "", (), (1, 1, 1), (1, 1, 1), 0, (), stream=stream, library=call)

    def _call(self, env: Environment, buffers: Mapping[str, Buffer]) -> LibraryCall | None:
        routine = self.table.library
        m, n, k = (self._dimension(name, env) for name in ("m", "n", "k"))
        if m == 0 or n == 0 or (k == 0 and routine in ("gemm", "syrk")):
            return None
        extents = _extents(routine, self.table.side, m, n, k)
        operands = tuple(
            (letter, matrix.evaluated(env, buffers[matrix.buffer], extents[letter]))
            for letter, matrix in self.matrices.items()
        )
        return LibraryCall(
            routine,
            self._dtype({name: buffers[matrix.buffer] for name, matrix in self.matrices.items()}),
            operands,
            m,
            n,
            k,
            alpha=float(self.numbers["alpha"].number(env)),
            beta=float(self.numbers["beta"].number(env)),
            fill=self.table.fill,
            side=self.table.side,
            unit=self.table.unit,
            inverse=bool(self.numbers["inverse"].number(env)),
            threads=self.numbers["threads"].whole(env, 0, MAX_CPU_THREADS),
            first=self.numbers["first"].whole(env, 0, MAX_LIBRARY_DIMENSION),
        )

    def _dimension(self, name: str, env: Environment) -> int:
        formula = self.numbers.get(name)
        if formula is not None:
            return formula.whole(env, 0, MAX_LIBRARY_DIMENSION)
        if name == "m":
            return self._dimension("n", env) if self.table.library in ("syrk", "lapack-potrf") else 1
        return 0

    def _dtype(self, given: Mapping[str, Buffer]) -> str:
        """The type of the matrices.

        Raises:
            KernelFileError: they are of several, or of one that the routine does not take.
        """
        for name in given.keys() & set(_INDICES):
            if given[name].dtype != "int32":
                raise self.place.error(f"{name}: {given[name].name} is {given[name].dtype}; it must be int32")
        buffers = [buffer for name, buffer in given.items() if name not in _INDICES]
        known = _COMPLEX if self.table.library == "fft" else _TYPES
        found = {buffer.dtype for buffer in buffers}
        if len(found) > 1 or not found.issubset(known):
            told = ", ".join(f"{buffer.name} is {buffer.dtype}" for buffer in buffers)
            raise self.place.error(
                f"{told}; {self.table.library} takes arrays of one type: {', '.join(known)}"
            )
        return found.pop()


def _extents(routine: Routine, side: str, m: int, n: int, k: int) -> dict[str, tuple[int, int]]:
    """Rows and columns of each matrix as the routine sees it."""
    if routine == "gemm":
        return {"a": (m, k), "b": (k, n), "c": (m, n)}
    if routine == "syrk":
        return {"a": (n, k), "c": (n, n)}
    if routine == "trsm":
        order = m if side == "left" else n
        return {"a": (order, order), "b": (m, n)}
    if routine.startswith("lapack-"):
        return {"a": (m, n), "info": (1, 1), **dict.fromkeys(("pivots", "tau"), (min(m, n), 1))}
    return dict.fromkeys(OPERANDS["fft"], (n, m))


# --- Stages that launch a function.

MAX_GRID = (2**31 - 1, 65535, 65535)  # CUDA C++ Programming Guide, technical specifications
MAX_BLOCK = (1024, 1024, 64)
MAX_BLOCK_THREADS = 1024
MAX_SHARED_BYTES = 2**20  # above that of any GPU; the device's own limit is applied by pruning
CLUSTER_ARCHITECTURE = 90  # clusters and tensor maps came with it
MAX_CLUSTER = 16  # beyond 8 the device must be asked to allow it
MAX_ARCHITECTURE = 1000
MAX_STREAM = 7
_STEPPED = ("block", "grid", "shared_bytes", "moved_bytes")


@dataclass(frozen=True)
class StageRecipe:
    """One launch whose geometry is not evaluated yet.

    Attributes:
        arguments: names of buffers, or what is passed by value.
        when: None for always.
        registers: None where the file declares no resources.
        symbols: (variable of the source, buffer) pairs.
        setup: launched once for the arrays, before runs.
        macros: tunables and sizes that the source gets as macros.
    """

    place: Place
    name: str
    source: Source
    entry: Template
    options: tuple[Template, ...]
    grid: tuple[Formula, ...]
    block: tuple[Formula, ...]
    shared_bytes: Formula
    arguments: tuple[ParameterRecipe, ...]
    min_architecture: Formula
    resident: Formula
    cluster: Formula
    when: Formula | None
    registers: Formula | None
    static_shared_bytes: Formula | None
    symbols: tuple[tuple[str, str], ...]
    cooperative: Formula
    setup: bool
    loop: str = ""
    stream: Formula | None = None
    after: tuple[Predecessor, ...] = ()
    macros: tuple[str, ...] = ()
    moved_bytes: Formula | None = None

    def varying(self, names: Collection[str]) -> frozenset[str | int]:
        """The fields and arguments that depend on names whose values differ from step to step."""
        used: dict[str | int, Sequence[Formula]] = {
            "grid": self.grid,
            "block": self.block,
            "shared_bytes": (self.shared_bytes,),
            "moved_bytes": () if self.moved_bytes is None else (self.moved_bytes,),
            **{place: tuple(values_of(argument)) for place, argument in enumerate(self.arguments)},
        }
        return frozenset(
            field
            for field, formulas in used.items()
            if any(not formula.expression.names.isdisjoint(names) for formula in formulas)
        )

    def evaluated(self, env: Environment, buffers: Mapping[str, Buffer]) -> Stage:
        """The launch of one configuration, and of the first step of its loop.

        Raises:
            KernelFileError: the geometry is beyond what CUDA can launch, or a view beyond its array.
        """
        changing = {field: self._field(field, env) for field in _STEPPED}
        arguments = tuple([parameter(item, env, buffers) for item in self.arguments])
        cluster = self.cluster.whole(env, 1, MAX_CLUSTER)
        self._check_cluster(cluster, changing["grid"])
        least = self.min_architecture.whole(env, 0, MAX_ARCHITECTURE)
        if cluster > 1 or any(isinstance(argument, TensorMap) for argument in arguments):
            least = max(least, CLUSTER_ARCHITECTURE)
        entry = self.entry.fill(env)
        options = (*(option.fill(env) for option in self.options), *self._defined(env))
        self._check(entry, options)
        return Stage(
            name=self.name,
            source=self.source,
            entry=entry,
            options=options,
            arguments=arguments,
            declared=self._declared(env),
            min_architecture=least,
            resident=bool(self.resident.number(env)),
            cluster=cluster,
            symbols=self.symbols,
            cooperative=bool(self.cooperative.number(env)),
            setup=self.setup,
            stream=0 if self.stream is None else self.stream.whole(env, 0, MAX_STREAM),
            **changing,
        )

    def stepped(
        self, stage: Stage, fields: Collection[str | int], env: Environment, buffers: Mapping[str, Buffer]
    ) -> Stage:
        """The stage in another step than the one it was evaluated for: some fields and arguments anew.

        Raises:
            KernelFileError: as ``evaluated``.
        """
        arguments = list(stage.arguments)
        changed: dict[str, Any] = {}
        for key in fields:
            if isinstance(key, int):
                arguments[key] = parameter(self.arguments[key], env, buffers)
            else:
                changed[key] = self._field(key, env)
        if "grid" in changed:
            self._check_cluster(stage.cluster, changed["grid"])
        return stage.changed(arguments=tuple(arguments), **changed)

    def _check(self, entry: str, options: tuple[str, ...]) -> None:
        """Refuse what the compiler must not be given, now that all expressions have their values."""
        try:
            check_options(options, self.source.include_paths)
        except RefusedOptionError as e:
            raise (self.options[0].place if self.options else self.place).error(e) from e
        try:
            check_name_expression(entry)
        except RefusedOptionError as e:
            raise self.entry.place.error(e) from e

    def _defined(self, env: Environment) -> list[str]:
        """NVRTC options of the macros; a tunable without a value has none."""
        values = ((name, env[name]) for name in self.macros)
        return [
            f"-D{n}={int(v) if isinstance(v, bool) else v}" for n, v in values if not isinstance(v, NoValue)
        ]

    def _field(self, field: str, env: Environment) -> Any:  # noqa: ANN401
        """One of the fields that may differ from step to step."""
        if field == "moved_bytes":
            return None if self.moved_bytes is None else float(self.moved_bytes.number(env, least=0))
        if field == "shared_bytes":
            return self.shared_bytes.whole(env, 0, MAX_SHARED_BYTES)
        if field == "grid":
            return _extent(self.grid, env, MAX_GRID)
        block = _extent(self.block, env, MAX_BLOCK)
        if math.prod(block) > MAX_BLOCK_THREADS:
            formulas = ", ".join(map(str, self.block))
            raise self.block[0].place.error(
                f"{formulas} makes {math.prod(block)} threads; a block has at most {MAX_BLOCK_THREADS}"
            )
        return block

    def _check_cluster(self, cluster: int, grid: tuple[int, int, int]) -> None:
        if grid[0] % cluster:
            raise self.cluster.place.error(f"a grid of {grid[0]} blocks is not made of clusters of {cluster}")

    def _declared(self, env: Environment) -> Resources | None:
        if self.registers is None:
            return None
        shared = 0 if self.static_shared_bytes is None else self.static_shared_bytes.whole(env, least=0)
        return Resources(self.registers.whole(env, least=1), shared, compiled=False)


def _extent(
    formulas: tuple[Formula, ...], env: Environment, most: tuple[int, int, int]
) -> tuple[int, int, int]:
    values = [formula.whole(env, 1, limit) for formula, limit in zip(formulas, most, strict=False)]
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z


# --- A kernel file with all expressions parsed, for ``KernelFile.plan``.


@dataclass(frozen=True)
class ConditionRecipe:
    """When a tunable has a value.

    Attributes:
        when: the condition.
        otherwise: what stands for the tunable where it is false; None where nothing may.
        derived: the derived names that the condition needs.
    """

    when: Formula
    otherwise: Formula | None
    derived: Mapping[str, Formula]

    @property
    def condition(self) -> Condition:
        """The same for a space."""
        return Condition(self.when.expression, None if self.otherwise is None else self.otherwise.expression)

    def instead(self, env: Environment) -> TunableValue | NoValue:
        """Return the value of the tunable in an environment if it has none of its own."""
        if self.otherwise is not None:
            return self.otherwise.value(env)
        return self.condition.no_value

    def holds(self, env: Environment) -> bool:
        """Return True if the tunable has a value, by the tunables above."""
        return bool(self.when.value(with_derived(env, self.derived)))


@dataclass(frozen=True)
class Rule:
    """A condition that configurations must satisfy.

    Attributes:
        expression: the condition; of a variant's, true where the variant's own is false.
        text: as the file writes it.
        where: the condition of its variant; empty outside of variants.
    """

    expression: Expression
    text: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.text} (where {self.where})" if self.where else self.text


@dataclass(frozen=True)
class WorkRecipe:
    """Formulas of the work; ``rate_name`` and ``rate_scale`` are those of ``Work``."""

    bytes: Formula
    operations: Formula
    steps: Formula
    rate_units: Formula
    rate_name: str
    rate_scale: float

    def evaluated(self, env: Environment) -> Work:
        """The work of one configuration."""
        return Work(
            bytes=float(self.bytes.number(env, least=0)),
            operations=float(self.operations.number(env, least=0)),
            steps=float(self.steps.number(env, least=0)),
            rate_units=float(self.rate_units.number(env, least=0)),
            rate_name=self.rate_name,
            rate_scale=self.rate_scale,
        )


@dataclass(frozen=True)
class StatedAnswer:
    """An analytical answer that a kernel file states.

    Attributes:
        table: what messages call its table.
        values: of the tunables, as of ``Recipe.default``.
    """

    table: str
    values: Mapping[str, Formula | str | None]


@dataclass(frozen=True)
class Recipe:
    """Everything a kernel file says.

    Values of ``default`` are formulas, or texts that are values themselves; None for tunables with a
    condition for which none is given. ``stated`` has the analytical answers that the file states, the
    preferred one first, and ``measured`` those of a file that come before them. ``work`` is None where the
    file states none, and ``stream_priority`` where priorities are not searched. ``extends`` names kernels
    that this one is taken for at sizes and types that they refuse.
    """

    place: Place
    name: str
    description: str
    family: str
    sizes: Mapping[str, SizeValues]
    optional: tuple[str, ...]
    batch: Formula
    tunables: Mapping[str, tuple[TunableValue, ...]]
    conditions: Mapping[str, ConditionRecipe]
    derived: Mapping[str, Formula]
    roles: Mapping[str, str]
    rules: tuple[Rule, ...]
    spills: bool
    default: Mapping[str, Formula | str | None]
    buffers: tuple[BufferRecipe, ...]
    stages: tuple[AnyStageRecipe, ...]
    loops: Mapping[str, LoopRecipe]
    problem: ProblemSpec
    work: WorkRecipe | None
    min_occupancy: float | None
    analytical: bool = True
    stated: tuple[StatedAnswer, ...] = ()
    measured: MeasuredAnswers | None = None
    reference: StageRecipe | None = None
    reference_files: Mapping[tuple[str, str], FileRecipe] = field(default_factory=dict)
    stream_priority: Formula | None = None
    extends: tuple[str, ...] = ()

    @cached_property
    def checked_problem(self) -> ProblemSpec:
        """The problem with the hashes of its files.

        Raises:
            KernelFileError: one cannot be read any more.
        """
        files = tuple((name, file.hashed) for name, file in self.reference_files.items())
        return replace(self.problem, files=files)

    @property
    def data_hashes(self) -> tuple[str, ...]:
        """SHA-256 of every file of data, of functions and of measured answers.

        Raises:
            KernelFileError: one cannot be read any more.
        """
        inputs = (buffer.input.files for buffer in self.buffers if buffer.input is not None)
        files = [*itertools.chain.from_iterable(inputs), *self.reference_files.values()]
        function = self.problem.function
        further = [one.sha256 for one in (function, self.measured) if one is not None]
        return (*(file.hashed.sha256 for file in files), *further)

    def priority(self, env: Environment) -> int:
        """Priority of the workload's stream, 0 for the least urgent."""
        return 0 if self.stream_priority is None else self.stream_priority.whole(env, least=0)

    def launches(self, env: Environment) -> tuple[Stage, ...]:
        """The stages whose ``when`` holds, those of loops once for every step.

        Raises:
            KernelFileError: none is left, or one cannot be launched.
        """
        stages = written_out(self.stages, self.loops, env, BufferTable(self.buffers, env))
        if not stages:
            raise KernelFileError(f"{self.place.path}: [[stage]] when: every stage is left out")
        if all(stage.setup for stage in stages):
            raise KernelFileError(f"{self.place.path}: [[stage]] setup: no stage is left that runs launch")
        return stages

    def arrays(self, env: Environment, stages: Sequence[Stage]) -> tuple[Buffer, ...]:
        """The buffers of one configuration, without scratch arrays that none of its stages takes.

        Arrays that take turns with an output between the steps of a loop follow.
        """
        taken = frozenset().union(*(stage.buffers for stage in stages))
        evaluated = [
            buffer.evaluated(env)
            for buffer in self.buffers
            if buffer.role not in ("scratch", "zeroed") or buffer.name in taken
        ]
        between = [
            replace(buffer, name=buffer.name + BETWEEN, role="scratch")
            for buffer in evaluated
            if buffer.name + BETWEEN in taken
        ]
        return (*evaluated, *between)
