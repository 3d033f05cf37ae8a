"""Which kernel of the catalogue does an operation, by the order of the matrices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner.application import apply
from tuner.application.keys import ALIGNED
from tuner.linalg.arrays import Array, Call

CUBLAS = "cuBLAS"
_ANY = 2**31 - 1  # of BLAS, whose numbers are int


@dataclass(frozen=True)
class Route:
    """A kernel, and the largest order that it takes.

    Attributes:
        kernel: in the catalogue, or ``CUBLAS``; it takes the arrays that the other kernels of the operation
            take.
        most: the largest order.
        batched: whether it takes a batch; else matrices are given one after another.
    """

    kernel: str
    most: int
    batched: bool = True


ROUTES: dict[str, tuple[Route, ...]] = {  # the first that takes the order
    "potrf": (Route("potrf-batched", 128), Route("potrf", 32768, batched=False)),
    "getrf": (Route("getrf-batched", 128), Route("getrf", 32768, batched=False)),
    "geqrf": (Route("geqrf-batched", 128), Route("geqrf", 32768, batched=False)),
    "trsm": (Route("trsm-batched", 128), Route(CUBLAS, _ANY, batched=False)),
    "gemm": (Route("gemm-batched", 128), Route(CUBLAS, _ANY, batched=False)),
}


def route(call: Call, operation: str, order: int) -> Route:
    """The kernel for an order.

    Args:
        call: which call.
        operation: of ``ROUTES``.
        order: rows and columns of the matrices, 1 or more.

    Raises:
        InputError: no kernel takes matrices as large.
    """
    found = next((one for one in ROUTES[operation] if order <= one.most), None)
    if found is None:
        most = max(one.most for one in ROUTES[operation])
        raise call.wrong(
            f"matrices of {order} rows or columns are too large; the kernels of {operation} take up"
            f" to {most} (cupy.linalg has others)"
        )
    return found


def run(call: Call, operation: str, *arrays: Array) -> Any:  # noqa: ANN401 - arrays
    """Run an operation of the catalogue on arrays of shape (batch, order, order); see ``tuner.apply``.

    Raises:
        InputError: no kernel takes matrices as large.
    """
    found = route(call, operation, int(arrays[0].shape[-1]))
    if found.batched:
        return apply(found.kernel, *arrays)
    (matrices,) = arrays
    made = [_one(found.kernel, matrices[number]) for number in range(len(matrices))]
    return (matrices, *(_stacked(call, ones) for ones in zip(*made, strict=True)))


def _one(kernel: str, matrix: Array) -> tuple[Array, ...]:
    """Factor one matrix in place, and return what else the kernel makes."""
    whole = matrix.copy() if matrix.data.ptr & ALIGNED else matrix  # one behind another of odd order
    _, *others = apply(kernel, whole)
    if whole is not matrix:
        matrix[...] = whole
    return tuple(others)


def _stacked(call: Call, arrays: Sequence[Array]) -> Array:
    """Arrays of one shape as one, (batch, ...)."""
    made = call.cp.empty((len(arrays), *arrays[0].shape), arrays[0].dtype)
    for number, array in enumerate(arrays):
        made[number] = array
    return made
