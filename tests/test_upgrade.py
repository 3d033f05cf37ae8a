"""Another program in the place of the service's: wherever it ends, the files of one of both are there."""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from cli_process import tuner

from tuner.daemon.installing import steps, upgrade
from tuner.daemon.installing.steps import Site, Step
from tuner.database.connection import Database
from tuner.database.integrity.copy_state import inspected
from tuner.database.jobs import Jobs
from tuner.database.migrations import MIGRATIONS
from tuner.model.errors import InputError, InstallError
from tuner.model.jobs import JobSpec, Origin
from tuner.system.ownership import StateLock

OLD, NEW = Path("/opt/tuner"), Path("/opt/tuner-2")


class Machine:
    """A user's part of a machine with the old program installed, a database, and a systemd that only listens.

    Args:
        folder: empty.
    """

    def __init__(self, folder: Path) -> None:
        self.config, self.state = folder / "config", folder / "state"
        self.commands: list[str] = []
        self.reasons: list[str] = []  # that the daemon is not ready, in turn; then it is
        self.held = ExitStack()
        self.stopped: Callable[[], None] = lambda: None  # at the second stop
        self.do(steps.install(self.site(OLD), self.run))
        with Database(self.state / "tuner.db"):
            pass

    def site(self, prefix: Path) -> Site:
        return Site(prefix, config=self.config)

    def run(self, command: Sequence[str]) -> None:
        self.commands.append(" ".join(command))
        if sum("stop" in each for each in self.commands) == 2:
            self.stopped()

    def ready(self, within_s: float) -> str:
        del within_s
        return self.reasons.pop(0) if self.reasons else ""

    def do(self, order: Sequence[Step]) -> None:
        for step in order:
            step.action()

    def upgrade(self, prefix: Path = NEW) -> list[Step]:
        return upgrade.upgrade(self.site(prefix), self.state, self.held, self.run, self.ready)

    def tree(self) -> dict[str, str]:
        return {str(path): path.read_text() for path in sorted(self.config.rglob("*")) if path.is_file()}

    def runs(self, prefix: Path) -> bool:
        """Whether exactly the files of a program are there."""
        listed = str(self.config / "tuner" / steps.NAME)
        expected = {str(item.path): item.text for item in self.site(prefix).items()}
        return {**self.tree(), listed: ""} == {**expected, listed: ""}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path)
    yield found
    found.held.close()


def test_the_other_program_takes_over(machine: Machine) -> None:
    """Stopped first, started last, with a backup in between; the journal goes."""
    machine.commands.clear()
    machine.do(machine.upgrade())

    assert machine.runs(NEW)
    assert (machine.state / upgrade.BACKUP).exists()
    assert machine.commands == [
        "systemctl --user stop tuner.service tuner-clockd.service",
        "systemctl --user daemon-reload",
        "systemctl --user stop tuner.service tuner-clockd.service",
        "systemctl --user enable --now tuner.socket tuner.service",
    ]
    assert upgrade.unfinished(machine.site(NEW), machine.held, machine.run, machine.ready) == []


class WholeMachine(Machine):
    """The same for all users of a machine, or rather of the image of one."""

    def site(self, prefix: Path) -> Site:
        return Site(prefix, root=self.config)


def test_workers_of_a_pool_go_with_the_program(tmp_path: Path) -> None:
    """Those that run are started again, by the new program as on the way back by the old one."""
    machine = WholeMachine(tmp_path)
    again = f"systemctl --root={machine.config} try-restart tuner-worker@*.service"
    machine.do(machine.upgrade()[:-1])
    assert machine.commands[-1] == again
    machine.held.close()
    machine.commands.clear()
    machine.do(upgrade.back(machine.site(NEW), machine.held, machine.run))
    assert machine.commands[-1] == again


STEPS = 14  # at least as many as an upgrade has


@pytest.mark.parametrize("after", range(STEPS))
def test_killed_after_any_step_the_next_call_ends_it(machine: Machine, after: int) -> None:
    """Behind the writing of the last unit it goes forward, else back: there is never a mixture."""
    order = machine.upgrade()
    assert len(order) <= STEPS
    machine.do(order[:after])
    machine.held.close()  # as the kernel does
    unit = (machine.config / "systemd/user/tuner.service").read_text()
    machine.do(upgrade.unfinished(machine.site(NEW), machine.held, machine.run, machine.ready))

    assert machine.runs(NEW if f"{NEW}/bin" in unit else OLD)


@pytest.mark.parametrize("after", range(STEPS))
def test_a_failure_at_any_step_leads_back(machine: Machine, after: int) -> None:
    """All that was written is as it was before, and nothing of the journal is left."""
    machine.do(machine.upgrade()[:after])
    if not (machine.config / "tuner" / steps.JOURNAL).exists():  # not begun, or at its end
        return
    machine.held.close()
    machine.do(upgrade.back(machine.site(NEW), machine.held, machine.run))

    assert machine.runs(OLD)
    assert machine.commands[-1] == "systemctl --user enable --now tuner.socket tuner.service"


def test_one_that_does_not_become_ready_says_why(machine: Machine) -> None:
    """The reason of the daemon is that of the failure."""
    machine.reasons = ["", "the database: it is on fire"]
    with pytest.raises(InstallError, match="does not become ready within 120 s: the database: it is on fire"):
        machine.do(machine.upgrade())


def test_a_migrated_database_is_put_back(machine: Machine) -> None:
    """The way back has the database of before; what it had become is kept beside it, and is told."""
    database = machine.state / "tuner.db"
    for path in machine.state.iterdir():
        path.unlink()
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE migrations (name TEXT PRIMARY KEY, applied TEXT)")
        for name, statements in MIGRATIONS[:4]:
            for statement in statements:
                connection.execute(statement)
            connection.execute("INSERT INTO migrations VALUES (?, '')", (name,))
    machine.do(machine.upgrade()[:-2])  # until the daemon has started
    with Database(database) as migrated:
        Jobs(migrated).add(JobSpec(("scan-lf:N=4",)), origin=Origin.CLIENT)
    lock = StateLock(machine.state)  # a client was quicker than the first stop
    machine.commands.clear()
    machine.stopped = lock.close
    told = [step.action() for step in upgrade.back(machine.site(NEW), machine.held, machine.run)]

    assert machine.runs(OLD)
    aside = machine.state / upgrade.ASIDE
    assert inspected(aside).changes == len(MIGRATIONS)
    assert inspected(database).changes == 4
    (said,) = filter(None, told)
    assert f"{NEW} had stored 1 jobs (jobs 1, whose numbers are given again), which are in {aside}" in said
    (way,) = re.findall(f"`{NEW}/bin/tuner (db restore [^`]*)`", said)
    assert tuner(*way.split()).exit_code == 0
    with Database(database) as restored:
        assert [job.id for job in Jobs(restored).jobs()] == [1]


def test_a_client_that_was_quicker_is_stopped_again(machine: Machine) -> None:
    """A daemon that was started between the stop and the backup is stopped once more."""
    lock = StateLock(machine.state)
    machine.stopped = lock.close
    machine.do(machine.upgrade())

    assert machine.runs(NEW)
    assert sum("stop" in command for command in machine.commands) == 3


def unready(machine: Machine) -> None:
    machine.reasons = ["no device is known"]


def unread(machine: Machine) -> None:
    (machine.config / "tuner" / steps.NAME).write_text("{")


@pytest.mark.parametrize(
    ("prefix", "make", "kind", "says"),
    [
        (OLD, lambda _: None, InputError, "/opt/tuner: is the program of the service already"),
        (NEW, unready, InputError, "not ready before the upgrade: no device is known; mend that first"),
        (NEW, unread, InstallError, "installed.json: the list of installed files cannot be read"),
    ],
)
def test_what_cannot_be_upgraded_is_refused(
    machine: Machine, prefix: Path, make: Callable[[Machine], None], kind: type[Exception], says: str
) -> None:
    """Before anything is stopped or written, and the message says what would be right."""
    make(machine)
    machine.commands.clear()
    with pytest.raises(kind, match=says):
        machine.upgrade(prefix)
    assert machine.commands == []


def test_nothing_installed_is_no_upgrade(tmp_path: Path) -> None:
    """The message says what installs."""
    with pytest.raises(InputError, match="nothing is installed: leave out --upgrade"):
        upgrade.upgrade(Site(NEW, config=tmp_path), tmp_path, ExitStack())


def test_a_damaged_journal_is_not_guessed_at(machine: Machine) -> None:
    """Nothing is done, and the message names the file."""
    (machine.config / "tuner" / steps.JOURNAL).write_text(json.dumps({"before": "/opt/tuner"}))
    with pytest.raises(InstallError, match=r"upgrade\.json: the journal of an upgrade cannot be read"):
        upgrade.unfinished(machine.site(NEW), machine.held)


def test_two_installations_at_once_are_refused(machine: Machine) -> None:
    """The second is told so, and may when the first has ended."""
    site = machine.site(NEW)
    with (
        upgrade.alone(site),
        pytest.raises(InputError, match="another install-service is under way"),
        upgrade.alone(site),
    ):
        pass
    with upgrade.alone(site):
        pass


@pytest.mark.parametrize("words", [("--uninstall",), ("--user",), ("--root", "/tmp")])  # noqa: S108 - never written
def test_options_that_do_not_fit_are_refused(words: tuple[str, ...]) -> None:
    """An upgrade is of this machine's service."""
    result = tuner("install-service", "--upgrade", *words)

    assert result.exit_code == 2
    assert "--upgrade" in result.output
