"""Part of daemon_hostile.py: requests that hide another, clients without token, limits of the system."""

import collections
import contextlib
import http.client
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from daemon_scene import ASKED_ONLY, MODELLED, Scene

NOBODY = 65_534
PATIENCE_S = 30.0
WITHOUT_TOKEN = 400  # connections
IDLE = 100  # connections
FEW_DESCRIPTORS = 32
HELD_S = 5.0
WITHOUT_THREADS_S = 75.0  # longer than a daemon that made no progress lived
BACK_OFF_S = 2 * WITHOUT_THREADS_S + PATIENCE_S  # a job that could not start waits longer each time
LOOK_S = 0.2
MOST_LINES_PER_S = 10
LINES_AT_THE_START = 40  # those of a start and of an end, whatever clients do
TOLERATED = (200, 429, 503)
_STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")
_HIDDEN = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"


@dataclass(frozen=True)
class Case:
    """Bytes that are sent on one connection.

    Attributes:
        data: all of them.
        statuses: what must be answered, in this order, and nothing else; the connection is then closed.
    """

    data: bytes
    statuses: Sequence[int]


def _post(*headers: bytes, body: bytes = b"", version: bytes = b"1.1") -> bytes:
    lines = (
        b"POST /v1/uses HTTP/" + version,
        b"Host: localhost",
        b"Content-Type: application/json",
        *headers,
    )
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


_GET = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n"
_LONG = b"X: " + b"y" * 200_000 + b"\r\n\r\n"
HEADS: Mapping[str, Case] = {
    "head of 200 kB": Case(_GET + _LONG, (431,)),
    "many headers": Case(_GET + b"X: y\r\n" * 5000 + b"\r\n", (431,)),
    "target of 200 kB": Case(b"GET /v1/best?" + b"w" * 200_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", (431,)),
    "long head behind a request": Case(_HIDDEN + _GET + _LONG, (200, 431)),
    "length and chunks": Case(
        _post(b"Content-Length: 4", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + _HIDDEN), (400,)
    ),
    "chunks and length": Case(
        _post(b"Transfer-Encoding: chunked", b"Content-Length: 4", body=b"0\r\n\r\n" + _HIDDEN), (400,)
    ),
    "two lengths": Case(_post(b"Content-Length: 2", b"Content-Length: 0", body=b"{}" + _HIDDEN), (400,)),
    "the same length twice": Case(
        _post(b"Content-Length: 2", b"Content-Length: 2", body=b"{}" + _HIDDEN), (400,)
    ),
    "a list of lengths": Case(_post(b"Content-Length: 2, 2", body=b"{}" + _HIDDEN), (400,)),
    "a signed length": Case(_post(b"Content-Length: +2", body=b"{}" + _HIDDEN), (400,)),
    "chunks twice": Case(_post(*[b"Transfer-Encoding: chunked"] * 2, body=b"0\r\n\r\n" + _HIDDEN), (400,)),
    "an unknown encoding": Case(_post(b"Transfer-Encoding: gzip", body=b"{}" + _HIDDEN), (400,)),
    "chunks of HTTP/1.0": Case(
        _post(b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + _HIDDEN, version=b"1.0"), (400,)
    ),
    "space before the colon": Case(
        _post(b"Transfer-Encoding : chunked", b"Content-Length: 2", body=b"{}" + _HIDDEN), (400,)
    ),
    "folded header": Case(_GET + b"X: a\r\n b\r\n\r\n" + _HIDDEN, (400,)),
    "bare LF": Case(_GET.replace(b"\r\n", b"\n") + b"\n" + _HIDDEN, (400,)),
    "one bare LF": Case(_GET + b"X: a\nY: b\r\n\r\n" + _HIDDEN, (400,)),
    "bare CR": Case(_GET + b"X: a\rY: b\r\n\r\n" + _HIDDEN, (400,)),
    "bare LF in a chunk": Case(
        _post(b"Transfer-Encoding: chunked", body=b"2;\n{}\r\n0\r\n\r\n" + _HIDDEN), (400,)
    ),
    "two hosts": Case(b"GET /v1/status HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" + _HIDDEN, (400,)),
}


def heads(path: Path) -> dict[str, Any]:
    """What each case of ``HEADS`` is answered on a Unix socket."""
    return {name: _played(path, case) for name, case in HEADS.items()}


def _played(path: Path, case: Case) -> dict[str, Any]:
    heard, closed = b"", False
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.settimeout(PATIENCE_S)
        with contextlib.suppress(ConnectionError):  # it is closed while the rest is sent
            connection.sendall(case.data)
        try:
            while piece := connection.recv(65_536):
                heard += piece
            closed = True
        except ConnectionError:
            closed = True
        except TimeoutError:
            pass
    statuses = [int(status) for status in _STATUS.findall(heard)]
    return {"statuses": statuses, "held": closed and statuses == list(case.statuses)}


def without_token(port: int, token: str) -> dict[str, Any]:
    """Clients without a token hold all connections they get: is its holder answered?"""
    statuses: collections.Counter[str] = collections.Counter()
    longest_s = 0.0
    with contextlib.ExitStack() as stack:
        for _ in range(WITHOUT_TOKEN):
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
        for _ in range(20):
            begun_s = time.monotonic()
            statuses[_asked_over_tcp(port, token)] += 1
            longest_s = max(longest_s, time.monotonic() - begun_s)
    return {
        "connections": WITHOUT_TOKEN,
        "answers": dict(statuses),
        "longest_s": longest_s,
        "held": set(statuses) == {"200"},
    }


def _asked_over_tcp(port: int, token: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/v1/status", headers={"Authorization": f"Bearer {token}"})
            return str(connection.getresponse().status)
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__


def few_descriptors() -> dict[str, Any]:
    """A daemon that may open few files, and more idle connections than that: is it quiet, and there after?"""
    with (
        tempfile.TemporaryDirectory() as folder,
        Scene(Path(folder), devices=(MODELLED,), settings=ASKED_ONLY, bare=True) as scene,
    ):
        with _soft_limit(resource.RLIMIT_NOFILE, FEW_DESCRIPTORS):
            scene.start()
        before = scene.log.stat().st_size
        answers: collections.Counter[str] = collections.Counter()
        with contextlib.ExitStack() as stack:
            for _ in range(IDLE):
                connection = stack.enter_context(socket.socket(socket.AF_UNIX))
                connection.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    connection.connect(str(scene.socket))
            end_s = time.monotonic() + HELD_S
            while time.monotonic() < end_s:
                answers[_asked(scene.socket)] += 1
        after = _asked(scene.socket)
        said = scene.log.read_bytes()[before:]
        alive = scene.alive()
    lines = said.count(b"\n")
    quiet = lines <= MOST_LINES_PER_S * HELD_S + LINES_AT_THE_START
    return {
        "descriptors": FEW_DESCRIPTORS,
        "idle connections": IDLE,
        "answers meanwhile": dict(answers),
        "afterwards": after,
        "log_lines": lines,
        "log_bytes": len(said),
        "held": alive and after == "200" and quiet and _tolerated(answers),
    }


@contextlib.contextmanager
def _soft_limit(kind: int, most: int) -> Iterator[None]:
    """Let processes that are started meanwhile have this limit."""
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def _asked(path: Path) -> str:
    """Status of an answer, or why there is none."""
    connection = http.client.HTTPConnection("localhost", timeout=PATIENCE_S)
    try:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(PATIENCE_S)
        connection.sock.connect(str(path))
        with contextlib.suppress(BrokenPipeError):
            connection.request("GET", "/v1/best?workload=scan-lf:N=4")
        return str(connection.getresponse().status)
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()


def few_threads() -> dict[str, Any] | None:
    """A daemon that gets no further thread or process: does it answer, stay, and go on with room again?

    None where this user cannot try it: the number of root's processes has no limit, so that the daemon must
    run as another user.
    """
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return None
    with (
        tempfile.TemporaryDirectory() as folder,
        Scene(Path(folder), devices=(MODELLED,), settings=ASKED_ONLY, bare=True) as scene,
    ):
        program = Path(folder) / "python"
        program.write_text(f'#!/bin/sh\nexec {" ".join(_as_nobody())} {sys.executable} "$@"\n')
        program.chmod(0o755)
        for path in (Path(folder), *Path(folder).rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        with _interpreter(str(program)):
            scene.start()
        _limit_threads(scene.pid, 1)
        job = scene.client().submit("scan-lf:N=4", policy="random", budget=1)
        answers: collections.Counter[str] = collections.Counter()
        end_s = time.monotonic() + WITHOUT_THREADS_S
        while time.monotonic() < end_s:
            answers[_asked(scene.socket)] += 1
            time.sleep(LOOK_S)
        alive = scene.alive()
        _limit_threads(scene.pid, 0)
        done = scene.until(lambda: scene.client().job(job.id).ended, BACK_OFF_S)
    return {
        "seconds": WITHOUT_THREADS_S,
        "answers meanwhile": dict(answers),
        "job done afterwards": done,
        "held": alive and done and _tolerated(answers),
    }


def _as_nobody() -> list[str]:
    """A prefix of commands that runs them as nobody, who may read the interpreter all the same."""
    ids = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    read = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    return ["setpriv", *ids, *read, "--bounding-set=-sys_resource,-sys_admin"]


@contextlib.contextmanager
def _interpreter(program: str) -> Iterator[None]:
    """Let the scene start its daemon with another program, as another user."""
    own, sys.executable = sys.executable, program
    mask = os.umask(0)  # the daemon's user tells us through a socket of ours that it is ready
    try:
        yield
    finally:
        os.umask(mask)
        sys.executable = own


def _limit_threads(pid: int, most: int) -> None:
    """Let the daemon's user have so many threads and processes; 0 for as many as may be."""
    code = "import resource, sys; pid, most = map(int, sys.argv[1:]); kind = resource.RLIMIT_NPROC;"
    code += " hard = resource.prlimit(pid, kind)[1]; resource.prlimit(pid, kind, (most or hard, hard))"
    subprocess.run([*_as_nobody(), sys.executable, "-c", code, str(pid), str(most)], check=True)


def _tolerated(answers: Mapping[str, int]) -> bool:
    """Whether every answer that was given is a good one or asks for patience."""
    return all(not status.isdigit() or int(status) in TOLERATED for status in answers)
