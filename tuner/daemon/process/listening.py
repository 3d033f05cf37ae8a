"""The socket that clients connect to: systemd's, or one that the daemon makes and guards."""

import contextlib
import fcntl
import grp
import logging
import os
import socket
from collections.abc import MutableMapping, Sequence
from pathlib import Path

from tuner.client.addresses import default_sockets
from tuner.errors import InputError
from tuner.system.service_manager import passed_socket

_BACKLOG = 128
_FOR_GROUP = 0o660
_FOR_OWNER = 0o600
_FOLDER_MODE = 0o755
_PROBE_S = 1.0  # for another daemon to accept a connection
_LOG = logging.getLogger(__name__)


class Lock:
    """Holds the state directory: one daemon at a time.

    Args:
        directory: made if it is not there.

    Raises:
        InputError: another daemon has it, or it cannot be made.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / "daemon.lock"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InputError(
                f"{directory}: cannot keep state there: {error.strerror}; name another"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.read(self._file, 32).decode("ascii", "replace").strip()
            os.close(self._file)
            raise InputError(
                f"{directory}: another daemon works there (process {owner or 'unknown'});"
                " stop it, or name another directory with --state"
            ) from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Let go of the directory."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Listener:
    """A listening socket of the daemon's own making, or the one that it was given.

    Args:
        given: the socket that the service manager passed; None to make one.
        path: where to make it.
        group: who may connect, beside the daemon's user.

    Raises:
        InputError: it cannot be made, or another daemon answers there.
    """

    def __init__(self, given: socket.socket | None, path: Path | None = None, group: str = "") -> None:
        self._path = path
        self._group = group
        self._made: os.stat_result | None = None
        if path is not None:
            given = _listen(path, group)
            self._made = path.lstat()
        if given is None:
            raise InputError("no socket to listen on; name one with --socket")
        self.socket = given

    @property
    def name(self) -> str:
        """Where clients find it, for people."""
        name = self._path if self._path is not None else self.socket.getsockname()
        return str(name) if isinstance(name, str | Path) and str(name) else "a socket without a name"

    @property
    def lost(self) -> bool:
        """True where the file of a socket made here is gone, or is another's."""
        if self._made is None or self._path is None:
            return False
        try:
            now = self._path.lstat()
        except OSError:
            return True
        return (now.st_dev, now.st_ino) != (self._made.st_dev, self._made.st_ino)

    def renew(self) -> None:
        """Make a new socket in the place of a lost one.

        Raises:
            InputError: it cannot be made.
        """
        if self._path is not None:
            made = _listen(self._path, self._group)
            self.socket.close()
            self.socket, self._made = made, self._path.lstat()

    def close(self) -> None:
        """Listen no more, and take the file away if it is ours."""
        if self._made is not None and self._path is not None and not self.lost:
            with contextlib.suppress(OSError):
                self._path.unlink()
        self.socket.close()


def listener(named: Path | None, group: str, environment: MutableMapping[str, str] = os.environ) -> Listener:
    """What the daemon listens on: systemd's socket, else the one named, else the first default it may make.

    Raises:
        InputError: none can be made; the message says why of each.
    """
    given = passed_socket(environment)
    if given is not None:
        given.setblocking(False)
        return Listener(given)
    return _first((named,) if named is not None else default_sockets(environment), group)


def _first(paths: Sequence[Path], group: str) -> Listener:
    reasons = []
    for path in paths:
        try:
            return Listener(None, path, group)
        except InputError as error:  # noqa: PERF203 - of two
            reasons.append(str(error))
    raise InputError("; ".join(reasons))


def _listen(path: Path, group: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        except FileExistsError as error:
            raise NotADirectoryError(error.errno, f"{path.parent} is no directory") from error
        _unlink_dead(path)
        mask = os.umask(0o777 & ~_FOR_OWNER)  # nobody else connects before the group is known
        try:
            made.bind(str(path))
        finally:
            os.umask(mask)
        _open_to(group, path)
        made.listen(_BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        reason = error.strerror or str(error)
        raise InputError(f"cannot listen on {path}: {reason}; name a socket with --socket") from error
    except BaseException:
        made.close()
        raise
    return made


def _open_to(group: str, path: Path) -> None:
    """Let the group connect, where there is one and this user may give it the socket."""
    try:
        os.chown(path, -1, grp.getgrnam(group).gr_gid)
    except (KeyError, PermissionError) as error:
        why = "there is no such group" if isinstance(error, KeyError) else "this user is not in it"
        _LOG.info(
            "only user %d may connect to %s: group %s: %s; as usual without `tuner install-service`",
            os.geteuid(),
            path,
            group,
            why,
        )
        return
    path.chmod(_FOR_GROUP)


def _unlink_dead(path: Path) -> None:
    """Remove the socket of a daemon that is gone; one that answers is left alone.

    Raises:
        InputError: a daemon answers there, or there is something else than a socket.
    """
    try:
        if not path.is_socket():
            path.lstat()
            raise InputError(f"{path}: is there, and is no socket; name another with --socket")
    except FileNotFoundError:
        return
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except FileNotFoundError:
            return
        except TimeoutError:
            pass  # it is full of clients, and so somebody's
    raise InputError(f"{path}: another daemon answers there; stop it, or name another with --socket")
