"""A log of the regions of a program, told once their energy is known: a CSV file, functions, Prometheus."""

import atexit
import csv
import fcntl
import io
import logging
import os
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from tuner.model.errors import InputError, PowerError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tuner.joules.regions import Region, RegionEnergy

    Tell = Callable[[RegionEnergy], object]
    Destination = str | Path | Tell

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
