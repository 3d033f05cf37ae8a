"""The schema of a kernel file: its tables, keys and types; expressions are evaluated elsewhere."""

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from tuner.model.plan import Language

# --- The form of ``[[argument]]``: arrays, values, structs and tensor maps; and the base of all tables.

_NAME = "[A-Za-z_][A-Za-z0-9_]*"
Name = Annotated[str, Field(pattern=rf"^{_NAME}$")]
Signature = Annotated[str, Field(pattern=rf"^{_NAME}( *\( *{_NAME}( *, *{_NAME})* *\))?$")]
Formula = int | float | bool | str
Geometry = int | str | Annotated[list[int | str], Field(min_length=1, max_length=3)]
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
NONE = "none"
"""Type of an argument of Triton that is Python's None."""
MAPPED_DTYPES = (
    *("uint8", "uint16", "uint32", "uint64", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64"),
)
"""Those a tensor map can have (``CUtensorMapDataType``)."""


class FileTable(BaseModel):
    """A table of a kernel file: no other keys, no conversion between types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _or_template(dtypes: tuple[str, ...]) -> dict[str, Any]:
    """JSON Schema of a type name, or of text with an expression in braces."""
    return {"anyOf": [{"enum": list(dtypes)}, {"pattern": r"\{.*\}"}]}


ArgumentRole = Literal["in", "out", "inout", "scratch", "zeroed", "table", "constant"]


class BufferArgument(FileTable):
    """A device array: handed to the kernel as a pointer, or copied to a variable of the source."""

    buffer: Name = Field(description="Name of the array.")
    dtype: str = Field(
        description="Element type, as NumPy names it; {expression} over the sizes is replaced by its value.",
        json_schema_extra=_or_template(DTYPES),
    )
    shape: list[int | str] = Field(
        min_length=1, description="Elements along each axis, the batch first; numbers or expressions."
    )
    role: ArgumentRole = Field(
        description="in is read; out is written completely; inout is both; scratch is not checked; zeroed is "
        "scratch set to zero before every run; table is made of the sizes by set-up stages, or empty; "
        "constant is copied to a __constant__ or __device__ variable of the source, and is no parameter."
    )
    input: str | None = Field(
        default=None,
        description="How the values of an in or inout array are made, e.g. integers(0, N), csr_offsets(nnz) "
        'or file("x.npy"); as the problem has it where it is left out. Of out: constant(0), zeros before '
        "every run.",
    )
    restored: bool | None = Field(
        default=None,
        description="Of inout: whether every run of a measurement finds the input, and not what the run "
        "before has left; true where the file has a loop, false otherwise.",
    )
    symbol: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_]\w*(::[A-Za-z_]\w*)*$",
        description="For the role constant: the variable of the source; that of the buffer's name otherwise.",
    )

    row_pitch: bool = Field(
        default=False,
        description="Whether rows may lie apart: tuner.apply then takes x[:, :N] of a wider array as it is,"
        " and expressions may use x_pitch, elements from one row of x to the next, and row_align.",
    )
    in_place: str | None = Field(
        default=None,
        description="Of out: the in array whose memory it may be; expressions may use in_place.",
    )

    @model_validator(mode="before")
    @classmethod
    def _is_no_texture(cls, table: Any) -> Any:  # noqa: ANN401 - whatever stands in the file
        if isinstance(table, dict) and "texture" in table:
            raise ValueError(
                "texture objects are not supported; hand the array over as a buffer, and read it through a"
                " const __restrict__ pointer or __ldg()"
            )
        return table

    @model_validator(mode="after")
    def _only_constants_have_symbols(self) -> "BufferArgument":
        if self.symbol is not None and self.role != "constant":
            raise ValueError(f'symbol needs role = "constant", and the role is "{self.role}"')
        return self


class ScalarArgument(FileTable):
    """A value handed to the kernel."""

    scalar: Name = Field(description="Name of the value, for stages.")
    dtype: str = Field(
        description="Type, as NumPy names it; {expression} is replaced by its value. none: None, of Triton.",
        json_schema_extra=_or_template(DTYPES),
    )
    value: Formula = Field(description="Number or expression.")


class StructArgument(FileTable):
    """A struct handed to the kernel by value."""

    scalar: Name = Field(description="Name of the struct, for stages.")
    fields: dict[Name, str] = Field(
        min_length=1, description='Its fields in order: name -> "TYPE = EXPRESSION"; laid out as C does.'
    )


class TensorMapArgument(FileTable):
    """A CUtensorMap handed to the kernel by value: boxes of a buffer that are copied to shared memory."""

    tensor_map: Name = Field(description="Name of the tensor map, for stages.")
    buffer: Name = Field(description="The array, taken as a contiguous matrix.")
    element: str = Field(
        description="Element type of the map, as NumPy names it; {expression} is replaced by its value.",
        json_schema_extra=_or_template(MAPPED_DTYPES),
    )
    dims: list[int | str] = Field(
        min_length=2, max_length=2, description="Elements along a row, and rows; numbers or expressions."
    )
    box: list[int | str] = Field(
        min_length=2,
        max_length=2,
        description="Elements along a row, and rows, of one copy; numbers or expressions, at most 256.",
    )
    promotion: int | str = Field(
        default=0,
        description="Bytes that a fetch into the second-level cache is widened to: 0, 64, 128, 256.",
    )


def _argument_kind(value: Any) -> str:  # noqa: ANN401 - whatever stands in the file
    if isinstance(value, StructArgument) or (isinstance(value, dict) and "fields" in value):
        return "struct"
    kinds = ("scalar", "tensor_map") if isinstance(value, dict) else ()
    return next((kind for kind in kinds if kind in value), "buffer")


Argument = Annotated[
    Annotated[BufferArgument, Tag("buffer")]
    | Annotated[ScalarArgument, Tag("scalar")]
    | Annotated[StructArgument, Tag("struct")]
    | Annotated[TensorMapArgument, Tag("tensor_map")],
    Discriminator(_argument_kind),
]


# --- The form of chains in a kernel file: loops, views of buffers, streams, and stages that a library runs.

Routine = Literal["gemm", "syrk", "trsm", "fft", "lapack-potrf", "lapack-getrf", "lapack-geqrf"]
Swaps = list[Annotated[list[Name], Field(min_length=2, max_length=2)]]

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

    repeat: int | str = Field(description="Steps, 1 or more: a number or an expression.")
    index: Name = Field(
        default="step",
        description="Name of the step's number, from 0, in the stages' grids, blocks, shared bytes, "
        "conditions, offsets and library arguments, and in the values of scalars.",
    )
    swap: Swaps = Field(
        default=[],
        description="Pairs of arrays, as [['u', 'v']]: a step reads the first and writes the second, and the "
        "next step reads what this one wrote.",
    )
    derived: dict[Name, Formula] = Field(
        default={},
        description="Named expressions of a step, usable where the index is, and in those that follow.",
    )


class ViewTable(FileTable):
    """A buffer from one of its elements on, as an argument of a stage."""

    buffer: Name = Field(description="Name of the array.")
    offset: int | str = Field(
        default=0, description="Elements before the first one: a number or an expression."
    )


def _stage_argument_kind(value: Any) -> str:  # noqa: ANN401 - whatever stands in the file
    return "view" if isinstance(value, dict | ViewTable) else "name"


StageArgument = Annotated[
    Annotated[Name, Tag("name")] | Annotated[ViewTable, Tag("view")], Discriminator(_stage_argument_kind)
]
"""The name of an argument, or a view of a buffer."""


class ChainedTable(FileTable):
    """Common keys of stages of all kinds in chains."""

    loop: Name | None = Field(default=None, description="Name of the [loop] whose steps it is part of.")
    stream: int | str = Field(
        default=0,
        description="Where it runs: 0 in the main stream, 1 to 7 in one beside it. Stages of one stream run "
        "one after another; all end with the run.",
    )
    after: list[str] = Field(
        default=[],
        description="Names of stages above that must have ended, where they run in other streams; NAME@-1 "
        "means the one of the step before, up to NAME@-9.",
    )


class OperandTable(FileTable):
    """A matrix for a library, column-major as in BLAS: element (i, j) is at offset + i + j * ld."""

    buffer: Name = Field(description="Name of the array.")
    offset: int | str = Field(default=0, description="Elements before element (0, 0).")
    ld: int | str | None = Field(
        default=None,
        description="Elements from one column to the next; the rows of the matrix otherwise.",
    )
    transposed: bool | str = Field(default=False, description="Whether its transpose is taken.")


class LibraryStageTable(ChainedTable):
    """A stage that cuBLAS or cuFFT runs, or LAPACK on the host."""

    name: str = Field(min_length=1, description="Name of the stage, for messages.")
    library: Routine = Field(
        description="gemm: c = alpha a b + beta c; syrk: c = alpha a a' + beta c; trsm: solves a x = alpha b "
        "into b; fft: c = transform of a; lapack-potrf, lapack-getrf, lapack-geqrf: factors of a, by the CPU."
    )
    when: Formula | None = Field(
        default=None, description="Condition; where it is false the stage is left out."
    )
    a: OperandTable = Field(description="First matrix.")
    b: OperandTable | None = Field(default=None, description="Second matrix, of gemm and trsm.")
    c: OperandTable | None = Field(default=None, description="Result, of gemm, syrk and fft.")
    pivots: ViewTable | None = Field(default=None, description="int32 array for pivots, of lapack-getrf.")
    tau: ViewTable | None = Field(default=None, description="Array for tau, of lapack-geqrf.")
    info: ViewTable | None = Field(
        default=None, description="int32 array for info, of lapack-potrf and lapack-getrf."
    )
    m: int | str | None = Field(
        default=None, description="Rows of the result; of fft the number of transforms, 1 otherwise."
    )
    n: int | str = Field(description="Columns of the result; of fft the length of a transform.")
    k: int | str | None = Field(default=None, description="Columns of a, of gemm and syrk.")
    alpha: int | float | str = Field(default=1, description="Factor.")
    beta: int | float | str = Field(default=0, description="Factor of what c holds before.")
    fill: Literal["lower", "upper"] = Field(
        default="lower", description="Triangle of c (syrk) or of a (trsm) that is used."
    )
    side: Literal["left", "right"] = Field(
        default="left", description="Of trsm: a x = b (left) or x a = b (right)."
    )
    unit: bool = Field(default=False, description="Of trsm: the diagonal of a is taken to be 1.")
    inverse: bool | str = Field(default=False, description="Of fft: the inverse transform, not normalised.")
    threads: int | str = Field(
        default=0, description="Of LAPACK: threads of the CPU; 0 for as many as the process may use."
    )
    first: int | str = Field(
        default=0,
        description="Of lapack-potrf and lapack-getrf: rows and columns before a; pivots and info count from "
        "there.",
    )

    @model_validator(mode="after")
    def _keys_of_the_routine(self) -> "LibraryStageTable":
        needed = (*OPERANDS[self.library], *_DIMENSIONS[self.library])
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(f"{self.library} needs {', '.join(missing)}")
        allowed = {*needed, *_OPTIONS[self.library], *_COMMON}
        extra = [name for name in self.model_fields_set if name not in allowed]
        if extra:
            raise ValueError(f"{self.library} takes no {', '.join(sorted(extra))}")
        if self.library.startswith("lapack-") and self.a.transposed is not False:
            raise ValueError(f"{self.library} takes no transposed matrix")
        return self


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

    first: int = Field(alias="from", ge=1, le=MAX_SIZE, description="The smallest.")
    last: int = Field(alias="to", ge=1, le=MAX_SIZE, description="The largest.")

    @model_validator(mode="after")
    def _in_order(self) -> "SizeRange":
        if self.last < self.first:
            raise ValueError(f"from {self.first} to {self.last} holds no number")
        return self


def _sizes_kind(value: Any) -> str:  # noqa: ANN401 - whatever stands in the file
    return "range" if isinstance(value, dict | SizeRange) else "list"


Sizes = Annotated[
    Annotated[list[int | str], Field(min_length=1), Tag("list")] | Annotated[SizeRange, Tag("range")],
    Discriminator(_sizes_kind),
]


class ProblemTable(FileTable):
    """The problem, its sizes, and the check of the answer."""

    name: ProblemName | None = Field(
        default=None,
        description="A built-in problem; or expression, checked with [problem.reference]; or consistent, "
        "compared with the answer of the default configuration, where nothing else says what is right; or "
        "unchecked, compared with nothing.",
    )
    batch: int | str = Field(
        default=1, description="Independent problems in one run unless the user sets it; over the sizes."
    )
    tolerance: float | None = Field(
        default=None, gt=0, description="Allowed relative error; the problem's own otherwise."
    )
    sizes: dict[Name, Sizes] = Field(
        default={},
        description="Problem sizes: name -> values to choose from, or a range as { from = 2, to = 8192 }.",
    )
    optional: list[Name] = Field(
        default=[], description="Sizes that may be left out of a workload; they take their first value."
    )
    reference: dict[Name, str] = Field(
        default={},
        description='Output buffer -> expression over the input buffers, or file("expected.npy").',
    )
    reference_function: str | None = Field(
        default=None,
        pattern=_FUNCTION,
        description="reference.py:function beside this file: takes the inputs and sizes by name, returns the "
        "right outputs.",
    )
    reference_entry: str | None = Field(
        default=None,
        min_length=1,
        description="A naive __global__ function of the same arguments, whose outputs are right.",
    )
    law: str | None = Field(
        default=None,
        pattern=_FUNCTION,
        description="laws.py:function beside this file: takes inputs, outputs and sizes by name, returns a "
        "number that right answers keep below the tolerance, or a table of them.",
    )
    reference_arrays: Literal["numpy", "cupy"] = Field(
        default="numpy", description="The arrays that reference_function and law are called with."
    )

    @property
    def kind(self) -> str:
        """The name of the problem: as it is stated, or by what says which answers are right."""
        kinds = {"reference_function": "function", "reference_entry": "entry", "law": "law"}
        stated = next((kind for key, kind in kinds.items() if getattr(self, key)), None)
        return stated or self.name or ("expression" if self.reference else "consistent")

    @model_validator(mode="after")
    def _one_reference(self) -> "ProblemTable":
        references = [key for key in _REFERENCES if getattr(self, key)]
        if len(references) > 1:
            raise ValueError(f"{' and '.join(references)} both say what is right; keep one of them")
        if self.name is not None and references and references != ["reference"]:
            raise ValueError(
                f"name = {self.name!r} and {references[0]} both say what is right; leave name out"
            )
        if self.law is not None and self.tolerance is None:
            raise ValueError("law needs tolerance: what its numbers must stay below")
        return self


class ReferenceLaunchTable(FileTable):
    """Geometry of the launch of ``reference_entry``."""

    grid: Geometry = Field(description="Blocks, as in [launch]; the tunables have their default values.")
    block: Geometry = Field(description="Threads of a block, as in [launch].")
    shared_bytes: int | str = Field(default=0, description="Dynamic shared memory of a block, in bytes.")


class KernelTable(FileTable):
    """Name, description and source of the kernel."""

    name: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9][a-z0-9-]*$",
        description="Name on the command line: a-z, 0-9 and -. Where it is left out, that of the folder of a "
        "kernel.toml, and that of any other file.",
    )
    description: str = Field(default="", description="One line for people.")
    family: str = Field(
        default="other",
        pattern=r"^[a-z0-9][a-z0-9-]*$",
        description="Kernels of one family solve the same kind of problem, e.g. scan, tridiagonal, fft.",
    )
    source: str | None = Field(
        default=None,
        description="CUDA C++ file, relative to this file; stages may name others. Of PTX and cubins, "
        "{expression} is replaced as in entry: gemm_{BM}x{BN}.ptx.",
    )
    language: Language | None = Field(
        default=None,
        description="Language of the source, or of the file that build makes of it. Where it is left out, by "
        "the name of the source: .ptx, .cubin, .py for triton, cuda for others; ptx with build.",
    )
    build: list[str] = Field(
        default=[],
        description="Command that makes PTX of the source, or a cubin with language = 'cubin'. Its words may "
        "have {expression} as in entry, {source}, {architecture}, as sm_90, and {output}, the file that it "
        "writes; without that it prints it. It runs without a shell in the folder of the source, reads that, "
        "include_paths and what is installed, and writes nothing else.",
    )
    headers: list[str] = Field(
        default=[],
        description="Folders, relative to this file, whose *.cuh files can be included by name; those beside "
        "this file always can. catalogue:NAME is a folder of the kernels that come with the package.",
    )
    entry: str | None = Field(
        default=None,
        description="Name expression of the __global__ function; {expression} is replaced by its value, "
        "e.g. scan<{N}, {P}>. The only __global__ function of the source where it is left out, its template "
        "parameters filled in by name. Never beside [[stage]] tables.",
    )
    include_paths: list[str] = Field(
        default=[],
        description="Folders, relative to this file or absolute, where the compiler looks for headers before "
        "those of CUDA.",
    )
    system_headers: bool = Field(
        default=True,
        description="Whether headers of C and C++, as cstdint or cmath, have stand-ins for device code. "
        "false: the kernel brings its own.",
    )
    options: list[str] = Field(
        default=[],
        description="NVRTC options beside the architecture; {expression} is replaced as in entry.",
    )
    extends: list[str] = Field(
        default=[],
        description="Kernels that this one is taken for at sizes and types that they refuse or leave.",
    )
    leaves: str | None = Field(
        default=None,
        description="Condition over sizes, batch and derived names without tunables: where it is true, a "
        "kernel that extends this one is taken if it can be.",
    )
    analytical: Literal[True, False, "default"] = Field(
        default=True,
        description="Whether the analytical rules answer for the kernel. false: its default is the first "
        "answer, e.g. because it was measured at every size. 'default': [default] is the last analytical "
        "answer, and the rules answer for devices that cannot launch it.",
    )


class LaunchTable(FileTable):
    """Geometry of the launch."""

    grid: Geometry = Field(description="Blocks: one expression, or a list of up to three (x, y, z).")
    block: Geometry | None = Field(
        default=None,
        description="Threads of a block: one expression, or a list of up to three (x, y, z). The tunables "
        "block_size_x, block_size_y and block_size_z where it is left out.",
    )
    shared_bytes: int | str = Field(
        default=0,
        description="Dynamic shared memory of a block, in bytes.",
    )
    min_architecture: int | str = Field(
        default=0, description="Least compute capability times ten, e.g. 80; other devices leave it out."
    )
    resident: bool | str = Field(
        default=False,
        description="Whether the grid is cut to the blocks the device holds at a time, and the kernel walks "
        "over the rest by gridDim.x.",
    )
    cluster: int | str = Field(
        default=1, description="Blocks of a cluster along x, as __cluster_dims__ in the source says."
    )
    cooperative: bool | str = Field(
        default=False,
        description="Whether blocks wait for each other (cooperative groups' grid.sync): all of them must be "
        "on the device at the same time.",
    )


class OnlyLaunchTable(LaunchTable):
    """The only launch of a run, which may be repeated."""

    repeat: int | str | None = Field(
        default=None, description="Launches of a run, one after another, as in [loop]; 1 otherwise."
    )
    index: Name = Field(default="step", description="Name of the launch's number, as in [loop].")
    swap: Swaps = Field(default=[], description="Pairs of arrays, as in [loop].")
    derived: dict[Name, Formula] = Field(
        default={}, description="Named expressions of a launch, as in [loop]."
    )

    @model_validator(mode="after")
    def _repeated(self) -> "OnlyLaunchTable":
        if self.repeat is None and self.model_fields_set & {"index", "swap", "derived"}:
            raise ValueError("index, swap and derived need repeat")
        return self


class ResourcesTable(FileTable):
    """Resources of a block, for machines without a compiler."""

    registers: int | str = Field(description="Registers of a thread.")
    static_shared_bytes: int | str = Field(
        default=0, description="Shared memory declared in the source, in bytes per block."
    )


class StageTable(LaunchTable, ChainedTable):
    """One of several launches that together make one run, in this order."""

    name: str = Field(min_length=1, description="Name of the stage, for messages.")
    entry: str = Field(description="Name expression of the __global__ function, as in [kernel].")
    source: str | None = Field(default=None, description="CUDA C++ file; that of [kernel] otherwise.")
    arguments: list[StageArgument] | None = Field(
        default=None,
        description="Names of buffers and scalars in parameter order; all of them otherwise. A table of "
        "buffer and offset stands for a buffer from one of its elements on.",
    )
    when: Formula | None = Field(
        default=None, description="Condition; where it is false the stage is left out."
    )
    setup: bool = Field(
        default=False, description="Whether it is launched once for the arrays, before runs and not timed."
    )
    registers: int | str | None = Field(
        default=None, description="Registers of a thread where no compiler can tell; [resources] otherwise."
    )
    static_shared_bytes: int | str | None = Field(
        default=None, description="Shared memory declared in the source, in bytes; [resources] otherwise."
    )
    moved_bytes: Formula | None = Field(
        default=None,
        description="Device memory that a launch moves, for modelled devices; its arrays once otherwise.",
    )


def _stage_kind(value: Any) -> str:  # noqa: ANN401 - whatever stands in the file
    of_library = "library" in value if isinstance(value, dict) else isinstance(value, LibraryStageTable)
    return "library" if of_library else "kernel"


AnyStage = Annotated[
    Annotated[StageTable, Tag("kernel")] | Annotated[LibraryStageTable, Tag("library")],
    Discriminator(_stage_kind),
]

MAX_ITEMS = 6  # of a permutation: 720 orders
Values = Annotated[list[bool | int | float | str], Field(min_length=1)]


Items = Annotated[list[int | str], Field(min_length=2, max_length=MAX_ITEMS)]


class TunableTable(FileTable):
    """A tunable with a condition, or one whose values are the orders of some items."""

    values: Values | None = Field(default=None, description="What it may be.")
    permutation: Items | None = Field(
        default=None,
        description="Items, whose orders it may be: texts of all items with commas between them.",
    )
    when: Formula | None = Field(
        default=None,
        description="Condition over sizes, batch, the tunables above, and derived names of these; where it "
        "is false the tunable has no value.",
    )
    otherwise: Formula | None = Field(
        default=None,
        description="What expressions see where it has no value: a value, or an expression over sizes, batch "
        "and the tunables above. Without it they must not come to the tunable there.",
    )

    @model_validator(mode="after")
    def _has_values(self) -> "TunableTable":
        if self.values is None and self.permutation is None:
            raise ValueError("needs values, or permutation in their place")
        if self.values is not None and self.permutation is not None:
            raise ValueError("has values and permutation; leave one of them out")
        return self


def _tunable_kind(value: Any) -> str:  # noqa: ANN401 - whatever stands in the file
    return "table" if isinstance(value, dict | TunableTable) else "list"


Tunables = dict[
    Name,
    Annotated[
        Annotated[Values, Tag("list")] | Annotated[TunableTable, Tag("table")], Discriminator(_tunable_kind)
    ],
]


class VariantTable(FileTable):
    """Tunables, rules and stages of one form of a kernel."""

    when: str = Field(description="Condition, as of a tunable; all else in the table holds where it is true.")
    tunables: Tunables = Field(default={}, description="Tunables that have a value only there.")
    rules: list[str] = Field(default=[], description="Conditions a configuration must satisfy there.")
    stage: list[AnyStage] = Field(default=[], description="Launches that are made only there.")

    @model_validator(mode="after")
    def _holds_something(self) -> "VariantTable":
        if not (self.tunables or self.rules or self.stage):
            raise ValueError("holds nothing: give it tunables, rules or stages")
        return self


class RolesTable(FileTable):
    """Roles of tunables for the tuning methods."""

    elements_per_thread: Name | None = Field(default=None, description="Elements one thread handles (P).")
    threads_per_block: Name | None = Field(default=None, description="Threads of a block (L).")
    radix: Name | None = Field(default=None, description="Radix of a step (r).")
    shared_elements: Name | None = Field(default=None, description="Elements kept in shared memory (S).")
    shuffle: Name | None = Field(
        default=None, description="Whether threads exchange data by warp shuffles instead of shared memory."
    )


class ConstraintsTable(FileTable):
    """The allowed combinations of tunables."""

    rules: list[str] = Field(default=[], description="Conditions; a configuration must satisfy all of them.")
    spills: bool = Field(
        default=False,
        description="Whether configurations that spill registers, or use local memory, are tried.",
    )


class WorkTable(FileTable):
    """The work of one run, the same for every configuration."""

    bytes: int | float | str = Field(description="Device memory that must move once, in bytes.")
    operations: int | float | str = Field(description="Arithmetic operations.")
    steps: int | float | str = Field(
        default=0, description="Dependent communication steps of a block, for the modelled device."
    )
    rate: str = Field(default="", description="Name of the rate, e.g. MData/s; its M or G is the scale.")
    rate_units: int | float | str = Field(
        default=0, description="Units of the rate done by one run, without the scale."
    )


class OccupancyTable(FileTable):
    """The least occupancy of a configuration that is tried."""

    min: float = Field(ge=0, le=1, description="Smallest occupancy, 0 to 1; 0 where the table is left out.")


class MeasuredTable(FileTable):
    """Answers that were measured at some sizes."""

    file: str = Field(
        pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$",
        description="A file of comma-separated values beside the kernel file. The first line names sizes, "
        "tunables and perhaps gpu; each further line is an answer, those of the same sizes in order of "
        "preference.",
    )
    when: str = Field(default="true", description="Condition over the sizes and the batch: where they hold.")


Answer = dict[Name, Formula]


def _answers_kind(value: Any) -> str:  # noqa: ANN401 - whatever stands in the file
    return "list" if isinstance(value, list) else "table"


StatedAnswers = Annotated[
    Annotated[Answer, Tag("table")] | Annotated[list[Answer], Field(min_length=1), Tag("list")],
    Discriminator(_answers_kind),
]


class KernelDocument(FileTable):
    """A kernel for tuner: CUDA source, what may be varied, and how it is launched and checked."""

    kernel: KernelTable = Field(description="What the kernel is and where its code stands.")
    problem: ProblemTable = Field(
        default=ProblemTable(), description="What is computed and how it is checked."
    )
    arguments: dict[Name, str | dict[Name, str]] = Field(
        default={},
        description="The parameters of the __global__ function, in order, in one line each: arrays as "
        "'in float32[N]', values as 'int32 = N', structs as { dt = 'float32 = 0.1', n = 'int32 = N' }. "
        "Instead of [[argument]].",
    )
    argument: list[Argument] = Field(
        default=[],
        description="The parameters of the __global__ function, in order; more than lines can say.",
    )
    tunables: Tunables = Field(
        default={},
        description="What may be varied: name -> values, or a table of values and a condition. In the space "
        "the first moves slowest.",
    )
    variant: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")], VariantTable] = Field(
        default={},
        description="Forms of the kernel: name -> a condition, and the tunables, rules and stages that hold "
        "where it is true.",
    )
    derived: dict[Signature, Formula] = Field(
        default={},
        description="Named expressions, usable in everything that follows. One with parameters, as "
        "'half(x)', is called by those below it, and by those of loops.",
    )
    roles: RolesTable = Field(default=RolesTable(), description="Which tunable plays which part.")
    constraints: ConstraintsTable = Field(default=ConstraintsTable(), description="Rules of the space.")
    default: dict[Name, Formula] = Field(
        default={},
        description="The configuration a sensible engineer would start from: a value or an expression over "
        "the sizes for every tunable, of those with a condition where it is true. The first configuration of "
        "the space where the table is left out.",
    )
    analytical: StatedAnswers = Field(
        default={},
        description="The analytical answer, written as [default], which has what is left out, for devices "
        "that can launch it; or [[analytical]], several of them, of which the first is taken that a device "
        "can launch. 'when' is a condition over the sizes and the batch; where it is false, the table is no "
        "answer. Where there is none, or a device can launch none, the analytical rules answer.",
    )
    measured: MeasuredTable | None = Field(
        default=None,
        description="Analytical answers that were measured at some sizes; they come before those of "
        "[analytical].",
    )
    launch: OnlyLaunchTable | None = Field(default=None, description="Geometry of the only launch.")
    loop: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")], LoopTable] = Field(
        default={},
        description="Loops over stages: name -> steps, index, arrays that are swapped, named expressions.",
    )
    stage: list[AnyStage] = Field(
        default=[], description="Several launches, instead of [launch]; those of variants follow."
    )
    reference_launch: ReferenceLaunchTable | None = Field(
        default=None, description="Geometry of reference_entry in [problem]; that of [launch] otherwise."
    )
    work: WorkTable | None = Field(
        default=None,
        description="What one run must do. Without it no rate is shown, and a simulated device assumes that "
        "every array moves once and that nothing is computed.",
    )
    resources: ResourcesTable | None = Field(
        default=None, description="What a block takes, used only where there is no compiler."
    )
    occupancy: OccupancyTable | None = Field(
        default=None, description="Occupancy a configuration must reach."
    )

    @model_validator(mode="after")
    def _one_form_of_launch(self) -> "KernelDocument":
        if self.stage or any(variant.stage for variant in self.variant.values()):
            if self.launch is not None or self.kernel.entry is not None:
                raise ValueError("[[stage]] tables stand instead of [launch] and entry in [kernel]")
        elif self.launch is None:
            raise ValueError("[launch], or [[stage]] tables, are needed")
        if not self.argument:
            raise ValueError("[arguments], or [[argument]] tables, are needed")
        if self.analytical and not self.kernel.analytical:
            raise ValueError("[analytical] and analytical = false in [kernel] contradict each other")
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
        return self


def json_schema() -> dict[str, Any]:
    """JSON Schema of kernel files, with a description of every key."""
    schema = KernelDocument.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
