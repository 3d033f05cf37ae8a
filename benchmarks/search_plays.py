"""One search over a recorded space, evaluation by evaluation: ours, and what both sides share."""

import inspect
import math
import signal
import statistics
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType

from search_spaces import OBJECTIVE, Game, key

from tuner.model import registry
from tuner.model.trial import Measurement, Trial
from tuner.recordings.values import search_of
from tuner.space.search_view import Policy, Search
from tuner.studies.comparison import play

IDLE_LIMIT_S = 10.0  # of CPU time; no search took a tenth of it, but some go round in circles for ever


@dataclass(frozen=True)
class Play:
    """What one search found.

    Attributes:
        seed: of the search.
        evaluations: configurations tried, each counted once, failed ones too.
        failed: those of them that failed.
        best: [evaluations, best time so far in s] wherever the best changed.
        search_ms: CPU time of its thread between an evaluation and the next, from the first on, in ms: median
            and mean; None for a search that asked for all at once.
        error: what ended it before its time; empty where nothing did.
    """

    seed: int
    evaluations: int
    failed: int
    best: tuple[tuple[int, float], ...]
    search_ms: tuple[float, float] | None
    error: str = ""


class Record:
    """Counts evaluations and the CPU time a search spends between them.

    Args:
        times_s: key of every configuration -> its time.
        budget: evaluations at most; more are not counted.
    """

    def __init__(self, times_s: Mapping[str, float], budget: int) -> None:
        self._times_s = times_s
        self._budget = budget
        self._seen: dict[str, float] = {}
        self._search_s: list[float] = []
        self._pending_s = 0.0
        self._since_s = time.thread_time()
        self.on_new: Callable[[], None] = lambda: None

    def asked(self, keys: Sequence[str]) -> None:
        """The search asks for configurations: its clock stops. Those not tried before share its time."""
        self._pending_s += time.thread_time() - self._since_s
        fresh = [name for name in dict.fromkeys(keys) if name in self._times_s and name not in self._seen]
        opening = not self._seen  # Kernel Tuner reads its cache and builds its space before: not searching
        for name in fresh[: self._budget - len(self._seen)]:
            self._seen[name] = self._times_s[name]
            if not opening:
                self._search_s.append(self._pending_s / len(fresh))
        if fresh:
            self._pending_s = 0.0
            self.on_new()

    @property
    def full(self) -> bool:
        """Whether the budget is used up."""
        return len(self._seen) >= self._budget

    def answered(self) -> None:
        """The search goes on: its clock starts."""
        self._since_s = time.thread_time()

    def finished(self, seed: int, error: str = "") -> Play:
        """What was found."""
        best: list[tuple[int, float]] = []
        for number, time_s in enumerate(self._seen.values(), start=1):
            if time_s < (best[-1][1] if best else math.inf):
                best.append((number, time_s))
        taken = [1e3 * spent_s for spent_s in self._search_s]
        return Play(
            seed=seed,
            evaluations=len(self._seen),
            failed=sum(math.isinf(time_s) for time_s in self._seen.values()),
            best=tuple(best),
            search_ms=(round(statistics.median(taken), 3), round(statistics.fmean(taken), 3))
            if taken
            else None,
            error=error,
        )


class Stuck(BaseException):
    """A search tries nothing new any more; no Exception, because some strategies catch every one of those."""


@contextmanager
def limited(record: Record) -> Iterator[None]:
    """Raise `Stuck` inside the block once a search has used so much CPU time without anything new."""

    def ring(_: int, __: FrameType | None) -> None:
        raise Stuck(f"nothing new in {IDLE_LIMIT_S:g} s of CPU time")

    def wind() -> None:
        signal.setitimer(signal.ITIMER_PROF, IDLE_LIMIT_S)

    before = signal.signal(signal.SIGPROF, ring)
    record.on_new = wind
    wind()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def guarded(record: Record, seed: int, search: Callable[[], object]) -> Play:
    """Run a search to its end, its crash, or its going round in circles."""
    try:
        with limited(record):
            search()
    except (Exception, Stuck) as error:  # noqa: BLE001 - any crash of a search is a result
        first = str(error).partition("\n")[0][:160]
        return record.finished(seed, f"{type(error).__name__}: {first}")
    return record.finished(seed)


def play_policy(game: Game, name: str, seed: int, budget: int) -> Play:
    """Play one of our policies; one that stops by its own patience is made to go on to the budget."""
    policy = registry.load("policy", name)
    if "patience" in inspect.signature(policy).parameters:
        policy = partial(policy, patience=math.inf)
    search = search_of(game.space, OBJECTIVE.cost, seed=seed, noise=noise)
    record = Record(game.times_s, budget)
    watched = partial(_watched, policy, game, record)
    return guarded(record, seed, lambda: play(watched, search, game.space.look, budget))


def noise(measurement: Measurement) -> float:
    """Relative standard uncertainty of a time; 0 for a failed one."""
    cost = OBJECTIVE.cost(measurement)
    return OBJECTIVE.uncertainty(measurement) / cost if math.isfinite(cost) else 0.0


def _watched(
    policy: Policy, game: Game, record: Record, search: Search
) -> Generator[list[Trial], list[Measurement], Trial | None]:
    """The policy, with every list it asks for put on record."""
    record.answered()
    generator = policy(search)
    batch = next(generator)
    while True:
        record.asked([key(game.values(trial)) for trial in batch])
        found = yield batch
        record.answered()
        try:
            batch = generator.send(found)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
