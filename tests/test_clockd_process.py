"""``tuner-clockd`` as a process: how it starts, what it says to systemd, and what it leaves when it ends."""

import contextlib
import fcntl
import os
import pwd
import random
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from cli_process import begun
from fake_nvml_state import GPU_IS_LOST, UUID, State, library
from helper_kills import HELPER, command, leased, notices, start_helper
from tuner.power.clocks import clockd
from tuner.power.clocks.actuator import ClockPaths
from tuner.power.clocks.clockd_client import helper_answers
from tuner.power.clocks.control import LeasedClocks
from tuner.power.clocks.journal import SettingJournal

from tuner.model.errors import ClockError
from tuner.system.service_manager import ServiceManager, passed_socket

MOST_GROWTH_KIB = 8192
RUBBISH = (
    *(b"\n", b"{}\n", b"\x00\xff" * 100, b"[" * 400, b'{"verb": "renew"}\n', b'{"verb": "reset"}\n'),
    b'{"verb": "set", "control": "nvml", "gpu": "%s", "mhz": 1500}\n' % UUID.encode(),
    b'{"verb": "set", "control": "devfreq", "gpu": "17000000.gpu", "mhz": 99999999999999999999}\n',
)
PASSED = "import os, sys; os.dup2({fd}, 3); os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid())); "
PASSED += "os.execv(sys.executable, {command})"


@pytest.fixture
def where(tmp_path: Path, nvml: State) -> ClockPaths:
    del nvml  # must be there first
    nothing = tmp_path / "nothing"
    (tmp_path / "run").mkdir()
    return ClockPaths(library(), nothing, nothing, tmp_path / "run", tmp_path / "clockd.sock")


@pytest.fixture
def helper(where: ClockPaths) -> Iterator["subprocess.Popen[str]"]:
    process = start_helper(where)
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def clocks(where: ClockPaths) -> Iterator[LeasedClocks]:
    with closing(leased(UUID, where)) as made:
        yield made


def resident_kib(pid: int) -> int:
    """Memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))


def restore(where: ClockPaths) -> tuple[int, str]:
    """Exit status and words of ``tuner-clockd restore``."""
    with begun(*command("restore", where)[3:], code=HELPER) as process:
        _, told = process.communicate()
    return process.returncode, told


def wait_until_given_up(where: ClockPaths) -> None:
    """Block until nobody owns the GPU's clocks."""
    assert where.directory is not None
    with SettingJournal(where.directory, "nvml", UUID).lock.open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


def test_a_clock_is_set_by_the_helper(
    helper: "subprocess.Popen[str]", clocks: LeasedClocks, nvml: State, where: ClockPaths
) -> None:
    """The client reads through its own NVML, and the helper sets, in another process."""
    with clocks.locked(900):
        assert (nvml.locked_min_mhz, nvml.locked_max_mhz) == (900, 900)
        assert clocks.read().mhz == 900.0
        assert where.directory is not None
        entry = SettingJournal(where.directory, "nvml", UUID).read()
        assert entry is not None
        assert f":{helper.pid}:" in entry.owner

    assert (nvml.locked_max_mhz, nvml.sets) == (0, 1)


def test_a_user_has_limits_of_its_own(where: ClockPaths, nvml: State, tmp_path: Path) -> None:
    """The helper knows who asks by the kernel, whatever the client says or reads."""
    user = pwd.getpwuid(os.getuid()).pw_name
    rules = tmp_path / "clockd.toml"
    rules.write_text(f'[users.{user}.limits]\n"*" = [900, 1500]\n')
    process = start_helper(replace(where, config=rules))
    try:
        with closing(leased(UUID, where)) as clocks:
            with pytest.raises(ClockError, match="has no clock of 345 MHz"), clocks.locked(345):
                pass
            with clocks.locked(900):
                assert nvml.locked_max_mhz == 900
    finally:
        process.kill()
        process.wait()
    assert nvml.sets == 1


def test_rules_for_nobody_are_told_at_the_start(where: ClockPaths, tmp_path: Path) -> None:
    """A mistyped user would else be one without the limits that were meant for it."""
    rules = tmp_path / "clockd.toml"
    rules.write_text('[users.alcie.limits]\n"*" = [900, 1500]\n')
    words = command("serve", replace(where, config=rules), "--idle-exit", "0.01")[3:]
    with begun(*words, code=HELPER) as process:
        _, told = process.communicate()
    assert process.returncode == 0
    assert f'{rules}: users."alcie": there is no such user' in told


def test_hostile_neighbours(
    helper: "subprocess.Popen[str]", clocks: LeasedClocks, nvml: State, where: ClockPaths
) -> None:
    """While others send rubbish as fast as they can, a lease holds, and the helper grows no fatter."""

    def pester(seed: int) -> None:
        rng = random.Random(seed)  # noqa: S311 - no secrets
        for _ in range(60):
            with (
                contextlib.suppress(OSError),
                socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as neighbour,
            ):
                neighbour.settimeout(60.0)
                neighbour.connect(str(where.socket))
                for _line in range(rng.randrange(20)):
                    neighbour.send(rng.choice(RUBBISH) * rng.randrange(1, 5))

    with clocks.locked(900):
        before_kib = resident_kib(helper.pid)
        threads = [threading.Thread(target=pester, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert clocks.read().mhz == 900.0
        assert nvml.sets == 1
        assert resident_kib(helper.pid) < before_kib + MOST_GROWTH_KIB
    assert helper.poll() is None
    assert nvml.locked_max_mhz == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_helper_told_to_end_restores(
    helper: "subprocess.Popen[str]", clocks: LeasedClocks, nvml: State, number: signal.Signals
) -> None:
    """The clock is restored before the helper is gone, and the client knows."""

    def end() -> None:
        with clocks.locked(900):
            helper.send_signal(number)
            assert helper.wait() == 0
            assert nvml.locked_max_mhz == 0

    with pytest.raises(ClockError, match="not held"):
        end()


def test_a_killed_helper_is_cleaned_up_after(
    helper: "subprocess.Popen[str]", clocks: LeasedClocks, nvml: State, where: ClockPaths
) -> None:
    """What SIGKILL leaves set, ``tuner-clockd restore`` undoes, once; the client trusts nothing of it."""

    def kill() -> None:
        with clocks.locked(900):
            helper.kill()
            helper.wait()
            assert nvml.locked_max_mhz == 900
            assert restore(where)[0] == 0
            assert nvml.locked_max_mhz == 0

    with pytest.raises(ClockError, match="not held"):
        kill()
    assert restore(where) == (0, "")
    assert nvml.resets == 1


def test_a_new_helper_restores_first(nvml: State, where: ClockPaths, clocks: LeasedClocks) -> None:
    """A helper that says it is ready has undone what a killed one left."""
    first = start_helper(where)
    with pytest.raises(ClockError, match="not held"), clocks.locked(900):  # noqa: PT012 - the block is the point
        first.kill()
        first.wait()
    assert nvml.locked_max_mhz == 900

    second = start_helper(where)
    assert nvml.locked_max_mhz == 0
    second.terminate()
    second.wait()


def test_restore_keeps_what_it_cannot_undo(
    helper: "subprocess.Popen[str]", clocks: LeasedClocks, nvml: State, where: ClockPaths
) -> None:
    """A lost GPU is named, its journal stays, and the exit status says so."""
    with pytest.raises(ClockError, match="not held"), clocks.locked(900):  # noqa: PT012 - the block is the point
        helper.kill()
        helper.wait()
    nvml.reset = GPU_IS_LOST
    status, told = restore(where)

    assert status == 1
    assert UUID in told
    assert where.directory is not None
    assert SettingJournal(where.directory, "nvml", UUID).path.exists()


def test_a_stopped_client_loses_its_lease(nvml: State, where: ClockPaths) -> None:
    """A client that is stopped cannot keep the clock: after its time the helper restores."""
    helper = start_helper(where, "--ttl", "0.2")
    script = (
        "import sys, signal\n"
        "sys.path.insert(0, sys.argv.pop(1))\n"
        "from pathlib import Path\n"
        "from helper_kills import leased\n"
        "from tuner.power.clocks.actuator import ClockPaths\n"
        "with leased(sys.argv[1], ClockPaths(sys.argv[2], *map(Path, sys.argv[3:]))).locked(900):\n"
        "    print('set', flush=True)\n"
        "    signal.pause()\n"
    )
    places = (where.library, where.devfreq, where.config, where.directory, where.socket)
    with begun(Path(__file__).parent, UUID, *map(str, places), code=script) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "set\n"
        assert nvml.sets == 1
        client.send_signal(signal.SIGSTOP)
        wait_until_given_up(where)
        assert nvml.locked_max_mhz == 0
        client.kill()
    helper.terminate()
    assert helper.wait() == 0


def test_limits_of_the_administrator_hold(nvml: State, where: ClockPaths) -> None:
    """A clock that the GPU has and the configuration does not allow is refused by the helper itself."""
    where.config.write_text('[limits]\n"*" = [800, 1600]\n')
    helper = start_helper(where)
    unaware = replace(where, config=where.config.with_name("none"))
    with closing(leased(UUID, unaware)) as clocks:
        with (
            pytest.raises(ClockError, match="no clock of 1980 MHz that may be set; near it are 900, 1500"),
            clocks.locked(1980),
        ):
            pass
        with clocks.locked(900):
            assert nvml.locked_max_mhz == 900
    assert nvml.sets == 1
    helper.terminate()
    helper.wait()


def test_a_wrong_configuration_is_said(where: ClockPaths, caplog: pytest.LogCaptureFixture) -> None:
    """The helper does not start on a configuration it cannot read; restoring needs none."""
    where.config.write_text("[limits]\n'*' = 900\n")
    options = command("serve", where)[3:]

    assert clockd.main(options) == 2
    assert str(where.config) in caplog.text
    assert clockd.main(command("restore", where)[3:]) == 0


def test_the_socket_is_the_groups(helper: "subprocess.Popen[str]", where: ClockPaths) -> None:
    """A socket made by the helper is open to its group, closed to others, and replaced when it is dead."""
    assert stat.S_IMODE(where.socket.stat().st_mode) == 0o660
    helper.kill()
    helper.wait()
    again = start_helper(where)
    assert helper_answers(where.socket)
    again.terminate()
    again.wait()


def test_two_helpers_on_a_socket(
    helper: "subprocess.Popen[str]", where: ClockPaths, caplog: pytest.LogCaptureFixture
) -> None:
    """A second helper does not take the socket of one that answers."""
    assert clockd.main(command("serve", where)[3:]) == 1
    assert "another helper answers there" in caplog.text
    assert helper.poll() is None
    assert helper_answers(where.socket)


def test_no_file_is_taken_for_a_dead_socket(where: ClockPaths, caplog: pytest.LogCaptureFixture) -> None:
    """A path that holds something else than a socket is left as it is."""
    where.socket.write_text("precious")
    assert clockd.main(command("serve", where)[3:]) == 1

    assert "in use" in caplog.text
    assert where.socket.read_text() == "precious"


@pytest.mark.parametrize(
    "options",
    [["serve", "--ttl", "0"], ["serve", "--ttl", "nan"], ["serve", "--idle-exit", "x"], [], ["renew"]],
)
def test_wrong_options_are_said(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong option ends with status 2 and names it."""
    with pytest.raises(SystemExit) as ended:
        clockd.main(options)

    assert ended.value.code == 2
    assert "usage: tuner-clockd" in capsys.readouterr().err


def test_an_unknown_group_is_said(where: ClockPaths, caplog: pytest.LogCaptureFixture) -> None:
    """A group that is not there keeps the helper from making a socket for anybody."""
    assert clockd.main([*command("serve", where)[3:], "--group", "no-such-group"]) == 2
    assert "no-such-group" in caplog.text
    assert not where.socket.exists()


def test_systemd_passes_the_socket(where: ClockPaths, nvml: State, tmp_path: Path) -> None:
    """A passed socket is listened on, by who came before the start too; a helper without clients ends."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
        notices(tmp_path) as (heard, environment),
    ):
        listener.bind(str(where.socket))
        listener.listen()
        line = [word for word in command("serve", where, "--idle-exit", "0.05") if word != "--socket"]
        line.remove(str(where.socket))
        script = PASSED.format(fd=listener.fileno(), command=line)
        said: list[bytes] = []

        def hear(line: bytes) -> None:
            while line not in said:
                said.append(heard.recv(4096))

        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as early,
            closing(leased(UUID, where)) as clocks,
        ):
            early.connect(str(where.socket))
            with subprocess.Popen(
                [sys.executable, "-c", script],
                pass_fds=[listener.fileno()],
                env=environment,
                stderr=subprocess.DEVNULL,
            ) as process:
                hear(b"READY=1")
                with clocks.locked(900):
                    assert nvml.locked_max_mhz == 900
                    early.close()
                    hear(b"STATUS=GPUs held: 1, clients: 1")
                clocks.close()
                assert process.wait() == 0
        hear(b"STOPPING=1")
    assert said[0] == b"READY=1"
    assert nvml.locked_max_mhz == 0


def test_a_socket_for_another_process_is_not_taken() -> None:
    """What systemd passed to a parent is not this process's."""
    environment = {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid() + 1)}

    assert passed_socket(environment) is None
    assert "LISTEN_PID" not in environment


def test_the_watchdog_is_fed_in_time(tmp_path: Path) -> None:
    """Pings come at a third of the time-out, which long work may move, and moves back."""
    now = [100.0]
    with notices(tmp_path) as (heard, environment):
        manager = ServiceManager({**environment, "WATCHDOG_USEC": "15000000"}, lambda: now[0])
        assert manager.ping_interval_s == 5.0
        for _ in range(3):
            manager.ping()
        now[0] += 4.9
        manager.ping()
        now[0] += 0.2
        manager.ping()
        manager.extend_watchdog(600.0)
        manager.extend_watchdog(None)
        assert [heard.recv(100) for _ in range(4)] == [
            *[b"WATCHDOG=1"] * 2,
            *(b"WATCHDOG_USEC=%d\nWATCHDOG=1" % seconds for seconds in (600_000_000, 15_000_000)),
        ]


@pytest.mark.parametrize(
    "environment",
    [
        *({}, {"WATCHDOG_USEC": "1000"}, {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "soon"}),
        {"NOTIFY_SOCKET": "@nobody-listens", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"},
    ],
)
def test_no_manager_no_watchdog(environment: dict[str, str]) -> None:
    """Without a service manager, or with one that watches another process, nothing is said or waited for."""
    manager = ServiceManager(environment)
    manager.ping()
    manager.say("READY=1")

    assert manager.ping_interval_s is None


def test_the_helper_is_light() -> None:
    """What runs as root imports no more than it needs."""
    heavy = ("numpy", "scipy", "cupy", "pydantic", "click", "rich", "asyncio", "ssl", "http")
    script = f"import sys, tuner.power.clocks.clockd; print([n for n in {heavy} if n in sys.modules])"

    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[]\n"
