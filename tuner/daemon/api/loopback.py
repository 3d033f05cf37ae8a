"""The same interface on 127.0.0.1 and ::1, for those who hold the token."""

import os
import secrets
import socket
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import InputError

_TOKEN_BYTES = 32
_SHORTEST = 16  # characters of a token that somebody wrote by hand
_LONGEST = 1024
_MODES = (0o600, 0o640, 0o400, 0o440)
_BACKLOG = 128


@dataclass(frozen=True)
class Loopback:
    """Listening sockets, and what opens the gate behind them."""

    sockets: Sequence[socket.socket]
    token: str

    @property
    def port(self) -> int:
        """Where they listen."""
        port: int = self.sockets[0].getsockname()[1]
        return port


def open_loopback(port: int, token_file: Path) -> Loopback:
    """Listen on the loopback, on both families where the machine has both.

    Args:
        port: 0 for any free one.
        token_file: holds the token; made with a random one where it is missing.

    Raises:
        InputError: the port cannot be had, or the file cannot be trusted.
    """
    token = read_token(token_file)
    first = _listen(socket.AF_INET, "127.0.0.1", port)
    try:
        second = _listen(socket.AF_INET6, "::1", first.getsockname()[1])
    except InputError:  # no IPv6 here, or the port is another's there: one family is enough
        return Loopback((first,), token)
    return Loopback((first, second), token)


def _listen(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    try:
        # asyncio sends at once (TCP_NODELAY) only where the protocol is named.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise InputError(f"tcp.port: no sockets of this family: {error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise InputError(
            f"tcp.port: cannot listen on {host}, port {port}: {error}; choose another"
        ) from error
    listener.setblocking(False)
    return listener


def read_token(path: Path) -> str:
    """The token of a file that only its owner and group can read; a new one where there is no file.

    Raises:
        InputError: the file belongs to somebody else, others can read or change it, or it holds no token.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return _new_token(path)
    except OSError as error:
        raise InputError(f"tcp.token_file: {path}: {error.strerror}; it must be a plain file") from error
    try:
        _check_owner(path, os.fstat(descriptor))
        text = os.read(descriptor, _LONGEST + 1).strip()
    finally:
        os.close(descriptor)
    if not (_SHORTEST <= len(text) <= _LONGEST and text.isascii() and text.decode("ascii").isprintable()):
        raise InputError(
            f"tcp.token_file: {path} must hold {_SHORTEST} to {_LONGEST} printable characters; remove it to"
            " have one made"
        )
    return text.decode("ascii")


def _check_owner(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"tcp.token_file: {path} must be a plain file")
    if status.st_uid not in (0, os.geteuid()):
        raise InputError(f"tcp.token_file: {path} must belong to root or to the daemon's user")
    mode = stat.S_IMODE(status.st_mode)
    if mode not in _MODES:
        raise InputError(f"tcp.token_file: {path} has mode {mode:04o}; it must be 0600 or 0640")


def _new_token(path: Path) -> str:
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{token}\n")
    except OSError as error:
        raise InputError(f"tcp.token_file: cannot make {path}: {error.strerror}") from error
    return token
