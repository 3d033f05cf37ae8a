"""Options of calls: factors, flags and transposes."""

from numbers import Real
from typing import Any

import numpy as np

from tuner.linalg.arrays import Call

_TRANSPOSED: dict[Any, bool] = {0: False, 1: True, 2: True, "N": False, "T": True, "C": True}


def factor(call: Call, name: str, value: Any, dtype: Any) -> Any:  # noqa: ANN401 - a number, NumPy's types
    """A number in the type of the matrices, as BLAS takes it.

    Raises:
        InputError: it is no real number.
    """
    if not isinstance(value, Real):
        raise call.wrong(f"{name} is {value!r}; it must be a real number")
    return dtype.type(value)


def flag(call: Call, name: str, value: Any) -> bool:  # noqa: ANN401 - whatever callers have
    """Whether an option is on.

    Raises:
        InputError: it is neither True nor False; a string would count as True.
    """
    if isinstance(value, (int, np.bool_, np.integer)) and value in {0, 1}:
        return bool(value)
    raise call.wrong(f"{name} is {value!r}; it must be True or False")


def transposed(call: Call, name: str, value: Any) -> bool:  # noqa: ANN401 - whatever callers have
    """Whether a matrix is taken as its transpose; the conjugate one is the same of real matrices.

    Raises:
        InputError: the option is none of SciPy's.
    """
    if isinstance(value, (str, int, np.bool_, np.integer)) and value in _TRANSPOSED:
        return _TRANSPOSED[value]
    raise call.wrong(f"{name} is {value!r}; it must be 0 or 'N', or 1, 2, 'T' or 'C'")
