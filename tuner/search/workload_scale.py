"""What a workload's time scales with: its batch, or a size that only repeats its launches."""

import math
from dataclasses import dataclass, replace

from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.sizes import SizeValues
from tuner.model.errors import InputError
from tuner.model.plan import Plan, Workload

_BATCH = "batch"
_MOST = 2**62  # problems of a batch; memory ends it long before


@dataclass(frozen=True)
class Scale:
    """What makes a workload take longer or shorter without making its problems larger.

    Attributes:
        name: ``batch``, or a size that only repeats launches.
        values: that it may have.
    """

    name: str
    values: SizeValues

    def of(self, workload: Workload) -> int:
        """Its value in a workload."""
        return workload.batch if self.name == _BATCH else int(dict(workload.sizes)[self.name])

    def nearest(self, workload: Workload, factor: float) -> int:
        """The value at which a workload takes about so many times its time."""
        present = self.of(workload)
        wanted = present * factor
        if isinstance(self.values, range):
            power: int = 2 ** math.floor(math.log2(max(1.0, wanted)))
            rounded = [present, *(one * power // 2 for one in (2, 3, 4))]
            numbers = [one for one in rounded if one in self.values] or [present]
        else:
            numbers = [one for one in self.values if isinstance(one, int)]
        return min(numbers, key=lambda one: abs(math.log2(one / wanted)))


def scale_of(kernel: KernelFile, workload: Workload) -> Scale | None:
    """The batch where a kernel has one; else a size that only repeats its launches; else None."""
    here = _default_plan(kernel, workload)
    more = _default_plan(kernel, replace(workload, batch=2 * workload.batch))
    if here is None:
        return None
    if more is not None and (_grids(here), here.work) != (_grids(more), more.work):
        return Scale(_BATCH, range(1, _MOST))
    for name, value in workload.sizes:
        others = (one for one in kernel.sizes[name] if isinstance(one, int) and one > 0 and one != value)
        other = next(others, None)
        if other is None or not isinstance(value, int):
            continue
        there = _default_plan(kernel, changed(kernel, workload, name, other))
        repeats = there is not None and len(there.stages) != len(here.stages)
        if there is not None and repeats and set(_grids(there)) == set(_grids(here)):
            return Scale(name, kernel.sizes[name])
    return None


def _default_plan(kernel: KernelFile, workload: Workload) -> Plan | None:
    try:
        return kernel.plan(workload, kernel.default(workload))
    except InputError:  # a batch or a size that this kernel cannot have
        return None


def _grids(plan: Plan) -> list[tuple[object, ...]]:
    return [(stage.name, stage.grid, stage.block) for stage in plan.stages]


def changed(kernel: KernelFile, workload: Workload, name: str, value: int) -> Workload:
    """The workload with another batch, or another value of a size."""
    if name == _BATCH:
        return replace(workload, batch=value)
    return kernel.workload(dict(workload.sizes) | {name: value}, workload.batch)
