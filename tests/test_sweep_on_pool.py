"""Sweeps on the workers of a pool: over real Dask with simulated GPUs, and on workers that are played."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import ChildCrashedError, ChildTimeoutError, InputError, PoolError, WorkerLostError
from tuner.model.jobs import DeviceIdentity
from tuner.model.records import RunStatus
from tuner.pool.worker import EndedJob, WorkOrder, ask_child, run_job, stop_work
from tuner.pool.worker_calls import PoolWorker, Workers, open_workers
from tuner.search.job_messages import AttemptResult, AttemptSpec
from tuner.studies.sweep import JobConditions, JobResult, JobStarted, RefusedJobsError, attempt_at
from tuner.studies.sweep_file import SweepJob
from tuner.studies.sweep_pool import LaneFacts, LaneQuestions, PoolLanes

SIM = "sim:jetson-tx1"
QUICK: Mapping[str, Any] = {"budget": 2, "policy": "random", "window_s": 0.5}
H200 = DeviceIdentity("cuda:0", "NVIDIA H200", "GPU-1", "580", "12.9", modelled=False)


def job(number: int = 4, device: str = SIM, **options: Any) -> SweepJob:
    return SweepJob("scans", (f"scan-lf:N={number}",), "time", device, options or QUICK, "[[group]] 1")


def spec() -> AttemptSpec:
    """As a worker is sent it."""
    return attempt_at(job(), SIM, Path())


# --- real workers ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """Two workers of a scheduler of Dask, with a simulated GPU each."""
    with open_workers("local:2", device=SIM) as found:
        yield found


def test_a_sweep_survives_a_worker_and_is_known_afterwards(workers: Workers, tmp_path: Path) -> None:
    """With a worker killed -9 every job that can be has one run here; a second sweep runs none of them."""
    jobs = [job(4), job(8), job(16), job(32, **QUICK, solo_bests=3)]
    database = tmp_path / "tuner.db"
    lanes = PoolLanes(workers, "dask", database)
    assert lanes.known(jobs) == {}
    victim = workers.submit(os.getpid, worker=min(workers.present)).result()
    happening = list(killing(victim, lanes.run(jobs)))
    ended = [one for one in happening if isinstance(one, JobResult)]
    known = PoolLanes(workers, "dask", database).known(jobs)

    assert sorted(one.end for one in ended) == ["failed", "finished", "finished", "finished"]
    assert "is alone" in next(one.reason for one in ended if one.end == "failed")
    assert known.keys() == {one.key for one in jobs[:3]}
    with Store(database) as store:
        runs = store.history()
    assert [run.status for run in runs] == [RunStatus.LIMITED] * 3
    assert {run.id for run in runs} == {one.run for one in ended if one.run is not None}
    assert all(run.origin is not None and run.origin.source.startswith("a sweep's job on") for run in runs)


def killing(victim: int, events: Iterator[JobStarted | JobResult]) -> Iterator[JobStarted | JobResult]:
    """The events of a sweep; a process is killed at the first."""
    for number, event in enumerate(events):
        if number == 0:
            os.kill(victim, signal.SIGKILL)
        yield event


def test_a_sweep_that_is_stopped_frees_its_workers(workers: Workers, tmp_path: Path) -> None:
    """Closing ends the job that runs, and nothing of it is stored here."""
    long = job(2048, policy="exhaustive")
    happening = PoolLanes(workers, "dask", tmp_path / "tuner.db").run([long])
    assert next(happening) == JobStarted(long)
    happening.close()  # type: ignore[attr-defined]  # a generator
    for address in workers.present:
        assert workers.submit(os.getpid, worker=address).result()
    with Store(tmp_path / "tuner.db") as store:
        assert store.history() == []


def test_work_that_is_silent_or_stopped_costs_its_call() -> None:
    """A question or a job that says nothing is killed, the next is heard, a run that was stopped has none."""
    hung = WorkOrder("first", silence_s=0.2)
    with pytest.raises(ChildTimeoutError, match=r"no answer within 0\.2 s"):
        ask_child(hung, (), ("signal:sigwait", {signal.SIGUSR1}), "nothing")
    silent = run_job(replace(hung, silence_s=0.0), (), spec())
    assert (silent.result.status, silent.database) == ("crashed", b"")
    assert "no sign of life" in silent.result.message
    order = WorkOrder("second")
    assert ask_child(order, (), ("pathlib:Path", "/"), "joinpath", "a") == Path("/a")
    stop_work("second")
    with pytest.raises(PoolError, match="was stopped"):
        ask_child(order, (), ("pathlib:Path", "/"), "joinpath", "a")
    with pytest.raises(PoolError, match="was stopped"):
        run_job(order, (), spec())


def test_a_job_is_refused_with_a_file_that_is_too_large() -> None:
    """The database of a job is not sent beyond the limit, and the message says what helps."""
    with pytest.raises(InputError, match="use --on local, or a smaller budget"):
        run_job(WorkOrder("large", bytes_limit=1000), (), spec())


# --- workers that are played -----------------------------------------------------------------------


WITH_DATA = """
[kernel]
name = "scale"
description = "a kernel"
source = "scale.cu"
entry = "scale"
[problem]
name = "unchecked"
sizes.N = [4]
[arguments]
p = 'inout float32[N] = file("a.npy")'
[tunables]
K = [1, 2]
[launch]
grid = 1
block = 4
"""


class Played:
    """Workers that answer at once.

    Attributes:
        facts: of each worker, by address.
        faults: raised in the place of the next runs.
        first: given by the next run; None for a run that has ended well.
        ran: addresses where jobs ran, in order.
    """

    name = "driver"

    def __init__(self, answer: EndedJob, *addresses: str) -> None:
        here = Catalog.load(()).kernel("scan-lf").fingerprint
        self.facts = {}
        for address in addresses:
            identities = {SIM: H200, "": replace(H200, uuid=f"GPU-{address}")}
            self.facts[address] = LaneFacts("node", (), {"scan-lf": here}, identities)
        self.left_out: dict[str, str] = {}
        self.faults: list[Exception] = []
        self.first: EndedJob | None = None
        self.ran: list[str] = []
        self.stopped = False
        self._answer = answer

    @property
    def present(self) -> Mapping[str, PoolWorker]:
        return {address: PoolWorker(address, address) for address in self.facts}

    def refresh(self) -> None:
        """All are there."""

    def living(self) -> tuple[str, ...]:
        return ()

    def submit(self, function: Callable[..., Any], *args: Any, worker: str | None = None) -> Future[Any]:
        assert worker is not None
        answer: Future[Any] = Future()
        if function is ask_child:
            method = args[3]
            answer.set_result(self.facts[worker] if method == "facts" else JobConditions((), ()))
            return answer
        assert function is run_job
        self.ran.append(worker)
        if self.faults:
            answer.set_exception(self.faults.pop(0))
        else:
            answer.set_result(self.first or self._answer)
            self.first = None
        return answer

    def run_everywhere(self, function: Callable[..., Any], *args: Any) -> None:
        self.stopped = function is stop_work and args[0].startswith("driver/")


@pytest.fixture(scope="module")
def answer() -> EndedJob:
    """What a worker gives for a job."""
    return run_job(WorkOrder("answer"), (), spec())


@pytest.fixture
def played(answer: EndedJob) -> Played:
    """Two workers."""
    return Played(answer, "a", "b")


def lanes_on(workers: Played, database: Path | None) -> PoolLanes:
    return PoolLanes(workers, "dask", database)  # type: ignore[arg-type]  # played


def ended(workers: Played, tmp_path: Path) -> JobResult:
    lanes = lanes_on(workers, tmp_path / "tuner.db")
    (result,) = [one for one in lanes.run([job()]) if isinstance(one, JobResult)]
    return result


def test_a_job_that_crashes_runs_once_more_elsewhere(played: Played, tmp_path: Path) -> None:
    """The second worker gets it; a second crash is its end."""
    played.faults = [ChildCrashedError("killed")]
    assert ended(played, tmp_path).end == "finished"
    assert played.ran == ["a", "b"]
    assert played.stopped
    played.faults = [ChildCrashedError("killed"), ChildTimeoutError("silent")]
    failed = ended(played, tmp_path)
    assert (failed.end, failed.reason) == ("failed", "silent")


def test_a_job_that_cannot_begin_runs_once_more_elsewhere(played: Played, tmp_path: Path) -> None:
    """A worker whose GPU does not open costs no job."""
    played.first = EndedJob(AttemptResult("unavailable", "no GPU"))
    assert ended(played, tmp_path).end == "finished"
    assert played.ran == ["a", "b"]


def test_a_job_that_takes_workers_with_it_ends(played: Played, tmp_path: Path) -> None:
    """A job whose workers are lost is tried three times."""
    played.faults = [WorkerLostError("gone")] * 5
    assert ended(played, tmp_path).reason == "gone"
    assert len(played.ran) == 3


def test_other_sources_are_refused_by_host_and_kernel(played: Played, tmp_path: Path) -> None:
    """A worker whose kernel differs, or that lacks it or a kernel file, ends the sweep before it begins."""
    lanes = lanes_on(played, tmp_path / "tuner.db")
    good = played.facts["b"]
    for wrong, says in (
        ({"sources": {"scan-lf": "0" * 64}}, "host node has another source of kernel scan-lf"),
        ({"sources": {}}, "host node has no kernel scan-lf"),
        ({"missing": (Path("/my.toml"),)}, "host node has no kernel file /my.toml"),
        ({"unusable": ("/a.npy: cannot be read",)}, "host node cannot use a kernel file: /a.npy: cannot be"),
    ):
        played.facts["b"] = replace(good, **wrong)
        with pytest.raises(InputError, match=says):
            lanes.known([job()])
    played.facts, played.left_out = {}, {"b": "it has tuner 0.0"}
    with pytest.raises(PoolError, match=r"it has tuner 0\.0"):
        lanes.known([job()])


def test_a_worker_tells_which_data_file_it_lacks(tmp_path: Path) -> None:
    """A kernel file whose data are not on the worker's host is told with the path."""
    file = tmp_path / "kernel.toml"
    file.write_text(WITH_DATA)
    (tmp_path / "scale.cu").write_text('extern "C" __global__ void scale(float* p) { p[threadIdx.x] *= K; }')
    facts = LaneQuestions((file, tmp_path / "none.toml")).facts(("scan-lf",), ())

    assert facts.missing == [tmp_path / "none.toml"]
    (reason,) = facts.unusable
    assert f"{tmp_path / 'a.npy'}: cannot be read: No such file" in reason
    assert list(facts.sources) == ["scan-lf"]


def test_a_gpu_has_one_worker(played: Played, tmp_path: Path) -> None:
    """A second worker of the same GPU gets no jobs: two would measure each other's load."""
    played.facts["b"] = played.facts["a"]
    lanes = lanes_on(played, tmp_path / "tuner.db")
    list(lanes.run([job(4), job(8)]))
    assert played.ran == ["a", "a"]


@pytest.mark.parametrize(
    ("device", "says"),
    [
        ("replay:h200", "was measured already"),
        ("cuda:1", "each worker has its own GPU"),
        ("sim:nothing", "no simulated GPU"),
        ("kind:NVIDIA H100", "no worker of dask is a kind:NVIDIA H100"),
    ],
)
def test_devices_that_no_worker_has_are_refused(
    played: Played, tmp_path: Path, device: str, says: str
) -> None:
    """They are told by the job's group before anything runs; a kind that is there is taken."""
    lanes = lanes_on(played, tmp_path / "tuner.db")
    with pytest.raises(RefusedJobsError, match=f"1: .*{says}"):
        lanes.known([job(device=device)])
    assert lanes_on(played, None).known([job(device="kind:NVIDIA H200")]) is not None
