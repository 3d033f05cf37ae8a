"""Jobs of a sweep in the queues of a daemon: one that is played, and a real one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from daemon_machine import Machine, machine

from tuner.client import Best, Job, WorkloadAnswer
from tuner.client.answer_values import read
from tuner.model.errors import DaemonRefusedError, DaemonUnavailableError, UnknownNameError
from tuner.model.jobs import JobState
from tuner.studies.sweep import JobResult, JobStarted, RefusedJobsError
from tuner.studies.sweep_file import SweepJob
from tuner.studies.sweep_jobs import AHEAD, DaemonQueues

__all__ = ["machine"]

SIM = "sim:jetson-tx1"
DEVICE = {"uuid": SIM, "name": "TX1", "driver": "1", "runtime": "12"}
BEST = {"configurations": {}, "time_s": 1.0}


def job(number: int = 4, **options: Any) -> SweepJob:
    return SweepJob("scans", (f"scan-lf:N={number}",), "energy", SIM, options, "[[group]] 1")


class PlayedClient:
    """A daemon whose jobs end one look after they were queued; that of size 7 fails.

    Attributes:
        places: jobs that may wait.
        source: hash of the kernel's source.
    """

    address = "played"

    def __init__(self, places: int = 100) -> None:
        self.places = places
        self.source = "one"
        self.stored: list[Job] = []
        self.documents: dict[int, dict[str, Any]] = {}
        self.archive = self
        self.most_waiting = 0

    def status(self) -> dict[str, Any]:
        return {"devices": [{"spec": SIM, **DEVICE}]}

    def best(self, *workloads: str, **question: Any) -> Best:
        if workloads == ("scan-lf:N=5",):
            raise UnknownNameError("size 5 is none of scan-lf")
        assert question["count"] == 0.0
        answers = {one: WorkloadAnswer({}, "default", "", source=self.source) for one in workloads}
        device: Any = DEVICE
        return Best(
            origin="default",
            device=device,
            objective="energy",
            workloads=answers,
            clock_mhz=None,
            stale=(),
            answer=None,
            run=None,
            refinement=None,
            notices=(),
        )

    def submit(self, *workloads: str, **options: Any) -> Job:
        assert options.pop("objective") == "energy"
        chosen = {"policy": options.pop("policy") or "auto", "clocks": options.pop("clocks") or "off"}
        chosen["wanted_device"] = options.pop("device")
        filled = {**options, "energy_precision": 0.01}  # as [tuning] has it
        waiting = sum(not one.ended for one in self.stored)
        if waiting >= self.places:
            raise DaemonRefusedError("as many jobs wait as may")
        self.most_waiting = max(self.most_waiting, waiting + 1)
        self.stored.append(queued(len(self.stored) + 1, workloads, filled, **chosen))
        return self.stored[-1]

    def jobs(self, states: Sequence[str] = (), limit: int = 100, before: int | None = None) -> list[Job]:
        found = (one for one in reversed(self.stored) if not states or one.state in states)
        page = [one for one in found if before is None or one.id < before][:limit]
        for one in page:
            if not one.ended:
                self._end(one)
        return page

    def job(self, number: int) -> Job:
        return self.stored[number - 1]

    def run(self, number: int) -> dict[str, Any]:
        return self.documents[number]

    def _end(self, one: Job) -> None:
        state = JobState.FAILED if one.workloads == ("scan-lf:N=7",) else JobState.FINISHED
        self.stored[one.id - 1] = replace(one, state=state, reason="out of luck", run=one.id)
        self.documents[one.id] = {
            "best": BEST,
            "space": {"measured": 3},
            "modelled": True,
            "device": DEVICE,
            "sources": {"scan-lf": self.source},
        }


def queued(number: int, workloads: tuple[str, ...], options: Mapping[str, Any], **named: str) -> Job:
    document = {
        **dict.fromkeys(("reason", "created_at"), ""),
        **dict.fromkeys(("run", "submitter", "started_at", "ended_at")),
        "id": number,
        "kind": "tune",
        "device": SIM,
        "workloads": list(workloads),
        "objective": "energy",
        "options": options,
        "origin": "client",
        "priority": 0.0,
        "state": "queued",
        "attempts": 0,
        "trials": 0,
        **named,
    }
    return read(Job, document)


@pytest.fixture
def client() -> PlayedClient:
    """A daemon that is played."""
    return PlayedClient()


def swept(client: Any, *jobs: SweepJob) -> tuple[list[str], list[JobResult]]:
    """Ends of jobs that are known, and results of the others; looked at without long pauses."""
    queues = DaemonQueues(client, 0.0 if isinstance(client, PlayedClient) else 0.02)
    known = queues.known(jobs)
    events = list(queues.run([one for one in jobs if one.key not in known]))
    results = [one for one in events if isinstance(one, JobResult)]
    assert sum(isinstance(one, JobStarted) for one in events) == len(results)
    return [one.end for one in known.values()], results


def test_jobs_are_queued_some_ahead(client: PlayedClient) -> None:
    """All jobs end, and no more wait at a time than keep the device busy; failed ones say why."""
    known, results = swept(client, *map(job, (4, 7, *range(100, 130))))

    assert known == []
    assert [one.end for one in results].count("finished") == 31
    assert [(one.job, one.reason) for one in results if one.end == "failed"] == [(job(7), "out of luck")]
    assert client.most_waiting <= AHEAD


def test_the_same_command_goes_on(client: PlayedClient) -> None:
    """Finished jobs with fresh answers are known, waiting ones are followed, failed ones run again."""
    swept(client, job(4), job(7))
    client.submit("scan-lf:N=8", objective="energy", device=SIM, policy=None, clocks=None)
    known, results = swept(client, job(4), job(7), job(8))

    assert known == ["known"]
    assert sorted((one.job.workloads, one.end) for one in results) == [
        (("scan-lf:N=7",), "failed"),
        (("scan-lf:N=8",), "finished"),
    ]
    assert len(client.stored) == 4


def test_one_job_of_the_daemon_is_followed_once(client: PlayedClient) -> None:
    """Two jobs of a sweep that one of the daemon would answer are not both taken for it."""
    client.submit("scan-lf:N=4", objective="energy", device=SIM, policy=None, clocks=None)
    _, results = swept(client, job(4), job(4, policy="auto"))

    assert sorted(one.run or 0 for one in results) == [1, 2]


def test_another_search_is_no_answer(client: PlayedClient) -> None:
    """Other options ask for another search, and a changed source for the same one again."""
    swept(client, job(4, budget=3))

    assert swept(client, job(4))[0] == []
    assert swept(client, job(4, budget=3))[0] == ["known"]
    client.source = "two"
    assert swept(client, job(4, budget=3))[0] == []


def test_any_gpu_of_a_kind_answers_for_it(client: PlayedClient) -> None:
    """A job that names a kind is known by the answer of a GPU of the kind that is there."""
    of_kind = replace(job(4), device="kind:TX1")
    swept(client, of_kind)

    assert swept(client, of_kind)[0] == ["known"]
    assert swept(client, job(4))[0] == []
    assert swept(client, replace(job(4), device="any"))[0] == []


def test_a_full_queue_is_waited_for(client: PlayedClient) -> None:
    """A daemon that has no place just now gets the job later."""
    client.places = 1
    _, results = swept(client, job(4), job(8), job(16))

    assert [one.end for one in results] == ["finished"] * 3


def test_a_lost_answer_queues_no_job_twice(client: PlayedClient) -> None:
    """A job whose submission got no answer is looked for before it is submitted again."""
    submit = client.submit

    def lost(*workloads: str, **options: Any) -> Job:
        client.submit = submit  # type: ignore[method-assign]
        submit(*workloads, **options)
        raise DaemonUnavailableError("no answer in time")

    client.submit = lost  # type: ignore[method-assign]
    _, results = swept(client, job(4))

    assert [one.end for one in results] == ["finished"]
    assert len(client.stored) == 1


def test_what_the_daemon_does_not_have_is_refused(client: PlayedClient) -> None:
    """Unknown sizes, and options that jobs do not have, are told before anything is queued."""
    with pytest.raises(RefusedJobsError) as caught:
        DaemonQueues(client).known([job(5), job(4, power_limits="all")])  # type: ignore[arg-type]  # is played

    assert "[[group]] 1: size 5 is none of scan-lf" in str(caught.value)
    assert "jobs of the daemon have no option power_limits" in str(caught.value)
    assert client.stored == []


def test_a_real_daemon_runs_a_sweep(machine: Machine) -> None:
    """Two jobs are tuned in its queue, and known when they are asked for again."""
    machine.start()
    jobs = [job(4, budget=2, policy="random"), job(8, budget=2, policy="random")]
    known, results = swept(machine.client(), *jobs)
    again, none = swept(machine.client(), *jobs)

    assert (known, [one.end for one in results]) == ([], ["finished", "finished"])
    assert all(one.answer is not None and one.answer["trials"] == 2 for one in results)
    assert (again, none) == (["known", "known"], [])
