"""A power curve that tests draw by hand."""

IDLE_W = 50.0


class Source:
    """A power curve that grows as the test lets time pass; idle before 0."""

    def __init__(self) -> None:
        self.pieces: list[tuple[float, float, float]] = []
        self.time_s = 0.0

    def draw(self, seconds: float, watts: float) -> None:
        self.pieces.append((self.time_s, self.time_s + seconds, watts))
        self.time_s += seconds

    def now_s(self) -> float:
        return self.time_s

    def power_segments(self, since_s: float) -> list[tuple[float, float, float]]:
        before = [(since_s, 0.0, IDLE_W)] if since_s < 0 else []
        return before + [(max(a, since_s), b, w) for a, b, w in self.pieces if b > since_s]

    def joules(self, start_s: float, end_s: float) -> float:
        shared = ((min(b, end_s) - max(a, start_s), w) for a, b, w in self.power_segments(start_s))
        return sum(seconds * watts for seconds, watts in shared if seconds > 0)
