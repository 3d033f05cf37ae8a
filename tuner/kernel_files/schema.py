"""The schema of a kernel file: its tables, keys and types; expressions are evaluated elsewhere."""

from collections.abc import Set as AbstractSet
from typing import Annotated, Any, ClassVar, Literal, get_args

from tuner.kernel_files import tables
from tuner.kernel_files.tables import FileTable, bounds, key

# --- The form of ``[[argument]]``: arrays, values, structs and tensor maps.

Name = Annotated[str, bounds(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Formula = int | float | bool | str
Geometry = int | str | Annotated[list[int | str], bounds(minItems=1, maxItems=3)]
Dtype = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
DTYPES: tuple[str, ...] = get_args(Dtype)
MAPPED_DTYPES = (
    *("uint8", "uint16", "uint32", "uint64", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64"),
)
"""Those a tensor map can have (``CUtensorMapDataType``)."""


def _or_template(dtypes: tuple[str, ...]) -> list[dict[str, Any]]:
    """JSON Schemas of a type name, and of text with an expression in braces."""
    return [{"enum": list(dtypes)}, {"pattern": r"\{.*\}"}]


ArgumentRole = Literal["in", "out", "inout", "scratch", "zeroed", "constant"]


class BufferArgument(FileTable):
    """A device array: handed to the kernel as a pointer, or copied to a variable of the source."""

    FOREIGN: ClassVar = {
        "texture": "texture objects are not supported; hand the array over as a buffer, and read it through a"
        " const __restrict__ pointer or __ldg()"
    }

    buffer: Name = key("Name of the array.")
    dtype: str = key(
        "Element type, as NumPy names it; {expression} over the sizes is replaced by its value.",
        anyOf=_or_template(DTYPES),
    )
    shape: list[int | str] = key(
        "Elements along each axis, the batch first; numbers or expressions.", minItems=1
    )
    role: ArgumentRole = key(
        "in is read; out is written completely; inout is both; scratch is not checked; zeroed is "
        "scratch set to zero before every run; constant is copied to a __constant__ or __device__ variable "
        "of the source, and is no parameter."
    )
    input: str | None = key(
        "How the values of an in or inout array are made, e.g. integers(0, N), csr_offsets(nnz) "
        'or file("x.npy"); as the problem has it where it is left out. Of out: constant(0), zeros before '
        "every run.",
        None,
    )
    restored: bool | None = key(
        "Of inout: whether every run of a measurement finds the input, and not what the run "
        "before has left; true where the file has a loop, false otherwise.",
        None,
    )
    symbol: str | None = key(
        "For the role constant: the variable of the source; that of the buffer's name otherwise.",
        None,
        pattern=r"^[A-Za-z_]\w*(::[A-Za-z_]\w*)*$",
    )

    row_pitch: bool = key(
        "Whether rows may lie apart: tuner.apply then takes x[:, :N] of a wider array as it is,"
        " and expressions may use x_pitch, elements from one row of x to the next, and row_align.",
        False,
    )
    in_place: str | None = key(
        "Of out: the in array whose memory it may be; expressions may use in_place.", None
    )

    def check(self, given: AbstractSet[str]) -> None:
        """Refuse a symbol of what is no constant."""
        del given
        if self.symbol is not None and self.role != "constant":
            raise ValueError(f'symbol needs role = "constant", and the role is "{self.role}"')


class ScalarArgument(FileTable):
    """A value handed to the kernel."""

    MARK: ClassVar = "scalar"

    scalar: Name = key("Name of the value, for stages.")
    dtype: str = key(
        "Type, as NumPy names it; {expression} is replaced by its value.", anyOf=_or_template(DTYPES)
    )
    value: Formula = key("Number or expression.")


class StructArgument(FileTable):
    """A struct handed to the kernel by value."""

    MARK: ClassVar = "fields"

    scalar: Name = key("Name of the struct, for stages.")
    fields: dict[Name, str] = key(
        'Its fields in order: name -> "TYPE = EXPRESSION"; laid out as C does.', minProperties=1
    )


class TensorMapArgument(FileTable):
    """A CUtensorMap handed to the kernel by value: boxes of a buffer that are copied to shared memory."""

    MARK: ClassVar = "tensor_map"

    tensor_map: Name = key("Name of the tensor map, for stages.")
    buffer: Name = key("The array, taken as a contiguous matrix.")
    element: str = key(
        "Element type of the map, as NumPy names it; {expression} is replaced by its value.",
        anyOf=_or_template(MAPPED_DTYPES),
    )
    dims: list[int | str] = key(
        "Elements along a row, and rows; numbers or expressions.", minItems=2, maxItems=2
    )
    box: list[int | str] = key(
        "Elements along a row, and rows, of one copy; numbers or expressions, at most 256.",
        minItems=2,
        maxItems=2,
    )
    promotion: int | str = key(
        "Bytes that a fetch into the second-level cache is widened to: 0, 64, 128, 256.", 0
    )


Argument = StructArgument | ScalarArgument | TensorMapArgument | BufferArgument


# --- The form of chains in a kernel file: loops, views of buffers, streams, and stages that a library runs.

Routine = Literal["gemm", "syrk", "trsm", "fft", "lapack-potrf", "lapack-getrf", "lapack-geqrf"]
Swaps = list[Annotated[list[Name], bounds(minItems=2, maxItems=2)]]

OPERANDS: dict[str, tuple[str, ...]] = {
    "gemm": ("a", "b", "c"),
    "syrk": ("a", "c"),
    "trsm": ("a", "b"),
    "fft": ("a", "c"),
    "lapack-potrf": ("a", "info"),
    "lapack-getrf": ("a", "pivots", "info"),
    "lapack-geqrf": ("a", "tau"),
}
"""The arrays of each routine; it writes to the last, LAPACK to all."""
_DIMENSIONS = {
    "gemm": ("m", "n", "k"),
    "syrk": ("n", "k"),
    "trsm": ("m", "n"),
    "fft": ("n",),
    "lapack-potrf": ("n",),
    "lapack-getrf": ("m", "n"),
    "lapack-geqrf": ("m", "n"),
}
_OPTIONS = {
    "gemm": ("alpha", "beta"),
    "syrk": ("alpha", "beta", "fill"),
    "trsm": ("alpha", "fill", "side", "unit"),
    "fft": ("m", "inverse"),
    "lapack-potrf": ("threads", "first"),
    "lapack-getrf": ("threads", "first"),
    "lapack-geqrf": ("threads",),
}
_COMMON = ("name", "library", "loop", "stream", "after", "when")


class LoopTable(FileTable):
    """A loop over stages that follow each other: they run together once for every step."""

    repeat: int | str = key("Steps, 1 or more: a number or an expression.")
    index: Name = key(
        "Name of the step's number, from 0, in the stages' grids, blocks, shared bytes, "
        "conditions, offsets and library arguments, and in the values of scalars.",
        "step",
    )
    swap: Swaps = key(
        "Pairs of arrays, as [['u', 'v']]: a step reads the first and writes the second, and the "
        "next step reads what this one wrote.",
        [],
    )
    derived: dict[Name, Formula] = key(
        "Named expressions of a step, usable where the index is, and in those that follow.", {}
    )


class ViewTable(FileTable):
    """A buffer from one of its elements on, as an argument of a stage."""

    buffer: Name = key("Name of the array.")
    offset: int | str = key("Elements before the first one: a number or an expression.", 0)


StageArgument = Name | ViewTable
"""The name of an argument, or a view of a buffer."""


class ChainedTable(FileTable):
    """Common keys of stages of all kinds in chains."""

    loop: Name | None = key("Name of the [loop] whose steps it is part of.", None)
    stream: int | str = key(
        "Where it runs: 0 in the main stream, 1 to 7 in one beside it. Stages of one stream run "
        "one after another; all end with the run.",
        0,
    )
    after: list[str] = key(
        "Names of stages above that must have ended, where they run in other streams; NAME@-1 "
        "means the one of the step before, up to NAME@-9.",
        [],
    )


class OperandTable(FileTable):
    """A matrix for a library, column-major as in BLAS: element (i, j) is at offset + i + j * ld."""

    buffer: Name = key("Name of the array.")
    offset: int | str = key("Elements before element (0, 0).", 0)
    ld: int | str | None = key(
        "Elements from one column to the next; the rows of the matrix otherwise.", None
    )
    transposed: bool | str = key("Whether its transpose is taken.", False)


class LibraryStageTable(ChainedTable):
    """A stage that cuBLAS or cuFFT runs, or LAPACK on the host."""

    MARK: ClassVar = "library"

    name: str = key("Name of the stage, for messages.", minLength=1)
    library: Routine = key(
        "gemm: c = alpha a b + beta c; syrk: c = alpha a a' + beta c; trsm: solves a x = alpha b "
        "into b; fft: c = transform of a; lapack-potrf, lapack-getrf, lapack-geqrf: factors of a, by the CPU."
    )
    when: Formula | None = key("Condition; where it is false the stage is left out.", None)
    a: OperandTable = key("First matrix.")
    b: OperandTable | None = key("Second matrix, of gemm and trsm.", None)
    c: OperandTable | None = key("Result, of gemm, syrk and fft.", None)
    pivots: ViewTable | None = key("int32 array for pivots, of lapack-getrf.", None)
    tau: ViewTable | None = key("Array for tau, of lapack-geqrf.", None)
    info: ViewTable | None = key("int32 array for info, of lapack-potrf and lapack-getrf.", None)
    m: int | str | None = key("Rows of the result; of fft the number of transforms, 1 otherwise.", None)
    n: int | str = key("Columns of the result; of fft the length of a transform.")
    k: int | str | None = key("Columns of a, of gemm and syrk.", None)
    alpha: int | float | str = key("Factor.", 1)
    beta: int | float | str = key("Factor of what c holds before.", 0)
    fill: Literal["lower", "upper"] = key("Triangle of c (syrk) or of a (trsm) that is used.", "lower")
    side: Literal["left", "right"] = key("Of trsm: a x = b (left) or x a = b (right).", "left")
    unit: bool = key("Of trsm: the diagonal of a is taken to be 1.", False)
    inverse: bool | str = key("Of fft: the inverse transform, not normalised.", False)
    threads: int | str = key("Of LAPACK: threads of the CPU; 0 for as many as the process may use.", 0)
    first: int | str = key(
        "Of lapack-potrf and lapack-getrf: rows and columns before a; pivots and info count from there.", 0
    )

    def check(self, given: AbstractSet[str]) -> None:
        """Refuse keys that the routine does not take, and ask for those that it needs."""
        needed = (*OPERANDS[self.library], *_DIMENSIONS[self.library])
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(f"{self.library} needs {', '.join(missing)}")
        allowed = {*needed, *_OPTIONS[self.library], *_COMMON}
        extra = [name for name in given if name not in allowed]
        if extra:
            raise ValueError(f"{self.library} takes no {', '.join(sorted(extra))}")
        if self.library.startswith("lapack-") and self.a.transposed is not False:
            raise ValueError(f"{self.library} takes no transposed matrix")


# --- The form of ``[problem]``: sizes, and where right answers come from.

MAX_SIZE = 2**53  # beyond it a size is no longer exact as a fraction
_FUNCTION = r"^.+\.py:[A-Za-z_][A-Za-z0-9_]*$"
_REFERENCES = ("reference", "reference_function", "reference_entry", "law")

ProblemName = Literal[
    "scan",
    "segmented-scan",
    "tridiagonal",
    "fft",
    "fft-real",
    "fft-columns",
    "fft-2d",
    "fft-convolution",
    "expression",
    "consistent",
    "unchecked",
]


class SizeRange(FileTable):
    """All whole numbers between two, both included."""

    first: int = key("The smallest.", name="from", minimum=1, maximum=MAX_SIZE)
    last: int = key("The largest.", name="to", minimum=1, maximum=MAX_SIZE)

    def check(self, given: AbstractSet[str]) -> None:
        """Refuse a range that is empty."""
        del given
        if self.last < self.first:
            raise ValueError(f"from {self.first} to {self.last} holds no number")


Sizes = Annotated[list[int | str], bounds(minItems=1)] | SizeRange


class ProblemTable(FileTable):
    """The problem, its sizes, and the check of the answer."""

    name: ProblemName | None = key(
        "A built-in problem; or expression, checked with [problem.reference]; or consistent, "
        "compared with the answer of the default configuration, where nothing else says what is right; or "
        "unchecked, compared with nothing.",
        None,
    )
    batch: int | str = key("Independent problems in one run unless the user sets it; over the sizes.", 1)
    tolerance: float | None = key(
        "Allowed relative error; the problem's own otherwise.", None, exclusiveMinimum=0
    )
    sizes: dict[Name, Sizes] = key(
        "Problem sizes: name -> values to choose from, or a range as { from = 2, to = 8192 }.", {}
    )
    optional: list[Name] = key(
        "Sizes that may be left out of a workload; they take the first of their list.", []
    )
    reference: dict[Name, str] = key(
        'Output buffer -> expression over the input buffers, or file("expected.npy").', {}
    )
    reference_function: str | None = key(
        "reference.py:function beside this file: takes the inputs and sizes by name, returns the "
        "right outputs.",
        None,
        pattern=_FUNCTION,
    )
    reference_entry: str | None = key(
        "A naive __global__ function of the same arguments, whose outputs are right.", None, minLength=1
    )
    law: str | None = key(
        "laws.py:function beside this file: takes inputs, outputs and sizes by name, returns a "
        "number that right answers keep below the tolerance, or a table of them.",
        None,
        pattern=_FUNCTION,
    )
    reference_arrays: Literal["numpy", "cupy"] = key(
        "The arrays that reference_function and law are called with.", "numpy"
    )

    @property
    def kind(self) -> str:
        """The name of the problem: as it is stated, or by what says which answers are right."""
        kinds = {"reference_function": "function", "reference_entry": "entry", "law": "law"}
        stated = next((kind for name, kind in kinds.items() if getattr(self, name)), None)
        return stated or self.name or ("expression" if self.reference else "consistent")

    def check(self, given: AbstractSet[str]) -> None:
        """Refuse several things that say what is right."""
        del given
        references = [name for name in _REFERENCES if getattr(self, name)]
        if len(references) > 1:
            raise ValueError(f"{' and '.join(references)} both say what is right; keep one of them")
        if self.name is not None and references and references != ["reference"]:
            raise ValueError(
                f"name = {self.name!r} and {references[0]} both say what is right; leave name out"
            )
        if self.law is not None and self.tolerance is None:
            raise ValueError("law needs tolerance: what its numbers must stay below")


class ReferenceLaunchTable(FileTable):
    """Geometry of the launch of ``reference_entry``."""

    grid: Geometry = key("Blocks, as in [launch]; the tunables have their default values.")
    block: Geometry = key("Threads of a block, as in [launch].")
    shared_bytes: int | str = key("Dynamic shared memory of a block, in bytes.", 0)


class KernelTable(FileTable):
    """Name, description and source of the kernel."""

    name: str | None = key(
        "Name on the command line: a-z, 0-9 and -. Where it is left out, that of the folder of a "
        "kernel.toml, and that of any other file.",
        None,
        pattern=r"^[a-z0-9][a-z0-9-]*$",
    )
    description: str = key("One line for people.", "")
    family: str = key(
        "Kernels of one family solve the same kind of problem, e.g. scan, tridiagonal, fft.",
        "other",
        pattern=r"^[a-z0-9][a-z0-9-]*$",
    )
    source: str | None = key("CUDA C++ file, relative to this file; stages may name others.", None)
    headers: list[str] = key(
        "Folders, relative to this file, whose *.cuh files can be included by name; those beside "
        "this file always can. catalogue:NAME is a folder of the kernels that come with the package.",
        [],
    )
    entry: str | None = key(
        "Name expression of the __global__ function; {expression} is replaced by its value, "
        "e.g. scan<{N}, {P}>. The only __global__ function of the source where it is left out, its template "
        "parameters filled in by name. Never beside [[stage]] tables.",
        None,
    )
    include_paths: list[str] = key(
        "Folders, relative to this file or absolute, where the compiler looks for headers before "
        "those of CUDA.",
        [],
    )
    system_headers: bool = key(
        "Whether headers of C and C++, as cstdint or cmath, have stand-ins for device code. "
        "false: the kernel brings its own.",
        True,
    )
    options: list[str] = key(
        "NVRTC options beside the architecture; {expression} is replaced as in entry.", []
    )
    extends: list[str] = key("Kernels that this one is taken for at sizes and types that they refuse.", [])
    analytical: Literal[True, False, "default"] = key(
        "Whether the analytical rules answer for the kernel. false: its default is the first "
        "answer, e.g. because it was measured at every size. 'default': [default] is the analytical answer, "
        "and the rules answer for devices that cannot launch it.",
        True,
    )


class LaunchTable(FileTable):
    """Geometry of the launch."""

    grid: Geometry = key("Blocks: one expression, or a list of up to three (x, y, z).")
    block: Geometry | None = key(
        "Threads of a block: one expression, or a list of up to three (x, y, z). The tunables "
        "block_size_x, block_size_y and block_size_z where it is left out.",
        None,
    )
    shared_bytes: int | str = key("Dynamic shared memory of a block, in bytes.", 0)
    min_architecture: int | str = key(
        "Least compute capability times ten, e.g. 80; other devices leave it out.", 0
    )
    resident: bool | str = key(
        "Whether the grid is cut to the blocks the device holds at a time, and the kernel walks "
        "over the rest by gridDim.x.",
        False,
    )
    cluster: int | str = key("Blocks of a cluster along x, as __cluster_dims__ in the source says.", 1)
    cooperative: bool | str = key(
        "Whether blocks wait for each other (cooperative groups' grid.sync): all of them must be "
        "on the device at the same time.",
        False,
    )


class OnlyLaunchTable(LaunchTable):
    """The only launch of a run, which may be repeated."""

    repeat: int | str | None = key("Launches of a run, one after another, as in [loop]; 1 otherwise.", None)
    index: Name = key("Name of the launch's number, as in [loop].", "step")
    swap: Swaps = key("Pairs of arrays, as in [loop].", [])
    derived: dict[Name, Formula] = key("Named expressions of a launch, as in [loop].", {})

    def check(self, given: AbstractSet[str]) -> None:
        """Refuse keys of a repeated launch where none is."""
        if self.repeat is None and given & {"index", "swap", "derived"}:
            raise ValueError("index, swap and derived need repeat")


class ResourcesTable(FileTable):
    """Resources of a block, for machines without a compiler."""

    registers: int | str = key("Registers of a thread.")
    static_shared_bytes: int | str = key("Shared memory declared in the source, in bytes per block.", 0)


class StageTable(LaunchTable, ChainedTable):
    """One of several launches that together make one run, in this order."""

    name: str = key("Name of the stage, for messages.", minLength=1)
    entry: str = key("Name expression of the __global__ function, as in [kernel].")
    source: str | None = key("CUDA C++ file; that of [kernel] otherwise.", None)
    arguments: list[StageArgument] | None = key(
        "Names of buffers and scalars in parameter order; all of them otherwise. A table of "
        "buffer and offset stands for a buffer from one of its elements on.",
        None,
    )
    when: Formula | None = key("Condition; where it is false the stage is left out.", None)
    setup: bool = key("Whether it is launched once for the arrays, before runs and not timed.", False)
    registers: int | str | None = key(
        "Registers of a thread where no compiler can tell; [resources] otherwise.", None
    )
    static_shared_bytes: int | str | None = key(
        "Shared memory declared in the source, in bytes; [resources] otherwise.", None
    )
    moved_bytes: Formula | None = key(
        "Device memory that a launch moves, for modelled devices; its arrays once otherwise.", None
    )


AnyStage = LibraryStageTable | StageTable

MAX_ITEMS = 6  # of a permutation: 720 orders
Values = Annotated[list[bool | int | float | str], bounds(minItems=1)]


Items = Annotated[list[int | str], bounds(minItems=2, maxItems=MAX_ITEMS)]


class TunableTable(FileTable):
    """A tunable with a condition, or one whose values are the orders of some items."""

    values: Values | None = key("What it may be.", None)
    permutation: Items | None = key(
        "Items, whose orders it may be: texts of all items with commas between them.", None
    )
    when: Formula | None = key(
        "Condition over sizes, batch, the tunables above, and derived names of these; where it "
        "is false the tunable has no value.",
        None,
    )
    otherwise: Formula | None = key(
        "What expressions see where it has no value: a value, or an expression over sizes, batch "
        "and the tunables above. Without it they must not come to the tunable there.",
        None,
    )

    def check(self, given: AbstractSet[str]) -> None:
        """Refuse no values, and values of two kinds."""
        del given
        if self.values is None and self.permutation is None:
            raise ValueError("needs values, or permutation in their place")
        if self.values is not None and self.permutation is not None:
            raise ValueError("has values and permutation; leave one of them out")


Tunables = dict[Name, Values | TunableTable]


class VariantTable(FileTable):
    """Tunables, rules and stages of one form of a kernel."""

    when: str = key("Condition, as of a tunable; all else in the table holds where it is true.")
    tunables: Tunables = key("Tunables that have a value only there.", {})
    rules: list[str] = key("Conditions a configuration must satisfy there.", [])
    stage: list[AnyStage] = key("Launches that are made only there.", [])

    def check(self, given: AbstractSet[str]) -> None:
        """Refuse a variant that changes nothing."""
        del given
        if not (self.tunables or self.rules or self.stage):
            raise ValueError("holds nothing: give it tunables, rules or stages")


class RolesTable(FileTable):
    """Roles of tunables for the tuning methods."""

    elements_per_thread: Name | None = key("Elements one thread handles (P).", None)
    threads_per_block: Name | None = key("Threads of a block (L).", None)
    radix: Name | None = key("Radix of a step (r).", None)
    shared_elements: Name | None = key("Elements kept in shared memory (S).", None)
    shuffle: Name | None = key(
        "Whether threads exchange data by warp shuffles instead of shared memory.", None
    )


class ConstraintsTable(FileTable):
    """The allowed combinations of tunables."""

    rules: list[str] = key("Conditions; a configuration must satisfy all of them.", [])
    spills: bool = key("Whether configurations that spill registers, or use local memory, are tried.", False)


class WorkTable(FileTable):
    """The work of one run, the same for every configuration."""

    bytes: int | float | str = key("Device memory that must move once, in bytes.")
    operations: int | float | str = key("Arithmetic operations.")
    steps: int | float | str = key("Dependent communication steps of a block, for the modelled device.", 0)
    rate: str = key("Name of the rate, e.g. MData/s; its M or G is the scale.", "")
    rate_units: int | float | str = key("Units of the rate done by one run, without the scale.", 0)


class OccupancyTable(FileTable):
    """The least occupancy of a configuration that is tried."""

    min: float = key("Smallest occupancy, 0 to 1; 0 where the table is left out.", minimum=0, maximum=1)


class MeasuredTable(FileTable):
    """Answers that were measured at some sizes."""

    file: str = key(
        "A file of comma-separated values beside the kernel file. The first line names sizes, "
        "tunables and perhaps gpu; each further line is an answer, those of the same sizes in order of "
        "preference.",
        pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$",
    )
    when: str = key("Condition over the sizes and the batch: where they hold.", "true")


Answer = dict[Name, Formula]


StatedAnswers = Answer | Annotated[list[Answer], bounds(minItems=1)]


class KernelDocument(FileTable):
    """A kernel for tuner: CUDA source, what may be varied, and how it is launched and checked."""

    kernel: KernelTable = key("What the kernel is and where its code stands.")
    problem: ProblemTable = key("What is computed and how it is checked.", ProblemTable())
    arguments: dict[Name, str | dict[Name, str]] = key(
        "The parameters of the __global__ function, in order, in one line each: arrays as "
        "'in float32[N]', values as 'int32 = N', structs as { dt = 'float32 = 0.1', n = 'int32 = N' }. "
        "Instead of [[argument]].",
        {},
    )
    argument: list[Argument] = key(
        "The parameters of the __global__ function, in order; more than lines can say.", []
    )
    tunables: Tunables = key(
        "What may be varied: name -> values, or a table of values and a condition. In the space "
        "the first moves slowest.",
        {},
    )
    variant: dict[Annotated[str, bounds(pattern=r"^[A-Za-z0-9_-]+$")], VariantTable] = key(
        "Forms of the kernel: name -> a condition, and the tunables, rules and stages that hold "
        "where it is true.",
        {},
    )
    derived: dict[Name, Formula] = key("Named expressions, usable in everything that follows.", {})
    roles: RolesTable = key("Which tunable plays which part.", RolesTable())
    constraints: ConstraintsTable = key("Rules of the space.", ConstraintsTable())
    default: dict[Name, Formula] = key(
        "The configuration a sensible engineer would start from: a value or an expression over "
        "the sizes for every tunable, of those with a condition where it is true. The first configuration of "
        "the space where the table is left out.",
        {},
    )
    analytical: StatedAnswers = key(
        "The analytical answer, written as [default], for devices that can launch it; or "
        "[[analytical]], several of them, of which the first is taken that a device can launch. Where the "
        "table is left out, or a device can launch none, the analytical rules answer.",
        {},
    )
    measured: MeasuredTable | None = key(
        "Analytical answers that were measured at some sizes; they come before those of [analytical].", None
    )
    launch: OnlyLaunchTable | None = key("Geometry of the only launch.", None)
    loop: dict[Annotated[str, bounds(pattern=r"^[A-Za-z0-9_-]+$")], LoopTable] = key(
        "Loops over stages: name -> steps, index, arrays that are swapped, named expressions.", {}
    )
    stage: list[AnyStage] = key("Several launches, instead of [launch]; those of variants follow.", [])
    reference_launch: ReferenceLaunchTable | None = key(
        "Geometry of reference_entry in [problem]; that of [launch] otherwise.", None
    )
    work: WorkTable | None = key(
        "What one run must do. Without it no rate is shown, and a simulated device assumes that "
        "every array moves once and that nothing is computed.",
        None,
    )
    resources: ResourcesTable | None = key("What a block takes, used only where there is no compiler.", None)
    occupancy: OccupancyTable | None = key("Occupancy a configuration must reach.", None)

    def check(self, given: AbstractSet[str]) -> None:
        """Refuse tables that exclude each other, and ask for those that others need."""
        del given
        if self.stage or any(variant.stage for variant in self.variant.values()):
            if self.launch is not None or self.kernel.entry is not None:
                raise ValueError("[[stage]] tables stand instead of [launch] and entry in [kernel]")
        elif self.launch is None:
            raise ValueError("[launch], or [[stage]] tables, are needed")
        if not self.argument:
            raise ValueError("[arguments], or [[argument]] tables, are needed")
        if self.analytical and self.kernel.analytical is not True:
            written = "false" if self.kernel.analytical is False else "'default'"
            raise ValueError(f"[analytical] and analytical = {written} in [kernel] contradict each other")
        if self.kernel.analytical == "default" and not self.default:
            raise ValueError("analytical = 'default' in [kernel] needs [default]")
        if self.measured is not None and not self.kernel.analytical:
            raise ValueError("[measured] and analytical = false in [kernel] contradict each other")
        if (self.problem.kind == "expression") != bool(self.problem.reference):
            raise ValueError('[problem.reference] and name = "expression" in [problem] need each other')
        if self.problem.reference_entry is None and self.reference_launch is not None:
            raise ValueError(
                "[reference_launch] is the launch of reference_entry in [problem], which is missing"
            )
        if self.problem.reference_entry and self.launch is None and self.reference_launch is None:
            raise ValueError(
                "[reference_launch] is needed: reference_entry is one launch, and the kernel is not"
            )


def json_schema() -> dict[str, Any]:
    """JSON Schema of kernel files, with a description of every key."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **tables.json_schema(KernelDocument)}
