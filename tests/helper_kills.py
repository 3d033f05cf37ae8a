"""All scenes: those of ``clock_kills`` by themselves, with the helper in a process, and in a container."""

import contextlib
import functools
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import clock_kills
from clock_kills import (
    GuardedScene,
    Scene,
    both_scene,
    children,
    devfreq_scene,
    guardian_of,
    limit_scene,
    nvml_scene,
)
from prepared_process import PreparedProcess
from tuner.power.clocks.actuator import ClockPaths
from tuner.power.clocks.clockd_client import reach
from tuner.power.clocks.control import LeasedClocks, choose_actuator

from tuner.devices.choice import open_device
from tuner.devices.sensors import open_clocks, open_power_limits
from tuner.measurement.settle import SettingLock
from tuner.model.jobs import DeviceIdentity
from tuner.model.trial import Energy, Trial
from tuner.programs.measuring import ProgramMeasurer, ProgramRun
from tuner.programs.program import Program
from tuner.programs.tuning import BystandingDevice, tune_program
from tuner.report.progress import RunProgress
from tuner.search.request import SearchRequest
from tuner.search.setup import MeasurementSetup

# --- A scene of ``clock_kills``: ``tuner program exec`` holds clock and power limit, run after run.

HOLDER = """
import ctypes, sys
from pathlib import Path

import pynvml
from tuner.cli import db, program
from tuner.cli.main import main
from tuner.joules import watching
from tuner.power.clocks import control
from tuner.power.clocks.actuator import ClockPaths

gpu, library, devfreq, directory, socket, settings = sys.argv[1:]
pynvml.nvmlLib = ctypes.CDLL(library)
nothing = Path(directory) / "nothing"
control.SYSTEM = ClockPaths(library, Path(devfreq), nothing, Path(directory), Path(socket))
database = str(Path(directory).parent / "tuner.db")
words = ["program", "exec", "--device", "0", "--use", "1", "--database", database, "--", "sleep", "0.02"]
if settings == "clock":  # chosen while a run goes on
    words = ["program", "run", "--device", "0", "--database", database, "--objective", "time", "--clocks"]
    words += ["1500,900", "--budget", "6", "--window", "0.02", "--phase", "step", "--", "sh", "-c"]
    words.append("echo here; for i in $(seq 1000); do echo step > $TUNER_MARKS; sleep 0.002; done")
else:
    print("here", flush=True)  # imports hold nothing
while True:
    try:
        main(words, prog_name="tuner")
    except SystemExit as end:
        if end.code:
            break
"""
"""Ends with the first command that a signal has ended."""


class ProgramScene(GuardedScene):
    """The command that holds, and its guardians."""

    script = HOLDER


@contextmanager
def phase_scene(folder: Path) -> Iterator[ProgramScene]:
    """The clock of a fake H200 is chosen while a program runs, which marks its steps."""
    with nvml_scene(folder) as scene:
        yield ProgramScene("program-phase", scene._gpu, scene._where, scene.changed, scene.settings)


@contextmanager
def program_scene(folder: Path) -> Iterator[ProgramScene]:
    """A run of a program is stored, whose answer is a clock and a power limit of a fake H200."""
    tune(folder / "tuner.db")
    with both_scene(folder) as scene:
        yield ProgramScene("program-exec", scene._gpu, scene._where, scene.changed, scene.settings)


def tune(database: Path) -> None:
    """Store a run of a program that costs least at 900 MHz and 400 W."""
    program = Program(("sleep", "0.02"))

    def run(trial: Trial, _most_s: float, _times: int) -> ProgramRun:
        joules = 3.0 * ((trial.clock_mhz or 0) + (trial.power_limit_w or 0))  # so that the limit binds
        return ProgramRun(10.0, Energy(joules, 0.001 * joules, joules / 10.0, "scripted", "gpu"), {})

    @contextmanager
    def opened(*_: object) -> Iterator[MeasurementSetup]:
        modelled, _notice = open_device("sim:h200")
        clocks, limits = open_clocks(modelled)[0], open_power_limits(modelled)[0]
        tries = ProgramMeasurer(
            program,
            run,
            SettingLock(clocks, limits),
            precision=0.01,
            needs_energy=True,
            tell=list[str]().append,
        )
        device = BystandingDevice(DeviceIdentity("cuda:0", "NVIDIA H200", "GPU-1", "1", "", modelled=False))
        yield MeasurementSetup(device, tries, clocks, "", "scripted", 0.0, (), limits)
        modelled.close()

    request = SearchRequest(objective="energy", clocks="1980,900", power_limits="700,400")
    with RunProgress("energy") as progress:
        tune_program(program, request, progress, opened, database=database)


# --- Holders of clocks in a container that shares the runtime directory and has a boot id of its own.

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


# --- Holders on this machine.

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
