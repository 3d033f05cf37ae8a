"""The walk-through of docs/input-adaptive.md: from pragmas to a C++ program that picks versions."""

import shutil
import subprocess
from pathlib import Path

import pytest
from cli_process import tuner

EXAMPLE = Path(__file__).parents[1] / "examples/input-adaptive"
SIZES = ("16", "10000", "777", "3141", "9999", "33", "1", "1")


def run(folder: Path, *words: str) -> str:
    """A command in a folder; what it printed."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def called(*words: str) -> str:
    """The command in this process, from its folder; what it printed."""
    result = tuner(*words)
    assert result.exit_code == 0, f"{words}: {result.output}"
    return result.stdout


def multiplied(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    device: str,
    architecture: str,
    include: Path,
    *libraries: str,
) -> str:
    """Train, export header and cubins, build the program and run it; what it printed.

    Args:
        monkeypatch: changes to the folder.
        folder: where all that happens.
        device: as of ``--device``.
        architecture: of the cubins.
        include: folder of ``cuda.h``.
        libraries: what the program is linked with.
    """
    for file in EXAMPLE.iterdir():
        shutil.copy(file, folder)
    monkeypatch.chdir(folder)
    database = ("--database", "walk.db")
    called(
        *("train", "mvmul.cu", "--inputs", "H=2^4..2^14, W=2^4..2^14"),
        *("--limit", "H * W <= 2**22", "--count", "5", "--device", device, *database),
    )
    sizes = ("mvmul.cu:H=777,W=3141", "--objective", "time", "--device", device)
    assert "predicted" in called("best", *sizes, *database)
    called(
        *("export", "mvmul", "--format", "c-selector", "--kernel", "mvmul.cu"),
        *("--cubins", "build", "--arch", architecture, "--output", "mvmul.h", *database),
    )
    run(folder, "g++", "-Wall", "-Werror", "-O2", f"-I{include}", "-o", "main", "main.cpp", *libraries)
    return run(folder, "./main", *SIZES)
