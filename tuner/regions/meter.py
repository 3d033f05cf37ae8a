"""``tuner.energy``: a context manager, a decorator, and windows with a name."""

import functools
import inspect
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar

from tuner.devices.cuda.synchronization import synchronize
from tuner.joules.regions import Region
from tuner.model.errors import InputError, UnknownNameError, suggestion
from tuner.regions import sources as process

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
        place = max(i for i, (meter, _) in enumerate(entered) if meter is self)
        _ENTERED.set((*entered[:place], *entered[place + 1 :]))
        entered[place][1].end(end_s, waited)

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
