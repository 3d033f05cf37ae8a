"""What one client may take of the daemon: places, requests per second, bytes and time.

Who is at the other end of a connection, as the kernel says, and whether they may ask.
"""

import math
import os
import pwd
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tuner.daemon.interface import Peer

SHARE = 0.75  # of all places that one user may hold, so that nobody keeps all others out
_MOST_USERS = 1024  # remembered; those who have not asked for a second have nothing to remember
_CREDENTIALS = struct.Struct("3i")  # struct ucred of unix(7)
_SO_PEERGROUPS = 59  # of asm-generic/socket.h; Python has no name for it
_GROUPS_BYTES = 1024  # the most that Python asks the kernel for; whoever is in more than 256 is looked up
_GID = struct.Struct("I")
_OVERFLOW_ID = 65_534  # what the kernel shows of whom this user namespace does not know: it can be anybody


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


class PeerSocket(Protocol):
    """What is asked of a connected socket; asyncio hands out a stand-in of its own."""

    @property
    def family(self) -> int:
        """``socket.AF_UNIX`` or another."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        """As ``socket.socket`` has it."""


@dataclass(frozen=True)
class Caller:
    """Who made a connection.

    Attributes:
        peer: user and process; of TCP, nobody that can be told.
        admitted: whether the kernel's word is enough; if not, a token decides (TCP) or nothing does (Unix).
        tcp: whether the connection came over the loopback.
    """

    peer: Peer
    admitted: bool
    tcp: bool

    def __str__(self) -> str:
        return "somebody on the loopback" if self.tcp else f"user {self.peer.uid}, process {self.peer.pid}"


def caller_of(connection: PeerSocket, group: int | None) -> Caller:
    """Who made a connection, and whether they may ask.

    Besides the mode of the socket, which may have been changed by mistake: only root, the daemon's own user
    and members of the socket's group are admitted.

    Args:
        connection: a connected socket.
        group: id of the group that owns the Unix socket; None where it has none.
    """
    if connection.family != socket.AF_UNIX:
        return Caller(Peer(), admitted=False, tcp=True)
    size = _CREDENTIALS.size
    pid, uid, gid = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    admitted = uid in (0, os.geteuid()) or (
        group is not None and group != _OVERFLOW_ID and (group == gid or group in _groups(connection, uid))
    )
    return Caller(Peer(uid=uid, pid=pid), admitted=admitted, tcp=False)


def _groups(connection: PeerSocket, uid: int) -> set[int]:
    """Supplementary groups: those of the process where the kernel tells them, else those of its user."""
    try:
        packed = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
    except OSError:
        return _groups_of_user(uid)
    return {gid for (gid,) in _GID.iter_unpack(packed)}


def _groups_of_user(uid: int) -> set[int]:
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return set()
    return set(os.getgrouplist(user.pw_name, user.pw_gid))


def group_of(listener: socket.socket) -> int | None:
    """Id of the group that owns the file of a listening Unix socket; None where there is no such file."""
    name = listener.getsockname()
    if listener.family != socket.AF_UNIX or not isinstance(name, str) or not name:
        return None
    try:
        return Path(name).stat().st_gid
    except OSError:
        return None
