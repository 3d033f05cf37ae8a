"""The form of ``[[argument]]``: arrays, values, structs and tensor maps; and the base of all tables."""

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

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


class FileTable(BaseModel):
    """A table of a kernel file: no other keys, no conversion between types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _or_template(dtypes: tuple[str, ...]) -> dict[str, Any]:
    """JSON Schema of a type name, or of text with an expression in braces."""
    return {"anyOf": [{"enum": list(dtypes)}, {"pattern": r"\{.*\}"}]}


ArgumentRole = Literal["in", "out", "inout", "scratch", "zeroed", "constant"]


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
        "scratch set to zero before every run; constant is copied to a __constant__ or __device__ variable "
        "of the source, and is no parameter."
    )
    input: str | None = Field(
        default=None,
        description="How the values of an in or inout array are made, e.g. integers(0, N), csr_offsets(nnz) "
        'or file("x.npy"); as the problem has it where it is left out.',
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
    def _is_no_texture(cls, given: Any) -> Any:  # noqa: ANN401 - whatever stands in the file
        if isinstance(given, dict) and "texture" in given:
            raise ValueError(
                "texture objects are not supported; hand the array over as a buffer, and read it through a"
                " const __restrict__ pointer or __ldg()"
            )
        return given

    @model_validator(mode="after")
    def _only_constants_have_symbols(self) -> "BufferArgument":
        if self.symbol is not None and self.role != "constant":
            raise ValueError(f'symbol needs role = "constant", and the role is "{self.role}"')
        return self


class ScalarArgument(FileTable):
    """A value handed to the kernel."""

    scalar: Name = Field(description="Name of the value, for stages.")
    dtype: str = Field(
        description="Type, as NumPy names it; {expression} is replaced by its value.",
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
