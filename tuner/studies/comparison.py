"""Offline comparison of policies on ground truths, with many seeds, on all CPUs.

Efficiency, and its harmonic mean over problem sizes, is the metric of section VI of "Performance Tuning for
GPU-Embedded Systems".
"""

import contextlib
import inspect
import math
import multiprocessing
import os
import signal
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from typing import Any

from tuner.kernel_files.catalog import Catalog
from tuner.model import registry
from tuner.model.errors import ChildCrashedError, InputError, UnknownNameError, suggestion
from tuner.model.objective import Objective
from tuner.model.records import WorkloadName
from tuner.model.trial import Measurement, Trial
from tuner.recordings.files import listed
from tuner.recordings.values import RecordedSpace, search_of
from tuner.space.search_view import Policy, Search

# --- Parses the policies and groups of workloads of a comparison from the command line.

TOGETHER = "+"  # between the workloads of a co-run

Group = tuple[str, ...]
"""Names of workloads that run together; one for a workload alone."""


@dataclass(frozen=True)
class PolicyChoice:
    """A policy as the user named it.

    Attributes:
        label: the user's words, e.g. ``analytical:rule=server``.
        name: in the registry.
        options: keyword arguments.
    """

    label: str
    name: str
    options: tuple[tuple[str, Any], ...] = ()

    def load(self) -> Policy:
        """Import the policy and give it its options."""
        policy: Policy = registry.load("policy", self.name)
        return partial(policy, **dict(self.options)) if self.options else policy


def every_policy() -> tuple[str, ...]:
    """Names of all policies but the exhaustive one, which is the ground truth."""
    return tuple(name for name in registry.names("policy") if name != "exhaustive")


def policies(words: str | None) -> tuple[PolicyChoice, ...]:
    """Policies from ``name[:option=value]...``, separated by commas; None for all of them.

    Raises:
        UnknownNameError: no such policy, or it has no such option; the message lists those there are.
        InputError: nothing is named, or something twice.
    """
    named = every_policy() if words is None else tuple(word.strip() for word in words.split(","))
    choices = tuple(_policy(word) for word in named if word)
    if not choices:
        raise InputError(f"--policies {words!r} names none; choose from {', '.join(every_policy())}")
    twice = {label for label, count in Counter(choice.label for choice in choices).items() if count > 1}
    if twice:
        raise InputError(f"--policies: {', '.join(sorted(twice))} is named more than once")
    return choices


def _policy(label: str) -> PolicyChoice:
    name, *pairs = label.split(":")
    if name not in registry.names("policy"):
        choices = registry.names("policy")
        near = suggestion(name, choices)
        raise UnknownNameError(f"--policies: unknown policy {name!r}; choose from {', '.join(choices)}{near}")
    if not pairs:
        return PolicyChoice(label, name)
    taken = list(inspect.signature(registry.load("policy", name)).parameters)[1:]
    options = []
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if key not in taken or not equals:
            there = f"its options are {', '.join(taken)}" if taken else "it has none"
            raise UnknownNameError(f"--policies {label}: {pair!r} is no option of {name}; {there}")
        options.append((key, _value(text)))
    return PolicyChoice(label, name, tuple(options))


def _value(text: str) -> bool | float | str:
    """A number or a truth value where the text is one."""
    words = {"true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number


def recorded_groups(words: Sequence[str], names: Sequence[Group], where: str) -> tuple[Group, ...]:
    """The recorded groups that words name; all of them where there are no words.

    Args:
        words: ``fft:N=1024``, ``fft`` for all its sizes, or ``a+b`` for a co-run.
        names: the groups that are recorded.
        where: the recording, for messages.

    Raises:
        UnknownNameError: a word names none of them; the message lists what there is.
    """
    if not words:
        return tuple(names)
    groups: dict[Group, None] = {}
    for word in words:
        parts = _parts(word)
        alone = [group for group in names if len(group) == 1]
        if len(parts) > 1:
            matching = [group for group in names if sorted(group) == sorted(parts)]
        else:
            matching = [group for group in alone if parts[0] in (group[0], operation(group))]
        if not matching:
            kernels = set(map(operation, alone))
            near = suggestion(word, [*sorted(kernels), *map(TOGETHER.join, names)])
            there = listed(names, TOGETHER)
            raise UnknownNameError(f"{where}: no recorded space of {word}{near}; there are {there}")
        groups |= dict.fromkeys(matching)
    return tuple(groups)


def catalog_groups(words: Sequence[str], catalog: Catalog) -> tuple[Group, ...]:
    """The groups that words name, by the kernel files; a bare kernel is every size its file states.

    Raises:
        UnknownNameError: an unknown kernel or size.
        InputError: a word has another form, or no word is there.
    """
    if not words:
        raise InputError(
            "name workloads to compare policies on, e.g. fft, fft:N=1024 or scan-lf:N=256+fft:N=256"
        )
    groups: dict[Group, None] = {}
    for word in words:
        parts = _parts(word)
        if len(parts) == 1 and ":" not in word:
            workloads = catalog.kernel(word).workloads()
            if not workloads:
                raise UnknownNameError(f"{word} has no sizes")
            groups |= dict.fromkeys((str(workload),) for workload in workloads)
            continue
        for part in parts:
            catalog.workload(part)
        groups[tuple(parts)] = None
    return tuple(groups)


def operation(group: Group) -> str:
    """The kernels of a group, which is what its sizes share: ``fft``, or ``scan-lf+fft`` for a co-run."""
    return TOGETHER.join(WorkloadName.parse(name).kernel for name in group)


def _parts(word: str) -> list[str]:
    """The workloads of a word."""
    parts = [part.strip() for part in word.split(TOGETHER)]
    if not all(parts):
        raise InputError(f"workload {word!r}: there is no name before or after a {TOGETHER}")
    if len(set(parts)) < len(parts):
        raise InputError(f"workload {word!r}: a co-run holds a workload once")
    return parts


# --- Plays of policies on ground truths, and what they come to.

STANDSTILL = 100_000  # lists in a row without a new trial; a search that asks so often goes in circles

Lookup = Callable[[Trial], Measurement]
"""Function from a trial to its measurement; that of an unknown trial is not ok."""
CLOSE = 0.98  # an answer within 2 % of the best is as good: trials of one configuration repeat to about 1 %
# Set in playing processes: as many threads as CPUs in each of as many processes would only wait for each
# other, and sums in another order would be other numbers on another machine.
_REAPED_S = 0.01  # a look at a killed process
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def play(
    policy: Policy, search: Search, look: Lookup, budget: int | None = None
) -> list[tuple[Trial, Measurement]]:
    """Run a policy's generator to its end, or until the budget is used up.

    A trial asked for again is answered from memory and costs nothing, as in a run.

    Args:
        policy: the strategy.
        search: what it is told.
        look: gives the measurement of a trial.
        budget: distinct trials at most; None for as many as the policy wants.

    Returns:
        The distinct trials in the order they were asked for, with what they gave.

    Raises:
        RuntimeError: the policy asked ``STANDSTILL`` times in a row for nothing new, and would never end.
    """
    measured: dict[Trial, Measurement] = {}
    in_vain = 0  # batches in a row without a new trial
    generator = policy(search)
    try:
        batch = next(generator)
        while in_vain < STANDSTILL:
            before = len(measured)
            for trial in batch:
                if trial not in measured:
                    if budget is not None and len(measured) >= budget:
                        return list(measured.items())
                    measured[trial] = look(trial)
            in_vain = in_vain + 1 if len(measured) == before else 0
            batch = generator.send([measured[trial] for trial in batch])
        raise RuntimeError(f"the policy asked {STANDSTILL:,} times in a row for no new trial")
    except StopIteration:
        return list(measured.items())
    finally:
        generator.close()


def efficiency(best: float, cost: float) -> float:
    """The best known cost divided by the cost of an answer: 1 for the best, 0 for a failed one."""
    return best / cost if math.isfinite(cost) else 0.0


def phi(efficiencies: Sequence[float]) -> float:
    """The metric Φ: the harmonic mean of efficiencies, every problem size with the same weight.

    Args:
        efficiencies: one per problem size, each 0 to 1; at least one.

    Returns:
        A number between the lowest and the highest of them; 0 where one is 0.
    """
    if min(efficiencies) <= 0.0:
        return 0.0
    mean = len(efficiencies) / math.fsum(1.0 / one for one in efficiencies)
    return min(max(mean, min(efficiencies)), max(efficiencies))  # rounding may lead outside by a bit


def improvements(costs: Iterable[float]) -> tuple[tuple[int, float], ...]:
    """The improvements in a sequence of costs: (evaluations so far, lowest cost), without failures."""
    steps: list[tuple[int, float]] = []
    for count, cost in enumerate(costs, start=1):
        if math.isfinite(cost) and (not steps or cost < steps[-1][1]):
            steps.append((count, cost))
    return tuple(steps)


def lowest_after(steps: Sequence[tuple[int, float]], evaluations: float) -> float:
    """The lowest cost after so many evaluations; infinity while there is none."""
    place = bisect_right([count for count, _ in steps], evaluations)
    return steps[place - 1][1] if place else math.inf


def evaluations_to(steps: Sequence[tuple[int, float]], best: float, share: float = CLOSE) -> int | None:
    """Evaluations until the efficiency reached a share; None where it never did."""
    return next((count for count, cost in steps if efficiency(best, cost) >= share), None)


@dataclass(frozen=True)
class Rules:
    """Settings common to all evaluations.

    Attributes:
        policies: the policies.
        seeds: each policy is evaluated with the seeds 0 to ``seeds - 1``.
        objective: name of what is minimised.
        budget: maximum evaluations of a search; None for no limit.
    """

    policies: tuple[PolicyChoice, ...]
    seeds: int
    objective: str
    budget: int | None


@dataclass(frozen=True, order=True)
class EvaluationJob:
    """One evaluation: the indices of its space and its policy, and its seed."""

    space: int
    policy: int
    seed: int


@dataclass(frozen=True)
class Play:
    """The result of a policy on a space with one seed.

    Attributes:
        job: which.
        evaluations: distinct trials it asked for, failed ones included.
        steps: (evaluations so far, lowest cost) wherever the cost got lower.
        answer: the trial of lowest cost it asked for; None where none was valid.
        search_s: CPU time of the search itself.
        error: why the policy raised; empty where it ended well.
    """

    job: EvaluationJob
    evaluations: int = 0
    steps: tuple[tuple[int, float], ...] = ()
    answer: Trial | None = None
    search_s: float = 0.0
    error: str = ""


def jobs(rules: Rules, spaces: int) -> list[EvaluationJob]:
    """All evaluations, space by space."""
    return [
        EvaluationJob(space, policy, seed)
        for space in range(spaces)
        for policy in range(len(rules.policies))
        for seed in range(rules.seeds)
    ]


def play_one(job: EvaluationJob, spaces: Sequence[RecordedSpace], rules: Rules) -> Play:
    """Evaluate a policy to its end, or to the budget; if it raises, only this evaluation fails."""
    space, objective = spaces[job.space], Objective(rules.objective)
    try:
        policy = rules.policies[job.policy].load()
        search = search_of(space, objective.cost, seed=job.seed, noise=objective.relative_uncertainty)
        begun_s = time.thread_time()
        trials = play(policy, search, space.look, rules.budget)
    except Exception as error:  # noqa: BLE001 - whatever a policy raises is its result here
        return Play(job, error=f"{type(error).__name__}: {error}")
    search_s = time.thread_time() - begun_s
    steps = improvements(objective.cost(measurement) for _, measurement in trials)
    answer = trials[steps[-1][0] - 1][0] if steps else None
    return Play(job, len(trials), steps, answer, search_s)


def play_all(spaces: Sequence[RecordedSpace], rules: Rules, processes: int) -> Generator[Play, None, None]:
    """Run all evaluations in child processes, and yield their results as they end.

    Closing the iterator (Ctrl-C does) ends the processes at once.

    Raises:
        ChildCrashedError: a process died, of memory for example.
    """
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")  # a fork would copy the threads and locks of a device
    with _environment(_ONE_THREAD):
        pool = ProcessPoolExecutor(processes, context, _begin, (spaces, rules))
        try:
            with _stops_wait():
                futures = [pool.submit(_play, job) for job in jobs(rules, len(spaces))]
            yield from (future.result() for future in as_completed(futures))
        except BrokenProcessPool as error:
            raise ChildCrashedError(
                "a process that searched died, perhaps for lack of memory; try --jobs 1"
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - before:
                child.kill()  # one that only begins heeds nothing less
                while child.exitcode is None:  # the pool's own thread may be the one that reaps it
                    child.join(_REAPED_S)


@contextlib.contextmanager
def _stops_wait() -> Iterator[None]:
    """Ctrl-C and its like wait while processes are started.

    One that is half started can be ended by nobody, and would tell the terminal what it missed. The processes
    begin with the signals blocked: Ctrl-C reaches them, too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stops = [number for number in _STOPS if signal.getsignal(number) is not signal.SIG_IGN]
    caught: list[int] = []
    handlers = {number: signal.signal(number, lambda got, _: caught.append(got)) for number in stops}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if caught:
        signal.raise_signal(caught[0])


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables that children inherit."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# --- One play in a process of a pool.

_held: tuple[Sequence[RecordedSpace], Rules] | None = (
    None  # of a playing process: sent once, not with every job
)


def _begin(spaces: Sequence[RecordedSpace], rules: Rules) -> None:
    global _held  # noqa: PLW0603 - the only way an initialiser can leave something to the calls
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _held = spaces, rules


def _end_with_parent() -> None:
    """A parent that was killed asks for no play: whoever waits for its next one would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _play(job: EvaluationJob) -> Play:
    if _held is None:
        raise RuntimeError("this process was not begun")
    return play_one(job, *_held)
