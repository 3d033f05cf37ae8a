"""Operators of scans, their neutral values, and the numbers that scans by them are tested with."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.problems.arrays import Array, Draw, Namespace

OPERATORS = ("sum", "min", "max", "product", "and", "or", "xor")
_FUNCTIONS = ("add", "minimum", "maximum", "multiply", "logical_and", "logical_or", "logical_xor")


@dataclass(frozen=True)
class PrefixOperator:
    """An associative operator; logical ones join truth values, and what is not zero is true.

    Attributes:
        name: one of ``OPERATORS``.
    """

    name: str

    @property
    def logical(self) -> bool:
        """Whether it joins truth values; they are 0 and 1 in outputs."""
        return self.name in ("and", "or", "xor")

    def exact(self, dtype: "np.dtype[Any]") -> bool:
        """Whether scans are right to the last bit: all but sums and products of reals and complex numbers."""
        return dtype.kind not in "fc" or self.name not in ("sum", "product")

    def neutral(self, dtype: "np.dtype[Any]") -> complex:
        """What joined with a value gives that value; infinities for least and largest fractions."""
        if self.name in ("min", "max"):
            if dtype.kind not in "fc":
                return (np.iinfo(dtype).min, np.iinfo(dtype).max)[self.name == "min"]
            bound = math.inf if self.name == "min" else -math.inf
            return complex(bound, bound) if dtype.kind == "c" else bound
        return 1 if self.name in ("product", "and") else 0

    def values(self, xp: Namespace, array: Array) -> Array:
        """What is joined: truth values, double precision where sums and products round, else the elements."""
        if self.logical:
            return array != 0
        if self.exact(array.dtype):
            return array
        return array.astype(xp.complex128 if array.dtype.kind == "c" else xp.float64)

    def join(self, xp: Namespace, before: Array, after: Array) -> Array:
        """Element by element."""
        return self._function(xp)(before, after)

    def accumulate(self, rows: Array) -> Array:
        """The inclusive scan of rows of NumPy, in their type."""
        with np.errstate(over="ignore"):
            return self._function(np).accumulate(rows, axis=1, dtype=rows.dtype)

    def draw(self, dtype: "np.dtype[Any]", length: int) -> Draw:
        """Random inputs of which every element tells.

        Real sums: [-1, 1), so that partial sums stay near the root of the length and errors relative to them
        are not flattered by a large total. Products: of magnitudes so near to 1 that they neither vanish nor
        overflow. Whole numbers: of 32 bits, or as many as the type has. Logical operators: 0 and 1.
        """
        if self.logical:
            return Draw("whole", 0, 2)
        if dtype.kind in "fc":
            if self.name != "product":
                return Draw()
            near = min(0.5, 4 / math.sqrt(length))
            middle = math.sqrt(0.5) if dtype.kind == "c" else 1.0  # of both parts
            return Draw(low=middle - near, width=2 * near)
        limits = np.iinfo(dtype)
        low, most = max(-(2**31), int(limits.min)), min(2**32 - 1, int(limits.max))
        return Draw("whole", low, min(2**32, most - low + 1))

    def _function(self, xp: Namespace) -> Any:  # noqa: ANN401 - a universal function
        return getattr(xp, _FUNCTIONS[OPERATORS.index(self.name)])
