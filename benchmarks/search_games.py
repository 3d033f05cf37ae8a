"""Recorded spaces as games: the same table of times for our policies and for Kernel Tuner's strategies."""

import hashlib
import inspect
import itertools
import json
import math
import signal
import statistics
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from types import FrameType
from typing import Any

from tuner.model import registry
from tuner.model.errors import InputError
from tuner.model.objective import Objective
from tuner.model.plan import TunableValue
from tuner.model.records import WorkloadName
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.recordings.files import open_recording
from tuner.recordings.values import RecordedSpace, search_of
from tuner.space.search_view import Policy, Search
from tuner.studies.comparison import play

READABLE = (".npz", ".json", ".zip")
OBJECTIVE = Objective("time")
CLOCK = "clock_mhz"
MILLISECONDS = 1e3  # Kernel Tuner keeps times in ms
FAILURES = {Status.COMPILE_ERROR: "CompilationFailedConfig"}
OTHER_FAILURE = "RuntimeFailedConfig"


@dataclass(frozen=True)
class Game:
    """A recorded space to search, fastest configuration sought.

    Attributes:
        name: for tables.
        group: spaces of one group are averaged.
        space: what was recorded.
    """

    name: str
    group: str
    space: RecordedSpace

    @cached_property
    def tunables(self) -> dict[str, list[TunableValue]]:
        """Names and values as one kernel has them: only values that occur, in the order they are declared.

        With several workloads a name begins with the number of its workload.
        """
        found: dict[str, list[TunableValue]] = {}
        for lane, workload in enumerate(self.space.workloads):
            chosen = {trial.configurations[lane] for trial in self.space.trials}
            for name, values in workload.tunables.items():
                used = {configuration.get(name, values[0]) for configuration in chosen}
                found[self._named(lane, name)] = [value for value in values if value in used]
        if self.space.clocks_mhz:
            found[CLOCK] = list(self.space.clocks_mhz)
        return found

    def _named(self, lane: int, name: str) -> str:
        return name if len(self.space.workloads) == 1 else f"w{lane}_{name}"

    def values(self, trial: Trial) -> tuple[TunableValue, ...]:
        """The values of a trial in the order of ``tunables``; the first for a tunable that has none."""
        found = [
            configuration.get(name, workload.tunables[name][0])
            for configuration, workload in zip(trial.configurations, self.space.workloads, strict=True)
            for name in workload.tunables
        ]
        return (*found, trial.clock_mhz) if trial.clock_mhz is not None else tuple(found)

    @cached_property
    def times_s(self) -> dict[str, float]:
        """Key of every configuration, as Kernel Tuner spells it -> time; infinity where it failed."""
        return {
            key(self.values(trial)): OBJECTIVE.cost(measurement)
            for trial, measurement in self.space.trials.items()
        }

    @cached_property
    def optimum_s(self) -> float:
        """The shortest time; infinity where all failed."""
        return min(self.times_s.values(), default=math.inf)

    @cached_property
    def digest(self) -> str:
        """Differs when the tunables or the times do."""
        times = {name: f"{time_s:.9g}" for name, time_s in sorted(self.times_s.items())}
        return hashlib.sha256(json.dumps([self.tunables, times]).encode()).hexdigest()[:16]


def key(values: tuple[TunableValue, ...] | list[TunableValue]) -> str:
    """A configuration as a key of Kernel Tuner's cache files."""
    return ",".join(str(value) for value in values)


def kernel_tuner_cache(game: Game) -> dict[str, Any]:
    """A space as the document of a cache file that Kernel Tuner's simulation mode accepts."""
    names = list(game.tunables)
    entries = {}
    for trial, measurement in game.space.trials.items():
        values = game.values(trial)
        entry: dict[str, Any] = dict(zip(names, values, strict=True))
        cost_s = OBJECTIVE.cost(measurement)
        failure = FAILURES.get(measurement.status, OTHER_FAILURE)
        entry |= {"time": cost_s * MILLISECONDS} if math.isfinite(cost_s) else {"__error__": failure}
        entries[key(values)] = entry
    return {
        "device_name": game.space.identity.name,
        "kernel_name": game.name,
        "problem_size": [1],
        "tune_params_keys": names,
        "tune_params": game.tunables,
        "objective": "time",
        "cache": entries,  # last: Kernel Tuner tells a file that was closed by its three closing braces
    }


def games_of(where: str) -> list[Game]:
    """The spaces of a file, of all files of a folder, or the shipped ones (``h200``).

    Raises:
        InputError: there is nothing to read.
    """
    if where == "h200":
        return _shipped()
    path = Path(where)
    files = sorted(f for f in path.iterdir() if f.suffix in READABLE) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path}: no recorded space in it; wanted files ending in {', '.join(READABLE)}")
    return list(itertools.chain.from_iterable(map(_of_file, files)))


def _shipped() -> list[Game]:
    recording = open_recording("h200")
    found = []
    for names in recording.names:
        kernel = WorkloadName.parse(names[0]).kernel if len(names) == 1 else "joint"
        found.append(Game(" + ".join(names), f"h200 {kernel}", recording.space(names)))
    return found


def _of_file(path: Path) -> list[Game]:
    recording = open_recording(str(path))
    group = path.stem.rpartition("_")[0] or path.stem
    if len(recording.names) == 1:
        return [Game(path.stem.replace("_", " "), group, recording.space(recording.names[0]))]
    return [
        Game(f"{path.stem} {' + '.join(names)}", path.stem, recording.space(names))
        for names in recording.names
    ]


FAILING = {"one": 1, "product": 3, "random": 0}
"""Name -> tunables whose product decides what fails."""
FAILING_SHARE = 1 / 3  # of a space that fails at least; ties fail together


def with_failures(game: Game, how: str) -> Game:
    """A space of which about a third fails, and whose other times are kept.

    It fails by the largest values of one tunable, by the largest products of three (as of shared memory or
    registers), or at random. The default stays as it is, and so does what failed when it was recorded.

    Args:
        game: of one workload.
        how: one of ``FAILING``.
    """
    chosen = {trial: trial.configurations[0] for trial in game.space.trials}
    numbers = [n for n, v in game.tunables.items() if len(v) > 1 and {type(one) for one in v} <= {int, float}]
    names = sorted(numbers, key=lambda name: -len(game.tunables[name]))[: FAILING[how]]
    sizes = {
        trial: math.prod(1.0 + float(one[name]) for name in names)
        if names
        else float(zlib.crc32(str(one).encode()))
        for trial, one in chosen.items()
    }
    limit = sorted(sizes.values())[int((1.0 - FAILING_SHARE) * (len(sizes) - 1))]
    failed = Measurement((WorkloadResult(Status.LAUNCH_ERROR),))
    default = game.space.workloads[0].default
    trials = {
        trial: failed if sizes[trial] >= limit and chosen[trial] != default else measurement
        for trial, measurement in game.space.trials.items()
    }
    return Game(f"{game.name}, fails by {how}", f"fails by {how}", replace(game.space, trials=trials))


# --- one search over a recorded space, evaluation by evaluation: ours, and what both sides share

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


def play_policy(game: Game, name: str, seed: int, budget: int, *, ends: bool = False) -> Play:
    """Play one of our policies; one that ends by itself goes on to the budget, unless it ``ends``."""
    policy = registry.load("policy", name)
    if "patience" in inspect.signature(policy).parameters and not ends:
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
