"""Shares of users in queue and devices, costs by day, and devices that a job may run on."""

import itertools
import math
import os
import pwd
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import date, datetime, timedelta, timezone
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from tuner.client.answer_values import UserDocument
from tuner.daemon.interface import OF_TOKEN, NotYoursError, Peer, User
from tuner.daemon.settings import LimitsTable
from tuner.daemon.tokens import TAKEN_OVER
from tuner.model.jobs import DeviceChoice, DeviceIdentity, Event, Job, JobState, Origin, same_kind

if TYPE_CHECKING:  # it would bring the database into the HTTP interface, which needs users only
    from tuner.database.storage import Storage

# --- Users of the daemon: whose a job is, who stands above, and who may change a job.

DAEMON = "daemon"
"""The daemon itself: its own jobs, and those of the sets of ``daemon.toml``."""

EVERYBODY = "*"
"""In ``[limits] manage``: whoever may ask at all."""


def user_of(job: Job) -> User:
    """Whose a job is."""
    if job.origin is not Origin.CLIENT:
        return DAEMON
    # older versions knew one token, and stored nothing of who showed it
    return f"{OF_TOKEN}{TAKEN_OVER}" if job.submitter is None else job.submitter


def stands_above(user: User) -> bool:
    """True for root and the daemon's own user, who can change the daemon anyway."""
    return user in (0, os.geteuid())


def named(user: User) -> str:
    """A user, for people."""
    if not isinstance(user, int):
        return "the daemon" if user == DAEMON else f"who holds the token {user.removeprefix(OF_TOKEN)}"
    return _account(user) or f"user {user}"


def label(user: User) -> str:
    """A user in tables and metrics; no two users have the same."""
    if isinstance(user, int):
        return _account(user) or str(user)
    return named(user) if user == DAEMON else user


def check_may_change(job: Job, peer: Peer, verb: str, managers: Collection[str]) -> None:
    """Check that a client may change a job: its own, or any where it stands above or is a manager.

    Args:
        job: to be changed.
        peer: who asks.
        verb: what is asked for, such as ``cancel``.
        managers: ``[limits] manage`` of ``daemon.toml``: user names, user ids, ``token:NAME``, or ``*``.

    Raises:
        NotYoursError: it may not; the message says whose the job is.
    """
    user = peer.user
    owner = user_of(job)
    if user == owner or stands_above(user) or EVERYBODY in managers:
        return
    if not {str(user), label(user)}.isdisjoint(managers):
        return
    whose = "the daemon's own" if owner == DAEMON else f"a job of {named(owner)}"
    theirs = "" if owner == DAEMON else f"{named(owner)}, "
    raise NotYoursError(
        f"job {job.id} is {whose}: only {theirs}root, the daemon's user and whom [limits] manage of"
        f" daemon.toml names may {verb} it"
    )


def known(manager: str) -> bool:
    """True where an entry of ``[limits] manage`` is ``*``, a user id, a token's, or an account's name."""
    if manager == EVERYBODY or manager.isdecimal() or manager.startswith(OF_TOKEN):
        return True
    try:
        pwd.getpwnam(manager)
    except KeyError:
        return False
    return True


def _account(uid: int) -> str:
    """Name of a user id; empty where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


# --- What users have used, by counts that fade, and whose job is next.

HALF_LIFE_S = 3600.0
"""After so long, device seconds count half."""

REMEMBERED = timedelta(seconds=12 * HALF_LIFE_S)
"""Older device seconds count for nothing."""

KILLED = "the daemon ended in the middle"
"""Reason of a job that ran when the daemon was killed; when it stopped running is not known."""

_RATE = math.log(2.0) / HALF_LIFE_S  # of the decay, per second
_SHARE = 0.75  # of the places that others have left, which one user may take
_RANKS = {origin: rank for rank, origin in enumerate(Origin)}
_WAITING = (JobState.QUEUED, JobState.PAUSED)
_MOST_USERS = 1024  # remembered; beyond it, those who have used next to nothing lately are forgotten
_MOST_SHOWN = 20  # users in status and metrics; the others are one row


class HeldSpan(NamedTuple):
    """A time for which a job held its device, as monotonic seconds."""

    begin_s: float
    end_s: float

    def decayed_s(self, now_s: float) -> float:
        """Its seconds, each halved for every half-life that has passed since."""
        age_s, length_s = max(0.0, now_s - self.end_s), max(0.0, self.end_s - self.begin_s)
        return math.exp(-_RATE * age_s) * -math.expm1(-_RATE * length_s) / _RATE


class Shares:
    """Device seconds of each user, the order of waiting jobs, and places in the queue.

    Args:
        limits: asked each time, so that new settings count at once.
        now: monotonic clock in seconds.
    """

    def __init__(
        self, limits: Callable[[], LimitsTable] = LimitsTable, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits = limits
        self._now = now
        self._used: dict[User, tuple[float, float]] = {}  # decayed seconds, and as of when
        self._running: dict[int, tuple[User, float]] = {}  # job -> whose, and since when

    # --- device seconds ------------------------------------------------------------------------------

    def note(self, job: Job) -> None:
        """Note the state of a job: from ``running`` to another state, its user uses a device."""
        if job.state is JobState.RUNNING:
            self._running.setdefault(job.id, (user_of(job), self._now()))
        elif (begun := self._running.pop(job.id, None)) is not None:
            user, begin_s = begun
            self._count(user, HeldSpan(begin_s, self._now()))

    def restore(self, job: Job, events: Iterable[Event]) -> None:
        """Count the device seconds that the stored events of a job show.

        Args:
            job: that is not running.
            events: of it, the oldest first.
        """
        wall, now_s = datetime.now(timezone.utc), self._now()

        def at_s(event: Event) -> float:
            age_s = (wall - datetime.fromisoformat(event.at)).total_seconds()
            return now_s - max(0.0, age_s)

        begin_s = last_s = None
        for event in events:
            this_s = at_s(event)
            if event.kind == "state":
                if begin_s is not None:
                    # one that was killed is known to have run until its last event
                    end_s = last_s if event.data.get("reason") == KILLED and last_s is not None else this_s
                    self._count(user_of(job), HeldSpan(begin_s, end_s))
                begin_s = this_s if event.data.get("state") == JobState.RUNNING.value else None
            last_s = this_s

    def device_s(self, user: User) -> float:
        """Seconds on devices lately, decayed; those of now included."""
        now_s = self._now()
        value, as_of_s = self._used.get(user, (0.0, now_s))
        running = (HeldSpan(begin_s, now_s) for owner, begin_s in self._running.values() if owner == user)
        return _faded(value, now_s - as_of_s) + sum(span.decayed_s(now_s) for span in running)

    def _count(self, user: User, span: HeldSpan) -> None:
        now_s = self._now()
        value, as_of_s = self._used.get(user, (0.0, now_s))
        if len(self._used) >= _MOST_USERS:
            self._used = {
                other: counts for other, counts in self._used.items() if self.device_s(other) >= 1.0
            }
        self._used[user] = _faded(value, now_s - as_of_s) + span.decayed_s(now_s), now_s

    # --- order ---------------------------------------------------------------------------------------

    def level(self, job: Job) -> tuple[float, int]:
        """Sort key of what goes before everything of a later one: priority between users, then origin.

        Of an ordinary user, a priority counts between users up to ``[limits] highest_priority``.
        """
        priority = job.priority
        if job.origin is Origin.CLIENT and not stands_above(user_of(job)):
            priority = min(priority, self._limits().highest_priority)
        return -priority, _RANKS[job.origin]

    def ordered(self, jobs: Iterable[Job]) -> list[Job]:
        """Waiting jobs, the next one first.

        Within a level, users take turns: who has used the fewest device seconds lately goes first. Jobs of
        one user go by priority, then by age.
        """
        by_user: dict[User, list[Job]] = {}
        for job in jobs:
            by_user.setdefault(user_of(job), []).append(job)
        keyed = []
        for user, own in by_user.items():
            turn = self.device_s(user), min(job.id for job in own)
            keyed += [(self.level(job), turn, -job.priority, job.id, job) for job in own]
        keyed.sort(key=itemgetter(slice(4)))  # records have no order of their own
        return [job for *_, job in keyed]

    # --- places --------------------------------------------------------------------------------------

    def refusal(self, user: User, jobs: Collection[Job]) -> str:
        """Return the reason that a user may queue no further job; empty if the user may.

        Nobody takes the last places: beside ``[limits] queue_per_user``, three quarters of what others have
        left of ``[limits] queue`` are for one user, and one place is there for everybody.

        Args:
            user: who asks.
            jobs: all that have not ended.
        """
        limits = self._limits()
        waiting = Counter(user_of(job) for job in jobs if job.state in _WAITING)
        own, total = waiting[user], waiting.total()
        if stands_above(user):
            full = f"{total} jobs wait already; no more may ([limits] queue of daemon.toml)"
            return full if total >= limits.queue else ""
        free = limits.queue - (total - own)
        most = min(limits.queue_per_user, max(1, math.floor(_SHARE * free)))
        if own < most:
            return ""
        return (
            f"{own} jobs of yours wait already; no more may now ([limits] queue_per_user and queue of"
            " daemon.toml). Cancel one with `tuner cancel`, or ask again later"
        )

    # --- for people ----------------------------------------------------------------------------------

    def table(self, jobs: Collection[Job]) -> list[UserDocument]:
        """Return the share of each user, most device seconds first; beyond twenty, all others are one row."""
        waiting = Counter(user_of(job) for job in jobs if job.state in _WAITING)
        running = Counter(owner for owner, _ in self._running.values())
        used = {user: self.device_s(user) for user in {*waiting, *running, *self._used}}
        present = [user for user in used if waiting[user] or running[user] or used[user] >= 1.0]
        present.sort(key=lambda user: (-used[user], str(user)))
        most = len(present) if len(present) <= _MOST_SHOWN else _MOST_SHOWN - 1
        rows = [(label(user), [user]) for user in present[:most]]
        if others := present[most:]:
            rows.append((f"{len(others)} others", others))
        return [
            {
                "name": name,
                "waiting": sum(waiting[user] for user in users),
                "running": sum(running[user] for user in users),
                "used_lately_s": sum(used[user] for user in users),
            }
            for name, users in rows
        ]


def _faded(seconds: float, age_s: float) -> float:
    return seconds * math.exp(-_RATE * max(0.0, age_s))


# --- Costs of tuning by day and GPU.

_DAYS_AROUND = 7  # read at the start: corrections of a wall clock are seldom larger


class Cost(NamedTuple):
    """Time and energy of measuring."""

    seconds: float = 0.0
    joules: float = 0.0


class Budgets:
    """Costs by day and GPU, in memory and in the database.

    Costs that could not be stored yet count all the same, and are stored with the next. No day is forgotten:
    a wall clock that was wrong for a while comes back to the right one.
    """

    def __init__(self, storage: "Storage") -> None:
        self._storage = storage
        self._spent: dict[tuple[str, str], Cost] = {}
        self._unstored: dict[tuple[str, str], Cost] = {}

    async def load(self, day: str, uuids: Iterable[str]) -> None:
        """Read the costs of a day and those around it.

        Args:
            day: local date, ISO 8601.
            uuids: of the devices.

        Raises:
            StoreError: the database cannot be used just now.
        """
        around = range(-_DAYS_AROUND, _DAYS_AROUND + 1)
        days = [(date.fromisoformat(day) + timedelta(days=away)).isoformat() for away in around]
        keys = list(itertools.product(days, uuids))
        costs = await self._storage.run(lambda db: [db.ledger.spent(*key) for key in keys])
        self._spent.update((key, Cost(*spent)) for key, spent in zip(keys, costs, strict=True))

    def on(self, day: str, uuid: str) -> Cost:
        """Return the cost of tuning on a GPU on a day."""
        return self._spent.get((day, uuid), Cost())

    def of_host(self, day: str) -> Cost:
        """Return the cost of tuning on all GPUs together on a day."""
        spent = [cost for (when, _), cost in self._spent.items() if when == day]
        return Cost(math.fsum(cost.seconds for cost in spent), math.fsum(cost.joules for cost in spent))

    def spend(self, uuid: str, day: str, seconds: float, joules: float) -> None:
        """Count what was spent; ``store`` makes it durable."""
        for counts in (self._spent, self._unstored):
            before = counts.get((day, uuid), Cost())
            counts[day, uuid] = Cost(before.seconds + seconds, before.joules + joules)

    async def store(self) -> None:
        """Store what was counted.

        Raises:
            StoreError: the database cannot be used just now; what was counted is kept for the next time.
        """
        while self._unstored:
            (day, uuid), spent = self._unstored.popitem()
            try:
                await self._storage.run(
                    lambda db, day=day, uuid=uuid, spent=spent: db.ledger.spend(day, uuid, *spent)  # type: ignore[misc]  # bound at once
                )
            except BaseException:
                more = self._unstored.get((day, uuid), Cost())
                self._unstored[day, uuid] = Cost(spent.seconds + more.seconds, spent.joules + more.joules)
                raise


# --- Devices that a job may run on.

ABSENT = " is not here"
"""End of the reason of a job that has no device here."""

GONE_AFTER_S = 86_400.0
"""A GPU that the daemon has missed for so long is gone for good: its jobs begin anew elsewhere."""


class Placement:
    """Which of the devices here may run a job.

    A job with a run stays with that run's GPU, under whatever name: its trials are of no other GPU.

    Args:
        identities: device -> identity of those that are tuned on; asked each time.
        now: monotonic clock in seconds.
    """

    def __init__(
        self,
        identities: Callable[[], Mapping[str, DeviceIdentity]] = dict,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._identities = identities
        self._now = now
        self._since_s = now()

    def may_run(self, job: Job, device: str) -> bool:
        """True where a job may run on a device."""
        choice = DeviceChoice.parse(job.wanted_device)
        identity = self._identities().get(device)
        if identity is None:
            return choice.device in ("", device)
        own = self.device_of(job)
        if own and (choice.one or choice.allows(self._identities()[own])):
            return device == own
        return choice.allows(identity) and not self._waits_for_its_gpu(job, choice)

    def devices(self, job: Job) -> list[str]:
        """The devices here that may run a job."""
        return [device for device in self._identities() if self.may_run(job, device)]

    def device_of(self, job: Job) -> str:
        """The device here on whose GPU a job has begun; empty where it has not begun, or that is not here."""
        if not job.gpu:
            return ""
        return next((name for name, identity in self._identities().items() if identity.uuid == job.gpu), "")

    def alike(self, device: str) -> list[str]:
        """The devices here of the same kind as one of them, that one included."""
        identities = self._identities()
        if device not in identities:
            return [device]
        return [name for name, identity in identities.items() if same_kind(identity, identities[device])]

    def absence(self, job: Job) -> str:
        """Return the reason that a job has no device here; empty if it has a device."""
        if self.devices(job):
            return ""
        return self.missing(job)

    def missing(self, job: Job) -> str:
        """Return the message for a job that no device here may run, with the missing device."""
        choice = DeviceChoice.parse(job.wanted_device)
        if choice.one or not job.gpu or not self._waits_for_its_gpu(job, choice):
            return f"{'' if choice.one else 'a '}{choice.words}{ABSENT}"
        return f"the GPU {job.gpu}, on which it has begun,{ABSENT}"

    def _waits_for_its_gpu(self, job: Job, choice: DeviceChoice) -> bool:
        """True while the GPU of a job that could begin anew elsewhere may come back."""
        gone = self._now() - self._since_s >= GONE_AFTER_S
        return bool(job.gpu) and not choice.one and not self.device_of(job) and not gone
