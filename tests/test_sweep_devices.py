"""Jobs of a sweep that name no GPU, on a machine with several: modelled GPUs stand for its own."""

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.database.runs import Store
from tuner.devices import choice
from tuner.devices.choice import identify
from tuner.kernel_files.catalog import Catalog
from tuner.model.jobs import JobSpec
from tuner.model.records import RunStatus
from tuner.search.job_messages import AttemptResult, AttemptSpec
from tuner.studies import sweep_local
from tuner.studies.sweep import JobResult, PlacedJob, RefusedJobsError, WaitingJobs, conditions_of
from tuner.studies.sweep_file import SweepJob
from tuner.studies.sweep_local import LocalDevices, LocalLanes

FIRST, SECOND, OTHER_KIND = "sim:h200", "sim:h200.2", "sim:jetson-tx1"
QUICK: Mapping[str, Any] = {"budget": 2, "policy": "random", "window_s": 0.5}


def job(number: int = 4, device: str = "") -> SweepJob:
    return SweepJob("scans", (f"scan-lf:N={number}",), "time", device, QUICK, "[[group]] 1")


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
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[JobSpec], AttemptResult]], None]:
    """Has an answer stand for the processes of jobs."""
    return lambda answer: monkeypatch.setattr(sweep_local, "BlockingLauncher", lambda: PlayedLauncher(answer))


def test_jobs_without_a_device_run_on_two_gpus_at_once(
    tmp_path: Path, play: Callable[[Callable[[JobSpec], AttemptResult]], None]
) -> None:
    """Two jobs that name no GPU meet while both run, and each result says on which GPU it was."""
    both = threading.Barrier(2, timeout=60)

    def meet(asked: JobSpec) -> AttemptResult:
        both.wait()
        return AttemptResult("finished", asked.device)

    play(meet)
    results = ran(LocalLanes(2, tmp_path / "tuner.db", devices=machine(FIRST, SECOND)), job(4), job(8))

    assert sorted(result.device for result in results) == [FIRST, SECOND]
    assert all(result.reason == result.device for result in results)


def test_a_gpu_is_never_given_twice() -> None:
    """A third job waits until one of two GPUs is free, and gets that one."""
    waiting = WaitingJobs([job(4), job(8), job(16)], machine(FIRST, SECOND).of)
    first, second = taken(waiting), taken(waiting)
    third: list[PlacedJob | None] = []
    thread = threading.Thread(target=lambda: third.append(waiting.take()))
    thread.start()

    assert [first, second] == [PlacedJob(job(4), FIRST), PlacedJob(job(8), SECOND)]
    assert third == []
    waiting.release(second)
    thread.join()
    assert third == [PlacedJob(job(16), SECOND)]


def test_jobs_that_name_a_gpu_come_first() -> None:
    """A job that may take any GPU leaves the only one of another job to that."""
    waiting = WaitingJobs(
        [job(4), job(8, "cuda:0")], lambda one: (one.device,) if one.device else ("cuda:0", "cuda:1")
    )

    assert taken(waiting) == PlacedJob(job(8, "cuda:0"), "cuda:0")
    assert taken(waiting) == PlacedJob(job(4), "cuda:1")


def test_a_job_that_cannot_begin_is_tried_on_another_gpu_once(
    tmp_path: Path, play: Callable[[Callable[[JobSpec], AttemptResult]], None]
) -> None:
    """A GPU that fails costs a job nothing where another one runs it; after two it has failed."""
    asked: list[tuple[str, str]] = []

    def fail(one: JobSpec) -> AttemptResult:
        asked.append((one.workloads[0], one.device))
        if one.device == SECOND and one.workloads == job(4).workloads:
            return AttemptResult("finished")
        return AttemptResult("unavailable", "it fell off")

    play(fail)
    lanes = LocalLanes(1, tmp_path / "tuner.db", devices=machine(FIRST, SECOND))
    retried, failed = ran(lanes, job(4), job(8))

    assert asked == [(one.workloads[0], device) for one in (job(4), job(8)) for device in (FIRST, SECOND)]
    assert (retried.job, retried.end, retried.device) == (job(4), "finished", SECOND)
    assert (failed.job, failed.end, failed.reason) == (job(8), "failed", "it fell off")


def test_a_job_goes_on_where_it_has_begun(
    tmp_path: Path, play: Callable[[Callable[[JobSpec], AttemptResult]], None]
) -> None:
    """A job with an unfinished run on a GPU runs there, also where another GPU is free first."""
    path = tmp_path / "tuner.db"
    ((_, conditions),) = conditions_of([job(device=SECOND)], Catalog.load()).conditions
    with Store(path) as store:
        store.end(store.begin(conditions), RunStatus.INTERRUPTED, None)
    play(lambda asked: AttemptResult("finished", asked.device))
    lanes = LocalLanes(1, path, devices=machine(FIRST, SECOND))

    assert lanes.known([job(), job(8)]) == {}
    results = ran(lanes, job(), job(8))
    assert [(result.job, result.reason) for result in results] == [(job(), SECOND), (job(8), FIRST)]


def test_a_job_that_cannot_go_on_where_it_has_begun_ends() -> None:
    """It does not wait for the GPU where it has failed."""
    waiting = WaitingJobs([job()], machine(FIRST, SECOND).of)
    first = taken(waiting)

    assert waiting.try_elsewhere(first)
    second = taken(waiting)
    assert second.device == SECOND
    assert not waiting.move(second, FIRST)
    assert not waiting.try_elsewhere(second)


def test_an_answer_of_another_gpu_of_the_kind_is_known(tmp_path: Path) -> None:
    """A job that names no GPU is answered by any of the kind, and by none of another kind."""
    path, catalog = tmp_path / "tuner.db", Catalog.load()
    ran(LocalLanes(1, path), job(device=SECOND))

    def known(*specs: str, device: str = "") -> Mapping[str, JobResult]:
        return machine(*specs).known([job(device=device)], catalog, path)

    assert known(FIRST, SECOND)[job().key].device == SECOND
    assert known(OTHER_KIND, FIRST)[job().key].device == identify(SECOND).name
    assert known(OTHER_KIND) == {}
    assert known(FIRST, device=FIRST) == {}


def test_a_kind_is_one_of_the_machine() -> None:
    """A job of a kind may run on its GPUs only; a kind that is not here is refused with those that are."""
    devices = machine(OTHER_KIND, FIRST, SECOND)
    name = identify(FIRST).name

    assert devices.of(job(device=f"kind:{name}")) == (FIRST, SECOND)
    assert devices.of(job()) == (OTHER_KIND, FIRST, SECOND)
    with pytest.raises(
        RefusedJobsError, match="no GPU of the kind NVIDIA B200 is here; choose from kind:"
    ) as caught:
        devices.known([job(device="kind:NVIDIA B200")], Catalog.load(), Path("none.db"))
    assert caught.value.refused[0][0] == "[[group]] 1"


def test_without_a_gpu_any_device_is_left_to_who_opens_it() -> None:
    """A job that names no device runs on what stands in for a GPU, one job at a time."""
    devices = LocalDevices(list)

    assert devices.of(job()) == ("",)
    assert "cuda:0" in PlacedJob(job(), "").held


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
        lanes.known([job(), job(device=device)])
    assert [place for place, _ in caught.value.refused] == ["[[group]] 1"]


def test_a_gpu_that_does_not_answer_is_refused_before_the_first_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that has a GPU nothing stands in for it, as in `tuner run`."""
    monkeypatch.setattr(choice, "nvidia_device_file", lambda: "/dev/nvidia0")

    with pytest.raises(RefusedJobsError, match=r"has an NVIDIA GPU .*, and it does not"):
        LocalDevices(list).check([job()])
    LocalDevices(list).check([job(device=FIRST)])


def test_without_a_number_there_is_a_lane_for_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those count that jobs may run on, and the command says so; simulated devices are no GPUs."""
    monkeypatch.setattr(sweep_local, "LocalDevices", lambda: machine(FIRST, SECOND, OTHER_KIND))

    def where(*devices: str) -> str:
        return sweep_local.lanes_for([job(device=device) for device in devices], None, ()).where

    assert where("", FIRST) == "local, 3 lanes, one for each GPU"
    assert where(f"kind:{identify(FIRST).name}") == "local, 2 lanes, one for each GPU"
    assert where(FIRST, "replay:h200") == "local, 1 lane"
