"""The head of a request, looked at before it is parsed: its length, and whether there is one way to read it.

h11 bounds a head only while it is incomplete, and reads some heads that others in between read differently.
Such a difference lets a second request hide in the body of a first.
"""

import re
from dataclasses import dataclass

HEAD_BYTES = 16_384
"""Of request line and headers at most; the longest question takes a quarter of it."""

_END = re.compile(rb"\n\r?\n")  # as h11 finds it
_LONE = re.compile(rb"(?<!\r)\n|\r(?!\n)")
_FOLDED = re.compile(rb"\n[ \t]")
_LENGTH = re.compile(rb"\ncontent-length[ \t]*:([^\r\n]*)", re.IGNORECASE)
_CODING = re.compile(rb"\ntransfer-encoding[ \t]*:", re.IGNORECASE)


@dataclass(frozen=True)
class HeadFault:
    """Why a request is refused before it is parsed.

    Attributes:
        message: what would be right.
        status: of the answer.
        reason: its phrase.
    """

    message: str
    status: int = 400
    reason: bytes = b"Bad Request"


_TOO_LONG = HeadFault(
    f"request line and headers have at most {HEAD_BYTES} bytes together",
    431,
    b"Request Header Fields Too Large",
)


def head_fault(received: bytes) -> HeadFault | None:
    """What is wrong with the head at the beginning of what was received; None for nothing, or not yet."""
    end = _END.search(received, 0, HEAD_BYTES)
    if end is None:
        return _TOO_LONG if len(received) >= HEAD_BYTES else None
    message = _fault(received[: end.end()])
    return HeadFault(message) if message else None


def _fault(head: bytes) -> str:
    """What would be right; empty where nothing is wrong (RFC 9112, sections 2.2, 5.2 and 6.1)."""
    if _LONE.search(head):
        return "lines of the head end with CR LF"
    if _FOLDED.search(head):
        return "a header is one line: continuation lines are not read"
    lengths = _LENGTH.findall(head)
    if len(lengths) > 1 or (lengths and b"," in lengths[0]):
        return "send Content-Length once"
    if _CODING.search(head):
        if lengths:
            return "send Content-Length or Transfer-Encoding, not both"
        if head.partition(b"\r\n")[0].endswith(b"HTTP/1.0"):
            return "HTTP/1.0 has no Transfer-Encoding"
    return ""
