"""One worker of a pool, as the driver sees it."""

from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.model.errors import InputError, UncheckableError
from tuner.model.trial import SAME_GPU, AnchorRatio, Measurement, PoolGpu
from tuner.pool.worker import Answer, SetupOrder, WorkerFacts, WorkerTotals, call_setup, describe_setup
from tuner.pool.workers import PoolWorker, Workers
from tuner.power.base import SpentEnergy


@dataclass(eq=False)
class Member:
    """One worker of a pool, with what it has opened.

    Attributes:
        workers: through whom it is called.
        worker: the process.
        order: what it opens.
        facts: what it is; None until it has told.
        ratio: of the anchors; None until it has measured its own.
        anchor: the default trial as it measured it.
        anchor_j: joules that its anchor took; they are counted with its next trial.
        totals: of its setups, by their numbers.
    """

    workers: Workers
    worker: PoolWorker
    order: SetupOrder
    facts: WorkerFacts | None = None
    ratio: AnchorRatio | None = None
    anchor: Measurement | None = None
    anchor_j: float = 0.0
    totals: dict[int, WorkerTotals] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What messages call it."""
        if self.facts is None:
            return self.worker.address
        who = f"{self.facts.host} {self.facts.identity.spec}"
        return f"{who} (worker {self.worker.name})" if self.facts.identity.modelled else who

    @property
    def gpu(self) -> PoolGpu:
        """What is noted of its trials."""
        facts = self.known
        return PoolGpu(facts.host, facts.identity.uuid, facts.identity.driver, self.ratio or SAME_GPU)

    @property
    def known(self) -> WorkerFacts:
        """Its facts, which it has told.

        Raises:
            LookupError: it has not.
        """
        if self.facts is None:
            raise LookupError(f"{self.worker.address} has not told what it is")
        return self.facts

    def describe(self) -> "Future[Answer]":
        """Have it open its setup and tell what it is."""
        living = self.workers.living()
        return self.workers.submit(
            describe_setup, self.order, living, worker=self.worker.address, lease_s=self.order.lease_s
        )

    def submit(self, owner: str, method: str, *args: object) -> "Future[Answer]":
        """Call a method of its device or measurer."""
        where, lease_s = self.worker.address, self.order.lease_s
        return self.workers.submit(
            call_setup, self.order, owner, method, *args, worker=where, lease_s=lease_s
        )

    def call(self, owner: str, method: str, *args: object) -> Any:  # noqa: ANN401 - of the method
        """Call a method, and wait for what it returns.

        Raises:
            WorkerLostError: the worker has gone.
            PoolLostError: the scheduler has gone.
            TunerError: what the method raised.
        """
        answer: Answer = self.workers.wait(self.submit(owner, method, *args))
        return self.heard(answer)

    def named(self, error: InputError) -> InputError:
        """An error that it has told, with its host: files of another host are not those of this one."""
        hint = "; files do not travel: put it there under the same path"
        needs = hint if isinstance(error, UncheckableError) else ""
        return type(error)(f"host {self.known.host}: {error}{needs}")

    def heard(self, answer: Answer) -> Any:  # noqa: ANN401 - of the call
        """Take note of the totals of an answer; returns its value."""
        self.totals[answer.setup] = answer.totals
        return answer.value

    @property
    def now_s(self) -> float:
        """Of its device's clock, as far as it was heard."""
        return max((one.now_s for one in self.totals.values()), default=0.0)

    @property
    def windows_s(self) -> float:
        """Length of all its windows."""
        return sum(one.windows_s for one in self.totals.values())

    @property
    def spent(self) -> list[SpentEnergy]:
        """Joules of each of its setups that tells them."""
        return [one.spent for one in self.totals.values() if one.spent is not None]

    @property
    def notices(self) -> list[str]:
        """What its measurers say, with its name."""
        told = dict.fromkeys(notice for one in self.totals.values() for notice in one.notices)
        return [f"{self.name}: {notice}" for notice in told]

    def misfit(self, home: WorkerFacts) -> str:
        """Why it cannot measure for a pool with this home; empty where it can."""
        own = self.known
        pairs = (
            ("GPU", own.identity.name, home.identity.name),
            ("driver", own.identity.driver, home.identity.driver),
            ("CUDA", own.identity.runtime, home.identity.runtime),
            ("sensor", own.sensor, home.sensor),
            ("window", own.window_s, home.window_s),
        )
        differing = [f"{what} {here}, not {there}" for what, here, there in pairs if here != there]
        return "; ".join(differing)

    def is_same_gpu(self, other: WorkerFacts) -> bool:
        """True where both are one GPU; simulated ones are as many as there are workers."""
        own = self.known.identity
        return own.uuid == other.identity.uuid and not own.modelled


def joined(spent: list[SpentEnergy]) -> SpentEnergy | None:
    """Joules of several meters together; None of none."""
    if not spent:
        return None
    total = spent[0]
    for one in spent[1:]:
        total = replace(
            total,
            joules=total.joules + one.joules,
            sigma_j=(total.sigma_j**2 + one.sigma_j**2) ** 0.5,
            unseen_j=total.unseen_j + one.unseen_j,
            unseen_sigma_j=(total.unseen_sigma_j**2 + one.unseen_sigma_j**2) ** 0.5,
            unseen_s=total.unseen_s + one.unseen_s,
        )
    return total
