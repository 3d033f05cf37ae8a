"""Matrices for tests of ``tuner.linalg``, and what its answers are compared with."""

from typing import Any

import numpy as np
from fake_cupy import DeviceArray
from numpy.typing import NDArray

N = 5
EPSILON = {"float32": 1e-5, "float64": 1e-13}


def random(*shape: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).uniform(-1, 1, shape)


def positive(*lead: int, n: int = N) -> NDArray[np.float64]:
    made = random(*lead, n, n)
    return made @ made.swapaxes(-1, -2) + n * np.eye(n)


def each(function: Any, *arrays: NDArray[Any], **settings: Any) -> NDArray[Any]:
    """SciPy's answers, matrix by matrix."""
    lead = np.broadcast_shapes(*(array.shape[:-2] for array in arrays))
    wide = [np.broadcast_to(array, (*lead, *array.shape[-2:])) for array in arrays]
    return np.array([function(*(one[at] for one in wide), **settings) for at in np.ndindex(lead)]).reshape(
        *lead, *function(*(one[(0,) * len(lead)] for one in wide), **settings).shape
    )


def near(found: Any, right: NDArray[Any], dtype: str = "float64") -> bool:
    """Same type, shape and numbers, but for rounding."""
    assert isinstance(found, DeviceArray)
    assert found.dtype.name == dtype
    assert found.shape == right.shape
    return np.allclose(found, right, rtol=EPSILON[dtype], atol=EPSILON[dtype])
