"""Power rails, load, clocks and temperatures of a Jetson from the lines of ``tegrastats``.

Of each rail a line shows the present power and an average over a time that is not told; the average is never
used. Forms of the lines differ between boards and JetPack releases::

    RAM 534/3964MB (lfb 98x4MB) ... GR3D_FREQ 0%@76 ... GPU@36C ... POM_5V_IN 1022/1022 POM_5V_GPU 0/0
    11-21-2025 08:49:48 RAM ... GR3D_FREQ 14%@[407,407] ... gpu@69.125C ... VDD_GPU_SOC 3150mW/2971mW
"""

import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tuner.interfaces.power import Reading, Response

from .lines import ChildLines, SharedLines
from .rails import LineTool, distinct, is_connected, rail_readings, unavailable

BINARY = "tegrastats"
FALLBACK = "/usr/bin/tegrastats"  # where JetPack puts it, for a service with a short PATH
INTERVAL_S = (
    0.1  # ten lines a second cost a few percent of a small core, and more would be repeats on old boards
)
_PATIENCE_S = (
    3.0  # to the first line; it comes after one interval and what a busy board needs to start a process
)

_MILLIWATTS = 1000.0  # in a watt; dividing leaves the decimals as they were printed
_INVALID_C = -256.0  # of a sensor in a part that is switched off
_MEMORIES = ("RAM", "SWAP", "IRAM")  # "RAM 721/31927MB", which cut short looks like a rail
_RAIL = re.compile(
    r"(?<!\S)([A-Z][A-Z0-9_.+-]*) (-?\d{1,9})(?:mW)?/-?\d{1,9}(?:mW)?(?:/-?\d{1,9}(?:mW)?)?(?!\S)",
    re.ASCII | re.IGNORECASE,
)
_SINGLE = re.compile(  # of JetPack 2 and 3; other blocks, such as "APE 25", have one number too
    r"(?<!\S)((?:VDD|POM|VIN)[A-Z0-9_.+-]*) (-?\d{1,9})(?:mW)?(?= [A-Z]|$)", re.ASCII | re.IGNORECASE
)
_TEMPERATURE = re.compile(
    r"(?<!\S)([A-Z][A-Z0-9_.+-]*)@(-?\d{1,4}(?:\.\d{1,6})?)C(?:/-?\d{1,4}(?:\.\d{1,6})?C?)?(?!\S)",
    re.ASCII | re.IGNORECASE,
)
_LOAD = re.compile(
    r"(?<!\S)GR3D(?:\d?_FREQ)? (?:(\d{1,3})%)?(?:@(?:\[(\d{1,5}(?:,\d{1,5})*)\]|(\d{1,5})(?= )))?(?!\S)",
    re.ASCII,
)  # a clock at the end of a line may have lost digits; what ends in % or ] has not


@dataclass(frozen=True)
class TegrastatsLine:
    """What one line says; parts that are missing, cut short or garbled are left out.

    Attributes:
        rails_w: present power of each connected rail in watts; negative is what an offset makes of nothing.
        gpu_load: 0 to 1, of several GPU blocks the highest; None where not told.
        gpu_mhz: clocks of the blocks of the GPU.
        temperatures_c: of the zones that are switched on.
    """

    rails_w: Mapping[str, float]
    gpu_load: float | None
    gpu_mhz: tuple[int, ...]
    temperatures_c: Mapping[str, float]


def parse_line(text: str) -> TegrastatsLine:
    """Read one line; any text is one, if need be without anything in it."""
    text = " ".join(text.split())  # newer releases pad columns with spaces
    rails = [(match[1], int(match[2]) / _MILLIWATTS) for match in _RAIL.finditer(text)]
    if not rails:
        rails = [(match[1], int(match[2]) / _MILLIWATTS) for match in _singles(text)]
    rails = [(name, watts) for name, watts in rails if name.upper() not in _MEMORIES and is_connected(name)]
    zones = [(match[1], float(match[2])) for match in _TEMPERATURE.finditer(text)]
    blocks = list(_LOAD.finditer(text))
    clocks = [mhz for block in blocks for mhz in (block[2] or block[3] or "").split(",")]
    return TegrastatsLine(
        rails_w=dict(zip(distinct([name for name, _ in rails]), (watts for _, watts in rails), strict=True)),
        gpu_load=max((int(block[1]) / 100.0 for block in blocks if block[1]), default=None),
        gpu_mhz=tuple(int(mhz) for mhz in clocks if mhz),
        temperatures_c={name: celsius for name, celsius in zones if celsius > _INVALID_C},
    )


def _singles(text: str) -> list[re.Match[str]]:
    """Rails with one number; none where the only one ends the line, which may have been cut there."""
    found = list(_SINGLE.finditer(text))
    return found if any(match.end() < len(text) for match in found) else []


def readings(
    gpu: str | int,  # noqa: ARG001 - a Jetson has one
    *,
    responses: Callable[[str], Response | None],
    now: Callable[[], float] = time.monotonic,
    binary: str | Path | None = None,
    interval_s: float = INTERVAL_S,
) -> list[Reading]:
    """The rails ``tegrastats`` prints, best first; one reading that says why where there are none.

    Where there is a binary it runs for a line or two, to learn the names of the rails.

    Args:
        gpu: not used.
        responses: calibrated response by the name of a reading.
        now: clock of the samples, in seconds.
        binary: path of the binary; None for the one on PATH, or in /usr/bin.
        interval_s: time between lines, in seconds.
    """
    found = shutil.which(binary or BINARY) or (shutil.which(FALLBACK) if binary is None else None)
    if found is None:
        reason = f"{binary or BINARY} is not here or cannot be run; it comes with JetPack, on Jetson boards"
        return [unavailable(BINARY, reason)]
    command = [str(Path(found).absolute()), "--interval", str(max(round(interval_s * 1000.0), 1))]
    tool = LineTool(
        BINARY,
        SharedLines(partial(ChildLines, command, now)),
        lambda text: parse_line(text).rails_w,
        interval_s,
        _PATIENCE_S + interval_s,
        "some releases show them to root only, and a container needs the host's /sys",
    )
    return rail_readings(tool, responses)
