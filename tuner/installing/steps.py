"""Single steps of installing and removing; each has a description and can be repeated."""

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.model.errors import InstallError

_FILE_MODE = 0o644
_PROGRAM_MODE = 0o755
_DIRECTORY_MODE = 0o755
_COMMAND_S = 300.0  # stopping waits for running jobs to store what they have; starting for a database check
_SHOWN_LINES = 5

Command = Callable[[Sequence[str]], None]
"""Runs a command; raises InstallError where it fails."""


@dataclass(frozen=True)
class Step:
    """One thing that is done.

    Attributes:
        words: what, for people.
        action: does it.
    """

    words: str
    action: Callable[[], None]


def write(path: Path, text: str, words: str = "write", *, program: bool = False) -> Step:
    """Put a file in place, whole or not at all, readable by all."""
    mode = _PROGRAM_MODE if program else _FILE_MODE
    return Step(f"{words} {path}", lambda: _write(path, text, mode))


def remove(path: Path) -> Step:
    """Remove a file that may be gone already, and a directory of drop-ins that it leaves empty."""
    return Step(f"remove {path}", lambda: _remove(path))


def remove_empty(directory: Path) -> Step:
    """Remove a directory if nothing is in it."""
    return Step(f"remove {directory} if it is empty", lambda: _remove_empty(directory))


def make(directory: Path) -> Step:
    """Make a directory that all may read."""
    return Step(f"make {directory}", lambda: _make(directory))


def purge(directory: Path) -> Step:
    """Remove a directory with all that is in it; links in it are not followed."""
    return Step(f"remove {directory} and all that is in it", lambda: _purge(directory))


def run(command: Sequence[str], runner: Command) -> Step:
    """Run a command."""
    return Step(f"run {shlex.join(command)}", lambda: runner(command))


def say(words: str) -> Step:
    """Tell what is left alone."""
    return Step(words, lambda: None)


def execute(command: Sequence[str]) -> None:
    """Run a command of this machine.

    Raises:
        InstallError: it is not there, fails or does not end; the message has what it said.
    """
    try:
        done = subprocess.run(  # noqa: S603 - the commands of this package, no shell
            command,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMMAND_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(f"{shlex.join(command)}: {error}") from error
    if done.returncode:
        said = "; ".join((done.stderr or done.stdout).strip().splitlines()[-_SHOWN_LINES:])
        raise InstallError(f"{shlex.join(command)} ended with {done.returncode}: {said}")


def _write(path: Path, text: str, mode: int) -> None:
    _make(path.parent)
    draft = ""
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
        ) as file:
            draft = file.name
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(path)
    except OSError as error:
        if draft:
            Path(draft).unlink(missing_ok=True)
        raise InstallError(f"{path}: cannot be written: {error.strerror or error}") from error


def _make(directory: Path) -> None:
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        for path in reversed(missing):
            path.mkdir()
            path.chmod(_DIRECTORY_MODE)  # whatever the umask
    except OSError as error:
        raise InstallError(f"{directory}: cannot be made: {error.strerror or error}") from error


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise InstallError(f"{path}: cannot be removed: {error.strerror or error}") from error
    if path.parent.name.startswith("tuner") and path.parent.suffix == ".d":  # of drop-ins for our units
        _remove_empty(path.parent)


def _remove_empty(directory: Path) -> None:
    with contextlib.suppress(OSError):  # it is not there, or something is in it
        directory.rmdir()


def _purge(directory: Path) -> None:
    try:
        if directory.is_dir() and not directory.is_symlink():
            shutil.rmtree(directory)
    except OSError as error:
        raise InstallError(f"{directory}: cannot be removed: {error.strerror or error}") from error
