"""Where the numbers of a comparison come from."""

import os
import platform
import shlex
import sys
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("tuner", "numpy", "scipy")


def provenance() -> dict[str, Any]:
    """Date, command line, versions and the machine that the policies searched on."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(["tuner", *map(_relative, sys.argv[1:])]),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in _PACKAGES},
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
    }


def _relative(word: str) -> str:
    """An argument without the directories of the machine it was given on."""
    return f".../{Path(word).name}" if Path(word).is_absolute() else word
