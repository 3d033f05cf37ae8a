"""Workloads, configurations and plans: all that is to be run."""

import hashlib
import math
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any, Literal

# --- What is passed to a kernel by value.


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


# --- What stages of chains take beside whole arrays: views with an offset, and calls of libraries.

Routine = Literal["gemm", "syrk", "trsm", "fft", "lapack-potrf", "lapack-getrf", "lapack-geqrf"]
Fill = Literal["lower", "upper"]
Side = Literal["left", "right"]


@dataclass(frozen=True)
class BufferView:
    """A buffer from one of its elements on: a pointer moved forward.

    Attributes:
        buffer: name of the plan's buffer.
        offset_elements: elements before the first one of the view, 0 or more.
    """

    buffer: str
    offset_elements: int


@dataclass(frozen=True)
class Operand:
    """A matrix in a buffer, column-major as in BLAS: element (i, j) is at ``offset + i + j * leading``.

    Attributes:
        buffer: name of the plan's buffer.
        offset_elements: of element (0, 0).
        leading: elements from one column to the next.
        transposed: whether the routine takes its transpose.
    """

    buffer: str
    offset_elements: int = 0
    leading: int = 1
    transposed: bool = False


@dataclass(frozen=True)
class LibraryCall:
    """A stage that cuBLAS or cuFFT runs, or LAPACK on the host.

    - ``gemm``: c (m x n) = alpha op(a) op(b) + beta c, with k columns of op(a).
    - ``syrk``: c (n x n), of which only one triangle is read and written, = alpha op(a) op(a)' + beta c, with
      k columns of op(a).
    - ``trsm``: b (m x n) = alpha times the solution x of op(a) x = b (side ``left``) or x op(a) = b
      (``right``); a is triangular.
    - ``fft``: c = transform of a, m transforms of length n one after another, not normalised.
    - ``lapack-potrf``: the lower triangle of a (n x n) becomes its Cholesky factor; ``info`` as LAPACK's.
    - ``lapack-getrf``: a (m x n) becomes its LU factors; ``pivots`` and ``info`` as LAPACK's.
    - ``lapack-geqrf``: a (m x n) becomes its QR factors; ``tau`` as LAPACK's.

    The last three are *host stages*: a is copied to the host, factored there, and copied back.

    Attributes:
        routine: what is computed.
        dtype: NumPy dtype name of all operands.
        operands: what it takes, by name: ``a``, ``b`` and ``c``, of which it writes to the last; or a matrix
            and what LAPACK says of it, all of which it writes to.
        m: rows, or transforms.
        n: columns, or the length of a transform.
        k: of gemm and syrk; 0 otherwise.
        alpha: factor.
        beta: factor of what c holds before.
        fill: the triangle of c (syrk) or of a (trsm) that is used.
        side: where op(a) stands (trsm).
        unit: whether the diagonal of a is taken to be 1 (trsm).
        inverse: whether the transform is the inverse one (fft).
        threads: of the CPU (host stages); 0 for as many as the process may use.
        first: rows and columns before the matrix (host stages): pivots and info count from there.
    """

    routine: Routine
    dtype: str
    operands: tuple[tuple[str, Operand], ...]
    m: int
    n: int
    k: int = 0
    alpha: float = 1.0
    beta: float = 0.0
    fill: Fill = "lower"
    side: Side = "left"
    unit: bool = False
    inverse: bool = False
    threads: int = 0
    first: int = 0

    @property
    def on_host(self) -> bool:
        """True for a host stage."""
        return self.routine.startswith("lapack-")

    def operand(self, letter: str) -> Operand:
        """The operand of a name.

        Raises:
            KeyError: the routine takes none of this name.
        """
        return dict(self.operands)[letter]


# --- Where the values of an array come from: a generator, a file of data, a function in a Python file.

InputKind = Literal[
    "uniform",
    "normal",
    "dominant",
    "definite",
    "spd",
    "integers",
    "constant",
    "range",
    "sorted",
    "unique",
    "permutation",
    "csr_offsets",
    "file",
]


@dataclass(frozen=True)
class DataFile:
    """An array in a file of NumPy.

    Attributes:
        path: absolute, of a ``.npy`` or ``.npz`` file.
        key: name of the array in a ``.npz`` file, else empty.
        sha256: hex digest of the file, when the kernel file was read.
    """

    path: str
    key: str = ""
    sha256: str = ""

    def __str__(self) -> str:
        return f'{self.path} ["{self.key}"]' if self.key else self.path


@dataclass(frozen=True)
class InputSpec:
    """Specification of the values of an input.

    Attributes:
        kind: the generator, or ``file``.
        numbers: its arguments: bounds, mean and deviation, a value, or a sum.
        file: for ``file``.
        inner: for ``sorted``: what is sorted.
    """

    kind: InputKind
    numbers: tuple[int | float, ...] = ()
    file: DataFile | None = None
    inner: "InputSpec | None" = None

    def __str__(self) -> str:
        arguments = self.file or self.inner or ", ".join(f"{number:g}" for number in self.numbers)
        return f"{self.kind}({arguments})"


@dataclass(frozen=True)
class PythonFunction:
    """A function in a Python file of the user; only worker processes import it.

    Attributes:
        path: absolute, of the file.
        name: of the function.
        sha256: hex digest of the file, when the kernel file was read.
        arrays: the library whose arrays it is called with.
    """

    path: str
    name: str
    sha256: str = ""
    arrays: Literal["numpy", "cupy"] = "numpy"

    def __str__(self) -> str:
        return f"{self.path}:{self.name}"


TunableValue = bool | int | float | str

STREAM_PRIORITY = "stream_priority"
SM_SHARE = "sm_share"
PLACE = (STREAM_PRIORITY, SM_SHARE)
"""Names of the tunables that workloads have where their places beside each other are searched."""
_NAMES_BUFFER = (str, BufferView, TensorMap)
BufferRole = Literal["in", "out", "inout", "scratch", "zeroed", "table"]
OWN_ROLES = ("scratch", "zeroed", "table")
"""Roles of buffers that no caller hands over or gets."""


class Configuration(Mapping[str, TunableValue]):
    """Values for the tunables of one workload; hashable.

    A tunable whose condition is false is not in it. Iterates in the order of declaration; equality, as of any
    mapping, does not depend on that order.
    """

    __slots__ = ("_hash", "_values")

    def __init__(self, items: Mapping[str, TunableValue] | Iterable[tuple[str, TunableValue]]) -> None:
        self._values: dict[str, TunableValue] = dict(items)
        self._hash = hash(frozenset(self._values.items()))

    def __getitem__(self, name: str) -> TunableValue:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def keys(self) -> KeysView[str]:
        """The names, without a call for each of them."""
        return self._values.keys()

    def items(self) -> ItemsView[str, TunableValue]:
        """Names and values, without a call for each of them."""
        return self._values.items()

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self._values == other._values if isinstance(other, Configuration) else NotImplemented

    def as_dict(self) -> dict[str, TunableValue]:
        """A new dictionary of it: many values of many configurations are looked up faster there."""
        return dict(self._values)

    def __reduce__(self) -> tuple[type, tuple[tuple[tuple[str, TunableValue], ...]]]:
        return Configuration, (tuple(self._values.items()),)  # hashes of text differ between processes

    def __str__(self) -> str:
        return shown_values(self)

    def __repr__(self) -> str:
        return f"Configuration({self._values!r})"


def tunable_names(configurations: Iterable[Configuration]) -> tuple[str, ...]:
    """Names of the tunables that have a value in any of the configurations, in the order they are met."""
    return tuple(dict.fromkeys(name for configuration in configurations for name in configuration))


def without_place(configuration: Configuration) -> Configuration:
    """A configuration without its place beside others, which changes neither code nor answers."""
    if not any(name in configuration for name in PLACE):
        return configuration
    return Configuration([(name, value) for name, value in configuration.items() if name not in PLACE])


def with_place(configuration: Configuration, place: Mapping[str, TunableValue]) -> Configuration:
    """A configuration with values of tunables of ``PLACE``, whatever it had."""
    return Configuration({**configuration, **place})


def shown_values(values: Mapping[str, TunableValue]) -> str:
    """Values of tunables as messages and tables have them: truth values as kernels get them, 0 or 1."""
    plain = ((name, int(value) if isinstance(value, bool) else value) for name, value in values.items())
    return " ".join(f"{name}={value}" for name, value in plain)


@dataclass(frozen=True)
class Workload:
    """A kernel of the catalogue at one problem size.

    Attributes:
        kernel: name of the kernel.
        sizes: problem sizes as (name, value), in the order of the kernel file, e.g. ``(("N", 1024),)``.
        batch: independent problems solved by one run.
        implied: names of optional sizes that have their default and are left out of the name; they follow
            from the sizes and the kernel file, so workloads are compared without them.
    """

    kernel: str
    sizes: tuple[tuple[str, int | str], ...]
    batch: int
    implied: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        sizes_text = [f"{name}={value}" for name, value in self.sizes if name not in self.implied]
        return f"{self.kernel}:{','.join(sizes_text)}" if sizes_text else self.kernel


Language = Literal["cuda", "triton", "ptx", "cubin"]
"""Language of a source, which decides the backend of the compiler."""


@dataclass(frozen=True)
class Source:
    """Source of a kernel with the headers it may include, as text.

    Attributes:
        path: where the text came from; shown in messages, never opened again.
        text: the translation unit.
        headers: (include name, text) of every header beside it.
        include_paths: absolute folders that the compiler looks into for what ``headers`` lacks.
        include_sha256: digest of what these folders hold; empty without folders.
        system_headers: stand-ins are there for the headers of C and C++ that it includes.
        language: what it is; the bytes of a cubin are text in Latin-1.
    """

    path: str
    text: str
    headers: tuple[tuple[str, str], ...] = ()
    include_paths: tuple[str, ...] = ()
    include_sha256: str = ""
    system_headers: bool = True
    language: Language = "cuda"

    @cached_property
    def sha256(self) -> str:
        """Hex digest of the text and all it may include (not of the paths); asked for at every launch."""
        digest = hashlib.sha256(self.text.encode())
        for name, text in self.headers:
            digest.update(f"\0{name}\0".encode())
            digest.update(text.encode())
        digest.update(self.include_sha256.encode())
        digest.update(b"" if self.system_headers else b"\0no system headers\0")
        digest.update(b"" if self.language == "cuda" else f"\0{self.language}\0".encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class Buffer:
    """One device array of a workload.

    Attributes:
        name: name in the kernel file.
        dtype: NumPy dtype name.
        shape: elements per axis, the batch first.
        role: ``in`` is read, ``out`` is written completely, ``inout`` is both, ``scratch`` is neither
            checked nor initialised, ``zeroed`` is scratch that is set to zero before every run, ``table`` is
            what set-up stages make of the sizes alone and runs only read; it may have no elements.
        input: how the values of an ``in`` or ``inout`` array are made; None for the problem's own way.
        restored: an ``inout`` array that every round of a window finds as the first did.
        cleared: an ``out`` array that is set to zero before every run.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: BufferRole
    input: InputSpec | None = None
    restored: bool = False
    cleared: bool = False

    @property
    def zeroed(self) -> bool:
        """True where a run begins with zeros in it."""
        return self.role == "zeroed" or self.cleared

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Scratch:
    """Device memory whose address a function takes behind the parameters that its source has.

    Attributes:
        block_bytes: of each block of the grid; 0 for a null pointer.
        alignment: of its beginning, in bytes.
    """

    block_bytes: int = 0
    alignment: int = 1


@dataclass(frozen=True)
class LaunchDemands:
    """Geometry and parameters of a launch that only the compiler knows.

    Attributes:
        threads: of a block along x; None for those of the stage.
        shared_bytes: dynamic shared memory, beside that of the stage.
        cluster: blocks of the cluster that stands for each block of the stage's grid.
        scratch: parameters behind those of the stage.
    """

    threads: int | None = None
    shared_bytes: int = 0
    cluster: int = 1
    scratch: tuple[Scratch, ...] = ()


@dataclass(frozen=True)
class Resources:
    """Resources of a multiprocessor that one compiled kernel takes.

    Attributes:
        registers_per_thread: registers of a thread.
        static_shared_bytes: shared memory declared in the source.
        spill_bytes: bytes of spill stores and loads of a thread.
        local_bytes: local memory (stack frame) of a thread.
        architecture: what it was compiled for, e.g. ``sm_90``.
        compiled: False where the kernel file's declared numbers stand in for a compiler.
        demands: what its launches must have beside what the stage says; None where that is all.
        code: digest of the code, where configurations may share it; empty where that is not looked at.
    """

    registers_per_thread: int
    static_shared_bytes: int = 0
    spill_bytes: int = 0
    local_bytes: int = 0
    architecture: str = ""
    compiled: bool = True
    demands: LaunchDemands | None = None
    code: str = ""


StageArgument = str | BufferView | Scalar | StructValue | TensorMap | Scratch
"""Argument of a function: a buffer by its name, part of one, a value, or what its code asks for itself."""


@dataclass(frozen=True)
class Specialisation:
    """Properties of one parameter of a function that its code is compiled for.

    Attributes:
        parameter: its name.
        dtype: NumPy dtype name, with an asterisk before it for the address of an array; empty for a constant.
        alignment: what divides the address, in bytes, or the number; 1 where nothing is known.
        constant: its value, where ``dtype`` is empty: it is compiled in, and not passed.
        told: the number that is passed, or the shape of the array, for code that asks when it is compiled.
    """

    parameter: str
    dtype: str = ""
    alignment: int = 1
    constant: TunableValue | None = None
    told: int | float | tuple[int, ...] | None = None


@dataclass(frozen=True)
class Stage:
    """One kernel launch of a workload, ready to compile and run.

    Attributes:
        name: name of the stage in the kernel file.
        source: the code.
        entry: NVRTC name expression of the ``__global__`` function, e.g. ``scan_lf<1024, 4, 256>``; the name
            of the function in any other language.
        options: of the compiler, beside the architecture.
        grid: blocks in x, y, z.
        block: threads in x, y, z.
        shared_bytes: dynamic shared memory.
        arguments: names of the plan's buffers, views of them, values or tensor maps, in the order of the
            function's parameters.
        declared: resources for a machine without NVRTC, from the kernel file; None if it states none.
        min_architecture: least compute capability it runs on, times ten; 0 for any.
        resident: the grid is a count of work units, to be cut to the blocks the device holds at a time; the
            function walks over the rest by itself.
        cluster: blocks of a cluster, as the source declares them.
        symbols: (name in the source, buffer) of each ``__constant__`` or ``__device__`` variable that a
            buffer is copied to before runs.
        cooperative: all blocks are on the device at the same time, and may wait for each other.
        setup: launched once for the arrays, before runs that are timed.
        stream: 0 for the main stream of the workload; others run beside it, and end with the round.
        after: indices of stages of the plan, before this one, that must have ended. Stages of one stream run
            one after another in any case.
        library: what a library runs in place of a launch; source, entry and geometry mean nothing then.
        moved_bytes: device memory that it moves, for the modelled device; None for its arrays once.
        specialisation: what a compiler is told of the parameters that the source leaves open.
        build: command that makes PTX or a cubin of the source; empty where the source is that.
    """

    name: str
    source: Source
    entry: str
    options: tuple[str, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[StageArgument, ...]
    declared: Resources | None = None
    min_architecture: int = 0
    resident: bool = False
    cluster: int = 1
    symbols: tuple[tuple[str, str], ...] = ()
    cooperative: bool = False
    setup: bool = False
    stream: int = 0
    after: tuple[int, ...] = ()
    library: LibraryCall | None = None
    moved_bytes: float | None = None
    specialisation: tuple[Specialisation, ...] = ()
    build: tuple[str, ...] = ()

    @property
    def code(self) -> tuple[object, ...]:
        """All that decides what it compiles to on one architecture."""
        return (
            *(self.source.sha256, PurePath(self.source.path).name, self.entry, self.options),
            *(self.symbols, self.specialisation, self.build),
        )

    def as_compiled(self, resources: Resources) -> "Stage":
        """The stage as its compiled code must be launched."""
        demands = resources.demands
        if demands is None:
            return self
        x, y, z = self.grid
        return self.changed(
            block=self.block if demands.threads is None else (demands.threads, 1, 1),
            grid=(x * demands.cluster, y, z),
            cluster=self.cluster * demands.cluster,
            shared_bytes=self.shared_bytes + demands.shared_bytes,
            arguments=(*self.arguments, *demands.scratch),
        )

    def changed(self, **fields: Any) -> "Stage":  # noqa: ANN401 - as of ``dataclasses.replace``
        """Return a changed copy, faster than ``dataclasses.replace``: a long loop has ten thousand stages."""
        other = object.__new__(Stage)
        other.__dict__.update(self.__dict__, **fields)
        return other

    @property
    def buffers(self) -> frozenset[str]:
        """Names of the buffers it is given."""
        if self.library is not None:
            return frozenset(operand.buffer for _, operand in self.library.operands)
        return frozenset(
            [
                item if isinstance(item, str) else item.buffer
                for item in self.arguments
                if isinstance(item, _NAMES_BUFFER)
            ]
        )

    @property
    def threads_per_block(self) -> int:
        """Threads of one block."""
        return math.prod(self.block)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return math.prod(self.grid)


@dataclass(frozen=True)
class Work:
    """Work of one run of a workload, by the formulas of its kernel file.

    Attributes:
        bytes: device memory that must move once.
        operations: arithmetic operations.
        steps: dependent communication steps (barriers or shuffles) of one block, for the model.
        rate_units: units of the papers' rate, e.g. rows, data or floating-point operations of a run.
        rate_name: e.g. ``MRows/s``; the number shown is ``rate_units / time / rate_scale``.
        rate_scale: e.g. 1e6 for ``MRows/s``.
        assumed: the kernel file states no work: every array moves once, and nothing is computed.
    """

    bytes: float
    operations: float
    steps: float = 0.0
    rate_units: float = 0.0
    rate_name: str = ""
    rate_scale: float = 1e6
    assumed: bool = False


@dataclass(frozen=True)
class ProblemSpec:
    """Specification of the right answer of a workload and of its check.

    Attributes:
        name: a built-in problem (``scan``, ``tridiagonal``, ``fft``), ``expression``, ``function``,
            ``entry``, ``law`` or ``consistent``.
        tolerance: allowed error, or None for the problem's own.
        reference: for ``expression``: (output buffer, expression over the input buffers) pairs.
        files: what the expressions call ``file(...)``: (path and key as they are written, the file) pairs.
        function: for ``function`` and ``law``: what makes the right answer, or judges one.
        entry: for ``entry``: name of the ``__global__`` function that makes the right answer.
        scalars: (name, expression over the sizes) of the arguments that a function may take, too.
    """

    name: str
    tolerance: float | None = None
    reference: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[tuple[str, str], DataFile], ...] = ()
    function: PythonFunction | None = None
    entry: str = ""
    scalars: tuple[tuple[str, str], ...] = ()

    @property
    def caution(self) -> str:
        """Limit of the checks of answers, in one line; empty if something says what is right."""
        return _CAUTIONS.get(self.name, "")


_CAUTIONS = {
    "consistent": "no reference is stated: answers are only compared with each other",
    "unchecked": "answers are not compared with anything",
}


@dataclass(frozen=True)
class Plan:
    """One workload at one configuration with every expression of its kernel file evaluated.

    ``baseline`` is the default configuration's plan, for a problem that only another run can judge
    (``consistent``); None for every other problem, and for the default configuration itself. ``reference``
    is the plan of a naive kernel whose outputs are right (``entry``); it is run once and never tuned.
    ``stream_priority`` is that of the workload's stream beside others: the highest is the most urgent.
    ``sm_share`` is the multiprocessors that it runs on beside others; 0 for those that none of them has.
    """

    workload: Workload
    configuration: Configuration
    stages: tuple[Stage, ...]
    buffers: tuple[Buffer, ...]
    problem: ProblemSpec
    work: Work
    baseline: "Plan | None" = None
    reference: "Plan | None" = None
    stream_priority: int = 0
    sm_share: int = 0

    @property
    def timed(self) -> tuple[int, ...]:
        """Positions of the stages that every run launches: all but those of the set-up."""
        return tuple(index for index, stage in enumerate(self.stages) if not stage.setup)

    @property
    def has_host_stage(self) -> bool:
        """True when the CPU computes a part of it."""
        return any(stage.library is not None and stage.library.on_host for stage in self.stages)

    def as_compiled(self, resources: Sequence[Resources]) -> "Plan":
        """The plan with every stage as its code must be launched (``Stage.as_compiled``)."""
        if not any(own.demands for own in resources):
            return self
        pairs = zip(self.stages, resources, strict=True)
        return replace(self, stages=tuple(stage.as_compiled(own) for stage, own in pairs))

    def launched(self, resources: Sequence[Resources]) -> tuple[object, ...]:
        """All that two configurations have in common that run the same code in the same way.

        Nothing where the code of a stage was not looked at.
        """
        own = [(stage, one.code) for stage, one in zip(self.stages, resources, strict=True)]
        if not all(code for stage, code in own if stage.library is None):
            return ()
        unseen = {"source": None, "options": (), "specialisation": (), "build": (), "declared": None}
        stages = self.as_compiled(resources).stages
        alike = tuple((code, stage.changed(**unseen)) for (_, code), stage in zip(own, stages, strict=True))
        return alike, self.buffers, self.stream_priority, self.sm_share

    def label(self) -> str:
        """The words of a message: workload and configuration."""
        return f"{self.workload} [{self.configuration}]"


Progress = Callable[[int, int], None]
"""Called with (done, total) while something long goes on."""


@dataclass(frozen=True)
class RowLayout:
    """Layout of the rows of arrays, and of an output in the memory of its input.

    Rows are what the first axis of an array counts, the batch.

    Attributes:
        pitches: (array, elements from the beginning of a row to that of the next) of the arrays whose rows do
            not follow each other.
        in_place: the output takes the place of the input that the kernel file names.
    """

    pitches: tuple[tuple[str, int], ...] = ()
    in_place: bool = False


DENSE = RowLayout()
"""Rows follow each other, and every output is an array of its own."""
