"""Times launches as the kernels' targets state them: cold L2, CUDA events, medians, interleaved order."""

import random
import statistics
from collections.abc import Callable, Mapping
from typing import Any

FLUSH_BYTES = 160 * 10**6  # set to zero before every repeat: more than any L2 holds


class Timer:
    """Owns the memory that is flushed through; ``cp`` is CuPy."""

    def __init__(self, cp: Any) -> None:
        self._cp = cp
        self._flush = cp.empty(FLUSH_BYTES, dtype="uint8")
        self._begin, self._end = cp.cuda.Event(), cp.cuda.Event()

    def once(self, run: Callable[[], None], prepare: Callable[[], None] | None = None) -> float:
        """Milliseconds of one run on the current stream, its data out of the L2."""
        if prepare is not None:
            prepare()
        self._flush.fill(0)
        self._begin.record()
        run()
        self._end.record()
        self._end.synchronize()
        return float(self._cp.cuda.get_elapsed_time(self._begin, self._end))

    def interleaved(
        self,
        runs: Mapping[str, Callable[[], None]],
        repeats: int,
        prepare: Mapping[str, Callable[[], None]] | None = None,
        seed: int = 0,
    ) -> dict[str, list[float]]:
        """Milliseconds of every run, ``repeats`` of each, the order drawn anew in every round."""
        times: dict[str, list[float]] = {name: [] for name in runs}
        order = list(runs)
        rng = random.Random(seed)  # noqa: S311 - an order, not a secret
        for name in order:
            self.once(runs[name], (prepare or {}).get(name))
        for _ in range(repeats):
            rng.shuffle(order)
            for name in order:
                times[name].append(self.once(runs[name], (prepare or {}).get(name)))
        return times


def spread(times: list[float]) -> float:
    """Half of the range that holds the middle 68 % of some times."""
    ordered = sorted(times)
    edge = round(0.16 * (len(ordered) - 1))
    return (ordered[-1 - edge] - ordered[edge]) / 2


def median(times: list[float]) -> float:
    """The median; infinity for none."""
    return statistics.median(times) if times else float("inf")
