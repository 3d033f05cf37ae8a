"""A real systemd that one may break: an overlay of this machine's root, booted by systemd-nspawn.

Nothing of it reaches the machine: what is written goes to a tmpfs, and the network is private. Needs root.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

_BOOT_S = 120.0  # on a busy machine
_LOOK_AGAIN_S = 0.1
_PYTHON = "/opt/python"


@dataclass(frozen=True)
class Machine:
    """The booted machine.

    Attributes:
        root: its root, as this machine sees it.
        init: process of its systemd, as this machine counts.
    """

    root: Path
    init: int

    def run(self, *command: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run something inside."""
        return subprocess.run(
            self.command(*command), check=check, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )

    def command(self, *words: str) -> list[str]:
        """Words that run something inside."""
        return ["nsenter", "--target", str(self.init), "--mount", "--pid", "--uts", "--ipc", "--net", *words]

    def path(self, inside: str) -> Path:
        """How this machine reaches a path inside, sockets in /run too."""
        return Path(f"/proc/{self.init}/root{inside}")

    def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).stdout.strip()


def why_not() -> str:
    """Why such a machine cannot be had here; empty where nothing speaks against it."""
    if os.geteuid() != 0:
        return "only root can boot a throw-away systemd"
    missing = [
        tool for tool in ("systemd-nspawn", "nsenter", "mount", "umount") if shutil.which(tool) is None
    ]
    return f"a throw-away systemd needs {', '.join(missing)}" if missing else ""


def python() -> str:
    """The interpreter of the tests, by its path inside; services see no home directories."""
    return f"{_PYTHON}/bin/python{sys.version_info.major}.{sys.version_info.minor}"


@contextmanager
def overlay(folder: Path) -> Iterator[Path]:
    """This machine's root under a tmpfs that takes what is written."""
    with _mounted(folder, "-t", "tmpfs", "tmpfs"):
        up, work, root = (folder / name for name in ("up", "work", "root"))
        for path in (up, work, root):
            path.mkdir()
        layers = f"lowerdir=/,upperdir={up},workdir={work}"
        with _mounted(root, "-t", "overlay", "overlay", "-o", layers):
            yield root


@contextmanager
def _mounted(target: Path, *options: str) -> Iterator[None]:
    mount = subprocess.run(["mount", *options, target], check=False, capture_output=True, text=True)
    if mount.returncode:
        pytest.skip(f"no overlay of the root can be mounted here: {mount.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", target], check=True)


@contextmanager
def booted(root: Path, shared: Path) -> Iterator[Machine]:
    """Boot a root; ``shared`` is ``/srv`` inside, and writable from both sides."""
    log = shared / "console.log"
    with log.open("w") as console:
        nspawn = subprocess.Popen(
            [
                *(
                    "systemd-nspawn",
                    "--quiet",
                    "-D",
                    root,
                    "--register=no",
                    "--keep-unit",
                    "--private-network",
                ),
                *("--link-journal=no", "--console=pipe", "-M", "tuner-test", f"--bind={shared}:/srv"),
                *(f"--bind-ro={sys.base_prefix}:{_PYTHON}", "-b", "systemd.unit=multi-user.target"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
        )
        try:
            yield _running(nspawn, root, log)
        finally:
            nspawn.terminate()  # an orderly shutdown
            try:
                nspawn.wait(_BOOT_S)
            except subprocess.TimeoutExpired:
                nspawn.kill()
                nspawn.wait()


def _running(nspawn: "subprocess.Popen[bytes]", root: Path, log: Path) -> Machine:
    """The machine, once its systemd has started all there is."""
    deadline = time.monotonic() + _BOOT_S
    while nspawn.poll() is None and time.monotonic() < deadline:
        children = Path(f"/proc/{nspawn.pid}/task/{nspawn.pid}/children").read_text().split()
        if children:
            machine = Machine(root, int(children[0]))
            state = machine.run("systemctl", "is-system-running", check=False).stdout.strip()
            if state in {"running", "degraded"}:
                return machine
        time.sleep(_LOOK_AGAIN_S)
    pytest.skip(f"systemd-nspawn does not boot here: {log.read_text()[-500:]}")


@contextmanager
def limits_in_force(machine: Machine) -> Iterator[None]:
    """Let the systemd of a machine bound memory and tasks for the block.

    Where the controllers are of version 1, systemd-nspawn mounts them read-only. What its systemd makes in
    them is removed in the end.
    """
    places = [Path("/sys/fs/cgroup") / name for name in ("memory", "pids")]
    places = [place for place in places if place.is_mount()]
    for place in places:
        machine.run("mount", "-o", "remount,bind,rw", str(place))
    before = {path for place in places for path in place.rglob("*") if path.is_dir()}
    machine.run("systemctl", "daemon-reexec")
    try:
        yield
    finally:
        after = {path for place in places for path in place.rglob("*") if path.is_dir()}
        machine.run("systemctl", "stop", "*.service", check=False)
        for path in sorted(after - before, reverse=True):
            with suppress(OSError):  # somebody runs in it
                path.rmdir()
