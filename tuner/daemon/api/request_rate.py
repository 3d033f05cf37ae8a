"""How many requests a user may send in a second."""

import time
from collections.abc import Callable, Hashable

_MOST_USERS = 1024  # remembered; those who have not asked for a second have nothing to remember


class UserRateLimiter:
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
