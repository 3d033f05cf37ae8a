"""From a workload to the configurations worth trying: enumerate, compile, prune.

Steps 1-5 of Algorithm 1 of the multi-kernel paper, up to the order (which belongs to the policy).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.config import KernelFile
from tuner.errors import CompileError, DeviceError, EmptySpaceError, InputError, KernelFileError
from tuner.interfaces import Candidate, Device, Progress
from tuner.model import Configuration, DeviceLimits, Plan, Resources, Workload
from tuner.recordings import RecordedKernel
from tuner.space import Space
from tuner.space.launches import candidate, launches
from tuner.space.occupancy import Occupancy, upper_bound

PAPER_MIN_OCCUPANCY = 0.8  # "e.g. occupancy > 80 %", section III-A of the multi-kernel paper

_SPILLS = ("spills registers", "uses local memory")


@dataclass(frozen=True)
class PreparedWorkload:
    """One workload, ready to be tuned.

    Attributes:
        workload: the workload.
        kernel: its kernel file, or what a recording tells of it.
        space: every configuration its rules allow.
        plans: the candidates, and the default, with all expressions evaluated.
        candidates: what is left after pruning, in the order of the space.
        default: the kernel file's default configuration.
        min_occupancy: threshold in force.
        pruned: why configurations were dropped, with counts.
        compile_errors: one message per configuration that does not compile.
        spilling: compiled configurations that spill registers or use local memory; they are candidates only
            where the kernel file allows it.
    """

    workload: Workload
    kernel: KernelFile | RecordedKernel
    space: Space
    plans: Mapping[Configuration, Plan]
    candidates: tuple[Candidate, ...]
    default: Configuration
    min_occupancy: float
    pruned: Mapping[str, int]
    compile_errors: tuple[str, ...]
    spilling: frozenset[Configuration] = frozenset()

    @property
    def recorded(self) -> bool:
        """True where measurements come from a recording."""
        return isinstance(self.kernel, RecordedKernel)


def fit_batches(
    workloads: Sequence[tuple[KernelFile, Workload]], free_bytes: int
) -> tuple[list[Workload], list[str]]:
    """Cap batches so that the arrays of all workloads together take at most half of the free memory.

    All batches shrink by the same power of two, so that a little more or less free memory gives the same
    batches again, and stored answers stay comparable.

    Returns:
        The workloads, and a notice for each that was capped.

    Raises:
        InputError: a single problem of each workload is already too much, or a batch is beyond what can be
            launched.
    """
    fitted = [workload for _, workload in workloads]
    while sum(_bytes(kernel, w) for (kernel, _), w in zip(workloads, fitted, strict=True)) > free_bytes // 2:
        if all(workload.batch == 1 for workload in fitted):
            names = ", ".join(map(str, fitted))
            raise InputError(
                f"{names}: one problem of each does not fit into half of the free memory"
                f" ({free_bytes // 2 / 2**20:.0f} MiB); choose smaller sizes"
            )
        fitted = [replace(w, batch=max(1, w.batch // 2)) for w in fitted]
    notices = [
        f"{new}: batch capped from {old.batch} to {new.batch} (half of the free device memory)"
        for (_, old), new in zip(workloads, fitted, strict=True)
        if old.batch != new.batch
    ]
    return fitted, notices


def _bytes(kernel: KernelFile, workload: Workload) -> int:
    try:
        return plan_bytes(_default_plan(kernel, workload))
    except KernelFileError as error:
        _default_plan(kernel, replace(workload, batch=1))  # where this fails, too, the file is wrong
        raise InputError(f"{workload}: a batch of {workload.batch} is too large: {error}") from error


def _default_plan(kernel: KernelFile, workload: Workload) -> Plan:
    return kernel.plan(workload, kernel.default(workload))


def prepare(
    workloads: Sequence[tuple[KernelFile, Workload]],
    device: Device,
    min_occupancy: float | None = None,
    progress: Progress | None = None,
) -> list[PreparedWorkload]:
    """Enumerate, compile and prune the spaces of all workloads.

    Args:
        workloads: kernel file and workload.
        device: compiles, and knows its limits.
        min_occupancy: threshold of equation (5), 0 to 1; None takes the kernel file's, or the paper's 0.8.
        progress: told how many configurations are compiled.

    Raises:
        DeviceError: the limits of the device are not known.
        EmptySpaceError: a workload has no configuration left; the message says what dropped them.
    """
    limits = device.limits
    if limits is None:
        raise DeviceError(f"{device.identity.spec}: the limits of this GPU are not known")
    drafts = [_Draft.of(kernel, workload, limits, min_occupancy) for kernel, workload in workloads]
    plans = [plan for draft in drafts for plan in draft.plans.values()]
    reports = iter(device.resources(plans, progress))
    return [draft.finish([next(reports) for _ in draft.plans], limits) for draft in drafts]


@dataclass(frozen=True)
class _Draft:
    kernel: KernelFile
    workload: Workload
    space: Space
    default: Configuration
    threshold: float
    plans: dict[Configuration, Plan]
    pruned: Counter[str]
    highest_bound: float  # of the occupancies dropped before compiling

    @classmethod
    def of(
        cls, kernel: KernelFile, workload: Workload, limits: DeviceLimits, min_occupancy: float | None
    ) -> "_Draft":
        """Enumerate, and drop what the device or the threshold rules out whatever the compiler does."""
        space = kernel.space(workload)
        default = kernel.default(workload)
        threshold = min_occupancy
        if threshold is None:
            threshold = PAPER_MIN_OCCUPANCY if kernel.min_occupancy is None else kernel.min_occupancy
        pruned: Counter[str] = Counter()
        plans: dict[Configuration, Plan] = {}
        highest_bound = 0.0
        for configuration in space:
            plan = kernel.plan(workload, configuration)
            needed = max(stage.min_architecture for stage in plan.stages)
            if not limits.reaches(needed):
                pruned[f"needs compute capability {needed // 10}.{needed % 10}"] += 1
                continue
            bound = _least([_bound(limits, plan, i) for i in range(len(plan.stages))])
            if bound.blocks_per_sm == 0:
                pruned[f"cannot be launched ({bound.limited_by})"] += 1
            elif bound.occupancy < threshold and configuration != default:
                pruned["occupancy, before compiling"] += 1
                highest_bound = max(highest_bound, bound.occupancy)
            else:
                plans[configuration] = plan
        return cls(kernel, workload, space, default, threshold, plans, pruned, highest_bound)

    def finish(
        self, reports: Sequence[tuple[Resources, ...] | CompileError], limits: DeviceLimits
    ) -> PreparedWorkload:
        """Prune by compiled resources: what cannot be launched, spills, or does not fill the device."""
        compiled: list[Candidate] = []
        spilling: set[Configuration] = set()
        errors: list[str] = []
        for plan, report in zip(self.plans.values(), reports, strict=True):
            if isinstance(report, CompileError):
                errors.append(str(report))
                self.pruned["does not compile"] += 1
            else:
                found = self._candidate(plan, report, limits)
                spilled = _spilled(report)
                if spilled:
                    spilling.add(plan.configuration)
                if found.blocks_per_sm == 0:
                    self.pruned["cannot be launched (registers)"] += 1
                elif spilled and not self.kernel.spills:
                    self.pruned[spilled] += 1
                else:
                    compiled.append(found)
        kept = [candidate for candidate in compiled if candidate.occupancy >= self.threshold]
        if not kept:
            raise EmptySpaceError(self._nothing_left(compiled, errors))
        self.pruned["occupancy, of compiled resources"] += len(compiled) - len(kept)
        return PreparedWorkload(
            self.workload,
            self.kernel,
            self.space,
            self.plans,
            tuple(kept),
            self.default,
            self.threshold,
            dict(+self.pruned),
            tuple(errors),
            frozenset(spilling),
        )

    def _candidate(self, plan: Plan, resources: tuple[Resources, ...], limits: DeviceLimits) -> Candidate:
        stages = launches(limits, plan, resources)
        return candidate(plan.configuration, stages, self.kernel.roles, resources=resources, work=plan.work)

    def _nothing_left(self, compiled: Sequence[Candidate], errors: Sequence[str]) -> str:
        if compiled:
            best = max(candidate.occupancy for candidate in compiled)
            at_most = " at most" if self.highest_bound > best else ""
            return (
                f"{self.workload}: no configuration reaches an occupancy of {self.threshold:.0%};"
                f" the highest is{at_most} {max(best, self.highest_bound):.0%}:"
                f" lower --min-occupancy or [occupancy] min in {self.kernel.path}"
            )
        reasons = ", ".join(f"{count} × {reason}" for reason, count in self.pruned.items())
        first = f"; first error: {errors[0]}" if errors else ""
        if any(reason in self.pruned for reason in _SPILLS):
            first += f"; spills = true under [constraints] in {self.kernel.path} lets them be tried"
        return f"{self.workload}: none of {len(self.space)} configurations is left ({reasons}){first}"


def _spilled(resources: Sequence[Resources]) -> str:
    """Why local memory is used, or an empty string."""
    if any(taken.spill_bytes for taken in resources):
        return _SPILLS[0]
    return _SPILLS[1] if any(taken.local_bytes for taken in resources) else ""


def _bound(limits: DeviceLimits, plan: Plan, stage: int) -> Occupancy:
    return upper_bound(limits, plan.stages[stage].threads_per_block, plan.stages[stage].shared_bytes)


def _least(occupancies: Sequence[Occupancy]) -> Occupancy:
    return min(occupancies, key=lambda o: o.occupancy)


def plan_bytes(plan: Plan) -> int:
    """Device memory of one set of the plan's arrays."""
    import numpy as np  # noqa: PLC0415 - only for element sizes

    return sum(buffer.elements * np.dtype(buffer.dtype).itemsize for buffer in plan.buffers)
