"""Orders that were tried of late, and are not wanted again for a while."""

from collections.abc import Callable

TRIED_FOR_S = 6 * 3600.0
"""So long an order that came to nothing is not wanted again: what kept it may have gone by then."""

LONGEST_TRIED_FOR_S = 7 * 86_400.0
"""The rest doubles each time that it comes to nothing again, up to this."""

MOST_TRIED = 1024
"""Orders that are remembered as tried."""

_MOST_DOUBLINGS = 10  # beyond the longest rest


class Rests:
    """Orders by a key, and until when each rests.

    Args:
        monotonic: seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until_s: dict[str, float] = {}
        self._in_vain: dict[str, int] = {}  # how often in a row

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._until_s.get(key, 0.0) > self._monotonic()

    def rest(self, key: str, seconds: float) -> None:
        """Have an order rest."""
        self._until_s.pop(key, None)
        self._until_s[key] = self._monotonic() + seconds
        _bound(self._until_s)

    def tried(self, key: str, *, in_vain: bool) -> None:
        """An order was tried: it rests, and for longer where it has come to nothing again."""
        times = self._in_vain.pop(key, 0) if in_vain else 0
        self.rest(key, min(TRIED_FOR_S * 2.0**times, LONGEST_TRIED_FOR_S))
        if in_vain:
            self._in_vain[key] = min(times + 1, _MOST_DOUBLINGS)
            _bound(self._in_vain)
        else:
            self._in_vain.pop(key, None)

    def end(self, key: str) -> None:
        """Let an order be wanted again."""
        self._until_s.pop(key, None)

    def clear(self) -> None:
        """Let all be wanted again: something has changed."""
        self._until_s.clear()
        self._in_vain.clear()


def _bound(table: dict[str, float] | dict[str, int]) -> None:
    while len(table) > MOST_TRIED:
        del table[next(iter(table))]
