"""Places of connections: how many there are, for whom, and what the limit of descriptors leaves of them."""

import logging
import math
import resource
from collections import Counter
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Protocol

from tuner.daemon.api.heads import HEAD_BYTES
from tuner.daemon.settings.tables import LimitsTable
from tuner.system.log_rate import LogRateLimiter

SHARE = 0.75  # of all places that one user may hold, so that nobody keeps all others out
_DISCARD_BYTES = 2**20  # beyond a body that was refused: read and dropped, so that the answer arrives
_MOST_REFUSED = 64  # connections too many that are heard out at a time
_MOST_UNKNOWN = 32  # connections of those who have not shown the token
_RESERVED = 24  # descriptors for the database, for attempts, and for connections about to be accepted
_PART = 8  # of the descriptors: for those refused, and again for those unknown
_LEAST = 4  # connections, however few descriptors there are
_TOLD_EVERY_S = 10.0  # in the log, of what anybody can bring about as often as he likes
_LOG = logging.getLogger(__name__)


class UserSlots:
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


class Closable(Protocol):
    """A connection that can be ended."""

    def end(self) -> None:
        """Close it at once."""


class UnknownConnections:
    """Connections that have not shown who they are: a few, of which a new one ends the oldest.

    Who has the token shows it with the first request, while others may come in any number.

    Args:
        count: of connections.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._connections: dict[Closable, None] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: Closable) -> bool:
        """Take a new one in; True where that ended another."""
        self._connections[connection] = None
        if len(self._connections) <= self._count:
            return False
        oldest = next(iter(self._connections))
        del self._connections[oldest]
        oldest.end()
        return True

    def remove(self, connection: Closable) -> None:
        """Forget one: it is known now, or has ended."""
        self._connections.pop(connection, None)


class ServerLimits:
    """What the connections of a server share.

    Args:
        limits: of ``daemon.toml``.
        descriptors: that are free; None to ask.

    Attributes:
        places: of connections.
        refusals: of further connections, which are only told that there are too many.
        unknown: connections over TCP without a token, and of users who may not ask.
        request_timeout_s: for a request to arrive whole, and for an answer to be taken.
        most_bytes: of a request, with what is read and dropped.
        groups: path of a Unix socket -> the group that owns it.
        crowded: limits the log of connections too many.
        refused: limits the log of users who may not ask.
    """

    def __init__(self, limits: LimitsTable, descriptors: int | None = None) -> None:
        free = (free_descriptors() if descriptors is None else descriptors) - _RESERVED
        aside = max(1, free // _PART)
        refusals, unknown = min(_MOST_REFUSED, aside), min(_MOST_UNKNOWN, aside)
        count = max(_LEAST, min(limits.connections, free - refusals - unknown))
        if count < limits.connections:
            _LOG.warning(
                "%d connections at a time, not the %d of [limits] connections: this process may open too few"
                " files; raise LimitNOFILE= of the service, or `ulimit -n`",
                count,
                limits.connections,
            )
        self.places = UserSlots(count)
        self.refusals = UserSlots(refusals)
        self.unknown = UnknownConnections(unknown)
        self.request_timeout_s = limits.request_timeout_s
        self.most_bytes = HEAD_BYTES + limits.body_bytes + _DISCARD_BYTES
        self.groups: Mapping[str, int | None] = {}
        self.crowded = LogRateLimiter(_TOLD_EVERY_S)
        self.refused = LogRateLimiter(_TOLD_EVERY_S)


def free_descriptors() -> int:
    """How many more files this process may open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = 2**31
    return limit - len(list(Path("/proc/self/fd").iterdir()))
