"""What should be measured next, and how much that is worth.

The worth of a job is what its answer would save: uses per day times the joules that each use saves. It orders
the daemon's own jobs among each other; whatever a client or daemon.toml asks for goes first.

Orders that were tried of late, and are not wanted again for a while.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from tuner.daemon.answers.questions import Asked, question_of, sampling_order, tuning_order
from tuner.daemon.answers.questions import asked as asked_now
from tuner.daemon.answers.replies import searched, served
from tuner.daemon.answers.snapshot import Present
from tuner.daemon.interface import Question
from tuner.daemon.queue.job_specs import topic, with_batch
from tuner.database.answers import StoredAnswer
from tuner.database.ranking import ServedAnswer
from tuner.errors import InputError
from tuner.model import WorkloadName
from tuner.model.jobs import JobSpec, Origin

ASSUMED_POWER_W = 100.0
"""Of a GPU at work whose power nobody has measured: it turns seconds into joules, to compare jobs by."""

ASSUMED_SAVING_J = 0.01
"""Of one use of what was never tuned, where nothing else was either: a tenth of a round of 1 ms at 100 W."""

LEAST_SAVING = 0.01
"""Share of an answer's cost that tuning again is taken to save at least: answers that tie with the default
may have lost more than that."""

MOST_WANTED = 64
"""Jobs that are wanted at a time, and the most used questions that are looked at for them: a GPU does few
in a day, and looking must not keep the event loop from answering."""

SAMPLE_SHARE = 0.1
"""Of the worth of an answer, what measuring it again is worth: few samples find that it has drifted."""

REST_SHARE = 0.1
"""Of what an answer saves, what the rest of its search may bring, where a limit or a stop ended it."""

_AT_ONCE = (
    8  # workloads that are looked at before others have their turn: each takes a tenth of a millisecond
)
TRIED_FOR_S = 6 * 3600.0
"""So long an order that came to nothing is not wanted again: what kept it may have gone by then."""

LONGEST_TRIED_FOR_S = 7 * 86_400.0
"""The rest doubles each time that it comes to nothing again, up to this."""

MOST_TRIED = 1024
"""Orders that are remembered as tried."""

_MOST_DOUBLINGS = 10  # beyond the longest rest


@dataclass(frozen=True)
class Wanted:
    """A job that the daemon would do of itself.

    Attributes:
        order: what to do.
        topic: of the order.
        origin: why.
        priority: from -1 to 0, where 0 is what clients and daemon.toml ask for by default.
        reason: in words.
        worth_j: joules per day that it is expected to save.
    """

    order: JobSpec
    topic: str
    origin: Origin
    priority: float
    reason: str
    worth_j: float


def priority(worth_j: float) -> float:
    """Of a job that saves this many joules per day: rises with it, and stays below 0."""
    return -1.0 / (1.0 + max(0.0, worth_j))


def saving_j(known: StoredAnswer) -> float:
    """Joules that one use of an answer saves against the default, as its run has measured both.

    Of an answer for time, seconds count with the power that was measured.
    """
    best, default = known.answer["best"], known.answer.get("default") or {}
    power_w = best.get("power_w") or ASSUMED_POWER_W
    time_s, default_s = best.get("time_s") or 0.0, default.get("time_s") or 0.0
    joules, default_j = best.get("energy_j"), default.get("energy_j")
    if known.objective == "time" or joules is None or default_j is None:
        joules, default_j = power_w * time_s, power_w * default_s
    saved = max(float(default_j) - float(joules), LEAST_SAVING * float(joules))
    return saved if math.isfinite(saved) else ASSUMED_SAVING_J


def worth_of(priority: float) -> float:
    """Joules per day, of a priority that ``priority`` gave."""
    return max(0.0, -1.0 / priority - 1.0) if priority < 0.0 else math.inf


class Wishes:
    """What would be measured next, by what is known at present.

    Args:
        present: what replies are made of.
    """

    def __init__(self, present: Present) -> None:
        self._present = present
        self._looks: dict[str, _Look | None] = {}
        self._stale: dict[int, _Look | None] = {}  # by run
        self._savings: dict[tuple[str, str], list[float]] = {}
        for known in present.index.answers:
            device = str(known.conditions["device"]["name"])
            each_j = saving_j(known) / len(known.names)
            for kernel in ("", *(WorkloadName.parse(name).kernel for name in known.names)):
                self._savings.setdefault((device, kernel), []).append(each_j)

    def wanted(
        self,
        per_day: Mapping[str, float],
        now: datetime,
        tried: Callable[[JobSpec], bool] = lambda _order: False,
    ) -> list[Wanted]:
        """Jobs worth doing, the best first; at most ``MOST_WANTED``.

        Args:
            per_day: uses by question, the most used first.
            now: the present, for samples.
            tried: whether an order is not wanted for a while.
        """
        found: dict[str, Wanted] = {}
        for key, uses in itertools.islice(per_day.items(), MOST_WANTED):
            look = self._question(key)
            one = None if look is None else self._of(look, uses, now)
            if one is not None and not tried(one.order):
                found[key] = one
        for known in self._present.index.stale[:MOST_WANTED]:
            look = self._of_stale(known)
            if look is None or look.asked.key in per_day:
                continue
            one = self._of(look, 0.0, now)
            if one is not None and not tried(one.order):
                found[look.asked.key] = one
        return sorted(found.values(), key=lambda one: -one.priority)[:MOST_WANTED]

    def work_out(self, per_day: Mapping[str, float]) -> bool:
        """Look at some of what ``wanted`` looks at; True where more is left, for after others had a turn."""
        left = _AT_ONCE
        new: Iterator[str | StoredAnswer] = itertools.chain(
            (key for key in itertools.islice(per_day, MOST_WANTED) if key not in self._looks),
            (known for known in self._present.index.stale[:MOST_WANTED] if known.run not in self._stale),
        )
        for one in new:
            if left <= 0:
                return True
            look = self._question(one) if isinstance(one, str) else self._of_stale(one)
            left -= 1 if look is None else len(look.asked.workloads)
        return False

    def expected_saving_j(self, asked: Asked) -> float:
        """Joules that tuning what was never tuned is taken to save per use.

        Of each workload the mean of what answers of its kernel save, else of what all answers save, else
        ``ASSUMED_SAVING_J``; the sum over the workloads.
        """
        device = asked.device.name
        every = self._savings.get((device, "")) or [ASSUMED_SAVING_J]
        values = [self._savings.get((device, workload.kernel)) or every for workload in asked.workloads]
        return math.fsum(math.fsum(one) / len(one) for one in values)

    def _of(self, look: "_Look", uses: float, now: datetime) -> Wanted | None:
        """What would make the answer to a question better or surer; None where nothing would."""
        online, found = self._present.settings.online, look.found
        if found is not None and not found.stale:
            if not uses:
                return None
            if online.refine and not searched(found.answer, look.order):
                worth_j, reason = REST_SHARE * uses * saving_j(found.answer), "its search came to no end"
                return look.wanted(Origin.REQUEST, worth_j, reason)
            return self._sample(look, found.answer, uses, now)
        if found is not None:
            origin = Origin.DRIFT if found.answer.samples.drifted else Origin.STALE
            worth_j, reason = uses * saving_j(found.answer), "; ".join(found.stale)
            return look.wanted(origin, worth_j, reason) if online.retune_stale else None
        worth_j = uses * self.expected_saving_j(look.asked)
        return look.wanted(Origin.REQUEST, worth_j, "never tuned") if online.refine and uses else None

    def _sample(self, look: "_Look", known: StoredAnswer, uses: float, now: datetime) -> Wanted | None:
        if not known.samples.due(known.at, now, self._present.settings.online.sample_every_hours):
            return None
        worth_j, reason = uses * saving_j(known), "the last sample was outside its interval"
        if not known.samples.doubted:
            worth_j, reason = SAMPLE_SHARE * worth_j, "measured again now and then"
        order = sampling_order(look.asked, known, self._present)
        return Wanted(order, topic(order), Origin.CHECK, priority(worth_j), reason, worth_j)

    def _question(self, key: str) -> "_Look | None":
        """The question that is counted by a key; None where it cannot be asked any more."""
        if key not in self._looks:
            try:
                self._looks[key] = self._look(question_of(key))
            except InputError:  # its kernel, size or device is gone: it counts until it fades
                self._looks[key] = None
        return self._looks[key]

    def _of_stale(self, known: StoredAnswer) -> "_Look | None":
        """The question that an answer was made for; None where it cannot be asked any more."""
        if known.run not in self._stale:
            device = self._present.device(known)
            tuned = {**dict(known.conditions["workloads"]), **known.conditions["asked"]}
            specs = tuple(with_batch(name, tuned[name]) for name in known.names)
            objective = known.objective.split(" ", 1)[0]
            self._stale[known.run] = None
            with contextlib.suppress(InputError):  # its kernel or size is gone
                if device is not None:
                    question = Question(specs, objective, device.spec, known.max_slowdown, count=0.0)
                    self._stale[known.run] = self._look(question)
        return self._stale[known.run]

    def _look(self, question: Question) -> "_Look":
        asked = asked_now(question, self._present.catalog, self._present.identities)
        order = tuning_order(asked, self._present)
        return _Look(asked, served(asked, self._present), order, topic(order))


class _Look(NamedTuple):
    """What is known of a question, as long as nothing changes."""

    asked: Asked
    found: ServedAnswer | None
    order: JobSpec
    topic: str

    def wanted(self, origin: Origin, worth_j: float, reason: str) -> Wanted:
        """Its search."""
        return Wanted(self.order, self.topic, origin, priority(worth_j), reason, worth_j)


class Rests:
    """Orders by a key, and until when each rests.

    Args:
        monotonic: seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until_s: dict[str, float] = {}
        self._in_vain: dict[str, int] = {}  # how often in a row

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._until_s.get(key, 0.0) > self._monotonic()

    def rest(self, key: str, seconds: float) -> None:
        """Have an order rest."""
        self._until_s.pop(key, None)
        self._until_s[key] = self._monotonic() + seconds
        _bound(self._until_s)

    def tried(self, key: str, *, in_vain: bool) -> None:
        """An order was tried: it rests, and for longer where it has come to nothing again."""
        times = self._in_vain.pop(key, 0) if in_vain else 0
        self.rest(key, min(TRIED_FOR_S * 2.0**times, LONGEST_TRIED_FOR_S))
        if in_vain:
            self._in_vain[key] = min(times + 1, _MOST_DOUBLINGS)
            _bound(self._in_vain)
        else:
            self._in_vain.pop(key, None)

    def end(self, key: str) -> None:
        """Let an order be wanted again."""
        self._until_s.pop(key, None)

    def clear(self) -> None:
        """Let all be wanted again: something has changed."""
        self._until_s.clear()
        self._in_vain.clear()


def _bound(table: dict[str, float] | dict[str, int]) -> None:
    while len(table) > MOST_TRIED:
        del table[next(iter(table))]
