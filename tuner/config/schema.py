"""The form of a kernel file: its tables, keys and types. What its expressions mean is in ``config``."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

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
    "float32",
    "float64",
    "complex64",
    "complex128",
]
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Formula = int | float | bool | str
Geometry = int | str | Annotated[list[int | str], Field(min_length=1, max_length=3)]


class Table(BaseModel):
    """A table of a kernel file: no other keys, no conversion between types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class KernelTable(Table):
    """What the kernel is and where its code stands."""

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9-]*$", description="Name on the command line: a-z, 0-9 and -."
    )
    description: str = Field(default="", description="One line for people.")
    family: str = Field(
        default="other",
        pattern=r"^[a-z0-9][a-z0-9-]*$",
        description="Kernels of one family solve the same kind of problem, e.g. scan, tridiagonal, fft.",
    )
    source: str | None = Field(
        default=None, description="CUDA C++ file, relative to this file; stages may name others."
    )
    headers: list[str] = Field(
        default=[],
        description="Folders, relative to this file, whose *.cuh files can be included by name; those beside "
        "this file always can.",
    )
    entry: str | None = Field(
        default=None,
        description="Name expression of the __global__ function; {expression} is replaced by its value, "
        "e.g. scan<{N}, {P}>. Left out where there are [[stage]] tables.",
    )
    options: list[str] = Field(
        default=[],
        description="NVRTC options beside the architecture; {expression} is replaced as in entry.",
    )


class ProblemTable(Table):
    """What is computed, how large, and how the answer is checked."""

    name: Literal["scan", "tridiagonal", "fft", "expression", "consistent"] = Field(
        default="consistent",
        description="A built-in problem; or expression, checked with [problem.reference]; or consistent, "
        "compared with the answer of the default configuration.",
    )
    batch: int | str = Field(
        default=1, description="Independent problems in one run unless the user sets it; over the sizes."
    )
    tolerance: float | None = Field(
        default=None, gt=0, description="Allowed relative error; the problem's own otherwise."
    )
    sizes: dict[Name, Annotated[list[int | str], Field(min_length=1)]] = Field(
        default={}, description="Problem sizes: name -> values a workload may take."
    )
    reference: dict[Name, str] = Field(
        default={}, description="For the problem expression: output buffer -> expression over input buffers."
    )


class BufferArgument(Table):
    """A device array handed to the kernel as a pointer."""

    buffer: Name = Field(description="Name of the array.")
    dtype: Dtype = Field(description="Element type, as NumPy names it.")
    shape: list[int | str] = Field(
        min_length=1, description="Elements along each axis, the batch first; numbers or expressions."
    )
    role: Literal["in", "out", "inout", "scratch"] = Field(
        description="in is read; out is written completely; inout is both; scratch is not checked."
    )


class ScalarArgument(Table):
    """A value handed to the kernel."""

    scalar: Name = Field(description="Name of the value, for stages.")
    dtype: Dtype = Field(description="Type, as NumPy names it.")
    value: Formula = Field(description="Number or expression.")


def _argument_kind(value: Any) -> str:  # noqa: ANN401 - whatever stands in the file
    return "scalar" if isinstance(value, dict) and "scalar" in value else "buffer"


Argument = Annotated[
    Annotated[BufferArgument, Tag("buffer")] | Annotated[ScalarArgument, Tag("scalar")],
    Discriminator(_argument_kind),
]


class LaunchTable(Table):
    """Geometry of the launch."""

    grid: Geometry = Field(description="Blocks: one expression, or a list of up to three (x, y, z).")
    block: Geometry = Field(
        description="Threads of a block: one expression, or a list of up to three (x, y, z)."
    )
    shared_bytes: int | str = Field(
        default=0,
        description="Dynamic shared memory of a block, in bytes.",
    )


class ResourcesTable(Table):
    """What a block takes where no compiler can tell."""

    registers: int | str = Field(description="Registers of a thread.")
    static_shared_bytes: int | str = Field(
        default=0, description="Shared memory declared in the source, in bytes per block."
    )


class StageTable(LaunchTable):
    """One of several launches that together make one run, in this order."""

    name: str = Field(min_length=1, description="Name of the stage, for messages.")
    entry: str = Field(description="Name expression of the __global__ function, as in [kernel].")
    source: str | None = Field(default=None, description="CUDA C++ file; that of [kernel] otherwise.")
    arguments: list[Name] | None = Field(
        default=None, description="Names of buffers and scalars in parameter order; all of them otherwise."
    )
    when: Formula | None = Field(
        default=None, description="Condition; where it is false the stage is left out."
    )
    registers: int | str | None = Field(
        default=None, description="Registers of a thread where no compiler can tell; [resources] otherwise."
    )
    static_shared_bytes: int | str | None = Field(
        default=None, description="Shared memory declared in the source, in bytes; [resources] otherwise."
    )


class RolesTable(Table):
    """Which tunable is what the tuning methods ask for."""

    elements_per_thread: Name | None = Field(default=None, description="Elements one thread handles (P).")
    threads_per_block: Name | None = Field(default=None, description="Threads of a block (L).")
    radix: Name | None = Field(default=None, description="Radix of a step (r).")
    shared_elements: Name | None = Field(default=None, description="Elements kept in shared memory (S).")
    shuffle: Name | None = Field(
        default=None, description="Whether threads exchange data by warp shuffles instead of shared memory."
    )


class ConstraintsTable(Table):
    """Which combinations of tunables are allowed."""

    rules: list[str] = Field(default=[], description="Conditions; a configuration must satisfy all of them.")


class WorkTable(Table):
    """What one run must do, whatever the configuration."""

    bytes: int | float | str = Field(description="Device memory that must move once, in bytes.")
    operations: int | float | str = Field(description="Arithmetic operations.")
    steps: int | float | str = Field(
        default=0, description="Dependent communication steps of a block, for the modelled device."
    )
    rate: str = Field(default="", description="Name of the rate, e.g. MData/s; its M or G is the scale.")
    rate_units: int | float | str = Field(
        default=0, description="Units of the rate done by one run, without the scale."
    )


class OccupancyTable(Table):
    """How much of a multiprocessor a configuration must fill to be tried."""

    min: float = Field(ge=0, le=1, description="Smallest occupancy, 0 to 1; 0.8 where the table is left out.")


class KernelDocument(Table):
    """A kernel for tuner: CUDA source, what may be varied, and how it is launched and checked."""

    kernel: KernelTable = Field(description="What the kernel is and where its code stands.")
    problem: ProblemTable = Field(
        default=ProblemTable(), description="What is computed and how it is checked."
    )
    argument: list[Argument] = Field(
        min_length=1, description="The parameters of the __global__ function, in order."
    )
    tunables: dict[Name, Annotated[list[bool | int | float | str], Field(min_length=1)]] = Field(
        min_length=1,
        description="What may be varied: name -> values. In the space the first moves slowest.",
    )
    derived: dict[Name, Formula] = Field(
        default={}, description="Named expressions, usable in everything that follows."
    )
    roles: RolesTable = Field(default=RolesTable(), description="Which tunable plays which part.")
    constraints: ConstraintsTable = Field(default=ConstraintsTable(), description="Rules of the space.")
    default: dict[Name, Formula] = Field(
        default={},
        description="The configuration a sensible engineer would start from: a value or an expression over "
        "the sizes for every tunable. The first configuration of the space where the table is left out.",
    )
    launch: LaunchTable | None = Field(default=None, description="Geometry of the only launch.")
    stage: list[StageTable] = Field(default=[], description="Several launches, instead of [launch].")
    work: WorkTable = Field(description="What one run must do.")
    resources: ResourcesTable | None = Field(
        default=None, description="What a block takes, used only where there is no compiler."
    )
    occupancy: OccupancyTable | None = Field(
        default=None, description="Occupancy a configuration must reach."
    )

    @model_validator(mode="after")
    def _one_form_of_launch(self) -> "KernelDocument":
        if self.stage:
            if self.launch is not None or self.kernel.entry is not None:
                raise ValueError("[[stage]] tables stand instead of [launch] and entry in [kernel]")
        elif self.launch is None or self.kernel.entry is None:
            raise ValueError("[launch] and entry in [kernel], or [[stage]] tables, are needed")
        if (self.problem.name == "expression") != bool(self.problem.reference):
            raise ValueError('[problem.reference] and name = "expression" in [problem] need each other')
        return self
