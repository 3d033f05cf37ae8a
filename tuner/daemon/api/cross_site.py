"""Requests of web pages are refused: no page is served here, so that each of them comes from another site.

A browser reaches the daemon through a forwarded socket (``ssh -L``) or a proxy as it reaches the loopback.
It sends ``Origin`` with every request that is no plain GET of its own site, and ``Sec-Fetch-Site`` with all
(Fetch Metadata, W3C). ``Host`` is the name that the page knows the daemon by, also where DNS has rebound that
name to the loopback.
"""

import re
from collections.abc import Mapping

_LOCAL = re.compile(rb"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_OWN_SITES = (b"none", b"same-origin")  # typed by the user, or by a page of the daemon under a local name


def cross_site_fault(headers: Mapping[bytes, bytes]) -> str:
    """Why a request may come from a web page of another site; empty where it cannot.

    Args:
        headers: by their names in lower case.
    """
    if not _LOCAL.fullmatch(headers.get(b"host", b"")):
        return "the Host header must be localhost, 127.0.0.1 or [::1]"
    if b"origin" in headers:
        return "web pages may not ask: send no Origin header"
    if headers.get(b"sec-fetch-site", b"none").strip().lower() not in _OWN_SITES:
        return "web pages of other sites may not ask (Sec-Fetch-Site)"
    return ""
