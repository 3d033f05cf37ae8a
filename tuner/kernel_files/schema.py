"""The schema of a kernel file: its tables, keys and types; ``config`` evaluates its expressions."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from tuner.config.argument_schema import Argument, FileTable, Formula, Geometry, Name
from tuner.config.chain_schema import ChainedTable, LibraryStageTable, LoopTable, StageArgument, Swaps
from tuner.config.problem_schema import ProblemTable, ReferenceLaunchTable


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
        default=None, description="CUDA C++ file, relative to this file; stages may name others."
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
    options: list[str] = Field(
        default=[],
        description="NVRTC options beside the architecture; {expression} is replaced as in entry.",
    )
    extends: list[str] = Field(
        default=[],
        description="Kernels that this one is taken for at sizes and types that they refuse.",
    )
    analytical: Literal[True, False, "default"] = Field(
        default=True,
        description="Whether the analytical rules answer for the kernel. false: its default is the first "
        "answer, e.g. because it was measured at every size. 'default': [default] is the analytical answer, "
        "and the rules answer for devices that cannot launch it.",
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
    derived: dict[Name, Formula] = Field(
        default={}, description="Named expressions, usable in everything that follows."
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
        description="The analytical answer, written as [default], for devices that can launch it; or "
        "[[analytical]], several of them, of which the first is taken that a device can launch. Where the "
        "table is left out, or a device can launch none, the analytical rules answer.",
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
        return self


def json_schema() -> dict[str, Any]:
    """JSON Schema of kernel files, with a description of every key."""
    schema = KernelDocument.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
