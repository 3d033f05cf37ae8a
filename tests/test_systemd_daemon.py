"""The daemon under a real systemd, sandbox and all, installed by its command: `pytest -m systemd` as root."""

import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import throwaway_program
from daemon_site import HELPER, SERVICE, SOCKET, TUNER, Site, marks, site, until
from fake_nvml_state import UUID, library
from helper_kills import leased
from tuner.power.clocks.actuator import ClockPaths

from tuner.daemon.settings_file import NAME
from tuner.model.errors import ClockError, DaemonAbsentError, DaemonUnavailableError, TunerError
from tuner.model.jobs import JobState

# --- the daemon under a real systemd, sandbox and all, installed by its command: `pytest -m systemd` as root


pytestmark = marks

__all__ = ["site"]  # a fixture

TOKEN = "/root/token"  # noqa: S105 - where it is
SMALL = ("scan-lf:N=4",)


def test_installing_starts_everything(site: Site) -> None:
    """One command writes the units, makes the user, and leaves the daemon active and saying how it is."""
    assert "write /etc/systemd/system/tuner.service" in site.said
    site.ready()
    assert site.show("ActiveState", SOCKET) == "active"
    assert site.show("UnitFileState") == site.show("UnitFileState", SOCKET) == "enabled"
    assert site.show("StatusText") != ""
    assert "complete" in site.machine.path("/usr/local/share/bash-completion/completions/tuner").read_text()
    assert site.machine.path("/usr/local/share/man/man1/tuner-daemon.1").is_file()
    assert site.machine.run("id", "-un", "tuner").stdout.strip() == "tuner"
    assert site.show("NRestarts") == "0"


def test_installing_again_changes_nothing(site: Site) -> None:
    """A second call keeps the edited daemon.toml, writes nothing, and leaves the daemon running."""
    pid = site.ready()
    said = site.tuner("install-service")

    assert "keep /etc/tuner/daemon.toml, which has changed since the installation" in said
    assert not [line for line in said.splitlines() if line.startswith(("write", "replace", "remove"))]
    assert site.ready() == pid


def test_the_group_may_ask_and_others_may_not(site: Site) -> None:
    """A member of the group is answered; another user is told which group he would have to be in."""
    for group, answered in (("tuner", True), ("nogroup", False)):
        user = ("setpriv", "--reuid=nobody", f"--regid={group}", "--clear-groups")
        where = ("env", f"LD_LIBRARY_PATH={throwaway_program.LIBRARY_PATH}")
        asked = site.machine.run(*user, *where, TUNER, "status", check=False)

        assert (asked.returncode == 0) == answered, asked.stderr
        if not answered:
            assert "group tuner" in asked.stderr


def test_an_older_installation_gives_clocks_a_group_of_their_own(site: Site) -> None:
    """Where one group was for both sockets, installing again takes clocks from it; not the daemon's."""
    site.ready()
    unit, clocks = site.machine.path("/etc/systemd/system/tuner-clockd.socket"), "tuner-clockd.socket"
    unit.write_text(unit.read_text().replace("SocketGroup=tuner-clocks", "SocketGroup=tuner"))
    site.machine.run("systemctl", "daemon-reload")
    site.machine.run("systemctl", "restart", clocks)
    owner = ("stat", "--format=%G", "/run/tuner/clockd.sock")
    assert site.machine.run(*owner).stdout.strip() == "tuner"
    said = site.tuner("install-service")

    assert f"replace /etc/systemd/system/{clocks}" in said
    assert site.machine.run(*owner).stdout.strip() == "tuner-clocks"
    pid = site.ready()
    status = site.machine.run("cat", f"/proc/{pid}/status").stdout
    (groups,) = [line.split()[1:] for line in status.splitlines() if line.startswith("Groups:")]
    assert site.machine.run("getent", "group", "tuner-clocks").stdout.split(":")[2] in groups


def test_a_job_runs_in_the_sandbox(site: Site) -> None:
    """A search on the modelled GPU gets from the queue to an answer, kept in the service's directory."""
    site.ready()
    job = site.client.submit(*SMALL, device="sim:jetson-tx1", policy="random", budget=3)
    until(lambda: JobState(site.client.job(job.id).state).ended, "the end of the job")

    assert site.client.job(job.id).state == "finished"
    assert site.client.best(*SMALL, device="sim:jetson-tx1").origin == "stored"
    told = site.machine.run("journalctl", "--no-pager", "-u", SERVICE, f"TUNER_JOB={job.id}").stdout
    assert "attempt 1 on sim:jetson-tx1 begins" in told
    owner = site.machine.run("stat", "--format=%U %a", "/var/lib/tuner", "/var/lib/tuner/tuner.db").stdout
    assert owner.splitlines() == ["tuner 700", "tuner 600"]


def test_the_sandbox_is_closed(site: Site) -> None:
    """The daemon has no capability, no way to one, a filter of calls, no network and a read-only system."""
    pid = str(site.ready())
    status = site.machine.run("cat", f"/proc/{pid}/status").stdout
    mounts = site.machine.run("cat", f"/proc/{pid}/mounts").stdout.splitlines()
    user = site.machine.run("id", "-u", "tuner").stdout.strip()

    for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb"):
        assert f"{name}:\t{0:016x}" in status
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status
    assert f"Uid:\t{user}\t{user}\t{user}\t{user}" in status
    assert next(line for line in mounts if line.split()[1] == "/").split()[3].startswith("ro")
    links = site.machine.run("nsenter", "--target", pid, "--net", "ls", "/sys/class/net", check=False)
    assert set(links.stdout.split()) <= {"lo", "host0"}


def test_a_hanging_daemon_is_restarted(site: Site) -> None:
    """A main process that stops pinging is ended by the watchdog, and a new one answers."""
    pid = site.ready()
    site.machine.run("systemctl", "kill", "--kill-who=main", "--signal=STOP", SERVICE)
    until(lambda: int(site.show("MainPID")) not in (0, pid), "the restart by the watchdog")

    site.ready()
    assert site.client.status()["pid"] != pid
    assert "Watchdog timeout" in site.journal()


def test_a_killed_daemon_finishes_its_job(site: Site) -> None:
    """After SIGKILL in the middle of a job a new daemon finishes it, in the same run, with no trial twice."""
    pid = site.ready()
    job = site.client.submit("scan-lf:N=1024", device="sim:jetson-tx1", policy="random", budget=60)
    count = "SELECT count(*) FROM trials JOIN runs ON runs.id = run_id WHERE job_id = ?"
    until(lambda: site.rows(count, job.id)[0][0] >= 3, "the first trials")  # type: ignore[operator]
    site.machine.run("systemctl", "kill", "--kill-who=main", "--signal=KILL", SERVICE)
    until(lambda: int(site.show("MainPID")) not in (0, pid), "the restart")
    until(lambda: JobState(site.client.job(job.id).state).ended, "the end of the job")

    done = site.client.job(job.id)
    assert (done.state, done.attempts) == ("finished", 2)
    runs = site.rows("SELECT id FROM runs WHERE job_id = ?", job.id)
    trials = site.rows("SELECT trial FROM trials WHERE run_id = ?", *runs[0])
    assert len(runs) == 1
    assert len(trials) == len(set(trials)) == 60


def test_the_first_client_starts_a_stopped_daemon(site: Site) -> None:
    """The socket outlives the service: who connects starts it, and is answered."""
    site.ready()
    site.machine.run("systemctl", "stop", SERVICE)
    assert site.show("ActiveState") == "inactive"
    assert site.show("ActiveState", SOCKET) == "active"

    assert site.client.status()["pid"]
    assert site.show("ActiveState") == "active"


def test_stopping_is_quick_and_whole(site: Site) -> None:
    """A daemon with a running job stops by itself before systemd has to, and the job is queued again."""
    site.ready()
    job = site.client.submit("scan-lf:N=2048", device="sim:jetson-tx1", policy="random", budget=5000)
    until(lambda: site.client.job(job.id).state == "running", "the start of the job")
    site.machine.run("systemctl", "stop", SERVICE)

    assert site.show("Result") == "success"
    assert site.rows("SELECT state FROM jobs WHERE id = ?", job.id) == [("queued",)]
    site.client.cancel(job.id)


def test_the_helper_that_was_installed_restores(site: Site) -> None:
    """With the installed units, a clock that a killed helper held is given back by ExecStopPost."""
    nothing = Path("/nonexistent")
    where = ClockPaths(library(), nothing, nothing, socket=site.machine.path("/run/tuner/clockd.sock"))

    def hold_and_kill() -> None:
        with closing(leased(UUID, where)) as clocks, clocks.locked(900):
            assert site.nvml.locked_max_mhz == 900
            site.machine.run("systemctl", "kill", "--kill-who=main", "--signal=KILL", HELPER)
            until(lambda: site.nvml.locked_max_mhz == 0, "the restore by ExecStopPost")

    with pytest.raises(ClockError, match="not held"):
        hold_and_kill()


def test_the_loopback_answers_those_with_the_token(site: Site) -> None:
    """With its drop-in the service is reached over TCP by who has the token, on the loopback alone."""
    settings = site.machine.path("/etc/tuner/daemon.toml")
    before = settings.read_text()
    settings.write_text(before.replace("[tcp]", "[tcp]\nport = 8750"))
    try:
        said = site.tuner("install-service", "--tcp")
        assert "write /etc/systemd/system/tuner.service.d/tcp.conf" in said
        site.ready()
        site.tuner("token", "add", "test", TOKEN)
        said = site.tuner("install-service")
        assert "keep the way to the loopback" in said
        asked = ("status", "--socket", "http://127.0.0.1:8750")
        assert "sim:jetson-tx1" in site.tuner(*asked, TUNER_TOKEN_FILE=TOKEN)
        listening = site.machine.run("ss", "--listening", "--tcp", "--no-header", "--numeric").stdout
        places = {line.split()[3] for line in listening.splitlines() if ":8750" in line}
        assert places
        assert places <= {"127.0.0.1:8750", "[::1]:8750"}
    finally:
        settings.write_text(before)
        site.tuner("install-service", "--no-tcp")
        site.tuner("token", "revoke", "test")
    assert not site.machine.path("/etc/systemd/system/tuner.service.d/tcp.conf").exists()


def test_a_user_has_a_daemon_of_his_own(site: Site) -> None:
    """Installed for one user, the daemon runs under his manager, on a socket of his alone, until removed."""
    site.machine.run("useradd", "--create-home", "ada")
    uid = site.machine.run("id", "-u", "ada").stdout.strip()
    site.machine.run("systemctl", "start", f"user@{uid}.service")
    variables = f"Environment=LD_LIBRARY_PATH={throwaway_program.LIBRARY_PATH}"
    folder = "/home/ada/.config/systemd/user/tuner.service.d"
    site.machine.run("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "mkdir", "-p", folder)
    site.machine.path(f"{folder}/test.conf").write_text(f"[Service]\n{variables}\n")

    def as_ada(*words: str) -> str:
        given = ("HOME=/home/ada", f"XDG_RUNTIME_DIR=/run/user/{uid}", variables.removeprefix("Environment="))
        who = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "env", *given)
        done = site.machine.run(*who, *words, check=False)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout

    assert "write /home/ada/.config/systemd/user/tuner.service" in as_ada(TUNER, "install-service", "--user")
    until(
        lambda: as_ada("systemctl", "--user", "show", "-P", "ActiveState", SERVICE) == "active\n", "the start"
    )
    mine = as_ada("stat", "--format=%U %a", f"/run/user/{uid}/tuner/tunerd.sock")
    assert mine == "ada 600\n"
    assert "sim:jetson-tx1" in as_ada(TUNER, "status")
    as_ada(TUNER, "install-service", "--user", "--uninstall")
    assert as_ada("systemctl", "--user", "show", "-P", "ActiveState", SERVICE) == "inactive\n"
    assert not site.machine.path("/home/ada/.config/systemd/user/tuner.service").exists()


# --- the service under a real systemd where something is wrong: it tells so, and goes on when that is mended


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


def test_the_page_on_backups_as_it_stands(site: Site) -> None:
    """Every command of docs/howto/backup.md runs; the other hosts are this one. The results are there."""
    page = (Path(__file__).parent.parent / "docs/howto/backup.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    for name, text in (("sudo", 'exec "$@"'), ("ssh", 'shift\nexec sh -c "$*"')):
        command = site.machine.root / "usr/local/sbin" / name
        command.write_text(f"#!/bin/sh\n{text}\n")
        command.chmod(0o755)
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    jobs = site.rows("SELECT id, ordered FROM jobs ORDER BY id")
    state = site.machine.path(STATE).stat()
    for block in blocks:
        words = ("env", f"LD_LIBRARY_PATH={throwaway_program.LIBRARY_PATH}", f"PATH={path}", "bash", "-ec")
        done = site.machine.run(*words, f"set -o pipefail; cd /tmp; {block}", check=False)
        assert done.returncode == 0, f"{block}{done.stdout}{done.stderr}{site.journal()}"

    assert "and its mirror are whole" in site.tuner("db", "check", "--database", f"{STATE}/tuner.db")
    assert jobs
    assert site.rows("SELECT id, ordered FROM jobs ORDER BY id")[: len(jobs)] == jobs  # it queues its own
    files = [file.lstat() for file in site.machine.path(STATE).iterdir()]
    assert {(file.st_uid, file.st_gid) for file in files} == {(state.st_uid, state.st_gid)}
    site.ready()
    assert site.client.status()["state_directory"] == STATE
    again = f"tuner db restore /srv/tuner.backup --database {STATE}/tuner.db --replace"
    done = site.machine.run(*words, again, check=False)
    assert (done.returncode, "a daemon works there" in done.stderr) == (2, True)


def test_removing_leaves_results_alone(site: Site) -> None:
    """Removing stops everything and takes the units away; results and an edited daemon.toml stay."""
    said = site.tuner("install-service", "--uninstall")

    assert "keep /var/lib/tuner; --purge removes it" in said
    assert "keep /etc/tuner/daemon.toml, which has changed since the installation" in said
    for unit in (SERVICE, SOCKET, HELPER, "tuner-clockd.socket"):
        assert site.show("ActiveState", unit) in ("inactive", "failed")
        assert not site.machine.path(f"/etc/systemd/system/{unit}").exists()
    assert not site.machine.path("/run/tuner/tunerd.sock").exists()
    assert site.rows("SELECT count(*) FROM jobs")[0][0]
    assert site.tuner("install-service", "--uninstall").startswith("nothing is installed")


# --- a pool as its page has it


POOL = Path(__file__).parent.parent / "docs" / "howto" / "pool.md"


def await_worker(site: Site, count: int) -> None:
    """Wait until a worker has come to the scheduler so often; it must go on looking for it meanwhile."""
    both = ("journalctl", "--no-pager", "-u", "tuner-worker@*", "-u", "tuner-scheduler")
    for _ in range(5):
        told = site.machine.run(*both).stdout
        if told.count("Register worker") >= count:
            return
        threading.Event().wait(30.0)
    pytest.fail(told)


def test_a_pool_runs_as_services(site: Site) -> None:
    """By the words of the page: a run finds its worker, and another does after the scheduler began anew."""
    pytest.importorskip("distributed")
    page = POOL.read_text().replace("10.0.0.7", "127.0.0.1")
    blocks = dict(re.findall(r"`(/etc/[\w./-]+)`, [^\n]*:\n\n```\w+\n(.*?)```", page, re.DOTALL))
    (certificates,) = re.findall(r"## Certificates.*?```sh\n(.*?)```", page, re.DOTALL)
    throwaway_program.add(site.machine.root, "dask", "distributed", "cryptography")
    site.machine.run("sh", "-ec", certificates.replace("sudo ", ""))
    for name, text in blocks.items():
        path = site.machine.path(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    device, address = "sim:jetson-tx1", "tls://127.0.0.1:8786"
    worker, scheduler = f"tuner-worker@{device}.service", "tuner-scheduler.service"
    for unit in ("tuner-worker@.service", scheduler):
        folder = site.machine.path(f"/etc/systemd/system/{unit}.d")
        folder.mkdir()
        (folder / "test.conf").write_text(
            f"[Service]\nEnvironment=LD_LIBRARY_PATH={throwaway_program.LIBRARY_PATH}\nRestartSec=1\n"
        )
    site.machine.run("systemctl", "daemon-reload")
    site.tuner("install-service")
    try:
        site.machine.run("systemctl", "enable", "--now", scheduler)
        said = site.tuner("worker", address, "--service", "--device", device)
        assert "write /etc/tuner/worker.env" in said
        await_worker(site, 1)
        run = ("run", *SMALL, "--device", device, "--policy", "random", "--budget", "3")
        where = ("--on", "dask://127.0.0.1:8786", "--database", "/root/pool.db")
        assert "pool: 1 GPU" in site.tuner(*run, *where)
        pid = site.machine.show(worker, "MainPID")
        owner = site.machine.run("stat", "--format=%U", f"/proc/{pid}").stdout.strip()
        assert owner == "tuner-worker"
        site.machine.run("systemctl", "restart", scheduler)
        await_worker(site, 2)
        assert "pool: 1 GPU" in site.tuner(*run, *where, "--seed", "2")
    finally:
        site.machine.run("systemctl", "disable", "--now", worker, scheduler, check=False)
        site.machine.path("/etc/tuner/worker.env").unlink(missing_ok=True)


OF_OTHER_TESTS = ("opt/", "home/", "etc/dask/", "etc/sub", "etc/systemd/system/tuner-scheduler")


def test_a_purge_leaves_nothing(site: Site) -> None:
    """Of all that was written since before the installation, accounts stay, which are named."""
    site.tuner("install-service")
    site.machine.run("systemctl", "set-property", SERVICE, "CPUWeight=50")
    site.ready()
    own = site.machine.path("/etc/tuner/kernels.d/own.toml")
    own.write_text("# mine\n")
    assert site.written() - site.before
    said = site.tuner("install-service", "--uninstall", "--purge")

    assert "remove /etc/tuner and all that is in it" in said
    assert f"remove /etc/systemd/system/{SERVICE}.d and all that is in it" in said
    assert "keep the users tuner and tuner-worker" in said
    left = {name for name in site.written() - site.before if not name.startswith(OF_OTHER_TESTS)}
    assert left == set()
    assert not site.machine.path("/run/tunerd").exists()
    assert not list(site.machine.path("/run/systemd").rglob("*tuner*"))
