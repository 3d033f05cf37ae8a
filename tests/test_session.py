"""A run on a simulated device: search, store, resume, interrupt, limits, slowdown."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tuning_runs import REQUEST, tune

from tuner.database.runs import Store
from tuner.measurement.paired import ASSUMED_REPEATABILITY
from tuner.model.errors import RunInterrupted
from tuner.model.objective import Objective
from tuner.model.trial import Status
from tuner.search.answer import Outcome
from tuner.search.request import SearchRequest
from tuner.search.session import TrialEvent


def test_every_trial_is_stored_before_it_is_told(store: Store) -> None:
    """When the observer hears of a trial, the database already has it."""
    seen: list[int] = []

    def observer(event: TrialEvent) -> None:
        if not event.confirming:
            seen.append(store.history(1)[0].trials)
            assert seen[-1] == event.number

    outcome = tune(replace(REQUEST, budget=5), store, observer=observer)

    assert seen == [1, 2, 3, 4, 5]
    assert outcome.status == "limited"


def test_default_trial_comes_first(store: Store) -> None:
    """Gains are stated against the default configuration, so it is measured before anything else."""
    outcome = tune(replace(REQUEST, budget=3), store)

    assert outcome.default == 0
    assert dict(outcome.trials[0][0].configurations[0]).items() >= {"P": 4, "L": 256}.items()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A run that has measured the whole space."""
    with Store(tmp_path_factory.mktemp("whole") / "tuner.db") as store:
        return tune(replace(REQUEST, policy="exhaustive"), store)


def test_answer_is_the_lowest_energy_or_ties_with_it(whole: Outcome) -> None:
    """No trial measured has certainly less energy than the answer, as far as trials repeat."""
    outcome = whole
    assert outcome.answer is not None
    answer = outcome.trials[outcome.answer][1].energy
    assert answer is not None
    for _, measurement in outcome.trials:
        if measurement.energy is not None:
            again_j = ASSUMED_REPEATABILITY * measurement.energy.joules
            slack_j = 1.96 * (answer.uncertainty_j + math.hypot(measurement.energy.uncertainty_j, again_j))
            assert answer.joules <= measurement.energy.joules + slack_j


@pytest.mark.parametrize(
    ("at", "resume"),
    [("begin", False), ("resume", True), ("trials", True)],
    ids=["begin", "resume", "trials"],
)
def test_a_stop_leaves_no_run_behind(tmp_path: Path, at: str, *, resume: bool) -> None:
    """A stop that comes when the run is stored and its number not yet returned, or just behind, ends it."""

    class Stopped(Store):
        def begin(self, *words: Any) -> Any:
            return self._stopped(super().begin(*words))

        def resume(self, *words: Any) -> Any:
            return self._stopped(super().resume(*words))

        def trials(self, *_: Any) -> list[Any]:
            raise KeyboardInterrupt

        def _stopped(self, number: int | None) -> Any:
            if at != "trials" and number is not None:
                raise KeyboardInterrupt
            return number

    request = replace(REQUEST, budget=2)
    if resume:
        with Store(tmp_path / "tuner.db") as store:
            tune(request, store)
    with Stopped(tmp_path / "tuner.db") as stopped, pytest.raises(KeyboardInterrupt):
        tune(replace(request, budget=4), stopped, resume=resume)
    with Store(tmp_path / "tuner.db") as store:
        assert [str(run.status) for run in store.history()] == ["interrupted"]


class _Killed(BaseException):
    """Stands for the end of a process: nothing catches it, nothing is tidied."""


def cut(request: SearchRequest, path: Path, at: int, spec: str = "sim:k40c") -> None:
    """Begin a run, and kill it behind a trial, or when it confirms its answer."""

    def kill(event: TrialEvent) -> None:
        if event.number == at or event.confirming:
            raise _Killed

    with Store(path) as store, pytest.raises(_Killed):
        tune(request, store, spec=spec, observer=kill)


# What a sensor remembers goes with a killed process: seconds of power in a K40c, a quantum in a counter.
# Brief windows remember most of it.
SENSOR_MEMORY = {"sim:k40c": 1e-3, "sim:h200": 1e-3}
# That every policy goes the same way again is tested for each of them, see test_policy_contract.py.
POLICIES = ("greedy", "random", "auto", "bayesian", "exhaustive", "hill-climbing", "local")


@pytest.mark.parametrize(
    ("policy", "spec"),
    [
        *((policy, "sim:k40c") for policy in POLICIES[:4]),
        ("greedy", "sim:h200"),  # what a sensor remembers no policy sees
        *(pytest.param(policy, "sim:h200", marks=pytest.mark.exhaustive) for policy in POLICIES[1:]),
    ],
)
def test_resumed_run_ends_as_if_never_stopped(policy: str, spec: str, tmp_path: Path) -> None:
    """Cut off after some trials, the run goes on to the same trials, numbers and answer, none twice."""
    objective = Objective("energy" if policy in POLICIES[:2] else "time")  # as above; joules take longer
    request = replace(REQUEST, policy=policy, clocks="600:900:60", budget=9, objective=objective.name)
    with Store(tmp_path / "whole.db") as store:
        whole = tune(request, store, spec=spec)
    cut(request, tmp_path / "cut.db", 4, spec)
    again: list[Any] = []
    with Store(tmp_path / "cut.db") as store:
        resumed = tune(
            request,
            store,
            spec=spec,
            observer=lambda event: None if event.confirming else again.append(event.trial),
            resume=True,
        )

    assert resumed.resumed == 4
    assert [trial for trial, _ in whole.trials] == [trial for trial, _ in resumed.trials]
    assert [str(c) for t, _ in whole.trials for c in t.configurations] == [
        str(c) for t, _ in resumed.trials for c in t.configurations
    ]  # mappings are equal in any order; tables show that of declaration
    assert whole.answer == resumed.answer
    assert again == [trial for trial, _ in whole.trials[4:]]
    for (_, expected), (_, measured) in zip(whole.trials, resumed.trials, strict=True):
        assert measured.makespan_s == pytest.approx(expected.makespan_s, rel=1e-12)  # means of unlike many
        costs = [objective.cost(measurement) for measurement in (expected, measured)]
        assert all(map(math.isfinite, costs))
        unsure = 4 * objective.relative_uncertainty(expected)
        assert costs[0] == pytest.approx(costs[1], rel=max(unsure, SENSOR_MEMORY[spec]))
        assert (expected.estimated_j is None) == (measured.estimated_j is None)


def test_run_cut_after_its_first_trial_takes_the_same_path(tmp_path: Path) -> None:
    """Idle power was read behind the first trial: the GPU has idled, in a resumed run too."""
    request = replace(REQUEST, workloads=("scan-lf:N=64",), policy="greedy", clocks="off", budget=4)
    with Store(tmp_path / "whole.db") as store:
        whole = tune(request, store, spec="sim:jetson-tx1")
    cut(request, tmp_path / "cut.db", 1, "sim:jetson-tx1")
    with Store(tmp_path / "cut.db") as store:
        resumed = tune(request, store, spec="sim:jetson-tx1", resume=True)

    assert resumed.resumed == 1
    assert [m.makespan_s for _, m in resumed.trials[1:]] == [m.makespan_s for _, m in whole.trials[1:]]
    assert [m.energy and m.energy.joules for _, m in resumed.trials[1:]] == [
        m.energy and m.energy.joules for _, m in whole.trials[1:]
    ]  # their intervals are wider: what was seen of the sensor's noise is lost


SLOWED = replace(
    REQUEST,
    workloads=("scan-lf:N=4", "fft:N=4"),
    policy="greedy",
    clocks="all",
    max_slowdown=0.1,
)


@pytest.fixture(scope="module")
def slowed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A run with --max-slowdown that nothing stopped."""
    with Store(tmp_path_factory.mktemp("slowed") / "whole.db") as store:
        return tune(SLOWED, store)


@pytest.mark.parametrize("stop", [4, 18, 22])  # the second search begins at 15
def test_resumed_run_keeps_its_slowdown_reference(stop: int, slowed: Outcome, tmp_path: Path) -> None:
    """Cut off in either search of --max-slowdown, the reference stays that of the first search."""
    cut(SLOWED, tmp_path / "cut.db", stop)
    with Store(tmp_path / "cut.db") as store:
        resumed = tune(SLOWED, store, resume=True)
    whole = slowed

    assert whole.objective.limit_s == resumed.objective.limit_s
    assert [trial for trial, _ in whole.trials] == [trial for trial, _ in resumed.trials]
    assert whole.answer == resumed.answer


def test_answer_is_confirmed_by_fresh_repeats(whole: Outcome) -> None:
    """Answer, default and fastest are stated from their own repeats, not from the search's best of many."""
    outcome = whole
    for index in (outcome.answer, outcome.default, outcome.fastest):
        assert index is not None
        assert outcome.trials[index][1].repeats == 3
    assert sum(measurement.repeats == 1 for _, measurement in outcome.trials) > len(outcome.trials) / 2


@pytest.mark.parametrize(("precision", "told"), [(1e-5, 1), (0.05, 0)])
def test_a_precision_that_was_missed_is_told(store: Store, precision: float, told: int) -> None:
    """Joules less sure than was asked for come with a notice of what was reached."""
    outcome = tune(replace(REQUEST, budget=2, energy_precision=precision), store)
    notices = [notice for notice in outcome.notices if notice.startswith("precision: ")]

    assert len(notices) == told
    assert all("asked for ± 0.001 % of the answer's joules, reached ± 1." in notice for notice in notices)


def test_interrupt_keeps_what_is_known(store: Store) -> None:
    """Ctrl-C or SIGTERM ends with the answer of the trials so far, stored as interrupted."""

    def interrupt(event: TrialEvent) -> None:
        if event.number == 3:
            raise RunInterrupted("SIGTERM")

    outcome = tune(REQUEST, store, observer=interrupt)

    assert outcome.status == "interrupted"
    assert outcome.answer in outcome.tied
    assert store.history(1)[0].status == "interrupted"
    assert store.history(1)[0].trials == 3


def test_time_limit_counts_on_the_devices_clock(store: Store) -> None:
    """A limit of ten modelled seconds ends the search when ten modelled seconds have passed."""
    outcome = tune(replace(REQUEST, time_limit_s=10.0), store)
    windows_s = sum(measurement.window_s for _, measurement in outcome.trials)

    assert outcome.status == "limited"
    assert windows_s < 20.0
    assert len(outcome.trials) < 20


def test_slowdown_limit_holds(store: Store) -> None:
    """Under --max-slowdown the answer is at most that much slower than the fastest trial."""
    request = replace(REQUEST, policy="exhaustive", clocks="100:998:300")
    free = tune(request, store, spec="sim:jetson-tx1")
    bound = tune(replace(request, max_slowdown=0.01), store, spec="sim:jetson-tx1")

    def makespan(outcome: Outcome, index: int | None) -> float:
        assert index is not None
        return outcome.trials[index][1].makespan_s or 0.0

    assert makespan(bound, bound.answer) <= 1.01 * makespan(bound, bound.fastest)
    assert makespan(free, free.answer) > 1.01 * makespan(free, free.fastest), "the limit must bind"
    assert len(bound.trials) == len(free.trials), "the second search is answered from memory"


def test_nothing_to_resume_is_said(store: Store) -> None:
    """--resume without an unfinished run is a new run, and says so."""
    outcome = tune(replace(REQUEST, budget=1), store, resume=True, insisted=True)

    assert "this is a new one" in outcome.notices[0]
    assert outcome.trials[0][1].status is Status.OK


def test_what_a_policy_says_is_heard_at_once_and_kept(store: Store) -> None:
    """Each sentence is passed on once, before the trials it speaks of end, and heads the notices in order."""
    heard: list[str] = []
    trials: list[int] = []

    outcome = tune(
        replace(REQUEST, policy="auto"),
        store,
        tell=heard.append,
        observer=lambda _: trials.append(len(heard)),
    )

    assert outcome.notices[: len(heard)] == heard
    assert len(heard) == len(set(heard))
    assert any(sentence.startswith("auto: ") for sentence in heard)
    assert trials[-1] == len(heard), "nothing is said after the last trial"
    assert trials[0] < len(heard), "the default trial comes before the policy speaks"


def test_runs_per_day_end_a_search_that_does_not_pay(store: Store) -> None:
    """An answer that is hardly ever run is worth a few evaluations, one in constant use all that it takes."""
    request = replace(REQUEST, workloads=("scan-lf:N=4", "fft:N=4"), policy="auto", budget=20)

    rare = tune(replace(request, runs_per_day=0.001), store)
    often = tune(replace(request, runs_per_day=1e12), store)

    told = "done: another trial is expected to save "
    assert any(notice.startswith(told) for notice in rare.notices)
    assert not any(notice.startswith(told) for notice in often.notices)
    assert len(rare.trials) < len(often.trials)
