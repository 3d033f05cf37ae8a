"""Do ring and counter agree on the joules of a command within what they state? A real recording of one H200.

Random pieces of the recording, whose load goes on and off in steps and in pulses, are taken for commands:
each with the samples of the ring, and with the few ticks of the energy counter that `tuner power trace` reads
around a command. Counted is how often the joules of two ways lie within 1.96 of their joint uncertainty; the
truth is not known. Nothing here needs a GPU. Some ten seconds.

    python benchmarks/traced_energy.py --out benchmarks/results/traced-energy.json
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance, save
from tuner.power.base import ProgramEnergy, ProgramTimeline, Response, Sample, SensorInfo
from tuner.power.energy.counters import EnergyCurve
from tuner.power.energy.programs import program_energy
from tuner.power.energy.samples import SampleSeries

from tuner.model.objective import COVERAGE

RECORDING = Path(__file__).parent / "results" / "h200-known-load.json"
# As `tuner power calibrate` found them on a board of this model.
RING = SensorInfo(
    *("nvml-power-ring", "ring", "gpu", 0.02),
    resolution=0.001,
    response=Response("lag", 0.0131, delay_s=0.0035, capacitance_sigma_s=1e-4, origin="calibrated"),
)
COUNTER = SensorInfo(
    *("nvml-energy-counter", "counter", "gpu", 0.1),
    resolution=0.001,
    response=Response("lag", 0.0146, delay_s=-0.0058, origin="calibrated"),
)
SHORTEST_S, LONGEST_S = 0.1, 20.0
DURATIONS = ((0.1, 0.3), (0.3, 1.0), (1.0, 4.0), (4.0, 20.0), (SHORTEST_S, LONGEST_S))
IDLE_S, AFTER_S = 2.1, 0.45  # recorded before a command, and after it
WAYS = ("ring and counter with ring", "ring and counter alone")
LOADS = ("all", "steps")


@dataclass(frozen=True)
class Recording:
    """The ring's samples, the counter's ticks, and when the load was stepped only."""

    ring: list[Sample]
    ticks: list[Sample]
    steps: list[tuple[float, float]]

    @staticmethod
    def read() -> "Recording":
        """The recording beside the results."""
        found = json.loads(RECORDING.read_text())
        steps = [
            (start_s, end_s) for name, start_s, end_s in found["sections"] if name in ("steps", "steady")
        ]
        return Recording(
            [Sample(*row) for row in found["ring"]], [Sample(*row) for row in found["ticks"]], steps
        )

    def after(self, time_s: float, count: int = 1) -> list[Sample]:
        """The next ticks."""
        first = next(i for i, tick in enumerate(self.ticks) if tick.time_s >= time_s)
        return self.ticks[first : first + count]


def pieces(recording: Recording, count: int, seed: int) -> Iterator[tuple[ProgramTimeline, list[Sample]]]:
    """Random commands, each with the ticks that a recorder would have: two before, two after, and others."""
    rng = np.random.default_rng(seed)
    while count:
        duration_s = float(np.exp(rng.uniform(np.log(SHORTEST_S), np.log(LONGEST_S))))
        first_s, last_s = recording.ticks[0].time_s + IDLE_S, recording.ticks[-1].time_s - 1.0
        two = recording.after(rng.uniform(first_s, last_s - duration_s), 2)
        start_s = two[1].time_s + float(rng.uniform(0.002, 0.008))
        end_s = start_s + duration_s
        if end_s + AFTER_S + 0.2 > last_s:
            continue
        began_s = start_s - IDLE_S
        early = recording.after(began_s) + recording.after(began_s + IDLE_S / 2.0)
        late = recording.after(end_s, 2)
        ticks = [*early, *two, *late, *recording.after(max(end_s + 0.35, late[-1].time_s + 0.01))]
        yield ProgramTimeline(began_s, start_s, end_s, end_s + AFTER_S), ticks
        count -= 1


def measured(recording: Recording, line: ProgramTimeline, ticks: list[Sample]) -> tuple[ProgramEnergy, ...]:
    """The joules by the ring, by the counter with the ring beside it, and by the counter alone."""
    shown = [sample for sample in recording.ring if line.began_s <= sample.time_s <= line.finished_s]
    curve = EnergyCurve(SampleSeries.of(shown), RING)
    found = (
        program_energy(shown, RING, line),
        program_energy(ticks, COUNTER, line, curve),
        program_energy(ticks, COUNTER, line),
    )
    energies = tuple(energy for energy in found if energy is not None)
    if len(energies) < len(found):
        raise RuntimeError(f"no joules from {line.started_s:.3f} s to {line.ended_s:.3f} s")
    return energies


def rows(recording: Recording, count: int, seed: int) -> list[dict[str, Any]]:
    """How often and how well the ways agree, by load and duration."""
    found: list[tuple[bool, float, int, float, float]] = []
    for line, ticks in pieces(recording, count, seed):
        stepped = any(
            start_s <= line.started_s and line.ended_s <= end_s for start_s, end_s in recording.steps
        )
        ring, *counters = measured(recording, line, ticks)
        for way, counter in enumerate(counters):
            sigma_j = float(np.hypot(ring.total_sigma_j, counter.total_sigma_j))
            found.append((stepped, line.duration_s, way, ring.total_j - counter.total_j, sigma_j))
    table = np.array(found)
    result = []
    for load in LOADS:
        for shortest_s, longest_s in DURATIONS:
            for way, name in enumerate(WAYS):
                chosen = (table[:, 1] >= shortest_s) & (table[:, 1] < longest_s) & (table[:, 2] == way)
                if load == "steps":
                    chosen &= table[:, 0] == 1.0
                apart_j, sigma_j = table[chosen, 3], table[chosen, 4]
                result.append(
                    {
                        "load": load,
                        "shortest_s": shortest_s,
                        "longest_s": longest_s,
                        "ways": name,
                        "pieces": int(chosen.sum()),
                        "within_95": float(np.mean(np.abs(apart_j) < COVERAGE * sigma_j)),
                        "difference_rms_j": float(np.sqrt(np.mean(apart_j**2))),
                        "stated_95_median_j": float(COVERAGE * np.median(sigma_j)),
                    }
                )
    return result


def main() -> None:
    """Compare, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pieces", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    table = rows(Recording.read(), options.pieces, options.seed)
    print(f"{'load':6} {'duration':>12}  {'':28} {'pieces':>6}  within 95 %  difference  stated 95 %")
    for row in table:
        print(
            f"{row['load']:6} {row['shortest_s']:4g} - {row['longest_s']:2g} s   {row['ways']:28}"
            f" {row['pieces']:6d}  {row['within_95']:11.1%}  {row['difference_rms_j']:8.2f} J"
            f"  {row['stated_95_median_j']:9.2f} J"
        )
    save(options.out, {**provenance(), "rows": table})


if __name__ == "__main__":
    main()
