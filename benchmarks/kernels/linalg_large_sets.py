"""The arrays of one large matrix: one set, with scratch arrays for each configuration."""

from typing import Any

import numpy as np
from linalg_sets import Arrays, HostArrays

from tuner.devices.cuda.answer_check import sizes_of
from tuner.model.elements import element_dtype
from tuner.model.plan import Plan
from tuner.problems.base import Deviation, stated_values
from tuner.problems.lookup import problem_for

DeviceArrays = dict[str, Any]


def drawn(plan: Plan) -> HostArrays:
    """Inputs of a plan, as its kernel file states them, on the host."""
    rng = np.random.default_rng(20)
    return {b.name: stated_values(b, rng) for b in plan.buffers if b.role in {"in", "inout"}}


class LargeSets:
    """One set of arrays; inputs stay on the device, and are copied from there.

    Args:
        cp: CuPy.
        plan: of a configuration.
        given: inputs, on the device.
        shared: inputs and outputs of another configuration, which this one takes too.

    Attributes:
        arrays: the set, by the names of the buffers.
        count: 1.
        batch: 1.
    """

    count = 1
    batch = 1

    def __init__(self, cp: Any, plan: Plan, given: DeviceArrays, shared: Arrays | None = None) -> None:
        self._cp, self._plan, self._given = cp, plan, given
        judged = {b.name for b in plan.buffers if b.role in {"in", "inout", "out"}}
        known = {name: array for name, array in (shared or {}).items() if name in judged}
        self.arrays: list[Arrays] = [{b.name: known.get(b.name) for b in plan.buffers}]
        for buffer in plan.buffers:
            if buffer.name not in known:
                self.arrays[0][buffer.name] = cp.empty(buffer.shape, element_dtype(buffer.dtype))
        self._outputs = [b.name for b in plan.buffers if b.role in {"inout", "out"}]
        self.restore()

    def of(self, plan: Plan) -> "LargeSets":
        """The same inputs and outputs, with the scratch arrays of another configuration."""
        return LargeSets(self._cp, plan, self._given, self.arrays[0])

    def restore(self) -> None:
        """Undo what runs do to their inputs."""
        for name, given in self._given.items():
            self._cp.copyto(self.arrays[0][name], given)

    def begin_check(self) -> None:
        """Restore the inputs; outputs hold NaN, or -1."""
        for name in self._outputs:
            array = self.arrays[0][name]
            if name not in self._given:
                array.data.memset_async(0xFF, array.nbytes)
        self.restore()

    def given(self) -> DeviceArrays:
        """The inputs, on the device."""
        return self._given

    def made(self) -> DeviceArrays:
        """The outputs, on the device."""
        return {name: self.arrays[0][name] for name in self._outputs}

    def judge(self, outputs: DeviceArrays) -> Deviation:
        """What the law of the kernel file says."""
        problem = problem_for(self._plan.problem)
        return problem.residual(self._cp, self._given, outputs, sizes_of(self._plan))
