"""Whether a write-ahead log says more than SQLite reads of it.

SQLite reads a log up to the first frame whose checksum is wrong, and says nothing: what was stored after it
would be gone, in both files where both logs are damaged alike.
"""

import re

from tuner.database.integrity.pages import frames_of, log_is_whole

_TEXT_OF_32 = 77  # serial type
_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # serial type -> bytes


def says_more(log: bytes, page: int, identity: str, count: int) -> bool:
    """True where a log has a later transaction than SQLite has read from it.

    Args:
        log: as it was before SQLite read.
        page: number of the page with the count of transactions, which every transaction writes.
        identity: of the database.
        count: of transactions that SQLite has read.
    """
    frames = frames_of(log)
    places = [place for place, number in zip(frames.places, frames.pages, strict=True) if number == page]
    if not places:
        return bool(frames.places) and not log_is_whole(log)
    last = _count(log[places[-1] : places[-1] + frames.page_bytes], identity)
    if last is not None and last <= count:
        return False
    return not log_is_whole(log)  # else a writer is just between the log and its index


def _count(page: bytes, identity: str) -> int | None:
    """The count on a page; None where the page is damaged."""
    header = bytes([4, 0, _TEXT_OF_32])
    found = re.search(re.escape(header) + b"(.)" + re.escape(identity.encode()), page, re.DOTALL)
    length = None if found is None else _INTEGER_BYTES.get(found[1][0])
    if found is None or length is None:
        return None
    return int.from_bytes(page[found.end() : found.end() + length], "big", signed=True)
