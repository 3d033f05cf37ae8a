"""The typed face of ``tuner.power``, whose modules are imported when they are used.

No file of ``tuner/`` imports ``tuner.power``: its vendor packages may be missing. Readings, as they are
chosen by name, are in ``tuner.registry``.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.devices.base import Device
from tuner.devices.gpu_state import (
    ClockPlaces,
    ClockRestoration,
    GpuClockState,
    GpuControl,
    GpuFacts,
    GpuPowerLimitState,
    GpuUsage,
    RecordedTrace,
    ResponseIdentification,
    TemperatureReader,
)
from tuner.model.errors import ClockError
from tuner.power.base import (
    ClockControl,
    ClockReading,
    CorrectedPower,
    EnergyTotal,
    LoadSource,
    Meter,
    PowerLimitControl,
    PowerSampler,
    PowerSource,
    ProgramEnergy,
    ProgramTimeline,
    Reading,
    Response,
    Sample,
    SensorInfo,
    Span,
    SpanEnergy,
)

TARGETS = {
    "open_clock_control": "clocks.control:open_control",
    "simulated_clocks": "clocks.simulated:SimulatedClocks",
    "open_power_limits": "clocks.control:open_power_limits",
    "simulated_power_limits": "clocks.simulated:SimulatedPowerLimits",
    "restore_stale": "clocks.control:restore_stale",
    "restore_all": "clocks.control:restore_all",
    "reset_clock": "clocks.control:reset",
    "reset_power_limit": "clocks.control:reset_power_limit",
    "survey_clocks": "clocks.control:survey",
    "survey_power_limits": "clocks.control:survey_power_limits",
    "clock_actuators": "clocks.control:actuators",
    "power_limit_actuators": "clocks.control:limit_actuators",
    "clock_paths": "clocks.actuator:ClockPaths",
    "journal_directories": "clocks.journal:directories",
    "helper_answers": "clocks.clockd_client:helper_answers",
    "gpu_health": "nvml.health:health",
    "gpu_users": "nvml.health:GpuUsers",
    "jetson_load_percent": "clocks.devfreq:load_percent",
    "thermometer": "nvml.health:Thermometer",
    "calibrate": "response.calibrate:calibrate",
    "load_calibrations": "response.calibrations:load",
    "prepare_calibrations": "response.calibrations:prepare",
    "store_calibrations": "response.calibrations:store",
    "simulated_sampler": "sensors.simulated:SimulatedSampler",
    "sampling_meter": "energy.meter:SamplingMeter",
    "summed_meter": "energy.meter:SummedMeter",
    "trace_reading": "sensors.recorded:readings",
    "pipe_reading": "sensors.pipe:reading",
    "trace_file": "sensors.recorded:TraceFile",
    "program_energies": "energy.programs:program_energies",
    "corrected_power": "energy.programs:corrected_power",
    "running_energy": "energy.meter:RunningEnergy",
    "span_energy": "energy.spans:span_energy",
}
"""Targets of the functions below, under ``tuner.power``."""

_OF_RUNS = (
    *("open_clock_control", "simulated_clocks", "open_power_limits", "thermometer"),
    *("simulated_sampler", "sampling_meter", "summed_meter", "load_calibrations"),
)


def _load(name: str) -> Any:  # noqa: ANN401 - each function states the type of its own
    module, _, attribute = TARGETS[name].partition(":")
    return getattr(importlib.import_module(f"tuner.power.{module}"), attribute)


def import_for_runs() -> None:
    """Import what clocks and meters of runs need, so that processes forked later find it imported.

    Raises:
        ImportError: a package of a vendor is missing.
    """
    for name in _OF_RUNS:
        _load(name)


# --- clocks --------------------------------------------------------------------------------------


def open_clock_control(gpu: str | int) -> ClockControl:
    """Clock control of a GPU; opening it changes nothing.

    Raises:
        ClockError: neither NVML nor devfreq knows the GPU.
    """
    control: ClockControl = _load("open_clock_control")(gpu)
    return control


def simulated_clocks(device: Device) -> ClockControl:
    """Clock control of a simulated device."""
    control: ClockControl = _load("simulated_clocks")(device)
    return control


def open_power_limits(gpu: str | int) -> PowerLimitControl:
    """Control of a GPU's power limit; opening it changes nothing.

    Raises:
        ClockError: the GPU has no power limit that can be set.
    """
    control: PowerLimitControl = _load("open_power_limits")(gpu)
    return control


def simulated_power_limits(device: Device) -> PowerLimitControl:
    """Control of the power limit of a simulated device.

    Raises:
        ClockError: it has none that can be set.
    """
    control: PowerLimitControl = _load("simulated_power_limits")(device)
    return control


def restore_stale() -> list[ClockRestoration]:
    """Restore the clocks that killed processes of this user left set."""
    restored: list[ClockRestoration] = _load("restore_stale")()
    return restored


def restore_all() -> list[ClockRestoration]:
    """Restore the clocks that killed processes left set, those of root's journals too."""
    restored: list[ClockRestoration] = _load("restore_all")()
    return restored


def reset_clock(gpu: str | int) -> None:
    """Give a GPU's clock back to driver and configuration, whoever set it; for an explicit order only.

    Raises:
        ClockError: a living process owns it, or the driver refuses.
    """
    _load("reset_clock")(gpu)


def reset_power_limit(gpu: str | int) -> None:
    """Give a GPU the driver's default power limit, whoever set it; for an explicit order only.

    Raises:
        ClockError: no such GPU or limit, a living process owns it, or the reset failed.
    """
    _load("reset_power_limit")(gpu)


def survey_power_limits(where: ClockPlaces | None = None) -> list[GpuPowerLimitState]:
    """The power limits of this machine's GPUs; sets none.

    Raises:
        InputError: the administrator's file is wrong.
    """
    states: list[GpuPowerLimitState] = _load("survey_power_limits")(where)
    return states


def survey_clocks(where: ClockPlaces | None = None) -> list[GpuClockState]:
    """The GPUs of this machine and those a journal names, whether they answer or not.

    Raises:
        ClockError: there is no GPU whose clocks can be read.
        InputError: the administrator's file is wrong.
    """
    states: list[GpuClockState] = _load("survey_clocks")(where)
    return states


def clock_actuators(where: ClockPlaces | None = None) -> list[GpuControl | ClockError]:
    """The GPUs of this machine, each with its control, or why it has none; the caller closes them."""
    found: list[GpuControl | ClockError] = _load("clock_actuators")(where)
    return found


def power_limit_actuators(where: ClockPlaces | None = None) -> list[GpuControl]:
    """The power limits of this machine that can be set, opened to be looked at; the caller closes them."""
    found: list[GpuControl] = _load("power_limit_actuators")(where)
    return found


def clock_paths(*, devfreq: Path, config: Path, directory: Path | None, socket: Path) -> ClockPlaces:
    """Return the paths of clock controls and their files.

    Args:
        devfreq: the kernel's class of devices with a scalable clock.
        config: the administrator's file.
        directory: of journals and locks; None for the usual places.
        socket: of ``tuner-clockd``.
    """
    paths: ClockPlaces = _load("clock_paths")(
        devfreq=devfreq, config=config, directory=directory, socket=socket
    )
    return paths


def journal_directories(own: Path | None = None) -> list[Path]:
    """Return the directories that may hold journals: this user's and root's, or the given one."""
    found: list[Path] = _load("journal_directories")(own)
    return found


def helper_answers(path: Path) -> bool:
    """True where ``tuner-clockd`` can be reached at a socket."""
    return bool(_load("helper_answers")(path))


# --- health and users ----------------------------------------------------------------------------


def gpu_health(gpu: str | int) -> GpuFacts:
    """The facts of a GPU, by its UUID or NVML's index.

    Raises:
        SensorUnavailableError: NVML does not know it.
    """
    health: GpuFacts = _load("gpu_health")(gpu)
    return health


def gpu_users(gpu: str | int, library: str | None = None) -> GpuUsage:
    """A GPU held open to be asked who uses it.

    Args:
        gpu: UUID or NVML's index.
        library: path of libnvidia-ml.so.1; None for the one the system loader finds.

    Raises:
        SensorUnavailableError: it cannot be opened.
    """
    users: GpuUsage = _load("gpu_users")(gpu, library)
    return users


def jetson_load_percent(root: Path) -> float | None:
    """Return the load of a board's GPU in percent, by the kernel's devices; None without a report."""
    percent: float | None = _load("jetson_load_percent")(root)
    return percent


def thermometer(gpu: str | int) -> TemperatureReader:
    """The thermometer of a GPU; finding none is no error."""
    found: TemperatureReader = _load("thermometer")(gpu)
    return found


# --- sensors -------------------------------------------------------------------------------------


def calibrate(
    load: LoadSource,
    samplers: Sequence[PowerSampler],
    *,
    seconds: float,
    clocks: ClockControl | None = None,
    seed: int = 0,
    progress: Callable[[float, float], None] | None = None,
) -> list[ResponseIdentification]:
    """Identify the response of each reading, in the order of the samplers.

    Args:
        load: the device whose power the samplers read.
        samplers: opened readings; they stay open.
        seconds: about how long the load is played.
        clocks: read for throttle reasons, never set.
        seed: of the random lengths of pulses.
        progress: called after each part of the load.

    Raises:
        DeviceError: the load could not be run.
    """
    found: list[ResponseIdentification] = _load("calibrate")(
        load, samplers, clocks=clocks, seconds=seconds, seed=seed, progress=progress
    )
    return found


def load_calibrations(path: Path, gpu: str, driver: str) -> dict[str, Response]:
    """Calibrated responses of a GPU under a driver, by name of the reading; empty without a file.

    Raises:
        StoreError: the file is damaged; it is named.
    """
    known: dict[str, Response] = _load("load_calibrations")(path, gpu, driver)
    return known


def prepare_calibrations(path: Path) -> None:
    """Find out now what would keep calibrations from being stored.

    Raises:
        StoreError: the file cannot be written.
    """
    _load("prepare_calibrations")(path)


def store_calibrations(
    path: Path, gpu: str, driver: str, found: Mapping[str, tuple[Response, float]]
) -> None:
    """Add responses and periods in seconds, by name of the reading, to a file; all or nothing.

    Raises:
        StoreError: the file cannot be written.
    """
    _load("store_calibrations")(path, gpu, driver, found)


def simulated_sampler(
    source: Device | PowerSource, sensor: Mapping[str, Any], response: Response | None = None
) -> PowerSampler:
    """A simulated sensor of a device.

    Args:
        source: whose power.
        sensor: its properties, as the model of the GPU states them.
        response: what a calibration found.
    """
    sampler: PowerSampler = _load("simulated_sampler")(source, **sensor, response=response)
    return sampler


def sampling_meter(sampler: PowerSampler, clocks: ClockControl | None, now: Callable[[], float]) -> Meter:
    """A meter over a sampler.

    Args:
        sampler: fresh samples.
        clocks: read while recording; None for no clocks.
        now: clock of the samples.
    """
    meter: Meter = _load("sampling_meter")(sampler, clocks, now)
    return meter


# --- traced programs -----------------------------------------------------------------------------


def summed_meter(meters: Sequence[Meter]) -> Meter:
    """A meter over several that see different things."""
    meter: Meter = _load("summed_meter")(meters)
    return meter


def trace_reading(file: str) -> Reading:
    """The reading of a trace file; opening it raises an InputError where the file is none."""
    readings: list[Reading] = _load("trace_reading")("", responses=lambda _: None, file=file)
    return readings[0]


def pipe_reading(file: str) -> Reading:
    """The reading of watts that another program writes to a pipe or a file."""
    reading: Reading = _load("pipe_reading")(file)
    return reading


def trace_file(
    *,
    info: SensorInfo,
    samples: tuple[Sample, ...],
    marks: tuple[tuple[float, str], ...] = (),
    clocks: tuple[tuple[float, ClockReading], ...] = (),
    provenance: Mapping[str, str | int | float | bool | None] | None = None,
) -> RecordedTrace:
    """A trace that can be written.

    Args:
        info: the sensor.
        samples: uncorrected, oldest first.
        marks: (time in seconds, label).
        clocks: (time in seconds, clock and throttle reasons).
        provenance: where it comes from.
    """
    trace: RecordedTrace = _load("trace_file")(
        info=info, samples=samples, marks=marks, clocks=clocks, provenance=provenance or {}
    )
    return trace


def program_energies(
    readings: Sequence[tuple[SensorInfo, Sequence[Sample]]], line: ProgramTimeline
) -> list[ProgramEnergy | None]:
    """Joules of a program by each of its readings; None where too few samples lie before or after it."""
    energies: list[ProgramEnergy | None] = _load("program_energies")(readings, line)
    return energies


def corrected_power(samples: Sequence[Sample], info: SensorInfo) -> CorrectedPower:
    """Power over time that a reading of power shows, corrected for its response."""
    shown: CorrectedPower = _load("corrected_power")(samples, info)
    return shown


def running_energy() -> EnergyTotal:
    """Adds up the samples of one reading."""
    total: EnergyTotal = _load("running_energy")()
    return total


def span_energy(readings: Sequence[tuple[SensorInfo, Sequence[Sample]]], span: Span) -> SpanEnergy | None:
    """Joules of a span by the readings of one device; None where they show nothing of it."""
    energy: SpanEnergy | None = _load("span_energy")(readings, span)
    return energy
