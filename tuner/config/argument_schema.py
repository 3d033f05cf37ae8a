"""The form of ``[[argument]]``: arrays, values and tensor maps; and the base of all tables."""

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from tuner.model import BufferRole

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
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
    "float32",
    "float64",
    "complex64",
    "complex128",
]
DTYPES: tuple[str, ...] = get_args(Dtype)
MAPPED_DTYPES = (
    *("uint8", "uint16", "uint32", "uint64", "int32", "int64"),
    *("float16", "float32", "float64"),
)
"""Those a tensor map can have (``CUtensorMapDataType``)."""


class FileTable(BaseModel):
    """A table of a kernel file: no other keys, no conversion between types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _or_template(dtypes: tuple[str, ...]) -> dict[str, Any]:
    """JSON Schema of a type name, or of text with an expression in braces."""
    return {"anyOf": [{"enum": list(dtypes)}, {"pattern": r"\{.*\}"}]}


class BufferArgument(FileTable):
    """A device array handed to the kernel as a pointer."""

    buffer: Name = Field(description="Name of the array.")
    dtype: str = Field(
        description="Element type, as NumPy names it; {expression} over the sizes is replaced by its value.",
        json_schema_extra=_or_template(DTYPES),
    )
    shape: list[int | str] = Field(
        min_length=1, description="Elements along each axis, the batch first; numbers or expressions."
    )
    role: BufferRole = Field(
        description="in is read; out is written completely; inout is both; scratch is not checked; zeroed is "
        "scratch set to zero before every run."
    )
    input: str | None = Field(
        default=None,
        description="How the values of an in or inout array are made, e.g. integers(0, N), csr_offsets(nnz) "
        'or file("x.npy"); as the problem has it where it is left out.',
    )


class ScalarArgument(FileTable):
    """A value handed to the kernel."""

    scalar: Name = Field(description="Name of the value, for stages.")
    dtype: Dtype = Field(description="Type, as NumPy names it.")
    value: Formula = Field(description="Number or expression.")


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
    kinds = ("scalar", "tensor_map") if isinstance(value, dict) else ()
    return next((kind for kind in kinds if kind in value), "buffer")


Argument = Annotated[
    Annotated[BufferArgument, Tag("buffer")]
    | Annotated[ScalarArgument, Tag("scalar")]
    | Annotated[TensorMapArgument, Tag("tensor_map")],
    Discriminator(_argument_kind),
]
