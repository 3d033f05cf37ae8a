"""Who may ask the page's server: the browser of the user who has opened the link, for this page alone."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.page.session import CSRF_HEADER, Session

_LOCAL = re.compile(rb"(localhost|127\.0\.0\.1)(:[0-9]{1,5})?", re.IGNORECASE)
_OWN_SITES = (b"none", b"same-origin")
_JSON = re.compile(rb"application/json(; *charset=utf-8)?", re.IGNORECASE)

Headers = Mapping[bytes, bytes]


@dataclass(frozen=True)
class Refusal:
    """Why a request is not answered.

    Attributes:
        status: of HTTP.
        message: what is wrong and what would be right.
    """

    status: int
    message: str


def refusal_of_site(headers: Headers) -> Refusal | None:
    """Why a request comes from another site; None where it does not.

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
    """Why a request may not read; None where it may."""
    refusal = refusal_of_site(headers)
    if refusal is None and not session.known(headers.get(b"cookie", b"")):
        refusal = Refusal(401, "open the link that `tuner open` has printed")
    return refusal


def refusal_to_write(headers: Headers, session: Session) -> Refusal | None:
    """Why a request may not change anything; None where it may."""
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
