"""A sweep from its jobs to its report, on back ends that are played, and in lanes of this machine's GPUs."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from job_workshop import PreparedLauncher

from tuner.database.runs import Store
from tuner.devices import choice
from tuner.devices.choice import identify
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import DaemonError
from tuner.model.jobs import JobSpec
from tuner.model.records import RunStatus
from tuner.search import job_launcher
from tuner.search.job_messages import AttemptResult, AttemptSpec
from tuner.studies import sweep_jobs
from tuner.studies.reports import SweepProgress
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
from tuner.studies.sweep_jobs import LocalDevices, LocalLanes

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


@pytest.fixture(autouse=True)
def _prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are processes whose imports are done."""
    monkeypatch.setattr(job_launcher, "Launcher", PreparedLauncher)


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
    put_back = WaitingJobs.put_back
    with Store(path) as store:
        run = store.begin(conditions)

    def leave(waiting: WaitingJobs, busy: PlacedJob) -> None:
        with Store(path) as store:
            store.end(run, RunStatus.INTERRUPTED, None)
        put_back(waiting, busy)

    monkeypatch.setattr(WaitingJobs, "put_back", leave)
    ended = [
        one for one in LocalLanes(1, path, again_s=0.0).run([shared, other]) if isinstance(one, JobResult)
    ]

    assert [(one.job, one.end) for one in ended] == [(other, "finished"), (shared, "finished")]
    assert ended[1].run == run


def test_the_answer_of_another_process_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the process that was waited for has found an answer, that is the job's, and nothing runs."""
    path, shared = tmp_path / "tuner.db", job(**QUICK)
    lanes = LocalLanes(1, path, again_s=0.0)
    assert lanes.known([shared]) == {}
    ((_, conditions),) = conditions_of([shared], Catalog.load()).conditions
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


# --- jobs that name no GPU, on a machine with several: modelled GPUs stand for its own --------------

FIRST, SECOND, OTHER_KIND = "sim:h200", "sim:h200.2", SIM
Play = Callable[[Callable[[JobSpec], AttemptResult]], None]


def free(number: int = 4, device: str = "") -> SweepJob:
    """A job that may run on any GPU, unless a device is named."""
    return job(number, device, **QUICK)


def machine(*specs: str) -> LocalDevices:
    return LocalDevices(lambda: [identify(spec) for spec in specs])


def taken(waiting: WaitingJobs) -> PlacedJob:
    placed = waiting.take()
    assert placed is not None
    return placed


class PlayedLauncher:
    """Stands for the launcher of jobs: what becomes of a job that it starts, ``answer`` says."""

    def __init__(self, answer: Callable[[JobSpec], AttemptResult]) -> None:
        self._answer = answer

    def start(self, spec: AttemptSpec) -> AttemptSpec:
        return spec

    def result(self, process: AttemptSpec) -> AttemptResult:
        return self._answer(process.job_spec)

    def stop(self, process: AttemptSpec, grace_s: float) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing is open."""


def ran(lanes: LocalLanes, *jobs: SweepJob) -> list[JobResult]:
    return [event for event in lanes.run(jobs) if isinstance(event, JobResult)]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Has an answer stand for the processes of jobs."""
    return lambda answer: monkeypatch.setattr(sweep_jobs, "BlockingLauncher", lambda: PlayedLauncher(answer))


def test_jobs_without_a_device_run_on_two_gpus_at_once(tmp_path: Path, play: Play) -> None:
    """Two jobs that name no GPU meet while both run, and each result says on which GPU it was."""
    both = threading.Barrier(2, timeout=60)

    def meet(asked: JobSpec) -> AttemptResult:
        both.wait()
        return AttemptResult("finished", asked.device)

    play(meet)
    results = ran(LocalLanes(2, tmp_path / "tuner.db", devices=machine(FIRST, SECOND)), free(4), free(8))

    assert sorted(result.device for result in results) == [FIRST, SECOND]
    assert all(result.reason == result.device for result in results)


def test_a_gpu_is_never_given_twice() -> None:
    """A third job waits until one of two GPUs is free, and gets that one."""
    waiting = WaitingJobs([free(4), free(8), free(16)], machine(FIRST, SECOND).of)
    first, second = taken(waiting), taken(waiting)
    third: list[PlacedJob | None] = []
    thread = threading.Thread(target=lambda: third.append(waiting.take()))
    thread.start()

    assert [first, second] == [PlacedJob(free(4), FIRST), PlacedJob(free(8), SECOND)]
    assert third == []
    waiting.release(second)
    thread.join()
    assert third == [PlacedJob(free(16), SECOND)]


def test_jobs_that_name_a_gpu_come_first() -> None:
    """A job that may take any GPU leaves the only one of another job to that."""
    waiting = WaitingJobs(
        [free(4), free(8, "cuda:0")], lambda one: (one.device,) if one.device else ("cuda:0", "cuda:1")
    )

    assert taken(waiting) == PlacedJob(free(8, "cuda:0"), "cuda:0")
    assert taken(waiting) == PlacedJob(free(4), "cuda:1")


def test_a_job_that_cannot_begin_is_tried_on_another_gpu_once(tmp_path: Path, play: Play) -> None:
    """A GPU that fails costs a job nothing where another one runs it; after two it has failed."""
    asked: list[tuple[str, str]] = []

    def fail(one: JobSpec) -> AttemptResult:
        asked.append((one.workloads[0], one.device))
        if one.device == SECOND and one.workloads == free(4).workloads:
            return AttemptResult("finished")
        return AttemptResult("unavailable", "it fell off")

    play(fail)
    lanes = LocalLanes(1, tmp_path / "tuner.db", devices=machine(FIRST, SECOND))
    retried, failed = ran(lanes, free(4), free(8))

    assert asked == [(one.workloads[0], device) for one in (free(4), free(8)) for device in (FIRST, SECOND)]
    assert (retried.job, retried.end, retried.device) == (free(4), "finished", SECOND)
    assert (failed.job, failed.end, failed.reason) == (free(8), "failed", "it fell off")


def test_a_job_goes_on_where_it_has_begun(tmp_path: Path, play: Play) -> None:
    """A job with an unfinished run on a GPU runs there, also where another GPU is free first."""
    path = tmp_path / "tuner.db"
    ((_, conditions),) = conditions_of([free(device=SECOND)], Catalog.load()).conditions
    with Store(path) as store:
        store.end(store.begin(conditions), RunStatus.INTERRUPTED, None)
    play(lambda asked: AttemptResult("finished", asked.device))
    lanes = LocalLanes(1, path, devices=machine(FIRST, SECOND))

    assert lanes.known([free(), free(8)]) == {}
    results = ran(lanes, free(), free(8))
    assert [(result.job, result.reason) for result in results] == [(free(), SECOND), (free(8), FIRST)]


def test_a_job_that_cannot_go_on_where_it_has_begun_ends() -> None:
    """It does not wait for the GPU where it has failed."""
    waiting = WaitingJobs([free()], machine(FIRST, SECOND).of)
    first = taken(waiting)

    assert waiting.try_elsewhere(first)
    second = taken(waiting)
    assert second.device == SECOND
    assert not waiting.move(second, FIRST)
    assert not waiting.try_elsewhere(second)


def test_an_answer_of_another_gpu_of_the_kind_is_known(tmp_path: Path) -> None:
    """A job that names no GPU is answered by any of the kind, and by none of another kind."""
    path, catalog = tmp_path / "tuner.db", Catalog.load()
    ran(LocalLanes(1, path), free(device=SECOND))

    def known(*specs: str, device: str = "") -> Mapping[str, JobResult]:
        return machine(*specs).known([free(device=device)], catalog, path)

    assert known(FIRST, SECOND)[free().key].device == SECOND
    assert known(OTHER_KIND, FIRST)[free().key].device == identify(SECOND).name
    assert known(OTHER_KIND) == {}
    assert known(FIRST, device=FIRST) == {}


def test_a_kind_is_one_of_the_machine() -> None:
    """A job of a kind may run on its GPUs only; a kind that is not here is refused with those that are."""
    devices = machine(OTHER_KIND, FIRST, SECOND)
    name = identify(FIRST).name

    assert devices.of(free(device=f"kind:{name}")) == (FIRST, SECOND)
    assert devices.of(free()) == (OTHER_KIND, FIRST, SECOND)
    with pytest.raises(
        RefusedJobsError, match="no GPU of the kind NVIDIA B200 is here; choose from kind:"
    ) as caught:
        devices.known([free(device="kind:NVIDIA B200")], Catalog.load(), Path("none.db"))
    assert caught.value.refused[0][0] == "[[group]] 1"


def test_without_a_gpu_any_device_is_left_to_who_opens_it() -> None:
    """A job that names no device runs on what stands in for a GPU, one job at a time."""
    devices = LocalDevices(list)

    assert devices.of(free()) == ("",)
    assert "cuda:0" in PlacedJob(free(), "").held


@pytest.mark.parametrize(
    ("specs", "device", "says"),
    [
        ((), "cuda:0", "no cuda:0 is here: "),
        ((), "cuda", "for modelled numbers name a device such as sim:h200"),
        ((), "kind:NVIDIA H200", "no GPU of the kind NVIDIA H200 is here: "),
        (("cuda:0", "cuda:1"), "cuda:7", "no cuda:7 is here; choose from cuda:0, cuda:1"),
    ],
)
def test_a_gpu_that_is_not_here_is_refused_before_the_first_job(
    specs: tuple[str, ...], device: str, says: str, tmp_path: Path
) -> None:
    """The message names the group, and what there is."""
    gpus = [replace(identify(FIRST), spec=spec) for spec in specs]
    lanes = LocalLanes(1, tmp_path / "tuner.db", devices=LocalDevices(lambda: gpus))

    with pytest.raises(RefusedJobsError, match=re.escape(says)) as caught:
        lanes.known([free(), free(device=device)])
    assert [place for place, _ in caught.value.refused] == ["[[group]] 1"]


def test_a_gpu_that_does_not_answer_is_refused_before_the_first_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that has a GPU nothing stands in for it, as in `tuner run`."""
    monkeypatch.setattr(choice, "nvidia_device_file", lambda: "/dev/nvidia0")

    with pytest.raises(RefusedJobsError, match=r"has an NVIDIA GPU .*, and it does not"):
        LocalDevices(list).check([free()])
    LocalDevices(list).check([free(device=FIRST)])


def test_without_a_number_there_is_a_lane_for_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those count that jobs may run on, and the command says so; simulated devices are no GPUs."""
    monkeypatch.setattr(sweep_jobs, "LocalDevices", lambda: machine(FIRST, SECOND, OTHER_KIND))

    def where(*devices: str) -> str:
        return sweep_jobs.lanes_for([free(device=device) for device in devices], None, ()).where

    assert where("", FIRST) == "local, 3 lanes, one for each GPU"
    assert where(f"kind:{identify(FIRST).name}") == "local, 2 lanes, one for each GPU"
    assert where(FIRST, "replay:h200") == "local, 1 lane"
