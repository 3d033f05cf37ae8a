"""One search, from its plan to a stored answer: the loop of trials, and what comes before and after it."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

from tuner.database.runs import TrialStore
from tuner.measurement.base import Anchor, Contest, PlannedTrial
from tuner.measurement.paired import (
    LEAST_REPEATS,
    LEAST_TURNS,
    MOST_REPEATS,
    CoRunComparison,
    PairedRepeats,
    window_scatter,
)
from tuner.model import registry
from tuner.model.errors import InputError, PoolLostError, RunInterrupted, StoreError
from tuner.model.objective import Objective
from tuner.model.plan import Plan
from tuner.model.records import RunStatus, fingerprint
from tuner.model.run_document import RunDocument
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
from tuner.search import verification
from tuner.search.answer import (
    Confirmation,
    Outcome,
    Trials,
    confirm_neighbours,
    outcome_of,
    points_to_confirm,
    to_confirm,
)
from tuner.search.candidates import PreparedWorkload, as_declared
from tuner.search.compilation import Compilation
from tuner.search.document import document
from tuner.search.option_checks import LimitReachedError, SearchLimits
from tuner.search.plan import SearchPlan, default_configuration, knowledge
from tuner.search.setup import MeasurementSetup
from tuner.search.together import SoloBests, compare_in_turn, find_solo_bests, note_solo_bests
from tuner.search.verification import NOTHING_TO_VERIFY, verdict, verifiable_answer
from tuner.space.search_view import Criterion, Policy, PriorRun, Search
from tuner.system.marks import mark

_ANALYTICAL_FIRST = ("analytical", "auto", "bayesian")  # policies that begin with the analytical answer
_DECIDED = 2  # repeats that tell who cannot be the lowest
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
        self, plan: SearchPlan, setup: MeasurementSetup, store: TrialStore, listener: SearchListener
    ) -> None:
        wanted = plan.request.verify and plan.strategy is None
        self._verified = verifiable_answer(store, plan.conditions) if wanted else None
        if self._verified is not None:
            answer = self._verified
            plan = plan.following(verification.POLICY, answer.settings, answer.trials, (answer.answer,))
        self._plan, self._setup, self._store, self._listener = plan, setup, store, listener
        self._device, self._measurer, self._pool = setup.device, setup.measurer, setup.pool
        self._names = plan.conditions.names
        self._spent_before = self._measurer.spent() if self._measurer.windows_s else None  # by earlier runs
        self._windows_before_s = self._measurer.windows_s
        self._told: list[str] = []  # every sentence for the user
        self._notices: dict[str, None] = {}  # those of them that are notices of the outcome
        self._run = 0
        self._trials: list[tuple[Trial, Measurement]] = []
        self._memory: dict[Trial, Measurement] = {}
        self._asked: dict[Trial, Measurement] = {}  # in order: the same in a resumed run as in a whole one
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
        self._paired = PairedRepeats()
        self._confirmed: dict[Trial, Measurement] = {}
        if wanted and self._verified is None:
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
        with _ended_in_any_case(self._store) as taken:
            begun = time.monotonic()
            known = self._open_run(taken, resume=resume, insisted=insisted)
            self._started_s = self._device.now_s()
            self._measures_end = confirm and self._final_objective.needs_energy
            status, notices = RunStatus.FAILED, list[str]()
            solo, co_run = SoloBests(), None
            try:
                self._recall(known)
                solo = find_solo_bests(self._plan, self._spaces, self._store)
                limit = self._search(solo.trial)
                if confirm:
                    limit = self._confirm(solo.trial, limit)
                    co_run = self._compare_answer()
                notices += [] if limit is None else [f"stopped: {limit}"]
                status = RunStatus.FINISHED if limit is None else RunStatus.LIMITED
            except (KeyboardInterrupt, RunInterrupted) as order:
                status = RunStatus.INTERRUPTED
                self._reload()
                notices += [str(order)] if isinstance(order, PoolLostError) else []
                notices.append("interrupted: this is what was known; --resume goes on from here")
            finally:
                self._compilation.close()
                outcome = self._outcome(status)
                outcome.notices[:0] = [*self._notices, *notices, *self._measurer.notices]
                note_solo_bests(outcome, solo)
                outcome.resumed, outcome.co_run, outcome.run = len(known), co_run, self._run
                outcome.prepare_s, outcome.wall_s = prepare_s, time.monotonic() - begun
                outcome.spent = self._spent()
                answer = None if outcome.answer is None else self._document(outcome, with_trials=False)
                self._store.end(self._run, status, answer)
                taken.clear()
        outcome.notices[:0] = [*self._setup.notices, *self._plan.notices]
        outcome.document = self._document(outcome, with_trials=True)
        if told := outcome.document.get("verification"):
            self._tell(told["told"])
        outcome.told = self._told
        return outcome

    def _search(self, solo_bests: Trial | None) -> LimitReachedError | None:
        """Search once, or twice under a slowdown limit; returns the limit that ended it early."""
        plan = self._plan
        search = self._search_view({})
        self._begin_phase(self._objective, search.listed if plan.covers_space else None)
        if plan.conditions.policy in _ANALYTICAL_FIRST and plan.strategy is None:
            search.expect(registry.load("explain", "first")(search))
        try:
            if self._pool is not None and self._default not in self._memory:
                anchor = PlannedTrial(self._default, tuple(self._plans(self._default)))
                self._pool.prepare(anchor)  # all GPUs measure the default, while home does
            self._measure(self._default)
            with self._compilation.within(self._limits):
                if solo_bests is not None:
                    self._measure(solo_bests, whole=True)  # the answer is held against it
                self._follow(plan.policy, search)
                if self._is_limited:
                    self._reference_s = self._fastest_s()
                    self._begin_phase(self._final_objective, self._expected)
                    self._follow(plan.policy, self._search_view(dict(self._asked)))
        except LimitReachedError as limit:
            return limit
        return None

    def _follow(self, policy: Policy, search: Search) -> None:
        """Measure the trials that a policy wants, list by list, until it has no more."""
        generator = policy(search)
        try:
            batch = next(generator)
            while True:
                self._compilation.ahead([trial for trial in batch if trial not in self._memory])
                self._spread(batch)
                batch = generator.send([self._measure(trial) for trial in batch])
        except StopIteration:
            return
        finally:
            generator.close()

    def _measure(self, trial: Trial, *, whole: bool = False) -> Measurement:
        """Answer a trial from memory, or compile, check, measure, store and announce it now.

        One that compiled resources rule out is answered as ``pruned``: it costs nothing, and is not stored.

        Args:
            trial: what is measured.
            whole: measure it to the end, also where it cannot be the best.

        Raises:
            LimitReachedError: the budget or the time is used up.
        """
        if trial not in self._memory:
            if self._trials:  # one is measured whatever it takes
                self._limits.check(len(self._trials), out_of_time=self.out_of_time)
            pruned = self._pruned(trial)  # waits for the compiler
            if pruned is not None:
                return pruned
            mark(f"trial {len(self._trials) + 1}")
            contest = None if whole else self._contest()
            # The measurer checks the output of each configuration once, and locks the clock.
            measured = self._counted(self._measurer.measure(trial, self._plans(trial), contest))
            self._keep(trial, measured)
        self._asked[trial] = self._memory[trial]
        return self._memory[trial]

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

    def _keep(self, trial: Trial, measurement: Measurement) -> None:
        """Store a trial at once, remember it, and only then tell of it."""
        if trial != self._default:
            measurement = replace(measurement, power=())  # of contenders their repeats keep it
        number = len(self._trials) + 1
        self._store.add(self._run, number, trial, stated(measurement, self._assumed), self._names)
        self._remember(trial, measurement)
        self._announce(trial, measurement)

    def _remember(self, trial: Trial, measurement: Measurement) -> None:
        self._memory[trial] = measurement
        self._trials.append((trial, measurement))
        if self._objective.known(measurement) < self._lowest_cost:
            self._leader, self._lowest_cost = (trial, measurement), self._objective.known(measurement)

    def _announce(self, trial: Trial, measurement: Measurement, *, place: int = 0, repeat: int = 0) -> None:
        """Notify the listener of a trial, or of a contender's repeat."""
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
                place=place or len(self._trials),
                repeat=repeat,
                objective=self._objective.name,
                label=self._device.identity.label,
                gpus=1 if self._pool is None or repeat else self._pool.parallel,
            )
        )

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
        self._default = self._plan.default_trial(self._spaces)
        return time.monotonic() - begun

    def _open_run(self, taken: list[int], *, resume: bool, insisted: bool) -> list[tuple[Trial, Measurement]]:
        """Begin a run in the database, or take over a killed one; returns what that has measured."""
        conditions = self._plan.conditions
        run_id = self._store.resume(conditions, taken.append) if resume else None
        if run_id is not None:
            self._run = run_id
            return self._store.trials(run_id, self._names)
        if resume and insisted:
            self._refuse_finished()
        self._run = self._store.begin(conditions, taken.append)
        if resume and insisted:
            self._notice(
                "--resume: no unfinished run has these workloads, options, driver and sources on this GPU"
                " (`tuner history` lists runs): this is a new one"
            )
        return []

    def _refuse_finished(self) -> None:
        conditions = self._plan.conditions
        runs = self._store.answered(conditions.names, conditions.objective, conditions.device.uuid)
        wanted = fingerprint(conditions.record())
        same = (run for run in runs if fingerprint(run.conditions) == wanted)
        ended = next((run for run in same if run.status is RunStatus.FINISHED), None)
        if ended is not None:
            self._compilation.close()
            raise InputError(
                f"--resume: there is nothing to resume: run {ended.id} has finished under these conditions"
                f" (`tuner show {ended.id}`); leave --resume out to measure again"
            )

    def _recall(self, trials: Iterable[tuple[Trial, Measurement]]) -> None:
        """Take over what a killed run measured, as if this one had; its configurations are compiled again."""
        declared = as_declared(
            self._spaces, ((trial, of_window(measurement)) for trial, measurement in trials)
        )
        self._compilation.ahead([trial for trial, _ in declared])
        for trial, measurement in declared:
            self._compilation.look_at(trial)
            self._remember(trial, measurement)
            self._recalled.add(trial)
            self._joules += measurement.energy_total_j
        self._recalled_j = self._joules
        if self._trials:
            self._measurer.recall(self._trials, [item.workload for item in self._spaces])
            self._device.resume_at(self._trials[-1][1].ended_s)
            self._started_s = self._device.now_s()

    def _reload(self) -> None:
        """Take the trials from the store: an interrupt may come between storing and remembering one."""
        stored = self._store.trials(self._run, self._names)
        self._trials = as_declared(
            self._spaces, ((trial, of_window(measurement)) for trial, measurement in stored)
        )

    # --- What a policy and a measurer are told -------------------------------------------------------

    def _search_view(self, prior: Mapping[Trial, Measurement]) -> Search:
        """The search as a policy sees it under the present objective."""
        plan, spaces, objective = self._plan, self._spaces, self._objective

        def prior_runs(name: str) -> tuple[PriorRun, ...]:
            return knowledge(plan, self._store, self._run, name)

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
            expect=self._compilation.expect,
            parallel=1 if self._pool is None else self._pool.parallel,
            criteria=tuple(
                Criterion(one.known, one.relative_uncertainty, prior_runs(one.name)) for one in both
            ),
            large_spaces=tuple(None if item.source is None else item.source.as_told() for item in spaces),
        )

    def _notice(self, sentence: str) -> None:
        """Tell the user once what is a notice of the outcome, too."""
        if sentence not in self._notices:
            self._notices[sentence] = None
            self._tell(sentence)

    def _tell(self, sentence: str) -> None:
        self._told.append(sentence)
        self._listener.told(sentence)

    def _begin_phase(self, objective: Objective, expected: int | None = None) -> None:
        """Look for the lowest cost under an objective from here on, in so many trials at most."""
        self._objective, self._expected = objective, expected
        costs = ((objective.known(known), place) for place, (_, known) in enumerate(self._trials))
        cost, place = min(costs, default=(math.inf, 0))
        self._leader = self._trials[place] if cost < math.inf else None
        self._lowest_cost = self._best_cost = cost

    def _contest(self) -> Contest:
        """Return the contest of the next trial: objective and best trial so far."""
        objective = self._objective
        return Contest(objective, None if objective.is_front else self._leader, len(self._trials))

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

    # --- Several GPUs --------------------------------------------------------------------------------

    def _spread(self, batch: Sequence[Trial]) -> None:
        """Measure the new trials of a list on all GPUs of a pool; what a limit leaves is not measured."""
        new = [trial for trial in dict.fromkeys(batch) if trial not in self._memory]
        default = self._memory.get(self._default)
        if self._pool is None or len(new) < _SEVERAL or default is None or not default.ok:
            return  # home measures one alone, and all where nothing tells how GPUs compare
        anchor = Anchor(self._default, tuple(self._plans(self._default)), default)
        for trial, measured in self._pool.measure_all(self._planned(new), anchor):
            if trial not in self._memory:
                self._keep(trial, self._counted(measured))

    def _planned(self, trials: Sequence[Trial]) -> Iterator[PlannedTrial]:
        """The trials that may be measured, up to the limits; each is held against what is known by then."""
        budget = self._limits.budget
        left = len(trials) if budget is None else budget - len(self._trials)
        for trial in trials:
            if left <= 0 or self.out_of_time:
                return
            if self._pruned(trial) is not None:
                continue
            left -= 1
            yield PlannedTrial(trial, tuple(self._plans(trial)), self._contest())

    # --- The end: contenders measured again, and the answer ------------------------------------------

    def _confirm(self, solo_bests: Trial | None, limit: LimitReachedError | None) -> LimitReachedError | None:
        """Repeat the contenders while there is time; returns the limit that ended search or repeats."""
        self._begin_phase(self._final_objective)
        if limit is None or not limit.out_of_time:
            try:
                self._confirm_contenders(solo_bests)
            except LimitReachedError as reached:
                limit = reached
            else:
                return limit
        found = self._outcome(RunStatus.LIMITED)
        self._finish(PairedRepeats(), None if found.answer is None else found.trials[found.answer][0])
        return limit

    def _confirm_contenders(self, solo_bests: Trial | None) -> None:
        """Measure the trials again whose cost may be the lowest, and those that the answer is held against.

        These are the default trial, the fastest, every workload at its solo best where that was measured,
        and what the plan names. Of a front, every point is measured three times: a point need not be the
        lowest.

        Raises:
            LimitReachedError: the time was over before two repeats were whole, the least that compare.
        """
        plan, objective, time_ = self._plan, self._objective, Objective("time")
        precision = plan.request.energy_precision
        valid = {
            trial: measurement
            for trial, measurement in self._trials
            if math.isfinite(time_.cost(measurement)) and measurement.estimated_j is None
        }
        if not valid:
            return
        fastest = min(valid, key=lambda trial: time_.cost(valid[trial]))
        references = (self._default, fastest, solo_bests, *plan.named)
        beside = tuple(dict.fromkeys(trial for trial in references if trial in valid))
        if objective.is_front:
            beside = tuple(dict.fromkeys((*points_to_confirm(valid), *beside)))
            paired = self._repeat((), beside, math.inf)
            objective = Objective("energy")
        else:
            chosen = to_confirm(objective, valid)
            if plan.steers_clocks and chosen and not plan.named:
                paired = confirm_neighbours(
                    lambda trials, beside: self._repeat(trials, beside, precision),
                    lambda: not self.out_of_time,
                    objective,
                    valid,
                    (chosen, beside),
                )
            else:
                paired = self._repeat(chosen, beside, precision)
        if len(paired.repeats) < LEAST_TURNS and self.out_of_time:
            raise self._limits.time_is_over()
        self._finish(paired, paired.answer(objective, precision))

    def _repeat(self, trials: Trials, beside: Trials, precision: float) -> PairedRepeats:
        """Measure trials again in paired repeats, so that a drift meets all of them.

        What the search measured is left out: the best of many noisy values is too good to be true. After two
        repeats only those go on that may yet be the lowest, up to nine, until that is known to the wanted
        precision; those that are held beside them get three. Every other repeat goes in reverse order: a
        steady drift then cancels, and no trial always follows the same one.
        Once the time limit is reached there are none beyond those that are whole.

        Trials that were named before anything was measured have been through one turn already, as no chance
        has chosen them: that turn is the first repeat, unless a killed run made a part of it, and two are
        enough where they decide.

        Args:
            trials: the contenders.
            beside: those that the answer is held against, which need not be among them.
            precision: wanted half-width of the 95 % interval of a cost, relative to the lowest one.
        """
        objective, named = self._objective, self._plan.named
        order = list(dict.fromkeys((*beside, *trials)))
        paired = PairedRepeats()
        least = LEAST_TURNS if named else LEAST_REPEATS
        if named and self._recalled.isdisjoint(order):
            paired = PairedRepeats(({trial: self._memory[trial] for trial in order},))
            order.reverse()
        places = {trial: number for number, (trial, _) in enumerate(self._trials, start=1)}
        mark("contenders again")
        for count in range(1 + len(paired.repeats), MOST_REPEATS + 1):
            repeat = {}
            for trial in order:
                if self.out_of_time:
                    return paired
                repeat[trial] = self._measure_again(trial)
                self._announce(trial, repeat[trial], place=places[trial], repeat=count)
            paired = PairedRepeats((*paired.repeats, repeat))
            if count >= least:
                going_on = paired.undecided(objective, precision)
                order = [trial for trial in order if trial in going_on]
            elif count == _DECIDED:
                going_on = [*paired.rivals(objective), *paired.tied(objective, precision), *beside]
                order = [trial for trial in order if trial in going_on]
            if not order:
                break
            order.reverse()
        return paired

    def _measure_again(self, trial: Trial) -> Measurement:
        return self._counted(self._measurer.measure(trial, self._plans(trial)))

    def _finish(self, paired: PairedRepeats, answer: Trial | None) -> None:
        """Measure default and answer once more, then idle power at the contenders' clocks, and store it all.

        The GPU is warmest now: joules are those of the end of the run. Where a time limit has no room for
        these windows, they are those of the repeats.

        Args:
            paired: the repeats of the contenders; none where the search was ended before.
            answer: the trial that is to be the answer; None where all failed.
        """
        joined = paired.joined()
        known = joined or self._memory
        wanted = [] if answer is None or not self._measures_end else [self._default, answer]
        again = [
            trial for trial in dict.fromkeys(wanted) if trial in known and known[trial].energy is not None
        ]
        if again and not self._is_over(0.0):
            end = {trial: self._measure_again(trial) for trial in again}
            if all(one.ok and one.energy is not None for one in end.values()):
                paired = replace(paired, end=end)
        for clock_mhz in dict.fromkeys(trial.clock_mhz for trial in joined):
            if not self._is_over(0.0):
                self._joules += self._measurer.measure_idle(clock_mhz)
        confirmed = {
            trial: self._measurer.with_idle(measurement, trial.clock_mhz)
            for trial, measurement in paired.at_end().items()
        }
        # Trials were stored with the scatter and the drift that are assumed; the run may have shown others.
        scatter = self._scatter(paired)
        changed = {
            number: stated(confirmed.get(trial, measurement), scatter)
            for number, (trial, measurement) in enumerate(self._trials, start=1)
            if trial in confirmed or (scatter != ASSUMED and measurement.energy is not None)
        }
        self._store.confirm(self._run, changed)
        self._paired, self._confirmed = paired, confirmed

    def _compare_answer(self) -> CoRunComparison | None:
        """The answer against its workloads one after another; None of a lone one, and without an answer."""
        found = self._outcome(RunStatus.FINISHED)
        if found.answer is None or len(self._spaces) == 1:
            return None
        trial = found.trials[found.answer][0]
        return compare_in_turn(
            trial, lambda place: self.measure_beside(trial, place), lambda: not self.out_of_time
        )

    def measure_beside(self, trial: Trial, place: int | None) -> Measurement:
        """Measure a trial once more, or one workload of it alone; nothing is stored or told, its cost counts.

        Args:
            trial: all that is run together.
            place: of the workload; None for the trial.
        """
        if place is None:
            return self._measure_again(trial)
        alone = replace(trial, configurations=(trial.configurations[place],))
        return self._counted(self._measurer.measure(alone, [self._plans(trial)[place]]))

    def _outcome(self, status: RunStatus) -> Outcome:
        """The outcome as it would be now."""
        outcome = outcome_of(
            self._plan,
            self._spaces,
            self._trials,
            Confirmation(self._paired, self._confirmed, self._scatter(self._paired)),
            self._final_objective,
            assumed=self._assumed,
            status=status,
        )
        outcome.measurements, outcome.joules = tuple(self._measurements), self._joules
        outcome.windows_s = self._measurer.windows_s - self._windows_before_s
        return outcome

    def _document(self, outcome: Outcome, *, with_trials: bool) -> RunDocument:
        made = document(self._plan, outcome, self._compilation.known(), with_trials=with_trials)
        precision = self._plan.request.energy_precision
        made["verification"] = None if self._verified is None else verdict(self._verified, outcome, precision)
        return made

    # --- Objectives, time and joules -----------------------------------------------------------------

    @property
    def _is_limited(self) -> bool:
        """True under a slowdown limit: a time search comes first."""
        return self._plan.request.max_slowdown is not None

    @property
    def _final_objective(self) -> Objective:
        """The objective, limited to the allowed slowdown against the reference (or the fastest so far)."""
        request = self._plan.request
        if request.max_slowdown is None:
            return Objective(request.objective)
        reference_s = self._fastest_s() if self._reference_s is None else self._reference_s
        return Objective(request.objective, limit_s=reference_s * (1 + request.max_slowdown))

    def _fastest_s(self) -> float:
        """Shortest makespan of a valid trial asked for so far; infinity while there is none."""
        return min(map(Objective("time").cost, self._asked.values()), default=math.inf)

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
    def _assumed(self) -> WindowScatter:
        """Of joules, before repeats show it; a recording is of a GPU that had been at work for long."""
        return replace(ASSUMED, drift=0.0) if self._device.identity.recorded else ASSUMED

    def _scatter(self, paired: PairedRepeats) -> WindowScatter:
        """Return the scatter and drift of joules: from these repeats, or as assumed.

        What a killed run measured tells nothing: the GPU was idle in between, and warms anew.
        """
        if not (paired.repeats or paired.end):
            return self._assumed
        here = {trial: measured for trial, measured in self._trials if trial not in self._recalled}
        return window_scatter(here, paired.repeats, paired.end)

    def _spent(self) -> SpentEnergy | None:
        """All joules of this search, and of a killed run those of its trials; None where nobody tells."""
        spent = self._measurer.spent()
        if spent is None:
            return None
        spent = replace(spent, joules=spent.joules + self._recalled_j)
        return spent if self._spent_before is None else spent.since(self._spent_before)


@contextmanager
def _ended_in_any_case(store: TrialStore) -> Iterator[list[int]]:
    """Numbers of runs that were taken; one that is still there when an interrupt comes through is ended."""
    taken: list[int] = []
    try:
        yield taken
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt | RunInterrupted)
        for number in taken[-1:]:
            with suppress(StoreError):  # what came before is told
                store.end(number, RunStatus.INTERRUPTED if stopped else RunStatus.FAILED, None)
        raise
