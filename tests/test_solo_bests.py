"""Every workload alone and at its solo best: what that costs, and how the answer is held against it."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_process import tuner
from policy_driver import candidate, makespan, play, result, search_over
from report_documents import run_comparison, run_document, run_trial
from tuner.policies.bayesian import bayesian
from tuner.policies.surrogate.joint import costs_alone, slower_alone
from tuner.power.base import SpentEnergy
from tuning_runs import CallbackListener, FormulaMeasurer

from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.measurement.base import ComparisonTarget
from tuner.model.errors import InputError, RunInterrupted
from tuner.model.plan import Configuration, Plan
from tuner.model.records import RunStatus
from tuner.model.trial import Measurement, Trial
from tuner.report.answer import comparisons
from tuner.report.details import detail_lines
from tuner.report.trials_table import ranked_trials
from tuner.search.plan import plan_search
from tuner.search.request import SearchRequest
from tuner.search.session import TrialEvent
from tuner.search.setup import MeasurementSetup, open_setup
from tuner.search.together import solo_best
from tuner.search.tuning import tune
from tuner.space.search_view import PriorRun, Search

NAMES = ("scan-lf:N=4", "fft:N=4")
TWO = SearchRequest(workloads=NAMES, policy="random", objective="time", budget=8, seed=3)
_WIDE = 256  # threads of a block
_ALL = 100  # more than the candidates of either workload


class _Contending(FormulaMeasurer):
    """Measures by a formula: blocks of one width are the fastest alone, and two workloads with them contend.

    Args:
        penalty: of two such that run together, as a share of the round.
        fastest: threads of such a block.
    """

    def __init__(self, penalty: float, fastest: int) -> None:
        super().__init__()
        self._penalty = penalty
        self._fastest = fastest
        self.trials: list[Trial] = []
        self.targets: list[ComparisonTarget | None] = []

    def measure(
        self, trial: Trial, plans: Sequence[Plan], target: ComparisonTarget | None = None
    ) -> Measurement:
        del plans
        self.targets.append(target)
        self.trials.append(trial)
        widths = [int(one["L"]) for one in trial.configurations]
        others = [sum(map(int, (one["r"], one["S"]))) for one in trial.configurations]
        times = [
            1e-3 * (1.0 + abs(math.log2(width / self._fastest)) / 10 + other / 100)
            for width, other in zip(widths, others, strict=True)
        ]
        both = len(widths) > 1 and all(width == self._fastest for width in widths)
        makespan_s = max(times) * (1.0 + self._penalty * both)
        return self.measured(times, makespan_s)

    def spent(self) -> SpentEnergy:
        return SpentEnergy(self.watts * self.windows_s, 3.0 + len(self.trials))


@contextmanager
def _setup(
    request: SearchRequest, penalty: float = 0.0, fastest: int = _WIDE
) -> Iterator[tuple[MeasurementSetup, _Contending]]:
    with open_setup("sim:k40c", request) as setup:
        measurer = _Contending(penalty, fastest)
        yield replace(setup, measurer=measurer), measurer


def _tuned(
    request: SearchRequest,
    store: Store,
    penalty: float = 0.0,
    *,
    fastest: int = _WIDE,
    measured: Callable[[TrialEvent], None] = lambda _: None,
) -> Any:
    with _setup(request, penalty, fastest) as (setup, _):
        return tune(setup, request, Catalog.load(), store, CallbackListener(measured), resume=False)


# --- where solo bests come from ------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["time", "energy"])
def test_workloads_that_contend_are_better_tuned_together(store: Store, objective: str) -> None:
    """Solo bests that get into each other's way lose against the answer, beyond both intervals."""
    request = replace(TWO, objective=objective, budget=40, solo_bests=_ALL)

    tuned = _tuned(request, store, 0.5)

    found, outcome = tuned.document, tuned
    alone = [found["solo_bests"]["configurations"][name]["L"] for name in NAMES]
    together = [found["best"]["configurations"][name]["L"] for name in NAMES]
    assert alone == [_WIDE, _WIDE]
    assert together != alone
    changes = found["against_solo_bests"]
    ratio = min(one["time_s"] for one in found["trials"]) / found["solo_bests"]["time_s"]
    assert ratio < 0.8
    assert changes["slowdown"] == pytest.approx(ratio - 1)
    assert 0.0 < changes["slowdown_interval"] < 0.01
    assert changes["energy_saving"] == pytest.approx(1 - ratio)
    assert 0.0 < changes["energy_saving_interval"] < 0.05
    assert changes["turn_by_turn"] is True
    assert found["solo_best_runs"] == {NAMES[0]: 1, NAMES[1]: 2}
    assert (found["run"], found["no_solo_bests"]) == (3, None)
    assert outcome.solo_bests == 1, "they come after the default"
    assert outcome.trials[1][1].repeats >= 3, "they are measured in turn with the answer"


@pytest.mark.parametrize("objective", ["time", "energy"])
def test_solo_bests_that_win_are_the_answer(store: Store, objective: str) -> None:
    """Where a brief search finds nothing better than the solo bests together, they are the answer."""
    tuned = _tuned(replace(TWO, objective=objective, budget=3, solo_bests=_ALL), store)

    found, outcome = tuned.document, tuned
    assert outcome.answer == outcome.solo_bests == 1
    assert [found["best"]["configurations"][name]["L"] for name in NAMES] == [_WIDE, _WIDE]
    assert found["against_default"]["slowdown"] < -found["against_default"]["slowdown_interval"]
    lines = comparisons(found, 200)
    assert any("the answer is" in line and "the solo bests together" in line for line in lines)
    assert found["limited_solo_bests"] == []
    assert not any("limit" in line for line in lines)
    assert found["space"]["measured"] == 3, "they are a trial of the budget"


def test_solo_bests_are_measured_to_the_end(store: Store) -> None:
    """A trial that the answer is held against has joules, also where it clearly cannot be the best."""
    _tuned(replace(TWO, solo_bests=_ALL, budget=1), store)

    with _setup(TWO, 0.5) as (setup, measurer):
        tune(setup, TWO, Catalog.load(), store, CallbackListener(), resume=False)

    others = [target is None for target in measurer.targets[:8]]
    assert others == [False, True, *[False] * 6]


def test_runs_alone_are_ordinary_runs(store: Store) -> None:
    """Every solo search is stored with its trials within the number named, and serves the next run."""
    first = _tuned(replace(TWO, solo_bests=5), store)

    runs = {run.id: run for run in store.history()}
    assert [runs[i].conditions["workloads"][0][0] for i in (1, 2)] == list(NAMES)
    assert [runs[i].trials for i in (1, 2)] == [5, 5]
    assert first.document["limited_solo_bests"] == list(NAMES)
    (line,) = (line for line in comparisons(first.document, 200) if "limit" in line)
    assert line.endswith(": scan-lf:N=4, fft:N=4")
    again = _tuned(TWO, store)
    assert len(store.history()) == 4
    assert again.document["solo_best_runs"] == first.document["solo_best_runs"]
    assert again.document["solo_bests"]["configurations"] == first.document["solo_bests"]["configurations"]


def test_a_solo_search_that_was_shorter_goes_on(store: Store) -> None:
    """An answer within fewer trials than are asked for now is searched on, and none of them is repeated."""
    _tuned(replace(TWO, solo_bests=3), store)

    with _setup(TWO) as (setup, measurer):
        tune(setup, replace(TWO, solo_bests=5), Catalog.load(), store, CallbackListener(), resume=False)

    runs = {run.id: run for run in store.history()}
    assert [runs[i].trials for i in (1, 2)] == [5, 5]
    assert len(runs) == 4
    searched = [trial for trial, _ in store.trials(1, NAMES[:1])]
    assert not set(searched[:3]) & set(measurer.trials[:2])


def test_costs_of_runs_are_their_own(store: Store) -> None:
    """Of several searches on one open meter each states what it cost itself."""
    tuned = _tuned(replace(TWO, solo_bests=5), store)

    documents: list[Any] = [run.answer for run in reversed(store.history())]
    windows_s = [one["wall"]["windows_s"] for one in documents]
    joules = [one["tuning_energy_j"] for one in documents]
    assert joules == pytest.approx([FormulaMeasurer.watts * one for one in windows_s])
    assert joules[2] == tuned.document["tuning_energy_j"]
    assert documents[2]["wall"]["windows_s"] < sum(windows_s) - 1.0


def test_without_an_answer_alone_the_run_says_so(store: Store) -> None:
    """No solo search was asked for, none is stored: the run says why and how to have the comparison."""
    found = _tuned(TWO, store).document

    assert (found["solo_bests"], found["against_solo_bests"], found["solo_best_runs"]) == (None, None, {})
    (line,) = (line for line in comparisons(found, 400) if "solo bests together" in line)
    assert "not compared: no answer of any workload alone is stored" in line
    assert "--solo-bests N" in line
    _tuned(replace(TWO, workloads=NAMES[:1], budget=2), store)
    assert "no answer of fft:N=4 alone is stored" in _tuned(TWO, store).document["no_solo_bests"]


def test_a_lone_workload_has_no_solo_best(store: Store) -> None:
    """Of one workload there is nothing to compare, and nothing is said of it."""
    found = _tuned(replace(TWO, workloads=NAMES[:1], budget=2), store).document

    assert (found["solo_bests"], found["no_solo_bests"]) == (None, None)


def test_only_answers_under_the_same_conditions_count(store: Store) -> None:
    """Another objective, batch, driver, source or choice of clocks makes another solo best."""
    _tuned(replace(TWO, workloads=NAMES[:1]), store)
    with open_setup("sim:k40c", TWO) as setup:
        plan = plan_search(TWO, Catalog.load(), setup)
    here, ((_, workload), (_, other_workload)) = plan.conditions, plan.workloads

    found = solo_best(store, workload, here)
    assert found is not None
    assert found.run == 1
    for other in (
        replace(here, objective="energy"),
        replace(here, device=replace(here.device, driver="another")),
        replace(here, device=replace(here.device, uuid="another")),
        replace(here, sources={**here.sources, "scan-lf": "another"}),
        replace(here, clocks="875"),
        replace(here, settings={**here.settings, "power_limits_w": [200]}),
    ):
        assert solo_best(store, workload, other) is None
    assert solo_best(store, replace(workload, batch=workload.batch // 2), here) is None
    assert solo_best(store, workload, here, least_trials=9) is None
    assert solo_best(store, other_workload, here) is None


def test_a_solo_best_outside_the_space_is_named(store: Store) -> None:
    """A threshold of occupancy that leaves the solo best out leaves the comparison out, with the reason."""
    _tuned(replace(TWO, budget=1, solo_bests=_ALL), store, fastest=64)  # 16 blocks of 64 fill half of a K40c

    found = _tuned(replace(TWO, min_occupancy=0.9), store, fastest=64).document

    assert found["no_solo_bests"] == "the solo best of scan-lf:N=4 (run 1) is not in the space of this run"
    assert found["solo_bests"] is None


def test_solo_bests_run_at_the_highest_of_their_clocks(store: Store) -> None:
    """With clocks to choose from, the trial has the highest clock of the solo bests."""
    request = replace(TWO, clocks="875,745", solo_bests=4)

    tuned = _tuned(request, store)

    alone: list[Any] = [run.answer for run in store.history() if run.id < 3]
    clocks = [one["best"]["clock_mhz"] for one in alone]
    assert tuned.document["solo_bests"]["clock_mhz"] == max(clocks)


def test_a_budget_of_one_leaves_them_out(store: Store) -> None:
    """A run that ends behind the default says that the solo bests were not measured."""
    found = _tuned(replace(TWO, budget=1, solo_bests=3), store).document

    assert found["solo_bests"] is None
    assert found["no_solo_bests"] == "the run ended before they were measured"


# --- interrupted, resumed, refused ---------------------------------------------------------------


def test_an_interrupted_solo_search_goes_on(store: Store) -> None:
    """Ctrl-C while a workload is tuned alone ends the command; the same one goes on and loses no trial."""
    seen: list[TrialEvent] = []

    def interrupt(event: TrialEvent) -> None:
        seen.append(event)
        if event.number == 3:
            raise RunInterrupted

    request = replace(TWO, solo_bests=5)
    with pytest.raises(RunInterrupted, match=r"scan-lf:N=4,batch=16777216 was tuned alone"):
        _tuned(request, store, measured=interrupt)

    with _setup(request) as (setup, measurer):
        tuned = tune(setup, request, Catalog.load(), store, CallbackListener(), resume=True, insisted=True)

    assert [run.status for run in store.history() if run.id == 1] == [RunStatus.LIMITED]
    assert seen[0].trial not in measurer.trials[:2]
    assert tuned.solo_bests == 1
    assert any("this is a new one" in notice for notice in tuned.notices)


def test_a_resumed_run_measures_them_once(store: Store) -> None:
    """A run that was interrupted behind the solo bests goes on with what it knows of them."""

    def interrupt(event: TrialEvent) -> None:
        if event.number == 4 and len(store.history()) == 3:
            raise RunInterrupted

    request = replace(TWO, solo_bests=4)
    cut = _tuned(request, store, measured=interrupt)
    assert cut.status is RunStatus.INTERRUPTED
    assert cut.solo_bests == 1

    with _setup(request) as (setup, measurer):
        whole = tune(setup, request, Catalog.load(), store, CallbackListener(), resume=True, insisted=True)

    assert len(store.history()) == 3
    assert whole.resumed == 4
    assert whole.solo_bests == 1
    assert measurer.trials[0] not in [trial for trial, _ in whole.trials[:4]]


def test_bad_input_is_refused(tmp_path: Path, store: Store) -> None:
    """A lone workload has no company to be compared with, and a recording runs nothing."""
    with pytest.raises(InputError, match="scan-lf:N=4 is alone"):
        _tuned(replace(TWO, workloads=NAMES[:1], solo_bests=3), store)
    for words, why in (
        ((NAMES[0], "--solo-bests", "3", "--device", "sim:k40c"), "is alone"),
        (("--device", "replay:h200", "scan-lf:N=64", "--objective", "time", "--solo-bests", "3"), "already"),
        ((*NAMES, "--solo-bests", "0"), "Invalid value for '--solo-bests'"),
    ):
        result = tuner("run", *words, "--database", tmp_path / "other.db")
        assert result.exit_code == 2, result.output
        assert why in result.output


# --- the report ----------------------------------------------------------------------------------


def _document(objective: str, answer: tuple[float, float], solo: tuple[float, float], **more: Any) -> Any:
    """A run whose answer and solo bests took so many seconds and joules."""
    trials = [
        run_trial({NAMES[0]: {"L": 64}, NAMES[1]: {"L": 64}}, *answer),
        run_trial({NAMES[0]: {"L": 256}, NAMES[1]: {"L": 256}}, *solo),
        run_trial({NAMES[0]: {"L": 32}, NAMES[1]: {"L": 32}}, 9e-3, 2.0),
    ]
    return run_document(trials, objective=objective, default=2, fastest=0) | {
        "solo_bests": trials[1],
        "against_solo_bests": run_comparison(trials[0], trials[1]),
        "solo_best_runs": {NAMES[0]: 3, NAMES[1]: 4},
        "no_solo_bests": None,
        **more,
    }


def test_the_report_has_a_row() -> None:
    """The table of comparisons has time and joules against the solo bests together, with intervals."""
    found = _document("energy", (6e-3, 1.0), (6.5e-3, 1.1))
    lines = comparisons(found, 200)

    (row,) = (line for line in lines if line.strip().startswith("solo bests together"))
    assert " ".join(row.split()) == "solo bests together -9.1 ± 0.1 % -7.7 ± 0.2 % 6.500 ms 1.1000 ± 0.0022 J"
    assert not any("cost less" in line for line in lines)
    assert [one.marks for one in ranked_trials(found) if "solo bests" in one.marks] == [("solo bests",)]
    details = list(detail_lines(found))
    assert "solo bests: scan-lf:N=4 of run 3, fft:N=4 of run 4" in details


@pytest.mark.parametrize(
    ("objective", "solo", "more", "told"),
    [
        ("energy", (6.5e-3, 0.995), {}, "the answer +0.5 ± 0.1 %; a tie, of which a rule chooses the answer"),
        ("energy", (9e-3, 0.5), {"max_slowdown": 0.1}, "slower than --max-slowdown allows"),
        ("edp", (5e-3, 1.0), {}, "the answer +20.0 ± 0.2 %"),
    ],
)
def test_an_answer_that_costs_more_says_so(
    objective: str, solo: tuple[float, float], more: dict[str, Any], told: str
) -> None:
    """Where the solo bests together cost less beyond the interval, the report says it, and why."""
    lines = comparisons(_document(objective, (6e-3, 1.0), solo, **more), 400)

    (line,) = (line for line in lines if "cost less" in line)
    assert told in line


def test_one_trial_has_one_row() -> None:
    """Where the default is the fastest and the solo bests together, too, the table has it once."""
    found = _document("energy", (6e-3, 1.0), (6.5e-3, 1.1))
    found |= {"default": found["solo_bests"], "fastest": found["solo_bests"]}

    (row,) = (line for line in comparisons(found, 200) if "%" in line)
    assert row.strip().startswith("default, fastest, solo bests together")


def test_solo_bests_that_failed_are_named() -> None:
    """A failed trial of the solo bests is no comparison, and is said."""
    found = _document("energy", (6e-3, 1.0), (6.5e-3, 1.1))
    found |= {"solo_bests": found["solo_bests"] | {"status": "timeout"}, "against_solo_bests": None}

    assert any(
        "solo bests together failed: there is no comparison with them" in line
        for line in comparisons(found, 200)
    )


ONE = [candidate(B=value) for value in range(12)]
CANDIDATES = [candidate(C=value) for value in range(12)]
SIZES = ({"N": 64}, {"N": 128})


def alone(place: int, configuration: Configuration) -> float:
    """Costs without any order in the value."""
    (value,) = configuration.values()
    return 1.0 + (3 + int(value) * (5, 7)[place]) % 12 / 12


def together(trial: Trial) -> Measurement:
    """The shorter adds a third of its cost; those that are best alone get in each other's way."""
    costs = [alone(place, one) for place, one in enumerate(trial.configurations)]
    return result(max(costs) + 0.3 * min(costs) + 0.3 * (max(costs) == 1.0), costs)


def runs() -> tuple[PriorRun, ...]:
    return tuple(
        PriorRun(
            place,
            SIZES[place],
            "here",
            tuple((c.configuration, alone(place, c.configuration)) for c in found),
        )
        for place, found in enumerate((ONE, CANDIDATES))
    )


def search(seed: int, known: tuple[PriorRun, ...]) -> Search:
    found = search_over(ONE, CANDIDATES, seed=seed)
    return replace(found, sizes=SIZES, device="here", prior_runs=known)


def test_the_feature_orders_configurations_by_what_they_cost_alone() -> None:
    """The cheapest is 0, the dearest 1; a failed one is as dear, and an unknown one in the middle."""
    fast, slow, middle, failed, unknown = [c.configuration for c in ONE[:5]]
    run = PriorRun(0, {}, "", ((fast, 1.0), (slow, 4.0), (middle, 2.0), (failed, math.inf)))

    feature = slower_alone(run, [fast, slow, middle, failed, unknown])

    np.testing.assert_allclose(feature[:, 0], [0.0, 1.0, 0.5, 1.0, 0.5])


@pytest.mark.parametrize("points", [(), ((ONE[0].configuration, 1.0), (ONE[1].configuration, 1.0))])
def test_costs_that_tell_nothing_are_no_feature(points: tuple[tuple[Configuration, float], ...]) -> None:
    """Without costs, or where all are equal, there is nothing to learn from."""
    assert slower_alone(PriorRun(0, {}, "", points), [c.configuration for c in ONE]).shape == (12, 0)
    assert slower_alone(None, [c.configuration for c in ONE]).shape == (12, 0)


def test_other_sizes_and_gpus_are_not_alone() -> None:
    """Only the same workload on the same GPU counts, and only beside others."""
    same = runs()
    elsewhere = (replace(same[0], device="there"), replace(same[1], sizes={"N": 64}))

    assert costs_alone(search(0, same), 1) == same[1]
    assert costs_alone(search(0, elsewhere), 0) is None
    assert costs_alone(search(0, elsewhere), 1) is None
    assert costs_alone(replace(search_over(ONE), sizes=SIZES[:1], device="here", prior_runs=same), 0) is None


def test_costs_alone_shorten_a_search_of_both() -> None:
    """Values without order are learnt one by one; with costs alone the best come first."""
    least = min(
        makespan(together(Trial((a.configuration, b.configuration)))) for a in ONE for b in CANDIDATES
    )
    needed: dict[bool, list[int]] = {True: [], False: []}
    for seed in range(3):
        for informed in (True, False):
            played = play(bayesian, search(seed, runs() if informed else ()), together, 60)
            costs = [makespan(together(trial)) for trial in played.trials]
            needed[informed].append(next((i for i, cost in enumerate(costs) if cost <= least), 60))

    assert max(needed[True]) < np.median(needed[False])


def test_several_workloads_may_end_after_as_many_trials_as_they_have_configurations() -> None:
    """12 and 12 configurations are 144 trials, of which a single workload would ask for more."""
    played = play(bayesian, search(0, ()), lambda _: result(1.0, [1.0, 1.0]))

    assert played.ended
    assert len(played.trials) <= len(ONE) + len(CANDIDATES) + 12
