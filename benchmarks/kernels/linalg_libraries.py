"""cuBLAS and cuSOLVER of this machine, and the forms in which they solve batches of small problems.

Arguments stand in the order of ``cublas_api.h`` and ``cusolverDn.h``.
"""

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from peer_libraries import VendorLibrary, address

from tuner.devices.cuda.answer_check import sizes_of
from tuner.model.elements import element_dtype
from tuner.model.plan import Buffer, Plan
from tuner.problems.base import Deviation, stated_values
from tuner.problems.lookup import problem_for

# --- sets of arrays, together more than the L2 holds ----------------------------------------------


Arrays = dict[str, Any]
HostArrays = dict[str, NDArray[Any]]

ROTATED_BYTES = 200 * 10**6  # at least, in all sets together: more than three times the L2 of an H200
FEW, MOST = 4, 256  # sets, where a few are cheap
CHEAP_BYTES, CHEAP_READ_BYTES = 2**29, 2**31  # of a set, with arrays to restore and without
DRAWN_ELEMENTS = 2**20  # of an input, on the host; problems beyond are repeated
CHECKED_ELEMENTS = 2**18  # of an array, that the law looks at


class AnySets(Protocol):
    """Sets of arrays that contenders work on.

    Attributes:
        arrays: of each set, by the names of the buffers.
        count: of the sets.
    """

    arrays: list[Arrays]
    count: int

    def of(self, plan: Plan) -> "AnySets":
        """Those for another configuration, which may have other scratch arrays."""

    def restore(self) -> None:
        """Undo what runs do to their inputs."""

    def begin_check(self) -> None:
        """Restore the inputs of the first set; its outputs hold NaN, or -1."""

    def given(self) -> Any:
        """Inputs that are checked."""

    def made(self) -> Any:
        """Outputs of the first set that are checked."""

    def judge(self, outputs: Any) -> Deviation:
        """What the law of the kernel file says of them."""


class Sets:
    """Arrays of a plan's buffers, several times; ``arrays`` holds each set by the names of the buffers.

    Args:
        cp: CuPy.
        plan: of any configuration of the workload.
    """

    def __init__(self, cp: Any, plan: Plan) -> None:
        self._cp = cp
        self._plan = plan
        self.batch = plan.workload.batch
        self._changed = [b.name for b in plan.buffers if b.role == "inout"]
        cheap_bytes = CHEAP_BYTES if self._changed else CHEAP_READ_BYTES
        self.count = _count(sum(_nbytes(buffer) for buffer in plan.buffers), cheap_bytes)
        rng = np.random.default_rng(20)
        self._given = {b.name: _drawn(cp, b, rng) for b in plan.buffers if b.role in {"in", "inout"}}
        self.arrays: list[Arrays] = [
            {b.name: cp.empty(b.shape, element_dtype(b.dtype)) for b in plan.buffers}
            for _ in range(self.count)
        ]
        for arrays in self.arrays:
            for name, given in self._given.items():
                cp.copyto(arrays[name], given)

    def of(self, plan: Plan) -> "Sets":
        """The same: all configurations have the same arrays."""
        del plan
        return self

    def restore(self) -> None:
        """Undo what runs do to their inputs."""
        for arrays in self.arrays:
            for name in self._changed:
                self._cp.copyto(arrays[name], self._given[name])

    def begin_check(self) -> None:
        """Restore the inputs of the first set; its outputs hold NaN, or -1."""
        for name, array in self.arrays[0].items():
            if name in self._given:
                self._cp.copyto(array, self._given[name])
            else:
                array.data.memset_async(0xFF, array.nbytes)

    def given(self) -> HostArrays:
        """Inputs of the problems that are checked."""
        return {name: self.sample(array) for name, array in self._given.items()}

    def made(self) -> HostArrays:
        """Outputs of the problems that are checked, in the first set."""
        outputs = {b.name for b in self._plan.buffers if b.role in {"inout", "out"}}
        return {name: self.sample(array) for name, array in self.arrays[0].items() if name in outputs}

    def judge(self, outputs: Mapping[str, NDArray[Any]]) -> Deviation:
        """What the law of the kernel file says of outputs of the problems that are checked."""
        sizes = {**sizes_of(self._plan), "batch": len(next(iter(outputs.values())))}
        return problem_for(self._plan.problem).residual(np, self.given(), dict(outputs), sizes)

    def sample(self, array: Any) -> NDArray[Any]:
        """The problems of an array that are checked: the first, the last and some between."""
        n = int(dict(self._plan.workload.sizes)["n"])
        length = max(4, min(self.batch, CHECKED_ELEMENTS // (n * n)) // 3)
        starts = sorted({0, max(0, (self.batch - length) // 2), max(0, self.batch - length)})
        return np.concatenate([np.asarray(array[start : start + length].get()) for start in starts])


def _count(set_bytes: int, cheap_bytes: int) -> int:
    least = FEW if set_bytes <= cheap_bytes else 1
    return min(MOST, max(least, -(-ROTATED_BYTES // set_bytes)))


def _nbytes(buffer: Buffer) -> int:
    return int(buffer.elements * element_dtype(buffer.dtype).itemsize)


def _drawn(cp: Any, buffer: Buffer, rng: np.random.Generator) -> Any:
    """An input on the device; where it is large, some problems again and again."""
    batch, *rest = buffer.shape
    some = max(1, min(batch, DRAWN_ELEMENTS // int(np.prod(rest))))
    shape = (some, *rest)
    if buffer.input is None:
        host = rng.uniform(-1, 1, shape).astype(buffer.dtype)
    else:
        host = stated_values(replace(buffer, shape=shape), rng)
    piece, whole = cp.asarray(host), cp.empty(buffer.shape, element_dtype(buffer.dtype))
    for start in range(0, batch, some):
        cp.copyto(whole[start : start + some], piece[: batch - start])
    return whole


# --- operations, and how fast they should be ------------------------------------------------------


SIZES = (5, 13, 27, 50, 100)
DTYPES = ("float32", "float64")
BATCH = 10_000
_MEDIUM = 50  # orders from here on, of which libraries multiply well


@dataclass(frozen=True)
class Case:
    """One row: an operation at one order and in one type."""

    operation: str
    n: int
    dtype: str

    def __str__(self) -> str:
        return f"{self.operation} n={self.n} {self.dtype}"

    @property
    def sizes(self) -> Mapping[str, int | str]:
        """Of the kernel's workload."""
        return {"n": self.n, "dtype": self.dtype}

    @property
    def target(self) -> float | None:
        """Least ratio of the library's time to that of an untuned call; None where it is only reported."""
        return 1.0 if self.operation == "gemm-batched" and self.n >= _MEDIUM else 1.2


def cases(operations: list[str], sizes: list[int], dtypes: list[str]) -> list[Case]:
    """The rows, in the order of the table."""
    return [Case(operation, n, dtype) for operation in operations for dtype in dtypes for n in sizes]


# --- forms: what is called, and how answers come into the kernel's layout -------------------------


LOWER, UPPER = 0, 1  # cublasFillMode_t
PLAIN, TRANSPOSED = 0, 1  # cublasOperation_t
LEFT, RIGHT = 0, 1  # cublasSideMode_t
NON_UNIT = 0  # cublasDiagType_t
LETTERS = {"float32": "S", "float64": "D"}
REALS = {"float32": ctypes.c_float, "float64": ctypes.c_double}

Call = Callable[[int, int], None]
"""Puts the work on a set, given by its number, into a stream, given by its handle."""


class Library(Protocol):
    """cuBLAS and cuSOLVER as forms call them.

    Attributes:
        cp: CuPy.
    """

    cp: Any

    def blas(self, name: str, stream: int, *arguments: Any) -> None:
        """A call of cuBLAS; the handle is not among the arguments."""

    def solver(self, name: str, stream: int, *arguments: Any) -> None:
        """A call of cuSOLVER, likewise."""


def _as_made(given: HostArrays, made: HostArrays) -> HostArrays:
    del given
    return made


@dataclass(frozen=True)
class Form:
    """One way to call a library.

    Attributes:
        name: the routine.
        settings: what sets this form apart from the others of the routine.
        call: of a set.
        converted: makes of inputs and outputs the outputs as the kernel has them.
        restore: brings arrays of the form's own back to the inputs, after those of the sets.
        keep: arrays that calls have addresses of.
    """

    name: str
    settings: str
    call: Call
    converted: Callable[[HostArrays, HostArrays], HostArrays] = _as_made
    restore: Callable[[], None] = lambda: None
    keep: Any = field(default=None, repr=False)

    @property
    def key(self) -> str:
        """Routine and settings."""
        return f"{self.name}, {self.settings}" if self.settings else self.name


def of_sets(sets: Sets, name: str) -> list[Any]:
    """An array of each set."""
    return [arrays[name] for arrays in sets.arrays]


def addresses(cp: Any, arrays: Sequence[Any], offset: int = 0) -> list[Any]:
    """Of each array, the addresses of element ``offset`` of its problems, on the device."""
    found = []
    for array in arrays:
        batch = array.shape[0]
        step, first = array.nbytes // batch, array.data.ptr + offset * array.itemsize
        host = np.uint64(first) + np.uint64(step) * np.arange(batch, dtype=np.uint64)
        found.append(cp.asarray(host))
    return found


def _turned(cp: Any, sets: Sets, name: str) -> tuple[list[Any], Callable[[], None]]:
    """Transposed copies of an array of matrices, one for each set, and what makes them anew."""
    given = of_sets(sets, name)
    turned = [cp.empty(one.shape, one.dtype) for one in given]

    def restore() -> None:
        for copy, array in zip(turned, given, strict=True):
            cp.copyto(copy, array.transpose(0, 2, 1))

    restore()
    return turned, restore


# --- factorisations and triangular systems: one routine, or blocks by several ---------------------


BLOCKS = (16, 32, 64)  # orders of diagonal blocks, where several routines do a problem together


def potrf_forms(library: Library, case: Case, sets: Sets) -> Iterator[Form]:
    """Of either triangle, as the matrices are symmetric and whole; and the lower one by blocks."""
    A, n = addresses(library.cp, of_sets(sets, "A")), case.n
    name = f"cusolverDn{LETTERS[case.dtype]}potrfBatched"
    for word, triangle in (("lower", LOWER), ("upper", UPPER)):

        def call(place: int, stream: int, triangle: int = triangle) -> None:
            info = address(sets.arrays[place]["info"])
            library.solver(name, stream, triangle, n, address(A[place]), n, info, sets.batch)

        def converted(given: HostArrays, made: HostArrays, triangle: int = triangle) -> HostArrays:
            factor = made["A"] if triangle == LOWER else np.swapaxes(made["A"], 1, 2)
            return {**made, "A": np.triu(factor) + np.tril(given["A"], -1)}

        yield Form("cuSOLVER potrfBatched", word, call, converted)
    for width in _blocks(n):
        yield _blocked_potrf(library, case, sets, width)


def _blocked_potrf(library: Library, case: Case, sets: Sets, width: int) -> Form:
    """Diagonal blocks by potrfBatched, what is below them by trsmBatched, the rest by gemmStridedBatched."""
    n, parts = case.n, _Parts(library, case, sets, "A")
    name = f"cusolverDn{LETTERS[case.dtype]}potrfBatched"

    def call(place: int, stream: int) -> None:
        info = address(sets.arrays[place]["info"])
        for k in range(0, n, width):
            order, below = min(width, n - k), n - k - width
            library.solver(name, stream, LOWER, order, parts.pointers(place, k, k), n, info, sets.batch)
            if below > 0:
                way = (RIGHT, LOWER, TRANSPOSED, NON_UNIT, below, order)
                left = parts.pointers(place, k + width, k)
                parts.solve(stream, way, parts.pointers(place, k, k), left)
                panel = parts.at(place, k + width, k)
                rest = parts.at(place, k + width, k + width)
                shape = (below, below, order)
                parts.subtract(stream, (PLAIN, TRANSPOSED), shape, (panel, panel, rest))

    def converted(given: HostArrays, made: HostArrays) -> HostArrays:
        return {**made, "A": np.triu(made["A"]) + np.tril(given["A"], -1)}

    return Form("cuSOLVER potrfBatched", f"blocks of {width}, with trsm and gemm", call, converted)


def getrf_forms(library: Library, case: Case, sets: Sets) -> Iterator[Form]:
    """The one routine with pivots."""
    A, n = addresses(library.cp, of_sets(sets, "A")), case.n
    name = f"cublas{LETTERS[case.dtype]}getrfBatched"

    def call(place: int, stream: int) -> None:
        arrays = sets.arrays[place]
        results = address(arrays["ipiv"]), address(arrays["info"])
        library.blas(name, stream, n, address(A[place]), n, *results, sets.batch)

    yield Form("cuBLAS getrfBatched", "", call)


def geqrf_forms(library: Library, case: Case, sets: Sets) -> Iterator[Form]:
    """The one routine."""
    A, tau = (addresses(library.cp, of_sets(sets, one)) for one in ("A", "tau"))
    name, n, info = f"cublas{LETTERS[case.dtype]}geqrfBatched", case.n, ctypes.c_int()  # on the host

    def call(place: int, stream: int) -> None:
        arrays = address(A[place]), n, address(tau[place])
        library.blas(name, stream, n, n, *arrays, ctypes.byref(info), sets.batch)

    yield Form("cuBLAS geqrfBatched", "", call)


def trsm_forms(library: Library, case: Case, sets: Sets) -> Iterator[Form]:
    """From the left and, of transposed right-hand sides, from the right; with either triangle; by blocks."""
    cp, n = library.cp, case.n
    name, one = f"cublas{LETTERS[case.dtype]}trsmBatched", REALS[case.dtype](1)
    turned, restore = _turned(cp, sets, "B")
    factors = {LOWER: of_sets(sets, "L"), UPPER: _turned(cp, sets, "L")[0]}
    pointers: dict[Any, list[Any]] = {key: addresses(cp, arrays) for key, arrays in factors.items()}
    sides = {LEFT: addresses(cp, of_sets(sets, "B")), RIGHT: addresses(cp, turned)}

    def of_turned(given: HostArrays, made: HostArrays) -> HostArrays:
        del given
        return {**made, "B": np.swapaxes(sets.sample(turned[0]), 1, 2)}

    for words, side, triangle in (
        ("lower", LEFT, LOWER),
        ("upper, transposed", LEFT, UPPER),
        ("lower, transposed, from the right", RIGHT, LOWER),
        ("upper, from the right", RIGHT, UPPER),
    ):
        operation = PLAIN if (side == LEFT) == (triangle == LOWER) else TRANSPOSED
        way = (side, triangle, operation, NON_UNIT, n, n, ctypes.byref(one))

        def call(place: int, stream: int, way: Any = way, side: int = side, triangle: int = triangle) -> None:
            L, B = address(pointers[triangle][place]), address(sides[side][place])
            library.blas(name, stream, *way, L, n, B, n, sets.batch)

        more = () if side == LEFT else (of_turned, restore)
        yield Form("cuBLAS trsmBatched", words, call, *more, keep=factors)
    for width in _blocks(n):
        yield _blocked_trsm(library, case, sets, width)


def _blocked_trsm(library: Library, case: Case, sets: Sets, width: int) -> Form:
    """Diagonal blocks by trsmBatched, what they contribute to the rows below by gemmStridedBatched."""
    n = case.n
    lower, sides = _Parts(library, case, sets, "L"), _Parts(library, case, sets, "B")

    def call(place: int, stream: int) -> None:
        for k in range(0, n, width):
            order, below = min(width, n - k), n - k - width
            way = (LEFT, LOWER, PLAIN, NON_UNIT, order, n)
            sides.solve(stream, way, lower.pointers(place, k, k), sides.pointers(place, k, 0))
            if below > 0:
                panel, known = lower.at(place, k + width, k), sides.at(place, k, 0)
                rest = sides.at(place, k + width, 0)
                sides.subtract(stream, (PLAIN, PLAIN), (below, n, order), (panel, known, rest))

    return Form("cuBLAS trsmBatched", f"blocks of {width}, with gemm", call)


def gemm_forms(library: Library, case: Case, sets: Sets) -> Iterator[Form]:
    """By strides, with either factor as it is or transposed in memory, and by pointers; without TF32."""
    cp, n, letter = library.cp, case.n, LETTERS[case.dtype]
    one, zero = REALS[case.dtype](1), REALS[case.dtype](0)
    alpha, beta, stride = ctypes.byref(one), ctypes.byref(zero), ctypes.c_longlong(n * n)
    plain = {name: of_sets(sets, name) for name in "ABC"}
    turned = {name: _turned(cp, sets, name)[0] for name in "AB"}
    for words, names in (("", ""), ("A transposed", "A"), ("B transposed", "B"), ("both transposed", "AB")):
        way = tuple(TRANSPOSED if name in names else PLAIN for name in "AB")
        arrays = {**plain, **{name: turned[name] for name in names}}

        def strided(place: int, stream: int, way: Any = way, arrays: Any = arrays) -> None:
            A, B, C = ((address(arrays[name][place]), n, stride) for name in "ABC")
            shape, given, made = (n, n, n), (alpha, *A, *B), (beta, *C)
            library.blas(f"cublas{letter}gemmStridedBatched", stream, *way, *shape, *given, *made, sets.batch)

        yield Form("cuBLAS gemmStridedBatched", words, strided)
    pointers = {name: addresses(cp, arrays) for name, arrays in plain.items()}

    def pointed(place: int, stream: int) -> None:
        A, B, C = ((address(pointers[name][place]), n) for name in "ABC")
        way, given, made = (PLAIN, PLAIN, n, n, n), (alpha, *A, *B), (beta, *C)
        library.blas(f"cublas{letter}gemmBatched", stream, *way, *given, *made, sets.batch)

    yield Form("cuBLAS gemmBatched", "", pointed)


def _blocks(n: int) -> list[int]:
    return [width for width in BLOCKS if width < n]


class _Parts:
    """Blocks of an array of n x n matrices, and what is done with them."""

    def __init__(self, library: Library, case: Case, sets: Sets, name: str) -> None:
        self._library, self._arrays = library, of_sets(sets, name)
        self._n, self._batch, self._letter = case.n, sets.batch, LETTERS[case.dtype]
        real = REALS[case.dtype]
        self._one, self._minus = real(1), real(-1)
        self._pointers: dict[int, list[Any]] = {}

    def at(self, place: int, row: int, column: int) -> ctypes.c_void_p:
        """The address of an element in the first problem of a set."""
        array = self._arrays[place]
        return address(array, (column * self._n + row) * array.itemsize)

    def pointers(self, place: int, row: int, column: int) -> ctypes.c_void_p:
        """The addresses of an element in all problems of a set."""
        offset = column * self._n + row
        if offset not in self._pointers:
            self._pointers[offset] = addresses(self._library.cp, self._arrays, offset)
        return address(self._pointers[offset][place])

    def solve(self, stream: int, way: tuple[int, ...], L: ctypes.c_void_p, B: ctypes.c_void_p) -> None:
        """By trsmBatched, in place of B."""
        one = ctypes.byref(self._one)
        name = f"cublas{self._letter}trsmBatched"
        self._library.blas(name, stream, *way, one, L, self._n, B, self._n, self._batch)

    def subtract(
        self,
        stream: int,
        operations: tuple[int, int],
        shape: tuple[int, int, int],
        matrices: tuple[ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p],
    ) -> None:
        """C - op(A) op(B) in place of C, by gemmStridedBatched."""
        n, stride = self._n, ctypes.c_longlong(self._n * self._n)
        A, B, C = matrices
        given = (ctypes.byref(self._minus), A, n, stride, B, n, stride)
        made = (ctypes.byref(self._one), C, n, stride, self._batch)
        self._library.blas(
            f"cublas{self._letter}gemmStridedBatched", stream, *operations, *shape, *given, *made
        )


_WORKSPACE_BYTES = 32 * 2**20  # what NVIDIA recommends for Hopper GPUs
_FORMS = {
    "potrf-batched": potrf_forms,
    "getrf-batched": getrf_forms,
    "geqrf-batched": geqrf_forms,
    "trsm-batched": trsm_forms,
    "gemm-batched": gemm_forms,
}
OPERATIONS = tuple(_FORMS)


class LinalgLibraries:
    """cuBLAS and cuSOLVER, those that CuPy loads if it finds them; ``missing`` says which were not found.

    Args:
        cp: CuPy.
        cublas: the library; the one of this machine if not given.
        cusolver: same.

    Attributes:
        cp: CuPy.
    """

    def __init__(self, cp: Any, cublas: Any = None, cusolver: Any = None) -> None:
        self.cp = cp
        self.missing: dict[str, str] = {}
        self._cublas, self._cusolver = cublas, cusolver
        if cublas is None:
            self._cublas = self._opened("cuBLAS", "libcublas", (13, 12), "get_cublas_handle")
        if cusolver is None:
            self._cusolver = self._opened("cuSOLVER", "libcusolver", (12, 11), "get_cusolver_handle")
        self._blas, self._solver = ctypes.c_void_p(), ctypes.c_void_p()
        if self._cublas is not None:
            self._cublas.call("cublasCreate_v2", ctypes.byref(self._blas))
        if self._cusolver is not None:
            self._cusolver.call("cusolverDnCreate", ctypes.byref(self._solver))
        self._workspace = cp.empty(_WORKSPACE_BYTES, "uint8")

    def versions(self) -> dict[str, str]:
        """Of the libraries, as they give them."""
        found, number = {}, ctypes.c_int()
        if self._cublas is not None:
            self._cublas.call("cublasGetVersion_v2", self._blas, ctypes.byref(number))
            found["cuBLAS"] = str(number.value)
        if self._cusolver is not None:
            self._cusolver.call("cusolverGetVersion", ctypes.byref(number))
            found["cuSOLVER"] = str(number.value)
        return found

    def forms(self, case: Case, sets: Sets) -> list[Form]:
        """Every form of every routine that solves the problem."""
        if self._cublas is None or (case.operation == "potrf-batched" and self._cusolver is None):
            return []
        return list(_FORMS[case.operation](self, case, sets))

    def _opened(self, name: str, stem: str, versions: tuple[int, ...], handle: str) -> VendorLibrary | None:
        try:
            getattr(self.cp.cuda.device, handle)()  # CuPy loads the library that goes with its CUDA
        except Exception as error:  # noqa: BLE001 - whatever CuPy says; the library may be there all the same
            self.missing[name] = f"CuPy finds none: {error}"
        try:
            library = VendorLibrary(stem, versions)
        except OSError as error:
            self.missing[name] = str(error)
            return None
        self.missing.pop(name, None)
        return library

    def blas(self, name: str, stream: int, *arguments: Any) -> None:
        """A call of cuBLAS in a stream, with the workspace of this object."""
        self._cublas.call("cublasSetStream_v2", self._blas, ctypes.c_void_p(stream))
        size = ctypes.c_size_t(_WORKSPACE_BYTES)
        self._cublas.call("cublasSetWorkspace_v2", self._blas, address(self._workspace), size)
        self._cublas.call(name, self._blas, *arguments)

    def solver(self, name: str, stream: int, *arguments: Any) -> None:
        """A call of cuSOLVER in a stream."""
        self._cusolver.call("cusolverDnSetStream", self._solver, ctypes.c_void_p(stream))
        self._cusolver.call(name, self._solver, *arguments)
