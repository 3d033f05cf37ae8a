"""What a trace found, for people, files and pictures."""

import shlex
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib import metadata
from platform import node
from typing import Any

import numpy as np

from tuner import registry
from tuner.interfaces import ClockReading, Sample, SensorInfo
from tuner.tracing.choice import Gpu
from tuner.tracing.energy import Series, TracedEnergy, traced_energy
from tuner.tracing.recorder import Recorder
from tuner.tracing.run import Outcome

_APART = 0.05  # two readings of the same joules that differ by more are not both right


@dataclass(frozen=True)
class ReadingResult:
    """What one reading gave.

    Attributes:
        info: the reading.
        samples: as the sensor gave them.
        energy: the command's joules; None where it gave too little.
        failure: why it ended early; empty where it did not.
    """

    info: SensorInfo
    samples: tuple[Sample, ...]
    energy: TracedEnergy | None
    failure: str = ""


@dataclass(frozen=True)
class Trace:
    """A command's trace.

    Attributes:
        command: program and arguments.
        gpu: whose power was read.
        outcome: what became of the command, and when.
        readings: what each reading gave, best first.
        clocks: (time, clock and throttle reasons).
    """

    command: tuple[str, ...]
    gpu: Gpu
    outcome: Outcome
    readings: tuple[ReadingResult, ...]
    clocks: tuple[tuple[float, ClockReading], ...] = ()

    @property
    def words(self) -> str:
        """The command as one would type it."""
        return shlex.join(self.command)

    @property
    def curve(self) -> ReadingResult | None:
        """The reading that shows power over time; None where there are counters only."""
        return next((reading for reading in self.readings if reading.info.kind != "counter"), None)

    @property
    def best(self) -> ReadingResult | None:
        """The reading whose joules count: the first that has any, and counters come first."""
        found = sorted(self.readings, key=lambda reading: reading.info.kind != "counter")
        return next((reading for reading in found if reading.energy is not None), None)

    @property
    def clock(self) -> ClockReading:
        """Median clock and all throttle reasons while the command ran."""
        line = self.outcome.timeline
        seen = [reading for time_s, reading in self.clocks if line.started_s <= time_s <= line.ended_s]
        rates = [reading.mhz for reading in seen if reading.mhz is not None]
        reasons = {reason for reading in seen for reason in reading.throttle_reasons}
        return ClockReading(statistics.median(rates) if rates else None, tuple(sorted(reasons)))

    def notes(self) -> Iterator[str]:
        """What was not as it should be."""
        for reading in self.readings:
            if reading.failure:
                yield reading.failure
            elif reading.energy is None:
                yield f"{reading.info.name} gave too few samples before or after the command for joules"
            else:
                yield from (f"{reading.info.name}: {note}" for note in reading.energy.notes)
        if self.clock.throttle_reasons:
            yield f"throttled: {', '.join(self.clock.throttle_reasons)}"
        if self.outcome.dropped_marks:
            yield f"{self.outcome.dropped_marks} more marks were set than are kept"
        yield from self._disagreement()

    def _disagreement(self) -> Iterator[str]:
        best, curve = self.best, self.curve
        if best is None or curve is None or curve is best or not (best.energy and curve.energy):
            return
        apart = curve.energy.total_j / best.energy.total_j - 1.0
        if abs(apart) > _APART:
            yield f"{curve.info.name} differs from {best.info.name} by {100 * apart:+.1f} %: one is wrong"

    def recorded(self) -> Any:  # noqa: ANN401 - a plugin's dataclass
        """The trace as a file holds it, time 0 where the command started; None without a curve.

        What the command cost stands in its provenance.
        """
        reading = self.curve or next(iter(self.readings), None)
        if reading is None:
            return None
        zero_s = self.outcome.timeline.started_s
        return registry.load("trace", "recorded")(
            info=reading.info,
            samples=tuple(replace(sample, time_s=sample.time_s - zero_s) for sample in reading.samples),
            marks=tuple((time_s - zero_s, label) for time_s, label in self.outcome.marks),
            clocks=tuple((time_s - zero_s, clock) for time_s, clock in self.clocks),
            provenance=self.provenance(),
        )

    def provenance(self) -> dict[str, str | int | float | bool | None]:
        """Where the trace comes from, and what it comes to; uncertainties are standard ones."""
        best = self.best
        energy = None if best is None else best.energy
        return {
            "program": f"tuner {metadata.version('tuner')}",
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "host": node(),
            "gpu": self.gpu.name,
            "uuid": self.gpu.uuid,
            "driver": self.gpu.driver,
            "command": self.words,
            "exit_code": self.outcome.exit_code,
            "duration_s": self.outcome.timeline.duration_s,
            "overhead_cores": self.outcome.overhead,
            "energy_sensor": None if best is None else best.info.name,
            "energy_scope": None if best is None else best.info.scope,
            "total_j": None if energy is None else energy.total_j,
            "total_j_uncertainty": None if energy is None else energy.total_sigma_j,
            "net_j": None if energy is None else energy.net_j,
            "net_j_uncertainty": None if energy is None else energy.net_sigma_j,
            "idle_w": None if energy is None else energy.idle_w,
            "idle_w_uncertainty": None if energy is None else energy.idle_sigma_w,
            "mean_w": None if energy is None else energy.mean_w,
            "notes": "; ".join(self.notes()),
        }


def result(command: Sequence[str], gpu: Gpu, recorder: Recorder, outcome: Outcome) -> Trace:
    """Join what the recorder holds with what became of the command."""
    line = outcome.timeline
    readings = []
    for channel in recorder.channels:
        kept = tuple(sample for sample in channel.samples if sample.time_s >= line.began_s)
        energy = None if channel.failure else traced_energy(kept, channel.info, line)
        readings.append(ReadingResult(channel.info, kept, energy, channel.failure))
    return Trace(tuple(command), gpu, outcome, tuple(readings), tuple(recorder.clocks))


def corrected(reading: ReadingResult) -> tuple[Series, "np.ndarray[Any, Any]", float]:
    """Samples of a reading, power corrected for its response, and the age of that power in seconds."""
    series = Series.of(reading.samples)
    response = reading.info.response
    watts = registry.load("trace", "corrected")(series.times_s, series.values, response)
    return series, watts, float(registry.load("trace", "age")(response))
