"""The helper under a real systemd, sandbox and all, with a fake NVML: `pytest -m systemd` as root."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import throwaway_systemd
from daemon_site import until
from fake_nvml_state import UUID, State, fake_nvml, library
from helper_kills import leased
from throwaway_systemd import Machine, booted, overlay
from tuner.power.clocks.actuator import ClockPaths
from tuner.power.clocks.clockd_client import helper_answers
from tuner.power.clocks.control import LeasedClocks, restore_stale

from tuner.model.errors import ClockError
from tuner.system.ownership import boot_id

pytestmark = [
    pytest.mark.systemd,
    pytest.mark.skipif(bool(throwaway_systemd.why_not()), reason=throwaway_systemd.why_not() or "-"),
]

ROOT = Path(__file__).parent.parent
SERVICE = "tuner-clockd.service"
LONGEST_S = 60.0  # what systemd needs on a busy machine
PROGRAM = f"""#!{throwaway_systemd.python()}
import sys
sys.path.insert(0, "/opt/tuner/lib")
from tuner.power.clocks.clockd import main
sys.exit(main())
"""
# Only what a test needs: where its fake GPU is, a watchdog one can wait for, and no restart, so that what
# restores after a kill is ExecStopPost and no new helper.
DROP_IN = """[Service]
Environment=LD_LIBRARY_PATH=/opt/tuner/fake:/opt/python/lib FAKE_NVML_STATE=/srv/nvml-state
ReadWritePaths=/srv
WatchdogSec=2
TimeoutAbortSec=1
Restart=no
"""
# The commands of docs/clocks.md
INSTALL = (
    "systemd-sysusers",
    "systemd-tmpfiles --create --prefix=/run/tuner",
    "systemctl daemon-reload",
    "systemctl enable --now tuner-clockd.socket",
)
ASK = """import sys
sys.path.insert(0, "/opt/tuner/lib")
from tuner.power.clocks.clockd_client import helper_answers
from tuner.power.clocks.control import restore_stale
print(helper_answers())
"""

# Holds a clock of its own, in a container that shares nothing but the runtime directory.
HOLD = """import signal
from pathlib import Path
from tuner.power.clocks.actuator import ClockPaths
from tuner.power.clocks.control import open_control
nothing = Path("/srv/nothing")
where = ClockPaths("/opt/tuner/fake/LIBRARY", nothing, nothing, Path("/srv/run"), nothing)
with open_control("UUID", where).locked(900):
    signal.pause()
""".replace("LIBRARY", Path(library()).name).replace("UUID", UUID)


@dataclass
class Site:
    """A machine with the helper installed, the GPU it sets, and how a client here reaches both."""

    machine: Machine
    nvml: State
    where: ClockPaths

    def clocks(self) -> "closing[LeasedClocks]":
        return closing(leased(UUID, self.where))

    def held_during(self, action: Callable[[], object]) -> None:
        with self.clocks() as clocks, clocks.locked(900):
            assert self.nvml.locked_max_mhz == 900
            action()

    def journals(self) -> list[str]:
        return [path.name for path in self.machine.path("/run/tuner").glob("*.json")]


def install(root: Path) -> None:
    """Put program, fakes and units where they belong."""
    lib = root / "opt/tuner/lib"
    shutil.copytree(ROOT / "tuner", lib / "tuner")
    shutil.copytree(ROOT / "power", lib / "tuner/power")
    for module in ("pynvml", "tomli"):
        found = find_spec(module)
        if found is not None and found.origin is not None:
            source = Path(found.origin)
            if source.name == "__init__.py":
                shutil.copytree(source.parent, lib / module)
            else:
                shutil.copy(source, lib)
    program = root / "opt/tuner/bin/tuner-clockd"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    (root / "opt/tuner/fake").mkdir()
    shutil.copy(library(), root / "opt/tuner/fake")
    units = root / "etc/systemd/system"
    for name in (SERVICE, "tuner-clockd.socket"):
        shutil.copy(ROOT / "systemd" / name, units)
    for kind in ("sysusers", "tmpfiles"):
        folder = root / f"etc/{kind}.d"
        folder.mkdir(exist_ok=True)
        shutil.copy(ROOT / "systemd" / f"tuner.{kind}.conf", folder / "tuner.conf")
    (units / f"{SERVICE}.d").mkdir()
    (units / f"{SERVICE}.d/fake.conf").write_text(DROP_IN)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as stack:
        shared = tmp_path_factory.mktemp("srv")
        shared.chmod(0o755)
        nvml = stack.enter_context(fake_nvml(shared))
        root = stack.enter_context(overlay(tmp_path_factory.mktemp("machine")))
        install(root)
        machine = stack.enter_context(booted(root, shared))
        for line in INSTALL:
            machine.run(*line.split())
        nothing = shared / "nothing"
        yield Site(
            machine,
            nvml,
            ClockPaths(library(), nothing, nothing, socket=machine.path("/run/tuner/clockd.sock")),
        )


def test_the_first_client_starts_the_helper(site: Site) -> None:
    """The socket is there before the helper; whoever connects starts it, sets a clock and gives it back."""
    assert site.machine.show(SERVICE, "ActiveState") == "inactive"

    site.held_during(lambda: None)

    assert site.machine.show(SERVICE, "ActiveState") == "active"
    assert site.machine.show(SERVICE, "StatusText").startswith("GPUs held: ")
    assert site.nvml.locked_max_mhz == 0


def test_the_group_may_use_the_socket(site: Site) -> None:
    """A member of the group reaches the helper; another user does not, nor one who may ask the daemon."""
    group = site.machine.run("getent", "group", "tuner-clocks").stdout.split(":")[2]
    assert os.stat(site.where.socket).st_mode & 0o777 == 0o660  # noqa: PTH116 - Path.stat follows no /proc root
    assert str(os.stat(site.where.socket).st_gid) == group  # noqa: PTH116 - same

    for name, answer in ((group, "True"), ("tuner", "False"), ("nogroup", "False")):
        user = ("setpriv", "--reuid=nobody", f"--regid={name}", "--clear-groups")
        library_path = ("env", "LD_LIBRARY_PATH=/opt/python/lib")
        asked = site.machine.run(*user, *library_path, throwaway_systemd.python(), "-c", ASK)
        assert asked.stdout.strip() == answer


def test_a_killed_helper_is_cleaned_up_after(site: Site) -> None:
    """After SIGKILL ExecStopPost restores, the client trusts nothing of its block, and the next is served."""

    def kill() -> None:
        site.machine.run("systemctl", "kill", "--kill-who=main", "--signal=KILL", SERVICE)
        until(lambda: site.nvml.locked_max_mhz == 0, "the restore by ExecStopPost")

    with pytest.raises(ClockError, match="not held"):
        site.held_during(kill)
    assert site.machine.show(SERVICE, "Result") == "signal"
    assert site.journals() == []
    site.held_during(lambda: None)


def test_a_hanging_helper_is_ended(site: Site) -> None:
    """A loop that stops pinging is ended by the watchdog, and what it held is restored."""

    def stop() -> None:
        site.machine.run("systemctl", "kill", "--kill-who=main", "--signal=STOP", SERVICE)
        until(lambda: site.nvml.locked_max_mhz == 0, "the restore after the watchdog")

    with pytest.raises(ClockError, match="not held"):
        site.held_during(stop)
    until(lambda: site.machine.show(SERVICE, "ActiveState") == "failed", "the end of the helper")
    assert site.machine.show(SERVICE, "Result") == "watchdog"
    assert site.journals() == []


def test_stopping_the_service_restores(site: Site) -> None:
    """Stopping the service gives the clock back, and the next client starts the helper again."""
    with pytest.raises(ClockError, match="not held"):
        site.held_during(lambda: site.machine.run("systemctl", "stop", SERVICE))

    assert site.nvml.locked_max_mhz == 0
    assert site.machine.path("/run/tuner").is_dir()
    assert helper_answers(site.where.socket)


def test_a_stopped_container_leaves_no_clock_set(site: Site) -> None:
    """A container with a boot id of its own dies with run and guardian: the machine gives the clock back."""
    libraries = "LD_LIBRARY_PATH=/opt/tuner/fake:/opt/python/lib"
    environment = (libraries, "FAKE_NVML_STATE=/srv/nvml-state", "PYTHONPATH=/opt/tuner/lib")
    options = ("--unit=holder", *(f"--setenv={name}" for name in environment))
    site.machine.run("systemd-run", *options, throwaway_systemd.python(), "-c", HOLD)
    until(lambda: site.nvml.locked_max_mhz == 900, "the lock of the container")
    site.machine.run("systemctl", "kill", "--kill-who=all", "--signal=KILL", "holder")
    until(lambda: site.machine.show("holder", "ActiveState") in {"failed", "inactive"}, "its end")
    assert site.nvml.locked_max_mhz == 900
    assert site.machine.run("cat", "/proc/sys/kernel/random/boot_id").stdout.strip() != boot_id()

    directory = site.where.config.parent / "run"
    (outcome,) = restore_stale(replace(site.where, directory=directory))
    assert (outcome.state, site.nvml.locked_max_mhz) == ("restored", 0)
    assert "another boot id" in outcome.details[0]
    assert list(directory.glob("*.json")) == []


def test_the_helper_cannot_do_more_than_it_needs(site: Site) -> None:
    """Inside its sandbox there are no homes, no writable system, and nothing but one capability."""
    pid = site.machine.show(SERVICE, "MainPID")
    status = site.machine.run("cat", f"/proc/{pid}/status").stdout
    bounding = next(line.split()[1] for line in status.splitlines() if line.startswith("CapBnd"))

    assert int(bounding, 16) == 1 << 21  # CAP_SYS_ADMIN
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status
    mounts = site.machine.run("cat", f"/proc/{pid}/mounts").stdout.splitlines()
    assert next(line for line in mounts if line.split()[1] == "/").split()[3].startswith("ro")


@pytest.mark.parametrize(("group", "members"), [("tuner", ""), ("tuner-clocks", "tuner,tuner-worker")])
def test_nobody_but_the_daemon_is_in_a_group_by_itself(site: Site, group: str, members: str) -> None:
    """Installing lets nobody ask the daemon, and none but the daemon and workers of pools set clocks."""
    assert site.machine.run("getent", "group", group).stdout.strip().split(":")[3] == members
