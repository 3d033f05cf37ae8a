"""What one run is to do, every choice made, and how a policy is told."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.model.device import DeviceIdentity, DeviceLimits
from tuner.model.objective import Objective
from tuner.model.options import SearchOptions
from tuner.model.plan import Configuration
from tuner.model.trial import Measurement, Trial
from tuner.search.candidates import PreparedWorkload
from tuner.search.compilation import Compilation
from tuner.search.limits import SearchLimits
from tuner.space.search_view import Criterion, Payback, Policy, PriorRun, Search


@dataclass(frozen=True)
class SearchContext:
    """What a search is told beside its task.

    Attributes:
        identity: the device.
        limits: of the device; None where a recording lacks them.
        prior_runs: what earlier runs measured, by the name of an objective.
        tell: takes a sentence for the user.
    """

    identity: DeviceIdentity
    limits: DeviceLimits | None
    prior_runs: Callable[[str], tuple[PriorRun, ...]]
    tell: Callable[[str], None]


@dataclass(frozen=True)
class Task:
    """What one run is to do, every choice made.

    Attributes:
        prepared: the workloads with their candidates, as declared.
        compilation: compiles the candidates that are looked at; ended by the run.
        objective: name of the objective.
        max_slowdown: allowed slowdown against the fastest trial, e.g. 0.05; None for no limit.
        policy: name of the policy.
        clocks_mhz: clocks to choose from, highest first; empty for "as found".
        steers_clocks: a model of time and power says which of them are measured.
        power_limits_w: power limits to choose from, highest first; empty for "as found".
        seed: of the policy.
        limits: when to stop early.
        precision: wanted half-width of the 95 % interval of a contender's cost, relative to it.
        options: of the policy, by name; those left out are the policy's own.
        runs_per_day: rounds the answer will be used for every day; None where nobody said.
        pay_back_days: days within which the tuning is to pay for itself.
        strategy: a search strategy that no policy's name stands for, as while a model is trained.
        parallel: trials that can be measured at once.
        kept: trials of a strategy that were named before anything was measured: they are measured again at
            the end whatever they cost, and neither clocks nor power limits are searched beside them.
    """

    prepared: Sequence[PreparedWorkload]
    compilation: Compilation
    objective: str
    max_slowdown: float | None
    policy: str
    clocks_mhz: tuple[int, ...]
    seed: int
    limits: SearchLimits
    precision: float = SearchOptions.energy_precision
    options: Mapping[str, int] = field(default_factory=dict)
    runs_per_day: float | None = None
    pay_back_days: float = SearchOptions.pay_back_days
    steers_clocks: bool = False
    power_limits_w: tuple[int, ...] = ()
    strategy: Policy | None = None
    parallel: int = 1
    kept: tuple[Trial, ...] = ()

    def search(
        self, objective: Objective, prior: Mapping[Trial, Measurement], context: SearchContext
    ) -> Search:
        """The task as a policy sees it under an objective."""
        return Search(
            workloads=tuple(str(item.workload) for item in self.prepared),
            candidates=tuple(item.candidates for item in self.prepared),
            defaults=tuple(default_configuration(item) for item in self.prepared),
            clocks_mhz=self.clocks_mhz,
            power_limits_w=self.power_limits_w,
            cost=objective.cost,
            seed=self.seed,
            prior=prior,
            tunables=tuple(item.space.tunables for item in self.prepared),
            roles=tuple(item.kernel.rule_roles for item in self.prepared),
            sizes=tuple(dict(item.workload.sizes) for item in self.prepared),
            limits=context.limits,
            device=context.identity.name,
            label=context.identity.label,
            noise=objective.relative_uncertainty,
            prior_runs=context.prior_runs(objective.name),
            payback=self._payback(objective),
            tell=context.tell,
            resolve=self.compilation.resolve,
            expect=self.compilation.expect,
            parallel=self.parallel,
            criteria=_criteria(context) if objective.is_front else (),
            large_spaces=tuple(
                None if item.source is None else item.source.as_told() for item in self.prepared
            ),
        )

    def _payback(self, objective: Objective) -> Payback | None:
        """For the answer's own search: the one before it, under --max-slowdown, serves as its reference."""
        if self.runs_per_day is None or objective.name != self.objective:
            return None
        return Payback(
            self.runs_per_day * self.pay_back_days, _spent_j if objective.needs_energy else _spent_s
        )


def _criteria(context: SearchContext) -> tuple[Criterion, ...]:
    """What a front is of: time and joules."""
    both = (Objective("time"), Objective("energy"))
    return tuple(Criterion(one.known, one.relative_uncertainty, context.prior_runs(one.name)) for one in both)


def _spent_j(measurement: Measurement) -> float:
    """Joules of all that a trial made the GPU do."""
    return measurement.energy_total_j


def _spent_s(measurement: Measurement) -> float:
    """Seconds of a trial: its window, and the check of its answers."""
    return measurement.window_s + measurement.check_s


def default_configuration(item: PreparedWorkload) -> Configuration:
    """The kernel file's default, or the first candidate where the default cannot be launched here."""
    return item.default if item.default in item.plans else item.candidates[0].configuration
