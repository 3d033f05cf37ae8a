"""What scripts share: their command line, what a result says of its origin, and how it is stored."""

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from tuner.model.version import VERSION

PACKAGES = ("numpy", "scipy", "cupy-cuda12x", "cupy-cuda13x", "kernel_tuner", "nvidia-ml-py")


def command_line(about: str | None, *, must_save: bool = False) -> argparse.ArgumentParser:
    """A parser that says what a script is about, with ``--out`` for the JSON of its result."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=must_save, help="JSON to write")
    return parser


def provenance() -> dict[str, Any]:
    """GPU, driver and clocks as `nvidia-smi` reads them, versions, date and command line."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": " ".join(["python", f"benchmarks/{_script()}", *map(_relative, sys.argv[1:])]),
        "gpus": _gpus(),
        "python": platform.python_version(),
        "packages": {"tuner": VERSION, **{n: version for n in PACKAGES if (version := _version(n))}},
        "cpus": _cpus(),
    }


def save(path: Path | None, document: Mapping[str, Any]) -> None:
    """Store a result as JSON where a file was asked for."""
    if path is not None:
        path.write_text(json.dumps(document, indent=1) + "\n")


def _script() -> Path:
    """The script that runs, from the folder of benchmarks on."""
    script, folder = Path(sys.argv[0]).resolve(), Path(__file__).resolve().parent
    return script.relative_to(folder) if script.is_relative_to(folder) else Path(script.name)


def _relative(word: str) -> str:
    """An argument without the directories of the machine it was given on."""
    return f".../{Path(word).name}" if Path(word).is_absolute() else word


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _gpus() -> list[dict[str, str]]:
    fields = "name,driver_version,clocks.sm,clocks.max.sm,power.limit,temperature.gpu"
    try:
        answer = subprocess.run(
            ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"],
            check=True,
            capture_output=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    names = fields.split(",")
    return [
        dict(zip(names, (part.strip() for part in line.split(",")), strict=True))
        for line in answer.stdout.splitlines()
    ]


def _cpus() -> str:
    try:
        with open("/proc/cpuinfo") as file:  # noqa: PTH123 - a pseudo file
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        return platform.processor()
    return f"{len(names)} x {names[0]}" if names else platform.processor()
