"""What one client may take of the HTTP face, and streams."""

import asyncio
import contextlib
import http.client
import json
import math
import os
import re
import resource
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from fake_service import FakeService
from hypothesis import given
from hypothesis import strategies as st
from served_service import PATIENCE_S, ServedService, answered, ask, connected, served

from tuner.daemon.http import client_connection as protocol
from tuner.daemon.http import client_connection as room
from tuner.daemon.http.access import Gate, UserRateLimiter
from tuner.daemon.http.client_connection import HEAD_BYTES, SHARE, UserSlots, head_fault
from tuner.daemon.http.responses import EventStream, event_text
from tuner.daemon.interface import Peer
from tuner.daemon.settings import LimitsTable
from tuner.model.jobs import Event, JobSpec, JobState
from tuner.system.logs import LogRateLimiter

BODY_BYTES = 1024
REQUEST = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def api() -> Iterator[ServedService]:
    """For those who leave nothing behind."""
    with served(body_bytes=BODY_BYTES, requests_per_s=1e6) as running:
        yield running


@given(st.integers(1, 20), st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=100))
def test_places_are_never_more_than_there_are(count: int, steps: list[tuple[int, bool]]) -> None:
    """However users come and go, no more are in than there are places, and nobody has more than a share."""
    places = UserSlots(count)
    inside: list[int] = []
    for user, comes in steps:
        if comes:
            free = len(inside) < count and inside.count(user) < max(1, math.floor(count * SHARE))
            assert places.take(user) == free
            inside += [user] * free
        elif user in inside:
            inside.remove(user)
            places.leave(user)
        assert len(places) == len(inside)


@given(
    st.floats(0.1, 1000),
    st.lists(st.tuples(st.integers(0, 2), st.floats(0, 2)), min_size=1, max_size=200),
)
def test_nobody_passes_faster_than_the_rate(per_s: float, steps: list[tuple[int, float]]) -> None:
    """In any stretch a user passes no more often than the rate allows, beside one second's worth at once."""
    now_s = 0.0
    rate = UserRateLimiter(per_s, lambda: now_s)
    passed: dict[int, int] = {}
    for user, pause_s in steps:
        now_s += pause_s
        wait_s = rate.wait_s(user)
        if wait_s == 0.0:
            passed[user] = passed.get(user, 0) + 1
        else:
            assert wait_s <= 1.0 / per_s
        assert passed.get(user, 0) <= max(1.0, per_s) + now_s * per_s + 1e-6


def test_who_waits_as_told_passes() -> None:
    """After the time that a refusal names, the next request passes; other users are not held up."""
    now_s = 100.0
    rate = UserRateLimiter(2.0, lambda: now_s)
    assert [rate.wait_s("a") for _ in range(3)] == [0.0, 0.0, pytest.approx(0.5)]
    assert rate.wait_s("b") == 0.0
    now_s += 0.5
    assert rate.wait_s("a") == 0.0


def test_users_who_were_here_long_ago_are_forgotten() -> None:
    """The memory of the rate has a bound, however many users come."""
    now_s = 0.0
    rate = UserRateLimiter(10.0, lambda: now_s)
    for user in range(10_000):
        now_s += 0.01
        rate.wait_s(user)

    assert len(rate._buckets) <= 1024


def test_what_happens_all_the_time_is_told_seldom() -> None:
    """The log hears at most once in a while of what anybody can do at will, and then how often it was."""
    now_s = 0.0
    seldom = LogRateLimiter(10.0, lambda: now_s)
    assert [seldom.times() for _ in range(4)] == [1, 0, 0, 0]
    now_s = 10.0
    assert [seldom.times() for _ in range(2)] == [4, 0]


def test_too_many_requests_are_refused_until_later() -> None:
    """Beyond the rate the answer is 429 with the time to wait, on a connection that stays."""
    with served(requests_per_s=2.0) as api, contextlib.closing(api.connection()) as connection:
        answers = [ask(connection, "GET", "/v1/best?workload=scan-lf") for _ in range(4)]

    refused = [answer for answer in answers if answer.status == 429]
    assert answers[0].status == 200
    assert refused
    assert {answer.kind for answer in refused} == {"too-many"}
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}


def head(padding: int) -> bytes:
    """A request whose head has so many bytes."""
    begin = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nX: "
    return begin + b"x" * (padding - len(begin) - 4) + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("size", "status"),
    [(1000, 200), (HEAD_BYTES, 200), (HEAD_BYTES + 1, 431), (200_000, 431), (900_000, 431)],
)
@pytest.mark.parametrize("before", [b"", REQUEST])
def test_a_head_has_a_longest_length(api: ServedService, size: int, status: int, before: bytes) -> None:
    """A head beyond the limit is 431 and ends the connection, also behind another request in one piece."""
    with connected(api.path) as connection:
        connection.sendall(before + head(size))
        if status == 200:
            connection.shutdown(socket.SHUT_WR)
        heard = until_closed(connection)
        assert api.ask("GET", "/v1/status").status == 200

    assert [int(line[9:12]) for line in re.findall(rb"HTTP/1.1 \d+", heard)] == [200] * bool(before) + [
        status
    ]


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 2\r\nTransfer-Encoding: chunked",
        b"transfer-encoding : chunked\r\nX: y\r\ncontent-length:2",
        b"Content-Length: 2\r\nContent-Length: 2",
        b"Content-Length: 2, 2",
        b"Content-Length: 2\r\nX: y\r\n Transfer-Encoding: chunked",
        b"X: y\nContent-Length: 2",
        b"X: y\rContent-Length: 2",
    ],
)
def test_a_request_that_can_be_read_as_two_is_refused(api: ServedService, headers: bytes) -> None:
    """What follows such a head is answered by nobody, and the connection is closed."""
    smuggled = b"GET /v1/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
    begin = b"POST /v1/uses HTTP/1.1\r\nHost: localhost\r\n"
    with connected(api.path) as connection:
        connection.sendall(begin + headers + b"\r\n\r\n0\r\n\r\n" + smuggled)
        heard = until_closed(connection)

    assert heard.count(b"HTTP/1.1") == 1
    assert heard.startswith(b"HTTP/1.1 400 ")
    assert json.loads(heard.partition(b"\r\n\r\n")[2])["error"]["kind"] == "input"


@given(st.binary(max_size=300), st.integers(0, 3))
def test_every_beginning_of_a_head_is_waited_for(end: bytes, cut: int) -> None:
    """A head is refused when it is whole, or longer than it may be, and not before."""
    text = b"POST /x HTTP/1.1\r\n" + end
    whole = re.search(rb"\n\r?\n", text)
    if whole is None:
        assert head_fault(text) is None
    else:
        assert head_fault(text[: max(0, whole.end() - 1 - cut)]) is None


@pytest.mark.parametrize("size", [BODY_BYTES, BODY_BYTES + 1, 100_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_has_a_longest_length(api: ServedService, size: int, chunked: bool) -> None:
    """A body up to the limit is read, a longer one is 413, announced or counted, and the connection stays."""
    body = b'{"uses": []' + b" " * (size - 12) + b"}"
    headers = {"Content-Type": "application/json"}
    with contextlib.closing(api.connection()) as connection:
        if chunked:
            pieces = [body[at : at + 500] for at in range(0, size, 500)]
            connection.request("POST", "/v1/uses", iter(pieces), headers, encode_chunked=True)
            response = connection.getresponse()
            status = response.status
            response.read()
        else:
            status = ask(connection, "POST", "/v1/uses", body, headers).status
        after = ask(connection, "GET", "/v1/status").status

    assert status == (204 if size <= BODY_BYTES else 413)
    assert after == 200


def test_an_endless_body_is_cut_off(api: ServedService) -> None:
    """What follows a refused body is dropped for a while, so that the answer arrives, and then cut off."""
    head = b"POST /v1/uses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n"
    with connected(api.path) as connection:
        connection.sendall(head)
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            connection.sendall(b"x" * 10_000_000)
        assert api.ask("GET", "/v1/status").status == 200


def test_a_request_that_does_not_arrive_ends_the_connection() -> None:
    """Whoever does not finish a request in time is cut off, wherever it stopped; a whole one is answered."""
    pieces = (
        b"",
        b"GET /v1/st",
        b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"POST /v1/uses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{",
        b"POST /v1/uses HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        REQUEST + b"GET /v1",
    )
    with served(request_timeout_s=0.2) as api, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connected(api.path)) for _ in pieces]
        for connection, piece in zip(connections, pieces, strict=True):
            connection.sendall(piece)
        heard = [until_closed(connection) for connection in connections]
        api.server._server_limits.request_timeout_s = PATIENCE_S
        assert api.ask("GET", "/v1/status").status == 200

    assert [said.count(b"HTTP/1.1 200") for said in heard] == [piece.count(REQUEST) for piece in pieces]
    assert not any(b"HTTP/1.1 5" in said for said in heard)


def test_a_request_in_drops_has_no_more_time() -> None:
    """The time is for the whole request: a byte now and then does not renew it."""
    with served(request_timeout_s=0.2) as api, connected(api.path) as connection:
        connection.sendall(b"GET /v1/status HTTP/1.1\r\nHost: ")
        connection.settimeout(0.02)
        heard = None
        while heard != b"":
            try:
                heard = connection.recv(100)
            except TimeoutError:
                pass
            except ConnectionResetError:  # it ended with a byte of ours unread
                heard = b""
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(b"x")

    assert heard == b""


def test_an_answer_that_is_not_taken_ends_the_connection() -> None:
    """Whoever asks and asks and never reads is cut off, and holds no memory after that."""
    with served(request_timeout_s=0.1) as api, connected(api.path) as connection:
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            connection.sendall(REQUEST.replace(b"/v1/status", b"/openapi.json") * 100_000)
        api.server._server_limits.request_timeout_s = 10.0
        assert api.ask("GET", "/v1/status").status == 200


def test_connections_beyond_the_limit_are_told_so() -> None:
    """One user gets a share of the connections; one more is told 429, and has room when one leaves."""
    with served(connections=4) as api, contextlib.ExitStack() as stack:
        held = [stack.enter_context(connected(api.path)) for _ in range(3)]
        for connection in held:
            connection.sendall(REQUEST)
            assert connection.recv(12) == b"HTTP/1.1 200"
        assert api.ask("GET", "/v1/status").status == 429
        with connected(api.path) as late, connected(api.path) as silent:
            assert silent.recv(12) == b"HTTP/1.1 429"
            late.sendall(b"POST /v1/jobs HTTP/1.1\r\nContent-Length: 9\r\n\r\n123456789")
            answer = until_closed(late)
            assert answer.startswith(b"HTTP/1.1 429 ")
            assert b"retry-after: 1" in answer
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["kind"] == "too-many"
        held[0].close()
        while len(api.server._server_limits.slots) > 2:
            api.wait(asyncio.sleep(0))
        assert api.ask("GET", "/v1/status").status == 200


def test_those_who_are_refused_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections too many are waited for a moment, some at a time, and leave nothing behind."""
    monkeypatch.setattr(room, "_MOST_REFUSED", 4)
    monkeypatch.setattr(protocol, "_REFUSED_S", 0.05)
    with served(connections=4) as api, contextlib.ExitStack() as stack:
        for _ in range(3):
            held = stack.enter_context(connected(api.path))
            held.sendall(REQUEST)
            assert held.recv(12) == b"HTTP/1.1 200"
        for _ in range(20):
            beyond = stack.enter_context(connected(api.path))
            assert beyond.recv(12) == b"HTTP/1.1 429"
        while len(api.server.server_state.connections) > 3:
            api.wait(asyncio.sleep(0.01))
        assert len(api.server._server_limits.refusals) == 0


def test_strangers_do_not_lock_out_who_has_the_token() -> None:
    """Connections without the token have places of their own, of which a new one takes the oldest."""
    with served(tcp=True, connections=4) as api, contextlib.ExitStack() as stack:
        assert api.tcp is not None
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", api.tcp.port)))
        holder = http.client.HTTPConnection("127.0.0.1", api.tcp.port, timeout=10)
        stack.callback(holder.close)
        shown = {"Authorization": f"Bearer {api.token}"}
        assert ask(holder, "GET", "/v1/status", headers=shown).status == 200
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", api.tcp.port)))
        assert ask(holder, "GET", "/v1/status", headers=shown).status == 200
        assert len(api.server._server_limits.unknown) <= 32
        assert len(api.server._server_limits.slots) == 1
        assert api.ask("GET", "/v1/status").status == 200


def test_the_token_opens_no_more_places_than_there_are() -> None:
    """Who has the token is one user: beyond a share of the connections he is told 429."""
    with served(tcp=True, connections=4) as api, contextlib.ExitStack() as stack:
        assert api.tcp is not None
        shown = {"Authorization": f"Bearer {api.token}"}
        statuses = []
        for _ in range(4):
            one = http.client.HTTPConnection("127.0.0.1", api.tcp.port, timeout=10)
            stack.callback(one.close)
            statuses.append(ask(one, "GET", "/v1/status", headers=shown).status)
        assert statuses == [200, 200, 200, 429]


@pytest.mark.parametrize(("descriptors", "connections"), [(100_000, 256), (100, 58), (0, 4), (-50, 4)])
def test_few_descriptors_are_few_connections(descriptors: int, connections: int) -> None:
    """Connections and those who are refused need no more descriptors than there are, as far as possible."""
    limits = room.ServerLimits(LimitsTable(), descriptors)
    taken = [limits.slots.take(user) for user in range(1000)]
    assert taken.count(True) == connections


def test_whom_nobody_can_accept_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    """Where no more files can be opened, clients get 503 at once, and the log a line."""
    with served() as api, contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(connected(api.path)) for _ in range(30)]
        while len(api.server._server_limits.slots) < len(waiting):  # what they need is open now
            api.wait(asyncio.sleep(0.01))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        late = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(3)]
        for one in late:
            stack.callback(one.close)
            one.settimeout(PATIENCE_S)
        os.close(lowest := os.dup(waiting[0].fileno()))
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))  # all below it are taken
        try:
            for one in late:
                one.connect(str(api.path))
            heard = [one.recv(1000) for one in late]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert [answer[:12] for answer in heard] == [b"HTTP/1.1 503"] * 3
        assert b"retry-after: 1" in heard[0]
        assert json.loads(heard[0].partition(b"\r\n\r\n")[2])["error"]["kind"] == "busy"
        assert caplog.text.count("no connection can be accepted") == 1
        while api.ask("GET", "/v1/status").status != 200:
            pass


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("can't start new thread"), OSError(24, "files")]
)
def test_what_is_used_up_is_for_later(api: ServedService, error: Exception) -> None:
    """Threads, memory and files used up are 503 with Retry-After, and no end of anything."""
    api.service.broken = error
    try:
        answers = [api.ask("GET", "/v1/status") for _ in range(3)]
    finally:
        api.service.broken = None

    assert api.ask("GET", "/v1/status").status == 200
    assert {(answer.status, answer.kind, answer.headers["retry-after"]) for answer in answers} == {
        (503, "busy", "1")
    }


def test_a_silent_service_is_given_up() -> None:
    """An answer that does not begin in time is 503 with the time to come back, and the work is cancelled."""
    cancelled: list[bool] = []

    async def app(*_: Any) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cancelled.append(True)

    messages = asyncio.run(answered(Gate(app, LimitsTable(), answer_timeout_s=0.01)))

    assert cancelled == [True]
    assert messages[0]["status"] == 503
    assert (b"retry-after", b"1") in messages[0]["headers"]


def test_an_idle_server_waits_without_looking() -> None:
    """Without a client nothing is scheduled: the server sleeps until somebody comes."""

    async def timers(loop: Any) -> int:
        return sum(not timer.cancelled() for timer in loop._scheduled)

    with served() as api:
        assert api.ask("GET", "/v1/status").status == 200
        until_left(api)

        assert api.wait(timers(api.loop)) == 0


def until_left(api: ServedService) -> None:
    """Wait until the server has seen that nobody is connected any more."""
    while len(api.server._server_limits.slots):
        api.wait(asyncio.sleep(0))


def until_closed(connection: socket.socket) -> bytes:
    """All that comes until the other side closes, in whatever way."""
    heard = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65_536):
            heard += piece
    return heard


ORDER = JobSpec(("scan-lf:N=64",))


@pytest.fixture
def streaming() -> Iterator[ServedService]:
    with served(followers=2) as running:
        yield running


@contextlib.contextmanager
def following(streaming: ServedService, target: str, **headers: str) -> Iterator[http.client.HTTPResponse]:
    """The answer to a request that goes on."""
    with contextlib.closing(streaming.connection()) as connection:
        connection.request("GET", target, headers=headers)
        yield connection.getresponse()


def blocks(response: http.client.HTTPResponse) -> Iterator[dict[str, str]]:
    """The events of a stream: field to text."""
    block: dict[str, str] = {}
    for line in response:
        text = line.decode().rstrip("\n")
        if text:
            name, _, value = text.partition(": ")
            block[name] = value
        else:
            yield block
            block = {}


def submitted(streaming: ServedService) -> int:
    return streaming.wait(streaming.service.submit(ORDER, Peer())).id


def test_a_stream_tells_the_past_then_the_present_and_ends_with_the_job(streaming: ServedService) -> None:
    """Stored events come with their ids, progress without, in order; the stream ends when the job has."""
    number = submitted(streaming)
    with following(streaming, f"/v1/jobs/{number}/events") as response:
        told = blocks(response)
        first = next(told)
        streaming.wait(
            streaming.service.tell(number, "trial", {"number": 1, "cost": float("inf")}, stored=False)
        )
        trial = next(told)
        streaming.wait(streaming.service.change(number, JobState.CANCELLED))
        rest = list(told)

    assert response.headers["content-type"].startswith("text/event-stream")
    assert (first["id"], first["event"]) == ("1", "state")
    assert "id" not in trial
    assert '"cost":null' in trial["data"]
    assert [block["id"] for block in rest] == ["2"]


@pytest.mark.parametrize(
    ("target", "headers"),
    [("?after=2", {}), ("", {"Last-Event-ID": "2"}), ("?after=0", {"Last-Event-ID": "2"})],
)
def test_a_stream_goes_on_where_it_was(
    streaming: ServedService, target: str, headers: dict[str, str]
) -> None:
    """Events up to the one named are not told again."""
    number = submitted(streaming)
    streaming.wait(streaming.service.change(number, JobState.PAUSED))
    streaming.wait(streaming.service.change(number, JobState.CANCELLED))
    with following(streaming, f"/v1/jobs/{number}/events{target}", **headers) as response:
        assert [block["id"] for block in blocks(response)] == ["3"]


def test_a_reader_who_left_is_noticed_behind_further_requests(streaming: ServedService) -> None:
    """Requests behind a stream keep its end from being read; what is sent next finds nobody there."""
    number = submitted(streaming)
    request = f"GET /v1/jobs/{number}/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(streaming.path) as connection:
        connection.sendall(request.encode() * 3)
        assert connection.recv(12) == b"HTTP/1.1 200"
    streaming.wait(streaming.service.tell(number, "trial", {}, stored=False))
    while streaming.server.server_state.connections or streaming.service.following:
        streaming.wait(asyncio.sleep(0.01))
    assert not len(streaming.server._server_limits.slots)


@pytest.mark.parametrize("last", ["x", "-1", "9223372036854775808"])
def test_a_wrong_last_event_is_refused(streaming: ServedService, last: str) -> None:
    """An id that cannot be one is the client's fault."""
    answer = streaming.ask("GET", f"/v1/jobs/{submitted(streaming)}/events", headers={"Last-Event-ID": last})

    assert (answer.status, answer.kind) == (422, "input")


def test_followers_are_limited_and_their_places_come_back(streaming: ServedService) -> None:
    """One user does not get all places; who leaves makes room, and the service is told to stop telling."""
    number = submitted(streaming)
    target = f"/v1/jobs/{number}/events"
    with following(streaming, target) as response:
        next(blocks(response))
        refused = streaming.ask("GET", target)
        assert (refused.status, refused.kind) == (429, "too-many")
        assert "retry-after" in refused.headers
        assert streaming.service.following == 1
        streaming.wait(streaming.service.change(number, JobState.CANCELLED))
        list(blocks(response))
    with following(streaming, target) as response:
        assert len(list(blocks(response))) == 2
    assert streaming.service.following == 0


def test_a_follower_that_leaves_is_noticed(streaming: ServedService) -> None:
    """A closed connection ends the telling, although the job goes on and says nothing."""
    number = submitted(streaming)
    left = threading.Event()
    events = streaming.service.events

    async def watched(number: int, after: int = 0) -> AsyncIterator[Event]:
        try:
            async for event in events(number, after):
                yield event
        finally:
            left.set()

    streaming.service.events = watched  # type: ignore[method-assign]  # the same, and it says when it is closed
    with following(streaming, f"/v1/jobs/{number}/events") as response:
        next(blocks(response))

    assert left.wait(PATIENCE_S)


def test_stopping_ends_streams(streaming: ServedService) -> None:
    """When the daemon stops, followers see the end of the stream, not a broken connection."""
    number = submitted(streaming)
    with following(streaming, f"/v1/jobs/{number}/events") as response:
        told = blocks(response)
        next(told)
        streaming.loop.call_soon_threadsafe(streaming.server.stop)

        assert list(told) == []


def test_others_are_answered_while_somebody_follows(streaming: ServedService) -> None:
    """A stream keeps nobody waiting."""
    number = submitted(streaming)
    with following(streaming, f"/v1/jobs/{number}/events") as response:
        next(blocks(response))
        with contextlib.closing(streaming.connection()) as connection:
            assert ask(connection, "GET", "/v1/status").status == 200


def test_silence_is_filled_with_comments() -> None:
    """While nothing happens, comments keep the connection alive; they end with the stream."""

    async def main() -> list[bytes]:
        service = FakeService()
        job = await service.submit(ORDER, Peer())
        sent: list[bytes] = []

        async def receive() -> Any:
            return await asyncio.get_running_loop().create_future()

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))
            if sent.count(b":\n\n") == 3 and not service.rows[job.id].state.ended:
                await service.change(job.id, JobState.CANCELLED)

        done: list[None] = []
        stream = EventStream(
            service.events(job.id), asyncio.Event(), lambda: done.append(None), event_text, keep_alive_s=0.001
        )
        await asyncio.wait_for(stream({}, receive, send), PATIENCE_S)
        assert len(done) == 1
        return sent

    sent = asyncio.run(main())
    assert sent.count(b":\n\n") >= 3
    assert sent[-1] == b""


@given(
    st.dictionaries(st.text(), st.text() | st.floats() | st.none() | st.lists(st.text())),
    st.none() | st.integers(0, 2**63 - 1),
)
def test_no_text_breaks_out_of_an_event(data: dict[str, Any], number: int | None) -> None:
    """Whatever an event holds, line ends and halves of characters too, it is one block of known lines."""
    text = event_text(Event("told", "now", 1, data, number)).decode()

    assert text.endswith("\n\n")
    names = [line.partition(": ")[0] for line in text[:-2].split("\n")]
    assert names == ["id", "event", "data"][number is None :]
    assert "\r" not in text
