"""A server on a Unix socket that answers as a test wants: what the daemon says, and what it never would."""

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

PATIENCE_S = 60.0  # for what must come


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Message
    body: Any = None


@dataclass(frozen=True)
class UnfinishedAnswer:
    """The beginning of an answer, after which nothing comes until the server stops."""

    beginning: bytes = b""


Script = Callable[[Request], "bytes | UnfinishedAnswer | None"]


def answer(document: object, status: int = 200) -> bytes:
    """A whole answer."""
    body = json.dumps(document).encode()
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        status,
        len(body),
        body,
    )


def error(kind: str, message: str, status: int) -> bytes:
    return answer({"error": {"kind": kind, "message": message}}, status)


def stream(*parts: bytes, whole: bool = True) -> bytes:
    """An answer in chunks; one that is not whole ends as that of a killed daemon does."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return head + chunks + (b"0\r\n\r\n" if whole else b"")


def event(number: int | None, kind: str, /, **data: Any) -> bytes:
    """An event as the daemon sends it."""
    text = json.dumps({"id": number, "job": 1, "kind": kind, "at": "2026-11-21T22:00:00+00:00", "data": data})
    head = b"" if number is None else b"id: %d\n" % number
    return head + b"event: %s\ndata: %s\n\n" % (kind.encode(), text.encode())


def job(number: int = 1, **fields: Any) -> dict[str, Any]:
    """A job as the daemon writes it."""
    return {
        "id": number,
        "kind": "tune",
        "device": "sim:jetson-tx1",
        "wanted_device": "sim:jetson-tx1",
        "gpu": "",
        "workloads": ["scan-lf:N=4"],
        "objective": "energy",
        "policy": "auto",
        "clocks": "off",
        "options": {},
        "origin": "client",
        "priority": 0.0,
        "state": "queued",
        "reason": "",
        "run": None,
        "attempts": 0,
        "trials": 0,
        "submitter": 1000,
        "created_at": "2026-11-21T22:00:00.123456+00:00",
        "started_at": None,
        "ended_at": None,
        **fields,
    }


def best(**fields: Any) -> dict[str, Any]:
    """An answer of the daemon for one workload."""
    return {
        "origin": "nearest",
        "device": {"spec": "sim:jetson-tx1", "name": "Jetson TX1", "modelled": True},
        "objective": "energy",
        "workloads": {
            "scan-lf:N=4": {"configuration": {"P": 2, "L": 64}, "origin": "nearest", "details": "of N=8"}
        },
        "clock_mhz": None,
        "stale": [],
        "answer": None,
        "run": None,
        "refinement": 7,
        "notices": [],
        **fields,
    }


@dataclass
class ScriptedDaemon:
    """Listens from ``start`` to ``stop``; as a context manager, within the block.

    Attributes:
        path: of the socket.
        script: what is answered to a request; None is as ``UnfinishedAnswer()``.
        asked: requests so far, in their order.
    """

    path: Path
    script: Script
    asked: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None

    def __enter__(self) -> "ScriptedDaemon":  # noqa: PYI034 - typing.Self needs Python 3.11
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._ended.clear()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._spawn(self._accept, self._listener)

    def stop(self) -> None:
        """Close and unlink the socket, and let go of all who wait."""
        self._ended.set()
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self.path.unlink()
            self._listener = None
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        self._threads.clear()

    def _spawn(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self._spawn(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            request = _received(connection)
            if request is None:
                return
            self.asked.append(request)
            said = self.script(request)
            said = UnfinishedAnswer() if said is None else said
            with contextlib.suppress(OSError):
                connection.sendall(said.beginning if isinstance(said, UnfinishedAnswer) else said)
            if isinstance(said, UnfinishedAnswer):
                self._ended.wait(PATIENCE_S)


def _received(connection: socket.socket) -> Request | None:
    with connection.makefile("rb") as file:
        line = file.readline().decode()
        if not line:
            return None
        method, target, _ = line.split()
        headers = http.client.parse_headers(file)
        length = int(headers.get("Content-Length", "0"))
        body = json.loads(file.read(length)) if length else None
    parts = urlsplit(target)
    return Request(method, parts.path, parse_qs(parts.query, keep_blank_values=True), headers, body)
