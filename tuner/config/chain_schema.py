"""The form of chains in a kernel file: loops, views of buffers, streams, and stages that a library runs."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from tuner.config.argument_schema import FileTable, Formula, Name

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


def _argument_kind(value: Any) -> str:  # noqa: ANN401 - whatever stands in the file
    return "view" if isinstance(value, dict | ViewTable) else "name"


StageArgument = Annotated[
    Annotated[Name, Tag("name")] | Annotated[ViewTable, Tag("view")], Discriminator(_argument_kind)
]
"""The name of an argument, or a view of a buffer."""


class ChainedTable(FileTable):
    """What stages of all kinds have in chains."""

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
        known = {*needed, *_OPTIONS[self.library], *_COMMON}
        extra = [name for name in self.model_fields_set if name not in known]
        if extra:
            raise ValueError(f"{self.library} takes no {', '.join(sorted(extra))}")
        if self.library.startswith("lapack-") and self.a.transposed is not False:
            raise ValueError(f"{self.library} takes no transposed matrix")
        return self
