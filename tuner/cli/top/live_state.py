"""The present of the daemon, as its events and answers tell it, within bounds."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

from tuner.client.answer_values import DeviceStatus, PowerSample, ServedAnswer, Status, TrialData, read_job
from tuner.client.client import Client
from tuner.model.errors import TunerError
from tuner.model.jobs import Event, Job, JobState
from tuner.model.run_document import TrialDocument
from tuner.system.untrusted.reading import plain_line


class _ClosedError(Exception):
    """Nobody takes events any more."""


class EventReader:
    """Reads everything that happens, power too, until it is closed; looks for a daemon that went away.

    The thread does not keep the process alive: where that ends, the stream is closed, and the daemon stops to
    sample power. Within a process it ends with the next event, one second later at most while the daemon is
    there.

    Args:
        client: of the daemon.
        pause_s: after a refusal, such as "too many followers", which need not last.
    """

    def __init__(self, client: Client, pause_s: float = 2.0) -> None:
        self._client = client
        self._pause_s = pause_s
        self._events: deque[Event | TunerError] = deque()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def take(self) -> list[Event | TunerError]:
        """Take the events since the last call, in their order, and the reasons that the daemon is away."""
        return [self._events.popleft() for _ in range(len(self._events))]

    def close(self) -> None:
        """Read no more."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            trouble = self._read()
            if trouble is not None:  # from here on all is told anew
                self._events.append(trouble)
                self._closed.wait(self._pause_s)

    def _read(self) -> TunerError | None:
        """Read until it is closed; returns what prevents it, such as a refusal."""
        try:
            for event in self._client.watch(power=True, away=self._away):
                if self._closed.is_set():
                    break
                self._events.append(event)
        except _ClosedError:
            return None
        except TunerError as error:
            return error
        return None

    def _away(self, trouble: TunerError) -> None:
        if self._closed.is_set():
            raise _ClosedError
        self._events.append(trouble)


# --- What a user may want done with a job: the question before, and what the daemon says to it.

CANCEL, PAUSE, RESUME = "cancel", "pause", "resume"

CONSEQUENCES = {
    CANCEL: "It ends; the trials that it has stored stay.",
    PAUSE: "It stops until somebody resumes it, and then goes on where it was.",
    RESUME: "It is queued again, and goes on where it was.",
}


def pause_or_resume(job: Job | None) -> str:
    """Return the action of the key that pauses or resumes a job."""
    return RESUME if job is not None and job.state == JobState.PAUSED else PAUSE


def why_not(verb: str, job: Job | None) -> str:
    """Return the reason that an action is impossible; empty if the user is to confirm it."""
    if job is None:
        return f"no job to {verb}: choose one in pane 2"
    return f"no job to {verb}: job {job.id} has {job.state} already" if job.ended else ""


def question(verb: str, job: Job) -> str:
    """Return the question to the user."""
    return plain_line(f"{verb.capitalize()} job {job.id} ({' + '.join(job.workloads)})?")


def changed(client: Client, verb: str, number: int) -> tuple[str, bool]:
    """Have the daemon change a job.

    Returns:
        What became of it, and whether it was done.
    """
    changes = {CANCEL: client.cancel, PAUSE: client.pause, RESUME: client.resume}
    try:
        job = changes[verb](number)
    except TunerError as error:
        return str(error), False
    return f"job {job.id} is {job.state}", True


# --- What the daemon's events tell.

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
    trials: dict[int, TrialData] = field(default_factory=dict)
    compiled: tuple[int, int] | None = None
    joules: float | None = None
    expected: int | None = None
    told: str = ""
    asked: bool = False

    def take(self, data: TrialData) -> None:
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
    """State of the daemon as its events report it.

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
        self.status: Status = {}
        self.devices: dict[str, DeviceStatus] = {}
        self.jobs: dict[int, Job] = {}
        self.searches: dict[int, LiveSearch] = {}
        self.power: dict[str, deque[PowerSample]] = {}
        self.answers: list[ServedAnswer] = []
        self.away = ""
        self.not_understood = ""

    def take(self, event: Event) -> frozenset[str]:
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
        search = self.searches.setdefault(job, LiveSearch())
        for other in list(self.searches):
            if len(self.searches) <= MOST_SEARCHES:
                break
            if other != job and (other not in self.jobs or self.jobs[other].state != JobState.RUNNING):
                del self.searches[other]
        return search

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
            running = job.state == JobState.RUNNING
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
        self.status = cast("Status", data)
        return frozenset((HEAD,))

    def _take_device(self, _: int | None, data: Data) -> frozenset[str]:
        self.devices[str(data.get("spec"))] = cast("DeviceStatus", data)
        return frozenset((DEVICES,))

    def _take_job(self, _: int | None, data: Data) -> frozenset[str]:
        try:
            job = read_job(data)
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
        self.search(number).take(cast("TrialData", data))
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
        self.power.setdefault(device, deque(maxlen=MOST_SAMPLES)).append(cast("PowerSample", data))
        return frozenset((DEVICES,))

    def _take_trouble(self, _: int | None, data: Data) -> frozenset[str]:
        self.away = str(data.get("message", ""))
        return frozenset((HEAD,))


# --- Stored trials of a run in the form of the stream, which has only those of jobs that run.


def stored_trials(client: Client, run: int) -> Iterator[TrialData]:
    """The first trials of a run, as many as are kept.

    Raises:
        TunerError: as ``Client``.
    """
    modelled = client.archive.run(run).get("modelled", False)
    for stored in islice(client.archive.trials(run), MOST_TRIALS):
        yield as_streamed(stored, run, modelled=bool(modelled))


def as_streamed(stored: TrialDocument, run: int, *, modelled: bool) -> TrialData:
    """The data of a stored trial as an event of the kind ``trial`` has it."""
    failed = (one for one in stored.get("workloads", {}).values() if one["status"] != "ok")
    confirmed = bool(stored.get("confirmed"))
    return {
        "run": run,
        "trial": stored["number"],
        "repeat": stored["bursts"] if confirmed else 0,
        "confirming": confirmed,
        "status": stored["status"],
        "detail": next((one["detail"] for one in failed), ""),
        "configurations": stored["configurations"],
        "clock_set_mhz": stored["clock_mhz"],
        "power_limit_w": stored.get("power_limit_w"),
        "time_s": stored["time_s"],
        "time_s_uncertainty": stored.get("time_s_uncertainty"),
        "energy_j": stored["energy_j"],
        "energy_j_uncertainty": stored.get("energy_j_uncertainty"),
        "watts": stored.get("power_w"),
        "clock_mhz": stored.get("clock_seen_mhz"),
        "modelled": modelled,
        "flags": stored.get("flags", []),
    }


class Inquiries:
    """Requests of a view; what comes back is handed to the view.

    Args:
        client: of the daemon.
        in_thread: does work in a thread.
        in_view: called in such a thread, calls a function of the view.
    """

    def __init__(
        self, client: Client, in_thread: Callable[[Callable[[], None]], None], in_view: Callable[..., Any]
    ) -> None:
        self._client = client
        self._in_thread = in_thread
        self._in_view = in_view
        self._asking = threading.Lock()

    def answers(self, take: Callable[[list[ServedAnswer]], None]) -> None:
        """Ask for the answers that are served, unless that is being done."""

        def work() -> None:
            with self._asking:
                try:
                    answers = self._client.archive.answers()
                except TunerError:
                    return  # the stream says why; they are asked for again when the daemon is back
            self._in_view(take, answers)

        if not self._asking.locked():
            self._in_thread(work)

    def trials(
        self, run: int, take: Callable[[list[TrialData]], None], say: Callable[[str, bool], None]
    ) -> None:
        """Ask for the stored trials of a run; what prevents it is said."""

        def work() -> None:
            try:
                trials = list(stored_trials(self._client, run))
            except TunerError as error:
                self._in_view(say, str(error), False)
                return
            self._in_view(take, trials)

        self._in_thread(work)

    def change(self, verb: str, job: int, say: Callable[[str, bool], None]) -> None:
        """Have a job changed; what became of it is said."""
        self._in_thread(lambda: self._in_view(say, *changed(self._client, verb, job)))
