"""Surveys the power readings of a device by reading each for a moment."""

import math
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from tuner.devices.sensors import is_advised_against
from tuner.interfaces.power import PowerSampler, Reading, Sample, SensorInfo
from tuner.model.errors import PowerError, SensorUnavailableError

_FEW = 3  # samples that have a period between them
_NAP_S = 0.002  # between two looks at all readings
_LONG_S = 0.5  # a mean over more than this answers late


@dataclass(frozen=True)
class SensorReport:
    """A power reading that was looked for.

    Attributes:
        name: of the reading.
        info: what is known of it; None where it does not answer.
        measured: True when the period in ``info`` was seen, not assumed.
        watts: mean of what it showed meanwhile, uncorrected; None where it showed too little.
        chosen: True for the one that is taken when none is named.
        why: why it is not, or does not answer; empty for the one chosen.
    """

    name: str
    info: SensorInfo | None = None
    measured: bool = False
    watts: float | None = None
    chosen: bool = False
    why: str = ""


def survey(
    readings: Iterable[Reading],
    *,
    seconds: float,
    now: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
    choose: bool = True,
) -> list[SensorReport]:
    """Open every reading, look at all of them for a while, and say which is to be taken.

    Args:
        readings: best first.
        seconds: how long.
        now: clock of the samples, in seconds.
        pause: waits for so many seconds of that clock.
        choose: False for readings of the host, which a scope adds to the one that is taken.
    """
    reports = []
    with ExitStack() as stack:
        looks: dict[str, _SensorProbe] = {}
        for reading in readings:
            try:
                sampler = reading.open()
            except SensorUnavailableError as error:
                reports.append(SensorReport(reading.name, why=str(error).removeprefix(f"{reading.name}: ")))
                continue
            stack.callback(sampler.close)
            looks[reading.name] = _SensorProbe(sampler)
            reports.append(SensorReport(reading.name, sampler.info))
        end_s = now() + seconds
        while looks and now() < end_s:
            for look in looks.values():
                look.poll(now())
            pause(_NAP_S)
        for look in looks.values():
            look.poll(math.inf)  # a ring, for one, is asked a few times a second
        reports = [looks[report.name].report(report) if report.info else report for report in reports]
    return _judged(reports) if choose else [_of_host(report) for report in reports]


@dataclass
class _SensorProbe:
    """What one sampler showed."""

    sampler: PowerSampler
    samples: list[Sample] = field(default_factory=list)
    due_s: float = 0.0
    failure: str = ""

    def poll(self, now_s: float) -> None:
        """Take what is there, no more often than the reading asks for."""
        if self.failure or now_s < max(self.due_s, self.sampler.due_s):
            return
        self.due_s = now_s + self.sampler.info.poll_interval_s
        try:
            self.samples += self.sampler.poll()
        except PowerError as error:
            self.failure = str(error)

    def report(self, opened: SensorReport) -> SensorReport:
        """The report of the reading."""
        info = self.sampler.info
        watts = None
        if info.kind != "counter" and self.samples:
            watts = sum(sample.value for sample in self.samples) / len(self.samples)
        elif len(self.samples) > 1:
            first, last = self.samples[0], self.samples[-1]
            watts = (last.value - first.value) / (last.time_s - first.time_s)
        return replace(opened, info=info, measured=len(self.samples) >= _FEW, watts=watts, why=self.failure)


def _judged(reports: list[SensorReport]) -> list[SensorReport]:
    """The same reports, with the choice and the reasons against the others."""
    best = next((report for report in reports if report.info and not _objection(report)), None)
    if best is None:
        return [replace(report, why=_objection(report)) for report in reports]
    return [
        replace(report, chosen=True)
        if report is best
        else replace(report, why=_objection(report) or _second(report, best.name))
        for report in reports
    ]


def _of_host(report: SensorReport) -> SensorReport:
    """The report of a reading that is not the GPU's."""
    return replace(report, why=report.why or "added by --scope of run, trace and watch")


def _objection(report: SensorReport) -> str:
    """Why a reading is not to be used; empty where it may be."""
    if report.info is not None and is_advised_against(report.info):
        return "misreads power, as its calibration found: no energy is to be taken from it"
    return report.why


def _second(report: SensorReport, best: str) -> str:
    """What is weaker about a reading that works."""
    response = report.info.response if report.info else None
    if response is not None and not response.averages:
        return "may miss part of a periodic load"
    if response is not None and response.window_s > _LONG_S:
        return f"a mean over {response.window_s:.3g} s, which answers late"
    return f"works; {best} comes first"
