"""Device arrays of workloads and their inputs, shared by all configurations."""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from tuner.devices.cuda.answer_kernels import AnswerKernels
from tuner.devices.cuda.driver import Array
from tuner.model.elements import BFLOAT16, element_dtype
from tuner.model.errors import InputError, UncheckableError
from tuner.model.plan import Buffer, Plan, Workload
from tuner.problems.base import Draw, chunks, stated_draw, stated_values
from tuner.problems.lookup import problem_for
from tuner.problems.tridiagonal import MARGIN, Tridiagonal

INPUT_ROLES = ("in", "inout")
GUARD_BYTES = 4096  # before and after every array; keeps the arrays aligned like an allocation of their own
_GUARD_VALUE = 0xA5
_POISON = 0xFF  # a NaN in every floating-point format, -1 in every signed integer
_COLD = 3  # bytes touched between two uses of an array, in sizes of the L2
_MOST_SETS = 1024
_LEAST_FLUSHED = 2**25  # bytes: takes some ten microseconds at least, longer than a host takes to launch
_WARM_SETS = 64  # where the most sets stay within half the L2: more cost time, and find their data there too


@dataclass(frozen=True)
class _GuardedArray:
    raw: Array
    array: Array


_Key = tuple[Workload, Buffer]


class BufferPool:
    """Arrays by workload and buffer, its shape included; a *set* is one array for every buffer of a plan."""

    def __init__(self, cp: ModuleType) -> None:
        self._cp = cp
        self._arrays: dict[_Key, list[_GuardedArray]] = {}
        self._originals: dict[_Key, Array] = {}
        self._loaded: dict[_Key, int] = {}  # seed of the inputs in the first set

    def sets(self, plan: Plan, count: int) -> list[dict[str, Array]]:
        """``count`` sets of the plan's arrays; arrays of all but the first begin as copies of the first's."""
        for buffer in plan.buffers:
            arrays = self._arrays.setdefault((plan.workload, buffer), [])
            while len(arrays) < count:
                new = self._allocate(buffer)
                if arrays:
                    self._cp.copyto(new.raw, arrays[0].raw)
                arrays.append(new)
        return [
            {b.name: self._arrays[plan.workload, b][index].array for b in plan.buffers}
            for index in range(count)
        ]

    def spread(self, plan: Plan, count: int) -> None:
        """Copy what the plan reads from the first set into the next, ``count`` in all."""
        first, *others = self.sets(plan, count)
        for arrays in others:
            for buffer in plan.buffers:
                if buffer.role in INPUT_ROLES:
                    self._cp.copyto(arrays[buffer.name], first[buffer.name])

    def originals(self, plan: Plan) -> dict[str, Array]:
        """Copies of what the arrays that are restored hold in the first set now, by name."""
        first = self.sets(plan, 1)[0]
        copies = {}
        for buffer in plan.buffers:
            if buffer.restored:
                key = plan.workload, buffer
                if key not in self._originals:
                    self._originals[key] = self._cp.empty(buffer.shape, dtype=element_dtype(buffer.dtype))
                self._cp.copyto(self._originals[key], first[buffer.name])
                copies[buffer.name] = self._originals[key]
        return copies

    def loaded(self, plan: Plan, seed: int) -> None:
        """Note that the first set now holds the inputs of a seed."""
        self._loaded.update({key: seed for key in _keys([plan]) if key[1].role in INPUT_ROLES})

    def poison(self, plan: Plan) -> None:
        """Fill what is not an input of the first set with NaN (-1), and write its guards anew."""
        for buffer in plan.buffers:
            guarded = self._arrays[plan.workload, buffer][0]
            if buffer.role not in INPUT_ROLES and buffer.elements:
                guarded.array.data.memset_async(_POISON, guarded.array.nbytes)
            for edge in (guarded.raw[:GUARD_BYTES], guarded.raw[-GUARD_BYTES:]):
                edge.data.memset_async(_GUARD_VALUE, GUARD_BYTES)

    def holds(self, plan: Plan, seed: int | None = None) -> bool:
        """True when every buffer that the plan reads has inputs in the first set, of any seed or of one."""
        seeds = {self._loaded.get((plan.workload, b)) for b in plan.buffers if b.role in INPUT_ROLES}
        return None not in seeds if seed is None else seeds <= {seed}

    def has(self, plan: Plan, buffer: Buffer, seed: int) -> bool:
        """True when the first set of a buffer has the inputs of a seed."""
        return self._loaded.get((plan.workload, buffer)) == seed

    def seed(self, plan: Plan) -> int | None:
        """The seed of all inputs in the first set; None where there are none, or of several."""
        seeds = {self._loaded.get((plan.workload, b)) for b in plan.buffers if b.role in INPUT_ROLES}
        return seeds.pop() if len(seeds) == 1 else None

    def forget(self, plan: Plan) -> None:
        """Count nothing of the plan as an input: its run wrote where it must not."""
        for key in _keys([plan]):
            self._loaded.pop(key, None)

    def raw(self, plan: Plan) -> dict[str, Array]:
        """The bytes of the first set's arrays with their guards, ``GUARD_BYTES`` at both ends."""
        return {b.name: self._arrays[plan.workload, b][0].raw for b in plan.buffers}

    def held_bytes(self, plans: Sequence[Plan]) -> int:
        """Device memory held for the buffers of some plans."""
        keys = _keys(plans)
        array_bytes = sum(guarded.raw.nbytes for key in keys for guarded in self._arrays.get(key, ()))
        return array_bytes + sum(original.nbytes for key, original in self._originals.items() if key in keys)

    def held_sets(self, plans: Sequence[Plan]) -> int:
        """Complete sets of arrays of the plans."""
        return min(len(self._arrays.get(key, ())) for key in _keys(plans))

    def evict(self, plans: Sequence[Plan]) -> None:
        """Drop arrays of these plans' workloads that the plans do not name.

        Shapes may depend on tunables: without this every configuration would leave arrays of its own behind.
        """
        named, workloads = _keys(plans), {plan.workload for plan in plans}
        self._keep(
            {key: arrays for key, arrays in self._arrays.items() if key in named or key[0] not in workloads}
        )

    def keep_only(self, plans: Sequence[Plan], sets: int) -> None:
        """Give back what the plans do not name, and of what they name more than ``sets`` sets."""
        keys = _keys(plans)
        self._keep({key: arrays[:sets] for key, arrays in self._arrays.items() if key in keys})
        self._cp.get_default_memory_pool().free_all_blocks()

    def _keep(self, arrays: dict[_Key, list[_GuardedArray]]) -> None:
        self._arrays = arrays
        self._originals = {key: original for key, original in self._originals.items() if key in arrays}
        self._loaded = {key: seed for key, seed in self._loaded.items() if key in arrays}

    def _allocate(self, buffer: Buffer) -> _GuardedArray:
        dtype = element_dtype(buffer.dtype)
        size = buffer.elements * dtype.itemsize
        raw = self._cp.empty(size + 2 * GUARD_BYTES, dtype="uint8")
        array = raw[GUARD_BYTES : GUARD_BYTES + size].view(dtype).reshape(buffer.shape)
        return _GuardedArray(raw, array)


def _keys(plans: Sequence[Plan]) -> set[_Key]:
    return {(plan.workload, buffer) for plan in plans for buffer in plan.buffers}


def set_bytes(plans: Sequence[Plan]) -> int:
    """Bytes of one set of arrays of all plans."""
    return sum(b.elements * element_dtype(b.dtype).itemsize for plan in plans for b in plan.buffers)


def original_bytes(plans: Sequence[Plan]) -> int:
    """Bytes that are kept once, beside all sets, to restore arrays from."""
    restored = (buffer for plan in plans for buffer in plan.buffers if buffer.restored)
    return sum(b.elements * element_dtype(b.dtype).itemsize for b in restored)


def rotation_sets(one_set: int, l2_bytes: int, available_bytes: int) -> int:
    """Sets of arrays to go round, so that a round finds none of its data in the L2.

    Between two uses of an array three times the L2 are touched; two sets are used even where one is
    that large, if half of the available memory holds them. Sets so small that no number of them leaves the L2
    go round by fewer.

    Args:
        one_set: bytes of one set of all workloads together.
        l2_bytes: size of the L2.
        available_bytes: device memory that may be used.
    """
    cold = max(2, math.ceil(_COLD * l2_bytes / one_set))
    most = _WARM_SETS if 2 * _MOST_SETS * one_set <= l2_bytes else _MOST_SETS
    return max(1, min(cold, most, available_bytes // (2 * one_set)))


def is_cold(sets: int, one_set: int, l2_bytes: int) -> bool:
    """True when going round the sets touches three times the L2."""
    return sets * one_set >= _COLD * l2_bytes


def flushing_bytes(l2_bytes: int) -> int:
    """Bytes to write so that nothing of other arrays stays in the L2, and the host has time for a launch."""
    return max(_COLD * l2_bytes, _LEAST_FLUSHED)


# --- Inputs of workloads on the device: made once per workload and seed, shared by its configurations.
#
# The device draws what it can; other values are made on the host, or read from files, and copied.

_COPIED = 2**24  # elements at a time
_KEPT_PART = 8  # a copy of values takes no more than this part of the free memory


class Inputs:
    """Fills the buffers that plans read, and knows whether they were left alone."""

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
            digests = self._kernels.read()
            for buffer, slot in zip(unknown, slots, strict=True):
                self._digests[plan.workload, buffer, seed] = int(digests[slot])

    def present(self, plan: Plan) -> dict[str, Array]:
        """The arrays that the plan reads, in the first set, as they are now."""
        first = self._pool.sets(plan, 1)[0]
        return {name: first[name] for name in _names(plan)}

    def copies(self, plan: Plan, seed: int) -> dict[str, Array]:
        """The inputs as they were before a run; arrays of their own where the plan writes to them."""
        inputs = self.present(plan)
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
        buffers = {buffer.name: buffer for buffer in plan.buffers}
        for name, draw in problem.draws(plan.buffers).items():
            if name in untouched:
                continue
            drawn = draw if buffers[name].input is None else stated_draw(buffers[name])
            if drawn is None:
                self._take(plan.workload, buffers[name], arrays[name], seed)
            else:
                self._draw(arrays[name], buffers[name], drawn, _seed_of(name, seed))
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
                other: array
                for other, array in self._originals.items()
                if other[0] != workload or other[1].name != buffer.name or other[1] == buffer
            }  # a shape may follow a tunable
            self._originals[key] = self._cp.empty(array.shape, dtype=array.dtype)
            self._cp.copyto(self._originals[key], array)

    def _copy(self, array: Array, buffer: Buffer, seed: int) -> None:
        """Values of the host, in pieces: those of a file may not fit into its memory."""
        try:
            values = stated_values(buffer, np.random.default_rng(seed))
        except InputError as error:
            raise UncheckableError(f"input of {buffer.name!r}: {error}") from error
        to, flat = array.reshape(-1), values.reshape(-1)
        for piece in chunks(flat.size, 1, _COPIED):
            self._cp.copyto(to[piece], self._cp.asarray(np.ascontiguousarray(flat[piece])))


def _from_host(buffer: Buffer) -> bool:
    """True if the values of a buffer are stated, and no device can draw them."""
    return buffer.input is not None and stated_draw(buffer) is None


def _seed_of(name: str, seed: int) -> int:
    """Another sequence for every buffer."""
    return int.from_bytes(hashlib.blake2b(f"{seed}|{name}".encode(), digest_size=8).digest(), "little")


def _names(plan: Plan) -> list[str]:
    return [buffer.name for buffer in plan.buffers if buffer.role in INPUT_ROLES]


def _read_only(plan: Plan) -> list[Buffer]:
    return [buffer for buffer in plan.buffers if buffer.role == "in"]
