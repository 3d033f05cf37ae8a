"""Arguments of a kernel file with all expressions parsed: arrays, views, values, structs, tensor maps."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.kernel_files.formulas import Environment, Formula, Location, Template
from tuner.kernel_files.input_reader import InputRecipe
from tuner.kernel_files.schema import DTYPES, MAPPED_DTYPES, NONE
from tuner.model.elements import BFLOAT16, element_dtype, struct_bytes
from tuner.model.errors import suggestion
from tuner.model.plan import (
    Buffer,
    BufferRole,
    BufferView,
    Scalar,
    StageArgument,
    StructValue,
    TensorMap,
)

# CUDA driver API, cuTensorMapEncodeTiled
MAX_BOX = 256
MAX_TENSOR_DIMENSION = 2**32
ALIGNMENT_BYTES = 16
PROMOTIONS = (0, 64, 128, 256)
_WHOLE_TYPES = {
    f"{sign}int{bits}": (0 if sign else -(2 ** (bits - 1)), 2**bits - 1 if sign else 2 ** (bits - 1) - 1)
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
}
_LARGEST = {"float16": 65504.0, BFLOAT16: 3.3895313892515355e38, "float32": 3.4028234663852886e38}


@dataclass(frozen=True)
class BufferRecipe:
    """An array whose element type and shape are not evaluated yet.

    ``row_pitch`` says that its rows may lie apart, ``in_place`` names the input whose memory it may be, and
    ``cleared`` that every run begins with zeros in it.
    """

    name: str
    role: BufferRole
    dtype: Template
    shape: tuple[Formula, ...]
    input: InputRecipe | None = None
    restored: bool = False
    row_pitch: bool = False
    in_place: str | None = None
    cleared: bool = False

    def evaluated(self, env: Environment) -> Buffer:
        """The buffer of one configuration.

        Raises:
            KernelFileError: the type is none of NumPy's that can be used, an axis is not a whole number, or
                the array cannot hold its input.
        """
        dtype = known_dtype(self.dtype.location, self.dtype.fill(env), DTYPES)
        shape = tuple(axis.whole(env, least=0 if self.role == "table" else 1) for axis in self.shape)
        values = None if self.input is None else self.input.evaluated(env, dtype, shape)
        return Buffer(self.name, dtype, shape, self.role, values, self.restored, self.cleared)


class BufferTable(dict[str, Buffer]):
    """The buffers of one configuration by name, each evaluated when it is first asked for."""

    def __init__(self, recipes: Sequence[BufferRecipe], env: Environment) -> None:
        super().__init__()
        self._recipes = {recipe.name: recipe for recipe in recipes}
        self._env = env

    def __missing__(self, name: str) -> Buffer:
        self[name] = buffer = self._recipes[name].evaluated(self._env)
        return buffer


@dataclass(frozen=True)
class ViewRecipe:
    """A buffer from one of its elements on."""

    buffer: str
    offset: Formula

    def evaluated(self, env: Environment, buffers: Mapping[str, Buffer]) -> BufferView:
        """The view of one configuration, and one step.

        Raises:
            KernelFileError: it begins beyond its array.
        """
        return BufferView(self.buffer, self.offset.whole(env, 0, max(0, buffers[self.buffer].elements - 1)))


@dataclass(frozen=True)
class ScalarRecipe:
    """A kernel argument passed by value."""

    name: str
    dtype: Template
    value: Formula

    def evaluated(self, env: Environment) -> Scalar:
        """The scalar of one configuration, whole where its type is.

        Raises:
            KernelFileError: the type is none that can be used, or cannot hold the value.
        """
        if self.dtype.is_plain and self.dtype.begin == NONE:
            return Scalar(NONE, 0)
        dtype = known_dtype(self.dtype.location, self.dtype.fill(env), DTYPES)
        if dtype in _WHOLE_TYPES:
            return Scalar(dtype, self.value.whole(env, *_WHOLE_TYPES[dtype]))
        number = self.value.number(env)
        if abs(number) > _LARGEST.get(dtype, math.inf):
            raise self.value.location.error(f"{self.value} is {number}, which is beyond {dtype}")
        return Scalar(dtype, int(bool(number)) if dtype == "bool" else float(number))


@dataclass(frozen=True)
class StructRecipe:
    """A struct passed by value."""

    name: str
    fields: tuple[ScalarRecipe, ...]

    def evaluated(self, env: Environment) -> StructValue:
        """The struct of one configuration.

        Raises:
            KernelFileError: as of scalars.
        """
        scalars = [field.evaluated(env) for field in self.fields]
        names = tuple((field.name, scalar.dtype) for field, scalar in zip(self.fields, scalars, strict=True))
        return StructValue(names, struct_bytes(scalars))


@dataclass(frozen=True)
class TensorMapRecipe:
    """A tensor map; evaluated only for stages that take it."""

    location: Location
    buffer: BufferRecipe
    element: Template
    dims: tuple[Formula, Formula]
    box: tuple[Formula, Formula]
    promotion: Formula

    def evaluated(self, env: Environment) -> TensorMap:
        """The tensor map of one configuration.

        Raises:
            KernelFileError: CUDA cannot make it, or it reaches beyond its array.
        """
        element = known_dtype(self.element.location, self.element.fill(env), MAPPED_DTYPES)
        size = element_dtype(element).itemsize
        width, height = (formula.whole(env, 1, MAX_TENSOR_DIMENSION) for formula in self.dims)
        box_width, box_height = (formula.whole(env, 1, MAX_BOX) for formula in self.box)
        for name, row_bytes in (("dims", width * size), ("box", box_width * size)):
            if row_bytes % ALIGNMENT_BYTES:
                raise self.location.error(
                    f"a row of {name} takes {row_bytes} bytes; it must be a multiple of {ALIGNMENT_BYTES}"
                )
        buffer = self.buffer.evaluated(env)
        available = buffer.elements * element_dtype(buffer.dtype).itemsize
        if width * height * size > available:
            raise self.location.error(
                f"dims take {width * height * size} bytes, and {buffer.name} has {available}"
            )
        promotion = self.promotion.whole(env, least=0)
        if promotion not in PROMOTIONS:
            listed = ", ".join(map(str, PROMOTIONS))
            raise self.promotion.location.error(f"{self.promotion} is {promotion}; choose from {listed}")
        return TensorMap(buffer.name, element, (width, height), (box_width, box_height), promotion)


ArgumentRecipe = str | ScalarRecipe | StructRecipe | TensorMapRecipe
"""A parameter of a function: the name of a buffer, or what is passed by value."""

ParameterRecipe = ArgumentRecipe | ViewRecipe
"""Parameter of a stage: an argument, or a buffer from one of its elements on."""


def known_dtype(location: Location, dtype: str, dtypes: tuple[str, ...]) -> str:
    """The type itself.

    Raises:
        KernelFileError: it is not among ``dtypes``.
    """
    if dtype not in dtypes:
        raise location.error(f"{dtype!r} is not one of {', '.join(dtypes)}{suggestion(dtype, dtypes)}")
    return dtype


def values_of(item: ParameterRecipe) -> Iterator[Formula]:
    """Yield the formulas of an argument that may depend on the number of a step."""
    if isinstance(item, ViewRecipe):
        yield item.offset
    elif isinstance(item, ScalarRecipe):
        yield item.value
    elif isinstance(item, StructRecipe):
        yield from (field.value for field in item.fields)


def parameter(item: ParameterRecipe, env: Environment, buffers: Mapping[str, Buffer]) -> StageArgument:
    """A parameter of one configuration, and one step.

    Raises:
        KernelFileError: its value cannot be had.
    """
    if isinstance(item, str):
        return item
    return item.evaluated(env, buffers) if isinstance(item, ViewRecipe) else item.evaluated(env)
