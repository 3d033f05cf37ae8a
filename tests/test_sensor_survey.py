"""What the survey of power readings says of each."""

from dataclasses import replace

import pytest
from tuner.power.base import PowerSampler, Reading, Response, Sample, SensorInfo

from tuner.devices.sensors import SensorReport, survey
from tuner.model.errors import PowerError, SensorUnavailableError

COUNTER = SensorInfo("counter", "counter", "gpu", period_s=0.2)
STREAM = SensorInfo("stream", "stream", "gpu", period_s=0.2, poll_interval_s=0.01)


class Sensor:
    """A sensor of a period at 80 W, whose clock moves when waited for."""

    def __init__(self, info: SensorInfo, period_s: float = 0.1, fails_s: float = 1e9) -> None:
        self.known = info
        self.period_s = period_s
        self.fails_s = fails_s
        self.time_s = self.due_s = 0.0
        self.seen = 0
        self.polls = 0
        self.closed = 0

    @property
    def info(self) -> SensorInfo:
        return replace(self.known, period_s=self.period_s) if self.seen > 3 else self.known

    def poll(self) -> list[Sample]:
        self.polls += 1
        if self.time_s > self.fails_s:
            raise PowerError("it broke")
        numbers = range(self.seen + 1, int(self.time_s / self.period_s) + 1)
        self.seen += len(numbers)
        times = [number * self.period_s for number in numbers]
        return [Sample(t, 80.0 * t if self.known.kind == "counter" else 80.0) for t in times]

    def close(self) -> None:
        self.closed += 1


def surveyed(*sensors: Sensor | str) -> list[SensorReport]:
    """The reports of sensors; a text is a reading that is not there, for that reason."""
    clock = [0.0]

    def reading(found: Sensor | str) -> Reading:
        def opened() -> PowerSampler:
            if isinstance(found, str):
                raise SensorUnavailableError(f"missing: {found}")
            return found

        return Reading("missing" if isinstance(found, str) else found.known.name, opened)

    def pause(seconds: float) -> None:
        clock[0] += seconds
        for sensor in sensors:
            if isinstance(sensor, Sensor):
                sensor.time_s = clock[0]

    reports = survey(map(reading, sensors), seconds=1.0, now=lambda: clock[0], pause=pause)
    assert all(sensor.closed == 1 for sensor in sensors if isinstance(sensor, Sensor))
    return reports


def test_each_reading_is_looked_at() -> None:
    """Period and power of every reading are those it showed; the first is taken, and the reason says so."""
    first, second = surveyed(Sensor(COUNTER), Sensor(STREAM))

    assert (first.measured, second.measured) == (True, True)
    assert first.info is not None
    assert first.info.period_s == 0.1
    assert [first.watts, second.watts] == pytest.approx([80.0, 80.0])
    assert (first.chosen, first.why) == (True, "")
    assert (second.chosen, second.why) == (False, "works; counter comes first")


def test_what_is_not_there_has_a_reason() -> None:
    """A reading that does not answer keeps its place and its reason, its name said once."""
    missing, first = surveyed("no driver", Sensor(COUNTER))

    assert (missing.name, missing.info, missing.why) == ("missing", None, "no driver")
    assert first.chosen


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (Response("boxcar", window_s=0.02, averages=False), "may miss part of a periodic load"),
        (Response("ramp", window_s=1.0), "a mean over 1 s, which answers late"),
        (
            Response("boxcar", window_s=0.02, origin="calibrated", averages=False),
            "misreads power, as its calibration found: no energy is to be taken from it",
        ),
    ],
)
def test_weaknesses_are_named(response: Response, why: str) -> None:
    """What is weaker about a reading than about the one taken is said."""
    _, second = surveyed(Sensor(COUNTER), Sensor(replace(STREAM, response=response)))

    assert second.why == why


def test_an_aliasing_reading_is_not_taken() -> None:
    """What its calibration found to alias is passed over, even alone."""
    aliasing = Response("boxcar", window_s=0.02, origin="calibrated", averages=False)
    blind = replace(STREAM, name="blind", response=aliasing)

    assert [r.chosen for r in surveyed(Sensor(blind), Sensor(STREAM))] == [False, True]
    assert [r.chosen for r in surveyed(Sensor(blind))] == [False]


def test_a_reading_that_breaks_is_not_taken() -> None:
    """A sensor that fails while it is looked at is not asked again, and another is taken."""
    broken = Sensor(STREAM, fails_s=0.2)
    first, second = surveyed(broken, Sensor(COUNTER))

    assert (first.chosen, first.why) == (False, "it broke")
    assert second.chosen
    assert broken.polls <= 22


def test_a_slow_reading_keeps_what_is_expected_of_it() -> None:
    """Too few samples measure no period."""
    (report,) = surveyed(Sensor(STREAM, period_s=0.4))

    assert not report.measured
    assert report.info is not None
    assert report.info.period_s == 0.2
