"""Watts that another program writes, line by line: a power meter at the wall or on the supply of a card.

A line is ``watts``, or ``seconds,watts`` on any clock that runs as fast as this one; others, such as a
header, are passed over. The file is a named pipe, a file that grows, or ``-`` for standard input. A line
without a time is of the moment that it is read. Where lines have times, the one with the least delay
tells how the clocks compare. Lines within half a millisecond are one sample, their mean; what is written
faster than it can be read is refused, because nobody knows how old it is. Watts are rounded as the first
lines are written: 42 is known to 1 W, 42.0 to 0.1 W.
"""

import math
import os
import select
import stat
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from tuner.model.errors import PowerError, SensorUnavailableError

from ..base import Reading, Response, Sample, SensorInfo
from .changes import check_answers, sound

NAME = "pipe"

_BYTES = 65_536
_FULL = 32_768  # a full pipe holds more, however its lines were written
_OFTEN = 5  # full looks in a row: nobody catches up with the writer
_LONGEST_LINE = 4096
_PATIENCE_S = 5.0  # for the first lines
_FIRST = 3  # lines, whose distance is the period
_LOOKS = 4.0  # per period, that a line without a time is dated by
_LONGEST_LOOK_S = 0.02
_SHORTEST_LOOK_S = 0.001
_SILENT = 50.0  # periods without a line, at least
_SILENT_S = 5.0  # and so long: then the meter is gone
_NEAR_S = 0.0005  # lines whose times tell nothing
_COLUMNS = 2
_COARSEST = 3  # power of ten of a step in watts: no line overflows
_SQRT_12 = 12.0**0.5


def reading(
    file: str,
    responses: Callable[[str], Response | None] = lambda _: None,
    now: Callable[[], float] = time.monotonic,
    patience_s: float = _PATIENCE_S,
) -> Reading:
    """The reading of a file.

    Args:
        file: its path, or ``-``.
        responses: response of the meter by the name of the reading; a mean over its period without one.
        now: clock of the samples, in seconds.
        patience_s: how long the first lines are waited for.
    """
    name = f"{NAME}:{file}"
    return Reading(name, lambda: PipeSampler(name, file, responses(name), now, patience_s))


class PipeSampler:
    """Implements ``tuner.power.base.PowerSampler`` over lines of watts.

    Args:
        name: of the reading.
        file: its path, or ``-``.
        response: of the meter; None for a mean over its period.
        now: clock of the samples, in seconds.
        patience_s: how long the first lines are waited for.

    Raises:
        SensorUnavailableError: it cannot be opened, or no lines with watts come.
    """

    def __init__(
        self,
        name: str,
        file: str,
        response: Response | None,
        now: Callable[[], float],
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._name = name
        self._now = now
        self.due_s = 0.0  # nobody tells when the next line comes
        self._rest = b""
        self._ahead_s = math.inf  # this clock's lead over that of the lines
        self._begun = self._ended = False  # a pipe whose writer is not there yet looks as one that has ended
        self._polled_s = self._latest_line_s = now()
        self._full = 0  # looks in a row that found too much
        self._last_s = -math.inf
        self._step_w = math.inf  # the finest that a line has told watts to
        self._file = _opened(name, file)
        try:
            first = self._first(patience_s)
        except PowerError as error:
            self.close()
            raise SensorUnavailableError(str(error)) from error
        except BaseException:
            self.close()
            raise
        period_s = max((first[-1].time_s - first[0].time_s) / (len(first) - 1), _SHORTEST_LOOK_S)
        self._silent_s = max(_SILENT_S, _SILENT * period_s)
        self.info = SensorInfo(
            name=name,
            kind="stream",
            scope=NAME,
            period_s=period_s,
            poll_interval_s=min(max(period_s / _LOOKS, _SHORTEST_LOOK_S), _LONGEST_LOOK_S),
            response=response or Response("boxcar", window_s=period_s),
            resolution=self._step_w,
        )
        try:
            check_answers(self.info, [sample.value for sample in first])
        except BaseException:
            self.close()
            raise

    def poll(self) -> list[Sample]:
        """The lines that came since the last call.

        Raises:
            PowerError: the writer is gone, or has been silent for long.
        """
        samples = self._read()
        if samples:
            self._latest_line_s = self._now()
            return sound(self.info, samples)
        if self._ended:
            raise PowerError(f"{self._name}: whoever wrote it has ended")
        if self._now() - self._latest_line_s > self._silent_s:
            raise PowerError(f"{self._name}: no line for {self._silent_s:.3g} s")
        return []

    def close(self) -> None:
        """Close the file; twice is fine."""
        if self._file > 0:  # standard input is not this sampler's to close
            os.close(self._file)
        self._file = -1

    def _first(self, patience_s: float) -> list[Sample]:
        """The first lines, whose distance is the period."""
        until_s = time.monotonic() + patience_s
        samples: list[Sample] = []
        while len(samples) < _FIRST:
            if time.monotonic() > until_s:
                raise SensorUnavailableError(
                    f"{self._name}: {len(samples)} of {_FIRST} lines within {patience_s:g} s;"
                    " a line is watts, or seconds,watts"
                )
            select.select([], [], [], _SHORTEST_LOOK_S)
            samples += self._read()
        return samples

    def _read(self) -> list[Sample]:
        since_s, self._polled_s = self._polled_s, self._now()
        try:
            data = os.read(self._file, _BYTES)
            if len(data) > _FULL:
                self._discard(data)
                return []
            self._full = 0
        except BlockingIOError:
            return []
        except OSError as error:
            raise PowerError(f"{self._name}: {error.strerror}") from error
        self._ended = not data and self._begun and not stat.S_ISREG(os.fstat(self._file).st_mode)
        self._begun = self._begun or bool(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            raise PowerError(f"{self._name}: a line of more than {_LONGEST_LINE} bytes is none of watts")
        rows = [row for row in map(_row, lines) if row is not None]
        self._step_w = min((self._step_w, *(step_w for _, _, step_w in rows)))
        return self._dated([(seconds, watts) for seconds, watts, _ in rows], since_s)

    def _discard(self, data: bytes) -> None:
        """Pass over what was written while nobody looked; a writer that is too fast is refused."""
        self._full += 1
        if self._full == _OFTEN:
            raise PowerError(
                f"{self._name}: more is written than can be read ({_FULL} bytes and more, {_OFTEN} times in a"
                " row); write a line every millisecond at most"
            )
        self._latest_line_s = self._polled_s
        self._begun = True
        if stat.S_ISREG(os.fstat(self._file).st_mode):
            os.lseek(self._file, 0, os.SEEK_END)
            data = b"\n"
        self._rest = data[data.rfind(b"\n") + 1 :]

    def _dated(self, rows: list[tuple[float | None, float]], since_s: float) -> list[Sample]:
        """Samples of lines that came since the last look."""
        samples: list[Sample] = []
        width_s = self._polled_s - since_s
        ahead_s = (self._polled_s - seconds for seconds, _ in rows if seconds is not None)
        self._ahead_s = min((self._ahead_s, *ahead_s))
        near: list[tuple[float, float]] = []
        sigma_s = 0.0
        for number, (seconds, watts) in enumerate(rows):
            if seconds is None:  # several lines of one look came one after the other
                time_s = since_s + width_s * (number + 1) / len(rows)
                sigma_s = width_s / len(rows) / _SQRT_12
            else:
                time_s, sigma_s = seconds + self._ahead_s, 0.0
            if time_s > self._last_s:
                if near and time_s - near[0][0] >= _NEAR_S:
                    samples.append(_mean(near, sigma_s))
                    near = []
                self._last_s = time_s
                near.append((time_s, watts))
        return [*samples, _mean(near, sigma_s)] if near else samples


def _mean(lines: list[tuple[float, float]], sigma_s: float) -> Sample:
    """One sample of lines that lie so near to each other that their times tell nothing."""
    time_s, watts = (math.fsum(column) / len(lines) for column in zip(*lines, strict=True))
    return Sample(time_s, watts, sigma_s)


def _opened(name: str, file: str) -> int:
    if file == "-":
        os.set_blocking(0, False)
        return 0
    try:
        descriptor = os.open(Path(file), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise SensorUnavailableError(f"{name}: {error.strerror}") from error
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        os.lseek(descriptor, 0, os.SEEK_END)  # what was written before is past
    elif not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)):
        os.close(descriptor)
        raise SensorUnavailableError(f"{name}: is no pipe and no file")
    return descriptor


def _row(line: bytes) -> tuple[float | None, float, float] | None:
    """Seconds, where they are told, watts, and the step they are written in; None for any other line."""
    texts = line.split(b",")
    try:
        columns = [float(column) for column in texts]
        exponent = int(Decimal(texts[-1].decode().strip()).as_tuple().exponent)  # no number for inf and nan
    except ValueError:
        return None
    if not all(map(math.isfinite, columns)) or len(columns) > _COLUMNS:
        return None
    seconds = None if len(columns) == 1 else columns[0]
    return seconds, columns[-1], 10.0 ** min(exponent, _COARSEST)
