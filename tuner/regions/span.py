"""The joules of one region by one recording, added up while it lasts."""

import math
from collections.abc import Sequence
from dataclasses import replace

from tuner.devices import power
from tuner.interfaces.power import Sample, SensorInfo
from tuner.model.errors import PowerError
from tuner.power.base import Span, SpanEnergy

Readings = Sequence[tuple[SensorInfo, Sequence[Sample]]]


class RecordedSpan:
    """A region as one recording sees it; the recording lets one thread at a time add to it.

    Args:
        start_s: when it began.

    Attributes:
        start_s: see above.
        end_s: when it ended; None while it has not.
        energy: once it is known.
        problem: why it cannot be known; empty otherwise.
    """

    __slots__ = ("__weakref__", "_parts", "_since_s", "end_s", "energy", "problem", "start_s")

    def __init__(self, start_s: float) -> None:
        self.start_s = start_s
        self.end_s: float | None = None
        self.energy: SpanEnergy | None = None
        self.problem = ""
        self._parts: SpanEnergy | None = None  # until ``_since_s``
        self._since_s = start_s

    def carry(self, readings: Readings, mark_s: float) -> None:
        """Add what was spent until a time whose samples are about to be dropped."""
        if mark_s <= self._since_s or self.energy is not None:
            return
        span = Span(self._since_s, mark_s, starts=self._since_s == self.start_s, ends=False)
        if self._add(readings, span):
            self._since_s = mark_s

    def settle(self, readings: Readings, failures: Sequence[str], notes: Sequence[str] = ()) -> None:
        """Find the energy of a region that has ended.

        Args:
            readings: with samples until after its end.
            failures: why readings show nothing more.
            notes: on the readings.
        """
        if self.energy is not None or self.end_s is None:
            return
        starts = self._since_s == self.start_s
        known = self._add(readings, Span(self._since_s, self.end_s, starts=starts))
        if not known or self._parts is None:
            names = ", ".join(info.name for info, _ in readings)
            self.problem = "; ".join(failures) or f"{names} showed nothing of the region"
            return
        self.energy = replace(self._parts, notes=(*self._parts.notes, *failures, *notes))

    def known(self) -> SpanEnergy:
        """The energy.

        Raises:
            PowerError: it cannot be known.
        """
        if self.energy is None:
            raise PowerError(self.problem or "the region has not ended")
        return self.energy

    def _add(self, readings: Readings, span: Span) -> bool:
        """Add the joules of a span; False where the readings show nothing of it."""
        found = power.span_energy(readings, span)
        if found is None:
            return False
        before = self._parts
        if before is None:
            self._parts = found
            return True
        highest = max((before, found), key=lambda part: -math.inf if part.peak_w is None else part.peak_w)
        self._parts = replace(
            found,
            joules=before.joules + found.joules,
            sigma_j=math.hypot(before.sigma_j, found.sigma_j),
            peak_w=highest.peak_w,
            peak_window_s=highest.peak_window_s,
            notes=tuple(dict.fromkeys((*before.notes, *found.notes))),
        )
        return True
