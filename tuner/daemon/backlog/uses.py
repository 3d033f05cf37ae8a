"""How often answers are used, by counts that fade, and how long a job that was tried is left alone."""

import math
import time
from collections.abc import Callable, Mapping

HALF_LIFE_DAYS = 7.0
"""A use counts half after a week: week-ends do not empty the table, and last year's work does not fill it."""

MOST_QUESTIONS = 2048
"""Questions that are counted at a time; the least used makes room. A client may ask for any batch, and the
longest question has some 3 KiB."""

BACK_OFF_S = 6 * 3600.0
"""A job that was tried is not proposed again for so long; whatever prevented a result may be gone by then."""

LONGEST_BACK_OFF_S = 7 * 86_400.0
"""The back-off doubles with every further try without a result, up to this."""

MOST_BACKED_OFF = 1024
"""Jobs that are remembered as tried."""

_MOST_DOUBLINGS = 10  # beyond the longest back-off

_DAY_S = 86_400.0
_FADED = 1e-3  # a count below this is forgotten: ten half-lives after a single use


class UseCounter:
    """Counts by question.

    Time is the daemon's own running time: a wall clock that jumps changes no count, and a day on which the
    machine was off fades nothing.

    Args:
        known: counts as they were flushed last.
        monotonic: seconds.
    """

    def __init__(
        self, known: Mapping[str, float] | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._monotonic = monotonic
        self._now_s = monotonic()
        self._counts: dict[str, float] = {}
        self._flushed: dict[str, float] = {}
        self._touched: set[str] = set()  # used since they were flushed last
        self.restore(known or {})

    def restore(self, known: Mapping[str, float]) -> None:
        """Add the counts that were flushed before this process began."""
        usable = {key: value for key, value in known.items() if math.isfinite(value)}
        self._flushed |= usable
        for key, value in usable.items():
            if value > 0.0:
                self._counts[key] = self._counts.get(key, 0.0) + value
        while len(self._counts) > MOST_QUESTIONS:
            self._make_room()

    def add(self, key: str, count: float) -> None:
        """Count uses of an answer now."""
        if count <= 0.0:
            return
        self._fade()
        if key not in self._counts and len(self._counts) >= MOST_QUESTIONS:
            self._make_room()
        self._counts[key] = self._counts.get(key, 0.0) + count
        self._touched.add(key)

    def per_day(self) -> dict[str, float]:
        """Uses per day by question, the most used first: what a steady use would have led to these counts."""
        self._fade()
        rate = math.log(2.0) / HALF_LIFE_DAYS
        ordered = sorted(self._counts.items(), key=lambda item: -item[1])
        return {key: count * rate for key, count in ordered}

    def take(self, *, used_only: bool = False) -> dict[str, float]:
        """What to add to the counts on the disk so that they are these; negative where a count has faded.

        Args:
            used_only: leave out counts that have only faded since the last call, which are many.
        """
        self._fade()
        keys = set(self._touched) if used_only else self._counts.keys() | self._flushed.keys()
        self._touched.clear()
        changes = {key: self._counts.get(key, 0.0) - self._flushed.get(key, 0.0) for key in keys}
        for key in keys:
            if key in self._counts:
                self._flushed[key] = self._counts[key]
            else:
                self._flushed.pop(key, None)
        return {key: change for key, change in changes.items() if change != 0.0}

    def put_back(self, changes: Mapping[str, float]) -> None:
        """Undo ``take``: the disk did not take them."""
        for key, change in changes.items():
            self._flushed[key] = self._flushed.get(key, 0.0) - change
        self._touched.update(changes)

    def __len__(self) -> int:
        return len(self._counts)

    def _make_room(self) -> None:
        """Forget the least used; of new ones that were asked once each, the oldest."""
        del self._counts[min(self._counts, key=self._counts.__getitem__)]

    def _fade(self) -> None:
        now_s = self._monotonic()
        if now_s - self._now_s < 1.0:  # nothing fades within a second that could be seen
            return
        factor = 0.5 ** ((now_s - self._now_s) / (HALF_LIFE_DAYS * _DAY_S))
        self._now_s = now_s
        faded = {key: count * factor for key, count in self._counts.items()}
        self._counts = {key: count for key, count in faded.items() if count >= _FADED}


class BackOff:
    """Jobs by a key, and until when each is left alone.

    Args:
        monotonic: seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until_s: dict[str, float] = {}
        self._in_vain: dict[str, int] = {}  # how often in a row

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._until_s.get(key, 0.0) > self._monotonic()

    def begin(self, key: str, seconds: float) -> None:
        """Leave a job alone for so long."""
        self._until_s.pop(key, None)
        self._until_s[key] = self._monotonic() + seconds
        _bound(self._until_s)

    def tried(self, key: str, *, in_vain: bool) -> None:
        """Leave a job alone that was tried; for longer where it had no result again."""
        times = self._in_vain.pop(key, 0) if in_vain else 0
        self.begin(key, min(BACK_OFF_S * 2.0**times, LONGEST_BACK_OFF_S))
        if in_vain:
            self._in_vain[key] = min(times + 1, _MOST_DOUBLINGS)
            _bound(self._in_vain)
        else:
            self._in_vain.pop(key, None)

    def end(self, key: str) -> None:
        """Let a job be proposed again."""
        self._until_s.pop(key, None)

    def clear(self) -> None:
        """Let all be proposed again."""
        self._until_s.clear()
        self._in_vain.clear()


def _bound(table: dict[str, float] | dict[str, int]) -> None:
    while len(table) > MOST_BACKED_OFF:
        del table[next(iter(table))]
