"""The loop of a search: policy, measurer and store, trial by trial."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.database.runs import TrialStore
from tuner.devices.base import Device
from tuner.measurement.base import Anchor, Contest, Measurer, PlannedTrial, TrialPool
from tuner.measurement.paired import LEAST_REPEATS, LEAST_TURNS, MOST_REPEATS, PairedRepeats, window_scatter
from tuner.model.objective import Objective
from tuner.model.plan import Plan
from tuner.model.trial import (
    ASSUMED,
    Measurement,
    Status,
    Trial,
    WindowScatter,
    WorkloadResult,
    of_window,
    stated,
)
from tuner.power.base import SpentEnergy
from tuner.search.candidates import PreparedWorkload, as_declared
from tuner.search.compilation import Compilation
from tuner.search.option_checks import SearchLimits
from tuner.space.search_view import Policy, Search
from tuner.system.marks import mark


@dataclass(frozen=True)
class TrialEvent:
    """Told to the observer after every trial.

    Attributes:
        trial: what was run.
        measurement: what it gave.
        cost: in the unit of what is searched for just now; infinity for a failed trial, and where it was not
            measured.
        best_cost: lowest cost so far, infinity while there is none.
        number: trials measured so far, this one included.
        expected: how many there will be at most (budget or size of the space); None where a descent decides.
        joules: spent by the run so far.
        confirming: True while contenders for the answer are measured again.
        names: of the workloads, in the order of the trial's configurations.
        place: number of the trial in its run; of a repeat, that of the trial that is measured again.
        repeat: of a contender's repeats, from 1; 0 for what the search measures.
        gpus: GPUs that measure trials just now.
        objective: name of what is searched for just now: under a slowdown limit, time comes first.
        label: what the numbers are: ``modelled``, ``recorded``, both, or empty where they were measured now.
    """

    trial: Trial
    measurement: Measurement
    cost: float
    best_cost: float
    number: int
    expected: int | None
    joules: float
    confirming: bool = False
    names: tuple[str, ...] = ()
    place: int = 0
    repeat: int = 0
    objective: str = ""
    label: str = ""
    gpus: int = 1


Observer = Callable[[TrialEvent], None]
"""Hears of every trial."""


_DECIDED = 2  # repeats that tell who cannot be the lowest
_WHOLE = 1.5  # windows: what one takes with its warm-up and the host's part
_ROOM = 3.0  # of a time limit its end takes a third at most, or is left out
_SEVERAL = 2  # trials of a list from which on a pool pays


class Driver:
    """A search in progress: what was measured, and who must hear of it.

    A trial asked for again is answered from memory; a new one is compiled, measured, stored and then told.
    One that compiled resources rule out is answered as ``pruned``: it costs nothing, and is not stored.

    Args:
        measures_end: default and answer are measured once more at the end; a time limit leaves room for it.
    """

    def __init__(
        self,
        *,
        prepared: Sequence[PreparedWorkload],
        compilation: Compilation,
        default: Trial,
        device: Device,
        measurer: Measurer,
        store: TrialStore,
        run_id: int,
        limits: SearchLimits,
        observer: Observer,
        pool: TrialPool | None = None,
        measures_end: bool = False,
    ) -> None:
        self._prepared = prepared
        self._compilation = compilation
        self._default = default
        self._names = tuple(str(item.workload) for item in prepared)
        self._device = device
        self._measurer = measurer
        self._store = store
        self._run_id = run_id
        self._limits = limits
        self._observer = observer
        self._pool = pool
        self._measures_end = measures_end
        self._started_s = device.now_s()
        self._windows_before_s = measurer.windows_s  # of runs before this one
        self._memory: dict[Trial, Measurement] = {}
        self._asked: dict[Trial, Measurement] = {}
        self._ruled_out: set[Trial] = set()
        self._recalled: set[Trial] = set()
        self._best: dict[Objective, float] = {}
        self._leaders: dict[Objective, tuple[Trial, Measurement] | None] = {}
        self._measurements: list[Measurement] = []  # every window of this process
        self.joules = 0.0  # spent on trials and repeats, those of a killed run included
        self._recalled_j = 0.0
        self.trials: list[tuple[Trial, Measurement]] = []
        self.reference_s: float | None = None  # makespan that --max-slowdown compares with

    def recall(self, trials: Iterable[tuple[Trial, Measurement]]) -> None:
        """Take over what a killed run measured, as if this one had; its configurations are compiled again."""
        declared = as_declared(
            self._prepared, ((trial, of_window(measurement)) for trial, measurement in trials)
        )
        self._compilation.ahead([trial for trial, _ in declared])
        for trial, measurement in declared:
            self._compilation.look_at(trial)
            self._remember(trial, measurement)
            self._recalled.add(trial)
            self.joules += measurement.energy_total_j
        self._recalled_j = self.joules
        if self.trials:
            self._measurer.recall(self.trials, [item.workload for item in self._prepared])
            self._device.resume_at(self.trials[-1][1].ended_s)
            self._started_s = self._device.now_s()

    def measure(
        self, trial: Trial, objective: Objective, expected: int | None, *, whole: bool = False
    ) -> Measurement:
        """The measurement of a trial: from memory, or made now and stored at once.

        Args:
            trial: what is measured.
            objective: whose lowest cost is looked for.
            expected: trials at most.
            whole: measure it to the end, also where it cannot be the best.
        """
        if trial not in self._memory:
            if self.trials:  # one is measured whatever it takes
                self._limits.check(len(self.trials), out_of_time=self.out_of_time)
            refused = self._refused(trial)
            if refused is not None:
                self._ruled_out.add(trial)
                return refused
            mark(f"trial {len(self.trials) + 1}")
            measurement = self._measure(trial, None if whole else self._contest(objective))
            self._keep(trial, measurement, objective, expected)
        self._asked[trial] = self._memory[trial]
        return self._memory[trial]

    def confirm(
        self,
        trials: Sequence[Trial],
        kept: Sequence[Trial],
        objective: Objective,
        precision: float,
        *,
        named: bool = False,
    ) -> PairedRepeats:
        """Measure trials again in paired repeats, so that a drift meets all of them.

        What the search measured is left out: the best of many noisy values is too good to be true. After two
        repeats only those go on that may yet be the lowest, up to nine, until that is known to the wanted
        precision; those that are kept get three. Every other repeat goes in reverse order: a steady drift
        then cancels, and no trial always follows the same one.
        Once the time limit is reached there are none beyond those that are whole.

        Trials that were named before anything was measured have been through one turn already, as no chance
        has chosen them: that turn is the first repeat, unless a killed run made a part of it, and two are
        enough where they decide.

        Args:
            trials: the contenders.
            kept: those that the answer is held against, which need not be among them.
            objective: whose cost is compared.
            precision: wanted half-width of the 95 % interval of a cost, relative to the lowest one.
            named: the trials were named before anything was measured.

        Returns:
            The paired repeats.
        """
        order = list(dict.fromkeys((*kept, *trials)))
        paired = PairedRepeats()
        least = LEAST_TURNS if named else LEAST_REPEATS
        if named and self._recalled.isdisjoint(order):
            paired = PairedRepeats(({trial: self._memory[trial] for trial in order},))
            order.reverse()
        places = {trial: number for number, (trial, _) in enumerate(self.trials, start=1)}
        mark("contenders again")
        for count in range(1 + len(paired.repeats), MOST_REPEATS + 1):
            repeat = {}
            for trial in order:
                if self.out_of_time:
                    return paired
                repeat[trial] = self._measure(trial)
                self._tell(trial, repeat[trial], objective, None, place=places[trial], repeat=count)
            paired = PairedRepeats((*paired.repeats, repeat))
            if count >= least:
                going_on = paired.undecided(objective, precision)
                order = [trial for trial in order if trial in going_on]
            elif count == _DECIDED:
                going_on = [*paired.rivals(objective), *paired.tied(objective, precision), *kept]
                order = [trial for trial in order if trial in going_on]
            if not order:
                break
            order.reverse()
        return paired

    def finish(
        self, paired: PairedRepeats, answer: Trial | None
    ) -> tuple[PairedRepeats, dict[Trial, Measurement]]:
        """Measure default and answer once more, then idle power at the contenders' clocks, and store it all.

        The GPU is warmest now: joules are those of the end of the run. Where a time limit has no room for
        these windows, they are those of the repeats.

        Args:
            paired: the repeats of the contenders; none where the search was ended before.
            answer: the trial that is to be the answer; None where all failed.

        Returns:
            The paired repeats with the end, and each contender's measurement, stored beside what the search
            measured.
        """
        joined = paired.joined()
        known = joined or self._memory
        wanted = [] if answer is None or not self._measures_end else [self._default, answer]
        again = [
            trial for trial in dict.fromkeys(wanted) if trial in known and known[trial].energy is not None
        ]
        if again and not self._is_over(0.0):
            end = {trial: self._measure(trial) for trial in again}
            if all(one.ok and one.energy is not None for one in end.values()):
                paired = replace(paired, end=end)
        for clock_mhz in dict.fromkeys(trial.clock_mhz for trial in joined):
            if not self._is_over(0.0):
                self.joules += self._measurer.measure_idle(clock_mhz)
        confirmed = {
            trial: self._measurer.with_idle(measurement, trial.clock_mhz)
            for trial, measurement in paired.at_end().items()
        }
        self._store.confirm(self._run_id, self._settled(paired, confirmed))
        return paired, confirmed

    def _settled(
        self, paired: PairedRepeats, confirmed: Mapping[Trial, Measurement]
    ) -> dict[int, Measurement]:
        """Return the measurements to store at the end, by number: contenders' repeats, and changed ones.

        Trials were stored with the scatter and the drift that are assumed; the run may have shown others.
        """
        scatter = self.scatter(paired)
        return {
            number: stated(confirmed.get(trial, measurement), scatter)
            for number, (trial, measurement) in enumerate(self.trials, start=1)
            if trial in confirmed or (scatter != ASSUMED and measurement.energy is not None)
        }

    def scatter(self, paired: PairedRepeats) -> WindowScatter:
        """Return the scatter and drift of joules: from these repeats, or as assumed.

        What a killed run measured tells nothing: the GPU was idle in between, and warms anew.
        """
        if not (paired.repeats or paired.end):
            return self.assumed
        here = {trial: measured for trial, measured in self.trials if trial not in self._recalled}
        return window_scatter(here, paired.repeats, paired.end)

    def search(self, policy: Policy, search: Search, objective: Objective, expected: int | None) -> None:
        """Drive a policy's generator to its end."""
        generator = policy(search)
        try:
            batch = next(generator)
            while True:
                self._compilation.ahead([trial for trial in batch if trial not in self._memory])
                self._spread(batch, objective, expected)
                measured = [self.measure(trial, objective, expected) for trial in batch]
                batch = generator.send(measured)
        except StopIteration:
            return
        finally:
            generator.close()

    def measure_beside(self, trial: Trial, place: int | None) -> Measurement:
        """Measure a trial once more, or one workload of it alone; nothing is stored or told, its cost counts.

        Args:
            trial: all that is run together.
            place: of the workload; None for the trial.
        """
        plans = self._plans(trial)
        if place is not None:
            trial, plans = replace(trial, configurations=(trial.configurations[place],)), [plans[place]]
        return self._counted(self._measurer.measure(trial, plans))

    def check_time(self) -> None:
        """End the search where it is out of time.

        Raises:
            LimitReachedError: it is.
        """
        if self.out_of_time:
            raise self._limits.time_is_over()

    @property
    def out_of_time(self) -> bool:
        """True once the time limit of the run is reached, but for the time that its end takes."""
        return self._is_over(self._end_s)

    def _is_over(self, early_s: float) -> bool:
        time_limit_s = self._limits.time_limit_s
        if time_limit_s is None:
            return False
        passed_s = self._device.now_s() - self._started_s
        return passed_s >= time_limit_s - early_s or time.monotonic() >= self._limits.ends_s

    @property
    def _end_s(self) -> float:
        """Time in s of default and answer once more; 0 if they are not measured, or would take too much."""
        default = self._memory.get(self._default)
        if not self._measures_end or default is None or default.energy is None:
            return 0.0
        end_s = 2 * _WHOLE * default.window_s
        return end_s if end_s * _ROOM <= (self._limits.time_limit_s or 0.0) else 0.0

    @property
    def assumed(self) -> WindowScatter:
        """Of joules, before repeats show it; a recording is of a GPU that had been at work for long."""
        return replace(ASSUMED, drift=0.0) if self._device.identity.recorded else ASSUMED

    @property
    def asked(self) -> dict[Trial, Measurement]:
        """Trials requested so far, in order: the same in a resumed run as in one that never stopped."""
        return dict(self._asked)

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices of the measuring, for the user."""
        return self._measurer.notices

    @property
    def windows_s(self) -> float:
        """All measuring windows of this run in this process."""
        return self._measurer.windows_s - self._windows_before_s

    def spent(self) -> SpentEnergy | None:
        """All joules of this process, and of a killed run those of its trials; None where nobody tells."""
        spent = self._measurer.spent()
        return None if spent is None else replace(spent, joules=spent.joules + self._recalled_j)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Every measurement of this process."""
        return tuple(self._measurements)

    def reload(self) -> None:
        """Take the trials from the store: an interrupt may come between storing and remembering one."""
        stored = self._store.trials(self._run_id, self._names)
        self.trials = as_declared(
            self._prepared, ((trial, of_window(measurement)) for trial, measurement in stored)
        )

    def fastest_s(self) -> float:
        """Shortest makespan of a valid trial asked for so far; infinity while there is none."""
        return min(map(Objective("time").cost, self._asked.values()), default=math.inf)

    def _refused(self, trial: Trial) -> Measurement | None:
        """The answer to a trial that compiled resources rule out; the default trial is measured anyway."""
        verdicts = self._compilation.look_at(trial)
        if trial == self._default or not any(verdict.dropped for verdict in verdicts):
            return None
        return Measurement(
            tuple(
                WorkloadResult(Status.PRUNED if verdict.dropped else Status.OK, detail=verdict.dropped)
                for verdict in verdicts
            )
        )

    def _contest(self, objective: Objective) -> Contest:
        """Return the contest of the next trial: objective and best trial so far."""
        return Contest(objective, None if objective.is_front else self._leader(objective), len(self.trials))

    def _leader(self, objective: Objective) -> tuple[Trial, Measurement] | None:
        """The trial of lowest cost, as far as that was measured."""
        if objective not in self._leaders:
            self._leaders[objective] = None
            for trial, measurement in self.trials:
                self._follow(objective, trial, measurement)
        return self._leaders[objective]

    def _follow(self, objective: Objective, trial: Trial, measurement: Measurement) -> None:
        leader = self._leaders[objective]
        lowest = math.inf if leader is None else objective.known(leader[1])
        if objective.known(measurement) < lowest:
            self._leaders[objective] = trial, measurement

    def _measure(self, trial: Trial, contest: Contest | None = None) -> Measurement:
        return self._counted(self._measurer.measure(trial, self._plans(trial), contest))

    def _counted(self, measured: Measurement) -> Measurement:
        """A measurement that has just ended, dated; its cost counts."""
        measurement = replace(measured, ended_s=self._device.now_s())
        self._measurements.append(measurement)
        self.joules += measurement.energy_total_j
        return measurement

    def prepare_pool(self) -> None:
        """Have the GPUs of a pool measure the default trial, while home does."""
        if self._pool is not None and self._default not in self._memory:
            self._pool.prepare(PlannedTrial(self._default, tuple(self._plans(self._default))))

    def _spread(self, batch: Sequence[Trial], objective: Objective, expected: int | None) -> None:
        """Measure the new trials of a list on all GPUs of a pool; what a limit leaves is not measured."""
        new = [trial for trial in dict.fromkeys(batch) if trial not in self._memory]
        default = self._memory.get(self._default)
        if self._pool is None or len(new) < _SEVERAL or default is None or not default.ok:
            return  # home measures one alone, and all where nothing tells how GPUs compare
        anchor = Anchor(self._default, tuple(self._plans(self._default)), default)
        for trial, measured in self._pool.measure_all(self._planned(new, objective), anchor):
            if trial not in self._memory:
                self._keep(trial, self._counted(measured), objective, expected)

    def _planned(self, trials: Sequence[Trial], objective: Objective) -> Iterator[PlannedTrial]:
        """The trials that may be measured, up to the limits; each is held against what is known by then."""
        budget = self._limits.budget
        left = len(trials) if budget is None else budget - len(self.trials)
        for trial in trials:
            if left <= 0 or self.out_of_time:
                return
            if self._refused(trial) is not None:
                self._ruled_out.add(trial)
                continue
            left -= 1
            yield PlannedTrial(trial, tuple(self._plans(trial)), self._contest(objective))

    def _keep(
        self, trial: Trial, measurement: Measurement, objective: Objective, expected: int | None
    ) -> None:
        """Store a trial at once, remember it, and tell of it."""
        if trial != self._default:
            measurement = replace(measurement, power=())  # of contenders their repeats keep it
        self._store.add(
            self._run_id, len(self.trials) + 1, trial, stated(measurement, self.assumed), self._names
        )
        self._remember(trial, measurement)
        self._tell(trial, measurement, objective, expected)

    def _remember(self, trial: Trial, measurement: Measurement) -> None:
        self._memory[trial] = measurement
        self.trials.append((trial, measurement))
        for objective in self._leaders:
            self._follow(objective, trial, measurement)

    def _tell(
        self,
        trial: Trial,
        measurement: Measurement,
        objective: Objective,
        expected: int | None,
        *,
        place: int = 0,
        repeat: int = 0,
    ) -> None:
        cost = objective.known(measurement)
        if objective not in self._best:
            self._best[objective] = min(objective.known(known) for _, known in self.trials)
        self._best[objective] = min(cost, self._best[objective])
        if expected is not None:
            expected = max(expected - len(self._ruled_out), len(self.trials))
        bounds = [bound for bound in (expected, self._limits.budget) if bound is not None]
        self._observer(
            TrialEvent(
                trial,
                stated(measurement, self.assumed),
                cost,
                self._best[objective],
                len(self.trials),
                min(bounds, default=None),
                self.joules,
                confirming=repeat > 0,
                names=self._names,
                place=place or len(self.trials),
                repeat=repeat,
                objective=objective.name,
                label=self._device.identity.label,
                gpus=1 if self._pool is None or repeat else self._pool.parallel,
            )
        )

    def _plans(self, trial: Trial) -> list[Plan]:
        return [
            item.plans[configuration]
            for item, configuration in zip(self._prepared, trial.configurations, strict=True)
        ]
