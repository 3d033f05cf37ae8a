"""Time against energy of every trial of a recorded co-run, as a picture.

    python benchmarks/plot_recording.py h200-applications --out docs/co-run-h200.svg

The defaults together, the fastest of each alone together, and the fastest trial are named. Where streams have
priorities, trials in which all are alike stand out. It needs the extra `plot`.
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner.model.plan import STREAM_PRIORITY, with_place
from tuner.model.trial import Measurement, Trial
from tuner.recordings.files import RecordedSpaces, matching, open_recording
from tuner.recordings.values import RecordedSpace

INK, ALIKE, DEFAULT, SOLO, LEAST = "#9aa5b1", "#4a6fa5", "#c0392b", "#d68910", "#0b6e4f"


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("recording", help="a name or a file, as of --device replay:")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    recording = open_recording(options.recording)
    space = recording.space(matching(recording, ()))
    _draw(space, named_trials(recording, space), options.out)


def named_trials(recording: RecordedSpaces, space: RecordedSpace) -> list[tuple[str, str, Trial]]:
    """Words, colour and trial of what the picture names."""
    default = Trial(tuple(workload.default for workload in space.workloads))
    alone = [
        with_place(best, {STREAM_PRIORITY: 0}) if STREAM_PRIORITY in workload.tunables else best
        for workload in space.workloads
        for best in _fastest(recording.space((workload.name,))).configurations
    ]
    return [
        ("the defaults together", DEFAULT, default),
        ("the fastest of each alone, together", SOLO, Trial(tuple(alone))),
        ("the fastest of all", LEAST, _fastest(space)),
    ]


def _fastest(space: RecordedSpace) -> Trial:
    return min(space.trials, key=lambda trial: space.trials[trial].makespan_s or math.inf)


def _alike(trial: Trial) -> bool:
    return len({one.get(STREAM_PRIORITY) for one in trial.configurations}) == 1


def _joules(measurement: Measurement) -> float:
    if measurement.energy is None:
        raise SystemExit("a trial of this recording has no joules: there is nothing to draw")
    return measurement.energy.joules


def _draw(space: RecordedSpace, named: Sequence[tuple[str, str, Trial]], out: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "recording", "font.size": 11})
    from matplotlib import pyplot as plt  # noqa: PLC0415 - behind the choice of what draws

    figure, axes = plt.subplots(figsize=(8.6, 4.0), layout="constrained")
    every = list(space.trials.values())
    _points(axes, every, INK, 3.5, f"{len(every)} combinations, each measured once")
    if any(STREAM_PRIORITY in workload.tunables for workload in space.workloads):
        alike = [measured for trial, measured in space.trials.items() if _alike(trial)]
        _points(axes, alike, ALIKE, 3.5, f"{len(alike)} of them with streams of equal priority")
    for words, colour, trial in named:
        _points(axes, [space.trials[trial]], colour, 10, words)
    axes.set_xlabel("time of a round, ms")
    axes.set_ylabel("energy of a round, J")
    kernels = ", ".join(workload.kernel for workload in space.workloads)
    axes.set_title(f"{kernels} at the same time on an {space.identity.name}", fontsize=11, loc="left")
    axes.legend(frameon=False, loc="best")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    figure.savefig(out, metadata={"Date": None})


def _points(axes: Any, measurements: Sequence[Measurement], colour: str, size: float, words: str) -> None:
    times = [1e3 * (one.makespan_s or 0.0) for one in measurements]
    axes.plot(times, [_joules(one) for one in measurements], "o", color=colour, markersize=size, label=words)


if __name__ == "__main__":
    main()
