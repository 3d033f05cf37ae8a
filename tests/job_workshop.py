"""Jobs in processes of their own, on a GPU that is played: its bursts stop where a test wants that."""

import asyncio
import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from modelled import NoNvrtc
from prepared_process import PreparedProcess

from tuner.database.connection import Database
from tuner.database.jobs import Jobs
from tuner.database.runs import Store
from tuner.devices.choice import OpenedDevice
from tuner.devices.simulated.device import SimulatedDevice
from tuner.devices.worker import WorkerDevice
from tuner.model.errors import CompileError
from tuner.model.jobs import Job, JobKind, JobSpec, Origin
from tuner.model.plan import Plan, Progress, Resources
from tuner.model.records import StoredRun
from tuner.search import setup
from tuner.search.job_launcher import AttemptProcess, Launch, Process, start
from tuner.search.job_messages import AttemptResult, AttemptSpec, EventWriter
from tuner.search.job_process import Attempt
from tuner.system.signals import StopRequest

PATIENCE_S = 120.0  # for what must come; never waited for in full unless something is broken
BOOT = (
    "import sys; sys.path[:] = sys.argv[3:];"
    " from tuner.search.job_process import main; main(*map(int, sys.argv[1:3]))"
)
"""What a job's process runs; a test may have it run something else."""
BOOT_PLAYED = BOOT.replace(" from", " import job_workshop; job_workshop.play(); from")
_WINDOW_S = 0.02


class _Prepared:
    """A process as attempts are waited for."""

    def __init__(self, process: PreparedProcess) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    async def wait(self) -> int:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        handle = os.pidfd_open(self.pid)
        loop.add_reader(handle, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)
        return self._process.wait()


async def prepared(spec: int, lines: int, lifeline: int) -> Process:
    """Start an attempt like a fresh interpreter, its imports done."""
    descriptors = {0: spec, 1: 2, 2: 2, lines: lines, lifeline: lifeline}
    words = [str(lines), str(lifeline), *sys.path]
    return _Prepared(PreparedProcess(BOOT, words, descriptors, os.environ, session=True))


class PreparedLauncher:
    """Stands for ``Launcher``, whose fork server imports for a second."""

    launch = staticmethod(prepared)

    async def close(self) -> None:
        """Processes end with who started them."""


async def fresh_interpreter(spec: int, lines: int, lifeline: int) -> Process:
    """Start an attempt in a process that imports what it needs."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BOOT, str(lines), str(lifeline), *sys.path),
        stdin=spec,
        stdout=2,
        pass_fds=(lines, lifeline),
        start_new_session=True,
    )


class PlayedWorker(WorkerDevice):
    """A real worker; resources are those that kernel files declare."""

    def resources(
        self, plans: Sequence[Plan], progress: Progress | None = None
    ) -> list[tuple[Resources, ...] | CompileError]:
        return SimulatedDevice("jetson-tx1", 0, NoNvrtc()).resources(plans, progress)


def play() -> None:
    """In the job's process: devices are the played GPU."""

    def opened(spec: str | None, *args: object, **options: object) -> OpenedDevice:
        del spec, args, options
        return OpenedDevice(
            PlayedWorker("cuda:0", target="held_gpu:HeldGpu", args=(os.environ["HELD_GPU"],)), ""
        )

    setup.__dict__["open_device"] = opened


ORDER = JobSpec(
    ("scan-lf:N=4",),
    "time",
    "random",
    device="sim:jetson-tx1",
    options={"budget": 5, "window_s": _WINDOW_S},
)


@dataclass
class Workshop:
    """A database with one job, and the attempts at it.

    Attributes:
        folder: of the database.
        job_spec: of the job.
        events: what the attempts told.
        launch: how their processes start.
    """

    folder: Path
    job_spec: JobSpec = ORDER
    events: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    _job: Job | None = None
    launch: Launch = prepared

    @property
    def database(self) -> Path:
        return self.folder / "tuner.db"

    @property
    def job(self) -> Job:
        """The job as it is stored now; queued when it is first asked for."""
        with Database(self.database) as database:
            jobs = Jobs(database)
            if self._job is None:
                self._job = jobs.add(self.job_spec, origin=Origin.CLIENT)
            found = jobs.job(self._job.id)
        assert found is not None
        return found

    def spec(self, **changes: Any) -> AttemptSpec:
        return replace(AttemptSpec(self.job.id, self.job_spec, self.database), **changes)

    def tell(self, kind: str, data: Mapping[str, Any]) -> None:
        self.events.append((kind, data))

    def told(self, kind: str) -> list[Mapping[str, Any]]:
        return [data for told, data in self.events if told == kind]

    def attempt(self, **changes: Any) -> AttemptResult:
        """One attempt from begin to end."""

        async def whole() -> AttemptResult:
            return await (await self.start(**changes)).result()

        return asyncio.run(asyncio.wait_for(whole(), PATIENCE_S))

    def here(self, **changes: Any) -> AttemptResult:
        """One attempt in this process, which nobody hears."""
        events = EventWriter(os.open(os.devnull, os.O_WRONLY), self.job_spec.objective)
        try:
            return Attempt(self.spec(**changes), events, StopRequest()).run()
        finally:
            events.close()

    async def start(self, **changes: Any) -> AttemptProcess:
        return await start(self.spec(**changes), self.tell, self.launch)

    def runs(self) -> list[StoredRun]:
        with Store(self.database) as store:
            return store.history()

    # --- the played GPU ------------------------------------------------------------------------------

    def hold(self, burst: int) -> None:
        """Let the burst of that number, counted from 1 over all attempts, never end."""
        (self.folder / "hold").write_text(str(burst))

    def let_go(self) -> None:
        """Hold nothing any more."""
        for name in ("hold", "held"):
            (self.folder / name).unlink(missing_ok=True)

    async def held(self) -> None:
        """Return when the burst that never ends has begun."""
        await until((self.folder / "held").exists)

    def workers(self) -> list[int]:
        """Process ids of all workers so far."""
        return [int(path.name.partition("-")[2]) for path in self.folder.glob("worker-*")]


async def until(true: Callable[[], bool]) -> None:
    """Return when something is so."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline_s, "it did not come"
        await asyncio.sleep(0.01)


def gone(pid: int) -> bool:
    """True when a process has ended, waited for if need be; one that nobody has reaped yet has."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            watch = select.poll()
            watch.register(handle, select.POLLIN)
            return bool(watch.poll(PATIENCE_S * 1000))
        finally:
            os.close(handle)
    return True


def sampling(job_spec: JobSpec) -> JobSpec:
    """The job to measure again."""
    return replace(job_spec, kind=JobKind.SAMPLE)
