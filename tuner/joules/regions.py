"""``tuner.energy``: regions of a program and the energy they have taken."""

import functools
import inspect
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar

from tuner.devices.cuda.direct import synchronize
from tuner.joules import recording as process
from tuner.joules.recording import RecordedSpan, Source
from tuner.model.errors import InputError, PowerError, UnknownNameError, suggestion
from tuner.model.units import MODELLED, si, with_uncertainty

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
        """Warnings about the measurement."""
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
            energy = span.known()
            parts.append(
                RegionPart(
                    device=source.device,
                    scope=energy.scope,
                    joules=energy.joules,
                    uncertainty_j=energy.sigma_j,
                    mean_w=energy.joules / self.seconds,
                    mean_uncertainty_w=energy.sigma_j / self.seconds,
                    peak_w=energy.peak_w,
                    peak_window_s=energy.peak_window_s,
                    sensor=energy.sensor,
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
            notes=tuple(notes),
        )


# --- ``tuner.energy``: a context manager, a decorator, and windows with a name.

P = ParamSpec("P")
T = TypeVar("T")

KEPT = 1000
"""Calls of a decorated function whose regions are kept, the latest."""

_OPTION = re.compile(r"--(device|scope|sensor) ")
_ENTERED: ContextVar[tuple[tuple["EnergyMeter", Region], ...]] = ContextVar(
    "tuner_energy_regions", default=()
)


class Stream(Protocol):
    """A stream of CuPy or torch, or whatever can be waited for."""

    def synchronize(self) -> object:
        """Wait."""


Synchronization = bool | Stream | Callable[[], object]


class EnergyMeter:
    """Measures regions of a program; ``energy`` makes one.

    It may be used by several threads and tasks at the same time, entered again while it is open, and used
    as often as one likes.

    Args:
        scope: what is counted.
        devices: the GPUs.
        sensor: the GPUs' reading.
        synchronization: what is waited for at both ends.
    """

    def __init__(
        self, scope: str, devices: Sequence[str], sensor: str | None, synchronization: Synchronization
    ) -> None:
        self._asked = scope, tuple(devices), sensor
        self._synchronization = synchronization
        self._lock = threading.Lock()
        self._named: dict[str, Region] = {}
        self._registry = process.REGISTRY
        self._sources = self._registry.sources(*self._asked)
        self._gpus = [source for source in self._sources if source.is_gpu]

    def begin(self, name: str) -> Region:
        """Begin a window with a name; any thread may end it.

        Raises:
            InputError: a window of that name is open.
        """
        with self._lock:
            if name in self._named:
                raise InputError(f"begin({name!r}): the window is open already; end it first")
            self._named[name] = region = self._begun(name)
        return region

    def end(self, name: str) -> Region:
        """End a window; its energy is computed when it is asked for.

        Raises:
            UnknownNameError: no window of that name is open.
        """
        waited = self._waited()
        end_s = time.monotonic()
        with self._lock:
            region = self._named.pop(name, None)
        if region is None:
            names = ", ".join(map(repr, self._named)) or "none"
            raise UnknownNameError(
                f"end({name!r}): no such window is open; open are {names}{suggestion(name, self._named)}"
            )
        region.end(end_s, waited)
        return region

    def __enter__(self) -> Region:
        region = self._begun("")
        _ENTERED.set((*_ENTERED.get(), (self, region)))
        return region

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        waited = self._waited()
        end_s = time.monotonic()
        entered = _ENTERED.get()
        index = max(i for i, (meter, _) in enumerate(entered) if meter is self)
        _ENTERED.set((*entered[:index], *entered[index + 1 :]))
        entered[index][1].end(end_s, waited)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Measure each call of a function; its attribute ``regions`` holds the latest thousand."""
        regions: deque[Region] = deque(maxlen=KEPT)
        if not callable(function):
            raise InputError(f"{function!r} is no function: write `with meter:` or @meter above a function")
        name = getattr(function, "__qualname__", "")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InputError(
                f"{name} is a generator, whose call returns at once: measure the loop that runs it"
            )

        @functools.wraps(function)
        def measured(*args: P.args, **kwargs: P.kwargs) -> T:
            region = self._begun(name)
            try:
                return function(*args, **kwargs)
            finally:
                self._finish(region, regions)

        @functools.wraps(function)
        async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:  # noqa: ANN401 - what the function returns
            region = self._begun(name)
            try:
                return await function(*args, **kwargs)  # type: ignore[misc]  # it is a coroutine function
            finally:
                self._finish(region, regions)

        wrapper: Any = awaited if inspect.iscoroutinefunction(function) else measured
        wrapper.regions = regions
        chosen: Callable[P, T] = wrapper
        return chosen

    def _finish(self, region: Region, regions: "deque[Region]") -> None:
        waited = self._waited()
        region.end(time.monotonic(), waited)
        regions.append(region)

    def _begun(self, name: str) -> Region:
        if self._registry is not process.REGISTRY:
            self._registry = process.REGISTRY
            self._sources = self._registry.sources(*self._asked)
            self._gpus = [source for source in self._sources if source.is_gpu]
        waited = self._waited()
        return Region(self._sources, name, time.monotonic(), waited)

    def _waited(self) -> str:
        """Wait for the GPUs; why that was not possible, or empty."""
        chosen = self._synchronization
        if not self._gpus:
            return ""
        if chosen is False:
            return "synchronize=False"
        if not isinstance(chosen, bool):
            wait: Any = getattr(chosen, "synchronize", None) or chosen
            wait()
            return ""
        for source in self._gpus:
            reason = (
                f"CUDA's number of {source.device} is not known: name it cuda:N, or give synchronize=stream"
                if source.cuda is None
                else synchronize(source.cuda)
            )
            if reason:
                return reason
        return ""


def energy(
    scope: str = "gpu",
    *,
    device: str | int | Sequence[str | int] | None = None,
    sensor: str | None = None,
    synchronize: Synchronization = True,
) -> EnergyMeter:
    """Measure the energy of regions of this program.

    ``with tuner.energy() as region: ...``, ``@tuner.energy()``, or windows: ``meter = tuner.energy()``,
    ``meter.begin("epoch")``, ``meter.end("epoch")``. The first call for a device opens its sensors.

    Args:
        scope: ``gpu``, ``cpu``, ``package`` or ``dram``, joined by ``+``; ``cpu`` is packages and DRAM.
        device: ``cuda:N`` or N, a UUID, ``sim:h200``, or several of them; this machine's first GPU if not
            given.
        sensor: the GPU's reading by its name; the best that answers if not given.
        synchronize: what is waited for at both ends: the GPU, through CuPy or torch where the program has
            imported them (True); a stream, or a function to call; or nothing (False).

    Returns:
        The meter, which may be used again and by several threads.

    Raises:
        InputError: scope, device or sensor is not there, or nothing that can be waited for.
        DeviceUnavailableError: there is no such GPU.
        SensorUnavailableError: no power reading answers.
    """
    if not isinstance(scope, str):
        raise InputError(f"scope={scope!r}: write text such as 'gpu+cpu'; a decorator is @tuner.energy()")
    if not (isinstance(synchronize, bool) or callable(getattr(synchronize, "synchronize", synchronize))):
        raise InputError(f"synchronize={synchronize!r}: give True, False, a stream, or a function to call")
    if device is None or isinstance(device, (str, int)):
        device = [_spec(device)]
    devices = list(dict.fromkeys(map(_spec, device)))
    if not devices:
        raise InputError("device=[]: name at least one GPU, or leave it out; scope='cpu' counts no GPU")
    try:
        return EnergyMeter(scope, devices, sensor, synchronize)
    except InputError as error:  # what is shared with commands names their options
        raise type(error)(_OPTION.sub(r"\1=", str(error))) from error


def _spec(device: str | int | None) -> str:
    """The device as text; empty for this machine's first GPU."""
    return "" if device is None else f"cuda:{device}" if isinstance(device, int) else device
