"""The search for a Pareto front: what a trial adds to it, a run, and the choice of a point."""

import json
import math
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_process import SMALL, document, tuner
from examples import FEW
from hypothesis import given
from hypothesis import strategies as st
from policy_driver import blocks, candidate, play, result, search_over
from tuner.policies.pareto import pareto, reference_of
from tuner.policies.surrogate.outlook import front_of, hypervolume, log_expected_hypervolume_improvement
from tuning_runs import REQUEST, tune

from tuner.daemon.answers import replies
from tuner.daemon.interface import Question
from tuner.database.runs import Store
from tuner.measurement.paired import PairedRepeats
from tuner.model import registry
from tuner.model.errors import InputError
from tuner.model.objective import Objective
from tuner.model.plan import Configuration
from tuner.model.trial import Energy, Measurement, Status, Trial, WorkloadResult, non_dominated
from tuner.search.answer import MOST_POINTS, points_to_confirm
from tuner.search.answer import front_of as front_of_run
from tuner.space.search_view import Criterion, Search

COST = st.integers(1, 12).map(float)
POINTS = st.lists(st.tuples(COST, COST), min_size=1, max_size=24)


def dominates(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one != other and one[0] <= other[0] and one[1] <= other[1]


@given(POINTS)
def test_the_front_is_what_nothing_dominates(points: list[tuple[float, float]]) -> None:
    """No point of it dominates another, every other point is dominated or equal, and time ascends."""
    front = [points[i] for i in non_dominated(points)]

    assert front == sorted(set(front))
    assert not any(dominates(one, other) for one in points for other in front)
    for point in set(points) - set(front):
        assert any(dominates(one, point) for one in front)


def test_a_failure_is_on_no_front() -> None:
    """Costs that are not finite are no point."""
    assert non_dominated([(math.inf, 1.0), (1.0, math.nan), (2.0, 2.0)]) == [2]
    assert non_dominated([]) == []


@given(POINTS, st.tuples(COST, COST))
def test_another_point_never_lowers_the_hypervolume(
    points: list[tuple[float, float]], more: tuple[float, float]
) -> None:
    """It counts the unit squares that a front dominates, and grows only by a point that nothing dominates."""
    reference = np.array([10.0, 10.0])
    before, after = (hypervolume(np.array(found), reference) for found in (points, [*points, more]))
    cells = sum(any(a <= x and b <= y for a, b in points) for x in range(10) for y in range(10))

    assert before == cells
    assert after >= before
    known = any(one == more or dominates(one, more) for one in points)
    assert (after > before) == (not known and max(more) < 10.0)


@FEW
@given(
    points=st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), max_size=6),
    mean=st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
    deviation=st.tuples(st.floats(0.05, 1), st.floats(0.05, 1)),
)
def test_the_expected_improvement_is_that_of_draws(
    points: list[tuple[float, float]], mean: tuple[float, float], deviation: tuple[float, float]
) -> None:
    """The closed form is the mean growth of the hypervolume over draws, within their standard error."""
    reference = np.array([1.0, 1.0])
    front = front_of(np.array(points).reshape(-1, 2))
    draws = np.random.default_rng(1).normal(mean, deviation, size=(400, 2))
    present = hypervolume(front, reference)
    growth = [hypervolume(np.vstack([front, draw]), reference) - present for draw in draws]

    found = np.exp(
        log_expected_hypervolume_improvement(np.array([mean]), np.array([deviation]), front, reference)
    )

    error = np.std(growth) / math.sqrt(len(draws))
    assert found[0] == pytest.approx(np.mean(growth), abs=float(5 * error + 1e-3))


def test_hopeless_trials_can_be_compared() -> None:
    """Where an expectation underflows, its logarithm is finite, and what is nearer the front is higher."""
    mean = np.array([[50.0, 50.0], [40.0, 50.0], [40.0, 40.0]])
    front = np.array([[0.0, 0.5], [0.5, 0.0]])

    found = log_expected_hypervolume_improvement(mean, np.full((3, 2), 0.1), front, np.ones(2))

    assert np.isfinite(found).all()
    assert (np.diff(found) > 0).all()


def test_the_reference_lies_beyond_the_ends() -> None:
    """Both ends of a front dominate a part of the plane, and so does a front of one point."""
    for front in (np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[2.0, 3.0]])):
        assert all(hypervolume(end[None, :], reference_of(front)) > 0 for end in front)


# --- the policy ------------------------------------------------------------------------------------

CLOCKS = (900, 800, 700, 600, 500, 400)


def traded(trial: Trial) -> Measurement:
    """A larger block is slower, a lower clock too; joules fall with the clock, and rise again at the end."""
    slow = float(trial.configurations[0]["L"]) / 512
    clock = (trial.clock_mhz or 900) / 900
    limit = (trial.power_limit_w or 300) / 300
    time_s = (1.0 + slow) * (0.3 + 0.7 / clock) / limit**0.5
    joules = (1.0 + slow) * (0.2 + clock**2 + 0.05 / clock**2) * limit**0.5
    return measured(time_s, joules)


def measured(time_s: float, joules: float, relative: float = 0.001) -> Measurement:
    ok = WorkloadResult(Status.OK, time_s)
    energy = Energy(joules, relative * joules, joules / time_s, "made up", "gpu")
    return Measurement((ok,), time_s, makespan_uncertainty_s=relative * time_s, energy=energy)


def search_for_a_front(search: Search) -> Search:
    both = (Objective("time"), Objective("energy"))
    criteria = tuple(Criterion(one.known, one.relative_uncertainty) for one in both)
    return replace(search, cost=Objective("pareto").cost, criteria=criteria)


def test_it_finds_the_front_in_fewer_trials_than_there_are() -> None:
    """Blocks, clocks and power limits are dimensions: every limit is met, and most of the front is found."""
    space = [candidate(threads=32 * n, L=32 * n) for n in range(1, 25)]
    search = search_for_a_front(search_over(space, clocks=CLOCKS))
    told: list[str] = []
    search = replace(search, power_limits_w=(300, 250, 200), tell=told.append, label="modelled")
    every = [
        Trial((one.configuration,), setting.clock_mhz, setting.power_limit_w)
        for one in space
        for setting in search.settings
    ]
    points = np.log([_costs(traded(trial)) for trial in every])

    played = play(pareto, search, traded)

    met = np.log([_costs(traded(trial)) for trial in played.trials])
    reference = reference_of(front_of(points))
    assert played.ended
    assert told[-1].endswith(" % (modelled)")
    assert len(played.trials) < len(every) / 2
    assert {trial.power_limit_w for trial in played.trials} == {300, 250, 200}
    assert hypervolume(met, reference) > 0.97 * hypervolume(points, reference)
    assert played.best == min(played.trials, key=lambda trial: math.prod(_costs(traded(trial))))


def _costs(measurement: Measurement) -> tuple[float, float]:
    return Objective("time").known(measurement), Objective("energy").known(measurement)


def test_patience_ends_a_search_that_adds_nothing() -> None:
    """With a number of evaluations stated, as many without growth of the hypervolume end it."""
    told: list[str] = []
    search = search_for_a_front(search_over(blocks(*range(32, 1024, 32)), clocks=CLOCKS))
    search = replace(search, tell=told.append)

    played = play(lambda told: pareto(told, patience=5), search, traded)

    assert played.ended
    assert told[-1] == "done: the last 5 trials added nothing to the front"


def test_a_failing_space_ends() -> None:
    """Where all fails it ends after as many evaluations as any Bayesian search."""
    search = search_for_a_front(search_over(blocks(*range(32, 8192, 32))))

    played = play(pareto, search, lambda _: result(math.inf, [1.0], [0]))

    assert played.ended
    assert played.best is None
    assert len(played.trials) < len(search.candidates[0])


# --- the front of a run ----------------------------------------------------------------------------


def trial(number: int) -> Trial:
    return Trial((Configuration({"P": number}),))


@given(POINTS, st.floats(0, 0.2))
def test_points_of_a_front_can_be_told_apart(points: list[tuple[float, float]], relative: float) -> None:
    """Each is slower than the one before and takes fewer joules, both beyond the 95 % interval."""
    trials = {trial(i): measured(*point, relative) for i, point in enumerate(points)}

    front = front_of_run(trials, PairedRepeats())

    assert front
    for faster, slower in pairwise(front):
        one, other = _costs(trials[faster]), _costs(trials[slower])
        assert one[0] * (1 + 2 * relative) < other[0]
        assert one[1] > other[1] * (1 + 2 * relative)


def test_ties_are_broken_for_what_is_surely_less() -> None:
    """Of equal times the fewer joules count, of equal joules the faster; a failure is on no front."""
    trials = {
        trial(0): measured(1.000, 9.0),
        trial(1): measured(1.001, 5.0),  # as fast as the first, and fewer joules
        trial(2): measured(2.000, 4.999),  # as many joules as the second, and slower
        trial(3): measured(3.000, 3.0),
        trial(4): Measurement((WorkloadResult(Status.CRASHED),)),
    }

    assert front_of_run(trials, PairedRepeats()) == (trial(1), trial(3))


def test_a_long_front_is_measured_again_in_part() -> None:
    """So many points are, evenly, with both ends; also those that one window cannot tell apart."""
    trials = {trial(i): measured(1 + 1e-4 * i, 9 - 1e-3 * i) for i in range(100)}

    chosen = points_to_confirm(trials)

    assert len(chosen) == MOST_POINTS
    assert (chosen[0], chosen[-1]) == (trial(0), trial(99))
    assert points_to_confirm({}) == ()


@pytest.mark.parametrize("policy", registry.names("front"))
def test_every_point_was_measured_turn_by_turn(policy: str, tmp_path: Path) -> None:
    """Whatever policy searched, the front of a run is of trials that were measured again three times."""
    with Store(tmp_path / "tuner.db") as store:
        request = replace(REQUEST, objective="pareto", policy=policy, clocks="600:900:100", budget=12)
        outcome = tune(request, store)

    again = outcome.paired.joined()
    assert outcome.front
    assert outcome.answer in outcome.front
    for place in outcome.front:
        assert again[outcome.trials[place][0]].repeats >= 3
    times = [_costs(outcome.trials[place][1])[0] for place in outcome.front]
    assert times == sorted(times)
    costs = [math.prod(_costs(outcome.trials[place][1])) for place in outcome.front]
    assert math.prod(_costs(outcome.trials[outcome.answer or 0][1])) == min(costs)
    assert outcome.tied == ()
    assert all(one.estimated_j is None for _, one in outcome.trials), "none is spared a window for joules"


# --- ``--objective pareto``: a run, what is stored of it, and the choice of a point.

FRONT = ("scan-lf:N=64", "--device", "sim:h200", "--objective", "pareto", "--clocks", "345:1980:300")


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run for the front, and one for energy."""
    path = tmp_path_factory.mktemp("fronts") / "tuner.db"
    tuner("run", *FRONT, "--budget", "20", "--database", path, "--json", path.with_name("run.json"))
    tuner("run", *SMALL, "--budget", "3", "--database", path)
    return path


@pytest.fixture(scope="module")
def told(db: Path) -> Any:
    """The document that the run wrote."""
    return json.loads(db.with_name("run.json").read_text())


def test_a_stored_front_is_the_one_that_was_found(db: Path, told: Any) -> None:
    """Points are fastest first, with their intervals and clocks; the database gives them back unchanged."""
    front = told["front"]
    times, joules = ([point["trial"][key] for point in front] for key in ("time_s", "energy_j"))

    assert len(front) > 1
    assert times == sorted(times)
    assert joules == sorted(joules, reverse=True)
    assert len({point["trial"]["clock_mhz"] for point in front}) > 1
    assert all(point["trial"]["energy_j_uncertainty"] > 0 and point["trial"]["confirmed"] for point in front)
    assert told["best"] in [point["trial"] for point in front]
    assert document("show", "1", "--database", db)["front"] == front
    assert document("best", *FRONT[:5], "--database", db)["front"] == front


@pytest.mark.parametrize("within", ["0%", "3%", "1000%"])
def test_a_time_budget_chooses_a_point(db: Path, told: Any, within: str) -> None:
    """The point of least energy that is at most so much slower than the fastest: the same for all readers."""
    slowest_s = told["front"][0]["trial"]["time_s"] * (1 + float(within[:-1]) / 100)
    allowed = [point for point in told["front"] if point["trial"]["time_s"] <= slowest_s]
    wanted = min(allowed, key=lambda point: point["trial"]["energy_j"])
    words = ("--max-slowdown", within, "--database", db)

    shown = document("show", "1", *words)
    best = document("best", *FRONT[:5], *words)
    use = tuner("export", "1", *words).stderr

    assert shown["best"] == best["best"] == wanted["trial"]
    assert shown["workloads"][0]["best"] == wanted["parts"][0]
    assert shown["against_default"] == wanted["against_default"]
    saved = shown["default"]["energy_j"] * wanted["against_default"]["energy_saving"]
    assert shown["break_even"]["saving_per_run"] == pytest.approx(saved)
    assert f"at most {float(within[:-1]):g} % slower than the fastest" in tuner("show", "1", *words).stdout
    (configuration,) = wanted["trial"]["configurations"].values()
    assert f", {configuration['P']}, {configuration['L']}, {configuration['r']}, " in use  # of the template


def test_a_limit_without_a_run_points_to_the_front(db: Path) -> None:
    """The command that is named prints the point; other objectives are not what it is of."""
    asked = (*FRONT[:3], "--max-slowdown", "3%", "--database", db)
    found = tuner("best", *asked, "--objective", "energy")
    (hint,) = (line for line in found.stderr.splitlines() if line.startswith("run 1 has a front"))
    command = shlex.split(hint.partition("`tuner ")[2].removesuffix("`"))

    assert found.exit_code == 1
    assert "at most 3 % slower than the fastest" in tuner(*command).stdout
    assert "has a front" not in tuner("best", *asked, "--objective", "edp").stderr


def test_the_report_has_a_table_of_the_front(db: Path, told: Any) -> None:
    """On the terminal and on the page: each point with its number, labelled as modelled."""
    text = " ".join(tuner("show", "1", "--database", db).stdout.split())
    page = tuner("report", "1", "--output", "-", "--database", db).stdout
    title = (
        f"Pareto front of time and energy (modelled; {len(told['front'])} points, fastest first; ± is 95 %)"
    )

    assert title in text
    assert "the answer is the point of least energy × time" in text
    assert title in page
    assert "The Pareto front" in page


def test_a_run_without_a_front_has_no_point(db: Path) -> None:
    """Where a point of a front is wanted of another run, that is refused, and what has one is named."""
    for command in (("show", "2"), ("export", "2")):
        found = tuner(*command, "--max-slowdown", "5%", "--database", db)
        assert found.exit_code == 2
        assert "--max-slowdown 5%: chooses a point of a Pareto front" in found.stderr
        assert "tune with --objective pareto" in found.stderr
    assert tuner("export", "1", "--format", "t4", "--max-slowdown", "5%", "--database", db).exit_code == 2


def test_a_damaged_front_is_said(db: Path, told: Any, tmp_path: Path) -> None:
    """A file whose points lack what a run writes is refused by what is wrong, not by a traceback."""
    file = tmp_path / "run.json"
    file.write_text(json.dumps({**told, "front": [{"number": 1, "trial": {}}]}))
    for command in ("show", "export"):
        found = tuner(command, file, "--max-slowdown", "5%", "--database", db)
        assert found.exit_code == 2
        assert "not a document of `tuner run --json`: front[0].expanded is missing" in found.stderr


def test_a_daemon_serves_the_answer_and_refuses_a_choice() -> None:
    """Its answer to the objective is the point of least energy × time; another point is chosen elsewhere."""
    replies.check(Question(("scan-lf:N=64",), "pareto"))
    with pytest.raises(InputError, match="choose a point of it afterwards: `tuner show`, `tuner best`"):
        replies.check(Question(("scan-lf:N=64",), "pareto", max_slowdown=0.05))
