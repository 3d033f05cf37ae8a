"""One search, from its plan to a stored answer: the loop of trials, and what comes before and after it."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from tuner.database.runs import Store
from tuner.measurement.base import ComparisonTarget, PlannedTrial, ReferenceTrial
from tuner.measurement.paired import LEAST_TURNS, CoRunComparison, PairedRepeats, window_scatter
from tuner.model.errors import DeviceError, InputError, PoolLostError, RunInterrupted, StoreError
from tuner.model.objective import Objective
from tuner.model.options import BACK_TO_BACK, SINGLE
from tuner.model.plan import Plan
from tuner.model.records import RunStatus, fingerprint
from tuner.model.run_document import PriorityChanges, RunDocument, placing
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
from tuner.policies.analytical import first_compiled
from tuner.policies.auto import first_expected
from tuner.power.base import SpentEnergy
from tuner.search import verification
from tuner.search.answer import (
    LONGEST_TIMED_S,
    PAIRS,
    TIMES_SCATTER,
    UNSURE,
    Confirmation,
    ContenderRepeats,
    Outcome,
    against_random_inputs,
    in_turn_with_default,
    other_winner,
    outcome_of,
    told_of_other,
)
from tuner.search.candidates import PreparedWorkload, as_declared, rank_in
from tuner.search.compilation import Compilation
from tuner.search.document import document
from tuner.search.option_checks import LimitReachedError, SearchLimits
from tuner.search.plan import SearchPlan, default_configuration, knowledge
from tuner.search.setup import MeasurementSetup
from tuner.search.together import (
    MOST_PLACED,
    SoloBests,
    compare_in_turn,
    compare_places,
    find_solo_bests,
    note_solo_bests,
    stored_trial,
)
from tuner.search.verification import NOTHING_TO_VERIFY, verdict, verifiable_answer
from tuner.space.search_view import Criterion, Policy, Search
from tuner.system.marks import mark

_ANALYTICAL_FIRST = ("analytical", "auto", "bayesian")  # policies that begin with the analytical answer
_WHOLE = 1.5  # windows: what one takes with its warm-up and the host's part
_ROOM = 3.0  # of a time limit its end takes a third at most, or is left out
_SEVERAL = 2  # trials of a list from which on a pool pays


@dataclass(frozen=True)
class TrialEvent:
    """Told to the listener after every trial.

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


class SearchListener(Protocol):
    """Is notified of the progress of a search."""

    def compiled(self, done: int, total: int) -> None:
        """So many of the configurations are compiled that were asked for so far; more may be."""

    def measured(self, event: TrialEvent) -> None:
        """A trial has ended."""

    def told(self, sentence: str) -> None:
        """Take a message of the policy on itself."""


class Session:
    """One search, from its plan to its outcome.

    Args:
        plan: what is searched.
        setup: open; everything is measured on it.
        store: every trial goes there as it ends, and the answer.
        listener: is notified of every step.
    """

    def __init__(
        self, plan: SearchPlan, setup: MeasurementSetup, store: Store, listener: SearchListener
    ) -> None:
        verify = plan.request.verify and plan.strategy is None
        self._verified = verifiable_answer(store, plan.conditions) if verify else None
        if self._verified is not None:
            answer = self._verified
            plan = plan.following(verification.POLICY, answer.settings, answer.trials, (answer.answer,))
        self._plan, self._setup, self._store, self._listener = plan, setup, store, listener
        self._device, self._measurer, self._pool = setup.device, setup.measurer, setup.pool
        self._names = plan.conditions.names
        self._spent_before = self._measurer.spent() if self._measurer.windows_s else None  # by earlier runs
        self._windows_before_s = self._measurer.windows_s
        self._messages: list[str] = []  # for the user
        self._notices: dict[str, None] = {}  # those of them that are notices of the outcome
        self._run = 0
        self._trials: dict[Trial, Measurement] = {}  # measured, in their order
        self._requested: dict[Trial, Measurement] = {}  # in an order that resuming does not change
        self._ruled_out: set[Trial] = set()
        self._recalled: set[Trial] = set()  # measured by a killed run
        self._recalled_j = 0.0
        self._measurements: list[Measurement] = []  # every window of this process
        self._joules = 0.0  # spent on trials and repeats, those of a killed run included
        self._objective = Objective("time" if self._is_limited else plan.request.objective)  # of this phase
        self._expected: int | None = None  # trials of this phase at most
        self._leader: tuple[Trial, Measurement] | None = None  # the trial of lowest cost in this phase
        self._lowest_cost = self._best_cost = math.inf  # of trials; of what was told, repeats included
        self._reference_s: float | None = None  # makespan that --max-slowdown compares with
        # The stored answer, or that of another GPU: it stays the answer while it ties.
        self._kept = None if self._verified is None else self._verified.answer
        self._confirmation = Confirmation(PairedRepeats(), {}, self._assumed)
        if verify and self._verified is None:
            self._tell(NOTHING_TO_VERIFY)

    def run(self, *, resume: bool = False, insisted: bool = False, confirm: bool = True) -> Outcome:
        """Search, store and choose.

        The default trial is measured first, then every workload at its solo best, then the policy's trials.
        Under ``max_slowdown`` a time search comes before and fixes the reference; its measurements serve the
        second search too. At last the contenders are measured again, turn by turn.

        Args:
            resume: continue the newest unfinished run under the same conditions.
            insisted: whether a user asked to resume: what has finished is not begun again, and a new run is
                told.
            confirm: whether contenders are measured again, and the answer compared.

        Returns:
            The outcome; also after Ctrl-C, with status ``interrupted``.

        Raises:
            EmptySpaceError: nothing is left of a workload's space.
            InputError: the run to resume has finished, or another process is measuring it.
        """
        prepare_s = self._compile_defaults()
        confirm = confirm and not self._device.identity.recorded
        with _ended_in_any_case(self._store) as owned:
            begun = time.monotonic()
            resumed = self._open_run(owned, resume=resume, insisted=insisted)
            self._started_s = self._device.now_s()
            self._measures_end = confirm and self._final_objective.needs_energy and not self._plan.programs
            status, notices = RunStatus.FAILED, list[str]()
            solo, co_run, priorities = SoloBests(), None, None
            try:
                self._recall(resumed)
                solo = find_solo_bests(self._plan, self._spaces, self._store)
                if self._verified is None:
                    self._kept = stored_trial(self._plan, self._spaces, self._store)
                limit = self._search(solo)
                self._compilation.end_ahead()
                if confirm:
                    limit = self._confirm(solo, limit)
                    priorities = self._compare_places(solo)
                    co_run = self._compare_answer()
                    self._compare_timings()
                    self._compare_inputs()
                notices += [] if limit is None else [f"stopped: {limit}"]
                status = RunStatus.FINISHED if limit is None else RunStatus.LIMITED
            except (KeyboardInterrupt, RunInterrupted) as order:
                status = RunStatus.INTERRUPTED
                # An interrupt may come between storing a trial and remembering it.
                self._trials = self._as_declared(self._store.trials(self._run, self._names))
                notices += [str(order)] if isinstance(order, PoolLostError) else []
                notices.append("interrupted: this is what was known; --resume goes on from here")
            finally:
                self._compilation.close()
                outcome = self._outcome(status)
                outcome.notices[:0] = [*self._notices, *notices, *self._measurer.notices]
                note_solo_bests(outcome, solo)
                outcome.resumed, outcome.co_run, outcome.run = len(resumed), co_run, self._run
                outcome.priorities = priorities
                outcome.prepare_s, outcome.wall_s = prepare_s, time.monotonic() - begun
                outcome.spent = self._spent()
                answer = None if outcome.answer is None else self._document(outcome, with_trials=False)
                self._store.end(self._run, status, answer)
                owned.clear()
        outcome.notices[:0] = [*self._setup.notices, *self._plan.notices]
        outcome.document = self._document(outcome, with_trials=True)
        if judgement := outcome.document.get("verification"):
            self._tell(judgement["told"])
        outcome.told = self._messages
        return outcome

    # --- The search: the policy's trials, one after another ------------------------------------------

    def _search(self, solo: SoloBests) -> LimitReachedError | None:
        """Search once, or twice under a slowdown limit; returns the limit that ended it early."""
        plan = self._plan
        search = self._search_view({})
        self._begin_phase(self._objective, search.listed if plan.covers_space else None)
        if plan.conditions.policy in _ANALYTICAL_FIRST and plan.strategy is None:
            expected = first_expected if plan.conditions.policy == "auto" else first_compiled
            search.expect(expected(search))
        try:
            if self._pool is not None and self._default not in self._trials:
                # All GPUs measure the default, while this one does.
                self._pool.prepare(PlannedTrial(self._default, tuple(self._plans(self._default))))
            default = self._measure(self._default)
            if plan.programs:
                self._reference_s = default.makespan_s
                # Within the limit by the scatter of times, so that one is left where the nearest is too slow.
                within_s = (default.makespan_s or math.inf) / (1.0 + TIMES_SCATTER)
                self._begin_phase(self._limited(within_s), self._expected)
                search = self._search_view({})
            with self._compilation.within(self._limits):
                whole = plan.covers_space and self._limits.budget is None
                if self._kept is not None and not whole and self._verified is None:
                    self._measure(self._kept)  # a policy need not come by it
                if solo.trial is not None:
                    valid = self._measure(solo.trial, whole=True).ok  # the answer is held against it
                    if valid and solo.placed:
                        self._measure_all(self._fast(solo.placed))
                        search = self._search_view(dict(self._requested))  # it starts from the best of these
                self._follow(plan.policy, search)
                if self._is_limited:
                    self._reference_s = self._fastest_s()
                    self._begin_phase(self._final_objective, self._expected)
                    self._follow(plan.policy, self._search_view(dict(self._requested)))
        except LimitReachedError as limit:
            return limit
        return None

    def _follow(self, policy: Policy, search: Search) -> None:
        """Measure the trials of a policy, list by list, until it has no more."""
        generator = policy(search)
        try:
            batch = next(generator)
            while True:
                batch = generator.send(self._measure_all(batch))
        except StopIteration:
            return
        finally:
            generator.close()

    def _measure_all(self, batch: Sequence[Trial]) -> list[Measurement]:
        """Measure a list of trials, on all GPUs of a pool."""
        self._compilation.ahead(self._affordable(batch))
        self._spread(batch)
        return [self._measure(trial) for trial in batch]

    def _fast(self, placed: Sequence[Trial]) -> list[Trial]:
        """Solo bests at other places: all of few; of many those whose single rounds are the fastest.

        They are no more than half of the budget, the trial at equal places included.
        """
        budget = self._limits.budget
        most = MOST_PLACED if budget is None else min(MOST_PLACED, budget // 2)
        if len(placed) < most:
            return list(placed)
        known = [trial for trial in placed if trial in self._trials]  # chosen by a killed run
        times_s: dict[Trial, float] = {}
        for trial in placed if len(known) < most - 1 else ():
            if self.out_of_time:
                break
            if trial not in self._trials:
                single = self._counted(self._measurer.measure_otherwise(trial, self._plans(trial)))
                times_s[trial] = Objective("time").cost(single)
        chosen = [*known, *sorted(times_s, key=times_s.__getitem__)][: max(0, most - 1)]
        self._notice(
            f"{placing(self._plan.conditions.settings)}: {len(chosen)} of {len(placed)} combinations of the"
            " solo bests beside equal ones were measured, those whose single rounds were the fastest"
        )
        return chosen

    def _affordable(self, trials: Sequence[Trial]) -> list[Trial]:
        """The trials that are not measured, as many as the budget allows: no others are compiled ahead."""
        budget = self._limits.budget
        left = None if budget is None else max(0, budget - len(self._trials))
        return [trial for trial in trials if trial not in self._trials][:left]

    def _measure(self, trial: Trial, *, whole: bool = False) -> Measurement:
        """Budget, compile, check and measure, store, tell: one trial from request to numbers.

        Args:
            trial: what is measured; one that was measured before is answered from memory.
            whole: measure it to the end, also where it cannot be the best.

        Raises:
            LimitReachedError: the budget or the time is used up.
        """
        if trial not in self._trials:
            if self._trials:  # a run has one trial at least, however small its limits are
                self._limits.check(len(self._trials), out_of_time=self.out_of_time)
            pruned = self._pruned(trial)  # waits for the compiler
            if pruned is not None:
                return pruned  # it costs nothing, and is not stored
            mark(f"trial {len(self._trials) + 1}")
            target = None if whole else self._target()
            # The measurer checks the output of each configuration once, and locks the clock.
            self._record(trial, self._measurer.measure(trial, self._plans(trial), target))
        self._requested[trial] = self._trials[trial]
        return self._trials[trial]

    def _record(self, trial: Trial, measurement: Measurement) -> None:
        """Store a trial, remember it, and tell of it."""
        measurement = self._counted(measurement)
        if trial != self._default:
            measurement = replace(measurement, power=())  # of contenders their repeats keep it
        number = len(self._trials) + 1
        # Stored first: whoever is told of a trial finds it in the database, also after a crash.
        self._store.add(self._run, number, trial, stated(measurement, self._assumed), self._names)
        self._remember(trial, measurement)
        self._announce(trial, measurement, number)

    def _pruned(self, trial: Trial) -> Measurement | None:
        """The answer to a trial that compiled resources rule out; the default trial is measured anyway."""
        verdicts = self._compilation.look_at(trial)
        if trial == self._default or not any(verdict.dropped for verdict in verdicts):
            return None
        self._ruled_out.add(trial)
        return Measurement(
            tuple(
                WorkloadResult(Status.PRUNED if verdict.dropped else Status.OK, detail=verdict.dropped)
                for verdict in verdicts
            )
        )

    def _target(self) -> ComparisonTarget:
        """Objective and best trial so far, which the next trial is compared with."""
        leader = None if self._objective.is_front else self._leader
        return ComparisonTarget(self._objective, leader, len(self._trials))

    def _plans(self, trial: Trial) -> list[Plan]:
        return [
            item.plans[configuration]
            for item, configuration in zip(self._spaces, trial.configurations, strict=True)
        ]

    def _counted(self, measured: Measurement) -> Measurement:
        """A measurement that has just ended, dated; its cost counts."""
        measurement = replace(measured, ended_s=self._device.now_s())
        self._measurements.append(measurement)
        self._joules += measurement.energy_total_j
        return measurement

    def _remember(self, trial: Trial, measurement: Measurement) -> None:
        self._trials[trial] = measurement
        cost = self._objective.known(measurement)
        if cost < self._lowest_cost:
            self._leader, self._lowest_cost = (trial, measurement), cost

    def _announce(self, trial: Trial, measurement: Measurement, number: int, *, repeat: int = 0) -> None:
        """Notify the listener of a trial of the run, or of a contender's repeat."""
        cost, expected = self._objective.known(measurement), self._expected
        self._best_cost = min(cost, self._best_cost)
        if expected is not None:
            expected = max(expected - len(self._ruled_out), len(self._trials))
        bounds = [bound for bound in (expected, self._limits.budget) if bound is not None]
        self._listener.measured(
            TrialEvent(
                trial,
                stated(measurement, self._assumed),
                cost,
                self._best_cost,
                len(self._trials),
                min(bounds, default=None),
                self._joules,
                confirming=repeat > 0,
                names=self._names,
                place=number,
                repeat=repeat,
                objective=self._objective.name,
                label=self._device.identity.label,
                gpus=1 if self._pool is None or repeat else self._pool.parallel,
            )
        )

    def _spread(self, batch: Sequence[Trial]) -> None:
        """Measure the new trials of a list on all GPUs of a pool; what a limit leaves is not measured."""
        new = [trial for trial in dict.fromkeys(batch) if trial not in self._trials]
        default = self._trials.get(self._default)
        if self._pool is None or len(new) < _SEVERAL or default is None or not default.ok:
            return  # one is measured here, and all where nothing tells how GPUs compare
        reference = ReferenceTrial(self._default, tuple(self._plans(self._default)), default)
        for trial, measured in self._pool.measure_all(self._planned(new), reference):
            if trial not in self._trials:
                self._record(trial, measured)

    def _planned(self, trials: Sequence[Trial]) -> Iterator[PlannedTrial]:
        """The trials that may be measured, up to the limits; each is compared with the best by then."""
        budget = self._limits.budget
        remaining = len(trials) if budget is None else budget - len(self._trials)
        for trial in trials:
            if remaining <= 0 or self.out_of_time:
                return
            if self._pruned(trial) is not None:
                continue
            remaining -= 1
            yield PlannedTrial(trial, tuple(self._plans(trial)), self._target())

    # --- The begin: spaces, defaults, and the run in the database ------------------------------------

    def _compile_defaults(self) -> float:
        """Enumerate the spaces, and compile what the search begins with; returns the seconds that took."""
        begun = time.monotonic()
        mark("compile")
        request = self._plan.request
        self._limits = SearchLimits(request.budget, request.time_limit_s)  # its time begins here
        spaces = self._plan.spaces(self._device)
        self._compilation = Compilation(spaces, self._device, progress=self._listener.compiled)
        self._spaces: Sequence[PreparedWorkload] = self._compilation.begin(self._limits)
        for workload in self._compilation.all_spilling:
            self._notice(
                f"{workload}: every configuration spills registers or uses local memory; they are tried all"
                " the same"
            )
        self._default = self._plan.default_trial(self._spaces)
        return time.monotonic() - begun

    def _open_run(self, owned: list[int], *, resume: bool, insisted: bool) -> list[tuple[Trial, Measurement]]:
        """Begin a run in the database, or take over a killed one; returns what that has measured."""
        conditions = self._plan.conditions
        run_id = self._store.resume(conditions, owned.append) if resume else None
        if run_id is not None:
            self._run = run_id
            return self._store.trials(run_id, self._names)
        if resume and insisted:
            runs = self._store.answered(conditions.names, conditions.objective, conditions.device.uuid)
            own = fingerprint(conditions.record())
            finished = (
                run.id
                for run in runs
                if run.status is RunStatus.FINISHED and fingerprint(run.conditions) == own
            )
            if (ended := next(finished, None)) is not None:
                self._compilation.close()
                raise InputError(
                    f"--resume: there is nothing to resume: run {ended} has finished under these conditions"
                    f" (`tuner show {ended}`); leave --resume out to measure again"
                )
        self._run = self._store.begin(conditions, owned.append)
        if resume and insisted:
            self._notice(
                "--resume: no unfinished run has these workloads, options, driver and sources on this GPU"
                " (`tuner history` lists runs): this is a new one"
            )
        return []

    def _recall(self, trials: Iterable[tuple[Trial, Measurement]]) -> None:
        """Take over what a killed run measured, as if this one had; its configurations are compiled again."""
        recalled = self._as_declared(trials)
        self._compilation.ahead(list(recalled))
        for trial, measurement in recalled.items():
            self._compilation.look_at(trial)
            self._remember(trial, measurement)
            self._recalled.add(trial)
            self._joules += measurement.energy_total_j
        self._recalled_j = self._joules
        if recalled:
            self._measurer.recall(list(recalled.items()), [item.workload for item in self._spaces])
            self._device.resume_at(next(reversed(recalled.values())).ended_s)
            self._started_s = self._device.now_s()

    def _as_declared(self, stored: Iterable[tuple[Trial, Measurement]]) -> dict[Trial, Measurement]:
        """Stored trials as this process measures them."""
        windows = ((trial, of_window(measurement)) for trial, measurement in stored)
        return dict(as_declared(self._spaces, windows))

    # --- What a policy sees, and the phases of a search ----------------------------------------------

    def _search_view(self, prior: Mapping[Trial, Measurement]) -> Search:
        """The search as a policy sees it under the present objective."""
        plan, spaces, objective = self._plan, self._spaces, self._objective
        prior_runs = partial(knowledge, plan, self._store, self._run)
        both = (Objective("time"), Objective("energy")) if objective.is_front else ()
        return Search(
            workloads=self._names,
            candidates=tuple(item.candidates for item in spaces),
            defaults=tuple(default_configuration(item) for item in spaces),
            clocks_mhz=plan.clocks_mhz,
            power_limits_w=plan.power_limits_w,
            cost=objective.cost,
            seed=plan.request.seed,
            prior=prior,
            tunables=tuple(item.space.tunables for item in spaces),
            roles=tuple(item.kernel.rule_roles for item in spaces),
            sizes=tuple(dict(item.workload.sizes) for item in spaces),
            limits=self._device.limits,
            device=self._device.identity.name,
            label=self._device.identity.label,
            noise=objective.relative_uncertainty,
            prior_runs=prior_runs(objective.name),
            payback=plan.payback(objective),
            tell=self._notice,
            resolve=self._compilation.resolve,
            expect=lambda trials: self._compilation.expect(self._affordable(trials)),
            parallel=1 if self._pool is None else self._pool.parallel,
            criteria=tuple(
                Criterion(criterion.known, criterion.relative_uncertainty, prior_runs(criterion.name))
                for criterion in both
            ),
            large_spaces=tuple(None if item.source is None else item.source.as_told() for item in spaces),
        )

    def _begin_phase(self, objective: Objective, expected: int | None = None) -> None:
        """Look for the lowest cost under an objective from here on, in so many trials at most."""
        self._objective, self._expected = objective, expected
        costs = ((objective.known(pair[1]), index) for index, pair in enumerate(self._trials.items()))
        cost, index = min(costs, default=(math.inf, 0))
        self._leader = list(self._trials.items())[index] if cost < math.inf else None
        self._lowest_cost = self._best_cost = cost

    def _notice(self, message: str) -> None:
        """Tell the user once what is a notice of the outcome, too."""
        if message not in self._notices:
            self._notices[message] = None
            self._tell(message)

    def _tell(self, message: str) -> None:
        self._messages.append(message)
        self._listener.told(message)

    # --- The end: contenders measured again, and the answer ------------------------------------------

    def _confirm(self, solo: SoloBests, limit: LimitReachedError | None) -> LimitReachedError | None:
        """Repeat the contenders while there is time; returns the limit that ended search or repeats."""
        objective = self._final_objective
        self._begin_phase(objective)
        paired = PairedRepeats()
        whole_runs = bool(self._plan.programs)  # whose search leaves time for them
        if limit is None or not limit.out_of_time or (whole_runs and not self._is_over(0.0)):
            repeated = self._repeats(solo, objective)
            if repeated is None:
                return limit  # no trial is valid: there is nothing to confirm
            paired = repeated
            if whole_runs and self._default in paired.joined():
                self._reference_s = paired.joined()[self._default].makespan_s
                objective = self._final_objective
            # the least that compare
            if len(paired.repeats) < LEAST_TURNS and self.out_of_time and not whole_runs:
                paired, limit = PairedRepeats(), self._limits.time_is_over()
        if paired.repeats:
            single = Objective("energy") if objective.is_front else objective
            rank = rank_in(self._spaces)
            answer = paired.answer(single, self._plan.request.energy_precision, rank, self._kept)
        else:
            outcome = self._outcome(RunStatus.LIMITED)
            answer = None if outcome.answer is None else outcome.trials[outcome.answer][0]
        self._finish(paired, answer)
        return limit

    def _repeats(self, solo: SoloBests, objective: Objective) -> PairedRepeats | None:
        """Measure contenders again, turn by turn; None where no trial was valid."""
        if self._plan.programs:
            left = 0 if self._limits.budget is None else self._limits.budget - len(self._trials)
            return in_turn_with_default(
                self._default,
                self._trials,
                self._limited,
                self._repeat,
                most=PAIRS + left // 2,
                precision=self._plan.request.energy_precision,
            )
        again = ContenderRepeats(
            self._plan,
            objective,
            self._trials,
            recalled=self._recalled,
            measure=self._repeat,
            out_of_time=lambda: self.out_of_time,
            rank=rank_in(self._spaces),
            kept=self._kept,
            expected=self._expected_costs,
        )
        return again.run(self._default, solo.rival(self._trials, objective))

    def _expected_costs(self, trials: Mapping[Trial, Measurement]) -> dict[Trial, float] | None:
        """Costs without the noise of their windows; None where the lowest reading is sure enough."""
        search = self._search_view({})
        known = {trial: one for trial, one in trials.items() if search.cost(one) < math.inf}
        lowest = min(known.values(), key=search.cost, default=None)
        if lowest is None or search.noise(lowest) <= UNSURE:
            return None
        from tuner.policies.surrogate.learner import expected_costs  # noqa: PLC0415 - SciPy

        return expected_costs(search, known)

    def _repeat(self, trial: Trial, repeat: int) -> Measurement:
        """Measure a contender once more, and tell of it; its repeats are stored joined."""
        measurement = self._measure_again(trial)
        self._announce(trial, measurement, 1 + list(self._trials).index(trial), repeat=repeat)
        return measurement

    def _measure_again(self, trial: Trial, index: int | None = None) -> Measurement:
        """Measure a trial once more, or one workload of it alone; nothing is stored or told, its cost counts.

        Args:
            trial: all that is run together.
            index: of the workload; None for the trial.
        """
        plans = self._plans(trial)
        if index is not None:
            trial = replace(trial, configurations=(trial.configurations[index],))
            plans = [plans[index]]
        return self._counted(self._measurer.measure(trial, plans))

    def _finish(self, paired: PairedRepeats, answer: Trial | None) -> None:
        """Measure default and answer once more, then idle power at the contenders' clocks, and store it all.

        The GPU is warmest now: joules are those of the end of the run. Where a time limit has no room for
        these windows, they are those of the repeats.

        Args:
            paired: the repeats of the contenders; none where the search was ended before.
            answer: the trial that is to be the answer; None where all failed.
        """
        joined = paired.joined()
        known = joined or self._trials
        both = dict.fromkeys((self._default, answer)) if self._measures_end and answer is not None else {}
        again = [trial for trial in both if trial in known and known[trial].energy is not None]
        if again and not self._is_over(0.0):
            end = {trial: self._measure_again(trial) for trial in again}
            if all(last.ok and last.energy is not None for last in end.values()):
                paired = replace(paired, end=end)
        for clock_mhz in dict.fromkeys(trial.clock_mhz for trial in joined):
            if not self._is_over(0.0):
                self._joules += self._measurer.measure_idle(clock_mhz)
        confirmed = {
            trial: self._measurer.with_idle(measurement, trial.clock_mhz)
            for trial, measurement in paired.at_end().items()
        }
        scatter = self._scatter(paired)
        # Trials were stored with the scatter and the drift that are assumed; the run may have shown others.
        changed = {
            number: stated(confirmed.get(trial, measurement), scatter)
            for number, (trial, measurement) in enumerate(self._trials.items(), start=1)
            if trial in confirmed or (scatter != ASSUMED and measurement.energy is not None)
        }
        if changed:
            self._store.confirm(self._run, changed)
        self._confirmation = Confirmation(paired, confirmed, scatter)

    def _compare_answer(self) -> CoRunComparison | None:
        """The answer against its workloads one after another; None of a lone one, and without an answer."""
        outcome = self._outcome(RunStatus.FINISHED)
        if outcome.answer is None or len(self._spaces) == 1:
            return None
        trial = outcome.trials[outcome.answer][0]
        return compare_in_turn(
            trial, lambda index: self._measure_again(trial, index), lambda: not self.out_of_time
        )

    def _compare_places(self, solo: SoloBests) -> PriorityChanges | None:
        """Gains of places and of configurations, each alone; None where no places were tried."""
        outcome, rival = self._outcome(RunStatus.FINISHED), solo.rival(self._trials, self._final_objective)
        tried = any(trial in self._trials for trial in solo.placed)
        if outcome.answer is None or solo.trial is None or rival is None or not tried:
            return None
        answer = outcome.trials[outcome.answer][0]
        return compare_places(answer, solo.trial, rival, self._measure_again, lambda: not self.out_of_time)

    def _compare_timings(self) -> None:
        """Tell where the other timing has another winner, by more than the interval of their ratio.

        Of long rounds, start and cold L2 are nothing, and nothing is measured.
        """
        outcome = self._outcome(RunStatus.FINISHED)
        timed = self._plan.request.objective == "time" and bool(self._confirmation.paired.repeats)
        if outcome.answer is None or not timed or self._plan.programs:
            return
        answer, known = outcome.trials[outcome.answer]
        if (known.makespan_s or 0.0) > LONGEST_TIMED_S:
            return
        try:
            winner = other_winner(
                answer,
                {**self._trials, **self._confirmation.measurements},
                lambda trial: self._counted(self._measurer.measure_otherwise(trial, self._plans(trial))),
                lambda: not self.out_of_time,
            )
        except DeviceError as error:  # what the search has found is told all the same
            self._notice(f"timing: the other one was not compared: {error}")
            return
        if winner is not None:
            other = SINGLE if self._plan.request.timing == BACK_TO_BACK else BACK_TO_BACK
            self._notice(told_of_other(other, winner, self._device.identity.label))

    def _compare_inputs(self) -> None:
        """Tell where joules are others with the user's own inputs than with random ones."""
        outcome = self._outcome(RunStatus.FINISHED)
        if outcome.answer is None or not (self._measures_end and self._confirmation.paired.repeats):
            return
        answer = outcome.trials[outcome.answer][0]
        try:
            told = against_random_inputs(
                self._plans(answer),
                lambda plans: self._counted(self._measurer.measure(answer, plans)),
                lambda: not self.out_of_time,
            )
        except DeviceError as error:  # what the search has found is told all the same
            told = f"inputs: random ones were not compared: {error}"
        if told:
            self._notice(told)

    def _outcome(self, status: RunStatus) -> Outcome:
        """The outcome as it would be now."""
        outcome = outcome_of(
            self._plan,
            self._spaces,
            list(self._trials.items()),
            self._confirmation,
            self._final_objective,
            assumed=self._assumed,
            status=status,
            kept=self._kept,
        )
        outcome.measurements, outcome.joules = tuple(self._measurements), self._joules
        outcome.windows_s = self._measurer.windows_s - self._windows_before_s
        return outcome

    def _document(self, outcome: Outcome, *, with_trials: bool) -> RunDocument:
        record = document(self._plan, outcome, self._compilation.known(self._trials), with_trials=with_trials)
        precision = self._plan.request.energy_precision
        record["verification"] = (
            None if self._verified is None else verdict(self._verified, outcome, precision)
        )
        return record

    # --- Objectives, time and joules -----------------------------------------------------------------

    @property
    def _is_limited(self) -> bool:
        """True under a slowdown limit: a time search comes first."""
        return self._plan.request.max_slowdown is not None and not self._plan.programs

    @property
    def _final_objective(self) -> Objective:
        """The objective, limited to the allowed slowdown against the reference (or the fastest so far)."""
        return self._limited(self._fastest_s() if self._reference_s is None else self._reference_s)

    def _limited(self, reference_s: float) -> Objective:
        """The objective, limited to the allowed slowdown against so many seconds."""
        request = self._plan.request
        if request.max_slowdown is None:
            return Objective(request.objective)
        return Objective(request.objective, limit_s=reference_s * (1 + request.max_slowdown))

    def _fastest_s(self) -> float:
        """Shortest makespan of a valid trial asked for so far; infinity while there is none."""
        return min(map(Objective("time").cost, self._requested.values()), default=math.inf)

    @property
    def out_of_time(self) -> bool:
        """True once the time limit of the run is reached, but for the time that its end takes."""
        end_s, default = 0.0, self._trials.get(self._default)
        if self._plan.programs and default is not None:
            end_s = 2 * PAIRS * default.window_s
        if self._measures_end and default is not None and default.energy is not None:
            end_s = 2 * _WHOLE * default.window_s  # default and answer once more
        if end_s * _ROOM > (self._limits.time_limit_s or 0.0):
            end_s = 0.0
        return self._is_over(end_s)

    def _is_over(self, early_s: float) -> bool:
        time_limit_s = self._limits.time_limit_s
        if time_limit_s is None:
            return False
        passed_s = self._device.now_s() - self._started_s
        return passed_s >= time_limit_s - early_s or time.monotonic() >= self._limits.ends_s

    @property
    def _assumed(self) -> WindowScatter:
        """Of joules, before repeats show it; a recording is of a GPU that had been at work for long."""
        return replace(ASSUMED, drift=0.0) if self._device.identity.recorded else ASSUMED

    def _scatter(self, paired: PairedRepeats) -> WindowScatter:
        """Return the scatter and drift of joules: from these repeats, or as assumed.

        What a killed run measured tells nothing: the GPU was idle in between, and warms anew.
        """
        if not (paired.repeats or paired.end):
            return self._assumed
        here = {trial: known for trial, known in self._trials.items() if trial not in self._recalled}
        return window_scatter(here, paired.repeats, paired.end)

    def _spent(self) -> SpentEnergy | None:
        """All joules of this search, and of a killed run those of its trials; None where nobody tells."""
        spent = self._measurer.spent()
        if spent is None:
            return None
        spent = replace(spent, joules=spent.joules + self._recalled_j)
        return spent if self._spent_before is None else spent.since(self._spent_before)


@contextmanager
def _ended_in_any_case(store: Store) -> Iterator[list[int]]:
    """Numbers of runs that were taken; one that is still there when an interrupt comes through is ended."""
    owned: list[int] = []
    try:
        yield owned
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt | RunInterrupted)
        for number in owned[-1:]:
            with suppress(StoreError):  # what came before is told
                store.end(number, RunStatus.INTERRUPTED if stopped else RunStatus.FAILED, None)
        raise
