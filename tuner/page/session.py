"""The secrets of one ``tuner open``: a link that is used once, a cookie, and a word that writes repeat."""

import hmac
import secrets
from http.cookies import CookieError, SimpleCookie

_BYTES = 32
CSRF_HEADER = b"x-tuner-csrf"


class Session:
    """Who has opened the link of this ``tuner open``.

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


def same(given: str, wanted: str) -> bool:
    """Whether two secrets are equal, in a time that tells nothing."""
    return hmac.compare_digest(given.encode(), wanted.encode())
