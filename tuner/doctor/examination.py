"""All checks in order, each of which may fail without the others."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tuner.compiler.cubin_cache import default_directory
from tuner.database.connection import default_path
from tuner.devices import power
from tuner.devices.gpu_state import ClockPlaces
from tuner.doctor import host, software
from tuner.doctor.checks import clocks, gpu, no_sensors, sensors
from tuner.doctor.finding import Finding
from tuner.model.errors import ClockError, TunerError

Check = tuple[str, Callable[[], Iterable[Finding]]]
_SOCKET = "run/tuner/clockd.sock"


@dataclass(frozen=True)
class Surroundings:
    """Where the checks look.

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


def _checks(around: Surroundings) -> Iterator[Check]:
    root = around.root
    where = _where(around)
    yield "driver", partial(software.driver, root, around.libcuda)
    yield "CuPy", partial(software.cupy, libcuda=around.libcuda)
    yield "NVML binding", software.nvml_binding
    yield "compiler", software.nvrtc
    names = _gpus(where)
    for name in names:
        known = name.startswith("GPU-")  # to NVML; a Jetson's GPU goes by its devfreq node
        if known:
            yield name, partial(gpu, name, root / "proc")
        yield f"power of {name}", partial(sensors, name if known else None, around.look_s)
    expected = software.expects_gpu(root)
    if not names:
        yield "power", partial(sensors, None, around.look_s) if expected else no_sensors
    yield "clocks", partial(clocks, where, expected=expected)
    yield "jetson", partial(host.jetson, root)
    yield "monitors", partial(host.monitors, root / "proc")
    yield "state directory", partial(host.directory, "state directory", around.database.parent)
    yield "cache directory", partial(host.directory, "cache directory", around.cache)
    (runtime, *_) = power.journal_directories(around.journals)
    yield "runtime directory", partial(host.directory, "runtime directory", runtime)
    yield "database", partial(host.database, around.database)


def _where(around: Surroundings) -> ClockPlaces:
    return power.clock_paths(
        devfreq=around.root / "sys/class/devfreq",
        config=around.root / "etc/tuner/clockd.toml",
        directory=around.journals,
        socket=around.root / _SOCKET,
    )


def _gpus(where: ClockPlaces) -> list[str]:
    """What the clock controls know the GPUs of this machine by: NVML's UUID, or a devfreq node."""
    found: list[str] = []
    try:
        actuators = power.clock_actuators(where)
    except TunerError:  # told by the check of the clocks
        return found
    for actuator in actuators:
        if not isinstance(actuator, ClockError):
            with closing(actuator):
                found.append(actuator.gpu)
    return found
