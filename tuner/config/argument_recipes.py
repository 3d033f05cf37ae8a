"""What a kernel takes, with expressions not evaluated yet: arrays, values and tensor maps."""

import math
from dataclasses import dataclass
from typing import cast

import numpy as np

from tuner.config.argument_schema import DTYPES, MAPPED_DTYPES
from tuner.config.formulas import Environment, Formula, Place, Template
from tuner.model import Buffer, BufferRole, Scalar, TensorMap
from tuner.system.names import suggestion

# CUDA driver API, cuTensorMapEncodeTiled
MAX_BOX = 256
MAX_DIMENSION = 2**32
ALIGNMENT_BYTES = 16
PROMOTIONS = (0, 64, 128, 256)
_WHOLE_TYPES = {
    f"{sign}int{bits}": (0 if sign else -(2 ** (bits - 1)), 2**bits - 1 if sign else 2 ** (bits - 1) - 1)
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
}


@dataclass(frozen=True)
class BufferRecipe:
    """An array whose element type and shape are not evaluated yet."""

    name: str
    role: BufferRole
    dtype: Template
    shape: tuple[Formula, ...]

    def evaluated(self, env: Environment) -> Buffer:
        """The buffer of one configuration.

        Raises:
            KernelFileError: the type is none of NumPy's that can be used, or an axis is not a whole number.
        """
        dtype = known_dtype(self.dtype.place, self.dtype.fill(env), DTYPES)
        return Buffer(self.name, dtype, tuple(axis.whole(env, least=1) for axis in self.shape), self.role)


@dataclass(frozen=True)
class ScalarRecipe:
    """A kernel argument passed by value."""

    name: str
    dtype: str
    value: Formula

    def evaluated(self, env: Environment) -> Scalar:
        """The scalar of one configuration, whole where its type is."""
        if self.dtype in _WHOLE_TYPES:
            return Scalar(self.dtype, self.value.whole(env, *_WHOLE_TYPES[self.dtype]))
        number = self.value.number(env)
        return Scalar(self.dtype, int(bool(number)) if self.dtype == "bool" else float(number))


@dataclass(frozen=True)
class TensorMapRecipe:
    """A tensor map; evaluated only for stages that take it."""

    place: Place
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
        element = known_dtype(self.element.place, self.element.fill(env), MAPPED_DTYPES)
        size = np.dtype(element).itemsize
        dims = _pair(self.dims, env, MAX_DIMENSION)
        box = _pair(self.box, env, MAX_BOX)
        for name, inner in (("dims", dims[0]), ("box", box[0])):
            if inner * size % ALIGNMENT_BYTES:
                raise self.place.error(
                    f"a row of {name} takes {inner * size} bytes; it must be a multiple of {ALIGNMENT_BYTES}"
                )
        buffer = self.buffer.evaluated(env)
        available = buffer.elements * np.dtype(buffer.dtype).itemsize
        if math.prod(dims) * size > available:
            raise self.place.error(
                f"dims take {math.prod(dims) * size} bytes, and {buffer.name} has {available}"
            )
        promotion = self.promotion.whole(env, least=0)
        if promotion not in PROMOTIONS:
            listed = ", ".join(map(str, PROMOTIONS))
            raise self.promotion.place.error(f"{self.promotion} is {promotion}; choose from {listed}")
        return TensorMap(buffer.name, element, dims, box, promotion)


ArgumentRecipe = str | ScalarRecipe | TensorMapRecipe
"""A parameter of a function: the name of a buffer, or what is passed by value."""


def known_dtype(place: Place, given: str, dtypes: tuple[str, ...]) -> str:
    """The type itself.

    Raises:
        KernelFileError: it is not among ``dtypes``.
    """
    if given not in dtypes:
        raise place.error(f"{given!r} is not one of {', '.join(dtypes)}{suggestion(given, dtypes)}")
    return given


def _pair(formulas: tuple[Formula, Formula], env: Environment, most: int) -> tuple[int, int]:
    return cast("tuple[int, int]", tuple(formula.whole(env, 1, most) for formula in formulas))
