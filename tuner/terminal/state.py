"""The present of the daemon, as its events tell it, within bounds."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.client.values import Job, LiveEvent, ServedAnswer, read
from tuner.model.jobs import JobState

Data = Mapping[str, Any]

MOST_TRIALS = 10_000  # of a job
MOST_SEARCHES = 4  # whose trials are kept
MOST_SAMPLES = 300  # of the power of a device, one a second
MOST_JOBS = 200

DEVICES, JOBS, TRIALS, ANSWERS, HEAD = "devices", "jobs", "trials", "answers", "head"
ALL = frozenset((DEVICES, JOBS, TRIALS, ANSWERS, HEAD))


@dataclass
class LiveSearch:
    """The trials of a job, and what its search says.

    Attributes:
        run: of the trials; None before the first.
        trials: newest data of each, by number.
        compiled: configurations compiled, and how many there are to be; None before the first.
        joules: spent by the run so far.
        expected: trials that the search will take; None where it ends by itself.
        told: the newest sentence of the policy.
        asked: whether stored trials were asked for.
    """

    run: int | None = None
    trials: dict[int, Data] = field(default_factory=dict)
    compiled: tuple[int, int] | None = None
    joules: float | None = None
    expected: int | None = None
    told: str = ""
    asked: bool = False

    def take(self, data: Data) -> None:
        """Take in a trial; a contender's repeat replaces it."""
        if data.get("run") not in (None, self.run):
            self.run = data["run"]
            self.trials.clear()
        number = data.get("trial")
        if not isinstance(number, int):
            return
        self.trials[number] = data
        if len(self.trials) > MOST_TRIALS:
            del self.trials[next(iter(self.trials))]
        if data.get("joules") is not None:
            self.joules = data["joules"]
        if data.get("expected") is not None and not data.get("confirming"):
            self.expected = data["expected"]


class LiveState:
    """What the daemon has told.

    Attributes:
        status: of the daemon, without its devices.
        devices: states of the devices, by name.
        jobs: by number.
        searches: by the number of their job.
        power: newest samples of each device.
        answers: that are served, as `/v1/answers` has them.
        away: why the daemon is not there; empty while it is.
        not_understood: what was told and is not understood here; empty for nothing.
    """

    def __init__(self) -> None:
        self.status: Data = {}
        self.devices: dict[str, Data] = {}
        self.jobs: dict[int, Job] = {}
        self.searches: dict[int, LiveSearch] = {}
        self.power: dict[str, deque[Data]] = {}
        self.answers: list[ServedAnswer] = []
        self.away = ""
        self.not_understood = ""

    def take(self, event: LiveEvent) -> frozenset[str]:
        """Take in an event.

        Returns:
            The parts of the view that have changed; `ANSWERS` where they should be asked for again.
        """
        back = frozenset((HEAD,)) if self.away else frozenset()
        self.away = ""
        take = getattr(self, f"_take_{event.kind}", None)
        return back | (frozenset() if take is None else take(event.job, event.data))

    def search(self, job: int) -> LiveSearch:
        """The search of a job; those of the oldest jobs that do not run are forgotten."""
        found = self.searches.setdefault(job, LiveSearch())
        for other in list(self.searches):
            if len(self.searches) <= MOST_SEARCHES:
                break
            if other != job and (other not in self.jobs or self.jobs[other].state != JobState.RUNNING.value):
                del self.searches[other]
        return found

    def shown_job(self, chosen: int | None) -> Job | None:
        """The job whose trials are shown.

        Args:
            chosen: by the user.

        Returns:
            The chosen one, else the newest that runs, else the newest with a run, one that has not ended
            before others; None where there is no job.
        """
        if chosen is not None and chosen in self.jobs:
            return self.jobs[chosen]

        def place(job: Job) -> tuple[bool, bool, bool, int]:
            running = job.state == JobState.RUNNING.value
            return running, job.run is not None and not job.ended, job.run is not None, job.id

        return max(self.jobs.values(), key=place, default=None)

    def _take_begin(self, _: int | None, data: Data) -> frozenset[str]:
        if not data.get("resumed"):  # all is told anew
            self.devices.clear()
            self.jobs.clear()
            self.searches.clear()
            self.power.clear()
            self.not_understood = ""
        return ALL

    def _take_status(self, _: int | None, data: Data) -> frozenset[str]:
        self.status = data
        return frozenset((HEAD,))

    def _take_device(self, _: int | None, data: Data) -> frozenset[str]:
        self.devices[str(data.get("spec"))] = data
        return frozenset((DEVICES,))

    def _take_job(self, _: int | None, data: Data) -> frozenset[str]:
        try:
            job = read(Job, data)
        except ValueError as error:  # of a daemon of another version
            self.not_understood = f"the daemon tells of a job that is not understood: {error}"
            return frozenset((HEAD,))
        finishes = job.ended and job.id in self.jobs and not self.jobs[job.id].ended
        self.jobs[job.id] = job
        if len(self.jobs) > MOST_JOBS:
            del self.jobs[min((one.id for one in self.jobs.values() if one.ended), default=min(self.jobs))]
        return frozenset((JOBS, TRIALS, HEAD, *((ANSWERS,) if finishes else ())))

    def _take_trial(self, number: int | None, data: Data) -> frozenset[str]:
        if number is None:
            return frozenset()
        self.search(number).take(data)
        return frozenset((JOBS, TRIALS))

    def _take_compiled(self, number: int | None, data: Data) -> frozenset[str]:
        if number is not None:
            self.search(number).compiled = (int(data.get("done", 0)), int(data.get("total", 0)))
        return frozenset((TRIALS,))

    def _take_told(self, number: int | None, data: Data) -> frozenset[str]:
        if number is not None:
            self.search(number).told = str(data.get("sentence", ""))
        return frozenset((TRIALS,))

    def _take_answer(self, _: int | None, __: Data) -> frozenset[str]:
        return frozenset((ANSWERS,))

    def _take_power(self, _: int | None, data: Data) -> frozenset[str]:
        device = str(data.get("device"))
        self.power.setdefault(device, deque(maxlen=MOST_SAMPLES)).append(data)
        return frozenset((DEVICES,))

    def _take_trouble(self, _: int | None, data: Data) -> frozenset[str]:
        self.away = str(data.get("message", ""))
        return frozenset((HEAD,))
