"""From a workload to the configurations worth trying: enumerated, pruned, judged when compiled.

Steps 1-5 of Algorithm 1 of the multi-kernel paper, up to the order (which belongs to the policy). Compiling
is not done here (``tuner.search.compilation``): a search compiles what it looks at.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tuner.devices.base import Device
from tuner.devices.gpu_models import serving
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import (
    CompileError,
    DeviceError,
    EmptySpaceError,
    InputError,
    KernelFileError,
    LaunchMisfitError,
    UnknownNameError,
)
from tuner.model.jobs import DeviceLimits
from tuner.model.objective import Rank
from tuner.model.plan import Configuration, Plan, Resources, Workload
from tuner.model.trial import Measurement, Trial
from tuner.space.large_spaces import SampledSpace, rounded
from tuner.space.occupancy import (
    bounds,
    candidate,
    holds_whole,
    launches,
    occupancy,
    own_resources,
    own_stages,
    refusal,
)
from tuner.space.search_view import Candidate, LargeSpace, StageLaunch
from tuner.space.space import Space

if TYPE_CHECKING:
    from tuner.recordings.values import RecordedKernel

# --- One configuration before it is compiled: its plan, and what rules it out whatever the compiler does.

BEFORE_COMPILING = "occupancy, before compiling"


@dataclass(frozen=True)
class DeclaredTraits:
    """Traits of a configuration that a kernel file declares.

    Attributes:
        plan: with all expressions evaluated.
        candidate: with bounds of its occupancy; None where it is dropped.
        dropped: why it is no candidate; empty where it is one.
        occupancy: bound of its occupancy, 0 to 1.
    """

    plan: Plan
    candidate: Candidate | None
    dropped: str
    occupancy: float


def place_of(configuration: Configuration, stated: Sequence[Configuration]) -> int:
    """Place of a configuration among the answers that a kernel file states, from 1; 0 of no answer."""
    return stated.index(configuration) + 1 if configuration in stated else 0


@dataclass(frozen=True)
class TraitReader:
    """Looks at the configurations of one workload.

    Attributes:
        kernel: its kernel file.
        workload: the workload.
        limits: of the device.
        min_occupancy: threshold in force.
        stated: the analytical answers that the kernel file states, the preferred one first.
    """

    kernel: KernelFile
    workload: Workload
    limits: DeviceLimits
    min_occupancy: float
    stated: tuple[Configuration, ...]

    def of(self, configuration: Configuration) -> DeclaredTraits:
        """Return the declared traits of a configuration.

        Raises:
            KernelFileError: an expression has no result.
        """
        plan = self.kernel.plan(self.workload, configuration)
        needed = max(stage.min_architecture for stage in plan.stages)
        if not self.limits.reaches(needed):
            return DeclaredTraits(plan, None, f"{_NEEDS}{needed // 10}.{needed % 10}", 0.0)
        judged = candidate(
            *(configuration, bounds(self.limits, plan), self.kernel.roles),
            work=plan.work,
            declared=True,
            stated=place_of(configuration, self.stated),
        )
        if judged.blocks_per_sm == 0:
            limited_by = _limited_by(self.limits, judged.launches)
            return DeclaredTraits(plan, None, f"cannot be launched ({limited_by})", 0.0)
        if any(refusal(plan.stages[index], self.limits) for index in own_stages(plan)):
            return DeclaredTraits(plan, None, "cannot be launched (grid)", 0.0)
        if judged.occupancy < self.min_occupancy:
            return DeclaredTraits(plan, None, BEFORE_COMPILING, judged.occupancy)
        return DeclaredTraits(plan, judged, "", judged.occupancy)


def _limited_by(limits: DeviceLimits, stages: Iterable[StageLaunch]) -> str:
    """Return the resource that keeps one of some stages from being launched."""
    filled = (occupancy(limits, s.threads_per_block, s.registers_per_thread, s.shared_bytes) for s in stages)
    return next(each.limited_by for each in filled if each.blocks_per_sm == 0)


# --- Candidates of a space that is too large to be listed, made when somebody asks for them.


class CandidateSource:
    """Makes the candidates that a search looks at beyond those that are listed.

    Attributes:
        made: by configuration; None where one is pruned. Listed ones are among them once they were asked for.
    """

    def __init__(self, space: SampledSpace, declaration: TraitReader) -> None:
        self._space = space
        self._declaration = declaration
        self.made: dict[Configuration, Candidate | None] = {}

    def neighbours(self, configuration: Configuration) -> Sequence[Candidate]:
        """Candidates that differ in one tunable, listed or not."""
        candidates = map(self._made, self._space.neighbours(configuration))
        return [each for each in candidates if each is not None]

    def candidate(self, configuration: Configuration) -> Candidate | None:
        """Candidate of a configuration; None where rules or pruning leave it out."""
        allowed = self._declaration.kernel.allowed(self._declaration.workload, configuration)
        return None if allowed is None else self._made(allowed)

    def as_told(self) -> LargeSpace:
        """The space as a policy is told of it."""
        return LargeSpace(self._space.size, self.neighbours, self.candidate)

    def _made(self, configuration: Configuration) -> Candidate | None:
        if configuration not in self.made:
            self.made[configuration] = self._declaration.of(configuration).candidate
        return self.made[configuration]


class PlansOnDemand(dict[Configuration, Plan]):
    """Plans of listed configurations; those of others are made, and kept, when they are looked up."""

    def __init__(self, kernel: KernelFile, workload: Workload) -> None:
        super().__init__()
        self._kernel, self._workload = kernel, workload

    def __missing__(self, configuration: Configuration) -> Plan:
        allowed = self._kernel.allowed(self._workload, configuration)
        if allowed is None:
            raise KeyError(configuration)
        plan = self._kernel.plan(self._workload, allowed)
        self[allowed] = plan
        return plan


# --- Workloads with their candidates, pruned, and verdicts on what was compiled.

DEFAULT_MIN_OCCUPANCY = 0.0  # nothing is left out unasked; the catalogue states thresholds of its own

COMPILED_OCCUPANCY = "occupancy, of compiled resources"
SAME_CODE = "the code and launches of another"
_NEEDS = "needs compute capability "
SPILLS = ("spills registers", "uses local memory")


@dataclass(frozen=True)
class PreparedWorkload:
    """One workload, ready to be tuned.

    Attributes:
        workload: the workload.
        kernel: its kernel file, or what a recording tells of it.
        space: every configuration its rules allow.
        plans: the candidates, and the default, with all expressions evaluated.
        candidates: what is left after pruning, in the order of the space; those that were not looked at yet
            are ``declared`` ones.
        default: the kernel file's default configuration.
        min_occupancy: threshold in force.
        pruned: why configurations were dropped, with counts.
        compile_errors: one message per configuration that does not compile.
        spilling: compiled configurations that spill registers or use local memory; they are candidates only
            where the kernel file allows it.
        highest_dropped: highest occupancy of what was dropped before compiling; 0 where nothing was.
        stated: the analytical answers that the kernel file states, the preferred one first.
        source: makes further candidates where only a sample of the space is listed; None where all is.
    """

    workload: Workload
    kernel: "KernelFile | RecordedKernel"
    space: Space
    plans: Mapping[Configuration, Plan]
    candidates: tuple[Candidate, ...]
    default: Configuration
    min_occupancy: float
    pruned: Mapping[str, int]
    compile_errors: tuple[str, ...]
    spilling: frozenset[Configuration] = frozenset()
    highest_dropped: float = 0.0
    stated: tuple[Configuration, ...] = ()
    source: CandidateSource | None = None

    @property
    def known_candidates(self) -> tuple[Candidate, ...]:
        """The candidates listed, and those that were made beside them."""
        if self.source is None:
            return self.candidates
        listed = {each.configuration for each in self.candidates} | set(self.space)
        further = (each for each in self.source.made.values() if each is not None)
        return (*self.candidates, *(each for each in further if each.configuration not in listed))

    @property
    def size_after_pruning(self) -> int:
        """Candidates there are; of a large space an estimate by those that are listed."""
        if self.source is None:
            return len(self.candidates)
        dropped = sum(self.pruned.values())
        share = len(self.candidates) / (len(self.candidates) + dropped)
        return max(len(self.candidates), rounded(self.space.size * share))

    def plan(self, configuration: Configuration) -> Plan | None:
        """The plan of a configuration; None where it is none of the space, or was dropped."""
        try:
            return self.plans[configuration]
        except KeyError:
            return None

    @property
    def uncompiled(self) -> int:
        """Candidates that nobody has looked at: they are compiled ahead at most."""
        return sum(each.declared for each in self.candidates)

    @property
    def recorded(self) -> bool:
        """True where measurements come from a recording."""
        return not isinstance(self.kernel, KernelFile)


def rank_in(spaces: Sequence[PreparedWorkload]) -> Rank:
    """The order of trials among those that tie: that of the spaces; clocks and power limits as found first.

    By fewest threads GPUs of a kind agree less often: few threads are mostly slow, so the first of those that
    tie lies at the edge of the margin, where it ties on one GPU and not on the next (``docs/howto/ship.md``).
    """

    def rank(trial: Trial) -> tuple[object, ...]:
        places = (_place(*pair) for pair in zip(spaces, trial.configurations, strict=True))
        return (*places, (trial.clock_mhz or 0, trial.power_limit_w or 0))

    return rank


def _place(item: PreparedWorkload, configuration: Configuration) -> tuple[int, ...]:
    """The place in the order of a space; that of a default with values that are in no list is the last."""
    try:
        return item.space.order(configuration)
    except UnknownNameError:
        return (item.space.cartesian_size,)


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
    notices = []
    for (kernel, old), new in zip(workloads, fitted, strict=True):
        if old.batch == new.batch:
            continue
        if old.batch == kernel.workload(dict(old.sizes)).batch:  # nobody requested it
            limit = f"capped from {old.batch} to {new.batch} (half of the free device memory)"
            notices.append(f"{new}: batch {limit}")
        else:
            notices.append(
                f"{new}: measured with a batch of {new.batch:,}; arrays of {old.batch:,} do not fit into half"
                " of the free device memory"
            )
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
) -> list[PreparedWorkload]:
    """Enumerate the spaces of all workloads, and prune them by what is declared; nothing is compiled.

    Args:
        workloads: kernel file and workload.
        device: whose limits count.
        min_occupancy: threshold of equation (5), 0 to 1; None takes the kernel file's, or 0.

    Raises:
        DeviceError: the limits of the device are not known.
        EmptySpaceError: a workload has no configuration left; the message says what dropped them.
    """
    limits = limits_of(device)
    return [
        _prepared(kernel, workload, limits, device.identity.name, min_occupancy)
        for kernel, workload in workloads
    ]


def limits_of(device: Device) -> DeviceLimits:
    """The limits of a device.

    Raises:
        DeviceError: they are not known.
    """
    if device.limits is None:
        raise DeviceError(f"{device.identity.spec}: the limits of this GPU are not known")
    return device.limits


def _prepared(
    kernel: KernelFile,
    workload: Workload,
    limits: DeviceLimits,
    gpu: str,
    min_occupancy: float | None,
) -> PreparedWorkload:
    """Drop what the device or the threshold rules out whatever the compiler does."""
    space = kernel.space(workload)
    default, stated = kernel.default(workload), kernel.stated_answers(workload, gpu)
    threshold = min_occupancy
    if threshold is None:
        threshold = DEFAULT_MIN_OCCUPANCY if kernel.min_occupancy is None else kernel.min_occupancy
    declaration = TraitReader(kernel, workload, limits, threshold, stated)
    source = CandidateSource(space, declaration) if isinstance(space, SampledSpace) else None
    pruned: Counter[str] = Counter()
    plans: dict[Configuration, Plan] = {} if source is None else PlansOnDemand(kernel, workload)
    candidates: list[Candidate] = []
    highest_dropped = 0.0
    named = [] if source is None else [default, *stated]
    for configuration in dict.fromkeys([*space, *named]):
        traits = declaration.of(configuration)
        if traits.candidate is not None:
            candidates.append(traits.candidate)
        else:
            pruned[traits.dropped] += 1
            highest_dropped = max(highest_dropped, traits.occupancy)
        if traits.candidate is not None or (configuration == default and traits.dropped == BEFORE_COMPILING):
            plans[configuration] = traits.plan
    item = PreparedWorkload(
        *(workload, kernel, space, plans, tuple(candidates), default, threshold, dict(pruned), ()),
        highest_dropped=highest_dropped,
        stated=stated,
        source=source,
    )
    if not candidates:
        raise EmptySpaceError(nothing_left(item))
    return item


@dataclass(frozen=True)
class Verdict:
    """Result of compiling a configuration.

    Attributes:
        candidate: with its compiled resources; None where it does not compile.
        dropped: why it is no candidate; empty where it is one.
        error: what the compiler says of one that does not compile.
        spills: it spills registers or uses local memory.
        launched: the code with its launches; empty where it is not known.
    """

    candidate: Candidate | None
    dropped: str = ""
    error: str = ""
    spills: bool = False
    launched: tuple[object, ...] = ()


def judge(
    item: PreparedWorkload, plan: Plan, report: tuple[Resources, ...] | CompileError, limits: DeviceLimits
) -> Verdict:
    """Prune by compiled resources: what cannot be launched, spills, or does not fill the device."""
    if isinstance(report, CompileError):
        misfit = isinstance(report, LaunchMisfitError)
        return Verdict(None, LaunchMisfitError.reason if misfit else "does not compile", str(report))
    compiled = candidate(
        plan.configuration,
        launches(limits, plan, report),
        item.kernel.roles,
        resources=own_resources(plan, report),
        work=plan.work,
        stated=place_of(plan.configuration, item.stated),
    )
    resources = own_resources(plan, report)
    spilled = ""
    if any(stage.spill_bytes for stage in resources):
        spilled = SPILLS[0]
    elif any(stage.local_bytes for stage in resources):
        spilled = SPILLS[1]
    allowed = isinstance(item.kernel, KernelFile) and item.kernel.spills
    dropped = ""
    if compiled.blocks_per_sm == 0:
        dropped = f"cannot be launched ({_limited_by(limits, compiled.launches)})"
    elif any(
        not holds_whole(plan.stages[index], launch.blocks_per_sm, limits)
        for index, launch in zip(own_stages(plan), compiled.launches, strict=False)
    ):
        dropped = "cooperative grid larger than what the device holds"
    elif compiled.occupancy < item.min_occupancy:
        dropped = COMPILED_OCCUPANCY
    elif spilled and not allowed:
        dropped = spilled
    return Verdict(compiled, dropped, spills=bool(spilled), launched=plan.launched(report))


def nothing_left(item: PreparedWorkload, highest: float | None = None) -> str:
    """Return the message on a workload that has no candidate left.

    Args:
        item: with all that was dropped, and why.
        highest: occupancy of those dropped for their compiled occupancy; 0 where there are none, None where
            nothing was compiled.
    """
    path = item.kernel.path if isinstance(item.kernel, KernelFile) else item.kernel.name
    if highest or (highest is None and item.highest_dropped):
        highest = highest or 0.0
        at_most = " at most" if item.highest_dropped > highest else ""
        return (
            f"{item.workload}: no configuration reaches an occupancy of {item.min_occupancy:.0%};"
            f" the highest is{at_most} {max(highest, item.highest_dropped):.0%}:"
            f" lower --min-occupancy or [occupancy] min in {path}"
        )
    reasons = ", ".join(f"{count} × {reason}" for reason, count in item.pruned.items())
    first = f"; first error: {item.compile_errors[0]}" if item.compile_errors else ""
    if any(reason in item.pruned for reason in SPILLS):
        first += f"; spills = true under [constraints] in {path} lets them be tried"
    needed = [r.removeprefix(_NEEDS).split(".") for r in item.pruned if r.startswith(_NEEDS)]
    simulated = serving(min((int(major), int(minor)) for major, minor in needed)) if needed else ""
    first += f"; --device {simulated} models a GPU that has it" if simulated else ""
    return f"{item.workload}: none of {len(item.space)} configurations is left ({reasons}){first}"


def plan_bytes(plan: Plan) -> int:
    """Device memory of one set of the plan's arrays, and of what is kept to restore them."""
    from tuner.model.elements import element_dtype  # noqa: PLC0415 - needs NumPy

    return sum(b.elements * element_dtype(b.dtype).itemsize * (2 if b.restored else 1) for b in plan.buffers)


def as_declared(
    prepared: Sequence[PreparedWorkload], trials: Iterable[tuple[Trial, Measurement]]
) -> list[tuple[Trial, Measurement]]:
    """Stored trials with their tunables in the order of declaration; the store sorts them by name."""
    declared = [
        {configuration: plan.configuration for configuration, plan in item.plans.items()} for item in prepared
    ]
    return [
        (
            replace(
                trial,
                configurations=tuple(
                    order[configuration] if configuration in order else _in_order(item, configuration)
                    for item, order, configuration in zip(
                        prepared, declared, trial.configurations, strict=True
                    )
                ),
            ),
            measurement,
        )
        for trial, measurement in trials
    ]


def _in_order(item: PreparedWorkload, configuration: Configuration) -> Configuration:
    """A configuration of a large space that is not listed, as the kernel file would write it."""
    if item.source is None:
        return configuration
    return Configuration([(n, configuration[n]) for n in item.space.tunables if n in configuration])
