"""Access to the page's server: the browser of the user who has opened the link, for this page alone."""

import hmac
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

# --- The secrets of one ``tuner open``: a link that is used once, a cookie, and a word that writes repeat.

_BYTES = 32
CSRF_HEADER = b"x-tuner-csrf"


class Session:
    """Browser session that has opened the link of this ``tuner open``.

    Args:
        port: of the page; cookies do not tell ports apart, so that its name does.

    Attributes:
        link: the word in the link.
        csrf: the word that writes repeat in a header, which no other site can send.
    """

    def __init__(self, port: int) -> None:
        self.link = secrets.token_urlsafe(_BYTES)
        self.csrf = secrets.token_urlsafe(_BYTES)
        self._name = f"tuner-{port}"
        self._cookie = secrets.token_urlsafe(_BYTES)
        self._used = False

    def enter(self, word: str) -> str | None:
        """The Set-Cookie header for whoever opens the link first; None for a wrong or used one."""
        if not same(word, self.link) or self._used:
            return None
        self._used = True
        return f"{self._name}={self._cookie}; HttpOnly; SameSite=Strict; Path=/"

    def known(self, header: bytes) -> bool:
        """True for the Cookie header of whoever has opened the link."""
        try:
            cookies = SimpleCookie(header.decode("latin-1"))
        except CookieError:
            return False
        return self._name in cookies and same(cookies[self._name].value, self._cookie)

    def may_write(self, header: bytes) -> bool:
        """True for the CSRF header that the page sends."""
        return same(header.decode("latin-1"), self.csrf)


def same(secret: str, other: str) -> bool:
    """Return True if two secrets are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(secret.encode(), other.encode())


# --- Requests that are refused: of other sites, and without the secrets.

_LOCAL = re.compile(rb"(localhost|127\.0\.0\.1)(:[0-9]{1,5})?", re.IGNORECASE)
_OWN_SITES = (b"none", b"same-origin")
_JSON = re.compile(rb"application/json(; *charset=utf-8)?", re.IGNORECASE)

Headers = Mapping[bytes, bytes]


@dataclass(frozen=True)
class Refusal:
    """Refusal of a request.

    Attributes:
        status: of HTTP.
        message: what is wrong and what would be right.
    """

    status: int
    message: str


def refusal_of_site(headers: Headers) -> Refusal | None:
    """Return the refusal of a request from another site; None for this site.

    The port may be another one, as where the page is reached through ``ssh -L``.
    """
    if not _LOCAL.fullmatch(headers.get(b"host", b"")):
        return Refusal(403, "the Host header must be localhost or 127.0.0.1")
    if headers.get(b"sec-fetch-site", b"none").lower() not in _OWN_SITES:
        return Refusal(403, "another site asks (Sec-Fetch-Site)")
    if b"origin" in headers and not _own_origin(headers):
        return Refusal(403, "another site asks (Origin)")
    return None


def refusal_to_read(headers: Headers, session: Session) -> Refusal | None:
    """Return the refusal of a request to read; None if it may."""
    refusal = refusal_of_site(headers)
    if refusal is None and not session.known(headers.get(b"cookie", b"")):
        refusal = Refusal(401, "open the link that `tuner open` has printed")
    return refusal


def refusal_to_write(headers: Headers, session: Session) -> Refusal | None:
    """Return the refusal of a request to change anything; None if it may."""
    refusal = refusal_to_read(headers, session)
    if refusal is not None:
        return refusal
    if not _own_origin(headers):
        return Refusal(403, "a change needs the Origin header of this page")
    if not session.may_write(headers.get(CSRF_HEADER, b"")):
        return Refusal(403, "a change needs the header X-Tuner-CSRF with the word of this page")
    if not _JSON.fullmatch(headers.get(b"content-type", b"")):
        return Refusal(415, "a change is JSON: send Content-Type: application/json")
    return None


def _own_origin(headers: Headers) -> bool:
    return headers.get(b"origin", b"").lower() == b"http://" + headers.get(b"host", b"").lower()


# --- Which user is at the other end of a connection over the loopback, by the kernel's table of TCP sockets.
#
# Cookies do not tell ports apart: a page that another user of this machine serves on the loopback would be
# sent the cookie of ours. With the user known, the cookie alone is of no use to anybody else.

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LOCAL_COLUMN, _REMOTE_COLUMN, _STATE_COLUMN, _UID_COLUMN = 1, 2, 3, 7  # columns, see proc_pid_net(5)
_ESTABLISHED = "01"
_MAPPED = (
    "0000000000000000FFFF0000"  # before an IPv4 address of a socket that takes both, in the second table
)


def is_another_user(
    client: tuple[str, int], server: tuple[str, int], tables: Sequence[Path] = TABLES
) -> bool:
    """False for a client of this process's user, or of root, that is still there.

    A socket that nobody holds any more is told as root's, or not at all, whoever had it: who has closed it is
    taken for another user. Where the kernel has no tables, everybody is this user.

    Args:
        client: address and port of the client's end, IPv4.
        server: those of this end.
        tables: of TCP sockets.
    """
    ends = [_hex(*client), _hex(*server)]
    lines = list[str]()
    for table in tables:
        with suppress(OSError, ValueError):
            lines += table.read_text("ascii").splitlines()[1:]
    for line in lines:
        fields = line.split()
        if [
            fields[_LOCAL_COLUMN].removeprefix(_MAPPED),
            fields[_REMOTE_COLUMN].removeprefix(_MAPPED),
        ] == ends:
            gone = fields[_STATE_COLUMN] != _ESTABLISHED and int(fields[_UID_COLUMN]) == 0
            return gone or int(fields[_UID_COLUMN]) not in (0, os.geteuid())
    return any(table.exists() for table in tables)


def _hex(host: str, port: int) -> str:
    """An address as the table has it: the bytes of a little-endian machine reversed, then the port."""
    number = int.from_bytes(bytes(map(int, host.split("."))), "little")
    return f"{number:08X}:{port:04X}"
