"""What should be measured next, and how much that is worth.

The worth of a job is what its answer would save: uses per day times the joules that each use saves. It orders
the daemon's own jobs among each other; whatever a client or daemon.toml asks for goes first.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tuner.daemon.answering.known import Known
from tuner.daemon.answering.ordered import searched
from tuner.daemon.answering.present import Present
from tuner.daemon.answering.questions import Asked, question_of
from tuner.daemon.answering.questions import asked as asked_now
from tuner.daemon.answering.replies import served
from tuner.daemon.answering.searches import sampling_order, tuning_order
from tuner.daemon.desk import Question
from tuner.daemon.jobs.orders import with_batch
from tuner.errors import InputError
from tuner.jobs import Order, Origin

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


@dataclass(frozen=True)
class Wanted:
    """A job that the daemon would do of itself.

    Attributes:
        order: what to do.
        origin: why.
        priority: from -1 to 0, where 0 is what clients and daemon.toml ask for by default.
        reason: in words.
        worth_j: joules per day that it is expected to save.
    """

    order: Order
    origin: Origin
    priority: float
    reason: str
    worth_j: float


def priority(worth_j: float) -> float:
    """Of a job that saves this many joules per day: rises with it, and stays below 0."""
    return -1.0 / (1.0 + max(0.0, worth_j))


def saving_j(known: Known) -> float:
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
        self._asked: dict[str, Asked | None] = {}
        self._savings: dict[tuple[str, str], list[float]] = {}
        for known in present.index.answers:
            device = str(known.conditions["device"]["name"])
            each_j = saving_j(known) / len(known.names)
            for kernel in ("", *(name.partition(":")[0] for name in known.names)):
                self._savings.setdefault((device, kernel), []).append(each_j)

    def wanted(
        self,
        per_day: Mapping[str, float],
        now: datetime,
        tried: Callable[[Order], bool] = lambda _order: False,
    ) -> list[Wanted]:
        """Jobs worth doing, the best first; at most ``MOST_WANTED``.

        Args:
            per_day: uses by question, the most used first.
            now: the present, for samples.
            tried: whether an order is not wanted for a while.
        """
        found: dict[str, Wanted] = {}
        for key, uses in itertools.islice(per_day.items(), MOST_WANTED):
            asked = self._question(key)
            one = None if asked is None else self._of(asked, uses, now)
            if one is not None and not tried(one.order):
                found[key] = one
        for known in self._present.index.stale[:MOST_WANTED]:
            asked = self._of_stale(known)
            if asked is None or asked.key in per_day:
                continue
            one = self._of(asked, 0.0, now)
            if one is not None and not tried(one.order):
                found[asked.key] = one
        return sorted(found.values(), key=lambda one: -one.priority)[:MOST_WANTED]

    def expected_saving_j(self, asked: Asked) -> float:
        """Joules that tuning what was never tuned is taken to save per use.

        Of each workload the mean of what answers of its kernel save, else of what all answers save, else
        ``ASSUMED_SAVING_J``; the sum over the workloads.
        """
        device = asked.device.name
        every = self._savings.get((device, "")) or [ASSUMED_SAVING_J]
        values = [self._savings.get((device, workload.kernel)) or every for workload in asked.workloads]
        return math.fsum(math.fsum(one) / len(one) for one in values)

    def _of(self, asked: Asked, uses: float, now: datetime) -> Wanted | None:
        """What would make the answer to a question better or surer; None where nothing would."""
        found = served(asked, self._present)
        online = self._present.settings.online
        order = tuning_order(asked, self._present)
        if found is not None and not found.stale:
            if not uses:
                return None
            if online.refine and not searched(found.known, order):
                worth_j = REST_SHARE * uses * saving_j(found.known)
                return _wanted(order, Origin.REQUEST, worth_j, f"its search was {found.known.status}")
            return self._sample(asked, found.known, uses, now)
        if found is not None:
            origin = Origin.DRIFT if found.known.standing.drifted else Origin.STALE
            worth_j, reason = uses * saving_j(found.known), "; ".join(found.stale)
            return _wanted(order, origin, worth_j, reason) if online.retune_stale else None
        worth_j = uses * self.expected_saving_j(asked)
        return _wanted(order, Origin.REQUEST, worth_j, "never tuned") if online.refine and uses else None

    def _sample(self, asked: Asked, known: Known, uses: float, now: datetime) -> Wanted | None:
        settings = self._present.settings
        if not known.standing.due(known.at, now, settings.online.sample_every_hours):
            return None
        worth_j = uses * saving_j(known)
        order = sampling_order(asked, known, self._present)
        if known.standing.doubted:
            return _wanted(order, Origin.CHECK, worth_j, "the last sample was outside its interval")
        return _wanted(order, Origin.CHECK, SAMPLE_SHARE * worth_j, "measured again now and then")

    def _question(self, key: str) -> Asked | None:
        """The question that is counted by a key; None where it cannot be asked any more."""
        if key not in self._asked:
            present = self._present
            try:
                self._asked[key] = asked_now(question_of(key), present.catalog, present.identities)
            except InputError:  # its kernel, size or device is gone: it counts until it fades
                self._asked[key] = None
        return self._asked[key]

    def _of_stale(self, known: Known) -> Asked | None:
        """The question that an answer was made for; None where it cannot be asked any more."""
        device = self._present.device(known)
        if device is None:
            return None
        tuned = {**dict(known.conditions["workloads"]), **known.conditions["asked"]}
        specs = [with_batch(name, tuned[name]) for name in known.names]
        question = Question(
            tuple(specs), known.objective.split(" ", 1)[0], device.spec, known.max_slowdown, count=0.0
        )
        try:
            return asked_now(question, self._present.catalog, self._present.identities)
        except InputError:  # its kernel or size is gone
            return None


def _wanted(order: Order, origin: Origin, worth_j: float, reason: str) -> Wanted:
    return Wanted(order, origin, priority(worth_j), reason, worth_j)
