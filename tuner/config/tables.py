"""What every table of a kernel file is made of."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Formula = int | float | bool | str
Geometry = int | str | Annotated[list[int | str], Field(min_length=1, max_length=3)]


class Table(BaseModel):
    """A table of a kernel file: no other keys, no conversion between types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
