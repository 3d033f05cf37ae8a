"""Plays measurements to a policy: the least a driver does, and searches made by hand."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.policies.analytical import Choice, choose

from tuner.model.plan import Configuration, TunableValue
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.space.search_view import Candidate, Policy, Search

Measure = Callable[[Trial], Measurement]


def choice_of(*arguments: Any, **options: Any) -> Choice:
    """The analytical answer, where there is one."""
    choice = choose(*arguments, **options)
    assert choice is not None
    return choice


@dataclass
class Played:
    """What a policy asked for, list by list, and what it returned; ``ended`` is False if it was stopped."""

    batches: list[list[Trial]] = field(default_factory=list)
    best: Trial | None = None
    ended: bool = False

    @property
    def trials(self) -> list[Trial]:
        """All trials in the order they were asked for."""
        return [trial for batch in self.batches for trial in batch]


def play(policy: Policy, search: Search, measure: Measure, budget: float = math.inf) -> Played:
    """Drive a policy to its end, or until it has asked for ``budget`` trials."""
    played = Played()
    generator = policy(search)
    asked = 0
    try:
        batch = next(generator)
        while True:
            played.batches.append(batch)
            asked += len(batch)
            if asked >= budget:
                generator.close()
                return played
            batch = generator.send([measure(trial) for trial in batch])
    except StopIteration as end:
        played.best = end.value
        played.ended = True
    return played


def result(cost: float, own_s: Sequence[float], failed: Sequence[int] = ()) -> Measurement:
    """A measurement whose makespan is the cost; ``failed`` names the workloads that crashed."""
    results = tuple(
        WorkloadResult(Status.CRASHED) if i in failed else WorkloadResult(Status.OK, own)
        for i, own in enumerate(own_s)
    )
    return Measurement(results, None if failed else cost)


def makespan(measurement: Measurement) -> float:
    """The cost that goes with `result`."""
    return math.inf if measurement.makespan_s is None else measurement.makespan_s


def candidate(
    occupancy: float = 1.0, threads: int = 1024, elements: int = 0, **tunables: TunableValue
) -> Candidate:
    """A candidate with the tunables given."""
    return Candidate(Configuration(tunables), occupancy, threads, 1, threads // 32, elements)


def blocks(*sizes: int) -> tuple[Candidate, ...]:
    """The paper's D: block sizes of equal occupancy."""
    return tuple(candidate(threads=size, L=size) for size in sizes)


def search_over(
    *spaces: Sequence[Candidate],
    clocks: Sequence[int] = (),
    cost: Callable[[Measurement], float] = makespan,
    seed: int = 0,
    prior: Mapping[Trial, Measurement] | None = None,
) -> Search:
    """A search over spaces made by hand; the default is the (first) largest block, D[0] of the paper."""
    return Search(
        workloads=tuple(f"kernel{i}" for i in range(len(spaces))),
        candidates=tuple(tuple(space) for space in spaces),
        defaults=tuple(
            max(space, key=lambda c: c.threads_per_block).configuration for space in spaces if space
        ),
        clocks_mhz=tuple(clocks),
        cost=cost,
        seed=seed,
        prior=prior or {},
    )
