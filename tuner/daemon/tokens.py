"""Tokens, by which clients over TCP show who they are: names, digests and ends, in one file."""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from tuner.model.errors import InputError
from tuner.model.typed import document, sealed, typed, unsealed
from tuner.system.ownership import open_lock, replace_file, signature

NAME = "tokens.json"
"""The file, in the state directory. It holds no secret: those are 256 random bits, kept by their SHA-256."""

LOCK = "tokens.lock"
"""Beside it: held by who writes it, and not empty once it was there."""

TAKEN_OVER = "default"
"""Name of the one token that older versions had."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SECRET_BYTES = 32
_SHORTEST, _LONGEST = 16, 1024  # characters of a token that somebody wrote by hand for an older version
_MOST = 1000
_MOST_BYTES = 2**20
_MODES = (0o600, 0o640, 0o400, 0o440)
_FOR_OTHERS = stat.S_IRWXO | stat.S_IWGRP  # of a client's file
_LOG = logging.getLogger(__name__)
_CLOCK_S = 300.0  # a token may be younger than the clock says by so much: clocks are put right by seconds


@dataclass(frozen=True)
class Token:
    """A token as it is kept.

    Attributes:
        name: of its holder; while it is rotated, two have the same.
        sha256: of the secret, as hexadecimal digits.
        made_s: Unix time.
        ends_s: Unix time; None for never.
    """

    name: str
    sha256: str
    made_s: float
    ends_s: float | None = None

    def valid(self, now_s: float) -> bool:
        """True where it counts at a Unix time; a clock from before it was made is wrong, and tells no end."""
        return self.ends_s is None or self.made_s - _CLOCK_S <= now_s < self.ends_s


def new_secret() -> str:
    """A new random secret."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def added(
    tokens: Sequence[Token], name: str, secret: str, now_s: float, lifetime_s: float | None = None
) -> list[Token]:
    """The tokens with a further one.

    Raises:
        InputError: the name is another's, or none.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r}: a token's name has up to 64 letters, digits and ._-, such as ci")
    if any(token.name == name for token in tokens):
        raise InputError(
            f"{name}: has a token already; `tuner token rotate {name}` gives it another secret, and"
            f" `tuner token revoke {name}` takes it away"
        )
    return [*tokens, _token(name, secret, now_s, lifetime_s)]


def rotated(tokens: Sequence[Token], name: str, secret: str, now_s: float, keep_s: float) -> list[Token]:
    """The tokens with a new secret for a name; those before count for ``keep_s`` seconds more at most.

    The new one lasts as long as the last one was to last.

    Raises:
        InputError: nobody has the name.
    """
    own = _of_name(tokens, name)
    lifetime_s = None if own[-1].ends_s is None else own[-1].ends_s - own[-1].made_s
    until_s = now_s + keep_s
    shortened = [
        replace(token, ends_s=until_s if token.ends_s is None else min(until_s, token.ends_s))
        for token in own
    ]
    return [
        *(token for token in tokens if token.name != name),
        *(token for token in shortened if token.valid(now_s)),
        _token(name, secret, now_s, lifetime_s),
    ]


def revoked(tokens: Sequence[Token], names: Iterable[str]) -> list[Token]:
    """The tokens without those of some names.

    Raises:
        InputError: nobody has one of them.
    """
    gone = {token.name for name in names for token in _of_name(tokens, name)}
    return [token for token in tokens if token.name not in gone]


def _token(name: str, secret: str, now_s: float, lifetime_s: float | None) -> Token:
    return Token(name, _digest(secret.encode()), now_s, None if lifetime_s is None else now_s + lifetime_s)


def _of_name(tokens: Sequence[Token], name: str) -> list[Token]:
    found = [token for token in tokens if token.name == name]
    if not found:
        known = ", ".join(dict.fromkeys(token.name for token in tokens)) or "there are none"
        raise InputError(f"{name}: no token has this name; known: {known}")
    return found


def _digest(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()


# --- The file, which its owner alone writes, and which is there whole or not at all.


def read(path: Path) -> tuple[Token, ...]:
    """The tokens of a file; none where there is no file.

    Raises:
        InputError: others can read or change it, or it is damaged; the message says what would be right.
    """
    raw = _read(path, _MOST_BYTES)
    if raw is None:
        return ()
    try:
        content = unsealed(document(raw.decode()), {"tokens"})
        found: tuple[Token, ...] = typed(tuple[Token, ...], content["tokens"], "tokens")
    except ValueError as error:
        raise InputError(
            f"{path}: is no whole list of tokens ({error}); restore it, or remove it and add tokens anew"
        ) from error
    return found


def update(path: Path, change: Callable[[Sequence[Token]], Sequence[Token]]) -> None:
    """Change the tokens of a file. Of two who do so at once, one waits.

    Raises:
        InputError: as of ``read`` and ``change``, or it cannot be written; nothing is changed then.
    """
    try:
        lock = open_lock(path.with_name(LOCK))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = change(read(path))
            if len(tokens) > _MOST:
                raise InputError(f"more than {_MOST} tokens may not be; revoke some")
            content = sealed({"tokens": [asdict(token) for token in tokens]})
            replace_file(path, json.dumps(content, indent=1) + "\n")
            with contextlib.suppress(OSError):  # of a full disk: the next change does it
                os.pwrite(lock, b"1\n", 0)
        finally:
            os.close(lock)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


def take_over(path: Path, plain: Path | None) -> bool:
    """Keep the one token of an older version, whose file holds it as text; clients may go on reading that.

    Args:
        path: of the tokens; where it is there, or was, nothing is done.
        plain: ``[tcp] token_file``.

    Returns:
        True where it was taken over.

    Raises:
        InputError: the file cannot be trusted, or holds no token.
    """
    raw = None if plain is None or path.exists() or _was_there(path) else _read(plain, _LONGEST + 1)
    if raw is None:
        return False
    secret = _secret_in(raw)
    if not secret:
        raise InputError(
            f"[tcp] token_file: {plain} must hold {_SHORTEST} to {_LONGEST} printable characters"
        )

    def first(found: Sequence[Token]) -> Sequence[Token]:  # `tuner token add` may have been quicker
        return found if path.exists() else added(found, TAKEN_OVER, secret, time.time())

    update(path, first)
    return any(token.sha256 == _digest(secret.encode()) for token in read(path))


def _was_there(path: Path) -> bool:
    """True where the file of tokens was there before: a removed one brings back no token of before it."""
    lock = path.with_name(LOCK)
    return lock.exists() and lock.stat().st_size > 0


def check_replaceable(file: Path, tokens: Iterable[Token], name: str) -> None:
    """Refuse to put another secret of a name in the place of what is no token of its holder.

    Raises:
        InputError: others can read or change the file, it holds no token, or somebody else's.
        OSError: it cannot be read.
    """
    status = file.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{file}: must be a plain file")
    if status.st_mode & _FOR_OTHERS:
        raise InputError(f"{file}: others can read or change it: chmod 0600 {file}, or 0640 for its group")
    with file.open("rb") as opened:
        secret = _secret_in(opened.read(_LONGEST + 2))
    owners = {token.name for token in tokens if token.sha256 == _digest(secret.encode())}
    if not secret or owners - {name}:
        what = f"the token of {', '.join(owners)}" if secret else "no token"
        raise InputError(f"{file}: holds {what}; name the file of {name}'s token, or one that is not there")


def _secret_in(raw: bytes) -> str:
    """The secret in the content of a file; empty where it is none."""
    secret = raw.strip()
    fits = _SHORTEST <= len(secret) <= _LONGEST and secret.isascii() and secret.decode().isprintable()
    return secret.decode() if fits else ""


def _read(path: Path, most: int) -> bytes | None:
    """A file that only its owner and group can read; None where there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}; it must be a plain file that the daemon's user and root may read"
        ) from error
    try:
        _check_owner(path, os.fstat(descriptor))
        return os.read(descriptor, most)
    finally:
        os.close(descriptor)


def _check_owner(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path} must be a plain file")
    # root may look at the file of the service's user, in whose folder it is
    owners = {0, os.geteuid(), *((path.parent.stat().st_uid,) if os.geteuid() == 0 else ())}
    if status.st_uid not in owners:
        raise InputError(
            f"{path} must belong to root or to the daemon's user: chown --reference={path.parent} {path}"
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode not in _MODES:
        raise InputError(f"{path} has mode {mode:04o}; it must be 0600 or 0640: chmod 0600 {path}")


# --- The tokens in force.


class _Known(NamedTuple):
    """A token, and its end by the clock that nobody sets; None before it was seen to be valid."""

    token: Token
    deadline_s: float | None


def _elapsed_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Tokens:
    """The tokens in force: those of a file, as it was sound last.

    A token ends when the wall clock says so. One that was seen to be valid also ends after the time that it
    had left then: who sets the wall clock back lengthens no token's life.

    None is in force before the first look.

    Args:
        path: of the file; None for no tokens.
        now_s: wall clock, Unix time.
        elapsed_s: clock that nobody sets, in seconds.
    """

    def __init__(
        self,
        path: Path | None = None,
        now_s: Callable[[], float] = time.time,
        elapsed_s: Callable[[], float] = _elapsed_s,
    ) -> None:
        self._path = path
        self._now_s, self._elapsed_s = now_s, elapsed_s
        self._known: dict[str, _Known] = {}
        self._seen: tuple[int, ...] | None = None

    def look(self, plain: Path | None = None) -> None:
        """Read the file where it has changed, or was wrong.

        Args:
            plain: ``[tcp] token_file``: holds the one token of an older version.

        Raises:
            InputError: as of ``read`` and ``take_over``; what was in force stays so.
        """
        if self._path is None:
            return
        if take_over(self._path, plain):
            _LOG.warning("the token in %s is now called %s; leave [tcp] token_file out", plain, TAKEN_OVER)
        seen = signature(self._path)
        if seen != self._seen:
            known = {one.token: one for one in self._known.values()}
            self._known = {token.sha256: known.get(token, _Known(token, None)) for token in read(self._path)}
            self._seen = seen
            if not seen and _was_there(self._path):
                _LOG.warning("%s was removed: no token counts; `tuner token add` makes some", self._path)
        for one in list(self._known.values()):
            self._valid(one)

    def holder(self, secret: bytes) -> str | None:
        """Name of the token with a secret; None where there is none, or it does not count any more."""
        found = self._known.get(_digest(secret))
        return found.token.name if found is not None and self._valid(found) else None

    def ends_s(self) -> dict[str, float]:
        """Unix time at which the newest token of each name ends, of those that end."""
        newest = {known.token.name: known.token.ends_s for known in self._known.values()}
        return {name: ends_s for name, ends_s in newest.items() if ends_s is not None}

    def _valid(self, known: _Known) -> bool:
        token, deadline_s = known
        if token.ends_s is None:
            return True
        now_s, elapsed_s = self._now_s(), self._elapsed_s()
        if not token.valid(now_s):
            return False
        if deadline_s is None:
            deadline_s = elapsed_s + token.ends_s - now_s
            self._known[token.sha256] = _Known(token, deadline_s)
        return elapsed_s < deadline_s
