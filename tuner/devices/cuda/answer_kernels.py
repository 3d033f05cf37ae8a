"""The kernels of answer checks (``answers.cu``), compiled in the background and called on arrays.

They are compiled like any stage, side by side, cached on disk, instead of by CuPy, which would compile its
own one by one while the first trial waits.
"""

import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.compiler.compiler import CompiledStage
from tuner.devices.cuda.code import StageCompiler
from tuner.devices.cuda.driver import Array, CudaFunction
from tuner.model.errors import CompileError, CompilerUnavailableError
from tuner.model.plan import Source, Stage
from tuner.problems.base import Draw, Norm

_SOURCE = Path(__file__).with_name("answers.cu")
ANSWER_KERNELS = (  # in the order in which a check needs them
    *("fill", "dominate", "digest", "guarded", "compare", "judge"),
    *("magnitudes", "sums_law", "system_law", "transform_law"),
)
_AT_A_TIME = 4  # compiled: each by a child of some 60 MB
_THREADS = 256
_WARP = 32
_MOST_BLOCKS = 2**12  # of kernels that walk over elements
_PIECE = 4096  # elements a warp reduces
_CHANNELS = 4
_SLOTS = 256

# numbers of the enumerations in answers.cu
_KINDS = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64"),
)
_DRAWS = ("uniform", "normal", "whole")
_NORMS = (Norm.MAXIMUM, Norm.EUCLIDEAN, Norm.ELEMENT, Norm.COUNT)
_BY_COUNT, _SUMS, _SYSTEM, _TRANSFORM = 3, 4, 5, 6


@dataclass(frozen=True)
class Rows:
    """Division of an array into rows: all of ``length`` elements, the last may be shorter."""

    total: int
    length: int

    @property
    def count(self) -> int:
        """Number of rows."""
        return -(-self.total // self.length)

    @property
    def pieces(self) -> int:
        """Pieces of a row."""
        return -(-self.length // _PIECE)

    def arguments(self) -> tuple[np.generic, ...]:
        """As the kernels take them."""
        return (np.int64(self.total), np.int64(self.length), np.int32(self.pieces), np.int32(_PIECE))


class AnswerKernels:
    """Calls of the kernels in CuPy's current stream; what they find is collected in slots, read together."""

    def __init__(self, cp: ModuleType, compiler: StageCompiler) -> None:
        self._cp = cp
        self._compiler = compiler
        self._functions: dict[str, CudaFunction] = {}
        self._compiled: dict[str, Future[CompiledStage | CompileError]] = {
            n: Future() for n in ANSWER_KERNELS
        }
        self._slots: Array | None = None
        self._used = 0
        waiting = deque(ANSWER_KERNELS)
        for _ in range(_AT_A_TIME):
            threading.Thread(target=self._compile, args=(waiting,), name="answers.cu", daemon=True).start()

    # --- inputs ----------------------------------------------------------------------------------

    def fill(self, array: Array, draw: Draw, seed: int) -> None:
        """Random values, the same again for the same seed (64 bits)."""
        kind, parts = _kind(array)
        count = array.size * parts
        self._walk(
            "fill",
            count,
            np.int32(kind),
            np.int32(_DRAWS.index(draw.kind)),
            array.data,
            np.int64(count),
            np.uint64(seed),
            np.float64(draw.low),
            np.float64(draw.width),
        )

    def dominate(self, a: Array, b: Array, c: Array, margin: float) -> None:
        """Make rows of tridiagonal systems diagonally dominant, as ``Tridiagonal.settle`` does."""
        rows, length = b.shape
        self._walk(
            "dominate",
            rows * length,
            np.int32(_kind(b)[0]),
            *(a.data, b.data, c.data),
            np.int64(rows),
            np.int64(length),
            np.float64(margin),
        )

    # --- what must not change --------------------------------------------------------------------

    def digest(self, array: Array) -> int:
        """Slot of a hash of the array's bytes."""
        slot, pointer = self._slot()
        self._walk("digest", -(-array.nbytes // 8), array.data, np.int64(array.nbytes), pointer)
        return slot

    def guarded(self, raw: Array, edge_bytes: int) -> int:
        """Slot of the number of bytes at both ends that are no guard bytes any more."""
        slot, pointer = self._slot()
        self._walk("guarded", edge_bytes, raw.data, np.int64(raw.nbytes), np.int32(edge_bytes), pointer)
        return slot

    # --- answers ---------------------------------------------------------------------------------

    def magnitudes(self, array: Array, rows: Rows) -> Array:
        """Partial sums of magnitudes, which ``compare`` needs of the right answer for ``Norm.ELEMENT``."""
        kind, parts = _kind(array)
        partial = self._partial(rows)
        self._reduce(
            "magnitudes", rows, np.int32(kind), np.int32(parts), array.data, *rows.arguments(), partial.data
        )
        return partial

    def compare(self, right: Array, output: Array, rows: Rows, norm: Norm, sums: Array | None = None) -> int:
        """Slot of the worst row of an answer by its differences from the right one."""
        kind, parts = _kind(output)
        partial = self._partial(rows)
        self._reduce(
            "compare",
            rows,
            *(np.int32(kind), np.int32(parts), np.int32(_NORMS.index(norm))),
            *(right.data, output.data, *rows.arguments()),
            partial.data if sums is None else sums.data,
            partial.data,
        )
        return self._judge(_NORMS.index(norm), partial, rows)

    def sums_law(self, x: Array, y: Array, *, exclusive: bool) -> int:
        """Slot of the worst row of prefix sums, as ``Scan.residual`` has it."""
        rows, counted = _rows(y), y.dtype.kind != "f"
        partial = self._partial(rows)
        self._reduce(
            "sums_law",
            rows,
            *(np.int32(_kind(x)[0]), np.int32(_kind(y)[0]), x.data, y.data),
            *(np.int32(exclusive), np.int32(counted), *rows.arguments(), partial.data),
        )
        return self._judge(_BY_COUNT if counted else _SUMS, partial, rows)

    def system_law(self, arrays: tuple[Array, Array, Array, Array, Array]) -> int:
        """Slot of the worst row of solutions, as ``Tridiagonal.residual`` has it; all of one type."""
        rows = _rows(arrays[0])
        partial = self._partial(rows)
        pointers = (array.data for array in arrays)
        self._reduce(
            "system_law", rows, np.int32(_kind(arrays[0])[0]), *pointers, *rows.arguments(), partial.data
        )
        return self._judge(_SYSTEM, partial, rows)

    def transform_law(
        self, x: Array, y: Array, functional: tuple[Array, Array], growth: float, spread: float
    ) -> int:
        """Slot of the worst row of transforms, as ``Fft.residual`` has it; x and y of one type."""
        rows = _rows(y)
        partial = self._partial(rows)
        pointers = (array.data for array in (x, y, *functional))
        self._reduce("transform_law", rows, np.int32(_kind(y)[0]), *pointers, *rows.arguments(), partial.data)
        return self._judge(_TRANSFORM, partial, rows, growth, 1 / spread)

    # --- findings --------------------------------------------------------------------------------

    def read(self) -> NDArray[np.uint64]:
        """Return the results, by slot; the slots are free again."""
        if self._slots is None:
            return np.zeros(0, np.uint64)
        values: NDArray[np.uint64] = self._slots[: self._used].get()
        self._slots.data.memset_async(0, self._slots.nbytes)
        self._used = 0
        return values

    def _slot(self) -> tuple[int, Any]:
        if self._slots is None:
            self._slots = self._cp.empty(_SLOTS, dtype="uint64")
            self._slots.data.memset_async(0, self._slots.nbytes)
        slot, self._used = self._used, self._used + 1
        return slot, self._slots[slot : slot + 1].data

    def _judge(
        self, judgement: int, partial: Array, rows: Rows, factor: float = 1.0, spread: float = 1.0
    ) -> int:
        slot, pointer = self._slot()
        self._launch(
            "judge",
            rows.count * _WARP,
            *(np.int32(judgement), partial.data, np.int64(rows.count), np.int32(rows.pieces)),
            *(np.float64(factor), np.float64(spread), pointer),
        )
        return slot

    # --- launches --------------------------------------------------------------------------------

    def _partial(self, rows: Rows) -> Array:
        partial: Array = self._cp.empty(rows.count * rows.pieces * _CHANNELS, dtype="float64")
        return partial

    def _walk(self, name: str, elements: int, *arguments: object) -> None:
        self._launch(name, min(max(elements, 1), _MOST_BLOCKS * _THREADS), *arguments)

    def _reduce(self, name: str, rows: Rows, *arguments: object) -> None:
        self._launch(name, rows.count * rows.pieces * _WARP, *arguments)

    def _launch(self, name: str, threads: int, *arguments: object) -> None:
        grid = (-(-threads // _THREADS), 1, 1)
        self._function(name)(grid, (_THREADS, 1, 1), arguments, shared_mem=0, stream=None)

    def _function(self, name: str) -> CudaFunction:
        if name not in self._functions:
            compiled = self._compiled[name].result()
            if isinstance(compiled, CompileError):
                raise CompilerUnavailableError(f"no answers can be checked: {compiled}") from compiled
            module = self._cp.cuda.function.Module()
            module.load(compiled.cubin)
            self._functions[name] = module.get_function(compiled.lowered_name)
        return self._functions[name]

    def _compile(self, waiting: deque[str]) -> None:
        with suppress(IndexError):
            while True:
                name = waiting.popleft()
                try:
                    (compiled,) = self._compiler.compile([answer_stage(name)])
                except BaseException as error:  # noqa: BLE001 - told to whoever checks first
                    self._compiled[name].set_exception(error)
                else:
                    self._compiled[name].set_result(compiled)


def answer_stage(name: str) -> Stage:
    """One kernel of answer checks, as a stage to compile."""
    source = Source(str(_SOURCE), _SOURCE.read_text(encoding="utf-8"))
    return Stage("answers", source, f"{name}<>", ("--std=c++17",), (1, 1, 1), (_THREADS, 1, 1), 0, ())


def worst_row(value: "np.uint64 | int") -> tuple[float, int]:
    """Error and row out of a slot of a comparison or a law."""
    bits = int(value)
    error = np.array(bits >> 32, np.uint32).view(np.float32)
    return float(error), 0xFFFFFFFF - (bits & 0xFFFFFFFF)


def _kind(array: Array) -> tuple[int, int]:
    """Number of the type of an element's parts, and their number."""
    dtype = np.dtype(array.dtype)
    parts = 2 if dtype.kind == "c" else 1
    name = {"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name)
    return _KINDS.index(name), parts


def _rows(array: Array) -> Rows:
    return Rows(array.size, array.shape[1])
