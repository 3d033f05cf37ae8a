"""A sweep from its jobs to its report, on back ends that are played, and in lanes of this machine."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.database.runs import Store
from tuner.devices.choice import identify
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import DaemonError
from tuner.model.records import RunStatus
from tuner.studies import sweep
from tuner.studies.sweep import (
    JobResult,
    JobStarted,
    PlacedJob,
    RefusedJobsError,
    SweepReport,
    WaitingJobs,
    change_of,
    conditions_of,
    run_sweep,
)
from tuner.studies.sweep_file import SweepJob
from tuner.studies.sweep_local import LocalDevices, LocalLanes
from tuner.studies.sweep_progress import SweepProgress

SIM = "sim:jetson-tx1"
QUICK: Mapping[str, Any] = {"budget": 2, "policy": "random", "window_s": 0.5}
ANSWER: Mapping[str, Any] = {"slowdown": 0.1, "slowdown_interval": 0.01, "energy_saving": 0.2}


def job(number: int = 4, device: str = SIM, **options: Any) -> SweepJob:
    return SweepJob("scans", (f"scan-lf:N={number}",), "time", device, options, "[[group]] 1")


class Played:
    """Runs jobs at once; those of a size in ``fails`` fail, and an interrupt follows that of ``stops``."""

    where = "played"

    def __init__(self, known: Sequence[SweepJob] = (), fails: Sequence[int] = (), stops: int = 0) -> None:
        self._known = known
        self._fails = {job(number).key for number in fails}
        self._stops = job(stops).key
        self.ran: list[SweepJob] = []
        self.closed = False

    def known(self, jobs: Sequence[SweepJob]) -> Mapping[str, JobResult]:
        del jobs
        return {one.key: JobResult(one, "known", run=1) for one in self._known}

    def run(self, jobs: Sequence[SweepJob]) -> Iterator[JobStarted | JobResult]:
        try:
            for one in jobs:
                yield JobStarted(one)
                self.ran.append(one)
                failed = one.key in self._fails
                yield JobResult(one, "failed" if failed else "finished", reason="why" if failed else "")
                if one.key == self._stops:
                    raise KeyboardInterrupt
        finally:
            self.closed = True


def swept(backend: Played, *numbers: int) -> SweepReport:
    with SweepProgress() as progress:
        return run_sweep([job(number) for number in numbers], backend, progress, "sweep.toml")


def test_known_jobs_do_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    """A job with a fresh answer is in the report, and is not run."""
    backend = Played(known=[job(8)])
    report = swept(backend, 4, 8)

    assert backend.ran == [job(4)]
    assert report.counts == {"known": 1, "finished": 1}
    assert [one.job for one in report.in_order()] == [job(4), job(8)]
    assert "1 answered before" in capsys.readouterr().err


def test_a_failed_job_stops_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    """The others run, and the failed one is told with its reason."""
    report = swept(Played(fails=[4]), 4, 8)

    assert report.counts == {"failed": 1, "finished": 1}
    assert [one.job for one in report.failed] == [job(4)]
    assert "failed: scan-lf:N=4 time on sim:jetson-tx1: why" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "suffix"), [("modelled", " (modelled)"), ("recorded", " (recorded)"), ("", "")]
)
def test_progress_says_what_numbers_are(kind: str, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A change that no GPU has shown is labelled."""
    result = JobResult(job(), "finished", answer={**ANSWER, kind: True})
    with SweepProgress() as progress:
        progress.begun(SweepReport("sweep.toml", "played", [job()], [result]))
        progress.ended(result)

    assert capsys.readouterr().err.endswith(f"+10.0 ± 1.0 % against the default{suffix}\n")


def test_an_interrupt_leaves_a_report() -> None:
    """What had ended is in the report, the back end is closed, and the rest is left."""
    backend = Played(stops=4)
    report = swept(backend, 4, 8)

    assert report.interrupted
    assert (report.left, backend.closed) == (1, True)


def test_a_back_end_that_fails_leaves_a_report() -> None:
    """What had ended is in the report, with the reason why the rest is left."""
    backend = Played()
    backend.run = lambda _: (_ for _ in ()).throw(DaemonError("gone"))  # type: ignore[method-assign,assignment]
    report = swept(backend, 4, 8)

    assert (report.left, report.trouble, report.interrupted) == (2, "gone", False)


def test_a_change_is_that_of_the_objective() -> None:
    """The objective time is told by the time, the others by joules; less is negative."""
    assert change_of(JobResult(job(), "finished", answer=ANSWER)) == (0.1, 0.01)
    energy = SweepJob("scans", ("scan-lf:N=4",), "energy")
    answer = {**ANSWER, "energy_saving_interval": 0.02}
    assert change_of(JobResult(energy, "finished", answer=answer)) == (-0.2, 0.02)
    assert change_of(JobResult(job(), "failed")) is None


# --- lanes of this machine -------------------------------------------------------------------------


def test_lanes_run_jobs_and_know_them_afterwards(tmp_path: Path) -> None:
    """A job that can be run has a stored answer, another fails, and only that runs again."""
    lanes = LocalLanes(1, tmp_path / "tuner.db")
    good, bad = job(**QUICK), job(8, **QUICK, solo_bests=3)

    before = lanes.known([good, bad])
    ended = [one for one in lanes.run([good, bad]) if isinstance(one, JobResult)]
    after = lanes.known([good, bad, job(**{**QUICK, "budget": 3}), job(**QUICK, seed=1)])

    assert before == {}
    assert [one.end for one in ended] == ["finished", "failed"]
    assert "is alone" in ended[1].reason
    assert ended[0].answer is not None
    assert ended[0].kind == "modelled"
    assert list(after) == [good.key]
    assert after[good.key].run == ended[0].run


def test_what_cannot_be_is_refused_before_anything_runs(tmp_path: Path) -> None:
    """Unknown kernels and devices, and options that contradict each other, are told by their groups."""
    wrong = [
        SweepJob("a", ("scan-lff:N=4",), "time", SIM, {}, "[[group]] 1"),
        job(device="sim:nothing"),
        job(patience=3, policy="greedy"),
    ]
    with pytest.raises(RefusedJobsError) as caught:
        LocalLanes(1, tmp_path / "tuner.db").known(wrong)

    text = str(caught.value)
    assert "[[group]] 1: unknown kernel 'scan-lff'" in text
    assert "no simulated GPU 'sim:nothing'" in text
    assert "--patience is no option of the policy greedy" in text


def test_a_device_that_does_not_open_is_told_by_its_jobs(tmp_path: Path) -> None:
    """A GPU that is listed and cannot be opened stops no sweep: its jobs fail with the reason."""
    listed = replace(identify(SIM), spec="cuda:9999")
    lanes = LocalLanes(1, tmp_path / "tuner.db", devices=LocalDevices(lambda: [listed]))
    absent = job(device="cuda:9999", **QUICK)

    assert lanes.known([absent]) == {}
    (ended,) = [one for one in lanes.run([absent]) if isinstance(one, JobResult)]
    assert ended.end == "failed"
    assert ended.reason


def test_nothing_runs_where_nothing_can_be_stored(tmp_path: Path) -> None:
    """A database that cannot be made is told once, and not by every job."""
    (tmp_path / "file").write_text("")
    lanes = LocalLanes(1, tmp_path / "file" / "tuner.db")
    with SweepProgress() as progress:
        report = run_sweep([job(4, **QUICK), job(8, **QUICK)], lanes, progress, "sweep.toml")

    assert (report.left, report.counts) == (2, {})
    assert str(tmp_path / "file") in report.trouble


def test_a_job_that_another_process_measures_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again, after all others, and goes on with the run that the other has left."""
    path, shared, other = tmp_path / "tuner.db", job(**QUICK), job(8, **QUICK)
    ((_, conditions),) = conditions_of([shared], Catalog.load()).conditions
    monkeypatch.setattr(sweep, "_AGAIN_S", 0.0)
    put_back = WaitingJobs.put_back
    with Store(path) as store:
        run = store.begin(conditions)

    def leave(waiting: WaitingJobs, busy: PlacedJob) -> None:
        with Store(path) as store:
            store.end(run, RunStatus.INTERRUPTED, None)
        put_back(waiting, busy)

    monkeypatch.setattr(WaitingJobs, "put_back", leave)
    ended = [one for one in LocalLanes(1, path).run([shared, other]) if isinstance(one, JobResult)]

    assert [(one.job, one.end) for one in ended] == [(other, "finished"), (shared, "finished")]
    assert ended[1].run == run


def test_the_answer_of_another_process_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the process that was waited for has found an answer, that is the job's, and nothing runs."""
    path, shared = tmp_path / "tuner.db", job(**QUICK)
    lanes = LocalLanes(1, path)
    assert lanes.known([shared]) == {}
    ((_, conditions),) = conditions_of([shared], Catalog.load()).conditions
    monkeypatch.setattr(sweep, "_AGAIN_S", 0.0)
    put_back = WaitingJobs.put_back
    with Store(path) as store:
        run = store.begin(conditions)
    answers: list[JobResult] = []

    def finish(waiting: WaitingJobs, busy: PlacedJob) -> None:
        with Store(path) as store:
            store.end(run, RunStatus.INTERRUPTED, None)
        answers.extend(one for one in LocalLanes(1, path).run([shared]) if isinstance(one, JobResult))
        put_back(waiting, busy)

    monkeypatch.setattr(WaitingJobs, "put_back", finish)
    (ended,) = [one for one in lanes.run([shared]) if isinstance(one, JobResult)]
    with Store(path) as store:
        assert len(store.history()) == 1
    (answer,) = answers

    assert (answer.end, answer.run) == ("finished", run)
    assert (ended.end, ended.run, ended.answer) == ("known", run, answer.answer)


def test_jobs_that_share_a_run_take_turns() -> None:
    """Jobs that differ in limits alone do not run at the same time: the second goes on with the run."""
    waiting = WaitingJobs([job(budget=5), job(budget=9), job(budget=5, seed=1)])
    first, second = waiting.take(), waiting.take()

    assert [first, second] == [PlacedJob(job(budget=5), SIM), PlacedJob(job(budget=5, seed=1), SIM)]
    assert first is not None
    waiting.release(first)
    assert waiting.take() == PlacedJob(job(budget=9), SIM)


def test_a_gpu_has_one_job_at_a_time() -> None:
    """A second job of a GPU waits for the first, and jobs of simulated GPUs do not."""
    waiting = WaitingJobs([job(4, "cuda:0"), job(8, "cuda:0"), job(16), job(32)])
    first, *others = waiting.take(), waiting.take(), waiting.take()
    taken: list[PlacedJob | None] = []
    thread = threading.Thread(target=lambda: taken.append(waiting.take()))
    thread.start()

    assert first == PlacedJob(job(4, "cuda:0"), "cuda:0")
    assert others == [PlacedJob(job(16), SIM), PlacedJob(job(32), SIM)]
    assert taken == []
    waiting.release(first)
    thread.join()
    assert taken == [PlacedJob(job(8, "cuda:0"), "cuda:0")]
    assert waiting.take() is None
