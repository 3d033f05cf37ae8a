"""What benchmarks/search.py compares: the same space on both sides, and evaluations counted the same way."""

import importlib
import importlib.metadata
import inspect
import itertools
import json
import math
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.model.errors import InputError
from tuner.model.jobs import DeviceIdentity
from tuner.model.plan import Configuration, TunableValue
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.recordings.files import open_recording
from tuner.recordings.values import RecordedSpace, RecordedWorkload
from tuner.space.search_view import Candidate

ROOT = Path(__file__).parent.parent
BENCHMARKS = str(ROOT / "benchmarks")
USERS = ROOT / "benchmarks/spaces/users-h200.zip"
TUNABLES: dict[str, tuple[TunableValue, ...]] = {"L": (32, 64, 128), "load": ("plain", "wide")}
TIMES_MS = {(32, "plain"): 4.0, (64, "plain"): 2.0, (128, "plain"): math.inf, (64, "wide"): 1.0}
CONFIGURATIONS = st.sampled_from(["32,plain", "64,plain", "128,plain", "64,wide", "not,legal"])


@pytest.fixture(scope="module")
def benchmark() -> SimpleNamespace:
    """The benchmark's modules, which are scripts side by side."""
    sys.path.insert(0, BENCHMARKS)
    try:
        names = ("search", "search_games", "search_scores")
        return SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    finally:
        sys.path.remove(BENCHMARKS)


def script(name: str) -> ModuleType:
    """A script of the benchmarks, which import each other side by side."""
    sys.path.insert(0, BENCHMARKS)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(BENCHMARKS)


def space() -> RecordedSpace:
    trials = {}
    for values, time_ms in TIMES_MS.items():
        trial = Trial((Configuration(tuple(zip(TUNABLES, values, strict=True))),))
        failed = Measurement((WorkloadResult(Status.COMPILE_ERROR),))
        worked = Measurement((WorkloadResult(Status.OK, time_ms / 1e3),), time_ms / 1e3)
        trials[trial] = worked if math.isfinite(time_ms) else failed
    candidates = tuple(Candidate(trial.configurations[0], 1.0, 0, 0, 0) for trial in trials)
    workload = RecordedWorkload(
        name="made-up:N=8",
        kernel="made-up",
        family="",
        sizes={"N": 8},
        batch=1,
        fingerprint="",
        tunables={**TUNABLES, "L": (16, *TUNABLES["L"])},
        roles={},
        default=candidates[0].configuration,
        candidates=candidates,
    )
    identity = DeviceIdentity("", "A GPU", "A GPU", driver="", runtime="", modelled=False)
    return RecordedSpace((workload,), identity, None, trials)


def test_a_converted_space_reads_back_as_it_was(benchmark: SimpleNamespace, tmp_path: Path) -> None:
    """What Kernel Tuner is given has the configurations, times, failures and device of the space."""
    game = benchmark.search_games.Game("made up", "made", space())
    path = benchmark.search.write_cache(game, tmp_path)
    recording = open_recording(path)
    again = recording.space(recording.names[0])
    assert again.identity.name == "A GPU"
    assert list(again.trials) == list(game.space.trials)
    for trial, found in again.trials.items():
        expected = game.space.trials[trial]
        assert found.status is expected.status
        assert found.makespan_s == pytest.approx(expected.makespan_s)


def test_a_converted_space_ends_as_kernel_tuner_ends_its_files(benchmark: SimpleNamespace) -> None:
    """Kernel Tuner takes a cache file for one that was cut off unless it ends with three braces."""
    game = benchmark.search_games.Game("made up", "made", space())
    text = json.dumps(benchmark.search_games.kernel_tuner_cache(game), separators=(",", ":"))
    assert text.endswith("}}}")


def test_only_values_that_occur_are_offered(benchmark: SimpleNamespace) -> None:
    """A value no configuration has would only make the other side's value lists longer."""
    game = benchmark.search_games.Game("made up", "made", space())
    assert game.tunables == {"L": [32, 64, 128], "load": ["plain", "wide"]}


def test_tunables_of_several_workloads_stay_apart(benchmark: SimpleNamespace) -> None:
    """In a joint space equal names of two workloads are two tunables, and keys hold the values of both."""
    one = space()
    trials = {
        Trial((a.configurations[0], b.configurations[0])): Measurement(
            (WorkloadResult(Status.OK, 1.0),) * 2, 1.0
        )
        for a in one.trials
        for b in one.trials
    }
    joint = RecordedSpace(one.workloads * 2, one.identity, None, trials)
    game = benchmark.search_games.Game("joint", "joint", joint)
    assert list(game.tunables) == ["w0_L", "w0_load", "w1_L", "w1_load"]
    assert "32,plain,64,wide" in game.times_s
    assert len(game.times_s) == len(trials)


def test_partial_configurations_lead_on_when_a_legal_one_has_their_values(
    benchmark: SimpleNamespace,
) -> None:
    """Kernel Tuner's solver may drop a branch exactly when no configuration of the space lies in it."""
    game = benchmark.search_games.Game("made up", "made", space())
    legal = benchmark.search.legal_of(game)
    assert legal(64, "wide")
    assert not legal(32, "wide")
    assert legal.leads_on({"load": "wide"})
    assert legal.leads_on({"load": "plain", "L": 128})
    assert not legal.leads_on({"load": "wide", "L": 128})


def test_pyatf_is_told_what_its_constraints_are_about(benchmark: SimpleNamespace) -> None:
    """A constraint names its tunables in its signature, and holds for the start of a legal configuration."""
    game = benchmark.search_games.Game("made up", "made", space())
    leads_on = benchmark.search.constraint(benchmark.search.legal_of(game), ["L", "load"])
    assert list(inspect.signature(leads_on).parameters) == ["L", "load"]
    assert leads_on(L=64, load="wide")
    assert not leads_on(L=32, load="wide")


def test_searches_of_others_have_the_version_of_their_package(
    benchmark: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search is kept by the version of its package, and a package that is missing is named."""
    monkeypatch.setattr(importlib.metadata, "version", {"kernel_tuner": "1.5.0"}.__getitem__)
    assert benchmark.search.peer_version("pso") == "1.5.0"

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(InputError, match="pyATF is not installed: pip install"):
        benchmark.search.peer_version("pyatf:auc_bandit")


@given(
    asked=st.lists(st.lists(CONFIGURATIONS, max_size=4), max_size=8),
    budget=st.integers(min_value=1, max_value=5),
)
def test_an_evaluation_is_a_configuration_not_tried_before(
    benchmark: SimpleNamespace, asked: list[list[str]], budget: int
) -> None:
    """Repeats and illegal configurations cost nothing, failures count, and the budget holds."""
    game = benchmark.search_games.Game("made up", "made", space())
    record = benchmark.search_games.Record(game.times_s, budget)
    for batch in asked:
        record.asked(batch)
        record.answered()
    play = record.finished(seed=0)
    tried = list(dict.fromkeys(name for batch in asked for name in batch if name in game.times_s))[:budget]
    assert play.evaluations == len(tried)
    assert play.failed == tried.count("128,plain")
    times_s = [game.times_s[name] for name in tried]
    best = min(times_s, default=math.inf)
    assert (play.best[-1][1] if play.best else math.inf) == best
    assert [number for number, _ in play.best] == sorted({number for number, _ in play.best})


def test_our_policies_are_counted_like_the_others(benchmark: SimpleNamespace) -> None:
    """A policy that tries everything finds the optimum and is charged for the failure too."""
    game = benchmark.search_games.Game("made up", "made", space())
    play = benchmark.search_games.play_policy(game, "random", seed=3, budget=10)
    assert (play.evaluations, play.failed, play.error) == (4, 1, "")
    assert play.best[-1][1] == game.optimum_s == pytest.approx(1e-3)


def test_a_crash_keeps_what_was_found_before(benchmark: SimpleNamespace) -> None:
    """A search that crashes is scored by what it found, and its error is kept."""
    record = benchmark.search_games.Record({"a": 2.0}, 10)

    def crashing() -> None:
        record.asked(["a"])
        raise ValueError("lost the way\nand more")

    play = benchmark.search_games.guarded(record, 7, crashing)
    assert (play.seed, play.evaluations, play.error) == (7, 1, "ValueError: lost the way")


def test_a_search_that_goes_round_in_circles_is_ended(
    benchmark: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that asks for the same configuration for ever ends, and what it found counts."""
    monkeypatch.setattr(benchmark.search_games, "IDLE_LIMIT_S", 0.01)
    record = benchmark.search_games.Record({"a": 2.0}, 10)

    def circling() -> None:
        while True:
            record.asked(["a"])

    play = benchmark.search_games.guarded(record, 0, circling)
    assert play.evaluations == 1
    assert play.error.startswith("Stuck: nothing new")


def space_of(size: int) -> SimpleNamespace:
    """A space of so many configurations, whose fastest takes two seconds."""
    return SimpleNamespace(name="a space", group="a", optimum_s=2.0, times_s=range(size))


def test_scores_are_medians_over_seeds(benchmark: SimpleNamespace) -> None:
    """Efficiency and evaluations to a share come from the middle seed; mean and worst tenth are told."""
    plays = tuple(
        benchmark.search_games.Play(seed, 100, 0, best, (1.0, 2.0))
        for seed, best in enumerate([((1, 4.0), (60, 2.0)), ((1, 2.5),), ((2, 10.0), (30, 2.0))])
    )
    result = benchmark.search_scores.scored(space_of(500), "some", plays, (20, 100), ours=False)
    assert [result.efficiency(n) for n in (1, 20, 50, 100)] == [0.5, 0.5, 0.8, 1.0]
    assert result.evaluations_to(0.9) == 60
    assert [result.mean(n) for n in (20, 100)] == pytest.approx([(0.5 + 0.8 + 0.2) / 3, (1 + 0.8 + 1) / 3])
    assert [result.worst_tenth(n) for n in (20, 100)] == pytest.approx([0.26, 0.84])
    line = "| some | 3 | 50.0 | 100.0 | 50/93 | 26/84 | 60 | 60 | 1 (mean 2) |"
    assert line in benchmark.search_scores.tables([result])
    assert benchmark.search_scores.tables([result]) == benchmark.search_scores.tables(
        [benchmark.search_scores.result_of(json.loads(json.dumps(benchmark.search_scores.row_of(result))))]
    )


def test_a_search_that_ended_early_or_crashed_is_said(benchmark: SimpleNamespace) -> None:
    """The table names crashes with their error, early ends, and strategies that could not start."""
    make = benchmark.search_games.Play
    ended = (make(0, 30, 0, ((1, 2.0),), None), make(1, 12, 0, ((1, 2.0),), None, "KeyError: 'x'"))
    idle = (make(0, 0, 0, (), None, "ModuleNotFoundError: No module named 'skopt'"),)
    results = [
        benchmark.search_scores.scored(space_of(500), name, plays, (20, 100), ours=False)
        for name, plays in (("quitter", ended), ("skopt", idle))
    ]
    text = benchmark.search_scores.tables(results)
    assert "quitter: 1 of 2 searches broke off (KeyError: 'x')" in text
    assert "quitter: 1 of 2 searches ended by themselves, median 30 evaluations" in text
    assert "skopt did not start: `ModuleNotFoundError" in text


@pytest.mark.parametrize("name", ["search-public", "search-pyatf", "search-h200"])
def test_the_tables_of_the_page_are_those_of_the_results(benchmark: SimpleNamespace, name: str) -> None:
    """The page holds the brief tables that the stored results make, which are lines of all tables."""
    document = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())
    begin, end = benchmark.search_scores.marks(name)
    results = [benchmark.search_scores.result_of(row) for row in document["rows"]]
    text = benchmark.search_scores.brief(results)
    assert set(text.splitlines()) <= {*benchmark.search_scores.tables(results).splitlines()}
    assert begin + text + end in (ROOT / "docs/lab/methodologies.md").read_text()


@pytest.mark.parametrize("ends", [False, True])
def test_a_replay_by_another_loop_gives_the_same_digits(benchmark: SimpleNamespace, ends: bool) -> None:
    """The row of a result is repeated by a script that shares neither its loop nor its scores."""
    replay, games = script("search_replay"), benchmark.search_games
    game = next(game for game in games.games_of(str(USERS)) if "transpose" in game.name)
    plays = [games.play_policy(game, "local", seed, 30, ends=ends) for seed in range(2)]
    row = benchmark.search_scores.row_of(
        benchmark.search_scores.scored(game, "local", plays, (5, 30), ours=True)
    )

    found = replay.scores(
        game.space, [replay.played(game.space, "local", seed, 30, ends=ends) for seed in range(2)], (5, 30)
    )

    assert {name: row.get(name, []) for name in found} == found


@given(st.lists(st.sampled_from([1.0, 2.0, 3.5, math.inf]), min_size=1, max_size=6), st.integers(1, 8))
def test_what_random_draws_reach_is_the_mean_over_all_draws(times_s: list[float], draws: int) -> None:
    """Every set of so many configurations is as likely as any other; failed ones have no efficiency."""
    expected_of_random = script("search_scores").expected_of_random
    best, sets = min(times_s), itertools.combinations(times_s, min(draws, len(times_s)))
    shares = [0.0 if math.isinf(min(drawn)) else best / min(drawn) for drawn in sets]

    assert expected_of_random(times_s, draws) == pytest.approx(sum(shares) / len(shares))
