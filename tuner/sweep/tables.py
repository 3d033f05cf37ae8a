"""The tables and keys of a sweep file; ``file`` reads and checks them."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Value = bool | int | float | str
"""One value of a size or an option."""

Choice = Value | Annotated[tuple[Value, ...], Field(min_length=1)]
"""A value, or a list of which every job has one."""

Texts = Annotated[tuple[str, ...], Field(min_length=1)]


class SweepFileTable(BaseModel):
    """A table of the file; a key that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SweepTable(SweepFileTable):
    """What concerns the whole sweep."""

    description: str = Field(default="", description="For people.")
    kernel_files: tuple[str, ...] = Field(
        default=(),
        description="Kernel files beside the catalogue, relative to this file; not with the daemon, which"
        " reads its own directories.",
    )


class GroupTable(SweepFileTable):
    """Jobs: every kernel at every size, with every objective, device and option, and workloads as written."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="For people; each once.")
    kernels: Texts | None = Field(default=None, description="Names of kernels, each tuned at every size.")
    sizes: dict[str, Choice] = Field(
        default={},
        description="Sizes of the kernels by name, batch and data types too: a value, or a list of values.",
    )
    workloads: Annotated[tuple[str | Texts, ...], Field(min_length=1)] | None = Field(
        default=None,
        description="Workloads as `tuner run` takes them; a list in the list runs together on one GPU.",
    )
    objectives: Texts = Field(
        default=("energy",), description="time, energy, edp, ed2p, pareto: a job for each."
    )
    devices: Texts = Field(
        default=("",),
        description="As --device takes them, and kinds, such as kind:NVIDIA H200: a job for each.",
    )
    options: dict[str, Choice] = Field(
        default={},
        description="Options of `tuner run` by name, before those of [options]; lists as in sizes.",
    )
    exclude: tuple[dict[str, Choice], ...] = Field(
        default=(),
        description="Jobs that are left out: kernel, device, objective, sizes or options with a value or a"
        " list of values; a job that has one of each is left out.",
    )


class SweepDocument(SweepFileTable):
    """A sweep file."""

    sweep: SweepTable = SweepTable()
    options: dict[str, Choice] = Field(
        default={}, description="Options of all groups: those of `tuner run` by name."
    )
    group: Annotated[tuple[GroupTable, ...], Field(min_length=1)] = Field(description="Groups of jobs.")
