"""Checks of what NVML tells of each GPU, of its compiler and of who else computes there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuner import registry
from tuner.compiler.cubin_cache import CubinCache, default_directory
from tuner.compiler.nvrtc_choice import choose
from tuner.doctor.finding import Finding
from tuner.errors import CompilerUnavailableError, SensorUnavailableError

_HOT_C = 80.0  # the slow-down of server GPUs begins at 85 to 90 degrees
_SHOWN = 5


def gpu(uuid: str, proc: Path) -> Iterator[Finding]:
    """Every fact of one GPU that concerns the trust in measurements on it.

    Args:
        uuid: as NVML names it.
        proc: the ``/proc`` in which other processes have their names.
    """
    try:
        facts = registry.load("nvml", "health")(uuid)
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


def _mode(check: str, facts: Any) -> Iterator[Finding]:  # noqa: ANN401 - a plugin's dataclass
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
        yield Finding(check, "warning", "a virtual GPU: power and clocks are the host's to know and to set")


def _heat(check: str, facts: Any) -> Iterator[Finding]:  # noqa: ANN401
    if facts.temperature_c is not None and facts.temperature_c >= _HOT_C:
        yield Finding(
            check, "warning", f"{facts.temperature_c:.0f} °C: it may throttle for heat soon", "see to cooling"
        )


def _others(check: str, facts: Any, proc: Path) -> Iterator[Finding]:  # noqa: ANN401
    if facts.processes is None:
        yield Finding(check, "note", "which processes compute on it cannot be seen")
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
