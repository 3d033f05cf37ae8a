"""The Bayesian policy on spaces made by hand and on a recorded one."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from policy_driver import Measure, candidate, makespan, play, result, search_over
from tuner.policies.bayesian import AHEAD, LEAST_START, bayesian
from tuner.policies.stopping import ALL_FAIL, FLAT, ROOTS
from tuner.policies.surrogate.joint import Joint
from tuner.policies.surrogate.learner import Learner, expected_costs
from tuner.policies.surrogate.outlook import Proposal

from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.recordings.files import open_recording
from tuner.recordings.values import RecordedSpace, search_of
from tuner.space.search_view import Candidate, Payback, PriorRun, Search
from tuner.studies.comparison import play as play_to_budget


def space() -> list[Candidate]:
    """5 × 6 × 4 × 2 configurations."""
    return [
        candidate(P=1 << p, L=32 << block, S=s, how=how)
        for p in range(5)
        for block in range(6)
        for s in range(4)
        for how in ("tree", "chain")
    ]


def bowl(trial: Trial) -> Measurement:
    """A smooth valley with its minimum, 1, at P = 4, L = 256, S = 2 and chain."""
    c = trial.configurations[0]
    off = [
        *(math.log2(float(c["P"])) - 2, math.log2(float(c["L"])) - 8),
        *(float(c["S"]) - 2, 2 * (c["how"] == "tree")),
    ]
    return result(1 + 0.1 * sum(step * step for step in off), [1.0])


def constant(_: Trial) -> Measurement:
    """Every trial the same cost."""
    return result(1.0, [1.0])


def crashing(trial: Trial) -> Measurement:
    """The same, but every configuration with S = 3 or L = 1024 fails."""
    c = trial.configurations[0]
    return result(math.inf, [1.0], [0]) if c["S"] == 3 or c["L"] == 1024 else bowl(trial)


def costs(measure: Measure, trials: Sequence[Trial]) -> list[float]:
    return [makespan(measure(trial)) for trial in trials]


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_the_bottom_of_a_valley_in_a_fraction_of_the_space(seed: int) -> None:
    """240 configurations: the best, or one next to it, in at most fifty evaluations."""
    played = play(bayesian, search_over(space(), seed=seed), bowl)

    assert played.best is not None
    assert makespan(bowl(played.best)) <= 1.1 + 1e-9
    assert len(played.trials) <= 50


def test_the_defaults_come_first() -> None:
    """Whatever the budget, what is known to run is measured before what is drawn."""
    search = search_over(space())

    played = play(bayesian, search, bowl, 1)

    assert played.trials[0] == Trial(search.defaults, None)


def test_the_start_is_asked_for_at_once() -> None:
    """The start design is one list, so that it can be compiled ahead, and meets every value of few."""
    played = play(bayesian, search_over(space()), bowl)

    start = [trial.configurations[0] for trial in played.batches[0]]
    assert len(start) == 1 + 4  # the default, and one per tunable
    assert {c["S"] for c in start} == {0, 1, 2, 3}
    assert {c["how"] for c in start} == {"tree", "chain"}


def test_it_stops_after_patience_without_progress() -> None:
    """Where all costs are equal, nothing is progress, and patience is all that follows the start."""
    told: list[str] = []
    search = replace(search_over(space()), tell=told.append)

    played = play(partial(bayesian, patience=2), search, constant)

    start = len(played.batches[0])
    assert len(played.trials) == start + 2
    assert told[-1] == "done: the last 2 trials brought no progress"


def test_it_stops_when_prediction_and_experience_agree() -> None:
    """Where all costs are equal, going on is expected to gain nothing as soon as there is experience."""
    told: list[str] = []
    search = replace(search_over(space()), tell=told.append, label="modelled")

    played = play(bayesian, search, constant)

    assert len(played.trials) == math.ceil(ROOTS * math.sqrt(240))
    assert told[-2:] == [
        "done: the rest is expected to gain less than 0.5 %",
        "bayesian: the rest is predicted to gain 0.00 %, and the last 8 trials gained 0.0 % (modelled)",
    ]


@pytest.mark.parametrize(("noise", "slower", "ends"), [(0.0, 0.0, FLAT), (0.01, 0.0, FLAT), (0.0, 0.1, 56)])
def test_where_all_costs_tie_few_evaluations_are_enough(noise: float, slower: float, ends: int) -> None:
    """Of 2,000 configurations that cost the same, up to noise, few are measured; not if some are slower."""
    many = [candidate(P=p, L=block, S=s) for p in range(20) for block in range(10) for s in range(10)]
    draw = np.random.default_rng(0)

    def alike(trial: Trial) -> Measurement:
        cost_s = 1.0 + slower * (trial.configurations[0]["S"] == 9) + noise * draw.standard_normal()
        return result(cost_s, [1.0])

    played = play(bayesian, replace(search_over(many), noise=lambda _: noise), alike)

    assert len(played.trials) == ends


def test_gains_within_the_noise_are_no_progress() -> None:
    """Costs that fall by less than the measurement's uncertainty do not keep a search going."""
    falling = iter(np.linspace(1.0, 0.9, 300))

    def measure(_: Trial) -> Measurement:
        return result(float(next(falling)), [1.0])

    played = play(bayesian, replace(search_over(space()), noise=lambda _: 0.2), measure)

    assert len(played.trials) < 30


def test_without_patience_it_measures_the_whole_space() -> None:
    """Every trial once; that nothing is left needs no words."""
    told: list[str] = []
    search = replace(search_over(space()[:60], clocks=(900, 800)), tell=told.append)

    played = play(lambda s: bayesian(s, patience=math.inf), search, bowl)

    assert len(set(played.trials)) == len(played.trials) == 120
    assert told == []


def test_failures_are_avoided_and_never_stop_it() -> None:
    """With 3 in 8 configurations failing, few are met, and most searches end next to the best valid one."""
    lowest, failed, measured = [], 0, 0
    for seed in range(5):
        found = costs(crashing, play(bayesian, search_over(space(), seed=seed), crashing).trials)
        lowest.append(min(found))
        failed += sum(map(math.isinf, found))
        measured += len(found)

    assert np.median(lowest) <= 1.1 + 1e-9
    assert failed < 3 / 8 * measured


def test_a_search_without_any_valid_trial_ends() -> None:
    """After so many failures it gives up, and says why."""
    told: list[str] = []
    search = replace(search_over(space()), tell=told.append)

    played = play(bayesian, search, lambda _: result(math.inf, [1.0], [0]))

    assert played.best is None
    assert len(played.trials) == ALL_FAIL
    assert told == [f"done: all {ALL_FAIL} trials failed"]


def test_the_same_seed_goes_the_same_way_and_another_does_not() -> None:
    """Every draw comes from the seed."""
    paths = [play(bayesian, search_over(space(), seed=seed), bowl).trials for seed in (1, 1, 2)]

    assert paths[0] == paths[1] != paths[2]


def test_what_is_known_already_is_not_asked_for() -> None:
    """Measurements of `Search.prior` are learnt from, and the best of them is an answer like any other."""
    best = next(
        Trial((c.configuration,), None) for c in space() if makespan(bowl(Trial((c.configuration,)))) == 1
    )
    search = search_over(
        space(), prior={best: bowl(best), Trial((candidate(P=99).configuration,)): bowl(best)}
    )

    played = play(bayesian, search, bowl)

    assert best not in played.trials
    assert played.best == best


def test_it_ends_when_another_evaluation_does_not_pay() -> None:
    """An answer that is used once is not worth searching for; one that is used often is."""
    told: list[str] = []
    search = replace(search_over(space()), tell=told.append, payback=Payback(1.0, lambda _: 100.0))

    played = play(bayesian, search, bowl)
    often = play(bayesian, replace(search, payback=Payback(1e9, lambda _: 100.0)), bowl)

    assert len(played.batches) <= 2  # the start design, and perhaps a neighbour of its best
    assert len(often.batches) > 2
    assert told[0].startswith("done: another trial is expected to save ")
    assert told[0].endswith("% of what it costs over 1 run")


def evaluations_to(cost: float, search: Search, most: int) -> int:
    """How many it takes to find the bottom of the bowl; ``most`` where they do not."""
    met = itertools.count(1)

    def measure(trial: Trial) -> Measurement:
        found = bowl(trial)
        number = next(met)
        if makespan(found) < cost or number == most:
            raise _Found(number)
        return found

    with pytest.raises(_Found) as caught:
        play(partial(bayesian, patience=math.inf), search, measure)
    return int(caught.value.args[0])


class _Found(Exception):  # noqa: N818 - no error
    pass


def test_another_size_shortens_the_way() -> None:
    """What is known of other sizes, slower but alike, replaces most of the search."""
    points = tuple((c.configuration, 7 * makespan(bowl(Trial((c.configuration,))))) for c in space())
    knowing = tuple(PriorRun(0, {"N": n}, "", points) for n in (64, 256))
    needed: dict[bool, list[int]] = {True: [], False: []}
    for seed in range(3):
        for informed in (False, True):
            search = replace(
                search_over(space(), seed=seed), sizes=({"N": 128},), prior_runs=knowing if informed else ()
            )
            needed[informed].append(evaluations_to(1.01, search, 40))

    assert np.median(needed[True]) <= np.median(needed[False]) / 2


def test_other_sizes_that_mislead_do_not_stop_it() -> None:
    """Knowledge that says the opposite costs evaluations, not the answer."""
    points = tuple((c.configuration, 1 / makespan(bowl(Trial((c.configuration,))))) for c in space())
    search = replace(search_over(space()), prior_runs=(PriorRun(0, {"N": 64}, "", points),))

    played = play(bayesian, search, bowl)

    assert played.best is not None
    assert makespan(bowl(played.best)) <= 1.2


def test_what_other_runs_found_best_starts_a_joint_search() -> None:
    """Of several workloads, the best known configuration of each is tried together at the start."""
    one, two = space()[:40], space()[40:80]
    known = tuple(
        PriorRun(place, {}, "", ((chosen.configuration, 1.0),))
        for place, chosen in enumerate((one[7], two[9]))
    )

    played = play(bayesian, replace(search_over(one, two), prior_runs=known), bowl)

    assert Trial((one[7].configuration, two[9].configuration)) in played.batches[0]


def test_workloads_together_begin_with_four_drawn_trials() -> None:
    """However many tunables vary, of several workloads four trials are drawn beside the defaults."""
    search = search_over(space()[:40], space()[40:80])

    played = play(bayesian, search, bowl)

    assert played.batches[0][0] == Trial(search.defaults, None)
    assert len(played.batches[0]) == 1 + LEAST_START


def test_roles_and_values_that_nobody_knows_do_not_matter() -> None:
    """Unknown role names, truths and fractions among the values are searched like any."""
    candidates = [
        candidate(a=a, b=b, c=c) for a in (0.5, 1.5) for b in (True, False) for c in ("x", "y", "z")
    ]
    search = replace(search_over(candidates), roles=({"colour": "c"},))

    played = play(bayesian, search, lambda t: result(1 + float(t.configurations[0]["a"]), [1.0]))

    assert played.best is not None
    assert played.best.configurations[0]["a"] == 0.5


@pytest.fixture(scope="module")
def recorded() -> RecordedSpace:
    return open_recording("h200").space(("scan-lf:N=8192",))


def cost(measurement: Measurement) -> float:
    return measurement.makespan_s or math.inf


def search_recorded(space: RecordedSpace, seed: int) -> Search:
    return search_of(space, cost, seed=seed)


def test_it_comes_close_to_the_optimum_of_a_recorded_space(recorded: RecordedSpace) -> None:
    """80 configurations measured on an H200: all of five seeds within 2 % of the best, in 50 evaluations."""
    lowest = min(map(cost, recorded.trials.values()))
    logs = [play_to_budget(bayesian, search_recorded(recorded, seed), recorded.look) for seed in range(5)]

    assert max(map(len, logs)) <= 50
    assert max(min(cost(measurement) for _, measurement in log) for log in logs) <= 1.02 * lowest


def test_a_recorded_space_with_holes_is_searched_around_them(recorded: RecordedSpace) -> None:
    """What was not recorded counts as failed, and something valid is found all the same."""
    kept = {trial: m for i, (trial, m) in enumerate(recorded.trials.items()) if i % 2}
    holes = replace(recorded, trials=kept)

    log = play_to_budget(bayesian, search_recorded(recorded, 0), holes.look)

    assert any(measurement.ok for _, measurement in log)
    assert all(r.status in (Status.OK, Status.LAUNCH_ERROR) for _, m in log for r in m.results)


def timed(each_s: float, measure: Measure = bowl) -> Measure:
    """Measurements that end one after another, with so much time between them."""
    now_s = itertools.count(1)
    return lambda trial: replace(measure(trial), ended_s=each_s * next(now_s))


def test_a_short_sweep_measures_all_and_the_best_early() -> None:
    """240 evaluations of 0.1 s are swept: each once, the most promising first, and the user is told."""
    told: list[str] = []
    search = replace(search_over(space()), tell=told.append)

    played = play(partial(bayesian, sweep_s=30.0), search, timed(0.1))

    assert len(set(played.trials)) == len(played.trials) == 240
    assert told[0] == (
        "bayesian: all 240 trials are measured, the most promising first: 24.0 s at 100 ms each"
    )
    assert min(costs(bowl, played.trials[:60])) == 1.0


@pytest.mark.parametrize(
    ("each_s", "changed"),
    [
        (0.2, {}),
        (0.0, {}),
        (0.1, {"label": "modelled"}),
        (0.1, {"payback": Payback(1e9, lambda _: 1e-6)}),
    ],
    ids=["too long", "no times", "seconds of a model", "may not pay"],
)
def test_nothing_else_is_swept(each_s: float, changed: dict[str, Any]) -> None:
    """A sweep that takes too long, by measured seconds, does not begin; nor one that need not pay."""
    search = replace(search_over(space()), **changed)

    played = play(partial(bayesian, sweep_s=30.0), search, timed(each_s))

    assert len(played.trials) < 120


def test_a_sweep_that_gets_long_is_given_up() -> None:
    """Evaluations that begin to take ten times as long end a sweep; the search goes on by its own rule."""
    now_s = 0.0

    def slowing(trial: Trial) -> Measurement:
        nonlocal now_s
        slow = now_s > 3.0
        now_s += 1.0 if slow else 0.1
        return replace(bowl(trial), ended_s=now_s)

    played = play(partial(bayesian, sweep_s=30.0), search_over(space()), slowing)

    assert 30 < len(played.trials) < 120


def test_what_is_pruned_costs_nothing_and_is_asked_for_once() -> None:
    """Trials that compiling rules out are no failures to learn from, and no evaluations."""

    def pruned(trial: Trial) -> Measurement:
        if trial.configurations[0]["S"] == 3:
            return Measurement((WorkloadResult(Status.PRUNED),))
        return bowl(trial)

    played = play(bayesian, search_over(space()), pruned)

    assert len(set(played.trials)) == len(played.trials)
    assert played.best is not None
    assert makespan(bowl(played.best)) <= 1.1


def test_what_comes_next_is_mostly_announced() -> None:
    """Most of what is asked for after the start was announced just before, a few trials at a time."""
    announced: list[list[Trial]] = []
    search = replace(search_over(space()), expect=lambda trials: announced.append(list(trials)))

    played = play(bayesian, search, bowl)

    assert max(map(len, announced)) <= AHEAD
    later = [trial for (trial,) in played.batches[-len(announced) + 1 :]]
    told = [trial in trials for trial, trials in zip(later, announced[:-1], strict=True)]
    assert sum(told) >= 0.6 * len(told)


def test_a_measurement_without_a_cost_is_a_failure() -> None:
    """NaN and infinite costs of runs that went well are never learnt as costs."""

    def measure(trial: Trial) -> Measurement:
        valid = bowl(trial)
        odd = trial.configurations[0]["S"] == 1
        return Measurement((WorkloadResult(Status.OK, 1.0),), math.nan) if odd else valid

    played = play(bayesian, search_over(space()), measure)

    assert played.best is not None
    assert math.isfinite(makespan(measure(played.best)))


def test_what_fails_is_left_alone_when_the_optimum_is_found() -> None:
    """Where the largest blocks fail, a third of all, hardly any is asked for once that is known."""

    def measure(trial: Trial) -> Measurement:
        return result(math.inf, [1.0], [0]) if trial.configurations[0]["L"] in (512, 1024) else bowl(trial)

    for seed in range(2):
        search = search_over(space(), seed=seed)
        found = costs(measure, play(partial(bayesian, patience=math.inf), search, measure, 70).trials)

        assert min(found) == pytest.approx(1.0)
        assert sum(map(math.isinf, found[20:])) <= 2
        assert sum(map(math.isinf, found)) <= 10


def test_promising_trials_are_of_the_kind_that_worked() -> None:
    """What stands in for failed trials of the start rather works; while nothing is known, it is any trial."""
    draw = np.random.default_rng(0)
    joint = Joint(search_over(space()), draw, [])
    learner = Learner(joint, draw, None)
    assert len(learner.promising()) == 240

    for row in joint.pool(draw)[::11]:
        large = joint.trial(row).configurations[0]["L"] in (512, 1024)
        learner.learn(row, math.inf if large else 1.0, 0.0)

    sizes = [joint.trial(row).configurations[0]["L"] for row in learner.promising()]
    assert set(sizes) == {32, 64, 128, 256}


@pytest.mark.parametrize("seed", range(3))
def test_a_climb_ends_no_lower_than_it_began(seed: int) -> None:
    """A step goes to an unmeasured neighbour that promises more, and nowhere where none does."""
    draw = np.random.default_rng(seed)
    joint = Joint(search_over(space()), draw, [])
    learner = Learner(joint, draw, None)
    for row in joint.pool(draw)[draw.choice(240, 12, replace=False)]:
        learner.learn(row, makespan(bowl(joint.trial(row))), 0.0)
    outlook = learner.outlook()
    assert outlook is not None
    climb = [Proposal(outlook.rows[0], float(np.exp(outlook.log_gain[0]) * outlook.scale))]
    while (higher := learner.climbed(climb[-1])) is not climb[-1]:
        climb.append(higher)

    gains = [one.gain for one in climb]
    assert len(gains) > 1
    assert gains == sorted(set(gains))
    assert tuple(climb[-1].row.tolist()) not in learner.measured


def test_costs_without_noise_are_nearer_to_the_true_ones() -> None:
    """Of noisy readings of a smooth valley the surrogate makes better ones; of sure readings none others."""
    draw = np.random.default_rng(0)
    search = search_over(space())
    trials = [Trial((one.configuration,)) for one in search.candidates[0]][::2]
    true = costs(bowl, trials)
    factors = np.exp(0.1 * draw.standard_normal(len(trials)))
    noisy = {
        trial: result(cost * factor, [1.0]) for trial, cost, factor in zip(trials, true, factors, strict=True)
    }

    expected = expected_costs(replace(search, noise=lambda _: 0.1), noisy)
    sure = expected_costs(search, noisy)

    errors = [abs(math.log(expected[trial] / cost)) for trial, cost in zip(trials, true, strict=True)]
    assert np.mean(errors) < 0.7 * np.mean(np.abs(np.log(factors)))
    assert [sure[trial] for trial in trials] == pytest.approx([makespan(noisy[trial]) for trial in trials])
