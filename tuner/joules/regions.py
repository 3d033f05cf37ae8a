"""A region of a program, and the energy it has taken."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.model.errors import InputError, PowerError
from tuner.regions import sources as process
from tuner.regions.sources import Source
from tuner.regions.span import RecordedSpan
from tuner.report.words import MODELLED, si, with_uncertainty

_INTERVAL = 1.96  # standard uncertainties to either side cover 95 %


@dataclass(frozen=True)
class RegionPart:
    """Energy of a region by the sensors of one part of its scope.

    Attributes:
        device: the GPU as it was named, or ``host``.
        scope: what the sensors see: ``gpu``, ``package``, ``dram``, ``module`` or a rail.
        joules: energy of the region.
        uncertainty_j: its standard uncertainty: +- 1.96 of it covers 95 % (noise and timing, not the gain).
        mean_w: joules over the region's duration.
        mean_uncertainty_w: its standard uncertainty.
        peak_w: highest mean power over ``peak_window_s``; None where too few samples tell.
        peak_window_s: the shortest time that the sensor resolves.
        sensor: the readings.
        notes: what was not as it should be, e.g. ``too-short: ...``.
    """

    device: str
    scope: str
    joules: float
    uncertainty_j: float
    mean_w: float
    mean_uncertainty_w: float
    peak_w: float | None
    peak_window_s: float
    sensor: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RegionEnergy:
    """Energy of a region.

    Attributes:
        name: of the region; empty where it has none.
        seconds: its duration.
        parts: by device and scope; their joules add up.
        modelled: True where a simulated GPU is among the devices.
        synchronized: True where the GPUs had nothing left to do at both ends.
        notes: what was not as it should be.
    """

    name: str
    seconds: float
    parts: tuple[RegionPart, ...]
    modelled: bool
    synchronized: bool
    notes: tuple[str, ...]

    @property
    def joules(self) -> float:
        """Energy of all parts."""
        return math.fsum(part.joules for part in self.parts)

    @property
    def uncertainty_j(self) -> float:
        """Its standard uncertainty: sensors err independently."""
        return math.hypot(*(part.uncertainty_j for part in self.parts))

    @property
    def mean_w(self) -> float:
        """Joules over seconds."""
        return self.joules / self.seconds

    @property
    def mean_uncertainty_w(self) -> float:
        """Standard uncertainty of the mean power."""
        return self.uncertainty_j / self.seconds

    @property
    def peak_w(self) -> float | None:
        """Highest power of a region with one part; None of several, which need not peak at the same time."""
        return self.parts[0].peak_w if len(self.parts) == 1 else None

    def __str__(self) -> str:
        label = f"{self.name}: " if self.name else ""
        lines = [
            f"{label}{_figures(self)}{f' ({MODELLED})' if self.modelled else ''} in {si(self.seconds, 's')}"
        ]
        if len(self.parts) > 1:
            lines += [f"  {part.device} {part.scope}: {_figures(part)}" for part in self.parts]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def _figures(energy: RegionEnergy | RegionPart) -> str:
    joules = with_uncertainty(energy.joules, _INTERVAL * energy.uncertainty_j, "J")
    peak = "" if energy.peak_w is None else f", peak {si(energy.peak_w, 'W')}"
    mean = with_uncertainty(energy.mean_w, _INTERVAL * energy.mean_uncertainty_w, "W")
    return f"{joules}, mean {mean}{peak}"


class Region:
    """A region that is open or has ended; its energy is computed when it is asked for.

    Args:
        sources: where power is read.
        name: of the region.
        start_s: when it began.
        unsynchronized: why a GPU was not waited for at the begin; empty where it was.

    Attributes:
        name: see above.
    """

    __slots__ = (
        *("_end_s", "_energy", "_registry", "_sources", "_spans", "_start_s", "_unsynchronized"),
        *("__weakref__", "name"),
    )

    def __init__(self, sources: Sequence[Source], name: str, start_s: float, unsynchronized: str) -> None:
        self.name = name
        self._sources = sources
        self._unsynchronized = unsynchronized
        self._spans = [RecordedSpan(start_s) for _ in sources]
        self._start_s = start_s
        self._end_s: float | None = None
        self._energy: RegionEnergy | None = None
        self._registry = process.REGISTRY
        for source, span in zip(sources, self._spans, strict=True):
            source.recording.begin(span)

    def end(self, end_s: float, unsynchronized: str) -> None:
        """Note the end; ``EnergyMeter`` calls it."""
        self._unsynchronized = self._unsynchronized or unsynchronized
        self._end_s = end_s
        if self._is_forked():
            return
        for source, span in zip(self._sources, self._spans, strict=True):
            source.recording.end(span, end_s)

    @property
    def ended(self) -> bool:
        """True once the region has ended."""
        return self._end_s is not None

    @property
    def ready(self) -> bool:
        """True when ``result`` need not wait for a sensor."""
        return (
            self.ended
            and not self._is_forked()
            and all(
                source.recording.shown(span) for source, span in zip(self._sources, self._spans, strict=True)
            )
        )

    @property
    def seconds(self) -> float:
        """Its duration; of an open region until now."""
        end_s = self._sources[0].recording.now() if self._end_s is None else self._end_s
        return end_s - self._start_s

    def result(self, timeout_s: float | None = None) -> RegionEnergy:
        """The energy; waits until the sensors have shown the end of the region.

        Args:
            timeout_s: the longest wait for a sensor, after which what it showed until then counts; None for
                as late as it is known to be, and two seconds.

        Raises:
            InputError: the region has not ended.
            PowerError: a sensor showed nothing of it, or this process was forked meanwhile.
        """
        if self._energy is None:
            if self._is_forked():
                raise PowerError("this process was forked after the region began: only its parent knows it")
            if not self.ended:
                raise InputError(
                    f"{self.name or 'the region'} has not ended: its energy is known after its block"
                )
            self._energy = self._computed(timeout_s)
        return self._energy

    @property
    def joules(self) -> float:
        """Energy of the region; see ``result`` for this and what follows."""
        return self.result().joules

    @property
    def uncertainty_j(self) -> float:
        """Standard uncertainty of the energy."""
        return self.result().uncertainty_j

    @property
    def mean_w(self) -> float:
        """Mean power."""
        return self.result().mean_w

    @property
    def peak_w(self) -> float | None:
        """Peak power; None of several parts."""
        return self.result().peak_w

    @property
    def parts(self) -> tuple[RegionPart, ...]:
        """Energy by device and scope."""
        return self.result().parts

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not as it should be."""
        return self.result().notes

    def __str__(self) -> str:
        return str(self.result()) if self.ended else f"{self.name or 'a region'} that has not ended"

    def __repr__(self) -> str:
        """Waits for no sensor: a debugger may ask at any time."""
        label = f"Region {self.name!r}" if self.name else "Region"
        if self._energy is None:
            return f"<{label}, ended after {si(self.seconds, 's')}>" if self.ended else f"<{label}, open>"
        mark = f" ({MODELLED})" if self._energy.modelled else ""
        return f"<{label}: {_figures(self._energy)}{mark}>"

    def _is_forked(self) -> bool:
        """True in a child of the process in which the region began: its recordings did not come along."""
        return self._registry is not process.REGISTRY

    def _computed(self, timeout_s: float | None) -> RegionEnergy:
        parts = []
        for source, span in zip(self._sources, self._spans, strict=True):
            source.recording.wait(span, timeout_s)
            found = span.known()
            parts.append(
                RegionPart(
                    device=source.device,
                    scope=found.scope,
                    joules=found.joules,
                    uncertainty_j=found.sigma_j,
                    mean_w=found.joules / self.seconds,
                    mean_uncertainty_w=found.sigma_j / self.seconds,
                    peak_w=found.peak_w,
                    peak_window_s=found.peak_window_s,
                    sensor=found.sensor,
                    notes=found.notes,
                )
            )
        notes = list(dict.fromkeys(note for part in parts for note in part.notes))
        if self._unsynchronized:
            notes.append(
                f"not-synchronized: {self._unsynchronized}; GPU work that ran on counts where it ran"
            )
        return RegionEnergy(
            name=self.name,
            seconds=self.seconds,
            parts=tuple(parts),
            modelled=any(source.modelled for source in self._sources),
            synchronized=not self._unsynchronized,
            notes=tuple(notes),
        )
