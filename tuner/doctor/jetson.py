"""Checks that concern Jetson boards only: the power mode and tegrastats."""

import re
from collections.abc import Iterator
from pathlib import Path

from tuner.devices.sensors import is_jetson
from tuner.doctor.finding import Finding

_MODEL = re.compile(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>")
_STATUS = re.compile(r"pmode:(\d+)")
_TEGRASTATS = ("usr/bin/tegrastats", "home/nvidia/tegrastats", "home/ubuntu/tegrastats")


def jetson(root: Path) -> Iterator[Finding]:
    """Which power mode holds, and is tegrastats there? Silent on other machines.

    Args:
        root: below which ``/proc``, ``/etc`` and ``/var`` are.
    """
    if not is_jetson(root):
        return
    mode = power_mode(root)
    if mode is None:
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


def power_mode(root: Path) -> str | None:
    """Name of nvpmodel's present mode; its number where the configuration names none; None if unknown."""
    try:
        status = _STATUS.search((root / "var/lib/nvpmodel/status").read_text(errors="replace"))
    except OSError:
        return None
    if status is None:
        return None
    try:
        models = _MODEL.findall((root / "etc/nvpmodel.conf").read_text(errors="replace"))
    except OSError:
        models = []
    number = int(status[1])
    return next((name for found, name in models if int(found) == number), f"mode {number}")
