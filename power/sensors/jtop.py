"""Power rails of a Jetson from the jtop service of jetson-stats.

The service reads the same monitors as ``ina3221`` does, twice a second: too seldom for short kernels, and of
use only where the files of the monitors cannot be read. The package stays in a child process, for what
importing it changes.
"""

import importlib.machinery
import importlib.util
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..base import Reading, Response
from .rails import ChildLines, LineTool, SharedLines, is_connected, parts, rail_readings, unavailable

NAME = "jtop"
SOCKET = "/run/jtop.sock"
INTERVAL_S = 0.5  # what the service does by itself; a shorter one would make it work harder for everyone
_PATIENCE_S = 15.0  # to the first line: the package takes seconds to import on a small board
_MILLIWATTS = 1000.0  # in a watt
_TOTAL = "TOTAL"  # a total that has no name
_SUPPLY = re.compile(r"ucsi|usb|charger|battery", re.IGNORECASE)
_SUM = "ALL"  # the name of a total that is the sum of the rails
_ROUNDING_MW = 1.0  # of each rail in such a sum
_BOOT = (
    "import sys; interval = float(sys.argv[1]); sys.path[:] = sys.argv[2:]; "
    "from tuner.power.sensors.jtop_child import main; sys.exit(main(interval))"
)


def readings(
    gpu: str | int,  # noqa: ARG001 - a Jetson has one
    *,
    responses: Callable[[str], Response | None],
    now: Callable[[], float] = time.monotonic,
    socket: str | Path = SOCKET,
    path: Sequence[str] | None = None,
    interval_s: float = INTERVAL_S,
) -> list[Reading]:
    """The rails the jtop service tells, best first; one reading that says why where there are none.

    Where package and service are there, a client runs for a moment to learn the names of the rails.

    Args:
        gpu: not used.
        responses: calibrated response by the name of a reading.
        now: clock of the samples, in seconds.
        socket: of the service.
        path: where the child looks for packages; None for where this process does.
        interval_s: time between updates, in seconds.
    """
    reason = _missing(Path(socket), path)
    if reason:
        return [unavailable(NAME, reason)]
    command = [sys.executable, "-c", _BOOT, str(interval_s), *(sys.path if path is None else path)]
    tool = LineTool(
        NAME,
        SharedLines(partial(ChildLines, command, now)),
        parse_line,
        interval_s,
        _PATIENCE_S,
        "is its version that of the service?",
    )
    return rail_readings(tool, responses)


def parse_line(text: str) -> Mapping[str, float]:
    """The watts of each rail of a line of the child; nothing out of any other text."""
    try:
        message = json.loads(text)
        listed = {str(name): _watts(value) for name, value in message["rails"].items()}
        total_w, name = _watts(message["total"]), message["total_name"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
    # Left out are channels without a rail, and supplies: an AGX Orin's USB-C ports are listed as rails.
    rails = {
        name: watts
        for name, watts in listed.items()
        if watts is not None and is_connected(name) and not _SUPPLY.search(name)
    }
    if total_w is not None and _is_rail(total_w, name, rails):
        rails.setdefault(name if isinstance(name, str) and name else _TOTAL, total_w)
    return rails


def _is_rail(total_w: float, name: object, rails: Mapping[str, float]) -> bool:
    """True for a total that was measured; where a board has no rail for it, jtop adds up the others."""
    if name == _SUM or any(parts(rail) == ("input",) for rail in rails):
        return False
    return abs(total_w - sum(rails.values())) * _MILLIWATTS > _ROUNDING_MW * len(rails)


def _watts(milliwatts: Any) -> float | None:  # noqa: ANN401 - whatever JSON holds
    if (
        isinstance(milliwatts, bool)
        or not isinstance(milliwatts, int | float)
        or not math.isfinite(milliwatts)
    ):
        return None
    return milliwatts / _MILLIWATTS


def _missing(socket: Path, path: Sequence[str] | None) -> str:
    """Return the reason that starting a client is no use, e.g. no jtop service; empty if there is none."""
    if path is None:
        spec = importlib.util.find_spec(NAME)
    else:
        spec = importlib.machinery.PathFinder.find_spec(NAME, list(path))
    if spec is None:
        return "jetson-stats is not installed: pip install 'gpu-tuner[jetson]', on a Jetson"
    if not socket.exists():
        return f"the jtop service is not active ({socket} is not there): sudo systemctl start jtop"
    if not os.access(socket, os.R_OK | os.W_OK):
        return f"{socket}: no permission: sudo usermod -aG jtop $USER, then log in again"
    return ""
