"""The clock helper: what it grants and refuses, and that hostile clients neither stop it nor set anything."""

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fake_actuator import FakeGpus
from hypothesis import given
from hypothesis import strategies as st
from tuner.power.clocks import clockd
from tuner.power.clocks.clockd import MAX_CLIENTS_OF_A_USER, ClockServer, Leases
from tuner.power.clocks.clockd_client import (
    MAX_REQUEST_BYTES,
    ClockRefusal,
    ClockRequest,
    parse_answer,
    parse_request,
    request_line,
    setting_request,
)
from tuner.power.clocks.journal import JournalEntry, SettingJournal

from tuner.model.errors import ClockError, ClockPermissionError, ClockRefusedError
from tuner.system.ownership import this_process

if TYPE_CHECKING:
    from typing_extensions import Self

TTL_S = 10.0
SET = ClockRequest("set", "nvml", "GPU-1", 900)


class Helper:
    """A server that takes its turns when it is told to, on a clock that stands still until it is moved."""

    def __init__(self, folder: Path) -> None:
        self.gpus = FakeGpus("GPU-1", "GPU-2")
        self.time_s = 0.0
        self.run_dir = folder / "run"
        self.path = folder / "clockd.sock"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.path))
        listener.listen()
        self.leases = Leases(self.run_dir, self.gpus.open, self.undo, lambda: self.time_s)
        self.server = ClockServer(listener, self.leases, ttl_s=TTL_S, now=lambda: self.time_s)

    def undo(self, entry: JournalEntry) -> list[str]:
        return self.gpus.open(entry.control, entry.gpu).restore(entry.old, entry.new)

    def connect(self) -> "Client":
        client = Client(self.path)
        self.server.turn()
        return client

    def hear(self, client: "Client", line: bytes | ClockRequest) -> dict[str, Any]:
        """Say something, let the helper have a turn, and return the answer."""
        client.say(line)
        self.server.turn()
        return client.heard()

    def pass_s(self, seconds: float) -> None:
        """Let time pass; the helper looks up because somebody connects."""
        self.time_s += seconds
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
            visitor.connect(str(self.path))
            self.server.turn()
        self.server.turn()

    def journals(self) -> list[Path]:
        return list(self.run_dir.glob("*.json"))


class Client:
    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(10.0)
        self.socket.connect(str(path))

    def say(self, line: bytes | ClockRequest) -> None:
        self.socket.sendall(line if isinstance(line, bytes) else request_line(line))

    def heard(self) -> dict[str, Any]:
        """The next answer; empty when the connection is closed."""
        line = self.socket.makefile("rb").readline()
        answer: dict[str, Any] = json.loads(line) if line else {}
        return answer

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


@pytest.fixture
def helper(tmp_path: Path) -> Iterator[Helper]:
    made = Helper(tmp_path)
    yield made
    made.server._close()


@pytest.fixture
def client(helper: Helper) -> Iterator[Client]:
    with helper.connect() as made:
        yield made


# --- granting ------------------------------------------------------------------------------------


def test_a_clock_is_set_and_reset(helper: Helper, client: Client) -> None:
    """Between set and reset the clock is held and announced in the journal; afterwards neither is left."""
    assert helper.hear(client, ClockRequest("hello")) == {"ok": True, "protocol": 2, "ttl_s": TTL_S}
    assert helper.hear(client, SET)["ok"] is True
    assert helper.gpus["GPU-1"].held_mhz == 900
    entry = SettingJournal(helper.run_dir, "nvml", "GPU-1").read()
    assert entry == JournalEntry("nvml", "GPU-1", this_process(), {"held_mhz": None}, 900)

    assert helper.hear(client, ClockRequest("reset")) == {"ok": True, "left": []}
    assert helper.gpus["GPU-1"].held_mhz is None
    assert helper.journals() == []


def test_a_power_limit_has_a_verb_of_its_own(helper: Helper, client: Client) -> None:
    """It names the control of power limits, in watts; a connection holds one setting of one GPU."""
    request = parse_request(b'{"verb": "limit", "gpu": "GPU-1", "watts": 450}')
    assert request == setting_request("powerlimit", "GPU-1", 450)
    assert (request.control, request.value) == ("powerlimit", 450)
    assert helper.hear(client, request)["message"] == "there is no powerlimit GPU GPU-1"  # of the fake
    assert helper.hear(client, SET)["ok"] is True
    refused = helper.hear(client, request)
    assert (refused["code"], "this connection holds the clocks of GPU-1" in refused["message"]) == (
        "busy",
        True,
    )


def test_the_journal_is_written_before_the_change(helper: Helper, client: Client) -> None:
    """Where the journal cannot be kept, the clock stays as it is."""
    helper.run_dir.write_text("a file where the directory should be")

    assert helper.hear(client, SET)["code"] == "clock"
    assert helper.gpus["GPU-1"].calls == []


def test_another_clock_starts_from_what_was_there(helper: Helper, client: Client) -> None:
    """A second clock is set from the state before the first, so that one entry tells the whole way back."""
    helper.gpus["GPU-1"].held_mhz = 345
    helper.hear(client, SET)
    helper.hear(client, ClockRequest("set", "nvml", "GPU-1", 1500))

    assert helper.gpus["GPU-1"].calls == ["set 900", "restore 900", "set 1500"]
    helper.hear(client, ClockRequest("reset"))
    assert helper.gpus["GPU-1"].held_mhz == 345


def test_what_is_left_alone_is_told(helper: Helper, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that somebody else has changed is left, and the client hears of it."""
    helper.hear(client, SET)
    monkeypatch.setattr("fake_actuator.FakeActuator.restore", lambda *_: ["max_freq is another's"])

    assert helper.hear(client, ClockRequest("reset"))["left"] == ["max_freq is another's"]


# --- the end of a lease --------------------------------------------------------------------------


def ends_by_hanging_up(helper: Helper, client: Client) -> None:
    client.socket.close()
    helper.server.turn()


def ends_by_half_closing(helper: Helper, client: Client) -> None:
    client.socket.shutdown(socket.SHUT_WR)
    helper.server.turn()


def ends_by_silence(helper: Helper, client: Client) -> None:
    helper.pass_s(TTL_S)
    assert client.heard()["code"] == "expired"


def ends_by_nonsense(helper: Helper, client: Client) -> None:
    assert helper.hear(client, b"nonsense\n")["code"] == "malformed"


def ends_by_the_helpers_end(helper: Helper, client: Client) -> None:
    helper.server._stopping = True
    helper.server.serve()
    assert client.heard()["code"] == "stopped"


def ends_by_reset(helper: Helper, client: Client) -> None:
    helper.hear(client, ClockRequest("reset"))


ENDS = [
    *(ends_by_hanging_up, ends_by_half_closing, ends_by_silence, ends_by_nonsense),
    *(ends_by_the_helpers_end, ends_by_reset),
]


@pytest.mark.parametrize("end", ENDS)
def test_every_end_restores(helper: Helper, end: Callable[[Helper, Client], None]) -> None:
    """However a lease ends, the clock is restored and the journal is empty."""
    with helper.connect() as client:
        helper.hear(client, SET)

        end(helper, client)

        assert helper.gpus["GPU-1"].held_mhz is None
        assert helper.journals() == []


def test_renewing_keeps_the_lease(helper: Helper, client: Client) -> None:
    """A client that says something in time holds its clock for as long as it likes."""
    helper.hear(client, SET)
    for _ in range(3):
        helper.pass_s(0.9 * TTL_S)
        assert helper.hear(client, ClockRequest("renew"))["ok"] is True

    assert helper.gpus["GPU-1"].held_mhz == 900


def test_half_a_request_is_no_sign_of_life(helper: Helper, client: Client) -> None:
    """A client that dribbles bytes without finishing a request is silent."""
    helper.hear(client, SET)
    for _ in range(4):
        client.say(b" ")
        helper.pass_s(0.3 * TTL_S)

    assert helper.gpus["GPU-1"].held_mhz is None


def test_a_late_helper_blames_nobody(helper: Helper, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who spoke while a driver call took longer than a lease keeps its lease."""
    helper.hear(client, SET)

    def slow(*_: object) -> None:
        client.say(ClockRequest("renew"))  # said in time, but the helper is busy
        helper.time_s += 2 * TTL_S

    monkeypatch.setattr("fake_actuator.FakeActuator.set", slow)
    with helper.connect() as other:
        assert helper.hear(other, ClockRequest("set", "nvml", "GPU-2", 900))["ok"] is True
        assert helper.gpus["GPU-1"].held_mhz == 900
        helper.server.turn()
        assert client.heard()["ok"] is True


# --- refusing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mhz", [-900, 0, 901, 10**50])
def test_an_unsupported_clock_is_refused(helper: Helper, client: Client, mhz: int) -> None:
    """A clock that the GPU does not have is refused, and what is held stays held."""
    helper.hear(client, SET)

    assert helper.hear(client, ClockRequest("set", "nvml", "GPU-1", mhz))["code"] == "clock"
    assert helper.gpus["GPU-1"].held_mhz == 900
    assert helper.gpus["GPU-1"].calls == ["set 900"]


def test_a_gpu_has_one_owner(helper: Helper, client: Client) -> None:
    """A second client is told who holds the GPU, changes nothing, and gets it once it is free."""
    helper.hear(client, SET)
    with helper.connect() as second:
        answer = helper.hear(second, ClockRequest("set", "nvml", "GPU-1", 1500))
        assert answer["code"] == "busy"
        assert f"process {os.getpid()} of user {os.getuid()}" in answer["message"]
        assert helper.hear(second, ClockRequest("reset"))["ok"] is True
        assert helper.gpus["GPU-1"].calls == ["set 900"]

        helper.hear(client, ClockRequest("reset"))
        assert helper.hear(second, ClockRequest("set", "nvml", "GPU-1", 1500))["code"] == "busy"
        client.socket.close()
        helper.server.turn()
        assert helper.hear(second, ClockRequest("set", "nvml", "GPU-1", 1500))["ok"] is True


def test_a_connection_holds_one_gpu(helper: Helper, client: Client) -> None:
    """The connection is the lease of one GPU; another GPU takes another connection."""
    helper.hear(client, SET)

    assert helper.hear(client, ClockRequest("set", "nvml", "GPU-2", 900))["code"] == "busy"
    assert helper.gpus["GPU-2"].calls == []


def test_a_process_beside_the_helper_owns_its_gpu(helper: Helper, client: Client) -> None:
    """What a process of root holds under the same journal is refused to clients."""
    from tuner.power.clocks.journal import Ownership  # noqa: PLC0415 - for this test alone

    other = Ownership(SettingJournal(helper.run_dir, "nvml", "GPU-1"), helper.undo)
    other.take()

    assert "held by process" in helper.hear(client, SET)["message"]
    assert helper.gpus["GPU-1"].calls == []
    other.give_up()


def test_nobody_waits_long_for_anothers_gpu(
    helper: Helper, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock of somebody who cannot be seen is waited for, by all clients alike, for a moment only."""
    waited_s = [0.0]
    monkeypatch.setattr("time.sleep", lambda seconds: waited_s.append(waited_s.pop() + seconds))
    monkeypatch.setattr("time.monotonic", lambda: waited_s[0])
    helper.run_dir.mkdir()
    with SettingJournal(helper.run_dir, "nvml", "GPU-1").lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "held by another process" in helper.hear(client, SET)["message"]
    assert 0.0 < waited_s[0] < 0.05 * TTL_S


def test_unknown_gpus_are_refused(helper: Helper, client: Client) -> None:
    """A GPU that is not there is named in the refusal, and the connection goes on."""
    assert "GPU-3" in helper.hear(client, ClockRequest("set", "nvml", "GPU-3", 900))["message"]
    assert helper.hear(client, SET)["ok"] is True


@pytest.mark.parametrize(
    "gpu", ["../../etc/passwd", ".hidden", "a/b", "", "x" * 97, "GPU-1\n", "GPU 1", "GPU-1\x00"]
)
def test_names_that_are_no_file_names_are_refused(gpu: str) -> None:
    """No name of a GPU leads out of a directory."""
    with pytest.raises(ClockRefusal, match='"gpu" must be'):
        parse_request(request_line(ClockRequest("set", "nvml", gpu, 900)))


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"null", b"[]", b"7", b'"set"', b"{}", b"\xff\xfe", b"[" * 500, b'{"verb": 1}'),
        *(b'{"verb": ["set"]}', b'{"verb": "exec"}', b'{"verb": "renew", "gpu": "GPU-1"}'),
        b'{"verb": "set", "control": "nvml", "gpu": "GPU-1"}',
        b'{"verb": "set", "control": "nvml", "gpu": "GPU-1", "mhz": true}',
        b'{"verb": "set", "control": "nvml", "gpu": "GPU-1", "mhz": 900.0}',
        b'{"verb": "set", "control": "nvml", "gpu": "GPU-1", "mhz": "900"}',
        b'{"verb": "set", "control": "nvml", "gpu": "GPU-1", "mhz": NaN}',
        b'{"verb": "set", "control": "../nvml", "gpu": "GPU-1", "mhz": 900}',
        b'{"verb": "set", "control": null, "gpu": "GPU-1", "mhz": 900}',
        b'{"verb": "set", "control": "nvml", "gpu": {}, "mhz": 900}',
        b'{"verb": "set", "control": "nvml", "gpu": "GPU-1", "mhz": 900, "path": "/sys"}',
        b'{"verb": "set", "control": "powerlimit", "gpu": "GPU-1", "mhz": 450}',
        b'{"verb": "limit", "control": "nvml", "gpu": "GPU-1", "watts": 450}',
        b'{"verb": "limit", "gpu": "GPU-1", "watts": 450.5}',
        b'{"verb": "limit", "gpu": "../GPU-1", "watts": 450}',
    ],
)
def test_malformed_requests_end_the_lease(helper: Helper, client: Client, line: bytes) -> None:
    """What is no request is refused with a reason, and the connection is closed."""
    answer = helper.hear(client, line + b"\n")

    assert answer["code"] == "malformed"
    assert answer["message"]
    assert client.heard() == {}


# --- faults of the GPU ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "calls"),
    [
        (ClockPermissionError("CAP_SYS_ADMIN"), "permission", ["set 900"]),
        (ClockRefusedError("not supported"), "clock", ["set 900"]),
        (ClockError("an error of NVML"), "clock", ["set 900", "restore 900"]),
        (RuntimeError("a bug"), "clock", ["set 900", "restore 900"]),
    ],
)
def test_a_clock_that_is_not_set_is_not_held(
    helper: Helper, client: Client, error: Exception, code: str, calls: list[str]
) -> None:
    """When setting fails the client hears why, what had begun is undone, and the GPU is free."""
    helper.gpus["GPU-1"].set_errors = [error]

    assert helper.hear(client, SET)["code"] == code
    assert helper.gpus["GPU-1"].calls == calls
    assert helper.journals() == []
    with helper.connect() as second:
        assert helper.hear(second, SET)["ok"] is True


def test_restoring_is_tried_again(helper: Helper, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore that fails once succeeds at the next attempt."""
    monkeypatch.setattr(clockd, "_PAUSE_S", 0.0)
    helper.hear(client, SET)
    helper.gpus["GPU-1"].restore_errors = [ClockError("for once"), None]

    assert helper.hear(client, ClockRequest("reset"))["ok"] is True
    assert helper.gpus["GPU-1"].held_mhz is None


def test_a_lost_gpu_keeps_its_journal(
    helper: Helper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be restored stays in the journal, is tried ever more rarely, and stops no other GPU."""
    monkeypatch.setattr(clockd, "_PAUSE_S", 0.0)
    with helper.connect() as first, helper.connect() as second:
        helper.hear(first, SET)
        helper.hear(second, ClockRequest("set", "nvml", "GPU-2", 900))
        helper.gpus["GPU-1"].restore_errors = [ClockError("GPU is lost")] * 4
    helper.server.turn()

    assert helper.gpus["GPU-2"].held_mhz is None
    assert [path.stem for path in helper.journals()] == ["nvml-GPU-1"]
    assert "GPU is lost" in caplog.text
    helper.pass_s(1.0)
    assert len(helper.journals()) == 1
    helper.pass_s(1.0)
    assert len(helper.gpus["GPU-1"].calls) == 5, "the second retry comes after twice the time"
    helper.pass_s(1.0)
    assert helper.journals() == []
    assert helper.gpus["GPU-1"].held_mhz is None


def test_a_helper_does_not_go_while_a_clock_is_left(
    helper: Helper, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without clients it ends in time, unless a clock could not be restored: nobody else would try again."""
    monkeypatch.setattr(clockd, "_PAUSE_S", 0.0)
    helper.server._idle_exit_s = 60.0
    helper.hear(client, SET)
    helper.gpus["GPU-1"].restore_errors = [ClockError("GPU is lost")] * 4
    ends_by_hanging_up(helper, client)
    helper.time_s += 100.0
    assert not helper.server._idle()
    helper.server.turn()
    assert not helper.server._idle()
    helper.pass_s(2.0)
    assert helper.gpus["GPU-1"].held_mhz is None
    helper.time_s += 60.0
    assert helper.server._idle()


def test_a_gpu_in_the_journal_is_restored_before_it_is_set(helper: Helper, client: Client) -> None:
    """What a dead owner left is undone before the next owner looks at what is there."""
    helper.run_dir.mkdir()
    SettingJournal(helper.run_dir, "nvml", "GPU-1").write(this_process(), {"held_mhz": None}, 1500)
    helper.gpus["GPU-1"].held_mhz = 1500

    helper.hear(client, SET)
    helper.hear(client, ClockRequest("reset"))

    assert helper.gpus["GPU-1"].held_mhz is None


# --- hostile clients -----------------------------------------------------------------------------


def test_endless_lines_are_cut_off(helper: Helper, client: Client) -> None:
    """A line without end is refused as soon as it is longer than any request."""
    client.say(b" " * (MAX_REQUEST_BYTES - 1))
    helper.server.turn()

    assert helper.hear(client, b"  \n")["code"] == "malformed"


def test_a_line_in_pieces_is_one_request(helper: Helper, client: Client) -> None:
    """How the bytes of a request arrive makes no difference."""
    for byte in request_line(SET)[:-1]:
        client.say(bytes([byte]))
        helper.server.turn()

    assert helper.hear(client, b"\n")["ok"] is True


def test_requests_in_one_piece_are_answered_in_turns(helper: Helper, client: Client) -> None:
    """A client that sends many requests at once has one answered before others have their turn."""
    client.say(request_line(ClockRequest("hello")) * 20)
    with helper.connect() as second:
        second.say(SET)
        helper.server.turn()
        assert second.heard()["ok"] is True


def test_a_client_that_never_reads_is_not_waited_for(helper: Helper, client: Client) -> None:
    """Answers that nobody takes fill a bounded buffer; then its requests wait, and it falls silent."""
    client.socket.settimeout(0.0)
    with helper.connect() as other:
        with contextlib.suppress(BlockingIOError):  # both buffers are full at some time
            while True:
                client.socket.send(request_line(ClockRequest("hello")))
                assert helper.hear(other, ClockRequest("renew"))["ok"] is True
        (greedy,) = [known for known in helper.server._clients if known.unsent]
        assert len(greedy.unsent) < MAX_REQUEST_BYTES
        helper.time_s += 0.9 * TTL_S
        helper.hear(other, ClockRequest("renew"))
        helper.pass_s(0.2 * TTL_S)

        assert greedy not in helper.server._clients
        assert helper.hear(other, SET)["ok"] is True


def test_a_user_has_so_many_connections(helper: Helper) -> None:
    """One who opens connections without end is told so, and the helper stays up."""
    clients = [helper.connect() for _ in range(MAX_CLIENTS_OF_A_USER)]
    with helper.connect() as refused:
        assert refused.heard()["code"] == "full"
        assert refused.heard() == {}
    assert helper.hear(clients[0], SET)["ok"] is True
    for client in clients:
        client.socket.close()
        helper.server.turn()
    with helper.connect() as again:
        assert helper.hear(again, SET)["ok"] is True


def test_there_are_so_many_clients(helper: Helper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit nobody is let in, whoever it is."""
    monkeypatch.setattr(clockd, "MAX_CLIENTS", 2)
    with helper.connect(), helper.connect(), helper.connect() as third:
        assert third.heard()["code"] == "full"
        assert len(helper.server._clients) == 2


def test_a_client_gone_before_it_is_accepted(helper: Helper) -> None:
    """A connection that is over when the helper gets to it does no harm."""
    Client(helper.path).socket.close()
    helper.server.turn()
    helper.server.turn()

    assert not helper.server._clients


jsonish = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
nearly = st.fixed_dictionaries(
    {"verb": st.sampled_from(["set", "renew", "reset", "hello"]) | jsonish},
    optional={
        "control": st.sampled_from(["nvml", "devfreq"]) | jsonish,
        "gpu": st.sampled_from(["GPU-1", "GPU-2"]) | jsonish,
        "mhz": st.sampled_from([900, 1500]) | jsonish,
        "extra": jsonish,
    },
)
lines = st.binary(max_size=2 * MAX_REQUEST_BYTES) | nearly.map(lambda value: json.dumps(value).encode())


@given(st.lists(st.tuples(lines, st.booleans()), max_size=8))
def test_no_talk_brings_the_helper_down(
    tmp_path_factory: pytest.TempPathFactory, talk: list[tuple[bytes, bool]]
) -> None:
    """Whatever a client says, another's clock stays set, others are served, at the end all is restored."""
    helper = Helper(tmp_path_factory.mktemp("fuzz"))
    with helper.connect() as honest, helper.connect() as hostile:
        helper.hear(honest, SET)
        for line, ended in talk:
            try:
                hostile.say(line + b"\n" if ended else line)
            except OSError:  # the helper has hung up
                break
            assert helper.hear(honest, ClockRequest("renew"))["ok"] is True
            assert helper.gpus["GPU-1"].held_mhz == 900
            assert helper.gpus["GPU-2"].held_mhz in (None, 900, 1500)
    helper.server._close()

    assert [gpu.held_mhz for gpu in helper.gpus.gpus.values()] == [None, None]
    assert helper.journals() == []


@given(lines)
def test_parsing_is_total(line: bytes) -> None:
    """Every line is a request or refused; what is accepted can be said again in the same words."""
    try:
        request = parse_request(line)
    except ClockRefusal:
        return
    assert parse_request(request_line(request)) == request


@given(st.binary(max_size=200) | jsonish.map(lambda value: json.dumps(value).encode()))
def test_a_client_trusts_no_answer(line: bytes) -> None:
    """Whatever listens on the socket, the client gets an answer that says yes, or a refusal."""
    try:
        assert parse_answer(line)["ok"] is True
    except ClockRefusal:
        return
