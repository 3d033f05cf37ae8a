"""From the pivots of LU factorisations to the order of the rows."""

from functools import cache
from types import ModuleType
from typing import Any

from tuner.linalg.arrays import Array, Call

_EXCHANGES = """
for (int row = 0; row < rows; ++row) order[i * rows + row] = row;
for (int row = 0; row < count; ++row) {
    const int other = pivots[i * count + row];
    if (other < 0 || other >= rows) continue; // no pivot of a factorisation
    const int moved = order[i * rows + row];
    order[i * rows + row] = order[i * rows + other];
    order[i * rows + other] = moved;
}
"""


@cache
def _exchanging(cp: ModuleType) -> Any:  # noqa: ANN401 - a kernel of CuPy's, which has no type information
    parameters = "raw int32 pivots, int32 count, int32 rows"
    return cp.ElementwiseKernel(parameters, "raw int32 order", _EXCHANGES, "tuner_linalg_exchanges")


def permutation(call: Call, pivots: Array, rows: int) -> Array:
    """Row numbers after the exchanges, of shape (batch, rows): row i is what row ``result[:, i]`` was.

    Args:
        call: which call.
        pivots: (batch, count), int32: row i was exchanged with row ``pivots[:, i]``, one after another.
        rows: of the matrices.
    """
    batch, count = pivots.shape
    order = call.cp.empty((batch, rows), "int32")
    if order.size:
        _exchanging(call.cp)(call.cp.ascontiguousarray(pivots), count, rows, order, size=batch)
    return order
