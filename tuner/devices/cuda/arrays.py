"""Device arrays of workloads: allocated once, shared by all configurations, guarded, rotated past the L2.

Of every array that is restored behind each run, what it held before is kept once for all sets.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from tuner.devices.cuda.types import Array
from tuner.model.elements import element_dtype
from tuner.model.plan import Buffer, Plan, Workload

INPUT_ROLES = ("in", "inout")
GUARD_BYTES = 4096  # before and after every array; keeps the arrays aligned like an allocation of their own
_GUARD_VALUE = 0xA5
_POISON = 0xFF  # a NaN in every floating-point format, -1 in every signed integer
_COLD = 3  # bytes touched between two uses of an array, in sizes of the L2
_MOST_SETS = 1024
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
            kept = self._arrays.setdefault((plan.workload, buffer), [])
            while len(kept) < count:
                new = self._allocate(buffer)
                if kept:
                    self._cp.copyto(new.raw, kept[0].raw)
                kept.append(new)
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
        found = {}
        for buffer in plan.buffers:
            if buffer.restored:
                key = plan.workload, buffer
                if key not in self._originals:
                    self._originals[key] = self._cp.empty(buffer.shape, dtype=element_dtype(buffer.dtype))
                self._cp.copyto(self._originals[key], first[buffer.name])
                found[buffer.name] = self._originals[key]
        return found

    def loaded(self, plan: Plan, seed: int) -> None:
        """Note that the first set now holds the inputs of a seed."""
        self._loaded.update({key: seed for key in _keys([plan]) if key[1].role in INPUT_ROLES})

    def poison(self, plan: Plan) -> None:
        """Fill what is not an input of the first set with NaN (-1), and write its guards anew."""
        for buffer in plan.buffers:
            guarded = self._arrays[plan.workload, buffer][0]
            if buffer.role not in INPUT_ROLES:
                guarded.array.data.memset_async(_POISON, guarded.array.nbytes)
            for edge in (guarded.raw[:GUARD_BYTES], guarded.raw[-GUARD_BYTES:]):
                edge.data.memset_async(_GUARD_VALUE, GUARD_BYTES)

    def holds(self, plan: Plan, seed: int | None = None) -> bool:
        """True when every buffer that the plan reads has inputs in the first set, of any seed or of one."""
        found = {self._loaded.get((plan.workload, b)) for b in plan.buffers if b.role in INPUT_ROLES}
        return None not in found if seed is None else found <= {seed}

    def has(self, plan: Plan, buffer: Buffer, seed: int) -> bool:
        """True when the first set of a buffer has the inputs of a seed."""
        return self._loaded.get((plan.workload, buffer)) == seed

    def seed(self, plan: Plan) -> int | None:
        """The seed of all inputs in the first set; None where there are none, or of several."""
        found = {self._loaded.get((plan.workload, b)) for b in plan.buffers if b.role in INPUT_ROLES}
        return found.pop() if len(found) == 1 else None

    def forget(self, plan: Plan) -> None:
        """Count nothing of the plan as an input: its run wrote where it must not."""
        for key in _keys([plan]):
            self._loaded.pop(key, None)

    def raw(self, plan: Plan) -> dict[str, Array]:
        """The bytes of the first set's arrays with their guards, ``GUARD_BYTES`` at both ends."""
        return {b.name: self._arrays[plan.workload, b][0].raw for b in plan.buffers}

    def held_bytes(self, plans: Sequence[Plan]) -> int:
        """Device memory held for the buffers of some plans."""
        wanted = _keys(plans)
        held = sum(guarded.raw.nbytes for key in wanted for guarded in self._arrays.get(key, ()))
        return held + sum(original.nbytes for key, original in self._originals.items() if key in wanted)

    def held_sets(self, plans: Sequence[Plan]) -> int:
        """Complete sets of arrays of the plans."""
        return min(len(self._arrays.get(key, ())) for key in _keys(plans))

    def evict(self, plans: Sequence[Plan]) -> None:
        """Drop arrays of these plans' workloads that the plans do not name.

        Shapes may depend on tunables: without this every configuration would leave arrays of its own behind.
        """
        named, workloads = _keys(plans), {plan.workload for plan in plans}
        self._keep(
            {key: kept for key, kept in self._arrays.items() if key in named or key[0] not in workloads}
        )

    def keep_only(self, plans: Sequence[Plan], sets: int) -> None:
        """Give back what the plans do not name, and of what they name more than ``sets`` sets."""
        wanted = _keys(plans)
        self._keep({key: kept[:sets] for key, kept in self._arrays.items() if key in wanted})
        self._cp.get_default_memory_pool().free_all_blocks()

    def _keep(self, arrays: dict[_Key, list[_GuardedArray]]) -> None:
        self._arrays = arrays
        self._originals = {key: kept for key, kept in self._originals.items() if key in arrays}
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
    wanted = max(2, math.ceil(_COLD * l2_bytes / one_set))
    most = _WARM_SETS if 2 * _MOST_SETS * one_set <= l2_bytes else _MOST_SETS
    return max(1, min(wanted, most, available_bytes // (2 * one_set)))


def is_cold(sets: int, one_set: int, l2_bytes: int) -> bool:
    """True when going round the sets touches three times the L2."""
    return sets * one_set >= _COLD * l2_bytes
