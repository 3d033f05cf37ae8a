"""Checks of the power readings of a GPU: which answers, which is taken, and is it calibrated?"""

from collections.abc import Iterator

from tuner import registry
from tuner.devices.calibrations import calibrated
from tuner.devices.sensor_survey import SensorReport, survey
from tuner.doctor.finding import Finding
from tuner.errors import StoreError
from tuner.model import DeviceIdentity
from tuner.report.power_words import response_words
from tuner.tracing.choice import find_gpu, readings

_CALIBRATE = "tuner power calibrate (a minute; sets nothing)"


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
    """What is to be said of power on a machine without a GPU."""
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
