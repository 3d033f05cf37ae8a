"""What one client may take of the daemon: places, requests per second, bytes and time."""

import math
import time
from collections import Counter
from collections.abc import Callable, Hashable

SHARE = 0.75  # of all places that one user may hold, so that nobody keeps all others out
_MOST_USERS = 1024  # remembered; those who have not asked for a second have nothing to remember


class Places:
    """A number of places, of which no user holds all.

    Args:
        count: of places.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._share = max(1, math.floor(count * SHARE))
        self._taken: Counter[Hashable] = Counter()
        self._all = 0

    def __len__(self) -> int:
        return self._all

    def take(self, user: Hashable) -> bool:
        """Take a place; False where there is none for this user."""
        if self._all >= self._count or self._taken[user] >= self._share:
            return False
        self._taken[user] += 1
        self._all += 1
        return True

    def leave(self, user: Hashable) -> None:
        """Give back a place that was taken."""
        self._all -= 1
        self._taken[user] -= 1
        if not self._taken[user]:
            del self._taken[user]


class Rate:
    """Requests per second of each user: a bucket of one second's requests that fills steadily.

    Args:
        per_s: requests per second of one user.
        now: monotonic clock in seconds.
    """

    def __init__(self, per_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._room = max(1.0, per_s)
        self._now = now
        self._buckets: dict[Hashable, tuple[float, float]] = {}  # user -> requests left, and when

    def wait_s(self, user: Hashable) -> float:
        """Count a request: 0 where it may pass, else how long the user has to wait in seconds."""
        now_s = self._now()
        left, then_s = self._buckets.get(user, (self._room, now_s))
        left = min(self._room, left + (now_s - then_s) * self._per_s)
        if left < 1.0:
            self._buckets[user] = left, now_s
            return (1.0 - left) / self._per_s
        if len(self._buckets) >= _MOST_USERS:
            self._forget(now_s)
        self._buckets[user] = left - 1.0, now_s
        return 0.0

    def _forget(self, now_s: float) -> None:
        """Drop the users whose buckets are full again."""
        full_after_s = self._room / self._per_s
        self._buckets = {
            user: bucket for user, bucket in self._buckets.items() if now_s - bucket[1] < full_after_s
        }


class Seldom:
    """Says whether something may be told again, so that nobody fills the log.

    Args:
        every_s: at most once in so many seconds.
        now: monotonic clock in seconds.
    """

    def __init__(self, every_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._now = now
        self._told_s = -math.inf
        self._silent = 0

    def times(self) -> int:
        """How often it happened since it was told; 0 where it was told a short while ago."""
        self._silent += 1
        now_s = self._now()
        if now_s - self._told_s < self._every_s:
            return 0
        self._told_s = now_s
        happened, self._silent = self._silent, 0
        return happened
