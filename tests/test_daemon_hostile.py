"""Raw bytes at a running server: it answers or closes, lives on, and opens no file."""

import asyncio
import contextlib
import logging
import sys
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fake_service import FakeService
from hostile_requests import KINDS, attack, play
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served_service import ServedService, connected, served

from tuner.daemon.interface import Peer
from tuner.model.jobs import JobSpec

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
