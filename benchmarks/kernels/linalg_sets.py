"""Sets of arrays of one problem, more than the L2 holds: a run goes through all of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tuner.devices.cuda.answer_check import sizes_of
from tuner.model.elements import element_dtype
from tuner.model.plan import Buffer, Plan
from tuner.problems.base import Deviation, stated_values
from tuner.problems.lookup import problem_for

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
