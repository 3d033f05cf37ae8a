"""Sends a running daemon what no good client sends: is it there afterwards, and is it as it was?

Raw bytes of all kinds on the Unix socket (malformed HTTP, split writes, huge heads and bodies, chunks that
are none, pipelines, path tricks, requests that stop in the middle), requests that hide another, more slow
clients than connections, another user, clients without the token, and requests made from the published
interface by schemathesis over TCP. Two more daemons have few descriptors, and no thread or process to spare.
A daemon is started unless one is named; its queue then fills with jobs, and what needs one of our own (TCP,
schemathesis, limits of the system) is left out.

    python benchmarks/daemon_hostile.py --count 20000 --out benchmarks/results/daemon-hostile.json
"""

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
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from provenance import command_line, provenance, save

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from daemon_scene import ASKED_ONLY, MODELLED, Scene
from hostile_requests import attack, play

# --- part of daemon_hostile.py: requests that hide another, clients without token, limits of the system

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
        program.write_text(f'#!/bin/sh\nexec {" ".join(_words_of_nobody())} {sys.executable} "$@"\n')
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


def _words_of_nobody() -> list[str]:
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
    subprocess.run([*_words_of_nobody(), sys.executable, "-c", code, str(pid), str(most)], check=True)


def _tolerated(answers: Mapping[str, int]) -> bool:
    """Whether every answer that was given is a good one or asks for patience."""
    return all(not status.isdigit() or int(status) in TOLERATED for status in answers)


# --- the command -----------------------------------------------------------------------------------

WORKERS = 32  # most of them wait for a deadline
WARM_UP = 1000  # attacks after which caches are full, and memory is what it will be
SETTLE_S = 20.0  # longer than a silent stream needs to notice that its reader left
MOST_GROWTH_BYTES = 5 * 10**6
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
SETTINGS = (
    ASKED_ONLY
    + """
[[window]]
start = "0 0 1 1 *"
hours = 0.01

[limits]
request_timeout_s = 0.5
requests_per_s = 100000
queue = 100
followers = 200

[tcp]
port = {port}
token_file = "{token}"
"""
)
"""Jobs are queued and never run: it is the daemon's face that is tried."""
AS_NOBODY = """
import os, socket, sys
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(65534)
held = []
for _ in range(int(sys.argv[3])):
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(sys.argv[1])
        connection.settimeout(30)
        connection.sendall(sys.argv[4].encode())
    except OSError as error:
        print(type(error).__name__)
        continue
    held.append(connection)
print("held", len(held), flush=True)
for connection in held:
    try:
        print(connection.recv(12).decode() or "closed")
    except OSError as error:
        print("closed" if isinstance(error, ConnectionError) else type(error).__name__)
"""


@dataclass
class AttackCounts:
    """What attacks of one kind met."""

    connections: int = 0
    statuses: collections.Counter[int] = field(default_factory=collections.Counter)
    closed: int = 0  # without an answer
    left: int = 0  # by the attacker
    hung: int = 0  # neither answered nor closed


def main() -> int:
    """Attack, print a table, write it; 1 where the daemon answered 5xx, fell, hung or grew."""
    parser = command_line(__doc__)
    parser.add_argument("--socket", type=Path, help="of a daemon that runs; else one is started")
    parser.add_argument("--count", type=int, default=5000, help="raw attacks")
    parser.add_argument("--examples", type=int, default=50, help="of schemathesis, per operation and phase")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _daemon(options.socket, Path(folder)) as target:
        found = assault(target, options.count, options.examples, options.seed)
    _show(found)
    save(options.out, {"provenance": provenance(), "seed": options.seed, **found})
    return int(not found["held"])


@dataclass
class Target:
    """A daemon under attack; port and token where it was started here."""

    path: Path
    pid: int
    port: int = 0
    token: str = ""


@contextlib.contextmanager
def _daemon(path: Path | None, folder: Path) -> Iterator[Target]:
    if path is not None:
        yield Target(path, _owner(path))
        return
    folder.chmod(0o755)  # so that it is the socket that stops others
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = SETTINGS.format(port=port, token=folder / "token")
    with Scene(folder, devices=(MODELLED,), settings=settings, bare=True) as scene:
        scene.start()
        yield Target(scene.socket, scene.pid, port, (folder / "token").read_text().strip())


def _owner(path: Path) -> int:
    """Process that listens at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(packed[:4], sys.byteorder)


def assault(target: Target, count: int, examples: int, seed: int) -> dict[str, Any]:
    """All attacks, one after the other."""
    raw(target, WARM_UP, seed + 1)
    before = weight(target)
    kinds = raw(target, count, seed)
    others = other_user(target)
    slow = slow_clients(target)
    hidden = heads(target.path)
    strangers = without_token(target.port, target.token) if target.port else None
    published = schema(target, examples) if target.port else None
    after = weight(target)
    descriptors = few_descriptors() if target.port else None
    threads = few_threads() if target.port else None
    seen = [status for one in kinds.values() for status in one["statuses"]]
    held = (
        alive(target)
        and not any(status >= 500 for status in seen)
        and not any(one["hung"] for one in kinds.values())
        and after["descriptors"] <= before["descriptors"]
        and after["rss_bytes"] - before["rss_bytes"] < MOST_GROWTH_BYTES
        and (published is None or published["failed"] == 0)
        and (others is None or set(others) <= {"PermissionError"})
        and all(one["held"] for one in hidden.values())
        and all(one is None or one["held"] for one in (strangers, descriptors, threads))
    )
    return {
        "raw": kinds,
        "other user": others,
        "slow clients": slow,
        "heads": hidden,
        "without token": strangers,
        "few descriptors": descriptors,
        "no threads": threads,
        "schemathesis": published,
        "before": before,
        "after": after,
        "held": held,
    }


def raw(target: Target, count: int, seed: int) -> dict[str, Any]:
    """Raw attacks from several threads."""
    table: dict[str, AttackCounts] = collections.defaultdict(AttackCounts)
    lock = threading.Lock()

    def work(number: int) -> None:
        random = Random(f"{seed} {number}")  # noqa: S311 - no secret
        for _ in range(count // WORKERS):
            made = attack(random)
            hung, statuses = False, []
            try:
                statuses = play(_connected(target.path), made)
            except TimeoutError:
                hung = True
            with lock:
                seen = table[made.name]
                seen.connections += 1
                seen.statuses.update(statuses)
                seen.hung += hung
                seen.left += made.leaves and not hung
                seen.closed += not (statuses or made.leaves or hung)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        name: {**vars(seen), "statuses": dict(sorted(seen.statuses.items()))}
        for name, seen in sorted(table.items())
    }


def _connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(path))  # without a time-out: a queue that is full would be an error at once
    connection.settimeout(PATIENCE_S)
    return connection


def other_user(target: Target) -> Mapping[str, int] | None:
    """What a user outside the socket's group meets; None where this user cannot ask as another."""
    if os.geteuid() != 0:
        return None
    done = _as_nobody(target, NOBODY, 100, "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
    said = done.communicate(timeout=PATIENCE_S)[0].split("\n")
    return collections.Counter(line for line in said if line and not line.startswith("held"))


def _as_nobody(target: Target, group: int, connections: int, request: str) -> "subprocess.Popen[str]":
    words = [str(target.path), str(group), str(connections), request]
    command = [sys.executable, "-I", "-S", "-c", AS_NOBODY, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def slow_clients(target: Target) -> Mapping[str, Any] | None:
    """A user of the group holds all connections it gets and says half a request: are others answered?"""
    group = target.path.stat().st_gid
    if os.geteuid() != 0 or group == 0:
        group = 0 if os.geteuid() == 0 else -1
    if group < 0:
        return None
    slow = _as_nobody(target, group, 300, "GET /v1/best?workload=scan-lf:N=64 HTTP/1.1\r\nHost: local")
    while slow.stdout is not None and (line := slow.stdout.readline()) and not line.startswith("held"):
        pass
    times_s = []
    while slow.poll() is None and len(times_s) < 1000:
        start_s = time.monotonic()
        if not alive(target):
            break
        times_s.append(time.monotonic() - start_s)
    ends = collections.Counter(line.strip() for line in slow.communicate(timeout=PATIENCE_S)[0].splitlines())
    return {
        "connections": 300,
        "ends": dict(ends),
        "answers meanwhile": len(times_s),
        "longest answer s": max(times_s, default=None),
    }


def schema(target: Target, examples: int) -> Mapping[str, Any]:
    """Requests made from the published interface; streams are left out, for they end with their job only."""
    url = f"http://127.0.0.1:{target.port}"
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--url", url),
        *("--header", f"Authorization: Bearer {target.token}", "--checks", CHECKS),
        *("--max-examples", str(examples), "--exclude-path", "/v1/jobs/{number}/events", "--no-color"),
        *("--phases", "examples,coverage,fuzzing", "--continue-on-failure"),
    ]
    with tempfile.TemporaryDirectory() as folder:  # it leaves a cache where it runs
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    generated = re.search(r"([0-9,]+) generated", done.stdout)
    return {
        "generated": int(generated[1].replace(",", "")) if generated else 0,
        "failed": done.returncode,
        "said": done.stdout.splitlines()[-30:] if done.returncode else [],
    }


def alive(target: Target) -> bool:
    """Whether a good client is answered."""
    connection = http.client.HTTPConnection("localhost", timeout=PATIENCE_S)
    connection.sock = _connected(target.path)
    with contextlib.closing(connection):
        connection.request("GET", "/v1/status")
        return connection.getresponse().status == 200


def weight(target: Target) -> Mapping[str, int]:
    """Memory and descriptors of the daemon, once all connections have ended."""
    time.sleep(SETTLE_S)
    status = Path(f"/proc/{target.pid}/status").read_text()
    resident = re.search(r"VmRSS:\s+([0-9]+) kB", status)
    return {
        "rss_bytes": int(resident[1]) * 1024 if resident else 0,
        "descriptors": sum(1 for _ in Path(f"/proc/{target.pid}/fd").iterdir()),
    }


def _show(found: Mapping[str, Any]) -> None:
    print(f"{'attack':16} {'connections':>11} {'closed':>7} {'left':>6} {'hung':>5}  answers by status")
    for name, seen in found["raw"].items():
        statuses = ", ".join(f"{status}: {count}" for status, count in seen["statuses"].items())
        row = f"{name:16} {seen['connections']:>11} {seen['closed']:>7} {seen['left']:>6} {seen['hung']:>5}"
        print(f"{row}  {statuses}")
    for name, one in found["heads"].items():
        print(f"head: {name:28} {one['statuses']} {'' if one['held'] else 'NOT HELD'}".rstrip())
    for name in (
        "other user",
        "slow clients",
        "without token",
        "few descriptors",
        "no threads",
        "schemathesis",
    ):
        print(f"{name}: {'not tried here' if found[name] is None else dict(found[name])}")
    for name in ("before", "after"):
        size, files = found[name]["rss_bytes"], found[name]["descriptors"]
        print(f"{name}: {size / 1e6:.1f} MB resident, {files} descriptors")
    print("held" if found["held"] else "NOT HELD")


if __name__ == "__main__":
    sys.exit(main())
