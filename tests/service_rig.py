"""A service whose attempts, GPUs and clocks are played, over a real database, in time of its own."""

import asyncio
import contextlib
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from datetime import datetime, timedelta, timezone
from functools import cache, wraps
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

from tuner.daemon.answers.answerer import Answerer
from tuner.daemon.interface import Peer
from tuner.daemon.metrics import Metrics
from tuner.daemon.service import Service
from tuner.daemon.settings import Settings
from tuner.daemon.state import State
from tuner.database.storage import Repositories, Storage
from tuner.devices.gpu_users import FREE, Contention
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.source_folder import kernels_root
from tuner.model.errors import StoreError
from tuner.model.jobs import DeviceIdentity, Event, Job, JobSpec
from tuner.search.job_messages import AttemptResult, AttemptSpec

T = TypeVar("T")
DEVICE, OTHER = "sim:jetson-tx1", "sim:k40c"
WORKLOAD = "scan-lf:N=4"
PEER = Peer(uid=1000, pid=1)
ROOT = Peer(uid=0, pid=1)
NOON = datetime(2026, 3, 2, 12, tzinfo=timezone.utc)
PATIENCE_S = 60.0  # for a thread of the database; never waited for in full unless something is broken
_LONGEST_S = 1000.0  # that a test lasts, in its own time
FINISHED = AttemptResult("finished")
LOADED = Contention(busy=True, reason="it is loaded, and not by us", load="19 %")


class _Selector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.at_work = 0  # calls that somebody waits for, and those that threads are in

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or timeout == 0:
            return found
        if self.at_work or timeout is None:
            found = super().select(PATIENCE_S)
            assert found, "a thread of the service hangs"
            return found
        self.now_s += timeout
        return []


class PlayedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock goes on when nothing is left to do but to wait for it.

    While a thread works for the loop, the clock stands: a test sees the same on a busy machine as on an idle
    one, and nobody waits for time to pass.
    """

    def __init__(self) -> None:
        self._played = _Selector()
        super().__init__(self._played)

    def time(self) -> float:
        return self._played.now_s

    def run_in_executor(  # type: ignore[override]  # of any function
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        def work() -> Any:
            self._tell(1)
            try:
                return func(*args)
            finally:
                self._tell(-1)

        answer = super().run_in_executor(executor, work)
        self._count(1)
        answer.add_done_callback(lambda _: self._count(-1))  # also where its caller has gone
        return answer

    def _tell(self, change: int) -> None:
        with contextlib.suppress(RuntimeError):  # closed meanwhile
            self.call_soon_threadsafe(self._count, change)

    def _count(self, change: int) -> None:
        self._played.at_work += change


def play(test: Coroutine[Any, Any, T]) -> T:
    """Run a test in time of its own; one that hangs fails."""
    loop = PlayedLoop()
    try:
        return loop.run_until_complete(asyncio.wait_for(test, _LONGEST_S))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@cache
def catalog() -> Catalog:
    """The kernels that are shipped."""
    return Catalog.load(search_path=[kernels_root()])


class PlayedAttempt:
    """An attempt that ends as the test says, or when it is stopped."""

    def __init__(self, spec: AttemptSpec, tell: Callable[[str, Mapping[str, Any]], None]) -> None:
        self.spec = spec
        self.tell = tell
        self.spent = (0.0, 0.0)
        self.stopped = asyncio.Event()
        self.when_stopped = AttemptResult("interrupted", "told to stop")
        self._ending: asyncio.Future[AttemptResult] = asyncio.get_running_loop().create_future()

    @property
    def job(self) -> int:
        """Number of its job."""
        assert self.spec.job is not None
        return self.spec.job

    def end(self, result: AttemptResult = FINISHED) -> None:
        """Have it end."""
        self._ending.set_result(result)

    async def stop(self, grace_s: float) -> None:
        assert grace_s > 0
        self.stopped.set()
        if not self._ending.done():
            self.end(self.when_stopped)

    async def result(self) -> AttemptResult:
        return await asyncio.shield(self._ending)


class FailingStorage(Storage):
    """A database that cannot be used while ``broken`` says why."""

    broken = ""

    async def run(self, action: Callable[[Repositories], T]) -> T:
        if self.broken:
            raise StoreError(self.broken)
        return await super().run(action)

    async def read(self, action: Callable[[Repositories], T]) -> T:
        if self.broken:
            raise StoreError(self.broken)
        return await super().read(action)


class Rig:
    """The service, and the strings it hangs on.

    Attributes:
        presence: what a look at a GPU gives; ``LOADED`` only where the load cannot be our own.
        looks: how often somebody looked.
        now: local time.
    """

    def __init__(
        self, folder: Path, settings: Settings, devices: tuple[str, ...] = (DEVICE,), kind: str = ""
    ) -> None:
        identities = {
            spec: DeviceIdentity(spec, kind or f"{spec} (modelled)", spec, "1", "", modelled=True)
            for spec in devices
        }
        self.presence = FREE
        self.looks = 0
        self.now = NOON
        self.attempts: asyncio.Queue[PlayedAttempt] = asyncio.Queue()
        self.storage = FailingStorage(folder / "tuner.db")
        self.state = State(settings, catalog(), identities)
        self.answerer = Answerer(self.state)
        self.service = Service(
            self.state,
            storage=self.storage,
            start_attempt=self._start_attempt,  # type: ignore[arg-type]  # played
            check_users=self._look,
            answerer=self.answerer,
            metrics=Metrics("0"),
            wall=lambda: self.now,
        )

    async def _start_attempt(
        self, spec: AttemptSpec, tell: Callable[[str, Mapping[str, Any]], None]
    ) -> PlayedAttempt:
        attempt = PlayedAttempt(spec, tell)
        await self.attempts.put(attempt)
        return attempt

    async def _look(self, device: str, ours: int, our_load: bool) -> Contention:
        assert our_load or not ours
        assert device in self.state.devices
        assert ours in (0, 1)
        self.looks += 1
        return FREE if our_load and self.presence == LOADED else self.presence

    async def submit(self, priority: float = 0.0, device: str = "", **options: Any) -> Job:
        order = JobSpec((WORKLOAD,), device=device, policy="random", options=options)
        return await self.service.submit(order, PEER, priority)

    async def begun(
        self, priority: float = 0.0, device: str = "", **options: Any
    ) -> tuple[Job, PlayedAttempt]:
        """Submit a job, and wait for its attempt."""
        job = await self.submit(priority, device, **options)
        return job, await self.attempts.get()

    async def until(self, number: int, *states: str, reason: str = "") -> Event:
        """Wait until a job has come into one of the states, for a reason that holds these words."""
        async for event in self.service.events(number):
            if event.kind == "state" and event.data["state"] in states and reason in event.data["reason"]:
                return event
        raise AssertionError(f"job {number} has ended and never was {states} because of {reason!r}")

    async def told(self, number: int) -> list[tuple[str, str]]:
        """States of an ended job, with their reasons."""
        return [
            (event.data["state"], event.data["reason"])
            async for event in self.service.events(number)
            if event.kind == "state"
        ]

    def wait(self, **what: float) -> None:
        """Let the wall clock go on."""
        self.now += timedelta(**what)


def settings(**tables: Any) -> Settings:
    """Settings by table; jobs begin at once and nothing is queued by itself unless they say otherwise."""
    calm = {"calm_s": 0.0, **tables.pop("idle", {})}
    quiet = {"refine": False, "sample_every_hours": 0, "retune_stale": False, **tables.pop("online", {})}
    return Settings.model_validate({"idle": calm, "online": quiet, **tables})


@contextlib.asynccontextmanager
async def working(
    folder: Path, chosen: Settings | None = None, devices: tuple[str, ...] = (DEVICE,), kind: str = ""
) -> AsyncIterator[Rig]:
    """A service at work; its devices are of a kind each, unless one is named."""
    rig = Rig(folder, chosen or settings(), devices, kind)
    await rig.service.begin()
    try:
        yield rig
    finally:
        await rig.service.end()
        await rig.storage.close()


def works(
    chosen: Settings | None = None, devices: tuple[str, ...] = (DEVICE,), kind: str = ""
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Make a test of a coroutine function that takes a service at work, see ``working``."""

    def made(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @wraps(test)
        async def scene(folder: Path, **arguments: Any) -> None:
            async with working(folder, chosen, devices, kind) as rig:
                await test(rig, **arguments)

        return plays(scene)

    return made


def plays(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a test of a coroutine function that takes ``tmp_path``, and whatever pytest is to give it."""

    def played(tmp_path: Path, **arguments: Any) -> None:
        play(test(tmp_path, **arguments))  # type: ignore[arg-type]  # of an async def

    played.__doc__ = test.__doc__
    played.__name__ = test.__name__
    _, *given = signature(test).parameters.values()
    seen = signature(played)
    played.__signature__ = seen.replace(  # type: ignore[attr-defined]  # for pytest
        parameters=[seen.parameters["tmp_path"], *given]
    )
    return played
