"""A recorded space as values, and a search over it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.model.plan import Configuration, TunableValue, Workload
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.space.search_view import Candidate, Payback, Search, noiseless

NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class RecordedKernel:
    """Description of a kernel in a recording, used in place of a kernel file.

    Attributes:
        name: of the kernel.
        family: kind of problem it solves, or empty.
        roles: role -> tunable.
        rule_roles: the same as analytical rules are told; None where they have no answer for the kernel.
        fingerprint: of the kernel file and its sources when it was recorded.
    """

    name: str
    family: str
    roles: Mapping[str, str]
    rule_roles: Mapping[str, str] | None
    fingerprint: str

    def workload(self, sizes: Mapping[str, int | str], batch: int | None = None) -> Workload:
        """This kernel at other sizes; text that reads like a whole number is one."""
        values = {name: int(v) if str(v).isdecimal() else v for name, v in sizes.items()}
        return Workload(self.name, tuple(values.items()), batch or 1)


@dataclass(frozen=True)
class RecordedWorkload:
    """One workload of a recorded space.

    Attributes:
        name: as on the command line, e.g. ``scan-lf:N=1024``.
        kernel: name of the kernel.
        family: ``scan``, ``tridiagonal``, ``fft``, or empty.
        sizes: problem sizes.
        batch: problems solved by one run.
        fingerprint: of the kernel file and its sources when it was recorded; empty for other tuners' spaces.
        tunables: value lists by name, in the order of declaration.
        roles: role -> tunable; None where analytical rules have no answer for the kernel.
        default: the default configuration; the first candidate where there is none.
        candidates: the configurations that were recorded, in the order of the space.
    """

    name: str
    kernel: str
    family: str
    sizes: Mapping[str, int | str]
    batch: int
    fingerprint: str
    tunables: Mapping[str, tuple[TunableValue, ...]]
    roles: Mapping[str, str] | None
    default: Configuration
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class RecordedSpace:
    """Workloads, the configurations tried together, and what they gave.

    Attributes:
        workloads: measured together.
        identity: the GPU.
        limits: its occupancy inputs; None where they are not known.
        trials: what every trial gave.
        sensor: reading the joules came from; empty where none were measured.
        provenance: date, command, versions; for other tuners' spaces, where they came from.
    """

    workloads: tuple[RecordedWorkload, ...]
    identity: DeviceIdentity
    limits: DeviceLimits | None
    trials: Mapping[Trial, Measurement]
    sensor: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the workloads."""
        return tuple(workload.name for workload in self.workloads)

    @cached_property
    def clocks_mhz(self) -> tuple[int, ...]:
        """Clocks that were set, highest first; empty where all trials ran "as found"."""
        return tuple(sorted({t.clock_mhz for t in self.trials if t.clock_mhz is not None}, reverse=True))

    @cached_property
    def power_limits_w(self) -> tuple[int, ...]:
        """Power limits that were set, highest first; empty where all trials ran "as found"."""
        limits = {t.power_limit_w for t in self.trials if t.power_limit_w is not None}
        return tuple(sorted(limits, reverse=True))

    def look(self, trial: Trial) -> Measurement:
        """Return the measurement of a trial; if it was not recorded, a failed measurement that says so."""
        measurement = self.trials.get(trial)
        if measurement is not None:
            return measurement
        result = WorkloadResult(Status.LAUNCH_ERROR, detail=NOT_RECORDED)
        return Measurement(tuple(result for _ in self.workloads))


def _silent(_: str) -> None:
    """Tells nobody."""


def search_of(
    space: RecordedSpace,
    cost: Callable[[Measurement], float],
    *,
    seed: int = 0,
    noise: Callable[[Measurement], float] = noiseless,
    payback: Payback | None = None,
    tell: Callable[[str], None] = _silent,
) -> Search:
    """Return the search of a recorded space for a policy; ``RecordedSpace.look`` answers its trials.

    Args:
        space: the space.
        cost: the objective; infinity for a failed trial.
        seed: for policies that draw at random.
        noise: relative standard uncertainty of a measurement's cost.
        payback: when another evaluation no longer pays; None where nobody said.
        tell: takes a sentence for the user.
    """
    return Search(
        workloads=space.names,
        candidates=tuple(workload.candidates for workload in space.workloads),
        defaults=tuple(map(_default, space.workloads)),
        clocks_mhz=space.clocks_mhz,
        cost=cost,
        seed=seed,
        tunables=tuple(workload.tunables for workload in space.workloads),
        roles=tuple(workload.roles for workload in space.workloads),
        sizes=tuple(workload.sizes for workload in space.workloads),
        limits=space.limits,
        device=space.identity.name,
        noise=noise,
        payback=payback,
        tell=tell,
    )


def _default(workload: RecordedWorkload) -> Configuration:
    """The recorded default, or the first candidate where the default was not recorded."""
    configurations = {candidate.configuration for candidate in workload.candidates}
    return workload.default if workload.default in configurations else workload.candidates[0].configuration
