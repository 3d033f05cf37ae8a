"""Checks of a machine in order: host, software and each GPU, with findings."""

import ctypes
import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from tuner.compiler.cubin import CubinCache, default_directory
from tuner.compiler.nvrtc import library_files
from tuner.compiler.nvrtc_backend import choose
from tuner.compiler.triton_server import TESTED, is_tested
from tuner.database.connection import default_path
from tuner.database.files import mirror_of
from tuner.database.integrity.check import check_database, check_mirror
from tuner.devices.cuda.probe import driver_problem, kernel_module_version
from tuner.devices.sensors import SensorReport, calibrated, is_jetson, survey
from tuner.joules.watching import find_gpu, readings
from tuner.model import registry
from tuner.model.errors import (
    ClockError,
    CompilerUnavailableError,
    SensorUnavailableError,
    StoreError,
    TunerError,
)
from tuner.model.jobs import DeviceIdentity
from tuner.power.clocks import control, journal
from tuner.power.clocks.actuator import Actuator, ClockPaths, load_config, strangers
from tuner.power.clocks.clockd_client import helper_answers
from tuner.power.clocks.devfreq import PowerModes
from tuner.power.nvml.library import GpuHealth, health
from tuner.report.layout import response_words

# --- One finding of the doctor.

Severity = Literal["ok", "note", "warning", "error"]

SEVERITIES: tuple[Severity, ...] = ("ok", "note", "warning", "error")
"""From harmless to what must be repaired."""


@dataclass(frozen=True)
class Finding:
    """Result of a check.

    Attributes:
        check: what was looked at, e.g. ``driver``, ``cuda:0 sensors``.
        severity: ``ok``; ``note``: good to know, something optional is not there; ``warning``: measurements
            are possible and less trustworthy; ``error``: something must be mended first.
        text: what was found.
        remedy: what to do; empty where nothing need be done.
    """

    check: str
    severity: Severity
    text: str
    remedy: str = ""


def counts(findings: Iterable[Finding]) -> str:
    """Count the findings by severity, e.g. ``0 errors, 1 warning, 3 notes``."""
    severities = [finding.severity for finding in findings]
    words = []
    for severity in ("error", "warning", "note"):
        number = severities.count(severity)
        words.append(f"{number} {severity}{'' if number == 1 else 's'}")
    return ", ".join(words)


def worst(findings: Iterable[Finding]) -> Severity:
    """The highest severity among findings; ``ok`` where there are none."""
    return max((finding.severity for finding in findings), key=SEVERITIES.index, default="ok")


# --- Checks of clocks, sensors and each GPU.

_MEND = "tuner clocks restore"
_CALIBRATE = "tuner power calibrate (a minute; sets nothing)"
_HOT_C = 80.0  # the slow-down of server GPUs begins at 85 to 90 degrees
_SHOWN = 5


def clocks(where: ClockPaths, *, expected: bool) -> Iterator[Finding]:
    """Per GPU: is it throttled, did a process that is gone leave its clock set, may this one set it?

    Nothing is set to find out.

    Args:
        where: where clocks are found.
        expected: this machine has a GPU, so that finding none is wrong.
    """
    try:
        states = control.survey(where)
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


def _state(state: control.GpuSettingState) -> Iterator[Finding]:
    check = f"clock of {state.name or state.gpu}"
    for trouble in state.trouble:
        yield Finding(check, "warning", trouble, "see `tuner clocks show`")
    if state.stale:
        left = f"left at {state.announced} MHz by a dead process"
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


def _permissions(where: ClockPaths) -> Iterator[Finding]:
    helper: bool | None = None
    for option, survey_of in (("clocks", control.actuators), ("power-limits", control.limit_actuators)):
        for actuator in survey_of(where):
            if isinstance(actuator, ClockError):
                continue  # told by the survey
            with closing(actuator):
                permitted = actuator.permitted()
                if helper is None and not permitted:
                    helper = helper_answers(where.socket)
                yield _permission(actuator, option, permitted=permitted, helper=bool(helper))


def _permission(actuator: Actuator, option: str, *, permitted: bool, helper: bool) -> Finding:
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


def clock_rules(path: Path) -> Iterator[Finding]:
    """Can the administrator's file be read, and does it rule for users that there are? Silent without one."""
    if not path.exists():
        return
    found = strangers(path, load_config(path))
    remedy = "mend it: systemctl restart tuner-clockd.service reads it anew"
    yield from (Finding("clock rules", "warning", text, remedy) for text in found)
    if not found:
        yield Finding("clock rules", "ok", f"{path} is understood")


def sensors(gpu: str | None, seconds: float) -> Iterator[Finding]:
    """Look at every reading for a moment; nothing is set or run.

    Args:
        gpu: UUID; None for what CUDA calls ``cuda:0``, as a Jetson's one GPU.
        seconds: how long each is looked at.
    """
    named = find_gpu(gpu, "tuner doctor")
    try:
        calibrated(DeviceIdentity("", named.name, named.uuid, named.driver, "", modelled=False))
    except StoreError as error:
        yield Finding("calibrations", "error", str(error), "move it aside, and calibrate again")
    reports = survey(readings(named), seconds=seconds)
    check = f"power of {named.name}"
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
        facts = health(uuid)
    except SensorUnavailableError as error:
        yield Finding(uuid, "error", str(error), "see dmesg for messages of the driver (Xid)")
        return
    check = f"{facts.name} (NVML {facts.index})"
    yield Finding(check, "ok", f"{facts.uuid}, driver {facts.driver}, CUDA {facts.cuda or 'unknown'}")
    yield from _mode(check, facts)
    if facts.temperature_c is not None and facts.temperature_c >= _HOT_C:
        hot = f"{facts.temperature_c:.0f} °C: it may throttle for heat soon"
        yield Finding(check, "warning", hot, "see to cooling")
    yield from _others(check, facts, proc)
    if facts.capability is not None:
        yield from _compiler(check, facts.capability)


def _mode(check: str, facts: GpuHealth) -> Iterator[Finding]:
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


def _others(check: str, facts: GpuHealth, proc: Path) -> Iterator[Finding]:
    if facts.processes is None:
        yield Finding(check, "note", "the processes that compute on it cannot be listed")
        return
    if not facts.processes:
        yield Finding(check, "ok", "no process computes on it now")
        return
    named = [f"{pid} ({_name(proc, pid)})" for pid in facts.processes[:_SHOWN]]
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


# --- Checks of the host: other readers of the GPU, directories, disk space, the database, Jetson power modes.

_TEGRASTATS = ("usr/bin/tegrastats", "home/nvidia/tegrastats", "home/ubuntu/tegrastats")
MONITORS = (
    *("dcgm-exporter", "nv-hostengine", "dcgmi", "nvidia-smi", "nvitop", "nvtop", "gpustat", "zeusd"),
    *("jtop", "tegrastats", "nvidia_gpu_exporter", "nvidia_gpu_prometheus_exporter", "all-smi", "btop"),
)
"""Programs that ask the GPU for its state again and again: work for it, and power."""

_NAME_BYTES = 15  # the kernel keeps so much of a program's name
_LITTLE_BYTES = 2**30
_NOTHING_BYTES = 2**26  # a run's database and compiled code need tens of MB


def jetson(root: Path) -> Iterator[Finding]:
    """Which power mode holds, and is tegrastats there? Silent on other machines.

    Args:
        root: below which ``/proc``, ``/etc`` and ``/var`` are.
    """
    if not is_jetson(root):
        return
    modes = PowerModes.read(root)
    mode = modes.named(modes.present)
    if modes.present is None:
        yield Finding("power mode", "note", "not to be read from nvpmodel's files", "see nvpmodel -q")
    elif mode.upper().startswith("MAXN"):
        yield Finding("power mode", "ok", f"nvpmodel: {mode} (heat or current may still throttle the board)")
    else:
        yield Finding(
            "power mode",
            "note",
            f"nvpmodel: {mode} caps clocks and power; results hold for this mode",
            "nvpmodel -m selects another (MAXN has no caps)",
        )
    if any((root / path).exists() for path in _TEGRASTATS):
        yield Finding("tegrastats", "ok", "is there")
    else:
        yield Finding("tegrastats", "note", "not found; the power monitors may be read without it")


def monitors(proc: Path) -> Iterator[Finding]:
    """Do other programs poll the GPU?

    Args:
        proc: the ``/proc`` to look through.
    """
    polling: dict[str, list[int]] = {}
    for pid, names in processes(proc):
        for monitor in MONITORS:
            if monitor in names or (monitor[:_NAME_BYTES] in names and len(monitor) > _NAME_BYTES):
                polling.setdefault(monitor, []).append(pid)
                break
    for monitor, pids in sorted(polling.items()):
        yield Finding(
            "monitors",
            "warning",
            f"{monitor} (process {', '.join(map(str, sorted(pids)))}) polls the GPU, which costs it power",
            f"stop {monitor} while measuring",
        )
    if not polling:
        yield Finding("monitors", "ok", "no other program that is known to poll GPUs")


def processes(proc: Path) -> Iterator[tuple[int, set[str]]]:
    """Every process with the names it goes by: the kernel's, its program's, and that of its script."""
    for folder in proc.glob("[0-9]*"):
        try:
            name = (folder / "comm").read_text(errors="replace").strip()
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        # a script follows its interpreter, a module of Python follows -m
        words = words[:3:2] if words[1:2] == [b"-m"] else words[:2]
        yield int(folder.name), {name, *(Path(word.decode(errors="replace")).name for word in words)}


def directory(what: str, path: Path) -> Iterator[Finding]:
    """Can a directory be written, or made where it does not exist? And is there room?"""
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        yield Finding(what, "error", f"{path} cannot be written", f"let this user write {nearest}")
        return
    free_bytes = shutil.disk_usage(nearest).free
    room = f"{path}, {free_bytes / 2**30:.1f} GiB free"
    if free_bytes < _NOTHING_BYTES:
        yield Finding(what, "error", room, "free some space")
    elif free_bytes < _LITTLE_BYTES:
        yield Finding(what, "warning", room, "free some space before a long run")
    else:
        yield Finding(what, "ok", room)


def database(path: Path) -> Iterator[Finding]:
    """Is the database whole? One that does not exist yet is not made."""
    if not path.exists():
        yield Finding("database", "ok", f"{path} does not exist yet; the first run makes it")
        return
    try:
        runs = check_database(path)
    except StoreError as error:
        if _is_whole(mirror_of(path)):
            remedy = "`tuner db repair` rebuilds it from its mirror"
            yield Finding("database", "warning", f"{error}; its mirror is whole", remedy)
        else:
            yield Finding("database", "error", str(error), "move it aside, or name another with --database")
        return
    yield Finding("database", "ok", f"{path} is whole and holds {runs} runs")
    trouble = check_mirror(path)
    if trouble:
        yield Finding("database", "warning", trouble, "`tuner db repair` rebuilds it from the database")


def _is_whole(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        check_database(path)
    except StoreError:
        return False
    return True


# --- Checks of the driver and of what is installed beside it. Nothing here opens a GPU.

_NVIDIA = "0x10de"
_DISPLAY = "0x03"  # class of PCI devices that GPUs belong to
_CUPY = re.compile(r"cupy(?:-cuda(\d+)\w*)?", re.IGNORECASE)
_NO_GPU = "simulated devices (sim:...) work all the same"


def driver(root: Path, libcuda: str) -> Iterator[Finding]:
    """Is there a GPU, and a driver that answers for it?

    Args:
        root: below which ``/sys``, ``/proc`` and ``/dev`` are.
        libcuda: name or path of the driver's library.
    """
    problem = driver_problem(libcuda, root / "dev/nvidiactl")
    version = kernel_module_version(root / "proc/driver/nvidia/version")
    if problem is None:
        yield Finding("driver", "ok", f"NVIDIA driver {version or 'of unknown version'}")
        return
    if not expects_gpu(root):
        yield Finding("driver", "note", f"no NVIDIA GPU in this machine; {_NO_GPU}")
        return
    remedy = "install the NVIDIA driver, or in a container pass the GPU in (docker run --gpus all)"
    if "permission" in problem:
        remedy = "add the user to the group that owns /dev/nvidiactl (often video or render)"
    yield Finding("driver", "error", problem, remedy)


def expects_gpu(root: Path) -> bool:
    """True on a machine that has an NVIDIA GPU, whether or not a driver serves it."""
    version = kernel_module_version(root / "proc/driver/nvidia/version")
    return _has_pci_gpu(root) or is_jetson(root) or version is not None


def _has_pci_gpu(root: Path) -> bool:
    for device in (root / "sys/bus/pci/devices").glob("*"):
        try:
            vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
        except OSError:
            continue
        if vendor == _NVIDIA and kind.startswith(_DISPLAY):
            return True
    return False


def cupy(installed: dict[str, str] | None = None, libcuda: str = "libcuda.so.1") -> Iterator[Finding]:
    """Is there exactly one CuPy, and does the driver serve its CUDA?

    Args:
        installed: name and version of the packages; those of this environment if None.
        libcuda: name or path of the driver's library.
    """
    if installed is None:
        named = ((entry.metadata["Name"], entry.version) for entry in _of_cupy())
        installed = {name.lower(): version for name, version in named if name}
    packages = {name: version for name, version in installed.items() if _CUPY.fullmatch(name)}
    if not packages:
        yield Finding(
            "CuPy",
            "note",
            "not installed: nothing can run on a GPU",
            "pip install 'gpu-tuner[cuda12]' or 'gpu-tuner[cuda13]'",
        )
        return
    words = ", ".join(f"{name} {version}" for name, version in sorted(packages.items()))
    if len(packages) > 1:
        yield Finding(
            "CuPy", "error", f"several are installed and share their files: {words}", "keep one of them"
        )
        return
    (name,) = packages
    needed = _CUPY.fullmatch(name)
    served = _cuda_of_driver(libcuda)
    if needed and needed[1] and served and int(needed[1]) > served:
        yield Finding(
            "CuPy",
            "error",
            f"{words} needs CUDA {needed[1]}, and the driver serves CUDA {served}",
            f"pip install 'gpu-tuner[cuda{served}]', or a newer driver",
        )
        return
    yield Finding("CuPy", "ok", words)


def _of_cupy() -> Iterator[importlib.metadata.Distribution]:
    """Packages whose names begin with CuPy's; the files of all others take long to read."""
    for folder in sys.path:
        for entry in Path(folder).glob("cupy*.*-info"):
            yield importlib.metadata.Distribution.at(entry)


def _cuda_of_driver(libcuda: str) -> int | None:
    """Major version of CUDA that the driver serves; asking for it starts nothing."""
    version = ctypes.c_int()
    try:
        result = ctypes.CDLL(libcuda).cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return None if result else version.value // 1000


def nvml_binding() -> Iterator[Finding]:
    """Can NVML be called at all?"""
    if importlib.util.find_spec("pynvml") is None:
        yield Finding(
            "NVML binding",
            "note",
            "nvidia-ml-py is not installed: no power and no clocks of GPUs other than a Jetson's",
            "pip install nvidia-ml-py",
        )
        return
    yield Finding("NVML binding", "ok", "nvidia-ml-py is installed")


def nvrtc() -> Iterator[Finding]:
    """Is there a compiler? Whether it serves a GPU is asked where the GPU is known."""
    files = library_files()
    if not files:
        yield Finding(
            "compiler", "error", "no NVRTC: no kernel can be compiled", "pip install nvidia-cuda-nvrtc-cu12"
        )
        return
    yield Finding("compiler", "ok", f"NVRTC: {', '.join(sorted({path.name for path in files}))}")


def triton() -> Iterator[Finding]:
    """Is there a Triton, of a version that is tested? It is not imported."""
    needs = f"kernels of Triton need {TESTED}"
    try:
        version = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        yield Finding("Triton", "ok", f"not installed; {needs}, here or where `build` says")
        return
    tested = is_tested(version)
    remedy = "" if tested else "install one of these, or let `build` name an interpreter with one"
    yield Finding("Triton", "ok" if tested else "note", f"Triton {version}; {needs}", remedy)


# --- All checks in order, each of which may fail without the others.

_SOCKET = "run/tuner/clockd.sock"


@dataclass(frozen=True)
class Surroundings:
    """Places that the checks inspect.

    Attributes:
        root: below which ``/proc``, ``/sys``, ``/dev``, ``/etc``, ``/run`` and ``/var`` are.
        libcuda: name or path of the driver's library.
        journals: where changed clocks are announced; None for the usual places.
        database: of results.
        cache: of compiled kernels.
        look_s: how long power readings are looked at; five updates of the slowest one of a GPU by default.
    """

    root: Path = Path("/")
    libcuda: str = "libcuda.so.1"
    journals: Path | None = None
    database: Path = field(default_factory=default_path)
    cache: Path = field(default_factory=default_directory)
    look_s: float = 0.5


def examine(around: Surroundings) -> Iterator[Finding]:
    """Run every check, without changing a setting or using a GPU."""
    for name, check in _checks(around):
        yield from _guarded(name, check)


def _guarded(name: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except (TunerError, OSError, ImportError) as error:
        yield Finding(name, "error", f"this check failed: {error}")


def _checks(around: Surroundings) -> Iterator[tuple[str, Callable[[], Iterable[Finding]]]]:
    root = around.root
    where = ClockPaths(
        devfreq=root / "sys/class/devfreq",
        config=root / "etc/tuner/clockd.toml",
        directory=around.journals,
        socket=root / _SOCKET,
    )
    yield "driver", partial(driver, root, around.libcuda)
    yield "CuPy", partial(cupy, libcuda=around.libcuda)
    yield "NVML binding", nvml_binding
    yield "compiler", nvrtc
    yield "Triton", triton
    names = _gpus(where)
    for name in names:
        of_nvml = name.startswith("GPU-")  # a Jetson's GPU goes by its devfreq node
        if of_nvml:
            yield name, partial(gpu, name, root / "proc")
        yield f"power of {name}", partial(sensors, name if of_nvml else None, around.look_s)
    expected = expects_gpu(root)
    if not names:
        yield "power", partial(sensors, None, around.look_s) if expected else no_sensors
    yield "clocks", partial(clocks, where, expected=expected)
    yield "clock rules", partial(clock_rules, where.config)
    yield "jetson", partial(jetson, root)
    yield "monitors", partial(monitors, root / "proc")
    yield "state directory", partial(directory, "state directory", around.database.parent)
    yield "cache directory", partial(directory, "cache directory", around.cache)
    (runtime, *_) = journal.directories(around.journals)
    yield "runtime directory", partial(directory, "runtime directory", runtime)
    yield "database", partial(database, around.database)


def _gpus(where: ClockPaths) -> list[str]:
    """Return the clock controls' identifiers of this machine's GPUs: NVML's UUID, or a devfreq node."""
    try:
        actuators = control.actuators(where)
    except TunerError:  # told by the check of the clocks
        return []
    names = []
    for actuator in actuators:
        if not isinstance(actuator, ClockError):
            with closing(actuator):
                names.append(actuator.gpu)
    return names
