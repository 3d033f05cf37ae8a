"""Power rails out of lines that a tool prints, for ``tegrastats`` and ``jtop``: one child for all rails."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from tuner.errors import PowerError, SensorUnavailableError
from tuner.interfaces import Reading, Response, Sample, SensorInfo

from .fresh import Freshness
from .lines import ChildLines, SharedLines
from .rails import Choice, choices

Parse = Callable[[str], Mapping[str, float]]
"""The watts of each connected rail of one line; empty for a line that names none. Never raises."""

_STEP_W = 0.04  # 40 uV, the least an INA3221 tells apart, on a shunt of 5 mOhm at 5 V: what modules have
_SHOWN = 120  # characters of a line that are shown to people


@dataclass(frozen=True)
class Tool:
    """A tool that prints rails.

    Attributes:
        name: first part of the names of its readings.
        lines: its child, shared by all that read rails.
        parse: reads a line.
        interval_s: time between its lines.
        patience_s: longest time until its first line.
        advice: what a person may do where its lines name no rails.
    """

    name: str
    lines: SharedLines
    parse: Parse
    interval_s: float
    patience_s: float
    advice: str


def rail_readings(tool: Tool, responses: Callable[[str], Response | None]) -> list[Reading]:
    """The readings of a tool, best first; one that only says why where it prints no rails."""
    try:
        names = _rails(tool)
    except SensorUnavailableError as error:
        return [unavailable(tool.name, str(error))]
    return [
        Reading(f"{tool.name}:{choice.name}", partial(RailSampler, tool, choice, responses))
        for choice in choices(names)
    ]


def unavailable(name: str, reason: str) -> Reading:
    """A reading that is not there, with the reason."""

    def refuse() -> "RailSampler":
        raise SensorUnavailableError(reason)

    return Reading(name, refuse)


class RailSampler:
    """Implements ``tuner.interfaces.PowerSampler`` over a rail, or a sum of rails, of a tool's lines.

    The tool shows what the sensor last measured, at the time of its line; how much of the time between two
    lines that covers is not known.

    Args:
        tool: prints the lines.
        choice: the rails.
        responses: calibrated response by the name of a reading.

    Raises:
        SensorUnavailableError: no line names the rails.
    """

    def __init__(self, tool: Tool, choice: Choice, responses: Callable[[str], Response | None]) -> None:
        self._tool = tool
        self._rails = choice.rails
        name = f"{tool.name}:{choice.name}"
        self._fresh = Freshness(tool.interval_s, learn=True)
        assumed = Response("boxcar", window_s=tool.interval_s, averages=False)
        self._info = SensorInfo(
            name=name,
            kind="stream",
            scope=choice.scope,
            period_s=tool.interval_s,
            poll_interval_s=tool.interval_s,
            resolution=_STEP_W * len(choice.rails) ** 0.5,
            response=responses(name) or assumed,
        )
        self._count = 0
        self._lines = tool.lines.acquire()
        try:
            _first(tool, self._lines, lambda rails: set(self._rails) <= set(rails))
        except BaseException:
            tool.lines.release()
            raise

    @property
    def info(self) -> SensorInfo:
        """What is known of this reading; the period is learnt from the samples."""
        return replace(self._info, period_s=self._fresh.period_s)

    @property
    def due_s(self) -> float:
        """Unknown: the tool prints when it likes."""
        return 0.0

    def poll(self) -> list[Sample]:
        """Samples of the lines since the last call; lines that do not name the rails are passed over.

        Raises:
            PowerError: the tool has ended.
        """
        end = self._lines.end  # before the lines are taken, so that none comes between
        self._count, lines = self._lines.since(self._count)
        samples = []
        for line in lines:
            rails = self._tool.parse(line.text)
            if all(rail in rails for rail in self._rails):
                samples.append(self._fresh.look(line.time_s, sum(rails[rail] for rail in self._rails)))
        if not lines and end is not None:
            raise PowerError(f"{self._info.name}: {self._tool.name} {end}")
        return [sample for sample in samples if sample is not None]

    def close(self) -> None:
        """Let go of the tool; the last one that does ends it."""
        if self._count >= 0:
            self._count = -1
            self._tool.lines.release()


def _rails(tool: Tool) -> list[str]:
    """The rails a tool prints."""
    lines = tool.lines.acquire()
    try:
        return list(_first(tool, lines, bool))
    finally:
        tool.lines.release()


def _first(
    tool: Tool, lines: ChildLines, wanted: Callable[[Mapping[str, float]], bool]
) -> Mapping[str, float]:
    """The rails of the first line that has what is wanted."""
    until_s = time.monotonic() + tool.patience_s
    count, last = 0, ""
    while True:
        end = lines.end
        count, fresh = lines.since(count)
        for line in fresh:
            rails = tool.parse(line.text)
            if wanted(rails):
                return rails
            last = line.text
        if end is not None:
            raise SensorUnavailableError(f"{tool.name} {end}")
        if not lines.wait(count, until_s):
            raise SensorUnavailableError(_silent(tool, last))


def _silent(tool: Tool, last: str) -> str:
    if not last:
        return f"{tool.name} prints nothing within {tool.patience_s:g} s"
    return f"{tool.name} names no power rails ({tool.advice}); it prints: {last[:_SHOWN]}"
