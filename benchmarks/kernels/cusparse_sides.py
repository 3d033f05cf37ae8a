"""cuSPARSE for several right sides, and for periodic systems by the formula of Sherman and Morrison.

It has no routine for periodic systems. The open system with two right sides and one pass over both solutions
give the answer. What prepares that matrix and the second right side is not timed.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from answers import Data
from cusparse_peers import LETTERS, ONE_SYSTEM, STRIDED, CusparsePeers, Room
from peer import Peer
from vendor_library import address

_TYPES = {"float32": "float", "float64": "double", "complex64": "complex<float>"}
_CORRECTION = r"""
#include <cupy/complex.cuh>
template <class T>
__global__ void correct(const T* a, const T* b, const T* y, const T* q, T* x, long long n, long long count) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= count) return;
    const long long first = i / n * n, last = first + n - 1;
    const T corner = -a[first] / b[first];
    x[i] = y[i] - (y[first] + corner * y[last]) / (T(1) + q[first] + corner * q[last]) * q[i];
}
"""
_THREADS = 256


class SidedPeers(CusparsePeers):
    """The routines that take several right sides, or that are called once for each."""

    def several(self, data: Data) -> list[Peer]:
        """For K right sides, which lie as the routines want them: all first ones, then all second ones."""
        cp, (*matrix, d) = self._cp, data.inputs
        batch, n = matrix[0].shape
        right = cp.empty((d.shape[1] // n, batch, n), d.dtype)

        def prepare() -> None:
            cp.copyto(right, d.reshape(batch, -1, n).transpose(1, 0, 2))

        def answer() -> Any:
            return right.transpose(1, 0, 2).reshape(batch, -1)

        def peer(name: str, form: str, solve: Callable[[], None]) -> Peer:
            return Peer(name, form, solve, answer, prepare, keep=right)

        return self._forms(matrix, right, peer)

    def periodic(self, data: Data) -> list[Peer]:
        """For systems whose ends meet."""
        cp, (a, b, c, d), x = self._cp, data.inputs, data.output
        batch, n = d.shape
        open_a, open_b, open_c = a.copy(), b.copy(), c.copy()
        open_b[:, 0] *= 2
        open_b[:, -1] += a[:, 0] / b[:, 0] * c[:, -1]
        open_a[:, 0] = open_c[:, -1] = 0
        right = cp.empty((2, batch, n), d.dtype)
        name = f"correct<{_TYPES[d.dtype.name]}>"
        module = cp.RawModule(code=_CORRECTION, options=("--std=c++17",), name_expressions=(name,))
        correct, count = module.get_function(name), cp.int64(d.size)
        grid = (-(-d.size // _THREADS),)

        def prepare() -> None:
            cp.copyto(right[0], d)
            right[1] = 0
            right[1, :, 0], right[1, :, -1] = -b[:, 0], c[:, -1]

        def peer(name: str, form: str, solve: Callable[[], None]) -> Peer:
            def run() -> None:
                solve()
                correct(grid, (_THREADS,), (a, b, right[0], right[1], x, cp.int64(n), count))

            return Peer(f"{name} + Sherman-Morrison", form, run, lambda: x, prepare, keep=matrix)

        matrix = (open_a, open_b, open_c)
        return self._forms(matrix, right, peer)

    def _forms(
        self, matrix: Sequence[Any], right: Any, peer: Callable[[str, str, Callable[[], None]], Peer]
    ) -> list[Peer]:
        """Peers by name, form and call of what solves in place for right sides of shape (sides, batch, n)."""
        room, together = Room(self._cp), right.reshape(len(right), -1)
        found: list[Peer] = []
        for name in ONE_SYSTEM:
            named, form = f"cuSPARSE {name}", "the batch as one system"
            found += self._tried(
                f"{named}, {form}",
                lambda n=name, m=named, f=form: peer(m, f, self.solver(room, n, matrix, together)),
            )
        form = "a call for each right side"
        found += self._tried(
            f"{STRIDED}, {form}", lambda: peer(STRIDED, form, self._strided_solver(room, matrix, right))
        )
        return found

    def _strided_solver(self, room: Room, matrix: Sequence[Any], right: Any) -> Callable[[], None]:
        _, batch, n = right.shape
        size = ctypes.c_size_t()
        routine = f"cusparse{LETTERS[right.dtype.name]}gtsv2StridedBatch"
        calls = [(self._handle(0), n, *map(address, (*matrix, one)), batch, n) for one in right]
        self._library.call(f"{routine}_bufferSizeExt", *calls[0], ctypes.byref(size))
        (work,) = room.pieces(size.value, 1)

        def run() -> None:
            for arguments in calls:
                self._library.call(routine, *arguments, work)

        return run
