"""Users of the daemon: whose a job is, who stands above, and who may change a job."""

import os
import pwd
from collections.abc import Collection

from tuner.daemon.interface import NotYoursError, Peer
from tuner.model.jobs import JobRecord, Origin

User = int | str
"""A user id, or one of the two below."""

TOKEN_HOLDER = "token"  # noqa: S105 - a name
"""All who come over TCP: they hold one token, and are one user."""

DAEMON = "daemon"
"""The daemon itself: its own jobs, and those of the sets of ``daemon.toml``."""

EVERYBODY = "*"
"""In ``[limits] manage``: whoever may ask at all."""


def user_of(job: JobRecord) -> User:
    """Whose a job is."""
    if job.origin is not Origin.CLIENT:
        return DAEMON
    return TOKEN_HOLDER if job.submitter is None else job.submitter


def user_of_peer(peer: Peer) -> User:
    """Who asks."""
    return TOKEN_HOLDER if peer.uid is None else peer.uid


def stands_above(user: User) -> bool:
    """True for root and the daemon's own user, who can change the daemon anyway."""
    return user in (0, os.geteuid())


def named(user: User) -> str:
    """A user, for people."""
    if not isinstance(user, int):
        return {TOKEN_HOLDER: "who holds the token", DAEMON: "the daemon"}[user]
    return _account(user) or f"user {user}"


def label(user: User) -> str:
    """A user in tables and metrics; no two users have the same."""
    return (_account(user) or str(user)) if isinstance(user, int) else named(user)


def check_may_change(job: JobRecord, peer: Peer, verb: str, managers: Collection[str]) -> None:
    """Check that a client may change a job: its own, or any where it stands above or is a manager.

    Args:
        job: to be changed.
        peer: who asks.
        verb: what is asked for, such as ``cancel``.
        managers: ``[limits] manage`` of ``daemon.toml``: user names, user ids, or ``*``.

    Raises:
        NotYoursError: it may not; the message says whose the job is.
    """
    user, owner = user_of_peer(peer), user_of(job)
    if user == owner or stands_above(user) or EVERYBODY in managers:
        return
    if isinstance(user, int) and managers and not {str(user), _account(user)}.isdisjoint(managers):
        return
    whose = "the daemon's own" if owner == DAEMON else f"a job of {named(owner)}"
    theirs = "" if owner == DAEMON else f"{named(owner)}, "
    raise NotYoursError(
        f"job {job.id} is {whose}: only {theirs}root, the daemon's user and whom [limits] manage of"
        f" daemon.toml names may {verb} it"
    )


def known(manager: str) -> bool:
    """True where an entry of ``[limits] manage`` is ``*``, a user id, or a user name of this machine."""
    if manager == EVERYBODY or manager.isdecimal():
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
