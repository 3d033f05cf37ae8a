"""Holders of clocks in a container that shares the runtime directory and has a boot id of its own."""

import contextlib
import functools
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from clock_kills import GuardedScene, Scene, children, guardian_of

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
OTHER_BOOT = "0c0ffee0-0000-4000-8000-000000000000"
_NAMESPACES = ("--mount", "--pid", "--fork", "--mount-proc", "--kill-child")


def container(boot_id: Path, command: list[str]) -> list[str]:
    """A command as the first process of a container with a boot id of its own, as systemd-nspawn has it."""
    privileges = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    mounted = f"mount --bind {shlex.quote(str(boot_id))} {BOOT_ID} && exec {shlex.join(command)}"
    return ["unshare", *privileges, *_NAMESPACES, "sh", "-c", mounted]


@functools.cache
def why_not() -> str:
    """Why no container can be made here; empty where one can."""
    try:
        made = subprocess.run(container(BOOT_ID, ["true"]), capture_output=True, text=True, check=False)
    except OSError as error:
        return f"unshare: {error.strerror}"
    return f"unshare: {made.stderr.strip()}" if made.returncode else ""


class ContainerScene(GuardedScene):
    """Owner and guardian in a container: when the owner, its first process, ends, so does the guardian."""

    def __init__(self, guarded: GuardedScene) -> None:
        name, settings = f"container-{guarded.name}", guarded.settings
        super().__init__(name, guarded._gpu, guarded._where, guarded.changed, settings)
        self._boot_id = guarded._directory.parent / "boot_id"
        self._boot_id.write_text(f"{OTHER_BOOT}\n")

    def _contained(self, command: list[str]) -> list[str]:
        return container(self._boot_id, command)

    def pid(self, role: str) -> int | None:
        owner = None if self._holder is None else next(children(self._holder.pid), None)
        return owner if role == "owner" or owner is None else guardian_of(owner, role)

    def finish(self) -> None:
        owner = self.pid("owner")
        if owner is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(owner, signal.SIGTERM)
        assert self._holder is not None
        self._holder.wait()
        super().finish()


def contained(
    scene: Callable[[Path], AbstractContextManager[GuardedScene]],
) -> Callable[[Path], AbstractContextManager[Scene]]:
    """The same clocks, set in a container."""

    @contextlib.contextmanager
    def made(folder: Path) -> Iterator[Scene]:
        with scene(folder) as guarded:
            yield ContainerScene(guarded)

    return made
