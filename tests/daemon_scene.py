"""A daemon in a process of its own, on a machine that is played: GPU, clocks, disk and system time.

It is started as a service manager would, and started again when it falls over. Everything it has, keeps and
breaks is in one folder; nothing of this machine is read or set.
"""

import contextlib
import ctypes
import functools
import grp
import os
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fake_nvml_state import State, fake_nvml, library
from nvml_gpu import play

from tuner.client import Client
from tuner.database.connection import Database

MODELLED, PLAYED = "sim:jetson-tx1", "cuda:0"
PATIENCE_S = 60.0  # for what must come; never waited for in full unless something is broken
_LOOK_S = 0.02
_PR_SET_CHILD_SUBREAPER = 36
_DISK_BYTES = 64 * 2**20
_HERE = Path(__file__).parent
_BILLION = 10**9
_LASTING = {
    "trials": "SELECT run_id, number, trial || measurement FROM trials",
    "runs": "SELECT id, 0, conditions || coalesce(answer, '') FROM runs WHERE status = 'finished'",
    "jobs": "SELECT id, 0, ordered FROM jobs",
}
_CHILD = "tuner.system.processes"  # what may hang lives in such a child
_LAUNCHER = "tuner.search.fork_server"  # and of what it forks
_ROLES = {"runner": "tuner.search.job_process", "guardian": "tuner.power.clocks.clockd"}
_SETTINGS = """
[service]
socket = "{socket}"
group = "{group}"
state = "{state}"
devices = [{devices}]

[tuning]
client_clocks = true

[idle]
calm_s = 0.0
look_every_s = 0.1
"""
ASKED_ONLY = """
[online]
refine = false
sample_every_hours = 0
retune_stale = false
"""
"""Settings of a daemon that does what it is asked for, and nothing of its own."""


class Clocks:
    """How far the clocks of the daemon's processes are from those of this machine, in seconds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.system_s = self.rising_s = 0.0
        self._write()

    def jump(self, system_s: float, rising_s: float = 0.0) -> None:
        """Move them."""
        self.system_s += system_s
        self.rising_s += rising_s
        self._write()

    def _write(self) -> None:
        data = struct.pack("=qq", *(round(shift * _BILLION) for shift in (self.system_s, self.rising_s)))
        with self.path.open("r+b" if self.path.exists() else "wb") as file:  # it is mapped by who is alive
            file.write(data)


@dataclass(frozen=True)
class Process:
    """A process of the scene.

    Attributes:
        state: a letter of proc(5): Z for one that was not reaped.
        command: its words.
        role: ``runner`` of a job, ``worker`` or ``guardian`` of a runner's; ``other`` else.
    """

    pid: int
    parent: int
    state: str
    command: str
    role: str = "other"


class Scene:
    """The machine, and the daemon on it. A context manager.

    Args:
        folder: empty.
        devices: that are tuned on.
        settings: further tables of ``daemon.toml``.
        disk: give the database a small disk of its own, where this user may.
        bare: play neither GPU nor time in the daemon's processes, so that they weigh what they weigh.
    """

    def __init__(
        self,
        folder: Path,
        devices: Sequence[str] = (MODELLED, PLAYED),
        settings: str = ASKED_ONLY,
        *,
        disk: bool = False,
        bare: bool = False,
    ) -> None:
        self.folder = folder
        self.socket = folder / "sock"
        self.disk = folder / "disk"
        self.state = self.disk / "state"
        self.database = self.state / "tuner.db"
        self.log = folder / "log"
        self.starts = 0
        self.refusal = folder / "threads"
        self.own_disk = False
        self._wants_disk = disk
        self._bare = bare
        self._settings = settings
        self.devices = devices
        self._stack = contextlib.ExitStack()
        self._daemon: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Scene":  # noqa: PYI034 - typing.Self needs Python 3.11
        for name in ("disk", "run", "home", "hook", "cache"):
            (self.folder / name).mkdir(mode=0o700)
        self.refuse_threads(refused=False)
        hook = f"import sys\nsys.path.append({str(_HERE)!r})\nimport daemon_hook\ndaemon_hook.install()\n"
        (self.folder / "hook/sitecustomize.py").write_text(hook)
        self.nvml: State = self._stack.enter_context(fake_nvml(self.folder))
        play(self.nvml)
        self.clocks = Clocks(self.folder / "time")
        self.write_settings(self._settings)
        self._mount()
        self.state.mkdir(mode=0o700)
        self._stack.callback(self.end)
        self._stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _leave))
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans come here to be counted
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def write_settings(self, more: str = "") -> None:
        """Write ``daemon.toml``."""
        devices = ", ".join(f'"{device}"' for device in self.devices)
        group = grp.getgrgid(os.getegid()).gr_name
        text = _SETTINGS.format(socket=self.socket, group=group, state=self.state, devices=devices)
        (self.folder / "daemon.toml").write_text(text + more)

    def _mount(self) -> None:
        if not self._wants_disk or os.geteuid():
            return
        options = ["-t", "tmpfs", "-o", f"size={_DISK_BYTES},mode=700", "tmpfs", str(self.disk)]
        if subprocess.run(["mount", *options], check=False, stderr=subprocess.DEVNULL).returncode == 0:
            self.own_disk = True
            self._stack.callback(subprocess.run, ["umount", "-l", str(self.disk)], check=False)

    # --- the daemon ----------------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """Of the daemon: nothing of this user's."""
        own = {
            "PLAYED_FOLDER": str(self.folder),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "XDG_CONFIG_HOME": str(self.folder / "home"),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "TUNER_SIMULATED_GPUS": str(self.folder / "gpus"),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        if self._bare:
            return {**os.environ, **own}
        played = {
            "PLAYED_NVML": library(),
            "LD_LIBRARY_PATH": str(Path(library()).parent),
            "LD_PRELOAD": f"{preloaded('faulty_time')}:{preloaded('faulty_threads')}",
            "FAULTY_TIME": str(self.clocks.path),
            "FAULTY_THREADS": str(self.refusal),
            "PYTHONPATH": os.pathsep.join((str(self.folder / "hook"), *_python_path())),
        }
        return {**os.environ, **own, **played}

    def start(self) -> None:
        """Start the daemon, and return when it says that it is ready.

        Raises:
            AssertionError: it is not in time, or has ended.
        """
        if not self.launch():
            said = self.log.read_text(errors="replace")[-4000:]
            status = None if self._daemon is None else self._daemon.poll()
            raise AssertionError(f"the daemon does not get ready ({status}): {said}")

    def launch(self) -> bool:
        """Start the daemon; whether it says that it is ready, or does its waiting with an open socket."""
        notices = self.folder / "notify"
        notices.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard, self.log.open("ab") as log:
            heard.bind(str(notices))
            heard.settimeout(_LOOK_S)
            command = [
                sys.executable,
                "-c",
                "from tuner.__main__ import main; main()",
                "daemon",
                "--foreground",
            ]
            self._daemon = subprocess.Popen(
                [*command, "--config", str(self.folder / "daemon.toml")],
                env={**self.environment(), "NOTIFY_SOCKET": str(notices)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            self.starts += 1
            return self.until(lambda: self._ready(heard)) and self._daemon.poll() is None

    def _ready(self, heard: socket.socket) -> bool:
        """True when there is nothing to wait for any more."""
        with contextlib.suppress(TimeoutError):
            return b"READY=1" in heard.recv(4096)
        return not self.alive()

    @property
    def pid(self) -> int:
        """Of the daemon; -1 before the first start."""
        return -1 if self._daemon is None else self._daemon.pid

    def alive(self) -> bool:
        """True while the daemon runs."""
        return self._daemon is not None and self._daemon.poll() is None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the daemon by a signal; its exit status."""
        assert self._daemon is not None
        self._daemon.send_signal(number)
        return self._daemon.wait(PATIENCE_S)

    def end(self) -> None:
        """Leave nothing running."""
        if self.alive():
            assert self._daemon is not None
            self._daemon.kill()
            self._daemon.wait()
        self.sweep()

    def sweep(self) -> None:
        """Kill what the daemon left, as a service manager does with what is left of a service."""
        while left := [one for one in self.processes() if one.pid != self.pid]:
            for one in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)
            self.bury()
            time.sleep(_LOOK_S)

    def client(self, timeout_s: float = 10.0) -> Client:
        """Of the daemon's socket."""
        return Client(self.socket, timeout_s=timeout_s)

    # --- its processes -------------------------------------------------------------------------------

    def processes(self, role: str = "") -> list[Process]:
        """Those of the scene that live or were not reaped: the daemon and what it started, or one role."""
        table = dict(_processes())
        mark = f"PLAYED_FOLDER={self.folder}".encode()
        known = {pid for pid in table if pid == self.pid or _marked(pid, mark)}
        known |= {pid for pid, one in table.items() if one.state == "Z" and one.parent in known}
        if not self.alive():
            known.discard(self.pid)
        found = [replace(table[pid], role=_role(table[pid], table)) for pid in sorted(known)]
        return [one for one in found if role in ("", one.role)]

    def bury(self) -> None:
        """Reap orphans that came here and have ended."""
        for pid, one in _processes():
            if one.parent == os.getpid() and one.state == "Z" and pid != self.pid:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    # --- what must stay true ---------------------------------------------------------------------------

    def until(self, reached: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
        """Look until it is so; False if it is not in time."""
        deadline_s = time.monotonic() + patience_s
        while not reached():
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_LOOK_S)
        return True

    def clock_set(self) -> bool:
        """True while a clock of the played GPU is not as it was found."""
        return bool(self.nvml.locked_max_mhz)

    def journals(self) -> int:
        """Entries of clocks that are to be given back."""
        return sum(path.suffix != ".lock" for path in (self.folder / "run").rglob("nvml-*"))

    def trials(self) -> Mapping[tuple[int, int], str]:
        """Trials that are stored, by run and number; nothing while they cannot be read."""
        return {
            (run, number): text for (table, run, number), text in self.stored().items() if table == "trials"
        }

    def stored(self) -> Mapping[tuple[str, int, int], str]:
        """What is stored and never changes, by table and key; nothing while it cannot be read."""
        with contextlib.suppress(sqlite3.Error), self.reading() as database:
            return {
                (table, number, second): text
                for table, query in _LASTING.items()
                for number, second, text in database.execute(query)
            }
        return {}

    def put_right(self) -> None:
        """Have the database looked at whole, as whoever opens it next and meets damage does."""
        with Database(self.database) as database:
            database.examine()

    def twice(self) -> int:
        """Trials that a job has measured and stored more than once."""
        query = (
            "SELECT count(*) FROM (SELECT 1 FROM trials JOIN runs ON runs.id = run_id"
            " WHERE job_id IS NOT NULL GROUP BY job_id, trial HAVING count(*) > 1)"
        )
        with self.reading() as database:
            return int(database.execute(query).fetchone()[0])

    def refuse_threads(self, *, refused: bool) -> None:
        """Let no thread and no process begin in what the daemon consists of, or let them again."""
        with self.refusal.open("r+b" if self.refusal.exists() else "wb") as file:  # it is mapped
            file.write(bytes([refused]))

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The database, to look into."""
        with contextlib.closing(
            sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=PATIENCE_S)
        ) as database:
            yield database

    def rest_gpu(self) -> None:
        """Forget the played power of the past, of which there is room for a thousand windows."""
        if self.nvml.segment_count > len(self.nvml.segments) // 2:
            last = self.nvml.segments[self.nvml.segment_count - 1]
            self.nvml.segments[0].start_us, self.nvml.segments[0].milliwatts = last.start_us, last.milliwatts
            self.nvml.segment_count = 1


def _leave(*_: object) -> None:
    """Told to end, whoever plays the machine leaves nothing of it running."""
    raise SystemExit(1)


def _python_path() -> list[str]:
    return [word for word in os.environ.get("PYTHONPATH", "").split(os.pathsep) if word]


def _processes() -> Iterator[tuple[int, Process]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):  # gone meanwhile
                state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                yield int(folder.name), Process(int(folder.name), int(parent), state, command)


def _role(one: Process, table: Mapping[int, Process]) -> str:
    parent = table.get(one.parent)
    if parent is not None and _LAUNCHER in one.command and _LAUNCHER in parent.command:
        return "runner"
    if _CHILD in one.command and parent is not None and _role(parent, table) == "runner":
        return "worker"
    return next((role for role, text in _ROLES.items() if text in one.command), "other")


def _marked(pid: int, mark: bytes) -> bool:
    with contextlib.suppress(OSError):
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


@functools.cache
def preloaded(name: str) -> str:
    """Path of a compiled C file of this folder; the test is skipped where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip(f"no C compiler to build {name}.c with")
    target = Path(tempfile.mkdtemp(prefix=f"{name}-")) / f"{name}.so"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", str(target), str(_HERE / f"{name}.c"), "-ldl"], check=True)
    return str(target)
