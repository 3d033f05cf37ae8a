"""All scenes: those of ``clock_kills`` by themselves, with the helper in a process, and in a container."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import clock_kills
from clock_kills import GuardedScene, Scene, both_scene, devfreq_scene, limit_scene, nvml_scene
from container_kills import contained, why_not
from prepared_process import PreparedProcess
from program_kills import phase_scene, program_scene
from tuner.power.clocks.actuator import ClockPaths
from tuner.power.clocks.clockd_client import reach
from tuner.power.clocks.control import LeasedClocks, choose_actuator

CLIENT = clock_kills.HOLDER.replace(
    "from tuner.power.clocks.control import open_control, open_power_limits, open_power_profiles",
    """
from functools import partial
from tuner.power.clocks.clockd_client import reach
from tuner.power.clocks.control import choose_actuator, choose_limit_actuator
from tuner.power.clocks.control import LeasedClocks, LeasedPowerLimit, open_power_profiles

def open_control(gpu, where):
    return LeasedClocks(choose_actuator(gpu, where), partial(reach, where.socket))

def open_power_limits(gpu, where):
    return LeasedPowerLimit(choose_limit_actuator(gpu, where), partial(reach, where.socket))
""",
)


HELPER = "import sys; from tuner.power.clocks.clockd import main; sys.exit(main(sys.argv[1:]))"
"""What ``python -m tuner.power.clocks.clockd`` does."""


def leased(gpu: str, where: ClockPaths) -> LeasedClocks:
    """A control that asks the helper, whether this user may set clocks or not."""
    return LeasedClocks(choose_actuator(gpu, where), partial(reach, where.socket))


def command(verb: str, where: ClockPaths, *options: str) -> list[str]:
    """How ``tuner-clockd`` is started on the fakes."""
    line = [sys.executable, "-m", "tuner.power.clocks.clockd", verb, "--directory", str(where.directory)]
    line += ["--socket", str(where.socket), "--config", str(where.config), "--devfreq", str(where.devfreq)]
    return [*line, *(["--library", where.library] if where.library else []), *options]


@contextmanager
def notices(folder: Path) -> Iterator[tuple[socket.socket, Mapping[str, str]]]:
    """A socket that hears what a service tells its manager, and the environment that makes it do so."""
    path = folder / "notify"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(path))
        heard.settimeout(60.0)
        yield heard, {**os.environ, "NOTIFY_SOCKET": str(path)}


def start_helper(where: ClockPaths, *options: str) -> "subprocess.Popen[str]":
    """A helper that is ready."""
    assert where.directory is not None
    with notices(where.directory.parent) as (heard, environment), Path(os.devnull).open("w") as nowhere:
        words = command("serve", where, *options)[3:]
        helper = PreparedProcess(HELPER, words, {2: nowhere.fileno()}, environment)
        assert b"READY=1" in heard.recv(4096)
    return helper


class HelperScene(GuardedScene):
    """A process that sets clocks through a helper of its own."""

    roles: tuple[str, ...] = ("client", "helper")
    script = CLIENT

    def __init__(self, guarded: GuardedScene) -> None:
        socket_path = guarded._directory.parent / "clockd.sock"
        where = replace(guarded._where, socket=socket_path)
        super().__init__(f"helper-{guarded.name}", guarded._gpu, where, guarded.changed, guarded.settings)
        self.roles = HelperScene.roles  # one helper, whatever is set
        self._helper: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._helper = start_helper(self._where)
        super().start()

    def pid(self, role: str) -> int | None:
        if role == "helper":
            return self._helper.pid if self._helper else None
        return super().pid("owner")

    def restart(self) -> None:
        """End the helper if it lives, and do what the service manager does after its end."""
        assert self._helper is not None
        self._helper.terminate()
        self._helper.wait()
        subprocess.run(command("restore", self._where), stderr=subprocess.DEVNULL, check=True)


def helped(
    scene: Callable[[Path], AbstractContextManager[GuardedScene]],
) -> Callable[[Path], AbstractContextManager[Scene]]:
    """The same clocks, set through a helper."""

    @contextlib.contextmanager
    def made(folder: Path) -> Iterator[Scene]:
        with scene(folder) as guarded:
            yield HelperScene(guarded)

    return made


SCENES: dict[str, Callable[[Path], AbstractContextManager[Scene]]] = {
    **clock_kills.SCENES,
    "helper-nvml": helped(nvml_scene),
    "helper-devfreq": helped(devfreq_scene),
    "helper-power-limit": helped(limit_scene),
    "helper-clock-and-limit": helped(both_scene),
    "container-nvml": contained(nvml_scene),
    "container-clock-and-limit": contained(both_scene),
    "container-devfreq": contained(devfreq_scene),
    "program-exec": program_scene,
    "program-phase": phase_scene,
}
"""Makes a scene in an empty folder."""


def unavailable(scene: str) -> str:
    """Why a scene cannot be made here; empty where it can."""
    return why_not() if scene.startswith("container") else ""
