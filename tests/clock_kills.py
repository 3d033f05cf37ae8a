"""Kills those who hold a GPU's clock or power limit at random instants, and looks at what is left set.

A scene is a way to hold them: a process that sets one value after the other, and whoever watches over it.
``run`` kills some of them, waits until all are gone, does what the next start does, and reports.
"""

import contextlib
import fcntl
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fake_nvml_state import UUID, fake_nvml, library
from jetson_trees import build, build_modes, gpu_node, limits_hz, mode
from tuner.power.clocks.actuator import ClockPaths
from tuner.power.clocks.control import restore_stale

SIGNALS: tuple[tuple[str, ...], ...] = (
    ("SIGINT",),
    ("SIGTERM",),
    ("SIGHUP",),
    ("SIGKILL",),
    ("SIGINT", "SIGINT"),  # an impatient user
    ("SIGTERM", "SIGKILL"),  # an impatient service manager
)
BOTH = "clock+limit"
"""Settings of a scene with two guardians."""

LONGEST_DELAY_S = 1.2  # from the first line of the holder on: imports, guardian, then clocks set and restored
LONGEST_GAP_S = 0.03  # between two signals, and between the end of a watcher and that of the holder

# Sets one value after the other until it is told to end; takes signals as a run does.
HOLDER = """
import itertools, random, signal, sys, time
from contextlib import ExitStack, closing
from pathlib import Path

from tuner.system.signals import raised_as_interrupts

signals = raised_as_interrupts((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
signals.__enter__()  # none is lost in a callback of the imports below
print("here", flush=True)
from tuner.power.clocks.actuator import ClockPaths
from tuner.power.clocks.control import open_control, open_power_limits, open_power_profiles

gpu, library, devfreq, directory, socket, settings = sys.argv[1:]
nothing = Path(directory) / "nothing"
where = ClockPaths(library or None, Path(devfreq), nothing, Path(directory), Path(socket))
with ExitStack() as opened:
    held = []
    if "clock" in settings:
        clocks = opened.enter_context(closing(open_control(gpu, where)))
        held.append((clocks, itertools.cycle(clocks.supported_mhz())))
    if "limit" in settings:
        limits = opened.enter_context(closing(open_power_limits(gpu, where)))
        held.append((limits, itertools.cycle(limits.supported_w()[50::50])))
    if "profile" in settings:
        profiles = opened.enter_context(closing(open_power_profiles(gpu, where)))
        held.append((profiles, itertools.cycle(profiles.names().values())))
    while True:
        with ExitStack() as locks:
            for control, values in held:
                locks.enter_context(control.locked(next(values)))
            time.sleep(random.uniform(0.0, 0.02))
"""


@dataclass(frozen=True)
class Kill:
    """Who is killed, how and when.

    Attributes:
        victims: roles of the scene.
        signals: sent one after the other to each.
        delay_s: from the start of the holder.
        gap_s: between signals.
    """

    victims: tuple[str, ...]
    signals: tuple[str, ...]
    delay_s: float
    gap_s: float


@dataclass(frozen=True)
class Outcome:
    """What a kill left.

    Attributes:
        scene: name of the scene.
        kill: what was done.
        was_set: something was set just before the kill.
        left_set: one was still set when all were gone; only the next start can restore it.
        changed: one is set after the next start.
        journals: entries after the next start.
    """

    scene: str
    kill: Kill
    was_set: bool
    left_set: bool
    changed: bool
    journals: int


class Scene(Protocol):
    """A way to hold a GPU's clock or power limit."""

    name: str
    roles: tuple[str, ...]

    def start(self) -> None:
        """Start the holder and return when it runs."""

    def pid(self, role: str) -> int | None:
        """Process of a role; None while there is none."""

    def finish(self) -> None:
        """End the holder in order if it lives, and return when everybody is gone who would restore."""

    def restart(self) -> None:
        """Do what the next start does."""

    def changed(self) -> bool:
        """True while something is set."""

    def journals(self) -> int:
        """Entries of the journal."""


class GuardedScene:
    """A process that sets something itself, and its guardian; one guardian for each setting.

    Args:
        name: of the scene.
        gpu: whose clock or power limit.
        where: fake NVML or fake devfreq, and a directory of the test's.
        changed: tells whether something is set.
        settings: that are held: ``clock``, ``limit``, ``profile``, or ``BOTH``.
    """

    roles: tuple[str, ...] = ("owner", "guardian")
    script = HOLDER

    def __init__(
        self, name: str, gpu: str, where: ClockPaths, changed: Callable[[], bool], settings: str = "clock"
    ) -> None:
        self.name = name
        self.changed = changed
        self.settings = settings
        if settings == BOTH:
            self.roles = (*self.roles, "second guardian")
        self._gpu = gpu
        self._where = where
        assert where.directory is not None
        self._directory = where.directory
        self._holder: subprocess.Popen[str] | None = None

    def start(self) -> None:
        where = self._where
        words = (self._gpu, where.library or "", where.devfreq, self._directory, where.socket, self.settings)
        self._holder = subprocess.Popen(
            self._contained([sys.executable, "-c", self.script, *map(str, words)]),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "here\n"

    def _contained(self, command: list[str]) -> list[str]:
        """How the holder is started."""
        return command

    def pid(self, role: str) -> int | None:
        if self._holder is None:
            return None
        return self._holder.pid if role == "owner" else guardian_of(self._holder.pid, role)

    def finish(self) -> None:
        assert self._holder is not None
        self._holder.terminate()
        self._holder.wait()
        assert self._holder.stdout is not None
        self._holder.stdout.close()
        for path in self._directory.glob("*.lock"):
            with path.open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # the guardian holds it until it is done

    def restart(self) -> None:
        while any(outcome.state == "owned" for outcome in restore_stale(self._where)):
            threading.Event().wait(0.01)  # a restore that a killed owner has begun goes on

    def journals(self) -> int:
        return sum(path.suffix != ".lock" for path in self._directory.glob("*"))


def _where(folder: Path, library: str, devfreq: Path | None = None) -> ClockPaths:
    """Nothing of this machine, but what a scene has in its folder."""
    nothing = folder / "nothing"
    directory = folder / "run"
    directory.mkdir()
    return ClockPaths(library, devfreq or nothing, config=nothing, directory=directory, socket=nothing)


@contextmanager
def nvml_scene(folder: Path) -> Iterator[GuardedScene]:
    """Locked clocks of a fake NVML."""
    with fake_nvml(folder) as state:
        where = _where(folder, library=library())
        yield GuardedScene("nvml", UUID, where, lambda: bool(state.locked_max_mhz))


@contextmanager
def limit_scene(folder: Path) -> Iterator[GuardedScene]:
    """The power limit of a fake NVML."""
    with fake_nvml(folder) as state:
        where = _where(folder, library=library())
        found_mw = state.limit_milliwatts
        yield GuardedScene(
            "power-limit", UUID, where, lambda: bool(state.limit_milliwatts != found_mw), "limit"
        )


@contextmanager
def profile_scene(folder: Path) -> Iterator[GuardedScene]:
    """The power profile of a fake NVML."""
    with fake_nvml(folder) as state:
        state.profile_bits = 0b1111
        where = _where(folder, library=library())
        yield GuardedScene("power-profile", UUID, where, lambda: bool(state.requested_profiles), "profile")


@contextmanager
def both_scene(folder: Path) -> Iterator[GuardedScene]:
    """Locked clocks and the power limit of a fake NVML at the same time."""
    with fake_nvml(folder) as state:
        where = _where(folder, library=library())
        found_mw = state.limit_milliwatts

        def changed() -> bool:
            return bool(state.locked_max_mhz or state.limit_milliwatts != found_mw)

        yield GuardedScene("clock-and-limit", UUID, where, changed, BOTH)


@contextmanager
def devfreq_scene(folder: Path) -> Iterator[GuardedScene]:
    """Limits of a fake Jetson, without NVML."""
    sysfs = build(folder, "agx-orin")
    before = limits_hz(sysfs)
    where = _where(folder, library=str(folder / "no-driver"), devfreq=sysfs / "class/devfreq")
    yield GuardedScene("devfreq", gpu_node(sysfs).name, where, lambda: limits_hz(sysfs) != before)


@contextmanager
def mode_scene(folder: Path) -> Iterator[GuardedScene]:
    """Power modes of a fake Jetson."""
    sysfs = build(folder, "agx-orin")
    root, before = build_modes(sysfs), limits_hz(sysfs)

    def changed() -> bool:
        with contextlib.suppress(ValueError, IndexError):  # it is written just now
            return (mode(root), limits_hz(sysfs)) != (2, before)
        return True

    where = _where(folder, library=str(folder / "no-driver"), devfreq=sysfs / "class/devfreq")
    yield GuardedScene("power-mode", gpu_node(sysfs).name, where, changed, "profile")


SCENES: dict[str, Callable[[Path], AbstractContextManager[Scene]]] = {
    "nvml": nvml_scene,
    "devfreq": devfreq_scene,
    "power-limit": limit_scene,
    "power-profile": profile_scene,
    "power-mode": mode_scene,
    "clock-and-limit": both_scene,
}
"""Makes a scene in an empty folder."""


def kills(roles: Sequence[str], count: int, seed: int) -> list[Kill]:
    """Random kills: every way to die for every choice of victims comes up before one comes up again."""
    rng = random.Random(seed)  # noqa: S311 - no secrets
    victims = [*((role,) for role in roles), tuple(roles)]
    ways = [(who, how) for who in victims for how in SIGNALS]
    planned: list[Kill] = []
    while len(planned) < count:
        rng.shuffle(ways)
        planned += [
            Kill(who, how, rng.uniform(0.0, LONGEST_DELAY_S), rng.uniform(0.0, LONGEST_GAP_S))
            for who, how in ways
        ]
    return planned[:count]


def run(scene: Scene, kill: Kill) -> Outcome:
    """Kill in a scene, and see what is left."""
    scene.start()
    pause = threading.Event()
    pause.wait(kill.delay_s)  # the instant is the point, and not what happens by then
    was_set = scene.changed()
    pids = [pid for role in kill.victims if (pid := scene.pid(role)) is not None]
    for number, name in enumerate(kill.signals):
        if number:
            pause.wait(kill.gap_s)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.Signals[name])
    if len(kill.victims) < len(scene.roles):
        pause.wait(kill.gap_s)
    scene.finish()
    left_set = scene.changed()
    scene.restart()
    return Outcome(scene.name, kill, was_set, left_set, scene.changed(), scene.journals())


def children(pid: int) -> Iterator[int]:
    """Children of a process."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):  # gone meanwhile
                kind, parent = _status(int(folder.name))[:2]
                if int(parent) == pid and kind != "Z":
                    yield int(folder.name)


def guardian_of(pid: int, role: str) -> int | None:
    """The guardian of a process, or its second one; None while there is none."""
    guardians = sorted(children(pid))
    place = int(role.startswith("second"))
    return guardians[place] if place < len(guardians) else None


def guarding(pid: int) -> Iterator[int]:
    """Children of a process that guard a clock; a process of tests has others, too."""
    for child in children(pid):
        with contextlib.suppress(OSError):  # gone meanwhile
            if b"tuner.power.clocks.clockd\0guard\0" in Path(f"/proc/{child}/cmdline").read_bytes():
                yield child


def state(pid: int) -> str:
    """What a process does, in a letter of proc(5): T for one that is stopped."""
    return _status(pid)[0]


def _status(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
