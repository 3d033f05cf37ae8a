"""A sum of meters: the power of what several sensors see apart, such as a GPU and its host's processors."""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from tuner.interfaces.power import ClockReading, Sample, SensorInfo
from tuner.model.uncertainty import contracted, expanded

from ..base import Meter, PowerReading, Recording, SpentEnergy


def scope_of(infos: Sequence[SensorInfo]) -> str:
    """The scopes of readings, joined: ``gpu+package+dram``."""
    return "+".join(info.scope for info in infos)


class SummedMeter:
    """Implements ``tuner.power.base.Meter`` over several meters that record at the same time.

    Args:
        meters: of different things; the first one's rhythm and clock count. They are closed with the sum.
    """

    def __init__(self, meters: Sequence[Meter]) -> None:
        self._meters = tuple(meters)

    @property
    def info(self) -> SensorInfo:
        """The first reading, under the names and scopes of all, as late as the latest of them."""
        infos = [meter.info for meter in self._meters]
        first = infos[0]
        delay_s = max(info.response.delay_s for info in infos)
        return replace(
            first,
            name="+".join(info.name for info in infos),
            scope=scope_of(infos),
            period_s=max(info.period_s for info in infos),
            response=replace(first.response, delay_s=delay_s),
        )

    @contextmanager
    def recording(self) -> Iterator["SummedRecording"]:
        """Collect the samples of all while the block runs."""
        with ExitStack() as stack:
            yield SummedRecording([stack.enter_context(meter.recording()) for meter in self._meters])

    def spent(self) -> SpentEnergy | None:
        """The sum of what all have spent since they were opened; None where one does not tell."""
        parts = [meter.spent() for meter in self._meters]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return SpentEnergy(
            joules=math.fsum(part.joules for part in known),
            sigma_j=math.hypot(*(part.sigma_j for part in known)),
            unseen_j=math.fsum(part.unseen_j for part in known),
            unseen_sigma_j=math.hypot(*(part.unseen_sigma_j for part in known)),
            unseen_s=max(part.unseen_s for part in known),
        )

    def close(self) -> None:
        """Release all sensors."""
        with ExitStack() as stack:
            for meter in self._meters:
                stack.callback(meter.close)


class SummedRecording:
    """Implements ``tuner.power.base.Recording``; made by ``SummedMeter.recording``."""

    def __init__(self, recordings: Sequence[Recording]) -> None:
        self._recordings = tuple(recordings)

    @property
    def problem(self) -> str:
        """Why the latest ``reading`` was None; empty where it was not."""
        return "; ".join(recording.problem for recording in self._recordings if recording.problem)

    def reading(self, start_s: float, end_s: float, round_s: float = 0.0) -> PowerReading | None:
        """The sum of the mean powers between two times; None when one sensor gave too little.

        Sensors err independently: variances add, and degrees of freedom are those of Welch and Satterthwaite.

        Args:
            start_s: begin of the window.
            end_s: its end.
            round_s: period with which the load repeats in it; 0 where that is not known.

        Raises:
            PowerError: a sensor stopped answering while the recording was made.
        """
        parts = [recording.reading(start_s, end_s, round_s) for recording in self._recordings]
        known = tuple(part for part in parts if part is not None)
        if len(known) < len(parts):
            return None
        uncertainty_w, degrees = expanded(contracted(part.uncertainty_w, part.degrees) for part in known)
        return PowerReading(
            watts=math.fsum(part.watts for part in known),
            uncertainty_w=uncertainty_w,
            sensor="+".join(part.sensor for part in known),
            scope="+".join(part.scope for part in known),
            notes=tuple(note for part in known for note in part.notes),
            degrees=degrees,
            parts=known,
        )

    def clock(self, start_s: float, end_s: float) -> ClockReading:
        """Of the first recording: median clock and all throttle reasons between two times."""
        return self._recordings[0].clock(start_s, end_s)

    def joules(self) -> float:
        """Energy of the whole recording, of all sensors; 0.0 without samples."""
        return math.fsum(recording.joules() for recording in self._recordings)

    def samples(self) -> Sequence[Sample]:
        """Every fresh sample of the first sensor; those of the others are their own."""
        return self._recordings[0].samples()
