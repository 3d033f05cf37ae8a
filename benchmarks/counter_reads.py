"""How many reads of an energy counter date its ticks, and how well. Played in virtual time, without a GPU.

The ticks are those recorded on an H200 (results/h200-known-load.json); a read takes as long as one did
there and shows the counter as it was in the middle of it. Three ways to read are compared: polling for every
tick, the rhythm of the ticks with every one of them wanted, and with one a second. The error is that of the
mean power between two samples some 2 s apart, against the same two ticks at the times they were played at;
those times were dated by polling and scatter by a millisecond, which the rhythm evens out: it is an upper
bound, and the same for all.

    python benchmarks/counter_reads.py [--recording FILE] [--read-ms 2.5] [--out results/counter-reads.json]
"""

import argparse
import bisect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance, save
from tuner.power.base import Sample
from tuner.power.sensors.changes import ChangeSource
from tuner.power.sensors.rhythm import RhythmSource

RECORDING = Path(__file__).parent / "results" / "h200-known-load.json"
WINDOW_S = 2.0
POLL_S = 0.001  # the sampler is asked so often, as by the meter


class Played:
    """A counter that ticks as recorded, on a clock that its reads move on."""

    def __init__(self, ticks: list[tuple[float, float]], read_s: float) -> None:
        self.times_s = [time_s for time_s, _ in ticks]
        self.joules = [joules for _, joules in ticks]
        self.now_s = self.times_s[0] + 0.05
        self.reads = 0
        self._read_s = read_s

    def now(self) -> float:
        """The time."""
        return self.now_s

    def read(self) -> float:
        """The counter, in joules, as it is in the middle of the read."""
        self.reads += 1
        place = bisect.bisect_right(self.times_s, self.now_s + self._read_s / 2.0) - 1
        self.now_s += self._read_s
        return self.joules[place]


def play(counter: Played, make: Callable[[Played], Any]) -> list[Sample]:
    """All samples of a source over the recording."""
    source, samples = make(counter), []
    while counter.now_s < counter.times_s[-1]:
        samples += source.poll()
        counter.now_s = max(counter.now_s + POLL_S, source.due_s)
    return samples


def error_rms(counter: Played, samples: list[Sample]) -> float:
    """Of the mean power between samples some 2 s apart, relative, rms."""
    when = dict(zip(counter.joules, counter.times_s, strict=True))
    errors = []
    for place, first in enumerate(samples):
        last = next((s for s in samples[place:] if s.time_s - first.time_s >= WINDOW_S - POLL_S), None)
        if last is not None:
            errors.append((when[last.value] - when[first.value]) / (last.time_s - first.time_s) - 1.0)
    return float(np.sqrt(np.mean(np.square(errors))))


def main() -> None:
    """Play the three ways and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recording", type=Path, default=RECORDING)
    parser.add_argument(
        "--read-ms", type=float, default=2.5, help="length of a read; the median there was 2.5"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    ticks = [(time_s, joules) for time_s, joules, _ in json.loads(options.recording.read_text())["ticks"]]
    ways: dict[str, Callable[[Played], Any]] = {
        "polling for every tick": lambda c: ChangeSource(c.read, 1.0, c.now),
        "rhythm, every tick": lambda c: RhythmSource(c.read, 1.0, c.now),
        "rhythm, one sample a second": lambda c: RhythmSource(c.read, 1.0, c.now, interval_s=1.0),
    }
    rows = []
    print("| way | samples | reads per second | CPU of one core | error over 2 s, rms |")
    print("| --- | --- | --- | --- | --- |")
    for way, make in ways.items():
        counter = Played(ticks, options.read_ms * 1e-3)
        samples = play(counter, make)
        per_s = counter.reads / (counter.times_s[-1] - counter.times_s[0])
        cpu, error = per_s * options.read_ms * 1e-3, error_rms(counter, samples)
        rows.append(
            {"way": way, "samples": len(samples), "reads_per_s": per_s, "cpu": cpu, "error_rms": error}
        )
        print(f"| {way} | {len(samples)} | {per_s:.1f} | {cpu:.1%} | {error:.2%} |")
    save(options.out, {"provenance": provenance(), "read_ms": options.read_ms, "rows": rows})


if __name__ == "__main__":
    main()
