"""Arguments and stages of a kernel file with all expressions parsed.

Arguments are arrays, views, values, structs and tensor maps; stages launch functions or call libraries.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.kernel_files.build_command import ARCHITECTURE, OUTPUT
from tuner.kernel_files.formulas import Environment, Formula, Location, Template
from tuner.kernel_files.input_reader import InputRecipe
from tuner.kernel_files.schema import DTYPES, MAPPED_DTYPES, NONE, OPERANDS, LibraryStageTable, Routine
from tuner.kernel_files.source_folder import NamedFiles
from tuner.kernel_files.triton_stage import TritonRecipe
from tuner.model.elements import BFLOAT16, element_dtype, struct_bytes
from tuner.model.errors import suggestion
from tuner.model.expressions.operations import NoValue
from tuner.model.plan import (
    Buffer,
    BufferRole,
    BufferView,
    LibraryCall,
    Operand,
    Resources,
    Scalar,
    Source,
    Specialisation,
    Stage,
    StageArgument,
    StructValue,
    TensorMap,
)
from tuner.system.untrusted.compiler_options import (
    RefusedOptionError,
    check_name_expression,
    check_options,
    ptxas_options,
)

# --- Arguments.

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

    ``row_pitch`` says that its rows may lie apart, ``in_place`` names the input whose memory it may be, and
    ``cleared`` that every run begins with zeros in it.
    """

    name: str
    role: BufferRole
    dtype: Template
    shape: tuple[Formula, ...]
    input: InputRecipe | None = None
    restored: bool = False
    row_pitch: bool = False
    in_place: str | None = None
    cleared: bool = False

    def evaluated(self, env: Environment) -> Buffer:
        """The buffer of one configuration.

        Raises:
            KernelFileError: the type is none of NumPy's that can be used, an axis is not a whole number, or
                the array cannot hold its input.
        """
        dtype = known_dtype(self.dtype.location, self.dtype.fill(env), DTYPES)
        shape = tuple(axis.whole(env, least=0 if self.role == "table" else 1) for axis in self.shape)
        values = None if self.input is None else self.input.evaluated(env, dtype, shape)
        return Buffer(self.name, dtype, shape, self.role, values, self.restored, self.cleared)


class BufferTable(dict[str, Buffer]):
    """The buffers of one configuration by name, each evaluated when it is first asked for."""

    def __init__(self, recipes: Sequence[BufferRecipe], env: Environment) -> None:
        super().__init__()
        self._recipes = {recipe.name: recipe for recipe in recipes}
        self._env = env

    def __missing__(self, name: str) -> Buffer:
        self[name] = buffer = self._recipes[name].evaluated(self._env)
        return buffer


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
        return BufferView(self.buffer, self.offset.whole(env, 0, max(0, buffers[self.buffer].elements - 1)))


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
        if self.dtype.is_plain and self.dtype.begin == NONE:
            return Scalar(NONE, 0)
        dtype = known_dtype(self.dtype.location, self.dtype.fill(env), DTYPES)
        if dtype in _WHOLE_TYPES:
            return Scalar(dtype, self.value.whole(env, *_WHOLE_TYPES[dtype]))
        number = self.value.number(env)
        if abs(number) > _LARGEST.get(dtype, math.inf):
            raise self.value.location.error(f"{self.value} is {number}, which is beyond {dtype}")
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
        names = tuple((field.name, scalar.dtype) for field, scalar in zip(self.fields, scalars, strict=True))
        return StructValue(names, struct_bytes(scalars))


@dataclass(frozen=True)
class TensorMapRecipe:
    """A tensor map; evaluated only for stages that take it."""

    location: Location
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
        element = known_dtype(self.element.location, self.element.fill(env), MAPPED_DTYPES)
        size = element_dtype(element).itemsize
        width, height = (formula.whole(env, 1, MAX_TENSOR_DIMENSION) for formula in self.dims)
        box_width, box_height = (formula.whole(env, 1, MAX_BOX) for formula in self.box)
        for name, row_bytes in (("dims", width * size), ("box", box_width * size)):
            if row_bytes % ALIGNMENT_BYTES:
                raise self.location.error(
                    f"a row of {name} takes {row_bytes} bytes; it must be a multiple of {ALIGNMENT_BYTES}"
                )
        buffer = self.buffer.evaluated(env)
        available = buffer.elements * element_dtype(buffer.dtype).itemsize
        if width * height * size > available:
            raise self.location.error(
                f"dims take {width * height * size} bytes, and {buffer.name} has {available}"
            )
        promotion = self.promotion.whole(env, least=0)
        if promotion not in PROMOTIONS:
            listed = ", ".join(map(str, PROMOTIONS))
            raise self.promotion.location.error(f"{self.promotion} is {promotion}; choose from {listed}")
        return TensorMap(buffer.name, element, (width, height), (box_width, box_height), promotion)


ArgumentRecipe = str | ScalarRecipe | StructRecipe | TensorMapRecipe
"""A parameter of a function: the name of a buffer, or what is passed by value."""

ParameterRecipe = ArgumentRecipe | ViewRecipe
"""Parameter of a stage: an argument, or a buffer from one of its elements on."""


def known_dtype(location: Location, dtype: str, dtypes: tuple[str, ...]) -> str:
    """The type itself.

    Raises:
        KernelFileError: it is not among ``dtypes``.
    """
    if dtype not in dtypes:
        raise location.error(f"{dtype!r} is not one of {', '.join(dtypes)}{suggestion(dtype, dtypes)}")
    return dtype


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


# --- Stages.


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


# --- Stages that launch a function.

MAX_GRID = (2**31 - 1, 65535, 65535)  # CUDA C++ Programming Guide, technical specifications
MAX_BLOCK = (1024, 1024, 64)
MAX_BLOCK_THREADS = 1024
MAX_SHARED_BYTES = 2**20  # above that of any GPU; the device's own limit is applied by pruning
CLUSTER_ARCHITECTURE = 90  # clusters and tensor maps came with it
MAX_CLUSTER = 16  # beyond 8 the device must be asked to allow it
MAX_ARCHITECTURE = 1000
MAX_STREAM = 7
_LATER = {name: f"{{{name}}}" for name in (OUTPUT, ARCHITECTURE)}  # filled where the command runs
_STEPPED = ("block", "grid", "shared_bytes", "moved_bytes")


@dataclass(frozen=True)
class StageRecipe:
    """One launch whose geometry is not evaluated yet.

    Attributes:
        arguments: names of buffers, or what is passed by value.
        registers: None where the file declares no resources.
        symbols: (variable of the source, buffer) pairs.
        macros: tunables and sizes that the source gets as macros; of Triton, as constants and options.
        files: of which each configuration has one as its source; ``source`` stands for all of them then.
        build: words of the command that makes code of the source; of Triton, the interpreter.
        triton: where its source is of Triton.
    """

    location: Location
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
    files: NamedFiles | None = None
    build: tuple[Template, ...] = ()
    triton: TritonRecipe | None = None

    def varying(self, names: Collection[str]) -> frozenset[str | int]:
        """The fields and arguments that depend on names whose values differ from step to step."""
        used: dict[str | int, Sequence[Formula]] = {
            "grid": self.grid,
            "block": self.block,
            "shared_bytes": (self.shared_bytes,),
            "moved_bytes": () if self.moved_bytes is None else (self.moved_bytes,),
            **{index: tuple(values_of(argument)) for index, argument in enumerate(self.arguments)},
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
        specialisation: tuple[Specialisation, ...] = ()
        if self.triton is None:
            entry, options = self._checked_entry(env), self._options_of_nvrtc(env)
        else:
            own = self.triton.evaluated(env, arguments, buffers)
            entry, options, arguments = self.triton.function.name, own.options, own.arguments
            specialisation, changing["block"] = own.specialisation, own.block
            least = max(least, own.least_architecture)
        resources = None
        if self.registers is not None:
            shared = self.static_shared_bytes
            static = 0 if shared is None else shared.whole(env, least=0)
            resources = Resources(self.registers.whole(env, least=1), static, compiled=False)
        return Stage(
            name=self.name,
            source=self.source if self.files is None else self.files.source(env),
            entry=entry,
            options=options,
            specialisation=specialisation,
            build=tuple(word.fill({**env, **_LATER}) for word in self.build),
            arguments=arguments,
            declared=resources,
            min_architecture=least,
            resident=bool(self.resident.number(env)),
            cluster=cluster,
            symbols=self.symbols,
            cooperative=bool(self.cooperative.number(env)),
            setup=self.setup,
            stream=0 if self.stream is None else self.stream.whole(env, 0, MAX_STREAM),
            **changing,
        )

    def _options_of_nvrtc(self, env: Environment) -> tuple[str, ...]:
        """The options, with a macro for each name that the source uses.

        Raises:
            KernelFileError: the compiler must not be given one; here all expressions have their values.
        """
        options = [option.fill(env) for option in self.options]
        for name in self.macros:
            value = env[name]
            if not isinstance(value, NoValue):
                options.append(f"-D{name}={int(value) if isinstance(value, bool) else value}")
        try:
            check_options(options, self.source.include_paths)
            if self.source.language == "ptx":
                options = list(ptxas_options(options))
        except RefusedOptionError as e:
            raise (self.options[0].location if self.options else self.location).error(e) from e
        return tuple(options)

    def _checked_entry(self, env: Environment) -> str:
        entry = self.entry.fill(env)
        try:
            check_name_expression(entry)
        except RefusedOptionError as e:
            raise self.entry.location.error(e) from e
        return entry

    def stepped(
        self, stage: Stage, fields: Collection[str | int], env: Environment, buffers: Mapping[str, Buffer]
    ) -> Stage:
        """The stage in another step than the one it was evaluated for: some fields and arguments anew.

        Raises:
            KernelFileError: as ``evaluated``.
        """
        if self.triton is not None:  # a number of a step may be one that is compiled in
            whole = self.evaluated(env, buffers)
            return whole.changed(after=stage.after, stream=stage.stream)
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
            raise self.block[0].location.error(
                f"{formulas} makes {math.prod(block)} threads; a block has at most {MAX_BLOCK_THREADS}"
            )
        return block

    def _check_cluster(self, cluster: int, grid: tuple[int, int, int]) -> None:
        if grid[0] % cluster:
            raise self.cluster.location.error(
                f"a grid of {grid[0]} blocks is not made of clusters of {cluster}"
            )


def _extent(
    formulas: tuple[Formula, ...], env: Environment, most: tuple[int, int, int]
) -> tuple[int, int, int]:
    values = [formula.whole(env, 1, limit) for formula, limit in zip(formulas, most, strict=False)]
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z


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

    location: Location
    buffer: str
    offset: Formula
    leading: Formula | None
    transposed: Formula

    def evaluated(self, env: Environment, buffer: Buffer, extent: tuple[int, int]) -> Operand:
        """The matrix of one configuration, and one step; ``extent`` is rows and columns after transposing.

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
            raise self.location.error(
                f"{rows} x {columns} elements from {offset} on, ld {leading}, end at {end};"
                f" {buffer.name} has {buffer.elements}"
            )
        return Operand(self.buffer, offset, leading, transposed)


@dataclass(frozen=True)
class LibraryStageRecipe:
    """A stage that a library runs.

    Attributes:
        table: the keys that hold no expressions.
        numbers: the formulas of ``m``, ``n``, ``k``, ``alpha``, ``beta``, ``inverse``, ``threads`` and
            ``first``; those that are not given are left out.
    """

    location: Location
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
        varies = any(not formula.expression.names.isdisjoint(names) for formula in used)
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
            self._dtype(buffers),
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

    def _dtype(self, buffers: Mapping[str, Buffer]) -> str:
        """The type of the matrices.

        Raises:
            KernelFileError: they are of several, or of one that the routine does not take.
        """
        matrices: list[Buffer] = []
        for name, matrix in self.matrices.items():
            buffer = buffers[matrix.buffer]
            if name not in _INDICES:
                matrices.append(buffer)
            elif buffer.dtype != "int32":
                raise self.location.error(f"{name}: {buffer.name} is {buffer.dtype}; it must be int32")
        choices = _COMPLEX if self.table.library == "fft" else _TYPES
        dtypes = {buffer.dtype for buffer in matrices}
        if len(dtypes) > 1 or not dtypes.issubset(choices):
            types = ", ".join(f"{buffer.name} is {buffer.dtype}" for buffer in matrices)
            raise self.location.error(
                f"{types}; {self.table.library} takes arrays of one type: {', '.join(choices)}"
            )
        return dtypes.pop()


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


AnyStageRecipe = StageRecipe | LibraryStageRecipe
