"""Live readings of a GPU, and the choice of what is read."""

import math
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass

from tuner.devices.cuda.probe import first_visible, visible, who
from tuner.devices.sensors import (
    PIPE,
    choices,
    gpu_readings,
    host_samplers,
    is_advised_against,
    is_jetson,
)
from tuner.joules.traces import pause_s
from tuner.model.errors import (
    ChildError,
    ClockError,
    DeviceUnavailableError,
    InputError,
    PowerError,
    SensorUnavailableError,
    TunerError,
    UnknownNameError,
)
from tuner.model.jobs import DeviceIdentity
from tuner.model.objective import GPU, scope_parts
from tuner.power.base import ClockControl, ClockReading, PowerSampler, Reading, SensorInfo
from tuner.power.clocks.control import open_control
from tuner.power.nvml.library import Thermometer, health
from tuner.power.sensors import pipe

REPLAY = "replay:"
"""Prefix of the name of a recorded trace, given in place of a sensor's name."""

_CUDA = re.compile(r"cuda(?::([0-9]{1,4}))?")  # a C int wraps: cuda:4294967296 would be cuda:0
# with one of NVML's prefixes, or bare: NVML says whether it knows it
_UUID = re.compile(r"(?:GPU-|MIG-).+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass(frozen=True)
class Gpu:
    """A GPU whose power is to be read; nothing of it is opened.

    Attributes:
        gpu: what sensors and clocks know it by: UUID, or NVML's index.
        uuid: its UUID; empty where nobody tells.
        driver: version of the driver; empty where nobody tells.
        name: for people.
    """

    gpu: str | int
    uuid: str
    driver: str
    name: str


RECORDED = Gpu("", "", "", "a recorded trace")
"""Stands for the GPU where only recorded traces are read."""


def gpu_for(spec: str | None, sensors: Sequence[str], needs: str, scope: str = GPU) -> Gpu:
    """The GPU that sensors are to be read of.

    None is looked for where all sensors are recorded traces, or where the scope is of the host alone.

    Raises:
        InputError: a device or sensor is named where none is looked for, or the scope is wrong; else see
            ``find_gpu``.
        DeviceUnavailableError: see ``find_gpu``.
    """
    parts = scope_parts(scope)
    if GPU not in parts:
        if spec is not None or sensors:
            raise InputError(f"--scope {scope}: no GPU is read; leave --device and --sensor out, or add gpu+")
        return THIS_HOST
    if len(parts) > 1 and any(sensor.startswith(REPLAY) for sensor in sensors):
        raise InputError(f"--scope {scope}: a recorded trace has no host; leave --scope out")
    if sensors and all(sensor.startswith(REPLAY) for sensor in sensors):
        if spec is not None:
            raise InputError(f"--device {spec}: a recorded trace is of no device here; leave --device out")
        return RECORDED
    return find_gpu(spec, needs)


def find_gpu(spec: str | None, needs: str, also: str = "") -> Gpu:
    """The GPU that a user means; without a wish what CUDA calls ``cuda:0``.

    Where CUDA cannot be asked, ``CUDA_VISIBLE_DEVICES`` says which that is; without it NVML's first is taken.

    Args:
        spec: ``cuda:N``, a UUID, NVML's index, or None.
        needs: for whom it is looked for, e.g. ``tuner power trace``, for the message about simulated devices.
        also: what else the caller takes for a device, for the message about an unknown one.

    Raises:
        UnknownNameError: nothing that names a GPU.
        InputError: a simulated device, which has no sensor outside its own run.
        DeviceUnavailableError: CUDA has no such GPU, or shows none.
    """
    if spec is not None and spec.startswith("sim:"):
        raise InputError(
            f"--device {spec}: {needs} needs a real sensor: a simulated device has its own, virtual time, in"
            " which no command runs; name a GPU, or --sensor replay:FILE"
        )
    cuda = _CUDA.fullmatch("cuda:0" if spec is None else spec)
    if spec is not None and not (cuda or _is_number(spec) or _UUID.fullmatch(spec)):
        *others, last = ["cuda:N", "a GPU's UUID", "NVML's index", *([also] if also else [])]
        raise UnknownNameError(f"--device {spec}: choose {', '.join(others)}, or {last}")
    uuid, driver = "", ""
    if cuda:
        try:
            uuid, driver = who(int(cuda[1] or 0))
        except (DeviceUnavailableError, ChildError):
            if spec is not None:
                raise
            gpus = _nvml_gpus()
            uuid = first_visible(gpus, os.environ) if gpus else ""
    gpu: str | int = uuid or (0 if spec is None else int(spec) if _is_number(spec) else spec)
    try:
        facts = health(gpu)
    except SensorUnavailableError:  # a Jetson, or nothing: opening its readings says what is missing
        return Gpu(gpu, uuid, driver, "this board" if is_jetson() else "this machine")
    return Gpu(facts.uuid, facts.uuid, facts.driver or driver, facts.name)


def others_in_sight(gpu: Gpu) -> int:
    """GPUs beside one that a program started from here may compute on, by ``CUDA_VISIBLE_DEVICES``."""
    gpus = _nvml_gpus()
    try:
        seen = visible(gpus, os.environ) if gpus else []
        return sum(uuid != gpu.uuid and not uuid.startswith("MIG-") for uuid in seen)
    except DeviceUnavailableError:  # the program sees none, and will say so
        return 0


def _nvml_gpus() -> list[tuple[str, str]]:
    """UUID and name of each GPU that NVML knows, as it counts them; none on a Jetson, or without a driver."""
    gpus: list[tuple[str, str]] = []
    if is_jetson():
        return gpus
    with suppress(SensorUnavailableError):
        while True:
            facts = health(len(gpus))
            gpus.append((facts.uuid, facts.name))
    return gpus


def _is_number(spec: str) -> bool:
    return re.fullmatch("[0-9]{1,4}", spec) is not None


def readings(gpu: Gpu, interval_s: float = 0.0) -> Iterator[Reading]:
    """Every power reading that may be there, best first; ``interval_s`` as of ``gpu_readings``."""
    identity = DeviceIdentity("", gpu.name, str(gpu.gpu), gpu.driver, "", modelled=False)
    return gpu_readings(identity, time.monotonic, interval_s=interval_s)


THIS_HOST = Gpu("", "", "", "this host")
"""Stands for the GPU where only what a host has beside its GPUs is read."""


@contextmanager
def opened_host(scope: str) -> Iterator[tuple[PowerSampler, ...]]:
    """Samplers of the host's parts of a scope, closed at the end; none where the scope is the GPU.

    Raises:
        InputError: see ``sensors.host_samplers``.
    """
    with ExitStack() as stack:
        yield tuple(
            stack.enter_context(closing(sampler)) for sampler in host_samplers(scope, scope_parts(scope))
        )


@contextmanager
def opened_reference(gpu: Gpu, name: str | None) -> Iterator[tuple[PowerSampler, ...]]:
    """The sampler of the reading that another is held against, closed at the end; none without a name.

    Raises:
        UnknownNameError: no reading has this name.
        InputError: it does not answer.
    """
    if name is None:
        yield ()
        return
    (reading,) = _named(readings(gpu), [name], "--against")
    try:
        sampler = reading.open()
    except SensorUnavailableError as error:
        raise InputError(f"--against {error}") from error
    with closing(sampler):
        yield (sampler,)


@contextmanager
def opened(
    gpu: Gpu, names: Sequence[str], *, rails: bool = False, interval_s: float = 0.0
) -> Iterator[tuple[PowerSampler, ...]]:
    """Samplers of the readings asked for, closed at the end.

    Without a wish these are the best reading of power that answers, and the energy counter beside it.

    Args:
        gpu: whose readings.
        names: of readings; ``replay:FILE`` is a recorded trace.
        rails: take the other rails of the same sensor too, where it has several.
        interval_s: wanted time between samples of a counter, which costs to be read; 0 for all.

    Raises:
        UnknownNameError: no reading has such a name; the message lists those that answer.
        SensorUnavailableError: none answers.
        InputError: one that was asked for does not answer, or a file is no trace.
    """
    if gpu is THIS_HOST:
        yield ()
        return
    available = readings(gpu, interval_s)
    with ExitStack() as stack:
        if not names:
            yield _best(available, gpu.name, stack, rails=rails)
            return
        named = _named(available, names)
        try:
            samplers = tuple(stack.enter_context(closing(reading.open())) for reading in named)
        except SensorUnavailableError as error:
            raise InputError(f"--sensor {error}") from error
        yield samplers


def _named(available: Iterator[Reading], names: Sequence[str], option: str = "--sensor") -> list[Reading]:
    named: dict[str, Reading] = {}
    for name in names:
        if name in {REPLAY, PIPE}:
            raise InputError(f"{option} {name} names no file: write {name}FILE")
        if name.startswith(REPLAY):
            from tuner.power.sensors import recorded  # noqa: PLC0415 - few traces are recorded ones

            named[name] = recorded.reading(name.removeprefix(REPLAY))
        elif name.startswith(PIPE):
            named[name] = pipe.reading(name.removeprefix(PIPE))
    if len(named) < len(set(names)):
        named |= {reading.name: reading for reading in available}
    for name in names:
        if name not in named:
            raise UnknownNameError(f"{option} {name}: no such power reading; {choices(named.values())}")
    return [named[name] for name in dict.fromkeys(names)]


def _best(
    available: Iterator[Reading], name: str, stack: ExitStack, *, rails: bool
) -> tuple[PowerSampler, ...]:
    samplers: list[PowerSampler] = []
    reasons = []
    sensor = ""  # that the best reading of power belongs to
    for reading in available:
        if sensor and not (rails and ":" in reading.name):
            break
        if sensor and reading.name.partition(":")[0] != sensor:
            break
        try:
            sampler = reading.open()
        except SensorUnavailableError as error:
            reasons.append(str(error))
            continue
        if is_advised_against(sampler.info):
            sampler.close()
            reasons.append(f"{reading.name} misreads power, as its calibration found")
            continue
        samplers.append(stack.enter_context(closing(sampler)))
        if sampler.info.kind != "counter":
            sensor = reading.name.partition(":")[0]
    if not samplers:
        raise SensorUnavailableError(f"no power reading of {name} can be used: {'; '.join(reasons)}")
    return tuple(samplers)


@contextmanager
def readable_clocks(gpu: Gpu) -> Iterator[ClockControl | None]:
    """The clock control of a GPU, for reading; None where there is none."""
    if gpu in (RECORDED, THIS_HOST):
        yield None
        return
    try:
        control = open_control(gpu.gpu)
    except (TunerError, ImportError):  # an administrator's file that is wrong, too: only setting needs it
        yield None
        return
    try:
        yield control
    finally:
        control.close()


# --- Live readings: power, joules so far, and the state of the GPU.


@dataclass(frozen=True)
class ReadingRow:
    """One reading at one time.

    Attributes:
        info: the reading.
        watts: mean corrected power since the last row; None where no sample came since.
        shown_w: what the sensor showed last; None for a counter.
        mean_w: mean corrected power since the start.
        joules: energy since the start.
        joules_sigma: its standard uncertainty (noise and timing).
        seconds: how long that is.
        failure: why there will be no more; empty while there may be.
    """

    info: SensorInfo
    watts: float | None
    shown_w: float | None
    mean_w: float | None
    joules: float | None
    joules_sigma: float | None
    seconds: float
    failure: str

    @property
    def ended(self) -> bool:
        """True for a recorded trace at its end, which is no fault."""
        return bool(self.failure) and self.info.name.startswith(REPLAY)


@dataclass(frozen=True)
class PowerSnapshot:
    """All readings at one time, and the state of the GPU.

    Attributes:
        time_s: since the start.
        rows: the readings.
        clock: clock and throttle reasons now.
        temperature_c: of the GPU's chip; None where nobody tells.
        throttled: all throttle reasons that were seen since the start.
    """

    time_s: float
    rows: tuple[ReadingRow, ...]
    clock: ClockReading
    temperature_c: float | None
    throttled: tuple[str, ...]


class WatchedReading:
    """A sampler that is polled when it is due, and its energy.

    Args:
        sampler: closed by whoever opened it.
        now: the clock of the samples, in seconds.
    """

    def __init__(self, sampler: PowerSampler, now: Callable[[], float] = time.monotonic) -> None:
        from tuner.power.energy.meter import RunningEnergy  # noqa: PLC0415 - who holds a clock watches none

        self._sampler = sampler
        self._now = now
        self._energy = RunningEnergy()
        self._told = (0.0, 0.0)  # seconds and joules of the last row
        self._failure = ""
        self._begin_s = now()
        self.due_s = 0.0

    def poll(self, *, at_once: bool = False) -> None:
        """Take in what is there, if it is due or wanted at once; what is older than the start is left out."""
        if self._failure or self._now() < (self._sampler.due_s if at_once else self.due_s):
            return
        try:
            fresh = self._sampler.poll()
        except PowerError as error:
            self._failure, self.due_s = _reason(error, self._sampler.info.name), math.inf
            return
        self._energy.add(sample for sample in fresh if sample.time_s >= self._begin_s)
        info = self._sampler.info
        pause = info.poll_interval_s if info.kind == "counter" else pause_s(info)
        self.due_s = max(self._now() + pause, self._sampler.due_s)

    @property
    def over(self) -> bool:
        """True when there will be no more."""
        return bool(self._failure)

    def row(self) -> ReadingRow:
        """The reading as it stands."""
        info, energy = self._sampler.info, self._energy
        total, seconds = energy.joules(info), energy.duration_s
        last_s, last_j = self._told
        watts = None
        if total is not None and seconds > last_s:
            watts = (total[0] - last_j) / (seconds - last_s)
            self._told = seconds, total[0]
        return ReadingRow(
            info=info,
            watts=watts,
            shown_w=energy.last.value if energy.last and info.kind != "counter" else None,
            mean_w=None if total is None else total[0] / seconds,
            joules=None if total is None else total[0],
            joules_sigma=None if total is None else total[1],
            seconds=seconds,
            failure=self._failure,
        )


def snapshots(
    watched: Sequence[WatchedReading],
    clocks: ClockControl | None,
    thermometer: Thermometer | None,
    *,
    pause: Callable[[float], bool],
    interval_s: float,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[PowerSnapshot]:
    """A snapshot every interval, until a pause is told to be the last or no reading is left.

    Args:
        watched: the readings.
        clocks: read with every snapshot; None for no clock.
        thermometer: likewise; None for no temperature.
        pause: waits so many seconds; False when it was interrupted.
        interval_s: time between snapshots.
        now: the clock of the samples.
    """
    begin_s = next_s = now()
    throttled: set[str] = set()
    goes_on = True
    while goes_on:
        next_s += interval_s
        while goes_on and _left(watched) and now() < next_s:
            due_s = min((reading.due_s for reading in watched), default=math.inf)
            goes_on = pause(max(0.0, min(due_s, next_s) - now()))
            for reading in watched:
                reading.poll()
        next_s = max(next_s, now() - interval_s)  # after a stop, no burst of rows
        for reading in watched:
            reading.poll(at_once=True)
        rows = tuple(reading.row() for reading in watched)
        clock = present_clock(clocks)
        throttled |= set(clock.throttle_reasons)
        celsius = thermometer.read() if thermometer is not None else None
        yield PowerSnapshot(now() - begin_s, rows, clock, celsius, tuple(sorted(throttled)))
        goes_on = goes_on and _left(watched)


def _reason(error: PowerError, name: str) -> str:
    """An error's words without the name of the reading (and its GPU), which rows give anyway."""
    head, _, reason = str(error).partition(": ")
    return reason if reason and head.startswith(name) else str(error)


def _left(watched: Sequence[WatchedReading]) -> bool:
    return not all(reading.over for reading in watched)


def present_clock(clocks: ClockControl | None) -> ClockReading:
    """The clock now; nothing of it where there is no control, or the GPU is lost."""
    try:
        return clocks.read() if clocks is not None else ClockReading(None)
    except ClockError:  # lost; the readings say so themselves
        return ClockReading(None)
