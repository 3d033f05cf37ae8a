"""The form of ``[problem]``: sizes, and where right answers come from."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from tuner.config.argument_schema import FileTable, Geometry, Name

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
        default=[], description="Sizes that may be left out of a workload; they take the first of their list."
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
        found = next((kind for key, kind in kinds.items() if getattr(self, key)), None)
        return found or self.name or ("expression" if self.reference else "consistent")

    @model_validator(mode="after")
    def _one_reference(self) -> "ProblemTable":
        given = [key for key in _REFERENCES if getattr(self, key)]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} both say what is right; keep one of them")
        if self.name is not None and given and given != ["reference"]:
            raise ValueError(f"name = {self.name!r} and {given[0]} both say what is right; leave name out")
        if self.law is not None and self.tolerance is None:
            raise ValueError("law needs tolerance: what its numbers must stay below")
        return self


class ReferenceLaunchTable(FileTable):
    """Geometry of the launch of ``reference_entry``."""

    grid: Geometry = Field(description="Blocks, as in [launch]; the tunables have their default values.")
    block: Geometry = Field(description="Threads of a block, as in [launch].")
    shared_bytes: int | str = Field(default=0, description="Dynamic shared memory of a block, in bytes.")
