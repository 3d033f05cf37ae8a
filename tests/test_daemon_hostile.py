"""Raw bytes at a running server: it answers or closes, lives on, and opens no file."""

import asyncio
import contextlib
import json
import logging
import re
import socket
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fake_service import FakeService
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served_service import ServedService, connected, served

from tuner.daemon.interface import Peer
from tuner.model.jobs import JobSpec

# --- Bytes that no good client sends, made by chance.

PATHS = (
    "/v1/best?workload=scan-lf:N=64",
    "/v1/status",
    "/v1/jobs",
    "/v1/jobs/1",
    "/v1/jobs/1/events",
    "/metrics",
)
TRICKS = (
    "/../../../../etc/passwd",
    "/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/v1/jobs/..%2f..%2f..%2fetc%2fpasswd",
    "/v1/jobs/%00",
    "/v1/jobs/1%00.json",
    "/v1/jobs/%c0%ae%c0%ae/%c0%ae%c0%ae/etc/passwd",
    "/v1/jobs/%ff%fe/events",
    "//etc/passwd",
    "/v1//jobs",
    "/./v1/./status",
    "/v1/best?workload=../../../../etc/passwd",
    "/v1/best?workload=scan-lf&device=replay:/etc/passwd",
    "/v1/best?workload=scan-lf&device=sim:../../etc/passwd",
    "/v1/best?workload=%00&objective=%ff%fe",
    "/v1/best?" + "&".join(["workload=scan-lf"] * 500),
    "/v1/best?" + "&" * 5000,
    "/v1/jobs?before=" + "9" * 5000,
    "/v1/jobs/" + "9" * 5000,
    "/v1/jobs/" + "a/" * 2000,
    "/openapi.json/../../secret",
    "http://evil.example/v1/status",
    "*",
    "evil.example:443",
)
METHODS = (
    "GET",
    "POST",
    "PUT",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "PATCH",
    "get",
    "G\x00T",
    "M" * 300,
)
HEADERS = (
    "Content-Length: -1",
    "Content-Length: 99999999999999999999999999",
    "Content-Length: 1e3",
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 5\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: gzip",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding: \x0bchunked",
    "Expect: 100-continue",
    "Expect: the worst",
    "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA",
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk",
    "Host: a\r\nHost: b",
    "Host: \xff\xfe",
    "Content-Type: application/json; charset=utf-7",
    "Content-Type: multipart/form-data; boundary=\x00",
    "Content-Encoding: gzip",
    "Last-Event-ID: 99999999999999999999999",
    "Last-Event-ID: \xe9",
    "Range: bytes=0-99999999999",
    "Authorization: Bearer \x01",
    "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: https",
    "X-HTTP-Method-Override: DELETE",
    " folded: line",
    "no colon",
    ": no name",
    "X: " + "y" * 20_000,
    "\r\n".join(f"X-{number}: y" for number in range(3000)),
    "Nul: a\x00b",
    "Bare: a\rb",
)
BODIES = (
    b"",
    b"{",
    b"\x00" * 100,
    b"\xff\xfe{\x00}\x00",
    b"\xef\xbb\xbf{}",
    b"[" * 30_000,
    b'{"a":' * 10_000,
    b"9" * 5000,
    b"1e999999999",
    b'{"workloads": ["\\ud800"]}',
    b'{"workloads": ["scan-lf"], "\\udfff\\u0000": 1}',
    b'{"workloads": ["scan-lf"], "priority": NaN}',
    b'{"workloads": ["scan-lf"], "workloads": [{}]}',
    b'{"workloads": ["../../etc/passwd"]}',
    b'{"workloads": ["scan-lf"], "options": {"__class__": "os.system"}}',
    json.dumps({"workloads": ["scan-lf:N=64"] * 10_000}).encode(),
    json.dumps({"uses": [{"workloads": ["scan-lf"], "count": 1e308}] * 300}).encode(),
    b"x" * 70_000,
    b"x" * 2_000_000,
)
CHUNKS = (
    b"5\r\nhello\r\n0\r\n\r\n",
    b"ffffffffffffffff\r\nx",
    b"-1\r\nx\r\n",
    b"zz\r\n",
    b"5;" + b"e" * 30_000 + b"\r\nhello\r\n0\r\n\r\n",
    b"1\r\n{" * 2000,
    b"0\r\nX: y\r\n\r\n",
    b"0\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
    b"5\r\nhelloX",
    b"\r\n\r\n",
    b"10000\r\n" + b"x" * 65_536 + b"\r\n" + b"10000\r\n" + b"x" * 65_536 + b"\r\n0\r\n\r\n",
)
OTHER_TONGUES = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
    b"SSH-2.0-OpenSSH_9.9\r\n",
    b"GET /v1/status\r\n\r\n",
    b"GET /v1/status HTTP/9.9\r\n\r\n",
    b"GET  /v1/status  HTTP/1.1\r\n\r\n",
    b"GET /v1/status HTTP/1.1\n\n",
    b"\r\n" * 1000,
    b"\x00" * 1000,
    b"A" * 100_000,
    b"GET /\xff\xfe\x80 HTTP/1.1\r\nHost: a\r\n\r\n",
    b'{"op": "hello"}\n',
    b"<policy-file-request/>\x00",
)
_STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")
_HEARD_ENOUGH_BYTES = 65_536


@dataclass(frozen=True)
class Attack:
    """What is sent on one connection.

    Attributes:
        name: of the kind of attack.
        pieces: written one after the other.
        leaves: close without reading.
    """

    name: str
    pieces: Sequence[bytes]
    leaves: bool


def attack(random: Random) -> Attack:
    """Something to send, of a kind that chance chooses."""
    make = random.choice(KINDS)
    data = make(random)
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.choice((0, 0, 1, 3, 20))))
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    return Attack(make.__name__, pieces, random.random() < 0.1)


def strange_request(random: Random) -> bytes:
    """A request of parts that may each be wrong."""
    method = random.choice(METHODS) if random.random() < 0.3 else random.choice(("GET", "POST"))
    target = random.choice(random.choice((PATHS, TRICKS)))
    headers = ["Host: localhost", *random.sample(HEADERS, random.choice((0, 1, 1, 2)))]
    body = random.choice(BODIES) if method == "POST" or random.random() < 0.2 else b""
    if body:
        headers += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    head = f"{method} {target} HTTP/1.1\r\n" + "\r\n".join(headers) + "\r\n\r\n"
    return head.encode("latin-1") + body


def bad_chunks(random: Random) -> bytes:
    """A body in chunks that are none."""
    head = f"POST {random.choice(PATHS)} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + random.choice(CHUNKS)


def path_trick(random: Random) -> bytes:
    """A target that means to leave the tree of routes."""
    return f"GET {random.choice(TRICKS)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def other_tongue(random: Random) -> bytes:
    """Another protocol, or noise."""
    if random.random() < 0.5:
        return random.choice(OTHER_TONGUES)
    return bytes(random.randrange(256) for _ in range(random.randrange(200)))


def pipelined(random: Random) -> bytes:
    """Many requests in one breath, the last of them cut off."""
    requests = [
        f"GET {random.choice((*PATHS, *TRICKS[:8]))} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        for _ in range(random.choice((2, 5, 50)))
    ]
    whole = b"".join(requests)
    return whole[: len(whole) - random.choice((0, 0, 1, 30))]


def mutated(random: Random) -> bytes:
    """A good request in which some bytes are changed, removed or doubled."""
    body = b'{"workloads": ["scan-lf:N=64"], "options": {"budget": 5}}'
    data = bytearray(
        f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    for _ in range(random.choice((1, 1, 2, 8))):
        at = random.randrange(len(data))
        change = random.randrange(4)
        if change == 0:
            data[at] = random.randrange(256)
        elif change == 1:
            del data[at : at + random.randrange(1, 10)]
        elif change == 2:
            data[at:at] = data[at : at + 10]
        else:
            data[at:at] = bytes((random.choice((0, 10, 13, 32, 58, 255)),))
    return bytes(data)


def incomplete(random: Random) -> bytes:
    """The beginning of a request."""
    whole = random.choice((strange_request, bad_chunks, pipelined))(random)
    return whole[: random.randrange(min(len(whole), 300) + 1)]


KINDS: tuple[Callable[[Random], bytes], ...] = (
    strange_request,
    bad_chunks,
    path_trick,
    other_tongue,
    pipelined,
    mutated,
    incomplete,
)


def play(connection: socket.socket, made: Attack) -> list[int]:
    """Send an attack and return the statuses that were heard before the server closed or had answered.

    Raises:
        TimeoutError: the server neither answers nor closes.
    """
    heard = b""
    with connection, contextlib.suppress(ConnectionError):
        for piece in made.pieces:
            connection.sendall(piece)
        if made.leaves:
            return []
        while b"\r\n\r\n" not in heard and len(heard) < _HEARD_ENOUGH_BYTES:
            piece = connection.recv(65_536)
            if not piece:
                break
            heard += piece
    return [int(status) for status in _STATUS.findall(heard)]


# --- The daemon they are sent to.

LOOK_S = 0.01
QUICK_S = 0.1  # for a request to arrive: an attack that stops in the middle costs so long
STANDARD_LIBRARY = sysconfig.get_path("stdlib")
CODE = (".py", ".pyc", ".so")


class Watch(logging.Handler):
    """What must not happen in the server: files opened, errors logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.faults: list[str] = []
        self.thread: int | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self.faults.append(f"{record.name}: {record.getMessage()} {record.exc_info}")

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        watched = event in ("open", "os.listdir", "os.exec", "subprocess.Popen", "os.system")
        if not watched or threading.get_ident() != self.thread:
            return
        path = str(arguments[0])
        if not path.endswith(CODE) and not path.startswith(
            STANDARD_LIBRARY
        ):  # Python reads codecs when first used
            self.faults.append(f"{event} {arguments[0]!r}")


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    watch = Watch()
    logging.getLogger().addHandler(watch)
    yield watch
    logging.getLogger().removeHandler(watch)
    watch.thread = None


@pytest.fixture(scope="module")
def api(watch: Watch) -> Iterator[ServedService]:
    sys.addaudithook(watch.audit)  # stays until the interpreter ends, and sees nothing without its thread
    with served(
        service=FakeService(most_jobs=50), request_timeout_s=QUICK_S, requests_per_s=1e6, followers=200
    ) as running:
        running.wait(running.service.submit(JobSpec(("scan-lf:N=64",)), Peer()))
        watch.thread = running.wait(identify())
        yield running


async def identify() -> int:
    return threading.get_ident()


def alive(api: ServedService) -> bool:
    """Whether a good client is answered; on a busy machine it may itself be late once."""
    for _ in range(20):
        with contextlib.suppress(OSError):
            return api.ask("GET", "/v1/status").status == 200
    return False


@given(st.randoms(use_true_random=False))
@settings(suppress_health_check=list(HealthCheck))
def test_no_bytes_bring_the_server_down(api: ServedService, watch: Watch, random: Random) -> None:
    """Whatever is sent and however it is cut, the server answers below 500 or closes, and lives on."""
    made = attack(random)
    statuses = play(connected(api.path), made)

    assert all(status < 500 for status in statuses), made
    assert alive(api)
    assert watch.faults == []


@pytest.mark.parametrize("make", KINDS)
def test_attacks_are_attacks(make: Any) -> None:
    """Chance makes every kind of attack, and never the same all the time."""
    random = Random(1)  # noqa: S311 - no secret
    assert len({make(random) for _ in range(50)}) > 5


def test_nothing_is_left_of_attacks(api: ServedService) -> None:
    """After hundreds of connections of all kinds none is open, no stream is told, no descriptor is lost."""
    random = Random(7)  # noqa: S311 - no secret
    api.ask("GET", "/v1/status")
    before = descriptors()
    for _ in range(100):
        play(connected(api.path), attack(random))
    assert alive(api)
    while len(api.server._server_limits.slots) or api.service.following or api.server.server_state.tasks:
        api.wait(asyncio.sleep(LOOK_S))

    assert descriptors() <= before
    assert not api.server.server_state.connections


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_many_slow_clients_keep_nobody_out() -> None:
    """Clients that hold all connections they may get, and send nothing, leave room for others in time."""
    with served(connections=8, request_timeout_s=QUICK_S) as api, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connected(api.path)) for _ in range(50)]
        for connection in slow:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(b"GET / HTTP/1.1\r\nX: ")
        for connection in slow:
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(12) in (b"", b"HTTP/1.1 429")
        assert alive(api)
