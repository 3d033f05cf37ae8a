"""The result of a trace, for reports, files and pictures."""

import math
import shlex
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from platform import node

from tuner.devices.sensors import is_of_host
from tuner.joules.traces import CommandOutcome, Recorder
from tuner.joules.watching import Gpu
from tuner.model.version import VERSION
from tuner.power.base import ClockReading, ProgramEnergy, Sample, SensorInfo
from tuner.power.energy.mean_power import disagreement
from tuner.power.energy.programs import program_energies
from tuner.power.sensors.recorded import TraceFile

_SURELY = 3.0  # standard uncertainties that noise does not exceed
_COARSE = 3.0  # times as uncertain as the curve, a counter's difference says less, as of a brief command,
_COARSE_PART = 0.01  # if its standard uncertainty is more than this of it
_STILL = 0.05  # of the command's power above idle: less is an idle GPU that has warmed up
_STILL_IDLE = 0.02  # of idle power: likewise


@dataclass(frozen=True)
class ReadingResult:
    """Result of one reading.

    Attributes:
        info: the reading.
        samples: as the sensor gave them.
        energy: the command's joules; None where it gave too little.
        failure: why it ended early; empty where it did not.
    """

    info: SensorInfo
    samples: tuple[Sample, ...]
    energy: ProgramEnergy | None
    failure: str = ""


@dataclass(frozen=True)
class ProgramTrace:
    """A command's trace.

    Attributes:
        command: program and arguments.
        gpu: whose power was read.
        outcome: what became of the command, and when.
        readings: what each reading of the GPU gave, best first.
        clocks: (time, clock and throttle reasons).
        host: what readings of the host gave, of things that the GPU's do not see.
        reference: what another meter of the same power gave, which the best reading is held against.
    """

    command: tuple[str, ...]
    gpu: Gpu
    outcome: CommandOutcome
    readings: tuple[ReadingResult, ...]
    clocks: tuple[tuple[float, ClockReading], ...] = ()
    host: tuple[ReadingResult, ...] = ()
    reference: ReadingResult | None = None

    @property
    def gain(self) -> tuple[float, float] | None:
        """Net joules of the best reading by those of the reference, and the standard uncertainty of that.

        What either sees of an idle machine beside the GPU cancels. None where one of them is not known.
        """
        best, reference = self.best, self.reference
        if best is None or reference is None or best.energy is None or reference.energy is None:
            return None
        measured, true = best.energy, reference.energy
        if true.net_j <= 0.0 or measured.net_j <= 0.0:
            return None
        ratio = measured.net_j / true.net_j
        return ratio, ratio * math.hypot(measured.net_sigma_j / measured.net_j, true.net_sigma_j / true.net_j)

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
        """The reading whose joules count: a counter's, unless the command was too short for it."""
        curve = self.curve
        curve_energy = curve.energy if curve is not None else None
        for reading in sorted(self.readings, key=lambda reading: reading.info.kind != "counter"):
            if reading.energy is None:
                continue
            fine_j = _COARSE_PART * abs(reading.energy.total_j)
            coarse_j = math.inf if curve_energy is None else _COARSE * curve_energy.total_sigma_j
            if reading.energy.total_sigma_j <= max(coarse_j, fine_j):
                return reading
        return None

    @property
    def counted(self) -> tuple[ReadingResult, ...]:
        """The readings that are added: the GPU's best and all of the host's; none where one has no joules.

        Where the GPU's counter and curve differ, the uncertainty of the best holds both.
        """
        best = self.best
        if best is not None and best.energy is not None and self._disagreement is not None:
            doubt_j, energy = self._disagreement[1], best.energy
            wider = replace(
                energy,
                total_sigma_j=math.hypot(energy.total_sigma_j, doubt_j),
                net_sigma_j=math.hypot(energy.net_sigma_j, doubt_j),
            )
            best = replace(best, energy=wider)
        parts = (*([best] if self.readings else []), *self.host)
        measured = tuple(part for part in parts if part is not None and part.energy is not None)
        return measured if len(measured) == len(parts) else ()

    @property
    def scope(self) -> str:
        """Scope of the joules, e.g. ``gpu+package``; empty without joules."""
        return "+".join(part.info.scope for part in self.counted)

    @property
    def energy(self) -> ProgramEnergy | None:
        """The joules of all that was to be counted; None where a part of them is not known."""
        energies = [part.energy for part in self.counted if part.energy is not None]
        if len(energies) <= 1:
            return energies[0] if energies else None

        return ProgramEnergy(
            total_j=math.fsum(energy.total_j for energy in energies),
            total_sigma_j=math.hypot(*(energy.total_sigma_j for energy in energies)),
            net_j=math.fsum(energy.net_j for energy in energies),
            net_sigma_j=math.hypot(*(energy.net_sigma_j for energy in energies)),
            idle_w=math.fsum(energy.idle_w for energy in energies),
            idle_sigma_w=math.hypot(*(energy.idle_sigma_w for energy in energies)),
            mean_w=math.fsum(energy.mean_w for energy in energies),
            peak_w=None,
            peak_window_s=0.0,
        )

    @property
    def clock(self) -> ClockReading:
        """Median clock and all throttle reasons while the command ran."""
        line = self.outcome.timeline
        seen = [reading for time_s, reading in self.clocks if line.started_s <= time_s <= line.ended_s]
        rates = [reading.mhz for reading in seen if reading.mhz is not None]
        reasons = {reason for reading in seen for reason in reading.throttle_reasons}
        return ClockReading(statistics.median(rates) if rates else None, tuple(sorted(reasons)))

    def notes(self) -> Iterator[str]:
        """Yield warnings about the measurement."""
        others = () if self.reference is None else (self.reference,)
        for reading in (*self.readings, *self.host, *others):
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
        yield from self._aftermath()
        if self._disagreement is not None:
            yield self._disagreement[0]

    def _aftermath(self) -> Iterator[str]:
        """Power that was not idle power once the command had ended."""
        energies = [reading.energy for reading in (self.curve, self.best) if reading is not None]
        energy = next((energy for energy in energies if energy is not None), None)
        if energy is None or energy.after is None:
            return
        above_w = energy.after.watts - energy.idle_w
        noise_w = _SURELY * math.hypot(energy.after.sigma_w, energy.idle_sigma_w)
        usual_w = max(_STILL * (energy.mean_w - energy.idle_w), _STILL_IDLE * energy.idle_w)
        if abs(above_w) > max(noise_w, usual_w):
            yield (
                f"after the command the GPU went on at {energy.after.watts:.4g} W, {abs(above_w):.3g} W"
                f" {'above' if above_w > 0 else 'below'} the idle power before it; the joules end with the"
                " command"
            )

    @property
    def _disagreement(self) -> tuple[str, float] | None:
        """See ``disagreement``; of the GPU's counter and curve."""
        counter = next((reading for reading in self.readings if reading.info.kind == "counter"), None)
        curve = self.curve
        if counter is None or curve is None or not (counter.energy and curve.energy):
            return None
        counted, shown = (
            (reading.info.name, energy.total_j, energy.total_sigma_j)
            for reading, energy in ((counter, counter.energy), (curve, curve.energy))
        )
        return disagreement(counted, shown, "J")

    def recorded(self) -> TraceFile | None:
        """The trace as a file holds it, time 0 where the command started; None without a curve.

        What the command cost stands in its provenance.
        """
        reading = self.curve or next(iter((*self.readings, *self.host)), None)
        if reading is None:
            return None
        zero_s = self.outcome.timeline.started_s
        return TraceFile(
            info=reading.info,
            samples=tuple(replace(sample, time_s=sample.time_s - zero_s) for sample in reading.samples),
            marks=tuple((time_s - zero_s, label) for time_s, label in self.outcome.marks),
            clocks=tuple((time_s - zero_s, clock) for time_s, clock in self.clocks),
            provenance=self.provenance(),
        )

    def provenance(self) -> dict[str, str | int | float | bool | None]:
        """Return the origin and the totals of the trace; uncertainties are standard uncertainties."""
        energy = self.energy
        against: dict[str, str | float | None] = {}
        if self.reference is not None:
            gain = self.gain or (None, None)
            against = {"reference": self.reference.info.name, "gain": gain[0], "gain_uncertainty": gain[1]}
        return {
            "program": f"tuner {VERSION}",
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "host": node(),
            "gpu": self.gpu.name,
            "uuid": self.gpu.uuid,
            "driver": self.gpu.driver,
            "command": self.words,
            "exit_code": self.outcome.exit_code,
            "duration_s": self.outcome.timeline.duration_s,
            "overhead_cores": self.outcome.overhead,
            "energy_sensor": "+".join(part.info.name for part in self.counted) or None,
            "energy_scope": self.scope or None,
            "total_j": None if energy is None else energy.total_j,
            "total_j_uncertainty": None if energy is None else energy.total_sigma_j,
            "net_j": None if energy is None else energy.net_j,
            "net_j_uncertainty": None if energy is None else energy.net_sigma_j,
            "idle_w": None if energy is None else energy.idle_w,
            "idle_w_uncertainty": None if energy is None else energy.idle_sigma_w,
            "mean_w": None if energy is None else energy.mean_w,
            "notes": "; ".join(self.notes()),
            **against,
            **{
                f"{part.info.scope}_{name}": value
                for part in (self.counted if self.host else ())
                if part.energy is not None
                for name, value in (
                    ("total_j", part.energy.total_j),
                    ("total_j_uncertainty", part.energy.total_sigma_j),
                    ("net_j", part.energy.net_j),
                    ("net_j_uncertainty", part.energy.net_sigma_j),
                )
            },
        }


def result(
    command: Sequence[str], gpu: Gpu, recorder: Recorder, outcome: CommandOutcome, against: str | None = None
) -> ProgramTrace:
    """Join what the recorder holds with what became of the command."""
    line = outcome.timeline
    samples_of = {
        channel: tuple(sample for sample in channel.samples if sample.time_s >= line.began_s)
        for channel in recorder.channels
    }
    readings_of = [(channel.info, samples) for channel, samples in samples_of.items()]
    energies = program_energies(readings_of, line)
    readings = [
        ReadingResult(channel.info, samples, energy, channel.failure)
        for (channel, samples), energy in zip(samples_of.items(), energies, strict=True)
    ]
    host = tuple(reading for reading in readings if is_of_host(reading.info))
    reference = next((reading for reading in readings if reading.info.name == against), None)
    own = tuple(reading for reading in readings if reading not in host and reading is not reference)
    return ProgramTrace(tuple(command), gpu, outcome, own, tuple(recorder.clocks), host, reference)
