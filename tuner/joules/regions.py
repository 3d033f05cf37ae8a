"""A region of a program and the energy it has taken."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING

from tuner.joules import recording as process
from tuner.joules.recording import RecordedSpan, Source
from tuner.model.errors import InputError, PowerError
from tuner.model.units import MODELLED, si, with_uncertainty

if TYPE_CHECKING:
    from tuner.power.response.models import Array

_INTERVAL = 1.96  # standard uncertainties to either side cover 95 %
_J_PER_KWH = 3.6e6


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
        times_s: times since the region's begin between which ``watts`` are means, shape (n + 1,); empty
            where too few samples tell.
        watts: power as it was, corrected for the response of the reading of power (of the counter, where
            there is no other), shape (n,); NaN where no sensor saw it.
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
    times_s: "Array" = field(compare=False, repr=False)
    watts: "Array" = field(compare=False, repr=False)
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
        unix_s: when it began, in Unix time.
        count: of what its energy was for: steps, calls, tokens; None where nobody told.
    """

    name: str
    seconds: float
    parts: tuple[RegionPart, ...]
    modelled: bool
    synchronized: bool
    notes: tuple[str, ...]
    unix_s: float
    count: float | None = None

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

    @property
    def each_j(self) -> float | None:
        """Joules for each of ``count``; None where nobody told it."""
        return None if self.count is None else self.joules / self.count

    def cost(self, per_kwh: float) -> tuple[float, float]:
        """Carbon or money, and its standard uncertainty, from what a kilowatt-hour stands for.

        Args:
            per_kwh: grams of CO2, cents, or whatever is wanted, per kilowatt-hour.

        Raises:
            InputError: that is no number.
        """
        if not is_number(per_kwh):
            raise InputError(f"cost({per_kwh!r}): write a number per kWh, such as 380.0 for 380 g/kWh")
        return self.joules / _J_PER_KWH * per_kwh, self.uncertainty_j / _J_PER_KWH * abs(per_kwh)

    def __str__(self) -> str:
        label = f"{self.name}: " if self.name else ""
        lines = [
            f"{label}{_figures(self)}{f' ({MODELLED})' if self.modelled else ''} in {si(self.seconds, 's')}"
        ]
        if self.each_j is not None and self.count is not None:
            each = with_uncertainty(self.each_j, _INTERVAL * self.uncertainty_j / self.count, "J")
            lines.append(f"  {each} for each of {self.count:g}")
        if len(self.parts) > 1:
            lines += [f"  {part.device} {part.scope}: {_figures(part)}" for part in self.parts]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def _figures(energy: RegionEnergy | RegionPart) -> str:
    joules = with_uncertainty(energy.joules, _INTERVAL * energy.uncertainty_j, "J")
    peak = "" if energy.peak_w is None else f", peak {si(energy.peak_w, 'W')}"
    mean = with_uncertainty(energy.mean_w, _INTERVAL * energy.mean_uncertainty_w, "W")
    return f"{joules}, mean {mean}{peak}"


def is_number(value: object) -> bool:
    """True for a finite real number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return math.isfinite(value)


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
        *("_cancelled", "_count", "_end_s", "_energy", "_registry", "_added", "_sources", "_spans"),
        *("__weakref__", "_start_s", "_unsynchronized", "name"),
    )

    def __init__(self, sources: Sequence[Source], name: str, start_s: float, unsynchronized: str) -> None:
        self.name = name
        self._sources = sources
        self._unsynchronized = unsynchronized
        self._spans = [RecordedSpan(start_s) for _ in sources]
        self._start_s = start_s
        self._end_s: float | None = None
        self._energy: RegionEnergy | None = None
        self._count: float | None = None
        self._added: tuple[str, ...] = ()
        self._cancelled = False
        self._registry = process.REGISTRY
        for source, span in zip(sources, self._spans, strict=True):
            source.recording.begin(span)

    def add_note(self, note: str) -> None:
        """Add a note; ``EnergyMeter`` calls it."""
        self._added = (*self._added, note)
        if self._energy is not None:
            self._energy = replace(self._energy, notes=(*self._energy.notes, note))

    def end(self, end_s: float, unsynchronized: str) -> None:
        """Note the end; ``EnergyMeter`` calls it."""
        self._unsynchronized = self._unsynchronized or unsynchronized
        self._end_s = end_s
        if self._is_forked():
            return
        for source, span in zip(self._sources, self._spans, strict=True):
            source.recording.end(span, end_s)

    def cancel(self) -> None:
        """Forget the region, which nobody is told of; its block goes on.

        Raises:
            InputError: it has ended, or was cancelled before.
        """
        if self.ended or self._cancelled:
            past = "was cancelled before" if self._cancelled else "has ended"
            raise InputError(f"{self.name or 'the region'} {past}: only an open region is cancelled")
        self._cancelled = True
        if not self._is_forked():
            for source, span in zip(self._sources, self._spans, strict=True):
                source.recording.cancel(span)

    @property
    def cancelled(self) -> bool:
        """True where it was cancelled."""
        return self._cancelled

    @property
    def count(self) -> float | None:
        """Count of what its energy is for: steps, calls, tokens; set it before the region ends."""
        return self._count

    @count.setter
    def count(self, count: float) -> None:
        if not is_number(count) or count <= 0:
            raise InputError(f"count = {count!r}: write a number above 0, such as the steps of the region")
        if self.ended:
            raise InputError(f"count = {count!r}: set it before {self.name or 'the region'} ends")
        self._count = count

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
            InputError: the region has not ended, or was cancelled.
            PowerError: a sensor showed nothing of it, or this process was forked meanwhile.
        """
        if self._energy is None:
            if self._is_forked():
                raise PowerError("this process was forked after the region began: only its parent knows it")
            if self._cancelled:
                raise InputError(f"{self.name or 'the region'} was cancelled: it has no energy")
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
        """Warnings about the measurement."""
        return self.result().notes

    def __str__(self) -> str:
        return str(self.result()) if self.ended else f"{self.name or 'a region'} that has not ended"

    def __repr__(self) -> str:
        """Waits for no sensor: a debugger may ask at any time."""
        label = f"Region {self.name!r}" if self.name else "Region"
        if self._energy is None:
            ended = f"ended after {si(self.seconds, 's')}"
            return f"<{label}, {ended if self.ended else 'cancelled' if self._cancelled else 'open'}>"
        mark = f" ({MODELLED})" if self._energy.modelled else ""
        return f"<{label}: {_figures(self._energy)}{mark}>"

    def _is_forked(self) -> bool:
        """True in a child of the process in which the region began: its recordings did not come along."""
        return self._registry is not process.REGISTRY

    def _computed(self, timeout_s: float | None) -> RegionEnergy:
        parts = []
        for source, span in zip(self._sources, self._spans, strict=True):
            source.recording.wait(span, timeout_s)
            energy = span.known()
            mean_w = energy.joules / self.seconds
            parts.append(
                RegionPart(
                    device=source.device,
                    scope=energy.scope,
                    joules=energy.joules,
                    uncertainty_j=energy.sigma_j,
                    mean_w=mean_w,
                    mean_uncertainty_w=energy.sigma_j / self.seconds,
                    peak_w=None if energy.peak_w is None else max(energy.peak_w, mean_w),
                    peak_window_s=energy.peak_window_s,
                    sensor=energy.sensor,
                    times_s=energy.edges_s - self._start_s,
                    watts=energy.watts,
                    notes=energy.notes,
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
            notes=(*notes, *self._added),
            unix_s=time.time() - (self._sources[0].recording.now() - self._start_s),
            count=self._count,
        )
