"""The steps of a descent: its memory, the loop to the first worsening, and its start."""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from tuner.model.plan import Configuration
from tuner.model.trial import Energy, Measurement, Status, Trial
from tuner.space.search_view import Search

from .ordering import Order

_SOME_ENERGY = Energy(joules=1.0, uncertainty_j=0.0, watts=0.0, sensor="", scope="")
Attempt = Generator[list[Trial], list[Measurement], Trial | None]
"""A part of a search: yields trials, is sent their measurements, returns what it found, if anything."""

Descent = Generator[list[Trial], list[Measurement], Trial]
"""A part of a search: yields trials, is sent their measurements, returns the trial it ends at."""


class Memory:
    """Measurements by trial, so that a descent compares every trial by one and the same number.

    Args:
        search: what the policy was told; its ``cost`` is the number compared.

    Attributes:
        expect: see ``Search.expect``.
    """

    def __init__(self, search: Search) -> None:
        self._cost = search.cost
        self.expect = search.expect
        self._costs: dict[Trial, float] = {}
        self._measurements: dict[Trial, Measurement] = {}
        self._best: Trial | None = None

    @property
    def best(self) -> Trial | None:
        """The cheapest trial measured, the earliest of equals; None while every trial has failed."""
        return self._best

    def cost(self, trial: Trial) -> Generator[list[Trial], list[Measurement], float]:
        """Cost of a trial, measured unless it is known; infinity when it failed.

        A cost that is not a finite number counts as a failure.
        """
        (cost,) = yield from self.costs([trial])
        return cost

    def costs(self, trials: Sequence[Trial]) -> Generator[list[Trial], list[Measurement], list[float]]:
        """Costs of trials whose order does not matter; those that are not known are measured together."""
        unknown = [trial for trial in dict.fromkeys(trials) if trial not in self._costs]
        if unknown:
            for trial, measurement in zip(unknown, (yield unknown), strict=True):
                self._remember(trial, measurement)
        return [self._costs[trial] for trial in trials]

    def __contains__(self, trial: object) -> bool:
        return trial in self._costs

    def __iter__(self) -> Iterator[Trial]:
        return iter(self._costs)

    def __len__(self) -> int:
        return len(self._costs)

    def _remember(self, trial: Trial, measurement: Measurement) -> None:
        cost = self._cost(measurement)
        self._measurements[trial] = measurement
        self._costs[trial] = cost if math.isfinite(cost) else math.inf
        if math.isfinite(cost) and (self._best is None or cost < self._costs[self._best]):
            self._best = trial

    def measured_cost(self, trial: Trial) -> float:
        """Cost of a measured trial."""
        return self._costs[trial]

    def measurement(self, trial: Trial) -> Measurement:
        """What a measured trial gave."""
        return self._measurements[trial]

    def is_pruned(self, trial: Trial) -> bool:
        """True when a trial that was asked for is ruled out by its compiled resources."""
        return self._measurements[trial].status is Status.PRUNED

    def inadmissible(self, trial: Trial) -> bool:
        """True when a measured trial ran well but is slower than the user allows."""
        return too_slow(self._measurements[trial], self._cost)


def too_slow(measurement: Measurement, cost: Callable[[Measurement], float]) -> bool:
    """True for a trial that ran well but is slower than the user allows.

    Its cost is infinite whatever its joules. A trial without joules (the sensor missed it) is no slower than
    others for that: it is asked what it would cost with some.
    """
    if measurement.energy is None or not math.isfinite(measurement.energy.joules):
        measurement = replace(measurement, energy=_SOME_ENERGY)
    return measurement.ok and cost(measurement) == math.inf


def recalled(attempt: Attempt, measured: dict[Trial, Measurement]) -> Attempt:
    """Run a part of a search: what is measured already is answered from memory, the rest remembered."""
    try:
        batch = next(attempt)
        while True:
            unknown = [trial for trial in batch if trial not in measured]
            if unknown:
                measured.update(zip(unknown, (yield unknown), strict=True))
            batch = attempt.send([measured[trial] for trial in batch])
    except StopIteration as end:
        found: Trial | None = end.value
        return found
    finally:
        attempt.close()


def cheapest(search: Search, measured: Mapping[Trial, Measurement]) -> Trial | None:
    """The cheapest trial measured, None where none is valid."""
    costs = {trial: search.cost(measurement) for trial, measurement in measured.items()}
    valid = [trial for trial, cost in costs.items() if math.isfinite(cost)]
    return min(valid, key=costs.__getitem__, default=None)


def first_minimum(memory: Memory, trials: Iterable[Trial]) -> Attempt:
    """Measure one trial after another until the first worsening: the loop of all four algorithms.

    A trial that fails is skipped and compared with nothing: the next valid one is compared with the valid
    one before it. Each is measured before the next is taken from ``trials``.

    Returns:
        The trial before the first worsening (of equals the last); None when no trial was valid.
    """
    chosen, lowest = None, math.inf
    for trial in trials:
        cost = yield from memory.cost(trial)
        if cost == math.inf:
            continue
        if cost > lowest:
            break
        chosen, lowest = trial, cost
    return chosen


def along(memory: Memory, trial: Trial, i: int, line: Sequence[Sequence[Configuration]]) -> Iterator[Trial]:
    """A trial with one configuration after another for kernel ``i``: the first of each list.

    Where compiling rules one out, the next of its list stands for it. The line is announced.
    """
    memory.expect([*with_kernel(trial, i, (nearest[0] for nearest in line))])
    for nearest in line:
        for changed in with_kernel(trial, i, nearest):
            yield changed
            if not memory.is_pruned(changed):
                break


def at_clocks(memory: Memory, trial: Trial, clocks: Iterable[int | None]) -> Iterator[Trial]:
    """A trial at one clock after another, lower ones only while it is not too slow to be allowed."""
    return while_allowed(memory, (replace(trial, clock_mhz=clock_mhz) for clock_mhz in clocks))


def while_allowed(memory: Memory, trials: Iterable[Trial]) -> Iterator[Trial]:
    """Trials, to the first that is too slow to be allowed, as those after it are slower still."""
    for trial in trials:
        yield trial
        if memory.inadmissible(trial):
            return


def with_kernel(trial: Trial, i: int, configurations: Iterable[Configuration]) -> Iterator[Trial]:
    """A trial with one configuration after another for kernel ``i``."""
    before, after = trial.configurations[:i], trial.configurations[i + 1 :]
    for configuration in configurations:
        yield replace(trial, configurations=(*before, configuration, *after))


def by_own_time(memory: Memory, trial: Trial) -> list[int]:
    """The vector K: kernels by decreasing time of their own in a measured trial, equals in given order."""
    own_s = [result.time_s or 0.0 for result in memory.measurement(trial).results]
    return sorted(range(len(own_s)), key=lambda i: -own_s[i])


def first_valid(memory: Memory, orders: Sequence[Order], search: Search) -> Attempt:
    """Where a descent begins: at D[0] of every kernel, or at a trial that is known and cheaper.

    Known are the default trial, which every run measures whatever its policy, and ``Search.prior``. Several
    kernels begin at what is known, and at D[0] only where a default was pruned or nothing known runs. Where
    all of these fail at the highest clock, the clock is lowered (steps 4-10 of Algorithm 4) from one after
    another, and then from the next candidates, until one runs.
    """
    potential, known = _start(orders, [0] * len(orders), search), [_default(orders, search)]
    known += _best_known(orders, search)
    chosen = all(default in order for order, default in zip(orders, search.defaults, strict=True))
    starts = known if chosen and len(orders) > 1 else [potential, *known]
    for attempts in (starts, [potential]):
        cheapest = yield from _first_cheapest(memory, attempts)
        if cheapest is not None:
            return cheapest
    for start in chain(starts, [potential], _next_starts(memory, orders, search)):
        found = yield from first_minimum(memory, at_clocks(memory, start, search.clocks))
        if found is not None:
            return found
    return None


def _first_cheapest(memory: Memory, trials: Iterable[Trial]) -> Attempt:
    """The (first) cheapest of some trials, None where all fail."""
    costs = {}
    for trial in trials:
        costs[trial] = yield from memory.cost(trial)
    cheapest = min(costs, key=costs.__getitem__)
    return cheapest if costs[cheapest] < math.inf else None


def _next_starts(memory: Memory, orders: Sequence[Order], search: Search) -> Iterator[Trial]:
    """The next candidates of those kernels that fail in D[0], and so on.

    To blame for a failure are the kernels whose status is not ok, or all where every status is. It ends when
    those to blame have no candidate left, so that a search without any valid trial ends soon.
    """
    tried = [0] * len(orders)
    start = _start(orders, tried, search)
    while True:
        statuses = [result.status for result in memory.measurement(start).results]
        failed = [i for i, status in enumerate(statuses) if status is not Status.OK]
        blamed = failed or range(len(orders))
        for i in blamed:
            tried[i] += 1
        if all(tried[i] >= len(orders[i].configurations) for i in blamed):
            return
        start = _start(orders, tried, search)
        yield start


def _start(orders: Sequence[Order], tried: Sequence[int], search: Search) -> Trial:
    chosen = (
        order.configurations[n % len(order.configurations)] for order, n in zip(orders, tried, strict=True)
    )
    return Trial(tuple(chosen), search.clocks[0])


def _default(orders: Sequence[Order], search: Search) -> Trial:
    """The default trial; where a default was pruned, D[0] of its kernel."""
    chosen = (
        default if default in order else order.configurations[0]
        for order, default in zip(orders, search.defaults, strict=True)
    )
    return Trial(tuple(chosen), search.clocks[0])


def _best_known(orders: Sequence[Order], search: Search) -> list[Trial]:
    """The cheapest valid trial of ``Search.prior`` that lies in the space, if there is one."""
    costs = {
        trial: search.cost(measurement)
        for trial, measurement in search.prior.items()
        if trial.clock_mhz in search.clocks
        and all(c in order for c, order in zip(trial.configurations, orders, strict=True))
    }
    valid = [trial for trial, cost in costs.items() if math.isfinite(cost)]
    return sorted(valid, key=costs.__getitem__)[:1]
