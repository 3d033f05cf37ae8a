"""Messages between the process of a job and the one that started it: lines of JSON.

The spec goes to the process; events and the result come back through a pipe, which must not delay measuring.
"""

import json
import math
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from tuner.model.jobs import JobKind, JobSpec
from tuner.model.objective import UNITS, Objective
from tuner.model.records import StoredTrial
from tuner.model.trial import Measurement, Status, Trial

if TYPE_CHECKING:
    from tuner.search.session import TrialEvent


# --- The data of ``trial`` events: the same for a trial that has just ended and for one that is read again.

_LONGEST_DETAIL = 500  # characters of why a trial failed


def told_trial(event: "TrialEvent", run: int | None, unit: str) -> dict[str, Any]:
    """The data of a trial, or of a contender's repeat, that has just ended."""
    return {
        "run": run,
        "number": event.number,
        "trial": event.place or event.number,
        "repeat": event.repeat,
        "confirming": event.confirming,
        "cost": _finite(event.cost),
        "best": _finite(event.best_cost),
        "unit": unit,
        "joules": event.joules,
        "expected": event.expected,
        **_measured(event.trial, event.measurement, event.names),
    }


def stored_trial(stored: StoredTrial, run: int, objective: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """The data of a stored trial; of a contender, its joined repeats too.

    The lowest cost and the joules of the run so far are not stored, and None here.
    """
    name = objective.split(" ", 1)[0]
    told = [(stored.searched, 0)]
    if stored.known.repeats > 1:
        told.append((stored.known, stored.known.repeats))
    return [
        {
            "run": run,
            "number": stored.number,
            "trial": stored.number,
            "repeat": repeat,
            "confirming": repeat > 0,
            "cost": _finite(Objective(name).known(measurement)),
            "best": None,
            "unit": UNITS.get(name, ""),
            "joules": None,
            "expected": None,
            **_measured(stored.trial, measurement, names),
        }
        for measurement, repeat in told
    ]


def _measured(trial: Trial, measurement: Measurement, names: Sequence[str]) -> Mapping[str, Any]:
    """Return the settings and results of a trial as a JSON document."""
    energy = measurement.energy
    failed = next((result for result in measurement.results if result.status is not Status.OK), None)
    return {
        "status": measurement.status.value,
        "detail": "" if failed is None else failed.detail[:_LONGEST_DETAIL],
        "configurations": {
            name: dict(configuration)
            for name, configuration in zip(names, trial.configurations, strict=False)
        },
        "clock_set_mhz": trial.clock_mhz,
        "power_limit_w": trial.power_limit_w,
        "time_s": _finite(measurement.makespan_s),
        "time_s_uncertainty": _finite(measurement.makespan_uncertainty_s),
        "energy_j": None if energy is None else _finite(energy.joules),
        "energy_j_uncertainty": None if energy is None else _finite(energy.uncertainty_j),
        "watts": None if energy is None else _finite(energy.watts),
        "clock_mhz": measurement.clock_mhz,
        "modelled": measurement.modelled,
        "flags": [str(flag) for flag in measurement.flags],
    }


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


# --- The spec, events and result of an attempt as lines.

AttemptStatus = Literal["finished", "limited", "interrupted", "busy", "refused", "unavailable", "crashed"]
FORK = b"fork"
"""Order to the fork server; descriptors of the process come with it: spec, lines, lifeline, status."""

RESULT = "result"
"""Kind of the last line."""

SPENT = "spent"
"""Kind of the line with the cost so far; sent with every measurement, so that it is a sign of life too."""

LONGEST_LINE_BYTES = 262_144
"""Of a line that is read: hundreds of times an event, ten times the largest result."""

_COMPILED_EVERY_S = 0.2  # as often as a person can see
_WAIT_S = 0.5  # for a reader that is slow, before events are dropped; trials are in the database
_RESULT_WAIT_S = 5.0  # for the result, on which more depends
_LONGEST_SENTENCE = 2000  # characters
_ANSWER = (
    *("configurations", "clock_mhz", "power_limit_w", "time_s", "time_s_uncertainty"),
    *("energy_j", "energy_j_uncertainty", "bursts", "flags"),
)


@dataclass(frozen=True)
class AttemptSpec:
    """Specification of an attempt at a job.

    Attributes:
        job: its number at the daemon, whose run the trials are of; None for a job of a sweep, which goes on
            with any unfinished run that asks for the same.
        job_spec: of the job; its device is filled in.
        database: where trials go.
        kernel_files: beside the catalogue.
        kernel_directories: folders of kernel files beside those shipped; checked again, as they may have
            changed since the daemon read them.
        below: the first directory that is checked; those above it are trusted.
        idle_test: stop as soon as others compute on the GPU.
        others_allowed: processes of others on the GPU that do not count.
        exclusive_board: take turns with the attempts on other GPUs.
        sample: of a job that measures again: the trial as ``tuner.model.records.trial_record`` writes it.
    """

    job: int | None
    job_spec: JobSpec
    database: Path
    kernel_files: tuple[Path, ...] = ()
    kernel_directories: tuple[Path, ...] = ()
    below: Path = Path("/")
    idle_test: bool = True
    others_allowed: int = 0
    exclusive_board: bool = False
    sample: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class AttemptResult:
    """Result of an attempt at a job.

    Attributes:
        status: ``finished``; ``limited`` by the job's own limits, an end too; ``interrupted`` on request;
            ``busy`` because others use the GPU, or measure a sweep's run; ``refused`` where a retry cannot
            help; ``unavailable`` where it may: no device, sensor, clock or room on the disk just now;
            ``crashed``.
        message: why, for people; empty where it finished.
        run: its run in the database.
        seconds: that windows took on the GPU in this attempt, on the device's clock.
        joules: that this attempt took, as far as they were measured.
        sample: what was measured again, as ``tuner.model.records.measurement_record`` writes it.
        clocks_left: GPUs whose clocks could not be restored at once, as their control knows them.
    """

    status: AttemptStatus
    message: str = ""
    run: int | None = None
    seconds: float = 0.0
    joules: float = 0.0
    sample: Mapping[str, Any] | None = None
    clocks_left: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """True where the job did all that it was to do."""
        return self.status in ("finished", "limited")


def line(kind: str, data: Mapping[str, Any]) -> bytes:
    """A line of a kind."""
    return json.dumps([kind, data], separators=(",", ":"), allow_nan=False).encode() + b"\n"


def parse_line(text: bytes) -> tuple[str, dict[str, Any]] | None:
    """Kind and data of a line; None for a line that is none of ours."""
    try:
        match json.loads(text):
            case [str(kind), dict(data)]:
                return kind, data
    except (ValueError, RecursionError):  # RecursionError: brackets without end
        pass
    return None


def spec_json(spec: AttemptSpec) -> str:
    """A spec as JSON."""
    return json.dumps(asdict(spec), default=os.fspath)


def parse_spec(text: str) -> AttemptSpec:
    """The spec of a text that ``spec_json`` made."""
    record = json.loads(text)
    job_spec = record["job_spec"]
    kind, workloads = JobKind(job_spec["kind"]), tuple(job_spec["workloads"])
    record["job_spec"] = JobSpec(**{**job_spec, "kind": kind, "workloads": workloads})
    for name in ("database", "below"):
        record[name] = Path(record[name])
    for name in ("kernel_files", "kernel_directories"):
        record[name] = tuple(map(Path, record[name]))
    return AttemptSpec(**record)


def result_line(result: AttemptResult) -> bytes:
    """The last line."""
    return line(RESULT, asdict(result))


def parse_result(data: Mapping[str, Any]) -> AttemptResult | None:
    """The result in a line's data; None where it is none."""
    try:
        result = AttemptResult(**{**data, "clocks_left": tuple(data.get("clocks_left", ()))})
    except TypeError:
        return None
    kinds: tuple[tuple[object, type], ...] = (
        (result.message, str),
        (result.seconds, float),
        (result.joules, float),
    )
    plain = all(isinstance(value, kind) for value, kind in kinds)
    return result if plain and result.status in get_args(AttemptStatus) else None


class LineReader:
    """Splits the bytes of a pipe into lines; drops a line that is too long.

    Args:
        take: gets each line without its end.
        longest: bytes of a line.

    Attributes:
        dropped: lines that were too long.
    """

    def __init__(self, take: Callable[[bytes], None], longest: int = LONGEST_LINE_BYTES) -> None:
        self._take = take
        self._longest = longest
        self._begun = bytearray()
        self._dropping = False
        self.dropped = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._add(part)
            if not self._dropping and self._begun:
                self._take(bytes(self._begun))
            self._begun.clear()
            self._dropping = False
        self._add(rest)

    def _add(self, part: bytes) -> None:
        if not self._dropping and len(self._begun) + len(part) > self._longest:
            self._dropping = True
            self.dropped += 1
            self._begun.clear()
        if not self._dropping:
            self._begun += part


class EventWriter:
    """Writes events into a pipe; drops them where the pipe is full for too long, or closed.

    Args:
        pipe: descriptor of its end; made non-blocking.
        objective: name of the objective whose costs are sent.
    """

    def __init__(self, pipe: int, objective: str) -> None:
        self._pipe = pipe
        self._unit = UNITS.get(objective, "")
        self._run: int | None = None
        self._torn = False  # half a line was written
        self._full = False
        self._compiled_s = -math.inf
        self._held_back: dict[str, int] | None = None  # what is compiled, where that was said a moment ago
        self._measuring = False
        os.set_blocking(pipe, False)

    def compiled(self, done: int, total: int) -> None:
        """So many of the configurations are compiled that were asked for so far."""
        now_s = time.monotonic()
        self._held_back = {"done": done, "total": total}
        if (done == total and not self._measuring) or now_s - self._compiled_s >= _COMPILED_EVERY_S:
            self._compiled_s = now_s
            self._send_compiled()

    def measured(self, event: "TrialEvent") -> None:
        """A trial has ended, and is stored; what is compiled stands beside it."""
        self._measuring = True
        self._send_compiled()
        unit = UNITS.get(event.objective, self._unit)
        self._send("trial", told_trial(event, self._run, unit))

    def told(self, sentence: str) -> None:
        """The policy explains itself."""
        self._send("told", {"sentence": sentence[:_LONGEST_SENTENCE]})

    def run(self, number: int, resumed: int) -> None:
        """The run in the database, and the trials it has from earlier attempts."""
        self._run = number
        self._send("run", {"run": number, "resumed": resumed})

    def spent(self, seconds: float, joules: float) -> None:
        """The cost of the attempt so far."""
        self._send(SPENT, {"seconds": seconds, "joules": joules})

    def answer(self, document: Mapping[str, Any]) -> None:
        """The answer in short; ``document`` is the run's."""
        best = document["best"]
        summary = None if best is None else {name: best[name] for name in _ANSWER}
        fields = ("status", "objective", "modelled", "against_default")
        self._send("answer", {"summary": {**{name: document[name] for name in fields}, "best": summary}})

    def end(self, result: AttemptResult) -> None:
        """The last line; the pipe is closed."""
        self._write(result_line(result), _RESULT_WAIT_S)
        self.close()

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._pipe)

    def _send_compiled(self) -> None:
        if self._held_back is not None:
            self._send("compiled", self._held_back)
            self._held_back = None

    def _send(self, kind: str, data: Mapping[str, Any]) -> None:
        self._write(line(kind, data), 0.0 if self._full else _WAIT_S)

    def _write(self, text: bytes, wait_s: float) -> None:
        """Write a line whole, or drop it: after one full wait, the next lines are dropped without any."""
        rest = memoryview(b"\n" + text if self._torn else text)
        deadline_s = time.monotonic() + wait_s
        begun = False
        while rest:
            try:
                count = os.write(self._pipe, rest)
            except BlockingIOError:
                if not self._ready(deadline_s):
                    self._full, self._torn = True, self._torn or begun
                    return
                continue
            except OSError:  # nobody reads any more, and this process is about to end
                return
            rest, begun = rest[count:], True
        self._full = self._torn = False

    def _ready(self, deadline_s: float) -> bool:
        """Wait until there is room in the pipe, at most until the deadline."""
        left_s = deadline_s - time.monotonic()
        watch = select.poll()
        watch.register(self._pipe, select.POLLOUT)
        return left_s > 0 and bool(watch.poll(1000.0 * left_s))
