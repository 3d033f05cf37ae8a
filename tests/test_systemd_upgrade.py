"""Upgrades of the service under a real systemd: `pytest -m systemd` as root."""

import random
import re
import subprocess
from pathlib import Path

import pytest
import throwaway_program
from daemon_site import SERVICE, Site, marks, site
from upgrade_kills import (
    BROKEN,
    NEW,
    OLD,
    STATE,
    VERSIONS,
    back_to_old,
    in_force,
    install_service,
    kill_once,
    migrations,
    programs,
)

pytestmark = marks

__all__ = ["site"]  # a fixture


@pytest.fixture(scope="module", autouse=True)
def _programs(site: Site) -> None:
    programs(site)


@pytest.fixture(autouse=True)
def _old(site: Site) -> None:
    site.ready()
    back_to_old(site)


def test_another_program_takes_over(site: Site) -> None:
    """Jobs and settings stay; the database is migrated, and the one of before kept."""
    job = site.client.submit("scan-lf:N=4", device="sim:jetson-tx1", policy="random", budget=1)
    before = migrations(site)
    done = install_service(site, NEW, "--upgrade")

    assert done.returncode == 0, done.stdout + done.stderr
    assert in_force(site) == VERSIONS[NEW]
    assert migrations(site) == before + 1
    assert site.client.job(job.id).id == job.id
    assert site.machine.path(f"{STATE}/before-upgrade.db").exists()
    assert not site.machine.path("/etc/tuner/upgrade.json").exists()
    assert NEW in site.machine.path("/usr/local/bin/tuner").read_text()
    owner = site.machine.run("find", STATE, "!", "-user", "tuner").stdout
    assert owner == ""


def test_a_program_that_does_not_become_ready_is_given_up(site: Site) -> None:
    """The old one is in force again with its database, and what the other made of it is kept aside."""
    job = site.client.submit("scan-lf:N=4", device="sim:jetson-tx1", policy="random", budget=1)
    before = migrations(site)
    done = install_service(site, BROKEN, "--upgrade")

    assert done.returncode != 0
    assert "no device is known; the program of before is in force again" in done.stderr
    assert in_force(site) == VERSIONS[OLD]
    assert migrations(site) == before
    assert site.client.job(job.id).id == job.id
    assert site.machine.path(f"{STATE}/after-upgrade.db").exists()
    assert not site.machine.path("/etc/tuner/upgrade.json").exists()


def test_the_way_down_is_told_and_goes(site: Site) -> None:
    """The old program refuses a migrated database, and stops nothing; the backup it names is the way."""
    assert install_service(site, NEW, "--upgrade").returncode == 0
    pid = site.ready()
    for words in (("--upgrade",), (), ("--dry-run",)):
        refused = install_service(site, OLD, *words)
        assert refused.returncode != 0
        assert f"is of a newer tuner than {OLD} (migrations of-another)" in refused.stderr
        assert site.ready() == pid
    back_to_old(site)  # by the commands of that message
    assert in_force(site) == VERSIONS[OLD]


def test_two_upgrades_at_once_are_refused(site: Site) -> None:
    """The second is told so and changes nothing; the first goes to its end."""
    where = site.machine.path("/etc/tuner")
    with subprocess.Popen(["flock", where, "cat"], stdin=subprocess.PIPE) as first:
        refused = install_service(site, NEW, "--upgrade")
        while refused.returncode == 0:  # flock begins just now
            back_to_old(site)
            refused = install_service(site, NEW, "--upgrade")
        assert first.stdin is not None
        first.stdin.close()

    assert "another install-service is under way" in refused.stderr
    assert in_force(site) == VERSIONS[OLD]


def test_what_cannot_be_upgraded_is_refused(site: Site) -> None:
    """The same program, and settings that are wrong: nothing is stopped, and the message says why."""
    pid = site.ready()
    same = install_service(site, OLD, "--upgrade")
    assert same.returncode == 2
    assert "is the program of the service already" in same.stderr
    assert site.ready() == pid
    settings = site.machine.path("/etc/tuner/daemon.toml")
    right = settings.read_text()
    settings.write_text(f"{right}\n[tunning]\n")
    try:
        wrong = install_service(site, NEW, "--upgrade")
    finally:
        settings.write_text(right)
    assert wrong.returncode == 2
    assert "[tunning]" in wrong.stderr
    assert site.ready() == pid


def test_killed_anywhere_old_or_new_is_in_force(site: Site) -> None:
    """Killed at random instants: the daemon answers, no acknowledged job is lost, a second call ends it."""
    rng = random.Random(55)  # noqa: S311 - no secrets
    for _ in range(3):
        back_to_old(site)
        assert kill_once(site, rng, longest_s=8.0)["fault"] == ""
    assert site.show("Result", SERVICE) == "success"


def test_the_page_on_running_it_as_it_stands(site: Site) -> None:
    """Every command of docs/howto/running.md runs, in its order; only the package index is not there.

    The environments that its first and its newer wheel would make are there already.
    """
    page = (Path(__file__).parent.parent / "docs/howto/running.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    root, wheels = site.machine.root, "#!/bin/sh\nexit 0\n"
    shims = {"usr/local/sbin/sudo": '#!/bin/sh\nexec "$@"\n', "usr/local/sbin/python3": wheels}
    for name, text in (shims | {f"{prefix[1:]}/bin/pip": wheels for prefix in (OLD, NEW)}).items():
        (root / name).write_text(text)
        (root / name).chmod(0o755)
    site.machine.run("useradd", "ada")
    site.machine.run("systemctl", "reset-failed")
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    words = ("env", f"LD_LIBRARY_PATH={throwaway_program.LIBRARY_PATH}", f"PATH={path}", "bash", "-ec")
    versions = []
    for block in blocks:
        done = site.machine.run(*words, block, check=False)
        assert done.returncode == 0, f"{block}{done.stdout}{done.stderr}{site.journal()}"
        if "install-service" in block and "--uninstall" not in block:
            versions.append(in_force(site))

    assert versions == [VERSIONS[OLD], VERSIONS[NEW], VERSIONS[OLD]]
    assert not (root / "etc/tuner").exists()
    assert not (root / OLD[1:]).exists()
