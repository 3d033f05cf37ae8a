"""Virtual time of a simulated device, and the power it drew over it."""

from collections import deque

_PIECES = 16384


class Timeline:
    """A clock that moves only when told, and the power of each piece of time that passed.

    The last 16384 pieces are kept, far more than one recording spans.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._pieces: deque[tuple[float, float, float]] = deque(maxlen=_PIECES)

    def pass_time(self, seconds: float, watts: float) -> None:
        """Let virtual time pass at constant power."""
        if seconds <= 0:
            return
        start, self.now_s = self.now_s, self.now_s + seconds
        if self._pieces and self._pieces[-1][2] == watts:
            start = self._pieces.pop()[0]
        self._pieces.append((start, self.now_s, watts))

    def since(self, since_s: float, before_w: float) -> list[tuple[float, float, float]]:
        """(start, end, watts) pieces from ``since_s`` to now, in order, without gaps.

        Args:
            since_s: where the first piece starts.
            before_w: power before the oldest piece that is kept.
        """
        found: list[tuple[float, float, float]] = []
        for start, end, watts in reversed(self._pieces):
            if end <= since_s:
                break
            found.append((max(start, since_s), end, watts))
        found.reverse()
        oldest = found[0][0] if found else self.now_s
        if since_s < oldest:
            found.insert(0, (since_s, oldest, before_w))
        return found
