"""Upgrades of the service on a throw-away machine, killed at random instants."""

import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import throwaway_program
from daemon_site import SERVICE, SOCKET, Site, until

from tuner.model.errors import TunerError

OLD, NEW, BROKEN = throwaway_program.PREFIX, "/opt/tuner-new", "/opt/tuner-broken"
VERSIONS = {OLD: "0.2.0", NEW: "9.1.0", BROKEN: "9.2.0"}
STATE = "/var/lib/tuner"
_END_OF_MIGRATIONS = "\n)\n"
_ANOTHER = '\n    ("of-another", ("CREATE TABLE of_another (id INTEGER PRIMARY KEY)",)),\n)\n'


def programs(site: Site) -> None:
    """Put two later versions beside the service's: both migrate the database, and one is never ready."""
    for prefix in (NEW, BROKEN):
        edits = {
            "model/version.py": (VERSIONS[OLD], VERSIONS[prefix]),
            "database/migrations.py": (_END_OF_MIGRATIONS, _ANOTHER),
        }
        if prefix == BROKEN:
            edits["daemon/main.py"] = ("dict(survey.identities),", "{},")  # as a driver that it does not know
            edits["daemon/installing/upgrade.py"] = ("_READY_S = 120.0", "_READY_S = 3.0")
        throwaway_program.put_another(site.machine.root, prefix, edits)


def install_service(site: Site, prefix: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run ``install-service`` of a program."""
    return site.machine.run(*_command(prefix, *words), check=False)


def _command(prefix: str, *words: str) -> list[str]:
    where = f"LD_LIBRARY_PATH={throwaway_program.LIBRARY_PATH}"
    return ["env", where, f"{prefix}/bin/tuner", "install-service", *words]


def in_force(site: Site) -> str:
    """Version of the daemon that answers, which a client starts where none runs."""
    until(lambda: _version(site) != "", "an answer of the daemon")
    return _version(site)


def _version(site: Site) -> str:
    with suppress(TunerError):
        return str(site.client.status()["version"])
    return ""


def migrations(site: Site) -> int:
    """How many migrations made the daemon's database."""
    return int(str(site.rows("SELECT count(*) FROM migrations")[0][0]))


@dataclass
class Crowd:
    """Clients that submit jobs all the time; what was acknowledged must stay.

    Attributes:
        acknowledged: numbers of jobs.
    """

    site: Site
    acknowledged: list[int] = field(default_factory=list)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Submit during the block."""
        over = threading.Event()
        thread = threading.Thread(target=self._ask, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _ask(self, over: threading.Event) -> None:
        while not over.wait(0.3):
            with suppress(TunerError):
                job = self.site.client.submit(
                    "scan-lf:N=4", device="sim:jetson-tx1", policy="random", budget=1
                )
                self.acknowledged.append(job.id)

    def lost(self) -> list[int]:
        """Numbers of acknowledged jobs that are not stored."""
        there = {number for (number,) in self.site.rows("SELECT id FROM jobs")}
        return [number for number in self.acknowledged if number not in there]


def back_to_old(site: Site) -> None:
    """Have the old program with a database of its version in force, as an administrator would."""
    if _version(site) == VERSIONS[OLD] and migrations(site) == _known(site):
        return
    site.machine.run("systemctl", "stop", SERVICE)
    backup, database = f"{STATE}/before-upgrade.db", f"{STATE}/tuner.db"
    done = site.machine.run(
        *_command(OLD)[:-1], "db", "restore", backup, "--database", database, "--replace", check=False
    )
    assert done.returncode == 0, done.stderr
    done = install_service(site, OLD)
    assert done.returncode == 0, done.stderr


def _known(site: Site) -> int:
    del site
    from tuner.database.migrations import MIGRATIONS  # noqa: PLC0415 - only here

    return len(MIGRATIONS)


def kill_once(site: Site, rng: random.Random, longest_s: float) -> dict[str, Any]:
    """Kill one upgrade, look at what is in force, and end it by another call.

    Args:
        site: with the old program in force.
        rng: decides which program, and when.
        longest_s: the latest instant of a kill, in seconds from the first step.

    Returns:
        What was done and found; ``fault`` is empty where all was as it must be.
    """
    target = rng.choice((NEW, NEW, BROKEN))
    after_s = rng.uniform(0.0, longest_s)
    crowd = Crowd(site)
    with crowd.asking():
        process = subprocess.Popen(
            site.machine.command(*_command(target, "--upgrade")),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        first = process.stdout.readline()  # before it, the upgrade only looks
        begun_s = time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        ended = process.poll() is not None
        site.machine.run("pkill", "--signal", "KILL", "--full", "install-service --upgrade", check=False)
        said = first + process.communicate()[0]
        killed_s = time.monotonic() - begun_s
        found = in_force(site)
        made = migrations(site)
    faults = []
    if found not in (VERSIONS[OLD], VERSIONS[target]):
        faults.append(f"{found} in force")
    if (found == VERSIONS[OLD]) != (made == _known(site)):
        faults.append(f"{found} with a database of {made} migrations")
    if lost := crowd.lost():
        faults.append(f"lost jobs {lost}")
    again = install_service(site, target, "--upgrade")
    last = in_force(site)
    right = OLD if target == BROKEN else NEW
    if last != VERSIONS[right]:
        faults.append(f"{last} after the second call: {again.stdout}{again.stderr}")
    if lost := crowd.lost():
        faults.append(f"lost jobs {lost} after the second call")
    if site.machine.path("/etc/tuner/upgrade.json").exists():
        faults.append("a journal is left")
    if site.show("ActiveState", SOCKET) != "active":
        faults.append("the socket is closed")
    return {
        "target": VERSIONS[target],
        "killed_after_s": round(killed_s, 3),
        "ended_before": ended,
        "last_step": said.strip().splitlines()[-1] if said.strip() else "",
        "in_force": found,
        "acknowledged": len(crowd.acknowledged),
        "fault": "; ".join(faults),
    }
