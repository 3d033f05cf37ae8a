"""The power meter, the clock control and the calibrations of a device; what energy is counted of."""

import functools
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tuner.devices.base import Device
from tuner.devices.kinds import replayed, simulated
from tuner.model import registry
from tuner.model.errors import (
    ClockError,
    InputError,
    PowerError,
    SensorUnavailableError,
    StoreError,
    UnknownNameError,
)
from tuner.model.jobs import DeviceIdentity
from tuner.model.objective import ABBREVIATED, GPU, HOST, scope_parts
from tuner.power.base import (
    ClockControl,
    Meter,
    PowerLimitControl,
    PowerSampler,
    Reading,
    Response,
    Sample,
    SensorInfo,
)
from tuner.system.user_folders import user_folder

# --- Readings of a host beside its GPUs.

_SOURCES = ("powercap", "hwmon")
_GRACE = "grace"  # a processor with its memory: what package and DRAM are of other hosts


def is_of_host(info: SensorInfo) -> bool:
    """True for a reading of what the host has beside its GPUs."""
    return info.name.startswith(tuple(f"{name}:" for name in _SOURCES))


def host_readings(now: Callable[[], float] = time.monotonic) -> list[Reading]:
    """The energy readings of this host beside its GPUs; each is found by opening it."""
    return [
        reading
        for name in _SOURCES
        for reading in registry.load("readings", name)(0, responses=lambda _: None, now=now)
    ]


def host_samplers(
    scope: str, parts: Sequence[str], now: Callable[[], float] = time.monotonic
) -> Iterator[PowerSampler]:
    """Open the samplers of the host's parts of a scope; the caller closes them.

    Args:
        scope: as the user wrote it, for messages.
        parts: of the scope, see ``scope_parts``; the GPU's is passed over.
        now: clock of the samples, in seconds.

    Raises:
        InputError: the host does not count a part, or this user may not read it.
    """
    host_parts = [part for part in parts if part != GPU]
    if not host_parts:
        return
    readings = host_readings(now)
    by_name = {reading.name.partition(":")[2]: reading for reading in readings}
    for part in host_parts:
        names = ABBREVIATED.get(part, (part,))
        if part in ABBREVIATED and HOST[0] not in by_name and _GRACE in by_name:
            names = (_GRACE,)
        for name in names:
            if name == "dram" and part in ABBREVIATED and name not in by_name:
                continue  # counted with the package, or by nobody
            yield _opened(scope, name, by_name, readings)


def _opened(scope: str, name: str, by_name: dict[str, Reading], readings: Sequence[Reading]) -> PowerSampler:
    there = ", ".join(sorted(word for word in by_name if word))
    reading = by_name.get(name) or (None if there else readings[0])
    if reading is None:
        raise InputError(f"--scope {scope}: this host does not count {name}; it counts {there}")
    try:
        return reading.open()
    except SensorUnavailableError as error:
        raise InputError(f"--scope {scope}: {error}; --scope gpu counts the GPU alone") from error


# --- Readings with their calibrations, meters, and the control of clocks and power limits.

SYSTEM_FILE = Path("/var/lib/tuner/sensors.json")  # an administrator's, for all users
_ON_A_CARD = ("nvml", "ina3221", "tegrastats", "jtop")
# NVML of an Orin initialises, but answers no power query; and the rails are what Jetsons are measured by.
_ON_A_JETSON = ("ina3221", "tegrastats", "jtop", "nvml")
PIPE = "pipe:"
"""Prefix of the name of a reading whose lines another program writes."""

_RING = "-ring"  # how the names of rings end, a GPU's and a simulated one's
_REPLAY = "replay:"  # what the name of a recorded trace begins with
_LOG = logging.getLogger(__name__)


def user_file() -> Path:
    """The file that ``tuner power calibrate`` writes."""
    return user_folder("state") / "sensors.json"


def calibrated(identity: DeviceIdentity, *files: Path) -> Callable[[str], Response | None]:
    """The calibrated response of a device's readings by their name; None where there is none.

    Args:
        identity: of the device; a calibration is that of one GPU under one driver.
        files: where calibrations are kept, the first that knows a reading counts; the user's and then the
            system's if none are given.

    Raises:
        StoreError: a file is damaged; it is named.
    """
    from tuner.power.response import calibrations  # noqa: PLC0415 - runs for time read no power

    responses: dict[str, Response] = {}
    for path in reversed(files or (user_file(), SYSTEM_FILE)):
        responses |= calibrations.load(path, identity.uuid, identity.driver)
    return responses.get


def restore_stale_clocks() -> list[str]:
    """Give back what a killed tuner left locked on this machine; troubles are logged, never raised.

    Only journals of this program are acted on: without one, nothing is set.

    Returns:
        GPUs whose clocks could not be given back, as their control knows them.
    """
    from tuner.power.clocks import control  # noqa: PLC0415 - no model of a GPU needs it

    return [outcome.gpu for outcome in control.restore_stale() if outcome.state == "failed"]


def open_clocks(device: Device) -> tuple[ClockControl | None, str]:
    """Clock control of a device, which sets nothing by being opened; or None and the reason."""
    if (model := simulated(device)) is not None:
        from tuner.devices.simulated.device import SimulatedClocks  # noqa: PLC0415 - not for a GPU

        return SimulatedClocks(model), ""
    if (replay := replayed(device)) is not None:
        from tuner.devices.replay import RecordedClocks  # noqa: PLC0415 - most runs replay nothing

        if replay.space.clocks_mhz:
            return RecordedClocks(replay), ""
        return None, f"{replay.spec}: all its trials were recorded with clocks as found"
    try:
        from tuner.power.clocks import control  # noqa: PLC0415 - same

        return control.open_control(device.identity.uuid), ""
    except (ClockError, SensorUnavailableError) as error:
        return None, str(error)


def open_power_limits(device: Device) -> tuple[PowerLimitControl | None, str]:
    """Control of a device's power limit, which sets nothing by being opened; or None and the reason."""
    if (replay := replayed(device)) is not None:
        from tuner.devices.replay import RecordedPowerLimits  # noqa: PLC0415 - most runs replay nothing

        if replay.space.power_limits_w:
            return RecordedPowerLimits(replay), ""
        return None, f"{replay.spec}: all its trials were recorded with power limits as found"
    try:
        if (model := simulated(device)) is not None:
            from tuner.devices.simulated.device import SimulatedPowerLimits  # noqa: PLC0415 - not for a GPU

            return SimulatedPowerLimits(model), ""
        from tuner.power.clocks import control  # noqa: PLC0415 - same

        return control.open_power_limits(device.identity.uuid), ""
    except ClockError as error:
        jetson = "Jetson" in device.identity.name or is_jetson()
        return None, f"{error}; a Jetson has power modes instead: sudo nvpmodel -m MODE" if jetson else str(
            error
        )


def open_meter(
    device: Device, clocks: ClockControl | None = None, sensor: str | None = None, scope: str = GPU
) -> tuple[Meter | None, str]:
    """Power meter of a device over the best reading that answers, or None and the reason.

    Args:
        device: whose power; its clock stamps the samples.
        clocks: read while recording, for the clock and throttle reasons seen in a window.
        sensor: the reading of the device to take, by its name.
        scope: what is counted, see ``scope_parts``.

    Raises:
        InputError: the reading named is none of the device's, or does not answer; or the scope has a part
            that the host does not count.
    """
    from tuner.power.energy.meter import SamplingMeter  # noqa: PLC0415 - runs for time read no power

    parts = scope_parts(scope)
    if device.identity.recorded:
        return None, "joules are those of the recording"
    if GPU not in parts:
        raise InputError(f"--scope {scope}: trials run on the GPU; add gpu+")
    if sensor is None:
        sampler, why = _first(device)
    else:
        sampler, why = open_reading(device, sensor), ""
    if sampler is None:
        return None, why
    ring = _ring_beside(device, sampler.info)
    beside = None if ring is None else SamplingMeter(ring, None, device.now_s)
    meter = SamplingMeter(sampler, clocks, device.now_s, beside=beside)
    return (meter, "") if parts == (GPU,) else (_with_host(device, meter, scope, parts), "")


def _ring_beside(device: Device, info: SensorInfo) -> PowerSampler | None:
    """The ring of samples of the power that a counter counts; None where none tells anything."""
    if info.kind != "counter":
        return None
    for reading in device_readings(device):
        if not reading.name.endswith(_RING):
            continue
        try:
            sampler = reading.open()
        except SensorUnavailableError:
            continue
        if sampler.info.scope == info.scope and not is_advised_against(sampler.info):
            return sampler
        sampler.close()
    return None


def _with_host(device: Device, meter: Meter, scope: str, parts: Sequence[str]) -> Meter:
    """A meter of the GPU, and of its host too."""
    from tuner.power.energy.meter import SamplingMeter, SummedMeter  # noqa: PLC0415 - as above

    with ExitStack() as opened:
        opened.callback(meter.close)
        if device.identity.modelled:
            raise InputError(
                f"--scope {scope}: {device.identity.name} has no host; --scope gpu counts it alone"
            )
        if meter.info.scope != GPU:
            raise InputError(
                f"--scope {scope}: {meter.info.name} sees {meter.info.scope}, more than the GPU, and the host"
                " would be counted twice; leave --scope out"
            )
        meters: list[Meter] = [meter]
        for sampler in host_samplers(scope, parts, device.now_s):
            meters.append(SamplingMeter(sampler, None, device.now_s))
            opened.callback(meters[-1].close)
        opened.pop_all()
        return SummedMeter(meters)


def open_reading(device: Device, name: str) -> PowerSampler:
    """The sampler of the reading of that name, whatever is thought of it.

    Raises:
        InputError: the device has no such reading, or it does not answer.
    """
    if name.startswith(_REPLAY):
        raise InputError(
            f"--sensor {name}: a recorded trace does not see what runs now; tuner power watch shows it"
        )
    if name.startswith(PIPE) and not device.identity.modelled:
        from tuner.power.sensors import pipe  # noqa: PLC0415 - few read power from a pipe

        try:
            return pipe.reading(name.removeprefix(PIPE)).open()
        except SensorUnavailableError as error:
            raise InputError(f"--sensor {error}") from error
    others = []
    for reading in device_readings(device):
        if reading.name == name:
            try:
                return reading.open()
            except SensorUnavailableError as error:
                raise InputError(f"--sensor {name}: {error}") from error
        others.append(reading)
    instead = choices(others) if others else f"{device.identity.name} has no power sensor"
    raise UnknownNameError(f"--sensor {name}: no such power reading; {instead}")


def choices(readings: Iterable[Reading]) -> str:
    """Return the choice of readings, in words for a message: those that answer, or each one's error."""
    names, reasons = [], []
    for reading in readings:
        try:
            reading.open().close()
        except (SensorUnavailableError, InputError) as error:  # InputError: a file that is no trace
            reasons.append(f"{reading.name}: {str(error).removeprefix(f'{reading.name}: ')}")
            continue
        names.append(reading.name)
    return f"choose from {', '.join(names)}" if names else f"none answers here: {'; '.join(reasons)}"


def gpu_readings(
    identity: DeviceIdentity, now: Callable[[], float], *, interval_s: float = 0.0
) -> Iterator[Reading]:
    """The power readings a real GPU may have, best first; sources are asked one after the other.

    Args:
        identity: of the GPU.
        now: clock of the samples, in seconds.
        interval_s: wanted time between samples of a reading that costs to be read (NVML's energy counter);
            0 for all samples.
    """
    responses = _responses(identity)
    for name in _ON_A_JETSON if is_jetson() else _ON_A_CARD:
        options = {"interval_s": interval_s} if name == "nvml" else {}
        listed = registry.load("readings", name)
        yield from listed(identity.uuid, responses=responses, now=now, **options)


def is_advised_against(info: SensorInfo) -> bool:
    """True for a reading that aliases, or does not follow the load, as a calibration of this board found."""
    return info.response.origin == "calibrated" and not info.response.averages


def is_jetson(root: Path = Path("/")) -> bool:
    """True on a Jetson board, by its device tree or the release of its system."""
    try:
        return b"nvidia,tegra" in (root / "proc/device-tree/compatible").read_bytes()
    except OSError:
        return (root / "etc/nv_tegra_release").exists()


def device_readings(device: Device) -> Iterator[Reading]:
    """The power readings a device may have, best first; each is found by opening it.

    Args:
        device: a simulated one has those of its model, a GPU those of every source that may know it.
    """
    if (model := simulated(device)) is None:
        yield from gpu_readings(device.identity, device.now_s)
        return
    from tuner.power.sensors.simulated import SimulatedSampler  # noqa: PLC0415 - GPUs do without

    responses = _responses(model.identity)
    for sensor in model.gpu.sensors:
        name = f"simulated-{sensor.name}"
        opener = functools.partial(SimulatedSampler, model, **asdict(sensor), response=responses(name))
        yield Reading(name, opener)


def _first(device: Device) -> tuple[PowerSampler | None, str]:
    """The best reading that answers and is not advised against, or why there is none."""
    reasons = []
    for reading in device_readings(device):
        try:
            sampler = reading.open()
        except SensorUnavailableError as error:
            reasons.append(str(error))
            continue
        if not is_advised_against(sampler.info):
            return sampler, ""
        sampler.close()
        reasons.append(
            f"{reading.name} misreads power, as its calibration found (--sensor {reading.name} takes it)"
        )
    name = device.identity.name
    if not reasons:
        return None, f"{name} has no power sensor"
    return None, f"no power reading of {name} can be used: {'; '.join(reasons)}"


def _responses(identity: DeviceIdentity) -> Callable[[str], Response | None]:
    """Calibrated responses of a GPU; none, with a warning, from a damaged file."""
    try:
        return calibrated(identity)
    except StoreError as error:
        _LOG.warning("readings are taken as uncalibrated: %s", error)
        return lambda _: None


# --- Surveys the power readings of a device by reading each for a moment.

_FEW = 3  # samples that have a period between them
_NAP_S = 0.002  # between two looks at all readings
_LONG_S = 0.5  # a mean over more than this answers late


@dataclass(frozen=True)
class SensorReport:
    """A power reading that was looked for.

    Attributes:
        name: of the reading.
        info: what is known of it; None where it does not answer.
        measured: True when the period in ``info`` was seen, not assumed.
        watts: mean of what it showed meanwhile, uncorrected; None where it showed too little.
        chosen: True for the one that is taken when none is named.
        why: why it is not, or does not answer; empty for the one chosen.
    """

    name: str
    info: SensorInfo | None = None
    measured: bool = False
    watts: float | None = None
    chosen: bool = False
    why: str = ""


def survey(
    readings: Iterable[Reading],
    *,
    seconds: float,
    now: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
    choose: bool = True,
) -> list[SensorReport]:
    """Open every reading, look at all of them for a while, and say which is to be taken.

    Args:
        readings: best first.
        seconds: how long.
        now: clock of the samples, in seconds.
        pause: waits for so many seconds of that clock.
        choose: False for readings of the host, which a scope adds to the one that is taken.
    """
    reports = []
    with ExitStack() as stack:
        looks: dict[str, _SensorProbe] = {}
        for reading in readings:
            try:
                sampler = reading.open()
            except SensorUnavailableError as error:
                reports.append(SensorReport(reading.name, why=str(error).removeprefix(f"{reading.name}: ")))
                continue
            stack.callback(sampler.close)
            looks[reading.name] = _SensorProbe(sampler)
            reports.append(SensorReport(reading.name, sampler.info))
        end_s = now() + seconds
        while looks and now() < end_s:
            for look in looks.values():
                look.poll(now())
            pause(_NAP_S)
        for look in looks.values():
            look.poll(math.inf)  # a ring, for one, is asked a few times a second
        reports = [looks[report.name].report(report) if report.info else report for report in reports]
    if choose:
        return _judged(reports)
    return [
        replace(report, why=report.why or "added by --scope of run, trace and watch") for report in reports
    ]


@dataclass
class _SensorProbe:
    """Samples and failure of one sampler."""

    sampler: PowerSampler
    samples: list[Sample] = field(default_factory=list)
    due_s: float = 0.0
    failure: str = ""

    def poll(self, now_s: float) -> None:
        """Take what is there, no more often than the reading asks for."""
        if self.failure or now_s < max(self.due_s, self.sampler.due_s):
            return
        self.due_s = now_s + self.sampler.info.poll_interval_s
        try:
            self.samples += self.sampler.poll()
        except PowerError as error:
            self.failure = str(error)

    def report(self, opened: SensorReport) -> SensorReport:
        """The report of the reading."""
        info = self.sampler.info
        watts = None
        if info.kind != "counter" and self.samples:
            watts = sum(sample.value for sample in self.samples) / len(self.samples)
        elif len(self.samples) > 1:
            first, last = self.samples[0], self.samples[-1]
            watts = (last.value - first.value) / (last.time_s - first.time_s)
        return replace(opened, info=info, measured=len(self.samples) >= _FEW, watts=watts, why=self.failure)


def _judged(reports: list[SensorReport]) -> list[SensorReport]:
    """The same reports, with the choice and the reasons against the others."""
    best = next((report for report in reports if report.info and not _objection(report)), None)
    if best is None:
        return [replace(report, why=_objection(report)) for report in reports]
    return [
        replace(report, chosen=True)
        if report is best
        else replace(report, why=_objection(report) or _second(report, best.name))
        for report in reports
    ]


def _objection(report: SensorReport) -> str:
    """Return the reason not to use a reading; empty if it may be used."""
    if report.info is not None and is_advised_against(report.info):
        return "misreads power, as its calibration found: no energy is to be taken from it"
    return report.why


def _second(report: SensorReport, best: str) -> str:
    """Return a message on a reading that works but is not the best."""
    response = report.info.response if report.info else None
    if response is not None and not response.averages:
        return "may miss part of a periodic load"
    if response is not None and response.window_s > _LONG_S:
        return f"a mean over {response.window_s:.3g} s, which answers late"
    return f"works; {best} comes first"
