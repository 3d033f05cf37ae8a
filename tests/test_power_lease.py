"""Who may set a clock, and clocks held through the helper: set, renewed, restored, never trusted late."""

import contextlib
import grp
import logging
import os
import pwd
import re
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from fake_actuator import FakeActuator, FakeGpu, FakeGpus
from jetson_trees import build, gpu_node, limits_hz
from tuner.power.clocks import clockd_client, control
from tuner.power.clocks.actuator import ClockConfig, ClockPaths, ClockRules, load_config, strangers
from tuner.power.clocks.clockd import ClockServer, Leases
from tuner.power.clocks.clockd_client import Answer, ClockRequest, SetterLink, helper_answers, reach
from tuner.power.clocks.control import LeasedClocks, open_control, survey
from tuner.power.clocks.journal import HeldError, JournalEntry, Ownership, SettingJournal

from tuner.model.errors import ClockError, ClockLostError, ClockPermissionError, InputError

TTL_S = 10.0
NOBODY = 65534


class Helper:
    """A helper in a thread, whose clock stands still until it is moved."""

    def __init__(self, path: Path, run_dir: Path, gpus: FakeGpus) -> None:
        self.path = path
        self.time_s = 0.0
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        listener.listen()

        def undo(entry: JournalEntry) -> list[str]:
            return gpus.open(entry.control, entry.gpu).restore(entry.old, entry.new)

        leases = Leases(run_dir, gpus.open, undo, lambda: self.time_s)
        self.server = ClockServer(listener, leases, ttl_s=TTL_S, now=lambda: self.time_s)
        self.thread = threading.Thread(target=self.server.serve)
        self.thread.start()

    def stop(self) -> None:
        """Stop, and come back when all is restored."""
        if self.thread.is_alive():
            self.server.stop()
            self.thread.join()

    def pass_s(self, seconds: float) -> None:
        """Let time pass, and come back when the helper has seen it."""
        self.time_s += seconds
        for _ in range(2):  # the answer to the second comes after a whole turn
            assert helper_answers(self.path)


def within(clocks: LeasedClocks, *actions: Callable[[], object]) -> None:
    """Do something while a clock is held."""
    with clocks.locked(900):
        for action in actions:
            action()


@pytest.fixture
def gpus() -> FakeGpus:
    return FakeGpus("GPU-1")


@pytest.fixture
def gpu(gpus: FakeGpus) -> FakeGpu:
    return gpus["GPU-1"]


@pytest.fixture
def helper(tmp_path: Path, gpus: FakeGpus) -> Iterator[Helper]:
    made = Helper(tmp_path / "clockd.sock", tmp_path / "run", gpus)
    yield made
    made.stop()


@pytest.fixture
def clocks(request: pytest.FixtureRequest, helper: Helper, gpu: FakeGpu) -> Iterator[LeasedClocks]:
    """Clocks that are renewed as often in the time-out as a test says."""
    renewals = getattr(request, "param", 4.0)
    made = LeasedClocks(FakeActuator(gpu), partial(reach, helper.path), renewals=renewals)
    yield made
    made.close()


def test_a_clock_is_held_and_restored(clocks: LeasedClocks, gpu: FakeGpu) -> None:
    """Inside the block the clock is held; after it what was there is back."""
    assert clocks.supported_mhz() == (1980, 1500, 900, 345)
    with clocks.locked(900):
        assert gpu.held_mhz == 900
        assert clocks.read().mhz == 900.0

    assert gpu.held_mhz is None


def test_opening_and_reading_change_nothing(clocks: LeasedClocks, gpu: FakeGpu) -> None:
    """Without a block nothing is set, and no helper is needed."""
    clocks.read()
    clocks.supported_mhz()

    assert gpu.calls == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_restores(clocks: LeasedClocks, gpu: FakeGpu, error: type[BaseException]) -> None:
    """Whatever leaves the block finds the clock restored, and is passed on."""
    with pytest.raises(error), clocks.locked(900):
        raise error

    assert gpu.held_mhz is None


def test_the_gpu_is_kept_between_blocks(clocks: LeasedClocks, helper: Helper, gpu: FakeGpu) -> None:
    """Another tuner gets the GPU when this one closes, and not between two of its clocks."""
    with clocks.locked(900):
        pass
    other = LeasedClocks(FakeActuator(gpu), partial(reach, helper.path))
    with pytest.raises(ClockError, match=f"held by process {os.getpid()}"), other.locked(1500):
        pass
    clocks.close()
    with other.locked(1500):
        assert gpu.held_mhz == 1500
    other.close()


@pytest.mark.parametrize("clocks", [1000 * TTL_S], indirect=True)  # by the helper's clock never
def test_a_thread_renews(
    clocks: LeasedClocks, helper: Helper, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease outlives its time-out many times, without the block doing anything for it."""
    with clocks.locked(900):
        assert clocks._lease is not None
        renewed = threading.Event()
        ask = clocks._lease._connection.ask

        def counted(request: ClockRequest) -> Answer:
            answer: Answer = ask(request)
            if request.verb == "renew":
                renewed.set()
            return answer

        monkeypatch.setattr(clocks._lease._connection, "ask", counted)
        for _ in range(3):
            helper.time_s += 0.6 * TTL_S
            renewed.clear()
            assert renewed.wait(60.0)
        assert gpu.held_mhz == 900


def test_a_helper_that_ends_is_noticed(clocks: LeasedClocks, helper: Helper, gpu: FakeGpu) -> None:
    """A block during which the helper ended is an error: its measurements were at no known clock."""
    with pytest.raises(ClockError, match=r"not held: .*(stopped|not answer)"):
        within(clocks, helper.stop)

    assert gpu.held_mhz is None


@pytest.mark.parametrize("clocks", [1e-6], indirect=True)  # this process sleeps
def test_an_ended_lease_is_noticed(clocks: LeasedClocks, helper: Helper, gpu: FakeGpu) -> None:
    """A process that slept for longer than its lease is told so at the end of its block."""
    with pytest.raises(ClockError, match=r"not held: .* nothing was heard for 10 s"):
        within(clocks, lambda: helper.pass_s(TTL_S))

    assert gpu.calls == ["set 900", "restore 900"]


@pytest.mark.parametrize("clocks", [1e6], indirect=True)
def test_reading_notices_a_lost_lease(clocks: LeasedClocks, helper: Helper) -> None:
    """Once the renewing thread finds the lease gone, the clock is not read as if it were held."""

    def renewed_in_vain() -> None:
        assert clocks._lease is not None
        clocks._lease._thread.join(60.0)
        with pytest.raises(ClockError, match="not held"):
            clocks.read()

    with pytest.raises(ClockError, match="not held"):
        within(clocks, helper.stop, renewed_in_vain)


@pytest.mark.parametrize("clocks", [1e-6], indirect=True)
def test_reading_needs_no_renewal_to_notice(clocks: LeasedClocks, helper: Helper) -> None:
    """What the helper says unasked is heard at the next look, and not when it is time to renew."""

    def look() -> None:
        with pytest.raises(ClockLostError, match="nothing was heard for 10 s"):
            clocks.read()

    with pytest.raises(ClockLostError):
        within(clocks, lambda: helper.pass_s(TTL_S), look)


def test_between_blocks_a_lost_lease_is_no_matter(clocks: LeasedClocks, helper: Helper) -> None:
    """Where no clock is asked for, the GPU is read whether somebody holds its clocks or not."""
    with clocks.locked(900):
        pass
    helper.stop()

    assert clocks.read().mhz is not None


def test_a_restarted_helper_is_used_again(clocks: LeasedClocks, helper: Helper, gpu: FakeGpu) -> None:
    """A lease that was lost is no reason not to ask for another."""
    with contextlib.suppress(ClockError), clocks.locked(900):
        helper.stop()
    again = Helper(helper.path, helper.path.with_name("run"), FakeGpus("GPU-1"))
    again.server._leases._open_actuator = lambda *_: FakeActuator(gpu)

    with clocks.locked(1500):
        assert gpu.held_mhz == 1500
    again.stop()


def test_an_interrupted_conversation_ends_the_lease(
    clocks: LeasedClocks, helper: Helper, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the helper sets the clock hangs up, so that the clock is restored."""

    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    with clocks.locked(345):
        pass
    monkeypatch.setattr(clockd_client.SetterConnection, "_line", interrupted)
    with pytest.raises(KeyboardInterrupt), clocks.locked(900):
        pass
    monkeypatch.undo()
    helper.pass_s(0.0)

    assert gpu.calls[-2:] == ["set 900", "restore 900"]
    with clocks.locked(1500):
        assert gpu.held_mhz == 1500


def test_the_blocks_own_error_comes_first(
    clocks: LeasedClocks, helper: Helper, caplog: pytest.LogCaptureFixture
) -> None:
    """A lease that is lost does not hide what went wrong in the block, and is logged."""

    def fail() -> None:
        raise ValueError("the real trouble")

    with caplog.at_level(logging.ERROR), pytest.raises(ValueError, match="the real trouble"):
        within(clocks, helper.stop, fail)

    assert caplog.text


def test_blocks_do_not_nest(clocks: LeasedClocks, gpu: FakeGpu) -> None:
    """A clock inside a clock is refused: its end would undo the outer one."""
    with clocks.locked(900):
        with pytest.raises(ClockError, match="at 900 MHz already"), clocks.locked(1500):
            pass
        assert gpu.held_mhz == 900


def test_closing_restores(clocks: LeasedClocks, gpu: FakeGpu) -> None:
    """A control that is closed inside its block gives the clock back."""
    seen: list[int | None] = []
    with pytest.raises(ClockError, match="not held"):
        within(clocks, clocks.close, lambda: seen.append(gpu.held_mhz))

    assert seen == [None]


def test_what_the_helper_may_not_is_told(clocks: LeasedClocks, gpu: FakeGpu) -> None:
    """A helper without the right to set clocks is a matter of permission, as it would be here."""
    gpu.set_errors = [ClockPermissionError("CAP_SYS_ADMIN")]
    with pytest.raises(ClockPermissionError, match="CAP_SYS_ADMIN"), clocks.locked(900):
        pass


def test_an_unsupported_clock_is_refused_here(clocks: LeasedClocks, gpu: FakeGpu) -> None:
    """The nearest clocks are named without troubling the helper."""
    with pytest.raises(ClockError, match="near it are 345, 900, 1500"), clocks.locked(901):
        pass
    assert clocks._lease is None
    assert gpu.calls == []


def test_no_helper_is_said(tmp_path: Path, gpu: FakeGpu) -> None:
    """Without a helper the socket is named."""
    path = tmp_path / "clockd.sock"
    clocks = LeasedClocks(FakeActuator(gpu), partial(reach, path))

    assert not helper_answers(path)
    with pytest.raises(ClockError, match=str(path)), clocks.locked(900):
        pass
    clocks.close()


def test_a_helper_that_hangs_is_not_waited_for(
    tmp_path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who listens and never answers is no helper."""
    monkeypatch.setattr(clockd_client, "_HELLO_PATIENCE_S", 0.01)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "clockd.sock"))
        listener.listen()
        clocks = LeasedClocks(FakeActuator(gpu), partial(reach, tmp_path / "clockd.sock"), patience_s=0.01)

        assert not helper_answers(tmp_path / "clockd.sock")
        with pytest.raises(ClockError, match="does not answer"), clocks.locked(900):
            pass
        clocks.close()


@pytest.mark.parametrize(
    "answer",
    [
        *(b"SSH-2.0-OpenSSH_9.2\r\n", b'{"ok": true}\n', b'{"ok": true, "protocol": 2, "ttl_s": "x"}\n'),
        *(b'{"ok": true, "protocol": 1, "ttl_s": 1}\n', b"[" * 5000 + b"\n", b"x" * 10_000, b""),
    ],
)
def test_others_on_the_socket_are_no_helper(
    tmp_path: Path, gpu: FakeGpu, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """What does not speak the protocol is refused with a ClockError, whatever it says; a version is told."""

    def talk() -> None:
        for _ in range(2):
            connection, _address = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(answer)

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "clockd.sock"))
        listener.listen()
        talker = threading.Thread(target=talk)
        talker.start()
        clocks = LeasedClocks(FakeActuator(gpu), partial(reach, tmp_path / "clockd.sock"))

        assert not helper_answers(tmp_path / "clockd.sock")
        assert ("speaks protocol 1, not 2: update it" in caplog.text) == (b'"protocol": 1' in answer)
        with pytest.raises(ClockError), clocks.locked(900):
            pass
        clocks.close()
        talker.join()


def test_a_user_outside_the_group_is_told(helper: Helper, clocks: LeasedClocks) -> None:
    """Who may not use the socket is told which group to join."""
    helper.path.chmod(0o000)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)  # root may write to every socket
    try:
        with pytest.raises(ClockPermissionError, match="join its group"), clocks.locked(900):
            pass
    finally:
        os.seteuid(user)


# --- Who is asked to set a GPU's clock, what other users see of it, and the administrator's file.


@pytest.fixture
def where() -> Iterator[ClockPaths]:
    """A Jetson without a driver, in a folder into which every user may look."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        sysfs = build(folder, "agx-orin")
        nothing = folder / "nothing"
        yield ClockPaths(str(nothing), sysfs / "class/devfreq", nothing, folder / "run", nothing)


def gpu_of(where: ClockPaths) -> str:
    return gpu_node(where.devfreq.parent.parent).name


@pytest.mark.parametrize(
    ("user", "may", "asked"),
    [
        (0, ("set", "ask"), "guardian"),  # who has the helper's locks needs no helper
        (0, ("ask",), "helper"),  # root of a container
        (0, (), "guardian"),  # who says that it may not
        (1000, ("ask",), "helper"),
        (1000, ("set", "ask"), "helper"),  # where all users are in one queue
        (1000, ("set",), "guardian"),
    ],
)
def test_who_is_asked(
    where: ClockPaths, monkeypatch: pytest.MonkeyPatch, user: int, may: tuple[str, ...], asked: str
) -> None:
    """The helper sets where it answers, root and who finds none have a guardian."""

    def reached(name: str) -> SetterLink:
        raise ClockError(f"asked the {name}")

    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr("tuner.power.clocks.devfreq.DevfreqActuator.permitted", lambda _: "set" in may)
    monkeypatch.setattr(control, "helper_answers", lambda _: "ask" in may)
    monkeypatch.setattr(control, "reach", lambda _: reached("helper"))
    monkeypatch.setattr(control, "hire", lambda _: reached("guardian"))
    clocks = open_control("GPU-of-cuda", where)
    with pytest.raises(ClockError, match=f"asked the {asked}"), clocks.locked(612):
        pass


def test_what_is_set_under_anothers_lock_is_left_alone(
    where: ClockPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who may set clocks minds what root's journal says, for a run and for a reset."""
    assert where.directory is not None
    roots = Ownership(
        SettingJournal(where.directory.with_name("roots"), "devfreq", gpu_of(where)), lambda _: []
    )
    monkeypatch.setattr(control, "directories", lambda own: [own, own.with_name("roots")])
    before = limits_hz(where.devfreq.parent.parent)
    roots.take()
    with closing(open_control("GPU-of-cuda", where)) as clocks:
        with pytest.raises(HeldError, match=f"held by process {os.getpid()}"), clocks.locked(612):
            pass
        with pytest.raises(HeldError):
            control.reset("GPU-of-cuda", where=where)
        assert limits_hz(where.devfreq.parent.parent) == before
        roots.give_up()
        with clocks.locked(612):
            assert limits_hz(where.devfreq.parent.parent) == (612_000_000, 612_000_000)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_everybody_sees_who_holds_a_clock(where: ClockPaths) -> None:
    """What root's locks say another user reads in root's journal, without a word of trouble."""
    assert where.directory is not None
    owner = Ownership(SettingJournal(where.directory, "devfreq", gpu_of(where)), lambda _: [])
    owner.take()
    for announced in (None, 612):
        if announced is not None:
            owner.announce({"min_hz": 1, "max_hz": 2}, announced)
        os.seteuid(NOBODY)
        try:
            (state,) = survey(where)
        finally:
            os.seteuid(0)
        assert state.trouble == ()
        assert (state.announced, state.stale) == (announced, False)
        assert state.owner == (f"process {os.getpid()}" if announced else "")
    owner.give_up()
    assert survey(where)[0].stale


_USERS, _GROUPS = {one.pw_name for one in pwd.getpwall()}, {one.gr_name for one in grp.getgrall()}
ONLY_GROUPS, ONLY_USERS = sorted(_GROUPS - _USERS)[:1], sorted(_USERS - _GROUPS)[:1]


def config(folder: Path, text: str) -> ClockConfig:
    path = folder / "clockd.toml"
    path.write_text(text)
    return load_config(path)


def test_no_file_rules_nothing(tmp_path: Path) -> None:
    """The file is optional."""
    assert load_config(tmp_path / "none.toml").rules("GPU-1") == ClockRules()


def test_ranges_are_found_by_gpu(tmp_path: Path) -> None:
    """A GPU that is named has its own range, any other that of the star, where there is one."""
    found = config(
        tmp_path,
        '[baseline]\n"GPU-1" = [345, 1410]\n[limits]\n"*" = [345, 1755]\n"17000000.gpu" = [306, 306]\n',
    )
    assert found.rules("GPU-1") == ClockRules((345, 1755), (345, 1410))
    assert found.rules("GPU-2") == ClockRules((345, 1755), None)
    assert found.rules("17000000.gpu").limits_mhz == (306, 306)


def test_users_have_rules_of_their_own(tmp_path: Path) -> None:
    """A user's own go before those of a group, and these before all others'; each table and GPU by itself."""
    user = pwd.getpwuid(os.getuid()).pw_name
    group = grp.getgrgid(pwd.getpwuid(os.getuid()).pw_gid).gr_name
    found = config(
        tmp_path,
        '[limits]\n"*" = [345, 1755]\n[baseline]\n"*" = [345, 1410]\n[power_limits]\n"*" = [300, 700]\n'
        f'[users."@{group}".limits]\n"*" = [500, 600]\n"GPU-2" = [510, 520]\n'
        f'[users.{user}.limits]\n"GPU-1" = [900, 1410]\n[users.4294967.power_profiles]\n"*" = [0, 1]\n',
    )
    assert found.rules("GPU-1", os.getuid()) == ClockRules((900, 1410), (345, 1410), (300, 700))
    assert found.rules("GPU-2", os.getuid()).limits_mhz == (510, 520)
    assert found.rules("GPU-3", os.getuid()).limits_mhz == (500, 600)
    assert found.rules("GPU-1", 4294967) == ClockRules((345, 1755), (345, 1410), (300, 700), (0, 1))
    assert found.rules("GPU-1") == ClockRules((345, 1755), (345, 1410), (300, 700))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("root", ""),
        ("0", ""),
        ("@root", ""),
        ("4294967", ""),
        ("alcie", "there is no such user, and its rules hold for nobody: `getent passwd` lists"),
        ("@4294967", "there is no such group, and its rules hold for nobody: `getent group` lists"),
        *(
            (name, f'no such user, .* is a group of this name, which is written "@{name}"')
            for name in ONLY_GROUPS
        ),
        *((f"@{name}", f'no such group, .* is a user .* is written "{name}"') for name in ONLY_USERS),
        ("", "there is no such user"),
    ],
)
def test_rules_of_nobody_are_told(tmp_path: Path, name: str, says: str) -> None:
    """A user or group that is not there is told with file, key and what would be right."""
    found = config(tmp_path, f'[users."{name}".limits]\n"*" = [345, 900]\n')
    told = strangers(tmp_path / "clockd.toml", found)
    assert len(told) == bool(says)
    assert all(re.search(rf'clockd\.toml: users\."{name}": .*{says}', line) for line in told)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[baseline", "Expected"),
        ("[base]\n", "unknown key 'base'"),
        ("limits = 5\n", "limits must be a table"),
        ('[limits]\n"*" = 5\n', "5 is not [lowest, highest] in MHz"),
        ('[limits]\n"*" = [5]\n', "is not [lowest, highest]"),
        ('[limits]\n"*" = [900, 345]\n', "[900, 345] is not"),
        ('[limits]\n"*" = [0, 345]\n', "[0, 345] is not"),
        ('[limits]\n"*" = [true, 345]\n', "is not [lowest, highest]"),
        ('[limits]\n"*" = [345.5, 900.0]\n', "is not [lowest, highest]"),
        ('[baseline]\n"*" = [345000000, 900000000]\n', "in MHz"),
        ('[baseline]\n"GPU 1" = [345, 900]\n', "name a GPU by its UUID"),
        ('[baseline]\n"../x" = [345, 900]\n', "name a GPU by its UUID"),
        ("users = 1\n", "there may be tables limits, power_limits, power_profiles"),
        ("[users]\nalice = 1\n", "users.alice: there may be tables"),
        ('[users.alice.baseline]\n"*" = [345, 900]\n', "users.alice: there may be tables"),
        ('[users.alice.limits]\n"*" = [900, 345]\n', "users.alice.limits.*: [900, 345] is not"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, says: str) -> None:
    """What is wrong is told with the file and the key."""
    with pytest.raises(InputError) as caught:
        config(tmp_path, text)
    assert str(tmp_path / "clockd.toml") in str(caught.value)
    assert says in str(caught.value)


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    """A file that cannot be read or is no text is not taken for none."""
    with pytest.raises(InputError, match="is not a file"):
        load_config(tmp_path)
    (tmp_path / "clockd.toml").write_bytes(b"\xff")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        load_config(tmp_path / "clockd.toml")
