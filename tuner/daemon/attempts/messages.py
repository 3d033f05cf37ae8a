"""What a job's process is told, and how it says that it has ended; plain values that JSON has.

Errands, events and endings as lines of JSON, and back.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from tuner.model.jobs import JobKind, JobSpec

Status = Literal["finished", "limited", "interrupted", "busy", "refused", "unavailable", "crashed"]
ENDING = "ending"
"""The last line of a job's process."""

SPENT = "spent"
"""What the attempt has taken so far; told with every measurement, so that it is a sign of life too."""

LONGEST_LINE_BYTES = 262_144
"""Of a line that is read: hundreds of times an event, ten times the largest ending."""


@dataclass(frozen=True)
class Errand:
    """One attempt at a job.

    Attributes:
        job: its number; the run in the database is bound to it.
        order: what to do; its device is filled in.
        database: where trials go.
        kernel_directories: folders of kernel files beside those shipped; looked at again, as they may have
            changed since the daemon looked.
        below: the first directory that is looked at; those above it are taken as trusted.
        idle_test: give way as soon as others compute on the GPU.
        others_allowed: processes of others on the GPU that do not count.
        sample: of a job that measures again: the trial as ``tuner.model.records.trial_record`` writes it.
    """

    job: int
    order: JobSpec
    database: Path
    kernel_directories: tuple[Path, ...] = ()
    below: Path = Path("/")
    idle_test: bool = True
    others_allowed: int = 0
    sample: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Ending:
    """How an attempt ended.

    Attributes:
        status: ``finished``; ``limited`` by the order's own limits, an end too; ``interrupted`` because it
            was told to; ``busy`` because others came; ``refused`` where trying again will not help;
            ``unavailable`` where it may: no device, sensor, clock or room on the disk just now; ``crashed``.
        message: why, for people; empty where it finished.
        run: its run in the database.
        seconds: that windows took on the GPU in this attempt, on the device's clock.
        joules: that this attempt took, as far as they were measured.
        sample: what was measured again, as ``tuner.model.records.measurement_record`` writes it.
        clocks_left: GPUs whose clocks could not be given back at once, as their control knows them.
    """

    status: Status
    message: str = ""
    run: int | None = None
    seconds: float = 0.0
    joules: float = 0.0
    sample: Mapping[str, Any] | None = None
    clocks_left: tuple[str, ...] = ()


def line(kind: str, data: Mapping[str, Any]) -> bytes:
    """A line that tells of something."""
    return json.dumps([kind, data], separators=(",", ":"), allow_nan=False).encode() + b"\n"


def event(text: bytes) -> tuple[str, dict[str, Any]] | None:
    """What a line tells; None for a line that is none of ours."""
    try:
        match json.loads(text):
            case [str(kind), dict(data)]:
                return kind, data
    except (ValueError, RecursionError):  # RecursionError: brackets without end
        pass
    return None


def errand_text(errand: Errand) -> str:
    """An errand as JSON."""
    record = asdict(errand)
    record["order"]["kind"] = errand.order.kind.value
    record["database"], record["below"] = str(errand.database), str(errand.below)
    record["kernel_directories"] = [str(folder) for folder in errand.kernel_directories]
    return json.dumps(record)


def errand_from(text: str) -> Errand:
    """The errand of a text that ``errand_text`` made."""
    record = json.loads(text)
    order = record["order"]
    record["order"] = JobSpec(
        **{**order, "kind": JobKind(order["kind"]), "workloads": tuple(order["workloads"])}
    )
    record["database"], record["below"] = Path(record["database"]), Path(record["below"])
    record["kernel_directories"] = tuple(map(Path, record["kernel_directories"]))
    return Errand(**record)


def ending_line(ending: Ending) -> bytes:
    """The last line."""
    return line(ENDING, asdict(ending))


def ending_from(data: Mapping[str, Any]) -> Ending | None:
    """The ending a line tells of; None where it is none."""
    try:
        ending = Ending(**{**data, "clocks_left": tuple(data.get("clocks_left", ()))})
    except TypeError:
        return None
    kinds: tuple[tuple[object, type], ...] = (
        (ending.message, str),
        (ending.seconds, float),
        (ending.joules, float),
    )
    plain = all(isinstance(value, kind) for value, kind in kinds)
    return ending if plain and ending.status in get_args(Status) else None


class Lines:
    """Cuts what comes through a pipe into lines; one that is too long is dropped, and its end with it.

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
