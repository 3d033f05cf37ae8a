"""Compiles candidates on demand: what is asked for now, what will be, and what is expected, in this order."""

import math
import random
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice

from tuner.compiler.compiler import usual_jobs
from tuner.devices.base import Device
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import DeviceError, EmptySpaceError
from tuner.model.plan import Configuration, Progress, TunableValue, Workload
from tuner.model.trial import Trial
from tuner.search.candidates import (
    COMPILED_OCCUPANCY,
    SAME_CODE,
    SPILLS,
    PreparedWorkload,
    Verdict,
    judge,
    limits_of,
    nothing_left,
    prepare,
)
from tuner.search.option_checks import LimitReachedError, SearchLimits
from tuner.space.search_view import Candidate

# Candidates tried at a time while none is known to be left; not the CPUs: counts are repeatable.
_TOGETHER = 8
_ALIKE = 48  # beside the default: so many with one error, of all values of tunables, are taken for all
_FIRST_ERROR = re.compile(r"\S+\(\d+\): (?:catastrophic )?error.*")
_STAGE = re.compile(r": stage '[^']*', .*? of [^:]*: ")  # behind it stands what other compilers say

_Key = tuple[int, Configuration]  # place of a workload, and one of its configurations


def _silent(_done: int, _total: int) -> None:
    """Tells nobody."""


class Compilation:
    """Background compilation of the candidates of a search, on demand.

    Everything is compiled in threads of its own, so that a search measures meanwhile. Three queues feed them:
    what somebody waits for, what the session will measure next, and what the policy expects. Threads end when
    all are empty. What is known of a candidate never depends on what happens to be compiled: a policy sees
    bounds until it has a candidate resolved, and only what was resolved, or was part of a trial that was
    asked for, counts as looked at.

    Args:
        prepared: the workloads with their declared candidates; recorded ones are resolved as they are.
        device: compiles; ``Device.resources`` is called by several threads at a time.
        jobs: threads; as many as a compiler has children if not given.
        progress: called in the thread that waits, with (resolved, asked for) configurations.
    """

    def __init__(
        self,
        prepared: Sequence[PreparedWorkload],
        device: Device,
        *,
        jobs: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._prepared = tuple(prepared)
        self._device = device
        self._jobs = jobs or usual_jobs()
        self._progress = progress or _silent
        self._changed = threading.Condition()
        self._wanted: deque[_Key] = deque()
        self._next: deque[_Key] = deque()
        self._expected: deque[_Key] = deque()
        self._under_way: set[_Key] = set()
        self._threads = 0
        self._closed = False
        self._limits: SearchLimits | None = None
        self._verdicts: dict[_Key, Verdict | BaseException] = {}
        self._looked: dict[_Key, None] = {}
        self._first: dict[tuple[int, tuple[object, ...]], _Key] = {}  # by code and launches
        self._all_spill: set[int] = set()  # places of workloads that nothing else is left of
        for index, item in enumerate(self._prepared):
            for each in item.candidates:
                if not each.declared:
                    self._verdicts[index, each.configuration] = Verdict(each)

    def begin(self, limits: SearchLimits) -> list[PreparedWorkload]:
        """Compile the defaults, and make sure that every workload has a candidate, while there is time.

        Returns:
            The workloads without the candidates that this ruled out, all others as declared: the same
            whatever is compiled already. Where all spill, those stay (``all_spilling``).

        Raises:
            EmptySpaceError: all candidates of a workload are ruled out; the message says by what.
        """
        defaults = [
            (index, item.default) for index, item in enumerate(self._prepared) if item.default in item.plans
        ]
        self._resolve(defaults)
        with suppress(LimitReachedError), self.within(limits):
            for index in range(len(self._prepared)):
                self._find_candidate(index)
        return [
            replace(
                item,
                candidates=tuple(
                    each
                    for each in item.candidates
                    if (key := (index, each.configuration)) not in self._looked or self._candidate(key)
                ),
            )
            for index, item in enumerate(self._prepared)
        ]

    def _find_candidate(self, index: int) -> None:
        """Compile candidates of a workload until one is known to be left."""
        item = self._prepared[index]
        declared = {each.configuration for each in item.candidates}
        if item.default in declared and self._candidate((index, item.default)) is not None:
            return
        untried = iter(by_new_values(item.candidates))
        while True:
            self._refuse_alike(index)
            some = list(islice(untried, _TOGETHER))
            if not some:
                if self._admit_spilling(index):
                    return
                raise self._nothing_left(index)
            if any(self.resolve(index, some)):
                return

    def _admit_spilling(self, index: int) -> bool:
        """Let what spills be tried where nothing else is left; True where there is some."""
        spilling = [key for key in self._looked if key[0] == index and self._verdict(key).dropped in SPILLS]
        if spilling:
            self._all_spill.add(index)
        for key in spilling:
            self._verdicts[key] = replace(self._verdict(key), dropped="")
            self._drop_alike(key)
        return bool(spilling)

    @property
    def all_spilling(self) -> list[Workload]:
        """Workloads whose configurations spill registers or use local memory, and are tried all the same."""
        return [self._prepared[index].workload for index in sorted(self._all_spill)]

    def resolve(self, index: int, candidates: Iterable[Candidate]) -> list[Candidate | None]:
        """Compile candidates of a workload now, in parallel; see ``Search.resolve``.

        Raises:
            DeviceError: the device is lost.
            CompilerUnavailableError: the compiler itself fails.
        """
        keys = [(index, each.configuration) for each in candidates]
        self._resolve(keys)
        return [self._candidate(key) for key in keys]

    @contextmanager
    def within(self, limits: SearchLimits) -> Iterator[None]:
        """Wait for no verdict behind the time limit of a search in the block.

        Raises:
            LimitReachedError: by what waits then.
        """
        self._limits = limits
        try:
            yield
        finally:
            self._limits = None

    def resolve_all(self) -> list[PreparedWorkload]:
        """Compile everything: each workload with all its candidates and what ruled out the others.

        Raises:
            EmptySpaceError: all candidates of a workload are ruled out; the message says by what.
        """
        self._resolve(
            [
                (index, configuration)
                for index, item in enumerate(self._prepared)
                for configuration in item.plans
            ]
        )
        compiled = self.known()
        for index, item in enumerate(compiled):
            if not item.candidates:
                raise self._nothing_left(index)
        return compiled

    def look_at(self, trial: Trial) -> list[Verdict]:
        """Return the verdicts on the configurations of a trial, which are compiled now if they are not yet.

        Raises:
            DeviceError, CompilerUnavailableError: as `resolve`.
        """
        keys = _keys([trial])
        self._resolve(keys)
        return [self._verdict(key) for key in keys]

    def ahead(self, trials: Sequence[Trial]) -> None:
        """These trials are asked for next, in this order: they are compiled in the background."""
        self._replace(self._next, trials)

    def expect(self, trials: Sequence[Trial]) -> None:
        """These trials are probably asked for after that; see ``Search.expect``."""
        self._replace(self._expected, trials)

    def end_ahead(self) -> None:
        """Begin nothing any more for which nobody waits: contenders are measured on CPUs at rest."""
        self.ahead(())
        self.expect(())

    def known(self, measured: Collection[Trial] = ()) -> list[PreparedWorkload]:
        """The workloads as far as they were looked at: compiled candidates, what was ruled out, and why.

        What was measured all the same, as a default that spills, is not counted as ruled out.
        """
        tried = [{trial.configurations[index] for trial in measured} for index in range(len(self._prepared))]
        return [self._known(index, tried[index]) for index in range(len(self._prepared))]

    def close(self) -> None:
        """Begin nothing more; what is being compiled ends with the device."""
        with self._changed:
            self._closed = True
            for queue in (self._wanted, self._next, self._expected):
                queue.clear()
            self._changed.notify_all()

    def _known(self, index: int, tried: Collection[Configuration] = ()) -> PreparedWorkload:
        item = self._prepared[index]
        verdicts = {
            configuration: verdict
            for (at, configuration) in self._looked
            if at == index and isinstance(verdict := self._verdicts.get((at, configuration)), Verdict)
        }
        all_candidates = item.known_candidates
        declared = {each.configuration for each in all_candidates}
        dropped = {c: v for c, v in verdicts.items() if v.dropped and c in declared}
        reasons = Counter(verdict.dropped for c, verdict in dropped.items() if c not in tried)
        candidates = (
            each if each.configuration not in verdicts else verdicts[each.configuration].candidate
            for each in all_candidates
            if each.configuration not in dropped
        )
        return replace(
            item,
            candidates=tuple(each for each in candidates if each is not None),
            pruned=dict(Counter(item.pruned) + reasons),
            compile_errors=(
                *item.compile_errors,
                *(verdict.error for verdict in verdicts.values() if verdict.error),
            ),
            spilling=item.spilling | {c for c, verdict in verdicts.items() if verdict.spills},
        )

    def _refuse_alike(self, index: int) -> None:
        """Give up on a workload whose default and many others fail to compile with one error."""
        looked = [self._verdict(key) for key in self._looked if key[0] == index]
        alike = {_first_error(verdict.error) for verdict in looked}
        if len(looked) > _ALIKE and len(alike) == 1 and looked[0].error:
            item = self._prepared[index]
            raise EmptySpaceError(
                f"{item.workload}: {len(looked)} of {len(item.space)} configurations, the default among them,"
                f" fail to compile with one error, so that the others are not tried: {looked[0].error};"
                " if others compile, make one of them the default"
            )

    def _nothing_left(self, index: int) -> EmptySpaceError:
        item = self._known(index)
        dropped = (self._verdict((index, c)) for at, c in self._looked if at == index)
        highest = max(
            (v.candidate.occupancy for v in dropped if v.candidate and v.dropped == COMPILED_OCCUPANCY),
            default=0.0,
        )
        return EmptySpaceError(nothing_left(item, highest))

    def _candidate(self, key: _Key) -> Candidate | None:
        verdict = self._verdict(key)
        return None if verdict.dropped else verdict.candidate

    def _verdict(self, key: _Key) -> Verdict:
        verdict = self._verdicts[key]
        if isinstance(verdict, BaseException):
            raise verdict
        return verdict

    # --- the queues -------------------------------------------------------------------------------

    def _resolve(self, keys: Sequence[_Key]) -> None:
        """Have verdicts on configurations, and wait for them."""
        with self._changed:
            before = len(self._looked)
            self._looked.update(dict.fromkeys(keys))
            for key in keys:
                if isinstance(self._verdicts.get(key), BaseException):
                    del self._verdicts[key]  # another try may end otherwise
            missing = {key: None for key in keys if key not in self._verdicts}
            self._wanted.extend(missing)
            self._start_threads()
        if not missing and len(self._looked) > before:  # compiled ahead
            self._progress(len(self._looked), len(self._looked))
        try:
            while missing:
                with self._changed:
                    if self._closed:
                        raise DeviceError(f"{self._device.identity.spec}: nothing is compiled any more")
                    pending = {key: None for key in missing if key not in self._verdicts}
                    if len(pending) == len(missing):
                        self._changed.wait(self._left_s())
                        continue
                    missing = pending
                self._progress(len(self._looked) - len(missing), len(self._looked))
        finally:
            with self._changed:
                self._wanted.clear()  # nobody waits any more
                for key in missing:
                    if key not in self._verdicts:  # out of time: nothing is known of it
                        del self._looked[key]
        for key in keys:
            self._drop_alike(key)

    def _drop_alike(self, key: _Key) -> None:
        """Leave out a configuration that runs the same code in the same way as one that was looked at."""
        verdict = self._verdict(key)
        if verdict.launched and not verdict.dropped:
            first = self._first.setdefault((key[0], verdict.launched), key)
            if first != key:
                self._verdicts[key] = replace(verdict, dropped=SAME_CODE)

    def _left_s(self) -> float | None:
        """Seconds that are left to wait; None for no limit."""
        if self._limits is None or self._limits.ends_s == math.inf:
            return None
        self._limits.check_time()
        return self._limits.ends_s - time.monotonic()

    def _replace(self, queue: deque[_Key], trials: Sequence[Trial]) -> None:
        with self._changed:
            queue.clear()
            queue.extend(_keys(trials))
            self._start_threads()

    def _start_threads(self) -> None:
        """As many threads as there is work for; the lock is held."""
        if self._closed:
            return
        work = sum(
            key not in self._verdicts and key not in self._under_way
            for queue in (self._wanted, self._next, self._expected)
            for key in queue
        )
        for _ in range(min(work, self._jobs - self._threads)):
            self._threads += 1
            threading.Thread(target=self._work, name="compilation", daemon=True).start()

    def _work(self) -> None:
        """Compile one configuration after another, until there is none left to compile."""
        while True:
            with self._changed:
                key = self._take()
                if key is None:
                    self._threads -= 1
                    return
                self._under_way.add(key)
            verdict: Verdict | BaseException
            try:
                verdict = self._judged(key)
            except BaseException as error:  # noqa: BLE001 - raised where somebody asks for it
                verdict = error
            with self._changed:
                self._under_way.discard(key)
                self._verdicts[key] = verdict
                self._changed.notify_all()

    def _take(self) -> _Key | None:
        """The next configuration to compile; the lock is held."""
        for queue in (self._wanted, self._next, self._expected):
            while queue:
                key = queue.popleft()
                if key not in self._verdicts and key not in self._under_way:
                    return key
        return None

    def _judged(self, key: _Key) -> Verdict:
        index, configuration = key
        item = self._prepared[index]
        if item.recorded:  # measured without being a candidate
            return Verdict(None)
        plan = item.plans[configuration]
        (report,) = self._device.resources([plan])
        verdict = judge(item, plan, report, limits_of(self._device))
        admitted = index in self._all_spill and verdict.dropped in SPILLS
        return replace(verdict, dropped="") if admitted else verdict


def by_new_values(candidates: Sequence[Candidate]) -> list[Candidate]:
    """All candidates by lot, first those with a value of a tunable that none before them has.

    So an error that hangs on one tunable is not met by all of the first, as it may be at any stride.
    """
    drawn = random.Random(0).sample(candidates, len(candidates))  # noqa: S311 - no secret
    seen: set[tuple[str, TunableValue]] = set()
    first: list[Candidate] = []
    others: list[Candidate] = []
    for candidate in drawn:
        values = candidate.configuration.items()
        (others if seen.issuperset(values) else first).append(candidate)
        seen.update(values)
    return first + others


def _first_error(text: str) -> str:
    """The first error of a compiler's output, without what names the configuration."""
    match = _FIRST_ERROR.search(text)
    stage = _STAGE.search(text) if match is None else None
    return match[0] if match else text[stage.end() :] if stage else text


def _keys(trials: Iterable[Trial]) -> list[_Key]:
    return list(dict.fromkeys(key for trial in trials for key in enumerate(trial.configurations)))


def prepare_compiled(
    workloads: Sequence[tuple[KernelFile, Workload]],
    device: Device,
    min_occupancy: float | None = None,
) -> list[PreparedWorkload]:
    """``candidates.prepare`` with everything compiled, for those who want to know all of a space.

    Args:
        workloads: kernel file and workload.
        device: compiles, and its limits count.
        min_occupancy: threshold of equation (5), 0 to 1; None takes the kernel file's, or 0.

    Raises:
        DeviceError: the limits of the device are not known.
        EmptySpaceError: a workload has no configuration left; the message says what dropped them.
    """
    return Compilation(prepare(workloads, device, min_occupancy), device).resolve_all()
