"""Workers of a pool that live in this process and answer as a test says; no Dask, no GPU."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.measurement.base import ComparisonTarget
from tuner.model.errors import PoolLostError, WorkerLostError
from tuner.model.jobs import DeviceIdentity
from tuner.model.plan import Configuration
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.pool.worker import Answer, WorkerFacts, WorkerTotals, describe_setup
from tuner.pool.worker_calls import PoolWorker

IDENTITY = DeviceIdentity("cuda:0", "H100", "GPU-0", "560.1", "12.9", modelled=False)
FACTS = WorkerFacts(
    host="node",
    identity=IDENTITY,
    limits=None,
    free_memory_bytes=2**30,
    clocks_mhz=None,
    no_clocks="",
    power_limits_w=None,
    no_power_limits="",
    window_s=0.5,
    sensor=None,
    notices=(),
)


def facts(number: int, **identity: Any) -> WorkerFacts:
    """Of a GPU of its own."""
    return replace(FACTS, identity=replace(IDENTITY, uuid=f"GPU-{number}", spec=f"cuda:{number}", **identity))


def trial(number: int) -> Trial:
    """One of many."""
    return Trial((Configuration({"L": number}),))


def taking(seconds: float) -> Measurement:
    """A valid measurement."""
    return Measurement((WorkloadResult(Status.OK, seconds),), makespan_s=seconds)


@dataclass
class FakeWorker:
    """A worker that measures at once.

    Attributes:
        facts: what it tells of itself, or the error of opening.
        slowness: times of its GPU, over those of another.
        dies_at: loses itself with this trial, as often as it is left to.
        fails: raised in the place of a measurement.
        targets: what its trials were held against.
        measured: its trials; each takes a second of its clock.
        clock_s: where its clock began.
    """

    facts: WorkerFacts | Exception
    slowness: float = 1.0
    dies_at: Trial | None = None
    fails: Exception | None = None
    targets: list[ComparisonTarget | None] = field(default_factory=list)
    measured: list[Trial] = field(default_factory=list)
    clock_s: float = 0.0

    def measure(self, wanted: Trial, target: ComparisonTarget | None) -> Measurement:
        """What it gives."""
        if self.fails is not None:
            raise self.fails
        self.targets.append(target)
        self.measured.append(wanted)
        return taking(self.slowness * float(wanted.configurations[0]["L"]))


class FakeWorkers:
    """Stands for ``tuner.pool.worker_calls.Workers``.

    Attributes:
        crew: the workers by address.
        replacement: what comes in the place of a worker that has died; None for nobody.
        scheduler_lost: True once it has gone.
    """

    def __init__(self, *crew: FakeWorker) -> None:
        self.crew = {f"tls://{place}": worker for place, worker in enumerate(crew)}
        self.replacement: Callable[[FakeWorker], FakeWorker] | None = None
        self.scheduler_lost = False
        self.left_out: Mapping[str, str] = {}
        self.names = {address: address for address in self.crew}
        self._born = len(crew)

    @property
    def present(self) -> Mapping[str, PoolWorker]:
        return {address: PoolWorker(address, self.names[address]) for address in self.crew}

    def refresh(self) -> None:
        if self.scheduler_lost:
            raise PoolLostError("the scheduler does not answer")

    def submit(self, function: Callable[..., Any], *args: Any, worker: str, lease_s: float) -> Future[Answer]:
        assert lease_s > 0
        answer: Future[Answer] = Future()
        try:
            value = self._value(function, args, worker)
            now_s = len(self.crew[worker].measured) + self.crew[worker].clock_s
            answer.set_result(Answer(value, WorkerTotals(now_s), 1))
        except Exception as error:  # noqa: BLE001 - as of a real future
            answer.set_exception(error)
        return answer

    def wait(self, answer: Future[Answer]) -> Answer:
        self.refresh()
        return answer.result()

    def living(self) -> tuple[str, ...]:
        return ()

    def run_everywhere(self, function: Callable[..., Any], *args: Any) -> None:
        """Nobody need be told."""

    def _value(self, function: Callable[..., Any], args: tuple[Any, ...], worker: str) -> Any:
        if worker not in self.crew:
            raise WorkerLostError(f"{worker} is lost")
        fake = self.crew[worker]
        if function is describe_setup:
            if isinstance(fake.facts, Exception):
                raise fake.facts
            fake.clock_s = args[0].clock_s
            return fake.facts
        _, _, method, *rest = args
        assert method == "measure"
        if rest[0] == fake.dies_at:
            self.kill(worker)
            raise WorkerLostError(f"{worker} is lost")
        return fake.measure(rest[0], rest[2])

    def kill(self, worker: str) -> None:
        """A worker dies; its replacement has its name and another address."""
        dead = self.crew.pop(worker)
        if self.replacement is not None:
            self.crew[f"tls://{self._born}"] = self.replacement(dead)
            self.names[f"tls://{self._born}"] = self.names[worker]
            self._born += 1
