"""``tuner.energy``: a context manager, a decorator, windows with a name, and a callback of trainers."""

import functools
import inspect
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload
from weakref import ref

import numpy as np

from tuner.devices.cuda.direct import synchronize
from tuner.joules import recording as process
from tuner.joules.regions import Region, RegionEnergy, RegionLog, is_number, region_log
from tuner.model.errors import InputError, UnknownNameError, suggestion
from tuner.model.units import si
from tuner.power.nvml.library import Thermometer

if TYPE_CHECKING:
    from tuner.joules.regions import Destination


_STARTS = 5  # times that ``steady`` tries, of which each begins a fifth later than the one before
_FEW = 5  # steps of power that tell a trend
_FLAT, _FLAT_C = 0.002, 1.0  # of the power, and degrees: a thermometer shows whole ones

P = ParamSpec("P")
T = TypeVar("T")

KEPT = 1000
"""Calls of a decorated function whose regions are kept, the latest."""

_OPTION = re.compile(r"--(device|scope|sensor) ")
_ENTERED: ContextVar[tuple["ref[Region]", ...]] = ContextVar("tuner_energy_regions", default=())


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
        log: told of regions that have ended; None for nobody.
    """

    def __init__(
        self,
        scope: str,
        devices: Sequence[str],
        sensor: str | None,
        synchronization: Synchronization,
        log: RegionLog | None = None,
    ) -> None:
        self._asked = scope, tuple(devices), sensor
        self._synchronization = synchronization
        self._lock = threading.Lock()
        self._named: dict[str, Region] = {}
        self._name = ""
        self._entered: dict[int, Region] = {}
        self._log = log
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
        region = self._taken(name, "end")
        self._finish(region)
        return region

    def cancel(self, name: str) -> None:
        """Forget an open window.

        Raises:
            UnknownNameError: no window of that name is open.
        """
        self._taken(name, "cancel").cancel()

    def restart(self, name: str) -> Region:
        """Forget what an open window has spent, and begin it again.

        Raises:
            UnknownNameError: no window of that name is open.
        """
        self._taken(name, "restart").cancel()
        return self.begin(name)

    def _taken(self, name: str, method: str) -> Region:
        """The open window of a name, which it then is not any more."""
        with self._lock:
            region = self._named.pop(name, None)
            others = tuple(self._named)
        if region is None:
            names = ", ".join(map(repr, others)) or "none"
            raise UnknownNameError(
                f"{method}({name!r}): no such window is open; open are {names}{suggestion(name, others)}"
            )
        return region

    def flush(self) -> None:
        """Wait until the log has all regions that have ended."""
        if self._log is not None:
            self._log.flush()

    def __enter__(self) -> Region:
        region = self._begun(self._name)
        entered = _ENTERED.get()
        while entered and entered[-1]() is None:
            entered = entered[:-1]
        _ENTERED.set((*entered, ref(region)))
        self._entered[id(region)] = region
        return region

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        region = self._left()
        del self._entered[id(region)]
        self._finish(region, kind.__name__ if kind else "")

    def _left(self) -> Region:
        """The region whose block is left: the latest of this context, or the only one that is entered."""
        entered = _ENTERED.get()
        for index in range(len(entered) - 1, -1, -1):
            region = entered[index]()
            if region is not None and id(region) in self._entered:
                _ENTERED.set((*entered[:index], *entered[index + 1 :]))
                return region
        if len(self._entered) == 1:
            return next(iter(self._entered.values()))
        raise InputError(
            "a block of this meter is left in another context (a generator's, or another thread) than it was"
            f" entered in, and {len(self._entered)} are open: write `with meter('a name') as region` for each"
        )

    @overload
    def __call__(self, function: str) -> "EnergyMeter": ...

    @overload
    def __call__(self, function: Callable[P, T]) -> Callable[P, T]: ...

    def __call__(self, function: str | Callable[P, T]) -> "EnergyMeter | Callable[P, T]":
        """Measure each call of a function; its attribute ``regions`` holds the latest thousand.

        With a name in place of a function this is the meter whose blocks and functions have that name:
        ``with meter("request") as region: ...``.
        """
        if isinstance(function, str):
            named = EnergyMeter.__new__(EnergyMeter)
            named.__dict__.update(self.__dict__, _name=function, _entered={})
            return named
        regions: deque[Region] = deque(maxlen=KEPT)
        if not callable(function):
            raise InputError(f"{function!r} is no function: write `with meter:` or @meter above a function")
        name = getattr(function, "__qualname__", "")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InputError(
                f"{name} is a generator, whose call returns at once: measure the loop that runs it"
            )
        name = self._name or name

        @contextmanager
        def call() -> Iterator[None]:
            region, failure = self._begun(name), ""
            try:
                yield
            except BaseException as error:
                failure = type(error).__name__
                raise
            finally:
                self._finish(region, failure)
                regions.append(region)

        @functools.wraps(function)
        def measured(*args: P.args, **kwargs: P.kwargs) -> T:
            with call():
                return function(*args, **kwargs)

        @functools.wraps(function)
        async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:  # noqa: ANN401 - what the function returns
            with call():
                return await function(*args, **kwargs)  # type: ignore[misc]  # it is a coroutine function

        wrapper: Any = awaited if inspect.iscoroutinefunction(function) else measured
        wrapper.regions = regions
        chosen: Callable[P, T] = wrapper
        return chosen

    def steady(
        self, function: Callable[[], object], *, seconds: float = 10.0, limit_s: float = 120.0
    ) -> Region:
        """Call a function again and again until temperature and power are flat.

        Args:
            function: called without arguments, back to back.
            seconds: how long they have to be flat: power changes by 0.2 % at most, or by no more than its
                noise, and no GPU by more than 1 degree.
            limit_s: after so long the latest of such times counts, and a note says ``not-flat``.

        Returns:
            The region of that time; ``count`` has the calls.

        Raises:
            InputError: that is no function, or no time.
            PowerError: a sensor showed nothing.
        """
        if inspect.iscoroutinefunction(function) or not callable(function):
            raise InputError(f"steady({function!r}): give a function to call, no coroutine function")
        if not (is_number(seconds) and is_number(limit_s) and 0 < seconds <= limit_s):
            raise InputError(
                f"seconds={seconds!r}, limit_s={limit_s!r}: write seconds above 0, and a limit of as many"
            )
        with ExitStack() as stack:
            thermometers = [stack.enter_context(closing(Thermometer(gpu.gpu))) for gpu in self._gpus]
            return self._steady(function, thermometers, seconds, limit_s)

    def _steady(
        self,
        function: Callable[[], object],
        thermometers: "Sequence[Thermometer]",
        seconds: float,
        limit_s: float,
    ) -> Region:
        """As ``steady``: regions that begin one after another, and overlap, until one of them is flat."""
        began: deque[tuple[Region, int, list[float | None]]] = deque()
        ended: deque[tuple[Region, float]] = deque()
        name = self._name or getattr(function, "__qualname__", "")
        stop_s, calls, next_s = time.monotonic() + limit_s, 0, -math.inf
        try:
            while True:
                if time.monotonic() >= next_s:
                    celsius = [thermometer.read() for thermometer in thermometers]
                    began.append((self._begun(name), calls, celsius))
                    next_s = time.monotonic() + seconds / _STARTS
                function()
                calls += 1
                if began[0][0].seconds >= seconds:
                    region, before, cold = began.popleft()
                    region.count = calls - before
                    waited = self._waited()
                    region.end(time.monotonic(), waited)
                    ended.append((region, _warmed(cold, [meter.read() for meter in thermometers])))
                while ended and (ended[0][0].ready or time.monotonic() >= stop_s):
                    region, warmed = ended.popleft()
                    change = _change(region.result(), warmed)
                    if not change or (time.monotonic() >= stop_s and not ended):
                        if change:
                            region.add_note(f"not-flat: {change} within {si(region.seconds, 's')}")
                        if self._log is not None:
                            self._log.add(region)
                        return region
        finally:
            for region, _, _ in began:
                region.cancel()

    def _finish(self, region: Region, failure: str = "") -> None:
        """End a region, and tell the log of it, unless it was cancelled; with the error it ended with."""
        if region.cancelled:
            return
        if failure:
            region.add_note(f"failed: it ended with {failure}")
        waited = self._waited()
        region.end(time.monotonic(), waited)
        if self._log is not None:
            self._log.add(region)

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
            try:
                wait()
            except Exception as error:  # noqa: BLE001 - the program's; its region must end all the same
                return f"waiting failed: {error}"
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


def _warmed(before: Sequence[float | None], after: Sequence[float | None]) -> float:
    """Degrees that the GPU changed most by; 0 where nobody tells."""
    pairs = zip(before, after, strict=True)
    return max((b - a for a, b in pairs if a is not None and b is not None), key=abs, default=0.0)


def _change(energy: RegionEnergy, warmed: float) -> str:
    """Change of power or temperature in a region; empty where both were flat. Beside GPUs no host counts."""
    for part in [part for part in energy.parts if part.device != process.HOST] or energy.parts:
        seen = np.isfinite(part.watts)
        times_s, watts = ((part.times_s[1:] + part.times_s[:-1]) / 2.0)[seen], part.watts[seen]
        if len(watts) < _FEW:
            return f"{part.sensor} shows too few samples to tell"
        apart_s = times_s - times_s.mean()
        slope = float(apart_s @ watts / (apart_s @ apart_s))
        left_w = watts - watts.mean() - slope * apart_s
        sigma = math.sqrt(float(left_w @ left_w / (apart_s @ apart_s)) / (len(watts) - 2))
        change_w, mean_w = slope * energy.seconds, float(watts.mean())
        if abs(change_w) > max(_FLAT * mean_w, 2.0 * sigma * energy.seconds):
            return f"power of {part.device} changed by {change_w / mean_w:+.2%}"
    return f"a GPU's temperature changed by {warmed:+.0f} degrees" if abs(warmed) > _FLAT_C else ""


def energy(
    scope: str = "gpu",
    *,
    device: str | int | Sequence[str | int] | None = None,
    sensor: str | None = None,
    synchronize: Synchronization = True,
    log: "Destination | Sequence[Destination] | None" = None,
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
        log: a CSV file that gets a row for each part of a region that has ended, a function that is called
            with its ``RegionEnergy`` (``tuner.joules.prometheus()`` is one), or several of them.

    Returns:
        The meter, which may be used again and by several threads.

    Raises:
        InputError: scope, device or sensor is not there, nothing that can be waited for, or no log.
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
        return EnergyMeter(scope, devices, sensor, synchronize, region_log(log))
    except InputError as error:  # what is shared with commands names their options
        raise type(error)(_OPTION.sub(r"\1=", str(error))) from error


def _spec(device: str | int | None) -> str:
    """The device as text; empty for this machine's first GPU."""
    return "" if device is None else f"cuda:{device}" if isinstance(device, int) else device


# --- Joules of a training, as a callback of Hugging Face's ``Trainer`` and of Lightning's.

LEAST_S = 1.0
"""Of a region of steps: sensors resolve it, and the GPU is waited for no more often."""


class TrainingCallback:
    """Callback that measures a training; neither library is imported, and it takes the events of both.

    Hugging Face: ``Trainer(..., callbacks=[TrainingCallback(tuner.energy())])``. Lightning's trainer wants a
    class of its own: ``class Joules(TrainingCallback, lightning.Callback): pass``.

    Steps are measured in regions of a second
    or more. One in which the trainer evaluates or saves is cancelled, so that they hold steps alone; the
    region of the training holds everything.

    Args:
        meter: measures, ``tuner.energy(device=local_rank)`` where each GPU has a process; its log is told of
            the regions ``train`` and ``steps``.

    Attributes:
        train: region of the latest training; its ``count`` has the steps. None before the first.
        steps: the latest thousand regions of steps; ``each_j`` of one is joules per step.
    """

    def __init__(self, meter: EnergyMeter) -> None:
        self.train: Region | None = None
        self.steps: deque[Region] = deque(maxlen=KEPT)
        self._meter = meter
        self._training = ExitStack()
        self._block = ExitStack()
        self._region: Region | None = None  # of steps, while one is open
        self._count = self._all = 0  # steps in it, and in the training

    def on_train_begin(self, *_: object, **__: object) -> None:
        """Begin to measure a training; one that an exception has ended without a word is forgotten."""
        self._abandon()
        self.steps.clear()
        self._all = 0
        self.train = self._training.enter_context(self._meter("train"))

    def on_step_begin(self, *_: object, **__: object) -> None:
        """Begin a region of steps, unless one is open."""
        if self._region is None:
            self._count = 0
            self._region = self._block.enter_context(self._meter("steps"))

    def on_step_end(self, *_: object, **__: object) -> None:
        """Count a step, and end a region that is long enough."""
        if self._region is None:
            return
        self._count += 1
        self._all += 1
        if self._region.seconds >= LEAST_S:
            region, self._region = self._region, None
            region.count = self._count
            self._block.close()
            self.steps.append(region)

    def on_prediction_step(self, *_: object, **__: object) -> None:
        """Leave a region of steps out that holds something else."""
        if self._region is not None:
            self._region.cancel()
            self._region = None
            self._block.close()

    def on_train_end(self, *_: object, **__: object) -> None:
        """End the training."""
        self.on_prediction_step()
        if self.train is not None and not self.train.ended and self._all:
            self.train.count = self._all
        self._training.close()

    def on_exception(self, *arguments: object, **_: object) -> None:
        """End the training that failed; Lightning calls it, Hugging Face's trainer does not."""
        if self.train is not None and not self.train.ended:
            self.train.add_note(f"failed: it ended with {type(arguments[-1]).__name__}")
        self.on_train_end()

    def flush(self) -> None:
        """Wait until the meter's log has all regions that have ended."""
        self._meter.flush()

    on_train_start = on_train_begin
    on_train_batch_start = on_step_begin
    on_train_batch_end = on_step_end
    on_validation_start = on_save = on_save_checkpoint = on_prediction_step

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Take every other event, and do nothing."""
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __str__(self) -> str:
        return "no training yet" if self.train is None else str(self.train)

    def _abandon(self) -> None:
        self.on_prediction_step()
        if self.train is not None and not self.train.ended and not self.train.cancelled:
            self.train.cancel()
        self._training.close()


def _nothing(*_: Any, **__: Any) -> None:  # noqa: ANN401 - whatever an event has
    """Do nothing."""
