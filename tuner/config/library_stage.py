"""Stages that a library runs, before their expressions are evaluated."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tuner.config.chain_schema import OPERANDS, LibraryStageTable, Routine
from tuner.kernel_files.formulas import Environment, Formula, Place
from tuner.kernel_files.recipe import Predecessor
from tuner.model.chains import LibraryCall, Operand
from tuner.model.plan import Buffer, Source, Stage

NO_SOURCE = Source("", "")
MAX_DIMENSION = 2**31 - 1  # cuBLAS, cuFFT and LAPACK count in int
MAX_THREADS = 4096
_TYPES = ("float32", "float64")
_COMPLEX = ("complex64", "complex128")
_INDICES = ("pivots", "info")  # arrays of int32


@dataclass(frozen=True)
class OperandRecipe:
    """A matrix of a routine."""

    place: Place
    buffer: str
    offset: Formula
    leading: Formula | None
    transposed: Formula

    def evaluated(self, env: Environment, buffer: Buffer, extent: tuple[int, int]) -> Operand:
        """The matrix of one configuration, and one step.

        Args:
            env: values of all names.
            buffer: where it lies.
            extent: rows and columns that the routine asks for, after transposing.

        Raises:
            KernelFileError: it reaches beyond its array.
        """
        transposed = bool(self.transposed.number(env))
        rows, columns = extent[::-1] if transposed else extent
        offset = self.offset.whole(env, 0)
        leading = rows if self.leading is None else self.leading.whole(env, max(1, rows), MAX_DIMENSION)
        end = offset + (columns - 1) * leading + rows
        if end > buffer.elements:
            raise self.place.error(
                f"{rows} x {columns} elements from {offset} on, ld {leading}, end at {end};"
                f" {buffer.name} has {buffer.elements}"
            )
        return Operand(self.buffer, offset, leading, transposed)


@dataclass(frozen=True)
class LibraryStageRecipe:
    """A stage that a library runs; implements ``tuner.kernel_files.recipe.StageSource``.

    Attributes:
        table: the keys that hold no expressions.
        matrices: by letter.
        numbers: the formulas of ``m``, ``n``, ``k``, ``alpha``, ``beta``, ``inverse``, ``threads`` and
            ``first``; those that are not given are left out.
    """

    place: Place
    table: LibraryStageTable
    matrices: Mapping[str, OperandRecipe]
    numbers: Mapping[str, Formula]
    when: Formula | None
    stream: Formula
    after: tuple[Predecessor, ...]

    @property
    def name(self) -> str:
        """Its name."""
        return self.table.name

    @property
    def loop(self) -> str:
        """The loop it is part of; empty for none."""
        return self.table.loop or ""

    @property
    def source(self) -> Source:
        """Nothing that is compiled."""
        return NO_SOURCE

    def varying(self, names: Collection[str]) -> frozenset[str | int]:
        """See ``StageSource.varying``."""
        used = [*self.numbers.values(), *(matrix.offset for matrix in self.matrices.values())]
        used += [matrix.leading for matrix in self.matrices.values() if matrix.leading is not None]
        varies = any(not one.expression.names.isdisjoint(names) for one in used)
        return frozenset({"library"} if varies else ())

    def stepped(
        self, stage: Stage, fields: Collection[str | int], env: Environment, buffers: Mapping[str, Buffer]
    ) -> Stage | None:
        """See ``StageSource.stepped``.

        Raises:
            KernelFileError: as ``evaluated``.
        """
        del fields
        call = self._call(env, buffers)
        return None if call is None else stage.changed(library=call)

    def evaluated(self, env: Environment, buffers: Mapping[str, Buffer]) -> Stage | None:
        """The call of one configuration, and of the first step of its loop; None where a dimension is 0.

        Raises:
            KernelFileError: a matrix reaches beyond its array, or the types of the arrays do not fit.
        """
        call, stream = self._call(env, buffers), self.stream.whole(env, 0, 7)
        if call is None:
            return None
        return Stage(self.name, NO_SOURCE, "", (), (1, 1, 1), (1, 1, 1), 0, (), stream=stream, library=call)

    def _call(self, env: Environment, buffers: Mapping[str, Buffer]) -> LibraryCall | None:
        routine = self.table.library
        m, n, k = (self._dimension(name, env) for name in ("m", "n", "k"))
        if m == 0 or n == 0 or (k == 0 and routine in ("gemm", "syrk")):
            return None
        extents = _extents(routine, self.table.side, m, n, k)
        operands = tuple(
            (letter, matrix.evaluated(env, buffers[matrix.buffer], extents[letter]))
            for letter, matrix in self.matrices.items()
        )
        return LibraryCall(
            routine,
            self._dtype({name: buffers[matrix.buffer] for name, matrix in self.matrices.items()}),
            operands,
            m,
            n,
            k,
            alpha=float(self.numbers["alpha"].number(env)),
            beta=float(self.numbers["beta"].number(env)),
            fill=self.table.fill,
            side=self.table.side,
            unit=self.table.unit,
            inverse=bool(self.numbers["inverse"].number(env)),
            threads=self.numbers["threads"].whole(env, 0, MAX_THREADS),
            first=self.numbers["first"].whole(env, 0, MAX_DIMENSION),
        )

    def _dimension(self, name: str, env: Environment) -> int:
        formula = self.numbers.get(name)
        if formula is not None:
            return formula.whole(env, 0, MAX_DIMENSION)
        if name == "m":
            return self._dimension("n", env) if self.table.library in ("syrk", "lapack-potrf") else 1
        return 0

    def _dtype(self, given: Mapping[str, Buffer]) -> str:
        """The type of the matrices.

        Raises:
            KernelFileError: they are of several, or of one that the routine does not take.
        """
        for name in given.keys() & set(_INDICES):
            if given[name].dtype != "int32":
                raise self.place.error(f"{name}: {given[name].name} is {given[name].dtype}; it must be int32")
        buffers = [buffer for name, buffer in given.items() if name not in _INDICES]
        known = _COMPLEX if self.table.library == "fft" else _TYPES
        found = {buffer.dtype for buffer in buffers}
        if len(found) > 1 or not found.issubset(known):
            told = ", ".join(f"{buffer.name} is {buffer.dtype}" for buffer in buffers)
            raise self.place.error(
                f"{told}; {self.table.library} takes arrays of one type: {', '.join(known)}"
            )
        return found.pop()


def _extents(routine: Routine, side: str, m: int, n: int, k: int) -> dict[str, tuple[int, int]]:
    """Rows and columns of each matrix as the routine sees it."""
    if routine == "gemm":
        return {"a": (m, k), "b": (k, n), "c": (m, n)}
    if routine == "syrk":
        return {"a": (n, k), "c": (n, n)}
    if routine == "trsm":
        order = m if side == "left" else n
        return {"a": (order, order), "b": (m, n)}
    if routine.startswith("lapack-"):
        return {"a": (m, n), "info": (1, 1), **dict.fromkeys(("pivots", "tau"), (min(m, n), 1))}
    return dict.fromkeys(OPERANDS["fft"], (n, m))
