"""A throw-away machine with the service installed by its command."""

import sqlite3
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import throwaway_program
import throwaway_systemd
from fake_nvml_state import State, fake_nvml, library
from throwaway_systemd import Machine, booted, limits_in_force, overlay

from tuner.client import Client
from tuner.kernel_files.trust import trusted
from tuner.model.errors import InputError

marks = [
    pytest.mark.systemd,
    pytest.mark.skipif(bool(throwaway_systemd.why_not()), reason=throwaway_systemd.why_not() or "-"),
]

SERVICE, SOCKET, HELPER = "tuner.service", "tuner.socket", "tuner-clockd.service"
TUNER = f"{throwaway_program.PREFIX}/bin/tuner"
LONGEST_S = 60.0  # what systemd and the daemon need on a busy machine
FAKE = (
    f"Environment=LD_LIBRARY_PATH=/opt/fake:{throwaway_program.LIBRARY_PATH} FAKE_NVML_STATE=/srv/nvml-state"
)
# Only what a test needs: where the interpreter's library is, and a watchdog and a restart one can wait for.
DROP_IN = (
    f"[Service]\nEnvironment=LD_LIBRARY_PATH={throwaway_program.LIBRARY_PATH}\nWatchdogSec=5\nRestartSec=1\n"
)
HELPER_DROP_IN = f"[Service]\n{FAKE}\nReadWritePaths=/srv\nRestart=no\n"


# Accounts, which are named as kept; and commands that tests put.
_KEPT = ("etc/passwd", "etc/shadow", "etc/group", "etc/gshadow", "etc/.pwd.lock", "etc/.#", "usr/local/sbin")
_PLACES = ("etc/", "opt/", "usr/")  # elsewhere, what has our name: services of the machine write, too


@dataclass
class Site:
    """A machine with the service installed; ``before`` is what ``written`` was before that."""

    machine: Machine
    nvml: State
    said: str
    before: set[str]

    def written(self) -> set[str]:
        """Files of the machine's own layer, and what has our name, without accounts."""
        up = self.machine.root.parent / "up"
        names = {str(path.relative_to(up)): path for path in up.rglob("*")}
        return {
            name
            for name, path in names.items()
            if ("tuner" in name or (name.startswith(_PLACES) and not path.is_dir()))
            and not name.startswith(_KEPT)
        }

    @property
    def client(self) -> Client:
        return Client(self.machine.path("/run/tuner/tunerd.sock"), timeout_s=LONGEST_S)

    def show(self, name: str, unit: str = SERVICE) -> str:
        return self.machine.show(unit, name)

    def tuner(self, *words: str, **environment: str) -> str:
        environment["LD_LIBRARY_PATH"] = throwaway_program.LIBRARY_PATH
        given = [f"{name}={value}" for name, value in environment.items()]
        done = self.machine.run("env", *given, TUNER, *words, check=False)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}{self.journal()}"
        return done.stdout

    def journal(self) -> str:
        return self.machine.run("journalctl", "--no-pager", "-u", SERVICE).stdout

    def ready(self) -> int:
        """The main process, once the service is active."""
        until(lambda: self.show("ActiveState") == "active", "the start of the daemon")
        return int(self.show("MainPID"))

    def rows(self, question: str, *values: object) -> list[tuple[object, ...]]:
        """Answers of the daemon's database, read from outside."""
        path = self.machine.root / "var/lib/tuner/tuner.db"  # SQLite follows no /proc root
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            return connection.execute(question, values).fetchall()


def until(happened: Callable[[], bool], what: str, longest_s: float = LONGEST_S) -> None:
    """Wait for what systemd or the daemon does in its own time."""
    for _ in range(int(longest_s / 0.05)):
        if happened():
            return
        threading.Event().wait(0.05)
    pytest.fail(f"{what} did not happen within {longest_s:g} s")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with with_service(tmp_path_factory.mktemp("site")) as site:
        yield site


@contextmanager
def with_service(folder: Path, *, limits: bool = False) -> Iterator[Site]:
    """A machine whose service is installed.

    Args:
        folder: empty.
        limits: have those of the units in force, too.
    """
    try:  # the machine sees it below a directory of root
        stdlib = Path(sysconfig.get_path("stdlib"))
        trusted(stdlib, {0}, below=stdlib, most=1_000_000)
    except InputError as error:
        pytest.skip(f"the installer would refuse this interpreter: {error}")
    shared, layers = folder / "srv", folder / "machine"
    for path in (shared, layers):
        path.mkdir(mode=0o755)
    with ExitStack() as stack:
        nvml = stack.enter_context(fake_nvml(shared))
        root = stack.enter_context(overlay(layers))
        throwaway_program.put(root)
        (root / "opt/fake").mkdir()
        (root / "opt/fake" / Path(library()).name).write_bytes(Path(library()).read_bytes())
        for unit, text in ((SERVICE, DROP_IN), (HELPER, HELPER_DROP_IN)):
            drop_ins = root / f"etc/systemd/system/{unit}.d"
            drop_ins.mkdir()
            (drop_ins / "test.conf").write_text(text)
        machine = stack.enter_context(booted(root, shared))
        if limits:
            stack.enter_context(limits_in_force(machine))
        site = Site(machine, nvml, "", set())
        site.before = site.written()
        site.said = site.tuner("install-service")
        settings = machine.path("/etc/tuner/daemon.toml")
        settings.write_text(settings.read_text().replace("calm_s = 10.0", "calm_s = 0.0"))
        machine.run("systemctl", "reload", SERVICE)
        yield site
