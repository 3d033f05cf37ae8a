"""Workers that are frozen, calls that hang and schedulers that are silent: played, with Dask's answers."""

import re
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from tuner.kernel_files.package_build import own_build
from tuner.model.errors import PoolLostError, WorkerLostError
from tuner.pool.worker_calls import Workers

FACTS = {"nthreads": 1, "resources": {"GPU": 1}}


class PlayedTask:
    """A future of Dask that never ends."""

    cancelled = False

    def add_done_callback(self, _: Callable[[Any], None]) -> None:
        """It is never called."""

    def cancel(self) -> None:
        self.cancelled = True


class PlayedScheduler:
    """A client of Dask and its scheduler, in a time of their own: every question takes a second.

    Attributes:
        now_s: the time.
        last_seen: heartbeats of the workers, by address.
        frozen: addresses whose heartbeats stay away, and who answer no call.
        silent: the scheduler gives no answer.
        restarted: addresses of the workers that were ordered to be started anew.
        builds: what workers of another package tell of themselves.
    """

    status = "running"
    id = "driver"

    def __init__(self, *addresses: str) -> None:
        self.now_s = 0.0
        self.last_seen = dict.fromkeys(addresses, 0.0)
        self.frozen: set[str] = set()
        self.silent = False
        self.tasks: list[PlayedTask] = []
        self.restarted: list[str] = []
        self.builds: dict[str, Any] = {}
        self.scheduler = self

    def identity(self, n_workers: int) -> dict[str, Any]:
        assert n_workers < 0
        for address in self.last_seen.keys() - self.frozen:
            self.last_seen[address] = self.now_s
        return {"workers": {one: {**FACTS, "last_seen": at} for one, at in self.last_seen.items()}}

    def sync(self, function: Callable[..., Any], *, callback_timeout: float, **words: Any) -> Any:
        if self.silent:
            self.now_s += callback_timeout
            raise TimeoutError
        self.now_s += 1.0
        return function(**words)

    def submit(self, *_: object, **__: object) -> PlayedTask:
        self.tasks.append(PlayedTask())
        return self.tasks[-1]

    def run(self, _: object, *, workers: list[str], on_error: str) -> dict[str, Any]:
        (address,) = workers
        if on_error == "ignore":  # what all are told
            return Future[dict[str, Any]]().result() if address in self.frozen else {}  # for ever
        return {address: self.builds.get(address, ("node", tuple(own_build())))}

    def restart_workers(self, workers: list[str], **_: object) -> None:
        self.restarted += workers


def opened(*addresses: str) -> tuple[Workers, PlayedScheduler]:
    played = PlayedScheduler(*addresses)
    workers = Workers(played, clock=lambda: played.now_s)  # type: ignore[arg-type]  # a fake
    while len(workers.present) < len(addresses):
        workers.refresh()
    return workers, played


def given(workers: Workers, answer: "Future[Any]") -> Any:
    """What a call gives; looks are made without a pause."""
    while not answer.done():
        workers.refresh()
    return answer.result()


def test_frozen_worker_is_lost() -> None:
    """Who sends no heartbeat for a minute is lost with its calls, and once started anew."""
    workers, played = opened("tls://a", "tls://b")
    played.frozen = {"tls://a"}
    begun_s = played.now_s
    answer, other = workers.submit(len, worker="tls://a"), workers.submit(len, worker="tls://b")
    with pytest.raises(WorkerLostError, match="tls://a is lost"):
        given(workers, answer)
    assert 60.0 <= played.now_s - begun_s <= 70.0
    assert not other.done()
    assert list(workers.present) == ["tls://b"]
    assert "has not answered for 60 s" in workers.left_out["tls://a"]
    workers.refresh()
    assert [task.cancelled for task in played.tasks] == [True, False]
    assert played.restarted == ["tls://a"]


def test_frozen_worker_of_others_is_left_alone() -> None:
    """A worker that this process never called measures for another run: it is left out, not killed."""
    workers, played = opened("tls://a")
    played.frozen = {"tls://a"}
    for _ in range(90):
        workers.refresh()
    assert not workers.present
    assert played.restarted == []


def test_worker_that_thaws_is_there_again() -> None:
    """A heartbeat after the silence is enough."""
    workers, played = opened("tls://a")
    played.frozen = {"tls://a"}
    while workers.present:
        workers.refresh()
    played.frozen = set()
    workers.refresh()
    assert list(workers.present) == ["tls://a"]


def test_a_driver_that_was_frozen_loses_nobody() -> None:
    """Time in which nobody looked counts neither as silence nor against a lease."""
    workers, played = opened("tls://a")
    answer = workers.submit(len, worker="tls://a", lease_s=100.0)
    played.frozen = {"tls://a"}  # what it sends waits in the socket
    played.now_s += 3600.0
    workers.refresh()
    played.frozen = set()
    workers.refresh()
    assert not answer.done()
    assert list(workers.present) == ["tls://a"]


def test_call_that_hangs_is_lost_with_its_worker() -> None:
    """A call that outlasts its lease is lost, though its process sends heartbeats."""
    workers, played = opened("tls://a")
    begun_s = played.now_s
    answer = workers.submit(len, worker="tls://a", lease_s=50.0)
    with pytest.raises(WorkerLostError, match="tls://a gave no answer in 50 s"):
        given(workers, answer)
    assert 50.0 <= played.now_s - begun_s <= 60.0
    assert played.restarted == ["tls://a"]


def test_scheduler_that_is_frozen_is_lost() -> None:
    """A scheduler that gives no answer ends the run, and keeps nobody who closes."""
    workers, played = opened("tls://a")
    played.silent, begun_s = True, played.now_s
    with pytest.raises(PoolLostError, match="does not answer any more"):
        workers.refresh()
    assert played.now_s - begun_s < 60.0
    played.frozen = {"tls://a"}
    workers.run_everywhere(print)


def test_closing_waits_for_nobody_that_is_frozen() -> None:
    """All are told to end; those that have not answered for three seconds are not waited for."""
    workers, played = opened("tls://a", "tls://b")
    played.frozen, begun_s = {"tls://b"}, played.now_s
    workers.run_everywhere(print)
    assert played.now_s - begun_s < 10.0


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (("node7", ("0.1.9", 3, "")), r"host node7: it has tuner 0\.1\.9 \(content unknown, protocol 3\)"),
        (("node7", (*own_build()[:2], "0" * 64)), "host node7: it has tuner .*content 000000000000"),
        (ImportError("no module named 'tuner.kernel_files.package_build'"), "it has an older tuner"),
        (AttributeError("no attribute"), "it has an older tuner"),
    ],
)
def test_worker_of_another_package_is_left_out(told: object, words: str) -> None:
    """Another version, or the same with other content, measures nothing; both are named with what to do."""
    played = PlayedScheduler("tls://a", "tls://b")
    played.builds = {"tls://a": told}
    workers = Workers(played)  # type: ignore[arg-type]  # a fake
    while not workers.present or not workers.left_out:
        workers.refresh()
    assert list(workers.present) == ["tls://b"]
    assert re.match(words, workers.left_out["tls://a"])
    assert "install the same package on both hosts" in workers.left_out["tls://a"]
