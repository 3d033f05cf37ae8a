"""Which kernel of the catalogue does an operation, by the order of the matrices."""

from dataclasses import dataclass
from typing import Any, TypeAlias

from tuner.application import apply
from tuner.errors import InputError

Array: TypeAlias = Any
"""``cupy.ndarray``, which has no type information."""


@dataclass(frozen=True)
class Route:
    """A kernel, and the largest order that it takes.

    Attributes:
        kernel: in the catalogue; it takes the arrays that the other kernels of the operation take.
        most: the largest order.
    """

    kernel: str
    most: int


ROUTES: dict[str, tuple[Route, ...]] = {  # the first that takes the order
    "potrf": (Route("potrf-batched", 128),),
    "getrf": (Route("getrf-batched", 128),),
    "geqrf": (Route("geqrf-batched", 128),),
    "trsm": (Route("trsm-batched", 128),),
    "gemm": (Route("gemm-batched", 128),),
}


def route(call: str, operation: str, order: int) -> Route:
    """The kernel for an order.

    Args:
        call: what messages begin with.
        operation: of ``ROUTES``.
        order: rows and columns of the matrices, 1 or more.

    Raises:
        InputError: no kernel takes matrices as large.
    """
    found = next((one for one in ROUTES[operation] if order <= one.most), None)
    if found is None:
        most = max(one.most for one in ROUTES[operation])
        raise InputError(
            f"{call}: matrices of {order} rows or columns are too large; the kernels of {operation} take up"
            f" to {most} (cupy.linalg has others)"
        )
    return found


def run(call: str, operation: str, *arrays: Array) -> Any:  # noqa: ANN401 - arrays
    """Run an operation on arrays of shape (batch, order, order); see ``tuner.apply``.

    Raises:
        InputError: no kernel takes matrices as large.
    """
    return apply(route(call, operation, int(arrays[0].shape[-1])).kernel, *arrays)
