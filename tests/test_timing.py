"""Single launches with a cold L2: timed, stored, looked up, and held against rounds back to back."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from answering_scene import H200, TX1, Answers, conditions, known, shipped
from cli_process import tuner
from fake_cuda import LIMITS, fake_device, plan
from fake_cupy import DeviceArray
from hypothesis import given
from hypothesis import strategies as st
from modelled import device, scan
from tuning_runs import CallbackListener, FormulaMeasurer

from tuner.daemon.interface import Question
from tuner.database.answers import StoredAnswer
from tuner.database.ranking import AnswerQuery, served_answer
from tuner.database.runs import Store
from tuner.devices.cuda.rounds import SINGLES, resolution_s
from tuner.kernel_files.catalog import Catalog
from tuner.measurement.measurer import TrialMeasurer
from tuner.model.objective import NAMES, described, timing_of
from tuner.model.options import BACK_TO_BACK, SINGLE, TIMINGS
from tuner.model.plan import Configuration, Plan
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.search.answer import other_winner, told_of_other
from tuner.search.request import SearchRequest
from tuner.search.setup import open_setup
from tuner.search.tuning import tune

NAME = "scan-lf:N=64"


# --- on a CUDA device of virtual time


@pytest.mark.parametrize(
    ("plans", "times_s"),
    [
        ([plan("scan")], [1e-3]),
        ([plan("scan", "slow")], [4e-3]),  # a graph
        ([plan("scan"), plan("slow", kernel="other")], [1e-3, 3e-3]),
    ],
)
def test_each_round_is_behind_a_flush_of_its_own(
    monkeypatch: pytest.MonkeyPatch, plans: list[Plan], times_s: list[float]
) -> None:
    """What is written between two rounds is larger than the L2; the window holds it, the times do not."""
    cp, gpu = fake_device(monkeypatch)
    flushes: list[int] = []
    cp.fill_s = 2e-3

    def look(*_: DeviceArray) -> None:
        flushes.append(sum(size > LIMITS.l2_bytes for size in cp.filled_bytes))

    cp.kernels["scan"].action = look
    record = gpu.run_single(plans, 0.1)
    assert [result.status for result in record.results] == [Status.OK] * len(plans)
    assert [result.time_s for result in record.results] == pytest.approx(times_s)
    assert record.makespan_s == pytest.approx(max(times_s))
    assert record.rounds >= 5
    assert record.end_s - record.start_s >= record.rounds * (cp.fill_s + max(times_s)) * 0.99
    assert record.end_s - record.start_s == pytest.approx(0.1, abs=0.03)
    assert flushes == list(range(1, len(flushes) + 1))
    assert gpu.run_single(plans, 0.0).rounds == SINGLES


def test_restoring_arrays_is_no_part_of_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies come before the flush, and every launch finds the inputs; back to back they are in the round."""
    cp, gpu = fake_device(monkeypatch)
    cp.copy_s, seen = 2e-4, list[float]()

    def double(x: DeviceArray, *_: object) -> None:
        seen.append(float(abs(x).max()))
        x *= 2

    cp.kernels["scan"].action = double
    own = plan("scan", role="inout")
    own = replace(own, buffers=(replace(own.buffers[0], restored=True),))
    single, together = gpu.run_single([own], 0.05), gpu.run([own], 0.05)
    assert (single.makespan_s, together.makespan_s) == pytest.approx((1e-3, 1.2e-3))
    assert (single.results[0].restore_s, together.results[0].restore_s) == pytest.approx((0.0, 2e-4))
    assert max(seen) <= 1.0


@pytest.mark.parametrize(("entry", "status"), [("refused", Status.LAUNCH_ERROR), ("illegal", Status.CRASHED)])
def test_failures_of_single_launches_are_statuses(
    monkeypatch: pytest.MonkeyPatch, entry: str, status: Status
) -> None:
    """A launch that is refused, or takes the context with it, ends the trial and nothing else."""
    record = fake_device(monkeypatch)[1].run_single([plan(entry)], 0.05)
    assert [result.status for result in record.results] == [status]


@given(st.floats(1e-8, 1e-6), st.lists(st.integers(1, 1000), min_size=1, max_size=40))
def test_the_step_of_a_clock_bounds_what_is_known(step_s: float, ticks: list[int]) -> None:
    """Times told in steps are known to a step's uniform distribution at best, if not by fewer ticks."""
    unsure_s = resolution_s([tick * step_s for tick in ticks])
    assert unsure_s > 0.0
    if len(set(ticks)) > 1:
        assert unsure_s >= step_s / math.sqrt(12) * (1 - 1e-6)


# --- on a simulated device


@given(
    st.sampled_from(("h200", "jetson-tx1", "gtx580")),
    st.sampled_from((2, 4, 8, 16)),
    st.sampled_from((64, 128, 256)),
    st.integers(1, 2),
)
def test_a_modelled_single_launch_is_never_faster(
    name: str, per_thread: int, threads: int, count: int
) -> None:
    """It takes its start, and drives out what a flush has written: by no more than an L2 in all."""
    gpu = device(name)
    plans = [scan(per_thread, threads, kernel=f"scan{number}") for number in range(count)]
    together, single = gpu.run(plans, 0.1), gpu.run_single(plans, 0.1)
    assert together.makespan_s is not None
    assert single.makespan_s is not None
    flush_s = (single.end_s - single.start_s) / single.rounds - single.makespan_s
    assert together.makespan_s < single.makespan_s < together.makespan_s + 2 * flush_s + 1e-4
    assert gpu.identity.modelled


@pytest.mark.parametrize("timing", TIMINGS)
def test_a_measurer_times_as_it_is_told(timing: str) -> None:
    """Windows are those of its timing, and the short one at the end is of the other; both are modelled."""
    gpu, plans = device(), [scan(4, 256)]
    trial = Trial((plans[0].configuration,))
    right, other = (gpu.run(plans, 0.1).makespan_s, gpu.run_single(plans, 0.1).makespan_s)[
        :: 1 if timing == BACK_TO_BACK else -1
    ]
    measurer = TrialMeasurer(gpu, timing=timing)
    measured, otherwise = measurer.measure(trial, plans), measurer.measure_otherwise(trial, plans)
    assert (measured.makespan_s, otherwise.makespan_s) == pytest.approx((right, other))
    assert measured.modelled
    assert otherwise.modelled
    assert not measured.flags
    assert not otherwise.flags


# --- answers


@given(st.sampled_from(NAMES), st.one_of(st.none(), st.floats(0, 10)), st.sampled_from(TIMINGS))
def test_the_stored_objective_tells_the_timing(name: str, limit: float | None, timing: str) -> None:
    """Answers of two timings are stored for two objectives; those of before are of rounds back to back."""
    stored = described(name, limit, timing=timing)
    assert timing_of(stored) == timing
    assert stored.split()[0] == name
    assert (stored == described(name, limit)) == (timing == BACK_TO_BACK)


def stored(timing: str, run: int, driver: str = H200.driver) -> StoredAnswer:
    bound = {"objective": described("time", None, timing=timing)}
    return known([NAME], replace(H200, driver=driver), run=run, bound=bound)


@pytest.mark.parametrize(
    ("answers", "asked", "served"),
    [
        ((BACK_TO_BACK, SINGLE), None, 1),
        ((SINGLE, BACK_TO_BACK), None, 2),
        ((SINGLE,), None, 1),
        ((SINGLE, SINGLE), None, 2),
        ((BACK_TO_BACK, SINGLE), SINGLE, 2),
        ((BACK_TO_BACK, SINGLE), BACK_TO_BACK, 1),
        ((BACK_TO_BACK,), SINGLE, None),
        ((SINGLE,), BACK_TO_BACK, None),
    ],
)
def test_an_answer_is_of_the_timing_that_is_asked_for(
    answers: Sequence[str], asked: str | None, served: int | None
) -> None:
    """Without a timing that is the default one while there is one, else any; with one it is no other."""
    workload = shipped().workload(NAME)
    query = AnswerQuery(
        (workload,),
        {workload.kernel: shipped().kernel(workload.kernel)},
        conditions([NAME]).sources,
        described("time", None, timing=asked),
        H200,
        any_timing=asked is None,
    )
    found = served_answer(query, [stored(timing, run) for run, timing in enumerate(answers, start=1)])
    assert (None if found is None else found.answer.run) == served


def test_the_daemon_says_which_timing_it_serves() -> None:
    """Its reply to a question without a timing has a notice; its search for the other one is of that."""
    bound = {"objective": described("time", None, timing=SINGLE)}
    answers = Answers(shipped(), {TX1.spec: TX1})
    answers.take(known([NAME], TX1, bound=bound))
    anyhow = answers.reply(Question((NAME,), "time"))
    exact = answers.reply(Question((NAME,), "time", timing=SINGLE))
    other = answers.reply(Question((NAME,), "time", timing=BACK_TO_BACK))
    assert (anyhow.run, exact.run, other.run) == (1, 1, None)
    assert anyhow.answer is not None
    assert anyhow.answer["timing"] == SINGLE
    assert [any("single launches" in one for one in reply.notices) for reply in (anyhow, exact)] == [
        True,
        False,
    ]


# --- whether the other timing has another winner


def measured(time_s: float, unsure: float = 1e-4) -> Measurement:
    return Measurement((WorkloadResult(Status.OK, time_s),), time_s, 0.0, unsure * time_s, rounds=9)


@given(st.lists(st.tuples(st.floats(1e-6, 2e-3), st.floats(1e-6, 2e-3)), min_size=1, max_size=20))
def test_another_winner_is_surely_faster_by_the_other_timing(times: list[tuple[float, float]]) -> None:
    """It is told exactly where one of the dozen lowest gains more than a percent on the answer."""
    trials = [Trial((Configuration({"number": number}),)) for number in range(len(times))]
    known = {trial: measured(own_s) for trial, (own_s, _) in zip(trials, times, strict=True)}
    others = dict(zip(trials, (other_s for _, other_s in times), strict=True))
    by_time = sorted(trials, key=lambda trial: known[trial].makespan_s or 0.0)
    asked: list[Trial] = []

    def measure(trial: Trial) -> Measurement:
        asked.append(trial)
        return measured(others[trial])

    winner = other_winner(by_time[0], known, measure, lambda: True)
    gain = 1.0 - min(others[trial] for trial in by_time[:12]) / others[by_time[0]]
    assert len(asked) <= 12 + 6
    assert (winner is not None) == (gain > 0.01) or gain == pytest.approx(0.01, rel=1e-3)
    if winner is not None:
        trial, _, ratio = winner
        assert others[trial] < others[by_time[0]]
        assert ratio.value + ratio.interval < 1.0
    assert other_winner(by_time[0], known, measure, lambda: False) is None


def test_the_notice_names_the_winner_in_units() -> None:
    """It says what takes how long, by how much less, that it is modelled, and how to look for it."""
    chosen = [Trial((Configuration({"B": number}),)) for number in (32, 64)]
    known = {trial: measured(5e-6) for trial in chosen}
    times = {chosen[0]: 6e-6, chosen[1]: 5e-6}
    winner = other_winner(chosen[0], known, lambda trial: measured(times[trial]), lambda: True)
    assert winner is not None
    assert told_of_other(SINGLE, winner, "modelled") == (
        "timing: single launches with a cold L2 have another winner (modelled): B=64 takes 5.000 µs,"
        " -16.7 ± 0.5 % against the answer; --timing single looks for it"
    )


class OtherLikes(FormulaMeasurer):
    """Blocks of 256 threads, the default's, take the least; by the other timing they take twice as long."""

    def measure(self, trial: Trial, plans: Sequence[Plan], target: Any = None) -> Measurement:
        """A percent less for the default's blocks."""
        del plans, target
        time_s = 1e-3 if trial.configurations[0]["L"] == 256 else 1.05e-3
        return self.measured([time_s], time_s)

    def measure_otherwise(self, trial: Trial, plans: Sequence[Plan]) -> Measurement:
        """Half of it for all others."""
        del plans
        time_s = 1e-3 if trial.configurations[0]["L"] == 256 else 5e-4
        return self.measured([time_s], time_s)


@pytest.mark.parametrize("timing", TIMINGS)
def test_a_run_names_the_winner_of_the_other_timing(timing: str, tmp_path: Path) -> None:
    """One line, which is a notice of the stored answer, too."""
    request = SearchRequest(
        workloads=("scan-lf:N=4",), policy="random", budget=12, objective="time", timing=timing
    )
    other = next(one for one in TIMINGS if one != timing)
    with Store(tmp_path / "tuner.db") as store, open_setup("sim:k40c", request) as setup:
        own = replace(setup, measurer=OtherLikes())
        outcome = tune(own, request, Catalog.load(), store, CallbackListener(), resume=False)
        (stored_run,) = store.history()
    told = [one for one in outcome.notices if one.startswith("timing: ")]
    assert len(told) == 1
    assert f"--timing {other}" in told[0]
    assert "L=256" not in told[0]
    assert "takes 500.0 µs, -50.0 ± " in told[0]
    assert stored_run.answer is not None
    assert told[0] in stored_run.answer["notices"]


# --- from the command line


def test_runs_of_two_timings_stay_apart(tmp_path: Path) -> None:
    """Report, JSON, export and recording state the timing; a run of the one knows nothing of the other."""
    words = [NAME, "--device", "sim:h200", "--objective", "time", "--database", tmp_path / "tuner.db"]
    recorded = tmp_path / "single.zip"

    def run(*more: Any, code: int = 0) -> str:
        done = tuner(*more)
        assert done.exit_code == code, done.output
        return str(done.output)

    single = run("run", *words, "--timing", SINGLE, "--budget", 8)
    assert "least time of single launches with a cold L2" in single
    assert "holds for: NVRTC" in single
    assert "--std=c++17, single launches with a cold L2" in single
    assert "no answer of rounds back to back is stored" in run("best", *words)
    assert "--timing single" in run("best", *words, "--timing", BACK_TO_BACK, code=1)
    assert "rounds back to back" in run("run", *words, "--budget", 3, "--policy", "random")
    assert "least time · run 2" in run("best", *words)
    assert "with a cold L2 · run 1" in run("best", *words, "--timing", SINGLE)
    assert "for time of single launches */" in run("export", "1", "--format", "header", *words[-2:])
    run("db", "export", "--run", 1, "--output", recorded, *words[-2:])
    replay = ["run", "--device", f"replay:{recorded}", "--objective", "time", *words[-2:]]
    assert "of single launches" in run(*replay, "--timing", SINGLE)
    assert "use --timing single" in run(*replay, code=2)
