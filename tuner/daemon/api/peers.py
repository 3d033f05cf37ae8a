"""Who is at the other end of a connection, as the kernel says, and whether they may ask."""

import os
import pwd
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tuner.daemon.desk import Peer

_CREDENTIALS = struct.Struct("3i")  # struct ucred of unix(7)
_SO_PEERGROUPS = 59  # of asm-generic/socket.h; Python has no name for it
_GROUPS_BYTES = 1024  # the most that Python asks the kernel for; whoever is in more than 256 is looked up
_GID = struct.Struct("I")
_OVERFLOW_ID = 65_534  # what the kernel shows of whom this user namespace does not know: it can be anybody


class Connection(Protocol):
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


def caller_of(connection: Connection, group: int | None) -> Caller:
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


def _groups(connection: Connection, uid: int) -> set[int]:
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
