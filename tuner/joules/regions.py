"""Regions of a program, the energy they have taken, and a log that is told of it."""

import atexit
import csv
import fcntl
import io
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from numbers import Real
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from tuner.joules import recording as process
from tuner.joules.recording import RecordedSpan, Source
from tuner.model.errors import InputError, PowerError
from tuner.model.units import MODELLED, si, with_uncertainty

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tuner.power.response.models import Array

    Tell = Callable[["RegionEnergy"], object]
    Destination = str | Path | Tell

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


# --- A log of the regions of a program, told once their energy is known: a CSV file, functions, Prometheus.

_LOG = logging.getLogger(__name__)
_PAUSE_S = 0.1  # between two looks whether sensors have shown an end
_PATIENCE_S = 5.0  # of these; then the region waits for its sensors as any other
_LAST_S = 10.0  # of a program that ends, for regions that nobody was told of yet


class RegionLog:
    """Tells of regions in the order of their ends, from a thread of its own: no region waits for it.

    Args:
        tells: called with the energy of each; what they raise is a warning.
    """

    def __init__(self, tells: Sequence["Tell"]) -> None:
        self._tells = tells
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._hurried = threading.Event()
        self._regions: SimpleQueue[Region | threading.Event] = SimpleQueue()
        _LOGS.add(self)

    def add(self, region: "Region") -> None:
        """Tell of a region that has ended, later."""
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="tuner-energy-log", daemon=True)
                    self._thread.start()
        self._regions.put(region)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all regions added before are told; whoever is told just now does not wait."""
        if self._thread not in {None, threading.current_thread()}:
            told = threading.Event()
            self._hurried.set()
            self._regions.put(told)
            told.wait(timeout_s)

    def forget(self) -> None:
        """Begin anew in a forked child: the thread, and what it had not told, are the parent's."""
        self._thread = None
        self._starting = threading.Lock()
        self._hurried = threading.Event()
        self._regions = SimpleQueue()

    def _run(self) -> None:
        while True:
            region = self._regions.get()
            if isinstance(region, threading.Event):
                self._hurried.clear()
                region.set()
                continue
            for _ in range(round(_PATIENCE_S / _PAUSE_S)):
                if region.ready or self._hurried.wait(_PAUSE_S):
                    break
            try:
                energy = region.result()
            except PowerError as error:
                _LOG.warning("%s is in no log: %s", region.name or "a region", error)
                continue
            for tell in self._tells:
                _tell_one(tell, energy)


def _tell_one(tell: "Tell", energy: "RegionEnergy") -> None:
    try:
        tell(energy)
    except Exception as error:  # noqa: BLE001 - of whoever is told; the others are told all the same
        _LOG.warning("log of regions: %s: %s", type(error).__name__, error)


_LOGS: "WeakSet[RegionLog]" = WeakSet()


def _tell_the_last() -> None:
    for log in tuple(_LOGS):
        log.flush(_LAST_S)


def _forget() -> None:
    for log in tuple(_LOGS):
        log.forget()


os.register_at_fork(after_in_child=_forget)
atexit.register(_tell_the_last)  # after that of ``recording``, so that it runs before sensors are closed


def region_log(log: "Destination | Sequence[Destination] | None") -> RegionLog | None:
    """The log that ``tuner.energy(log=...)`` asks for; None for none.

    Raises:
        InputError: it is neither a CSV file that can be written nor a function.
    """
    if log is None:
        return None
    several: Any = log if isinstance(log, (list, tuple)) else [log]
    if not several or not all(callable(one) or isinstance(one, (str, Path)) for one in several):
        raise InputError(f"log={log!r}: give the name of a CSV file, a function, or a list of them")
    return RegionLog([one if callable(one) else _CsvFile(Path(one)) for one in several])


# --- A CSV file: one row for each part of a region.

_HEADER = (
    *("began", "region", "seconds", "count", "device", "scope", "joules", "uncertainty_j", "mean_w"),
    *("peak_w", "sensor", "modelled", "notes"),
)


class _CsvFile:
    """Appends rows, each region's at once: several meters, threads and processes may share the file.

    Raises:
        InputError: it cannot be written, holds something else, or is not named ``.csv``.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if path.suffix != ".csv":
            raise InputError(f"log={str(path)!r}: rows are written as CSV; choose a name that ends in .csv")
        try:
            with path.open("a+", newline="", encoding="utf-8") as file:
                file.seek(0)
                first = file.readline()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"log={str(path)!r}: {error}; name a file that can be written") from error
        if first not in {"", _line(_HEADER)}:
            raise InputError(
                f"log={str(path)!r}: it holds something else than a log of regions; name another"
            )

    def __call__(self, energy: "RegionEnergy") -> None:
        began = datetime.fromtimestamp(energy.unix_s, timezone.utc).isoformat(timespec="milliseconds")
        rows = [
            _line(
                (
                    *(began, energy.name, energy.seconds, energy.count, part.device, part.scope, part.joules),
                    *(part.uncertainty_j, part.mean_w, part.peak_w, part.sensor, energy.modelled),
                    "; ".join(dict.fromkeys((*part.notes, *energy.notes))),
                )
            )
            for part in energy.parts
        ]
        with self._path.open("a", newline="", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write("".join([*([] if file.seek(0, io.SEEK_END) else [_line(_HEADER)]), *rows]))


def _line(fields: Sequence[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue()


# --- Prometheus.

_BUCKETS_J = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6)


def prometheus(
    registry: "CollectorRegistry | None" = None, buckets_j: Sequence[float] = _BUCKETS_J
) -> "Tell":
    """Metrics of regions, for ``tuner.energy(log=...)``, with the labels ``region``, ``device``, ``scope``.

    ``tuner_region_joules`` is a histogram, whose sum counts all joules; ``tuner_region_seconds_total`` a
    counter; ``tuner_region_watts`` a gauge: the mean power of the latest region.

    Args:
        registry: of prometheus_client; its ``REGISTRY`` if not given, which ``start_http_server`` serves.
        buckets_j: upper limits of the histogram, in joules.

    Raises:
        InputError: the registry has these metrics already, or these are no limits.
    """
    from prometheus_client import REGISTRY, Counter, Gauge, Histogram  # noqa: PLC0415 - most programs have none

    registry = REGISTRY if registry is None else registry
    labels = ("region", "device", "scope")
    try:
        joules = Histogram(
            "tuner_region_joules",
            "Energy of regions.",
            labels,
            buckets=tuple(map(float, buckets_j)),
            registry=registry,
        )
        seconds = Counter("tuner_region_seconds_total", "Time in regions.", labels, registry=registry)
        watts = Gauge("tuner_region_watts", "Mean power of the latest region.", labels, registry=registry)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"prometheus(): {error}; limits are numbers that grow, and all meters of a registry share one"
            " prometheus()"
        ) from error

    def tell(energy: "RegionEnergy") -> None:
        for part in energy.parts:
            of_part = (energy.name, part.device, part.scope)
            joules.labels(*of_part).observe(max(0.0, part.joules))
            seconds.labels(*of_part).inc(energy.seconds)
            if part.mean_uncertainty_w < part.mean_w:  # of a region too short for its sensor it is no power
                watts.labels(*of_part).set(part.mean_w)

    return tell
