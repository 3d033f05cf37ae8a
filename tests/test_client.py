"""The client, against a scripted daemon."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from fake_service import queued_job
from hypothesis import given
from hypothesis import strategies as st
from run_documents import answered, trial
from scripted_daemon import Request, Script, ScriptedDaemon, answer, best, error, event, job, stream
from terminal_scene import served_answer

import tuner
from tuner.client import Client, Job, Use, WorkloadAnswer, default_sockets
from tuner.client.transport import Message, address, messages
from tuner.daemon.interface import encode
from tuner.model.errors import DaemonError, DaemonRefusedError, DaemonUnavailableError, InputError, TunerError
from tuner.model.jobs import JobSpec
from tuner.system.service_manager import SYSTEM_SOCKET

# --- ``tuner.Client`` against a server that says what the daemon says, and what it never would ----


Serve = Callable[[Script], ScriptedDaemon]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts a daemon with a script."""
    started: list[ScriptedDaemon] = []

    def start(script: Script) -> ScriptedDaemon:
        daemon = ScriptedDaemon(tmp_path / "tunerd.sock", script)
        daemon.start()
        started.append(daemon)
        return daemon

    yield start
    for daemon in started:
        daemon.stop()


def always(said: bytes | None) -> Script:
    return lambda _: said


def asking(daemon: ScriptedDaemon, **options: Any) -> Client:
    return Client(daemon.path, **options)


# --- what is sent, and what is read -----------------------------------------------------------------


def test_submit_sends_what_was_chosen_and_no_more(serve: Serve) -> None:
    """What is None is left out, so that the daemon's own defaults count."""
    daemon = serve(always(answer(job(3, options={"budget": 5}), 201)))
    made = asking(daemon).submit(
        "scan-lf:N=4", "fft:N=8", objective="time", priority=2.0, budget=5, seed=None
    )

    (request,) = daemon.asked
    assert (request.method, request.path) == ("POST", "/v1/jobs")
    assert request.body == {
        "workloads": ["scan-lf:N=4", "fft:N=8"],
        "objective": "time",
        "priority": 2.0,
        "options": {"budget": 5},
    }
    assert (made.id, made.workloads, made.options["budget"]) == (3, ("scan-lf:N=4",), 5)


def test_jobs_are_listed_by_state(serve: Serve) -> None:
    """States, limit and the number before which to list travel in the query."""
    daemon = serve(always(answer({"jobs": [job(2), job(1, state="failed")]})))
    found = asking(daemon).jobs(("queued", "failed"), limit=5, before=9)

    assert [one.id for one in found] == [2, 1]
    assert [one.ended for one in found] == [False, True]
    assert daemon.asked[0].query == {"state": ["queued", "failed"], "limit": ["5"], "before": ["9"]}


@pytest.mark.parametrize(
    ("call", "method", "path"),
    [
        (lambda client: client.job(7), "GET", "/v1/jobs/7"),
        (lambda client: client.cancel(7), "POST", "/v1/jobs/7/cancel"),
        (lambda client: client.pause(7), "POST", "/v1/jobs/7/pause"),
        (lambda client: client.resume(7), "POST", "/v1/jobs/7/resume"),
    ],
    ids=["job", "cancel", "pause", "resume"],
)
def test_what_is_done_to_a_job(serve: Serve, call: Callable[[Client], Job], method: str, path: str) -> None:
    """Each call is one request, and gives the job as it stands now."""
    daemon = serve(always(answer(job(7, state="cancelled", reason="by user 1000"))))
    stands = call(asking(daemon))

    assert [(request.method, request.path) for request in daemon.asked] == [(method, path)]
    assert (stands.id, stands.state, stands.reason) == (7, "cancelled", "by user 1000")


def test_best_asks_for_workloads_that_run_together(serve: Serve) -> None:
    """The question is in the query; the reply says per workload where its configuration comes from."""
    daemon = serve(always(answer(best(stale=["driver 1, now 2"]))))
    found = asking(daemon).best("scan-lf:N=4", "fft:N=8", max_slowdown=0.05, clocks_as_found=True, count=3)

    assert daemon.asked[0].query == {
        "workload": ["scan-lf:N=4", "fft:N=8"],
        "objective": ["time"],
        "max_slowdown": ["0.05"],
        "clocks_as_found": ["true"],
        "count": ["3"],
    }
    assert found.workloads["scan-lf:N=4"] == WorkloadAnswer({"P": 2, "L": 64}, "nearest", "of N=8")
    assert (found.origin, found.stale, found.refinement) == ("nearest", ("driver 1, now 2",), 7)


def test_numbers_that_json_lacks_are_not_sent(serve: Serve) -> None:
    """Infinity and not-a-number are wrong input before anything is sent."""
    daemon = serve(always(answer(job(1), 201)))
    for number in (float("nan"), float("inf")):
        with pytest.raises(InputError, match="not finite"):
            asking(daemon).submit("scan-lf:N=4", priority=number)
        with pytest.raises(InputError, match="not finite"):
            asking(daemon).used(Use(("scan-lf:N=4",), count=number))
    assert daemon.asked == []


def test_uses_are_told(serve: Serve) -> None:
    """Uses are sent with all that makes up their question."""
    daemon = serve(always(b"HTTP/1.1 204 No Content\r\n\r\n"))
    asking(daemon).used(Use(("scan-lf:N=4",), objective="time", count=12.0))

    assert daemon.asked[0].body == {
        "uses": [
            {
                "workloads": ["scan-lf:N=4"],
                "objective": "time",
                "device": "",
                "max_slowdown": None,
                "clocks_as_found": False,
                "count": 12.0,
            }
        ]
    }


def test_the_clients_job_is_the_daemons(serve: Serve) -> None:
    """Every field of a job comes through JSON as it was."""
    spec = JobSpec(("scan-lf:N=4",), device="kind:NVIDIA H200", options={"budget": 5})
    sent = queued_job(3, spec, device="cuda:1", gpu="GPU-1", priority=2.0, run=7, trials=9)
    daemon = serve(always(answer(json.loads(encode(vars(sent))))))

    assert asking(daemon).job(3) == sent
    assert (sent.spec, sent.placed_spec.device) == (spec, "cuda:1")


def test_words_of_a_newer_daemon_do_no_harm(serve: Serve) -> None:
    """A state, an origin or a field that this version does not know is read as it is, or left out."""
    daemon = serve(always(answer(job(1, state="frozen", origin="moon", mood="good"))))
    found = asking(daemon).job(1)

    assert (found.id, found.state, found.origin, found.ended) == (1, "frozen", "moon", False)


# --- what can go wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "status", "raised", "code"),
    [
        ("input", 400, InputError, 2),
        ("input", 422, InputError, 2),
        ("too-large", 413, InputError, 2),
        ("unknown-job", 404, InputError, 2),
        ("not-now", 409, DaemonRefusedError, 1),
        ("too-many", 429, DaemonRefusedError, 1),
        ("not-yours", 403, DaemonRefusedError, 1),
        ("too-large", 431, InputError, 2),
        ("unauthorised", 403, DaemonUnavailableError, 1),
        ("busy", 503, DaemonUnavailableError, 1),
        ("unauthorised", 401, DaemonUnavailableError, 1),
        ("store", 503, DaemonUnavailableError, 1),
        ("internal", 500, DaemonError, 1),
        ("of-tomorrow", 418, DaemonError, 1),
    ],
)
def test_the_daemons_errors_are_ours(
    serve: Serve, kind: str, status: int, raised: type[TunerError], code: int
) -> None:
    """An error of the daemon has here the class and exit code it would have without one, and its words."""
    daemon = serve(always(error(kind, "unknown kernel 'x'", status)))
    with pytest.raises(TunerError, match="unknown kernel 'x'") as caught:
        asking(daemon).job(1)

    assert type(caught.value) is raised
    assert caught.value.exit_code == code


def _answered(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.parametrize(
    "said",
    [
        b"220 mail.example.org ESMTP\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b'HTTP/1.1 500 X\r\nContent-Length: 14\r\n\r\n{"error": null}',
        answer([]),
        answer({"jobs": 3}),
        answer({"jobs": [{"id": 1}]}),
        answer({"jobs": [job(id="one")]}),
        answer({"jobs": [job(workloads=[1])]}),
        answer({"jobs": [None]}),
        _answered(b"[" * 200_000),
        _answered(b'{"jobs": ' + b"[" * 200_000),
        _answered(b'{"jobs": [], "more": 1e400}'),
        _answered(b'{"jobs": [], "more": NaN}'),
        _answered(b'{"jobs": [], "more": "\\ud800"}'),
        answer({"jobs": [job(options={"max_slowdown": "x"})]}),
    ],
)  # fmt: skip
def test_garbage_is_called_so(serve: Serve, said: bytes) -> None:
    """Whatever else listens there: the error is the daemon's, names the socket and shows what came."""
    daemon = serve(always(said))
    with pytest.raises(DaemonError, match=str(daemon.path)):
        asking(daemon).jobs()


@pytest.mark.parametrize("said", [[1], {"runs": 3}, {"runs": [3]}])
def test_a_list_that_is_none_is_told(serve: Serve, said: object) -> None:
    """Answers of another form are no daemon's of this version."""
    with pytest.raises(DaemonError, match="does not answer as tunerd does"):
        asking(serve(always(answer(said)))).archive.runs()


@given(st.binary(max_size=200))
def test_no_bytes_make_another_error(said: bytes) -> None:
    """Whatever bytes come back, what is raised is in the tree of errors, and at once."""
    here, there = socket.socketpair()
    with here, there:
        here.sendall(said)
        here.shutdown(socket.SHUT_WR)
        with pytest.raises(TunerError):
            _client_over(there).status()


def _client_over(connected: socket.socket) -> Client:
    """A client whose connection is open already."""
    from tuner.client import transport  # noqa: PLC0415 - only here

    client = Client("unused")
    end = transport._TimedSocket(fileno=os.dup(connected.fileno()))
    end.limit(10.0)

    class Connected(transport._Connection):
        def connect(self) -> None:
            self.sock = self.timed = end

    client._transport._connection = lambda: Connected(client.address, 10.0)  # type: ignore[method-assign]
    return client


def test_an_endless_answer_is_cut(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more of an answer is taken than an answer may have."""
    monkeypatch.setattr("tuner.client.transport.MOST_BYTES", 1000)
    daemon = serve(always(answer({"jobs": "x" * 2000})))
    with pytest.raises(DaemonError, match="more than 1,000 bytes"):
        asking(daemon).jobs()


def test_silence_ends_at_the_time_out(serve: Serve) -> None:
    """A daemon that takes a request and says nothing costs no more than the time-out."""
    daemon = serve(always(None))
    with pytest.raises(DaemonUnavailableError, match=r"did not answer within 0\.05 s"):
        asking(daemon, timeout_s=0.05).status()


def test_dripping_ends_at_the_time_out(tmp_path: Path) -> None:
    """The time-out is for the whole answer: a byte now and then does not put it off."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path = tmp_path / "s"
    listener.bind(str(path))
    listener.listen()
    over = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while not over.wait(0.02):
                connection.sendall(b"X: y\r\n")

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    try:
        with pytest.raises(DaemonUnavailableError, match="did not answer within"):
            Client(path, timeout_s=0.2).status()
    finally:
        over.set()
        thread.join(60)
        listener.close()


def test_a_full_queue_ends_at_the_time_out(tmp_path: Path) -> None:
    """A daemon that accepts no connection any more counts as one that does not answer."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as first:
            first.connect(str(path))
            with pytest.raises(DaemonUnavailableError, match="did not answer within"):
                Client(path, timeout_s=0.05).status()


@pytest.mark.parametrize("there", ["nothing", "file", "dead socket", "directory missing"])
def test_no_daemon(tmp_path: Path, there: str) -> None:
    """Without a daemon the error says where one was looked for and how to start one."""
    path = tmp_path / "s" if there != "directory missing" else tmp_path / "d" / "s"
    if there == "file":
        path.write_text("")
    elif there == "dead socket":
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(path))
    with pytest.raises(DaemonUnavailableError, match=r"no daemon listens at .*tuner daemon --foreground"):
        Client(path).status()


def test_a_path_too_long_for_a_socket(tmp_path: Path) -> None:
    """What the system refuses before it looks is told as well."""
    with pytest.raises(DaemonUnavailableError, match="AF_UNIX path too long"):
        Client(tmp_path / ("x" * 200)).status()


def test_permission_denied_names_the_group(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not use the socket is told which group may."""
    daemon = serve(always(answer({})))

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    group = daemon.path.group()
    with pytest.raises(
        DaemonUnavailableError, match=rf"members of the group {group} \(`sudo usermod -aG {group} "
    ):
        asking(daemon).status()


def test_a_refusal_before_the_request_is_sent_is_heard(tmp_path: Path) -> None:
    """A daemon that answers and closes while a long request is on its way is understood."""
    path = tmp_path / "tunerd.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def refuse() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(error("too-many", "too many connections", 429))

        thread = threading.Thread(target=refuse)
        thread.start()
        many = [Use(("x" * 200,) * 16)] * 2000  # more than a socket takes without a reader
        with pytest.raises(DaemonRefusedError, match="too many connections"):
            Client(path).used(*many)
        thread.join()


def _later(kind: str, message: str, status: int, after: str) -> bytes:
    return error(kind, message, status).replace(b"\r\n", f"\r\nRetry-After: {after}\r\n".encode(), 1)


@pytest.mark.parametrize(
    ("said", "raised", "words"),
    [
        (error("unauthorised", "not you", 401), DaemonUnavailableError, "not you; .*token file in"),
        (error("unauthorised", "not you", 403), DaemonUnavailableError, "not you; .*members of the group"),
        (_later("too-many", "no room", 429, "3"), DaemonRefusedError, "^no room; ask again in 3 s$"),
        (_later("too-many", "no room", 429, "tomorrow"), DaemonRefusedError, "^no room$"),
        (
            _later("not-ready", "x.toml: wrong", 503, "1"),  # asking again mends nothing
            DaemonUnavailableError,
            r"x\.toml: wrong\nthe daemon goes on by itself when .* mended$",
        ),
        (b"", DaemonUnavailableError, "ended the connection"),
    ],
)
def test_a_refusal_says_what_helps(serve: Serve, said: bytes, raised: type[TunerError], words: str) -> None:
    """A missing token and a missing group have other remedies than a full queue or a file that is wrong."""
    with pytest.raises(raised, match=words):
        asking(serve(always(said))).status()


# --- following ---------------------------------------------------------------------------------------


def test_follow_ends_with_the_job(serve: Serve) -> None:
    """Events come as they are sent; the stream and the iteration end with the job."""
    said = (event(1, "state", state="running"), event(None, "trial", number=1))
    daemon = serve(always(stream(b": hello\n\n", *said, event(2, "state", state="finished"))))
    told = list(asking(daemon).follow(1))

    assert [(one.id, one.kind) for one in told] == [(1, "state"), (None, "trial"), (2, "state")]
    assert [request.path for request in daemon.asked] == ["/v1/jobs/1/events"]


@pytest.mark.parametrize("whole", [True, False], ids=["stopped", "killed"])
def test_follow_goes_on_after_a_restart(serve: Serve, whole: bool) -> None:
    """A daemon that ends the stream early is asked again for what came after the last stored event."""

    def script(request: Request) -> bytes:
        if request.path == "/v1/jobs/1":
            return answer(job(1, state="finished"))
        if request.headers["Last-Event-ID"] == "0":
            return stream(event(4, "state", state="running"), event(None, "trial", number=1), whole=whole)
        assert request.headers["Last-Event-ID"] == "4"
        return stream(event(5, "state", state="finished"))

    told = list(asking(serve(script)).follow(1))
    assert [one.id for one in told] == [4, None, 5]


def test_follow_looks_again_for_a_daemon_that_is_away(serve: Serve) -> None:
    """Between two events the daemon may be replaced by another at the same socket."""
    daemon = serve(always(stream(event(1, "state", state="running"), whole=False)))
    events = asking(daemon).follow(1)
    assert next(events).id == 1
    daemon.stop()
    daemon.script = always(stream(event(2, "state", state="failed")))
    thread = threading.Thread(target=daemon.start)
    thread.start()
    assert [one.id for one in events] == [2]
    thread.join(60)


def test_follow_has_no_patience_for_ever(serve: Serve) -> None:
    """A daemon that stays away is given up after the patience of the client."""
    daemon = serve(always(stream(event(1, "state", state="running"))))
    events = asking(daemon, patience_s=0.3).follow(1)
    next(events)
    daemon.stop()
    with pytest.raises(DaemonUnavailableError, match="no daemon listens"):
        next(events)
    daemon.start()


def test_follow_of_a_stream_that_says_nothing(serve: Serve) -> None:
    """Stream after stream without a word is the end of a job that has ended; of another it is given up."""
    state = "cancelled"
    daemon = serve(lambda r: stream() if r.path.endswith("events") else answer(job(1, state=state)))
    assert list(asking(daemon).follow(1, after=9)) == []
    assert daemon.asked[0].headers["Last-Event-ID"] == "9"
    state = "running"
    with pytest.raises(DaemonError, match="ends before its job"):
        next(asking(daemon, patience_s=0.3).follow(1))


def test_follow_of_no_such_job(serve: Serve) -> None:
    """What the daemon refuses is raised at once, not tried again."""
    daemon = serve(always(error("unknown-job", "no job 8", 404)))
    with pytest.raises(InputError, match="no job 8"):
        next(asking(daemon).follow(8))
    assert len(daemon.asked) == 1


def test_an_event_that_is_none(serve: Serve) -> None:
    """What another program streams is no event, of a job and of everything."""
    client = asking(serve(always(stream(b"data: {}\n\n"))))
    for events in (client.follow(1), client.watch()):
        with pytest.raises(DaemonError, match=r"does not answer as tunerd does.*Event without kind"):
            next(events)


@given(
    st.lists(
        st.builds(
            Message,
            st.integers(1, 999).map(str),
            st.sampled_from(["state", "trial"]),
            st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\n"), min_size=1),
        )
    ),
    st.sampled_from(["\n", "\r\n"]),
)
def test_a_stream_reads_as_it_was_written(sent: list[Message], end: str) -> None:
    """Messages come back whole, in order, whatever their text and line ends."""
    text = "".join(
        f"id: {m.id}{end}event: {m.event}{end}data: {m.data}{end}{end}: alive{end}{end}" for m in sent
    )
    read = list(messages(text.encode().splitlines(keepends=True)))

    assert [message for message in read if message is not None] == sent
    assert read.count(None) == len(sent)


def test_a_message_that_is_cut_off_is_dropped() -> None:
    """Half a message is no message; data of several lines is joined."""
    lines = [b"data: a\n", b"data: b\n", b"\n", b"id: 2\n", b"data: c"]
    assert list(messages(lines)) == [Message("", "", "a\nb")]


# --- where the daemon is ------------------------------------------------------------------------------


def test_default_sockets(tmp_path: Path) -> None:
    """The variable says it alone; else the user's own daemon where it is there, else the system's."""
    named = {"TUNER_SOCKET": "/a/b", "XDG_RUNTIME_DIR": str(tmp_path)}
    own = tmp_path / "tuner" / "tunerd.sock"
    mine = {"XDG_RUNTIME_DIR": str(tmp_path)}

    assert default_sockets(named) == (Path("/a/b"),)
    assert default_sockets(mine) == (own, SYSTEM_SOCKET)
    assert default_sockets({}) == (SYSTEM_SOCKET,)
    assert address(None, mine).path == SYSTEM_SOCKET
    own.parent.mkdir()
    own.touch()
    assert address(None, mine).path == own
    assert address(None, named).path == Path("/a/b")
    assert address("/c", named).path == Path("/c")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "write the path"),
        ("/a\0b", "write the path"),
        ("https://127.0.0.1:1", "write the path"),
        ("http://127.0.0.1", "write the path"),
        ("http://127.0.0.1:99999", "Port out of range"),
        ("http://127.0.0.1:1/v1", "write the path"),
        ("http://tuner.example.org:80", "forward a local port"),
        ("http://10.0.0.1:80", "forward a local port"),
    ],
)
def test_urls_that_cannot_be(url: str, says: str) -> None:
    """A URL names a port of this machine and nothing else, or says what would be right."""
    with pytest.raises(InputError, match=says):
        Client(url)


def test_over_tcp_the_token_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the loopback the content of the token file goes along, and over a socket it does not."""
    token = tmp_path / "token"
    token.write_text("secret\n")
    headers: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for said in (answer({}), error("unauthorised", "not you", 401)):
                connection, _ = listener.accept()
                with connection:
                    headers.append(connection.recv(65536))
                    connection.sendall(said)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert Client(url, token_file=token).status() == {}
        with pytest.raises(DaemonUnavailableError, match=f"that of {token} was revoked, has ended"):
            Client(url, token_file=token).status()
        thread.join(60)
    with pytest.raises(DaemonUnavailableError, match=r"no daemon listens at .*: `port` of \[tcp\]"):
        Client(url).status()
    assert b"Authorization: Bearer secret\r\n" in headers[0]

    monkeypatch.setenv("TUNER_TOKEN_FILE", str(token))
    with ScriptedDaemon(tmp_path / "s", always(answer({}))) as daemon:
        Client(daemon.path).status()
    assert "Authorization" not in daemon.asked[0].headers


def test_a_token_file_that_cannot_be_read(tmp_path: Path) -> None:
    """The error names the file, not the connection."""
    (tmp_path / "empty").touch()
    for name, says in (("none", "No such file or directory; name one"), ("empty", "is empty; `tuner token")):
        with pytest.raises(InputError, match=f"token file .*{name}: {says}"):
            Client("http://127.0.0.1:9", token_file=tmp_path / name).status()


# --- the package --------------------------------------------------------------------------------------


def test_the_client_is_small() -> None:
    """Importing the client, or tuner, brings in nothing but the standard library."""
    code = (
        "import sys, tuner; before = set(sys.modules); tuner.Client;"
        " print(sorted({m.partition('.')[0] for m in sys.modules} - sys.stdlib_module_names))"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=_path()
    )
    assert ran.stdout.strip() == "['__main__', 'tuner']" or ran.stdout.strip() == "['tuner']"


def _path() -> dict[str, str]:
    return {"PYTHONPATH": str(Path(tuner.__file__).parent.parent)}


def test_all_is_there() -> None:
    """What the package says it has, it has; what it has not, it says so as modules do."""
    assert set(tuner.__all__) >= {"Client", "apply", "chosen"}
    assert tuner.Client is Client
    with pytest.raises(AttributeError, match="no attribute 'Server'"):
        tuner.Server  # type: ignore[attr-defined]  # noqa: B018


# --- ``tuner.Client`` on what is stored and on the stream of everything, against a scripted daemon


def test_watching_goes_on_where_it_was(tmp_path: Path) -> None:
    """After the stream was cut the client asks again, with the place of the last event that had one."""
    said = [
        stream(event(None, "begin", resumed=False), b"id: aa-7\nevent: job\ndata: " + _job(), whole=False),
        stream(event(None, "begin", resumed=True)),
    ]
    with ScriptedDaemon(tmp_path / "s", lambda _: said.pop(0)) as daemon:
        watched = list(islice(Client(daemon.path).watch(power=True), 3))

    assert [one.kind for one in watched] == ["begin", "job", "begin"]
    assert watched[1].job == 1
    assert [request.headers.get("Last-Event-ID") for request in daemon.asked] == [None, "aa-7"]
    assert daemon.asked[0].query == {"power": ["true"]}


def _job() -> bytes:
    return b'{"kind": "job", "at": "2026-11-21T22:00:00+00:00", "job": 1, "data": {}}\n\n'


def test_a_daemon_that_stays_away_ends_the_watching(tmp_path: Path) -> None:
    """Patience has an end."""
    with pytest.raises(DaemonUnavailableError, match="no daemon listens"):
        next(Client(tmp_path / "s", patience_s=0.0).watch())


def test_trials_are_read_page_by_page(tmp_path: Path) -> None:
    """The pages of a run make one list, and no page is asked for twice."""

    def page(request: Request) -> bytes:
        after = int(request.query["after"][0])
        return answer({"trials": [trial({}, number=after + 1)], "next": after + 1 if after < 2 else None})

    with ScriptedDaemon(tmp_path / "s", page) as daemon:
        numbers = [one["number"] for one in Client(daemon.path).archive.trials(4)]

    assert numbers == [1, 2, 3]
    assert {request.path for request in daemon.asked} == {"/v1/runs/4/trials"}


def test_what_is_stored_is_asked_for_by_its_routes(tmp_path: Path) -> None:
    """Each method asks its route with what was named, and gives what is listed there."""
    rows: Any = {
        **answered(None, ["a:N=1"]),
        "runs": [{"run": 2}],
        "answers": [served_answer()],
        "history": [],
        "samples": [{"verdict": "inside"}],
    }
    with ScriptedDaemon(tmp_path / "s", lambda _: answer(rows)) as daemon:
        client = Client(daemon.path)
        assert client.archive.runs("scan-lf:N=4", limit=5, before=9) == rows["runs"]
        assert client.archive.answers(stale=True) == [served_answer()]
        assert client.archive.history() == []
        assert client.archive.samples(2) == rows["samples"]
        assert client.archive.run(2) == rows
        assert client.power() == rows

    asked = [(request.path, request.query) for request in daemon.asked]
    assert asked[0] == ("/v1/runs", {"workload": ["scan-lf:N=4"], "limit": ["5"], "before": ["9"]})
    assert asked[1] == ("/v1/answers", {"stale": ["true"]})
    assert [path for path, _ in asked[2:]] == ["/v1/history", "/v1/runs/2/samples", "/v1/runs/2", "/v1/power"]
