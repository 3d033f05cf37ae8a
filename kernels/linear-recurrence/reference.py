"""Right answers of linear recurrences."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def recurrence(
    a: NDArray[Any], b: NDArray[Any], N: int, batch: int, *, form: str, direction: str
) -> NDArray[Any]:
    """``y[i] = a[i] y[i-1] + b[i]`` along rows in float64, with ``y[-1] = 0``; from the end in reverse.

    Rows are cut into some √N parts that are worked out side by side, from 0; then every part gets what the
    parts before it leave.

    Args:
        a: (batch, N), likewise ``b``.
        b: see ``a``.
        N: elements of a row.
        batch: rows.
        form: ``inclusive``, or ``exclusive``: ``y[i]`` becomes what is ``y[i-1]`` otherwise, and 0 at first.
        direction: ``forward`` or ``reverse``.
    """
    way = slice(None, None, -1 if direction == "reverse" else 1)
    steps = math.isqrt(N - 1) + 1
    parts = -(-N // steps)
    factors, sums = np.ones((batch, parts * steps)), np.zeros((batch, parts * steps))
    factors[:, :N], sums[:, :N] = a[:, way], b[:, way]
    factors, sums = (
        np.ascontiguousarray(one.reshape(batch, parts, steps).transpose(2, 0, 1)) for one in (factors, sums)
    )
    for step in range(1, steps):
        sums[step] += factors[step] * sums[step - 1]
        factors[step] *= factors[step - 1]
    before = np.zeros((batch, parts))
    for part in range(1, parts):
        before[:, part] = factors[-1, :, part - 1] * before[:, part - 1] + sums[-1, :, part - 1]
    sums += factors * before
    found = sums.transpose(1, 2, 0).reshape(batch, -1)[:, :N]
    if form == "exclusive":
        found = np.concatenate([np.zeros((batch, 1)), found[:, :-1]], axis=1)
    return found[:, way]
