"""Comparing policies: the metric, the words, the plays, odd policies among them, and the document."""

import contextlib
import math
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from cli_process import PATIENCE_S
from hypothesis import given
from hypothesis import strategies as st
from small_spaces import space

from tuner.kernel_files.catalog import Catalog
from tuner.model import registry
from tuner.model.errors import InputError, UnknownNameError
from tuner.model.objective import Objective
from tuner.model.plan import Configuration
from tuner.model.trial import Measurement, Trial
from tuner.recordings.values import RecordedSpace, search_of
from tuner.space.search_view import Search
from tuner.studies.comparison import (
    EvaluationJob,
    Play,
    PolicyChoice,
    Rules,
    catalog_groups,
    efficiency,
    evaluations_to,
    improvements,
    jobs,
    lowest_after,
    operation,
    phi,
    play,
    play_all,
    play_one,
    policies,
    recorded_groups,
)
from tuner.studies.scores import Truth, document

EFFICIENCIES = st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=20)
COSTS = st.lists(st.one_of(st.floats(1e-6, 1e6), st.just(math.inf)), max_size=30)
SLOPE = [5.0, 4.0, 3.0, 2.0, 1.0, 2.0, 4.0, 8.0]
NAMES = [("fft:N=64",), ("fft:N=128",), ("scan-lf:N=64",), ("fft:N=64", "scan-lf:N=64")]


def rules(*names: str, seeds: int = 3, objective: str = "time", budget: int | None = None) -> Rules:
    return Rules(policies(",".join(names)), seeds, objective, budget)


def truth(name: str, times_s: Sequence[float | None], joules: float = 0.0) -> Truth:
    group = tuple(name.split("+"))
    return Truth(group, space(group, times_s, joules=joules), "recorded")


def compared(
    truths: Sequence[Truth], rules: Rules, most: int | None = None, status: str = "finished"
) -> dict[str, Any]:
    """The document of a comparison, as who reads its JSON sees it: of all plays, or of the first."""
    spaces = [one.space for one in truths]
    plays = [play_one(job, spaces, rules) for job in jobs(rules, len(spaces))[:most]]
    found = document(truths, plays, rules, status=status, provenance={})
    return cast("dict[str, Any]", found)


# --- the metric ----------------------------------------------------------------------------------


def test_phi_of_a_worked_example() -> None:
    """Efficiencies 1, 1/2 and 1/4 make 3 / (1 + 2 + 4)."""
    assert phi([1.0, 0.5, 0.25]) == pytest.approx(3 / 7)


@given(EFFICIENCIES)
def test_phi_lies_between_the_efficiencies(values: list[float]) -> None:
    """The metric is at least the lowest and at most the arithmetic mean of the efficiencies."""
    assert min(values) <= phi(values) <= math.fsum(values) / len(values) + 1e-12


@given(EFFICIENCIES)
def test_phi_is_one_only_for_the_best(values: list[float]) -> None:
    """Only where every size has its best configuration the metric is 1."""
    if phi(values) == 1.0:
        assert values == pytest.approx([1.0] * len(values), rel=1e-9)
    assert phi([1.0] * len(values)) == 1.0


@given(EFFICIENCIES, st.integers(0, 19), st.floats(1.0, 2.0))
def test_phi_grows_with_every_efficiency(values: list[float], place: int, factor: float) -> None:
    """No size can get better and the metric worse."""
    better = list(values)
    better[place % len(values)] *= factor
    assert phi(better) >= phi(values) * (1 - 1e-12)


def test_a_size_without_an_answer_makes_phi_nought() -> None:
    """A failed answer has efficiency 0, and so has the operation."""
    assert efficiency(1.0, math.inf) == 0.0
    assert phi([1.0, 0.0]) == 0.0


@given(COSTS, st.integers(0, 40))
def test_improvements_hold_the_running_minimum(costs: list[float], count: int) -> None:
    """After any number of evaluations the steps give the lowest cost so far."""
    assert lowest_after(improvements(costs), count) == min(costs[:count], default=math.inf)


@given(COSTS)
def test_efficiency_never_falls(costs: list[float]) -> None:
    """The efficiency over evaluations is monotone, and reached exactly where it is said to be."""
    steps = improvements(costs)
    values = [efficiency(0.5, lowest_after(steps, count)) for count in range(len(costs) + 1)]
    assert values == sorted(values)
    reached = evaluations_to(steps, 0.5, 0.6)
    assert reached == next((count for count, value in enumerate(values) if value >= 0.6), None)


# --- the words -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "groups"),
    [
        ((), NAMES),
        (("fft",), NAMES[:2]),
        (("fft:N=128", "fft"), [NAMES[1], NAMES[0]]),
        (("scan-lf:N=64+fft:N=64",), NAMES[3:]),
    ],
)
def test_words_name_recorded_groups(words: tuple[str, ...], groups: list[tuple[str, ...]]) -> None:
    """A bare kernel is all its sizes, a+b is a co-run in either order, nothing is everything, each once."""
    assert list(recorded_groups(words, NAMES, "here")) == groups


@pytest.mark.parametrize("word", ["ftt", "fft:N=512", "fft:N=128+scan-lf:N=64", "fft+scan-lf"])
def test_an_unknown_group_is_refused(word: str) -> None:
    """The message names the recording, the word, and what there is."""
    with pytest.raises(UnknownNameError, match=r"here: no recorded space of .*fft:N=64, N=128"):
        recorded_groups([word], NAMES, "here")


@pytest.mark.parametrize("word", ["fft:N=64+", "+", "fft:N=64+fft:N=64"])
def test_a_broken_co_run_is_refused(word: str) -> None:
    """A co-run has a name on both sides of each +, and none twice."""
    with pytest.raises(InputError, match="workload"):
        recorded_groups([word], NAMES, "here")


def test_words_name_groups_of_kernel_files() -> None:
    """On a device a bare kernel is every size of its file; co-runs and single sizes are as named."""
    catalog = Catalog.load()
    found = catalog_groups(["scan-lf", "scan-lf:N=64+fft:N=64"], catalog)
    assert ("scan-lf:N=64",) in found
    assert found[-1] == ("scan-lf:N=64", "fft:N=64")
    assert len(found) == len(catalog.kernel("scan-lf").workloads()) + 1
    with pytest.raises(InputError, match="name workloads"):
        catalog_groups([], catalog)
    with pytest.raises(UnknownNameError, match="did you mean 'fft'"):
        catalog_groups(["ftt"], catalog)


def test_an_operation_is_the_kernels_of_a_group() -> None:
    """Sizes of the same kernels share an operation."""
    assert [operation(group) for group in NAMES] == ["fft", "fft", "scan-lf", "fft+scan-lf"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("greedy,gredy", "did you mean 'greedy'"),
        ("random,greedy,random", "random is named more than once"),
        (" , ", "names none"),
        ("greedy:depth=3", "no option of greedy; it has none"),
    ],
)
def test_wrong_policies_are_refused(words: str, says: str) -> None:
    """The message says what is wrong with the list and what would be right."""
    with pytest.raises(InputError, match=says):
        policies(words)


def test_options_reach_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words after a policy's name are its keyword arguments, as numbers where they are some."""
    told: dict[str, Any] = {}

    def choosy(_: Search, depth: int = 1, mood: str = "") -> Generator[list[Trial], Any, None]:
        told.update(depth=depth, mood=mood)
        yield []

    monkeypatch.setattr(registry, "load", lambda _kind, _name: choosy)
    (choice,) = policies("greedy:depth=3:mood=dark")
    next(choice.load()(None))  # type: ignore[arg-type]  # it looks at no search
    assert told == {"depth": 3, "mood": "dark"}


def test_all_policies_but_the_exhaustive_one_play_unasked() -> None:
    """The ground truth is no contestant; every other policy of the registry is."""
    assert {choice.name for choice in policies(None)} == set(registry.names("policy")) - {"exhaustive"}


# --- plays and the document ----------------------------------------------------------------------


def test_a_play_counts_evaluations_and_keeps_the_lowest() -> None:
    """Exhaustive play asks for every trial in order, improves as the costs do, and ends at the best."""
    play = play_one(EvaluationJob(0, 0, 0), [space(["a"], SLOPE)], rules("exhaustive"))
    assert play.evaluations == len(SLOPE)
    assert play.steps == ((1, 5.0), (2, 4.0), (3, 3.0), (4, 2.0), (5, 1.0))
    assert play.answer is not None
    assert play.answer.configurations[0]["P"] == 5


def test_a_budget_ends_a_play() -> None:
    """No more evaluations are made than are allowed."""
    play = play_one(EvaluationJob(0, 0, 0), [space(["a"], SLOPE)], rules("exhaustive", budget=3))
    assert (play.evaluations, play.steps[-1]) == (3, (3, 3.0))


def test_numbers_of_a_worked_example() -> None:
    """Two sizes, a budget of four: efficiencies 1/2 and 1, Φ 2/3, rates 1/2 and 1 million a second."""
    found = compared(
        [truth("a:N=1", SLOPE), truth("a:N=2", [1.0, None, 4.0, 2.0])], rules("exhaustive", budget=4)
    )
    (row,) = found["operations"][0]["policies"].values()
    assert row["phi"] == pytest.approx(2 / 3)
    assert (row["rate"], row["rate_name"]) == (pytest.approx(0.75), "MData/s")
    assert (row["evaluations"], row["evaluations_most"]) == (4, 4)
    assert row["curve"]["evaluations"] == [1, 2, 3, 4]
    assert row["curve"]["median"] == pytest.approx([2 / 6, 2 / 5, 2 / 4, 2 / 3])
    assert [w["policies"]["exhaustive"]["efficiency"] for w in found["workloads"]] == [0.5, 1.0]
    assert found["workloads"][1]["ground_truth"]["failed"] == 1
    assert [o["operation"] for o in found["operations"]] == ["a"]


def test_the_median_of_seeds_is_one_play() -> None:
    """What is said of a policy is the play of median efficiency, with its answer; beside it the spread."""
    found = compared([truth("a", SLOPE)], rules("random", seeds=5, budget=2))
    one = found["workloads"][0]["policies"]["random"]
    efficiencies = sorted(one["of_seeds"]["efficiency"])
    assert one["efficiency"] == efficiencies[2] == pytest.approx(1.0 / one["answer"]["time_s"])
    assert (one["efficiency_lowest"], one["efficiency_highest"]) == (efficiencies[0], efficiencies[-1])
    assert efficiencies[0] < efficiencies[-1]


def test_of_two_middle_plays_the_lower_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seeds find 1 s and 2 s: the efficiency is between the two, the answer shown is the one of 2 s."""

    def by_seed(search: Search) -> Generator[list[Trial], list[Measurement], None]:
        yield [Trial((search.candidates[0][search.seed].configuration,))]

    monkeypatch.setattr(registry, "load", lambda _kind, _name: by_seed)
    one = compared([truth("a", [1.0, 2.0])], rules("greedy", seeds=2))["workloads"][0]["policies"]["greedy"]
    assert one["efficiency"] == 0.75
    assert one["answer"]["time_s"] == 2.0


def test_close_is_within_two_percent() -> None:
    """97.9 % is not as good as the best, 98.1 % is."""
    assert evaluations_to([(1, 1 / 0.979), (2, 1 / 0.981)], 1.0) == 2


def test_phi_is_that_of_the_median_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each seed misses another of three sizes: Φ is 3 / (1 + 1 + 2), though the median on every size is 1."""

    def missing_one(search: Search) -> Generator[list[Trial], list[Measurement], None]:
        missed = search.workloads[0] == f"a:N={search.seed}"
        yield [Trial((search.candidates[0][missed].configuration,))]

    monkeypatch.setattr(registry, "load", lambda _kind, _name: missing_one)
    found = compared([truth(f"a:N={size}", [1.0, 2.0]) for size in range(3)], rules("greedy", seeds=3))
    row = found["operations"][0]["policies"]["greedy"]
    assert [one["policies"]["greedy"]["efficiency"] for one in found["workloads"]] == [1.0, 1.0, 1.0]
    assert row["phi"] == row["phi_lowest"] == row["phi_highest"] == pytest.approx(3 / 4)


def test_energy_has_its_uncertainty() -> None:
    """Joules are means over the sizes that have them, their uncertainties added in squares."""
    truths = [truth("a:N=1", [2.0, 1.0], 10.0), truth("a:N=2", [4.0, 3.0], 10.0), truth("a:N=3", [1.0])]
    best = compared(truths, rules("exhaustive"))["operations"][0]["best"]
    assert best["energy_j"] == pytest.approx((10.0 + 30.0) / 2)
    assert best["energy_j_uncertainty"] == pytest.approx(math.hypot(0.1, 0.3) / 2)
    assert best["energy_sizes"] == 2


def test_a_co_run_has_no_rate() -> None:
    """Workloads that run together have no rate in common, and the document gives none."""
    found = compared([truth("a:N=1+b:N=1", [1.0, 2.0, 3.0, 4.0])], rules("exhaustive"))
    assert found["operations"][0]["operation"] == "a+b"
    assert found["operations"][0]["best"]["rate"] is None
    assert len(found["operations"]) == 1


def test_a_policy_that_raises_loses_its_plays_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has efficiency 0 and a notice that says on what and why; the others are compared as ever."""

    def raising(search: Search) -> Generator[list[Trial], list[Measurement], None]:
        yield [Trial((search.candidates[0][0].configuration,))]
        raise ValueError("no such luck")

    load = registry.load
    monkeypatch.setattr(
        registry, "load", lambda kind, name: raising if name == "greedy" else load(kind, name)
    )
    found = compared([truth("a", SLOPE)], rules("greedy", "exhaustive"))
    row = found["operations"][0]["policies"]
    assert (row["greedy"]["phi"], row["greedy"]["evaluations"]) == (0.0, None)
    assert row["exhaustive"]["phi"] == 1.0
    assert found["notices"] == [
        "greedy raised in 3 plays, which count as no answer; first on a: ValueError: no such luck"
    ]


@pytest.mark.parametrize(
    ("times_s", "objective", "says"),
    [
        ([], "time", "nothing is recorded"),
        ([None, None], "time", "every one of its 2 trials failed; the first: it fell"),
        ([1.0, 2.0], "energy", "no joules are recorded"),
        ([0.0, 2.0], "time", "lowest time is 0"),
        ([1.0, None], "time", ""),
    ],
)
def test_unusable_spaces_say_why(times_s: list[float | None], objective: str, says: str) -> None:
    """A space no policy can be compared on says why not; a usable one says nothing."""
    found = truth("a", times_s).unusable(Objective(objective))
    assert says in found
    assert bool(found) == bool(says)


def test_missing_trials_are_counted() -> None:
    """A space of which a part was recorded knows how many trials it lacks."""
    whole = truth("a", SLOPE)
    assert whole.missing == 0
    part = dict(list(whole.space.trials.items())[:5])
    lacking = Truth(
        whole.group, type(whole.space)(whole.space.workloads, whole.space.identity, None, part), ""
    )
    assert lacking.missing == 3


def test_trials_that_no_policy_can_choose_are_no_ground_truth() -> None:
    """Where clocks were set, the fastest trial as found is neither the best of the space nor a part of it."""
    slow = truth("a", [2.0, 4.0]).space
    (fast, measurement), *_ = truth("a", [1.0, 4.0]).space.trials.items()
    set_mhz = {replace(trial, clock_mhz=900): m for trial, m in slow.trials.items()}
    mixed = Truth(("a",), replace(slow, trials={fast: measurement, **set_mhz}), "recorded")

    row = compared([mixed], rules("exhaustive"))["operations"][0]

    assert mixed.missing == 0
    assert row["trials"] == 2
    assert row["policies"]["exhaustive"]["phi"] == 1.0


def test_an_interrupted_comparison_is_told() -> None:
    """Without any play there is a document of the ground truths, and one of the plays there are."""
    truths, game = [truth("a", SLOPE), truth("b", SLOPE)], rules("random", seeds=1)
    play = play_one(EvaluationJob(0, 0, 0), [truths[0].space], game)
    nothing = document([], [], game, status="interrupted", provenance={})
    assert (nothing["device"], nothing["operations"]) == (None, [])
    some = document(truths, [play], game, status="interrupted", provenance={})
    assert [list(o["policies"]) for o in some["operations"]] == [["random"], [], ["random"]]
    assert some["operations"][2]["policies"]["random"]["sizes"] == 1
    assert [o["compared"] for o in some["operations"]] == [["a"], ["b"], ["a"]]


@pytest.mark.parametrize("count", range(13))
def test_figures_of_an_operation_are_of_the_same_sizes(count: int) -> None:
    """Wherever a comparison is interrupted, no policy looks better than the best of all.

    The first size is the fastest, so that a mean over it alone is above that over all.
    """
    truths = [truth(f"a:N={n}", [2.0**n, 4.0 * 2.0**n], joules) for n, joules in enumerate((1.0, 1.0, 0.0))]
    game = rules("exhaustive", "random", seeds=2)

    (row,) = compared(truths, game, count, "interrupted")["operations"]

    whole = max(
        count // 4, 1 if count >= 2 else 0
    )  # four searches a size, of which two are of the first policy
    assert row["compared"] == row["workloads"][: whole or None]
    assert list(row["policies"]) == [one.label for one in game.policies][: min(2, count // 2)]
    for policy in row["policies"].values():
        assert policy["sizes"] == len(row["compared"])
        assert policy["rate"] <= row["best"]["rate"]
        assert policy["energy_j"] >= row["best"]["energy_j"]
        assert policy["energy_sizes"] == row["best"]["energy_sizes"] == min(whole, 2)


def test_a_policy_without_an_answer_on_a_size_has_no_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean over the other sizes would look better than the best of all."""

    def picky(search: Search) -> Generator[list[Trial], list[Measurement], None]:
        if search.workloads[0] == "a:N=2":
            raise ValueError("not this one")
        yield [Trial((search.candidates[0][0].configuration,))]

    monkeypatch.setattr(registry, "load", lambda _kind, _name: picky)
    truths = [truth("a:N=1", [1.0, 2.0], 1.0), truth("a:N=2", [8.0, 9.0], 1.0)]
    (row,) = compared(truths, rules("greedy"))["operations"]

    assert (row["best"]["energy_sizes"], row["best"]["rate"] is None) == (2, False)
    assert (row["policies"]["greedy"]["energy_sizes"], row["policies"]["greedy"]["rate"]) == (0, None)


def test_processes_play_what_one_process_plays() -> None:
    """Plays of other processes are those of this one; a comparison that is stopped leaves none behind."""
    spaces, game = [space(["a"], SLOPE), space(["b"], [2.0, 1.0])], rules("random", "greedy", seeds=2)

    def told(play: Play) -> tuple[object, ...]:
        return play.job, play.evaluations, play.steps, play.answer, play.error

    before = set(multiprocessing.active_children())
    here = [told(play_one(job, spaces, game)) for job in jobs(game, len(spaces))]
    with closing(play_all(spaces, game, 1)) as playing:
        there = [told(play) for play in playing]
    assert sorted(there, key=lambda one: jobs(game, 2).index(one[0])) == here  # type: ignore[arg-type]
    with closing(play_all(spaces, game, 1)) as playing:
        next(playing)
    assert set(multiprocessing.active_children()) <= before


Asks = Generator[list[Trial], list[Measurement], Trial | None]

PARENT = """
from small_spaces import space
from tuner.studies.comparison import policies
from tuner.studies.comparison import Rules, play_all

if __name__ == "__main__":
    for _ in play_all([space(["a"], [1.0, 2.0])], Rules(policies("exhaustive"), 2, "time", None), 2):
        print("played", flush=True)
    input()
"""


@pytest.fixture
def small() -> RecordedSpace:
    """A space of three trials."""
    return space(["a"], [3.0, 1.0, 2.0])


def asks_for_nothing(search: Search) -> Asks:
    """Never ends, and never asks for a trial."""
    del search
    while True:
        yield []


def goes_in_circles(search: Search) -> Asks:
    """Never ends, and asks for what it knows."""
    while True:
        yield [Trial((search.defaults[0],))]


def asks_for_the_unknown(search: Search) -> Asks:
    """Asks for what is in no space, and then for the default."""
    found = yield [Trial((Configuration({"nobody": "knows"}),)), Trial((search.defaults[0],), 77), Trial(())]
    assert not any(measurement.ok for measurement in found)
    return None


def ends_at_once(search: Search) -> Asks:
    """Asks for nothing, and ends."""
    del search
    return None
    yield []


@pytest.mark.parametrize(
    ("policy", "budget"), [(asks_for_nothing, None), (goes_in_circles, None), (goes_in_circles, 1)]
)
def test_a_policy_that_would_never_end_is_ended(small: RecordedSpace, policy: object, budget: object) -> None:
    """A policy that goes in circles is told from one that searches; no budget would stop it."""
    with pytest.raises(RuntimeError, match="no new trial"):
        play(policy, search_of(small, Objective("time").cost), small.look, budget)  # type: ignore[arg-type]


def test_unknown_trials_fail(small: RecordedSpace) -> None:
    """What is not in a recording is a failed trial, whatever it is."""
    found = play(asks_for_the_unknown, search_of(small, Objective("time").cost), small.look)

    assert [measurement.ok for _, measurement in found] == [False, False, False]


def test_a_policy_that_ends_at_once_has_no_answer(small: RecordedSpace) -> None:
    """No trial is no error."""
    assert play(ends_at_once, search_of(small, Objective("time").cost), small.look) == []


def test_an_odd_policy_loses_its_plays_only(small: RecordedSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a comparison a policy that never ends is one that raised, and says why."""
    monkeypatch.setattr(registry, "load", lambda _, __: goes_in_circles)
    found = play_one(EvaluationJob(0, 0, 0), [small], Rules((PolicyChoice("auto", "auto"),), 1, "time", 5))

    assert "no new trial" in found.error
    assert found.answer is None


def test_ctrl_c_waits_while_processes_begin(small: RecordedSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A half-started process could not be ended and would complain: all begin, and then all end."""
    submit, begun = ProcessPoolExecutor.submit, []

    def stopped(pool: ProcessPoolExecutor, *words: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        begun.append(submit(pool, *words))
        return begun[-1]

    monkeypatch.setattr(ProcessPoolExecutor, "submit", stopped)
    before = set(multiprocessing.active_children())
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with (
            pytest.raises(KeyboardInterrupt),
            closing(play_all([small], Rules(policies("random"), 3, "time", None), 1)) as playing,
        ):
            next(playing)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, handler)

    assert len(begun) == 3
    assert set(multiprocessing.active_children()) == before


@pytest.mark.skipif(sys.platform != "linux", reason="kills a process group")
def test_processes_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    """A killed comparison leaves no process behind that waits for its next play."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    try:
        assert parent.stdout.readline() == "played\n"
        parent.kill()
        told, _ = parent.communicate(timeout=PATIENCE_S)  # until no process holds the pipe any more
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)  # a group's number outlives its leader
    assert set(told.split()) <= {"played"}
