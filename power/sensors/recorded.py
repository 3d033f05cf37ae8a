"""Trace files: the samples of a power sensor as a file, and replayed at the pace of the recording.

This is the one place of the format. JSON holds everything; so does CSV, whose first lines are comments, so
that the rest is a plain table of numbers::

    # tuner-power-trace 1
    # info {"name": "nvml-power-ring", "kind": "ring", ...}
    # provenance {"host": "...", ...}
    # marks [[0.5, "launch"], ...]
    # clocks [[0.5, {"mhz": 1980.0, "throttle_reasons": []}], ...]
    # samples 2
    time_s,watts,time_sigma_s
    0.02,123.4,0.0001
    0.04,125.0,0.0001

A CSV of another origin needs no comments, only the columns ``time_s`` and ``watts`` (or ``joules`` of a
counter).
"""

import csv
import dataclasses
import io
import itertools
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, ValidationError, field_validator

from tuner.model.errors import InputError, PowerError, SensorUnavailableError
from tuner.system.untrusted.reading import TRACE_BYTES, TRACE_SAMPLES, read_bytes

from ..base import ClockReading, Reading, Response, Sample, SensorInfo

FORMAT = "tuner-power-trace"
VERSION = 1
_SUFFIX_CSV = ".csv"
_SHOWN = 5  # complaints about one file; more would hide the first
_NOT_STATED = "not stated"
_VALUES = ("watts", "joules")  # the column of a CSV that holds the values; joules for a counter

Scalar = str | int | float | bool | None


class _Document(BaseModel):
    """The form of a trace file."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    format: Literal["tuner-power-trace"]
    version: Literal[1]
    info: SensorInfo
    samples: list[tuple[float, float, NonNegativeFloat]]
    marks: list[tuple[float, str]] = Field(default_factory=list)
    clocks: list[tuple[float, ClockReading]] = Field(default_factory=list)
    provenance: dict[str, Scalar] = Field(default_factory=dict)

    @field_validator("info", mode="before")
    @classmethod
    def _earlier(cls, info: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
        """Files that do not say whether zero is a reading are of sensors that took it for one."""
        return {"may_be_zero": True, **info} if isinstance(info, dict) else info


@dataclass(frozen=True)
class TraceFile:
    """A trace.

    Attributes:
        info: the sensor, and how it follows power.
        samples: fresh samples in the order the sensor gave them, uncorrected; of a counter, joules.
        marks: (time in seconds, label), e.g. where a phase of the traced program began.
        clocks: (time in seconds, clock and throttle reasons).
        provenance: where the trace comes from: host, GPU, driver, command, date. Times of samples, marks and
            clocks are on one clock, whose origin is arbitrary.
    """

    info: SensorInfo
    samples: tuple[Sample, ...]
    marks: tuple[tuple[float, str], ...] = ()
    clocks: tuple[tuple[float, ClockReading], ...] = ()
    provenance: Mapping[str, Scalar] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path) -> "TraceFile":
        """Read a trace file: CSV where its name ends in ``.csv``, else JSON.

        Raises:
            InputError: the file cannot be read, is truncated, or is no trace; names file and line or key.
        """
        path = Path(path)
        try:
            text = read_bytes(path, TRACE_BYTES).decode("utf-8")
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: is not text, and so no trace: byte {error.start}") from error
        except ValueError as error:
            raise InputError(f"{path}: {error}") from error
        if max(text.count("\n"), text.count("[")) > TRACE_SAMPLES:
            raise InputError(f"{path}: more than {TRACE_SAMPLES:,} samples; cut it into parts")
        if path.suffix.lower() == _SUFFIX_CSV:
            return _from_csv(path, text)
        return _checked(path, text)

    def write(self, path: str | Path) -> None:
        """Write a trace file: CSV where its name ends in ``.csv``, else JSON.

        Raises:
            InputError: the file cannot be written.
        """
        path = Path(path)
        text = self.to_csv() if path.suffix.lower() == _SUFFIX_CSV else self.to_json()
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from error

    def to_json(self) -> str:
        """The trace as JSON, one sample per line."""
        head = {"format": json.dumps(FORMAT), "version": json.dumps(VERSION), **self._head()}
        parts = [f"{json.dumps(key)}: {value}" for key, value in head.items()]
        rows = ",\n".join(json.dumps([s.time_s, s.value, s.time_sigma_s]) for s in self.samples)
        return "{\n" + ",\n".join(parts) + ',\n"samples": [\n' + rows + "\n]\n}\n"

    def to_csv(self) -> str:
        """The trace as a table of samples below comments that hold the rest."""
        text = io.StringIO()
        text.write(f"# {FORMAT} {VERSION}\n")
        for key, value in self._head().items():
            text.write(f"# {key} {value}\n")
        text.write(f"# samples {len(self.samples)}\n")
        column = "joules" if self.info.kind == "counter" else "watts"
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("time_s", column, "time_sigma_s"))
        writer.writerows((s.time_s, s.value, s.time_sigma_s) for s in self.samples)
        return text.getvalue()

    def _head(self) -> dict[str, str]:
        """Everything but the samples, each in JSON."""
        clocks = [[time_s, dataclasses.asdict(reading)] for time_s, reading in self.clocks]
        return {
            "info": json.dumps(dataclasses.asdict(self.info)),
            "provenance": json.dumps(dict(self.provenance)),
            "marks": json.dumps(self.marks),
            "clocks": json.dumps(clocks),
        }


def _checked(path: Path, text: str) -> TraceFile:
    """A trace out of JSON text."""
    try:
        document = _Document.model_validate_json(text)
    except ValidationError as error:
        raise InputError("\n".join(_complaints(path, error))) from error
    return TraceFile(
        info=document.info,
        samples=tuple(Sample(*row) for row in document.samples),
        marks=tuple(document.marks),
        clocks=tuple(document.clocks),
        provenance=document.provenance,
    )


def _complaints(path: Path, error: ValidationError) -> Iterator[str]:
    """One line per wrong key: file, key, what is wrong; a truncated file has its line instead of a key."""
    details = error.errors(include_url=False, include_context=False)
    for detail in details[:_SHOWN]:
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in detail["loc"])
        key = "".join(steps).removeprefix(".")
        truncated = " (truncated?)" if detail["type"] == "json_invalid" else ""
        yield ": ".join(part for part in (str(path), key, detail["msg"] + truncated) if part)
    if len(details) > _SHOWN:
        yield f"{path}: and {len(details) - _SHOWN} more"


# --- CSV -----------------------------------------------------------------------------------------


def _from_csv(path: Path, text: str) -> TraceFile:
    head = _comments(path, text)
    rows = list(_rows(path, text))
    columns = rows[0][1] if rows else []
    value = next((name for name in _VALUES if name in columns), "")
    if "time_s" not in columns or not value:
        raise InputError(f"{path}: needs a line with the columns time_s and {' or '.join(_VALUES)}")
    samples = tuple(
        _sample(path, line, dict(zip(columns, cells, strict=False)), value) for line, cells in rows[1:]
    )
    if head is None:
        return TraceFile(_guessed(path, samples, value), samples)
    announced = head.pop("samples", None)
    if announced != len(samples) or not text.endswith("\n"):
        raise InputError(
            f"{path}: holds {len(samples)} samples, {announced} announced in its head (truncated?)"
        )
    trace = _checked(path, json.dumps({"format": FORMAT, "version": VERSION, "samples": [], **head}))
    return dataclasses.replace(trace, samples=samples)


def _comments(path: Path, text: str) -> dict[str, Any] | None:
    """Return the comments of one of our files, by key; None for a table of another origin."""
    if not text.startswith(f"# {FORMAT} "):
        return None
    head: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("#"):
            break
        key, _, value = line[1:].strip().partition(" ")
        try:
            head[key] = json.loads(value)
        except ValueError as error:
            raise InputError(f"{path}: line {number}: {key}: is no JSON: {error}") from error
    head["version"] = head.pop(FORMAT, None)
    return head


def _rows(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of what is neither comment nor empty."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue  # before CSV is read: a quote in a comment opens no cell
        try:
            yield number, [cell.strip() for cell in next(csv.reader([line]))]
        except csv.Error as error:
            raise InputError(f"{path}: line {number}: {error}") from error


def _sample(path: Path, line: int, cells: Mapping[str, str], value: str) -> Sample:
    numbers = []
    for column in ("time_s", value, "time_sigma_s"):
        text = cells.get(column, "" if column != "time_sigma_s" else "0")
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or (column == "time_sigma_s" and number < 0):
            raise InputError(f"{path}: line {line}: {column}: {text!r} is no such number (truncated?)")
        numbers.append(number)
    return Sample(*numbers)


def _guessed(path: Path, samples: Iterable[Sample], value: str) -> SensorInfo:
    """Return the properties of a sensor of which there are only samples."""
    times_s = [sample.time_s for sample in samples]
    gaps_s = [b - a for a, b in itertools.pairwise(times_s) if b > a]
    return SensorInfo(
        name=path.stem,
        kind="counter" if value == "joules" else "stream",
        scope=_NOT_STATED,
        period_s=statistics.median(gaps_s) if gaps_s else 0.0,
        may_be_zero=True,
    )


# --- A recorded trace as a power sensor, at the pace of the recording.

NAME = "replay"
_LATE = 4.0  # periods without a sample, after which a trace that has no more is at its end
_LOOKS = 4.0  # per period, where nobody knows when the next sample is due


def reading(
    file: str | Path,
    responses: Callable[[str], Response | None] = lambda _: None,
    now: Callable[[], float] = time.monotonic,
) -> Reading:
    """The reading of a trace file, opened when it is read; an InputError where the file is no trace.

    Args:
        file: the trace.
        responses: response to use instead of the recorded one, by the name ``replay``.
        now: clock of the samples, in seconds.
    """
    return Reading(NAME, partial(_open, file, responses, now))


class ReplaySampler:
    """Implements ``tuner.power.base.PowerSampler``: a trace whose first sample is due now.

    Args:
        trace: what was recorded.
        now: clock of the samples, in seconds.
        response: instead of the recorded one.

    Raises:
        SensorUnavailableError: the trace holds no samples.
    """

    def __init__(self, trace: TraceFile, now: Callable[[], float], response: Response | None = None) -> None:
        if not trace.samples:
            raise SensorUnavailableError(f"the trace of {trace.info.name} holds no samples")
        self._samples = trace.samples
        self._now = now
        self._shift_s = now() - trace.samples[0].time_s
        self._next = 0
        period_s = trace.info.period_s
        self._end_s = max(sample.time_s for sample in trace.samples) + self._shift_s + _LATE * period_s
        self.info = replace(  # a name that marks it as recorded
            trace.info,
            name=f"{NAME}:{trace.info.name}",
            poll_interval_s=period_s / _LOOKS,
            response=response or trace.info.response,
        )

    @property
    def due_s(self) -> float:
        """When the next sample comes, or when the end of the trace will be told."""
        if self._next < len(self._samples):
            return self._samples[self._next].time_s + self._shift_s
        return self._end_s

    def poll(self) -> list[Sample]:
        """The samples whose time has come since the last call, in the order they were recorded.

        Raises:
            PowerError: the trace has ended, and its last samples were told before.
        """
        now_s = self._now()
        first = self._next
        while self._next < len(self._samples) and self.due_s <= now_s:
            self._next += 1
        if first == len(self._samples) and now_s > self._end_s:
            raise PowerError(f"{self.info.name}: the trace has ended")
        return [replace(s, time_s=s.time_s + self._shift_s) for s in self._samples[first : self._next]]

    def close(self) -> None:
        """Nothing to release."""


def _open(
    file: str | Path, responses: Callable[[str], Response | None], now: Callable[[], float]
) -> ReplaySampler:
    trace = TraceFile.read(file)
    try:
        return ReplaySampler(trace, now, responses(NAME))
    except SensorUnavailableError as error:
        raise SensorUnavailableError(f"{file}: {error}") from error
