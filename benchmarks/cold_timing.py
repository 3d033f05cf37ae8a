"""Times launches as the kernels' targets state them: cold L2, CUDA events, medians, interleaved order."""

import random
import statistics
from collections.abc import Callable, Mapping
from math import comb
from typing import Any

COVERED = 0.95  # of a median's interval
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


def copy_bandwidth(cp: Any, timer: Timer) -> float:
    """GB/s of a device-to-device copy of 4 GiB, bytes read and written: the roofline of this run."""
    source, target = cp.zeros(2**30, cp.float32), cp.empty(2**30, cp.float32)
    times = [timer.once(lambda: cp.copyto(target, source)) for _ in range(11)]
    return float(2 * source.nbytes / median(times) / 1e6)


def outside_interval(count: int) -> int:
    """Values outside of the 95 % interval of a median, on each side, by the sign test.

    Six values are the fewest whose range covers 95 %; of fewer it is the range, which covers less.
    """
    outside, edge = 2 / 2**count, 0
    while outside + 2 * comb(count, edge + 1) / 2**count <= 1 - COVERED:
        edge += 1
        outside += 2 * comb(count, edge) / 2**count
    return edge


def spread(times: list[float]) -> float:
    """Half of the range that holds the middle 68 % of some times."""
    ordered = sorted(times)
    edge = round(0.16 * (len(ordered) - 1))
    return (ordered[-1 - edge] - ordered[edge]) / 2


def median(times: list[float]) -> float:
    """The median; infinity for none."""
    return statistics.median(times) if times else float("inf")
