"""Checks of each GPU: health, compiler, other users, power readings, clocks."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tuner import registry
from tuner.compiler.cubin_cache import CubinCache, default_directory
from tuner.compiler.nvrtc_choice import choose
from tuner.devices import power
from tuner.devices.gpu_state import ClockPlaces, GpuClockState, GpuControl, GpuFacts
from tuner.devices.sensor_survey import SensorReport, survey
from tuner.devices.sensors import calibrated
from tuner.doctor.finding import Finding
from tuner.joules.watching import find_gpu, readings
from tuner.model.device import DeviceIdentity
from tuner.model.errors import ClockError, CompilerUnavailableError, SensorUnavailableError, StoreError
from tuner.report.words import response_words

_MEND = "tuner clocks restore"
_CALIBRATE = "tuner power calibrate (a minute; sets nothing)"
_HOT_C = 80.0  # the slow-down of server GPUs begins at 85 to 90 degrees
_SHOWN = 5


def clocks(where: ClockPlaces, *, expected: bool) -> Iterator[Finding]:
    """Per GPU: is it throttled, did a process that is gone leave its clock set, may this one set it?

    Nothing is set to find out.

    Args:
        where: where clocks are found (``Where``).
        expected: this machine has a GPU, so that finding none is wrong.
    """
    try:
        states = power.survey_clocks(where)
    except ClockError as error:
        if expected:
            yield Finding(
                "clocks", "error", str(error), "see whether nvidia-smi answers; reboot after an update"
            )
        else:
            yield Finding("clocks", "note", str(error))
        return
    for state in states:
        yield from _state(state)
    yield from _permissions(where)


def _state(state: GpuClockState) -> Iterator[Finding]:
    check = f"clock of {state.name or state.gpu}"
    for trouble in state.trouble:
        yield Finding(check, "warning", trouble, "see `tuner clocks show`")
    if state.stale:
        left = f"left at {state.announced_mhz} MHz by a dead process"
        yield Finding(check, "error", left, _MEND)
    elif state.owner:
        yield Finding(check, "warning", f"held by {state.owner}", "wait for it, or end it")
    if state.reading.mhz is None:
        return
    now = f"{state.reading.mhz:.0f} MHz now"
    if state.reading.throttle_reasons:
        reasons = ", ".join(state.reading.throttle_reasons)
        yield Finding(
            check, "warning", f"{now}, held back by {reasons}", "let it rest, see to cooling and power"
        )
    else:
        yield Finding(check, "ok", f"{now}, not throttled")


def _permissions(where: ClockPlaces) -> Iterator[Finding]:
    helper: bool | None = None
    for actuator in power.clock_actuators(where):
        if isinstance(actuator, ClockError):
            continue  # told by the survey
        with closing(actuator):
            permitted = actuator.permitted()
            if helper is None and not permitted:
                helper = power.helper_answers(where.socket)
            yield _permission(actuator, "clocks", permitted=permitted, helper=bool(helper))
    for limit in power.power_limit_actuators(where):
        with closing(limit):
            permitted = limit.permitted()
            if helper is None and not permitted:
                helper = power.helper_answers(where.socket)
            yield _permission(limit, "power-limits", permitted=permitted, helper=bool(helper))


def _permission(actuator: GpuControl, option: str, *, permitted: bool, helper: bool) -> Finding:
    check, what = f"--{option} on {actuator.name}", option.replace("-", " ")
    try:
        supported = actuator.supported()
    except ClockError as error:
        return Finding(check, "note", str(error))
    if not supported:
        return Finding(check, "note", f"this GPU has no {what} that can be set")
    unit = "MHz" if option == "clocks" else "W"
    choice = f"{len(supported)} {what}, {supported[-1]} to {supported[0]} {unit}"
    if permitted:
        return Finding(check, "ok", f"this user may set its {choice}")
    if helper:
        return Finding(check, "ok", f"tuner-clockd answers and sets its {choice}, for this user")
    return Finding(
        check,
        "note",
        f"this user may not set {what}, and tuner-clockd does not answer",
        f"for --{option} install tuner-clockd, or be root (in a container with --cap-add SYS_ADMIN)",
    )


def sensors(gpu: str | None, seconds: float) -> Iterator[Finding]:
    """Look at every reading for a moment; nothing is set or run.

    Args:
        gpu: UUID; None for what CUDA calls ``cuda:0``, as a Jetson's one GPU.
        seconds: how long each is looked at.
    """
    found = find_gpu(gpu, "tuner doctor")
    try:
        calibrated(DeviceIdentity("", found.name, found.uuid, found.driver, "", modelled=False))
    except StoreError as error:
        yield Finding("calibrations", "error", str(error), "move it aside, and calibrate again")
    reports = survey(readings(found), seconds=seconds)
    check = f"power of {found.name}"
    chosen = next((report for report in reports if report.chosen), None)
    if chosen is None or chosen.info is None:
        reasons = "; ".join(f"{report.name}: {report.why}" for report in reports)
        remedy = "use --objective time, or run where a sensor may be read (on a Jetson perhaps as root)"
        yield Finding(check, "error", f"no reading can be used: {reasons}", remedy)
        return
    yield _taken(check, chosen)
    curve = next((r for r in reports if r.info is not None and r.info.kind != "counter"), None)
    if curve is not None and curve is not chosen:
        yield _curve(check, curve)
    for report in reports:
        if report.info is None and report.name not in registry.names("readings"):
            yield Finding(check, "note", f"{report.name}: {report.why}")


def no_sensors() -> Iterator[Finding]:
    """Findings about power on a machine without a GPU."""
    text = "no GPU whose power can be read: only simulated devices have an energy here, a modelled one"
    yield Finding("power", "note", text, "tuner power sensors says what each source of readings misses")


def _taken(check: str, chosen: SensorReport) -> Finding:
    """The reading that is taken for energy."""
    info = chosen.info
    if info is None:
        return Finding(check, "error", f"{chosen.name} stopped answering")
    taken = f"{chosen.name} ({info.scope}) is taken"
    if info.kind == "counter":  # counts true joules: nothing to calibrate
        return Finding(check, "ok", taken)
    words = f"{taken}: {response_words(info.response)}"
    if info.response.origin == "calibrated":
        return Finding(check, "ok", f"{words} for this GPU and driver")
    return Finding(check, "warning", f"{words}, not calibrated on this GPU under this driver", _CALIBRATE)


def _curve(check: str, curve: SensorReport) -> Finding:
    """The reading that shows power over time where a counter gives the joules."""
    if curve.info is None or curve.info.response.origin == "calibrated":
        return Finding(check, "ok", f"{curve.name} shows power over time, calibrated for this GPU and driver")
    words = f"{curve.name} shows power over time: {response_words(curve.info.response)}, not calibrated"
    return Finding(check, "note", words, _CALIBRATE)


def gpu(uuid: str, proc: Path) -> Iterator[Finding]:
    """Every fact of one GPU that concerns the trust in measurements on it.

    Args:
        uuid: as NVML names it.
        proc: the ``/proc`` in which other processes have their names.
    """
    try:
        facts = power.gpu_health(uuid)
    except SensorUnavailableError as error:
        yield Finding(uuid, "error", str(error), "see dmesg for messages of the driver (Xid)")
        return
    check = f"{facts.name} (NVML {facts.index})"
    yield Finding(check, "ok", f"{facts.uuid}, driver {facts.driver}, CUDA {facts.cuda or 'unknown'}")
    yield from _mode(check, facts)
    yield from _heat(check, facts)
    yield from _others(check, facts, proc)
    if facts.capability is not None:
        yield from _compiler(check, facts.capability)


def _mode(check: str, facts: GpuFacts) -> Iterator[Finding]:
    if facts.persistence is False:
        yield Finding(
            check,
            "warning",
            "persistence mode is off: the driver unloads between programs, and idle power with it",
            "run nvidia-persistenced, or nvidia-smi -pm 1 (as root)",
        )
    if facts.mig:
        yield Finding(
            check,
            "error",
            "MIG is on: power is that of all instances together, and clocks are shared",
            "nvidia-smi -mig 0 (as root), or measure time only",
        )
    if facts.virtual:
        yield Finding(check, "warning", "a virtual GPU: only the host reads its power and sets its clocks")


def _heat(check: str, facts: GpuFacts) -> Iterator[Finding]:
    if facts.temperature_c is not None and facts.temperature_c >= _HOT_C:
        yield Finding(
            check, "warning", f"{facts.temperature_c:.0f} °C: it may throttle for heat soon", "see to cooling"
        )


def _others(check: str, facts: GpuFacts, proc: Path) -> Iterator[Finding]:
    if facts.processes is None:
        yield Finding(check, "note", "the processes that compute on it cannot be listed")
        return
    if not facts.processes:
        yield Finding(check, "ok", "no process computes on it now")
        return
    named = [f"{process.pid} ({_name(proc, process.pid)})" for process in facts.processes[:_SHOWN]]
    more = len(facts.processes) - len(named)
    others = f"{', '.join(named)}{f' and {more} more' if more else ''}"
    yield Finding(
        check,
        "warning",
        f"other processes compute on it: {others}",
        "end them or wait: they cost power, time",
    )


def _name(proc: Path, pid: int) -> str:
    try:
        return (proc / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:  # another container's, or it has ended
        return "not visible here"


def _compiler(check: str, capability: tuple[int, int]) -> Iterator[Finding]:
    architecture = "sm_{}{}".format(*capability)
    try:
        library = choose(architecture, None, CubinCache(default_directory()))
    except CompilerUnavailableError as error:
        yield Finding(check, "error", str(error), "pip install nvidia-cuda-nvrtc-cu12")
        return
    yield Finding(check, "ok", f"NVRTC {library.version} compiles for {architecture}")
