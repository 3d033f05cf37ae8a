"""The service under a real systemd where something is wrong: it tells so, and goes on when that is mended."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from daemon_site import HELPER, SERVICE, SOCKET, Site, marks, site, until

from tuner.daemon.settings_file import NAME
from tuner.model.errors import DaemonAbsentError, DaemonUnavailableError, TunerError

__all__ = ["site"]  # a fixture
pytestmark = marks

STATE = "/var/lib/tuner"
CLIENTS = 20


@contextmanager
def typo(site: Site, file: str = "/etc/tuner/daemon.toml") -> Iterator[None]:
    """A mistake in a file for the block; who mends it does nothing else."""
    path = site.machine.path(file)
    right = path.read_text()
    path.write_text(f"{right}\n[tunning]\n")
    try:
        yield
    finally:
        path.write_text(right)


def troubles(site: Site) -> str:
    try:
        return "\n".join(site.client.status()["troubles"])
    except DaemonUnavailableError as error:  # it begins just now, or waits
        return f"unavailable: {error}"


def well(site: Site) -> bool:
    """Whether clients are answered, and nothing is wrong."""
    return troubles(site) == ""


def restarted(site: Site) -> str:
    """Restart the service; returns how often systemd has started it again by itself."""
    site.machine.run("systemctl", "restart", SERVICE)
    return site.show("NRestarts")


def test_a_typo_leaves_the_last_good_settings_in_force(site: Site) -> None:
    """A reload and a restart with a wrong daemon.toml: every client is answered, and mending it is enough."""
    site.ready()
    with typo(site):
        site.machine.run("systemctl", "reload", SERVICE)
        until(lambda: "[tunning]" in troubles(site), "the report of the reload")
        before = restarted(site)
        for _ in range(CLIENTS):
            assert "/etc/tuner/daemon.toml: [tunning]" in troubles(site)
            assert site.client.best("scan-lf:N=1024").workloads
        assert (site.show("ActiveState"), site.show("ActiveState", SOCKET)) == ("active", "active")
        assert site.show("NRestarts") == before
    until(lambda: well(site), "the reading of the mended file")


def test_a_typo_at_the_first_start_is_told_to_every_client(site: Site) -> None:
    """Without settings that were kept clients hear file, key and line, systemd too; mending is enough."""
    site.ready()
    site.machine.path(f"{STATE}/{NAME}").unlink()
    with typo(site):
        before = restarted(site)
        for _ in range(CLIENTS):
            with pytest.raises(DaemonUnavailableError, match=r"daemon.toml: \[tunning\].*\(line [0-9]+\)"):
                site.client.status()
        assert (site.show("ActiveState"), site.show("ActiveState", SOCKET)) == ("active", "active")
        assert site.show("NRestarts") == before
        assert "/etc/tuner/daemon.toml: [tunning]" in site.show("StatusText")
        assert site.journal().count("the daemon waits") == 1
    until(lambda: well(site), "the start with the mended file")


def test_no_crowd_of_clients_ends_the_socket(site: Site) -> None:
    """Killed again and again while clients ask, the service comes back, and so does its socket."""
    for _ in range(8):
        pid = site.ready()
        site.machine.run("systemctl", "kill", "--kill-who=main", "--signal=KILL", SERVICE)
        until(lambda pid=pid: int(site.show("MainPID")) not in (0, pid), "the restart")  # type: ignore[misc]
        for _ in range(CLIENTS):
            assert site.client.status()["pid"] != pid
    assert site.show("ActiveState", SOCKET) == "active"


def test_stopped_until_told_it_stays_so(site: Site) -> None:
    """After --until-told no client starts it, nor does a boot; `tuner start` is the way back."""
    site.ready()
    assert "the next client starts it again" in site.tuner("stop")
    assert site.client.status()["pid"]
    assert "`sudo tuner start` starts it again" in site.tuner("stop", "--until-told")
    for _ in range(CLIENTS):
        with pytest.raises(DaemonAbsentError):
            site.client.status()
    for unit in (SERVICE, SOCKET):
        assert (site.show("ActiveState", unit), site.show("UnitFileState", unit)) == ("inactive", "disabled")
    site.tuner("start")
    assert site.client.status()["pid"]
    for unit in (SERVICE, SOCKET):
        assert (site.show("ActiveState", unit), site.show("UnitFileState", unit)) == ("active", "enabled")


def test_a_disk_without_room_at_the_start(site: Site) -> None:
    """Clients hear that there is no room, and with room the daemon starts by itself."""
    site.ready()
    site.machine.run("systemctl", "stop", SERVICE)
    site.machine.run("mount", "-t", "tmpfs", "-o", "nr_inodes=1,mode=700", "tmpfs", STATE)
    try:
        with pytest.raises(DaemonUnavailableError, match="no room is left on the disk"):
            site.client.status()
        assert site.show("NRestarts") == "0"
        site.machine.run("mount", "-o", "remount,nr_inodes=1000", STATE)
        until(lambda: well(site), "the start with room")
    finally:
        site.machine.run("systemctl", "stop", SERVICE)
        site.machine.run("umount", STATE)
    assert well(site)


def test_kernels_that_others_can_write_are_left_out(site: Site) -> None:
    """A kernel directory that others can write is named after a restart; mended, it is taken by itself."""
    folder = site.machine.path("/etc/tuner/kernels.d")
    folder.chmod(0o777)
    try:
        restarted(site)
        until(lambda: "kernels.d: can be written by others" in troubles(site), "the report")
        assert site.client.best("scan-lf:N=1024").workloads
    finally:
        folder.chmod(0o755)
    until(lambda: well(site), "the look at the mended folder")


def test_a_state_that_was_moved_away_is_told(site: Site) -> None:
    """Answers are served while the state is gone; back in its place, the service goes on with it."""
    site.ready()
    job = site.client.submit("scan-lf:N=4", device="sim:jetson-tx1", policy="random", budget=2)
    site.client.pause(job.id)
    site.machine.run("mv", STATE, "/var/lib/elsewhere")
    until(lambda: "while the daemon ran" in troubles(site), "the report")
    assert site.client.best("scan-lf:N=1024").workloads
    with pytest.raises(TunerError, match="while the daemon ran"):
        site.client.submit("fft:N=4", device="sim:jetson-tx1")
    site.machine.run("mv", "/var/lib/elsewhere", STATE)
    until(lambda: well(site), "the way back")
    assert site.client.job(job.id).state == "paused"
    site.client.cancel(job.id)


def test_a_wrong_file_of_the_helper_does_not_end_its_socket(site: Site) -> None:
    """However many clients ask while clockd.toml is wrong: mended, the helper answers."""
    unit = site.machine.path(f"/etc/systemd/system/{HELPER}.d/test.conf")
    before = unit.read_text()
    unit.write_text(before.replace("Restart=no", "RestartSec=1"))
    site.machine.run("systemctl", "daemon-reload")
    try:
        with typo(site, "/etc/tuner/clockd.toml"):
            site.machine.run("systemctl", "restart", HELPER, check=False)
            until(lambda: int(site.show("NRestarts", HELPER)) > 7, "the restarts")
        until(lambda: site.show("ActiveState", HELPER) == "active", "the start of the helper")
        assert site.show("ActiveState", "tuner-clockd.socket") == "active"
    finally:
        unit.write_text(before)
        site.machine.run("systemctl", "daemon-reload")
