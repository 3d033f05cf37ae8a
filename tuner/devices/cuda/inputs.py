"""Inputs of workloads on the device: made once per workload and seed, shared by its configurations.

The device draws what it can; other values are made on the host, or read from files, and copied.
"""

import hashlib
from collections.abc import Collection, Mapping
from types import ModuleType

import numpy as np

from tuner.devices.cuda.answer_kernels import AnswerKernels
from tuner.devices.cuda.arrays import INPUT_ROLES, BufferPool
from tuner.devices.cuda.types import Array
from tuner.model.elements import BFLOAT16
from tuner.model.errors import InputError, UncheckableError
from tuner.model.plan import Buffer, Plan, Workload
from tuner.problems import problem_for
from tuner.problems.arrays import Draw, chunks
from tuner.problems.input_values import stated_draw, stated_values
from tuner.problems.tridiagonal import MARGIN, Tridiagonal

_COPIED = 2**24  # elements at a time
_KEPT_PART = 8  # a copy of values takes no more than this part of the free memory


class Inputs:
    """Fills the buffers that plans read, and knows whether they were left alone.

    Args:
        cp: CuPy, with the device current.
        pool: the buffers.
        kernels: fill them.
    """

    def __init__(self, cp: ModuleType, pool: BufferPool, kernels: AnswerKernels) -> None:
        self._cp = cp
        self._pool = pool
        self._kernels = kernels
        self._digests: dict[tuple[Workload, Buffer, int], int] = {}
        self._originals: dict[tuple[Workload, Buffer, int], Array] = {}

    def load(self, plan: Plan, seed: int, count: int = 1) -> None:
        """Make the inputs of a seed in the first ``count`` sets of the plan's buffers.

        Raises:
            KernelFileError: the buffers are not those of the problem.
        """
        first = self._pool.sets(plan, count)[0]
        untouched = {b.name for b in _read_only(plan) if _from_host(b) and self._pool.has(plan, b, seed)}
        self._fill(plan, {name: first[name] for name in _names(plan)}, seed, untouched)
        self._pool.loaded(plan, seed)
        self._pool.spread(plan, count)

    def prepare(self, plan: Plan, seed: int) -> None:
        """See that the first set holds the inputs of a seed, and remember what unwritten ones look like."""
        if not self._pool.holds(plan, seed) or any(buffer.role == "inout" for buffer in plan.buffers):
            self.load(plan, seed)
        first = self._pool.sets(plan, 1)[0]
        unknown = [b for b in _read_only(plan) if (plan.workload, b, seed) not in self._digests]
        if unknown:
            slots = [self._kernels.digest(first[buffer.name]) for buffer in unknown]
            found = self._kernels.read()
            for buffer, slot in zip(unknown, slots, strict=True):
                self._digests[plan.workload, buffer, seed] = int(found[slot])

    def present(self, plan: Plan) -> dict[str, Array]:
        """The arrays that the plan reads, in the first set, as they are now."""
        first = self._pool.sets(plan, 1)[0]
        return {name: first[name] for name in _names(plan)}

    def copies(self, plan: Plan, seed: int) -> dict[str, Array]:
        """The inputs as they were before a run; arrays of their own where the plan writes to them."""
        first = self._pool.sets(plan, 1)[0]
        inputs = {name: first[name] for name in _names(plan)}
        if any(buffer.role == "inout" for buffer in plan.buffers):
            untouched = {buffer.name for buffer in _read_only(plan) if _from_host(buffer)}
            inputs = {
                name: array if name in untouched else self._cp.empty(array.shape, dtype=array.dtype)
                for name, array in inputs.items()
            }
            self._fill(plan, inputs, seed, untouched)
        return inputs

    def forget(self) -> None:
        """Give the memory of copied values back."""
        self._originals.clear()

    def begin_look(self, plan: Plan) -> dict[Buffer, int]:
        """Slots that tell of each buffer whether it was written to; ``written`` says so."""
        first = self._pool.sets(plan, 1)[0]
        return {buffer: self._kernels.digest(first[buffer.name]) for buffer in _read_only(plan)}

    def written(self, plan: Plan, seed: int, digests: Mapping[Buffer, int]) -> str | None:
        """Name of an ``in`` buffer whose digest is not that of the seed's inputs, or None."""
        for buffer, digest in digests.items():
            if digest != self._digests[plan.workload, buffer, seed]:
                return buffer.name
        return None

    def _fill(self, plan: Plan, arrays: Mapping[str, Array], seed: int, untouched: Collection[str]) -> None:
        """Values for all arrays but those that are as they should be."""
        problem = problem_for(plan.problem).at(dict(plan.workload.sizes))
        problem.validate(plan.buffers)
        given = {buffer.name: buffer for buffer in plan.buffers}
        for name, draw in problem.draws(plan.buffers).items():
            if name in untouched:
                continue
            drawn = draw if given[name].input is None else stated_draw(given[name])
            if drawn is None:
                self._take(plan.workload, given[name], arrays[name], seed)
            else:
                self._draw(arrays[name], given[name], drawn, _seed_of(name, seed))
        if isinstance(problem, Tridiagonal):
            a, b, c, _ = arrays.values()
            if b.dtype.kind == "c" or problem.periodic:
                problem.settle(self._cp, arrays)
            else:
                self._kernels.dominate(a, b, c, MARGIN)

    def _draw(self, array: Array, buffer: Buffer, draw: Draw, seed: int) -> None:
        if buffer.dtype != BFLOAT16:
            self._kernels.fill(array, draw, seed)
            return
        wide = self._cp.empty(array.shape, dtype="float32")
        self._kernels.fill(wide, draw, seed)
        bits = wide.view("uint32")  # rounded to the nearest, ties to even
        self._cp.copyto(array, ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("uint16"))

    def _take(self, workload: Workload, buffer: Buffer, array: Array, seed: int) -> None:
        """Values of the host; those of an ``inout`` array are asked for again, so a copy is kept."""
        key = workload, buffer, 0 if buffer.input is not None and buffer.input.file else seed
        original = self._originals.get(key)
        if original is not None:
            self._cp.copyto(array, original)
            return
        self._copy(array, buffer, _seed_of(buffer.name, seed))
        free = int(self._cp.cuda.runtime.memGetInfo()[0]) + int(
            self._cp.get_default_memory_pool().free_bytes()
        )
        if buffer.role == "inout" and _KEPT_PART * array.nbytes <= free:
            self._originals = {
                one: kept
                for one, kept in self._originals.items()
                if one[0] != workload or one[1].name != buffer.name or one[1] == buffer
            }  # a shape may follow a tunable
            self._originals[key] = self._cp.empty(array.shape, dtype=array.dtype)
            self._cp.copyto(self._originals[key], array)

    def _copy(self, array: Array, buffer: Buffer, seed: int) -> None:
        """Values of the host, in pieces: those of a file may not fit into its memory."""
        try:
            values = stated_values(buffer, np.random.default_rng(seed))
        except InputError as error:
            raise UncheckableError(f"input of {buffer.name!r}: {error}") from error
        to, given = array.reshape(-1), values.reshape(-1)
        for piece in chunks(given.size, 1, _COPIED):
            self._cp.copyto(to[piece], self._cp.asarray(np.ascontiguousarray(given[piece])))


def _from_host(buffer: Buffer) -> bool:
    """Whether the values of a buffer are stated, and no device can draw them."""
    return buffer.input is not None and stated_draw(buffer) is None


def _seed_of(name: str, seed: int) -> int:
    """Another sequence for every buffer."""
    return int.from_bytes(hashlib.blake2b(f"{seed}|{name}".encode(), digest_size=8).digest(), "little")


def _names(plan: Plan) -> list[str]:
    return [buffer.name for buffer in plan.buffers if buffer.role in INPUT_ROLES]


def _read_only(plan: Plan) -> list[Buffer]:
    return [buffer for buffer in plan.buffers if buffer.role == "in"]
