"""Clocks held through the helper: set, renewed, restored, and never trusted once the helper is gone."""

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from fake_actuator import FakeActuator, FakeGpu, FakeGpus
from tuner.power.clocks import clockd_client
from tuner.power.clocks.clockd import ClockServer, Leases
from tuner.power.clocks.clockd_client import Answer, ClockRequest, helper_answers, reach
from tuner.power.clocks.control import LeasedClocks
from tuner.power.clocks.journal import JournalEntry

from tuner.model.errors import ClockError, ClockLostError, ClockPermissionError

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
