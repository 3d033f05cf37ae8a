"""What the configuration of another problem size is worth, beside the analytical choice and the default.

For every recorded size of a kernel, the best configuration of each other size is looked up among its trials.
The worth is the share of the best speed; configurations that are not allowed at the size are left out. A row
has the harmonic means over the sizes of a kernel; in the last one kernels count alike.

    python benchmarks/neighbour_sizes.py --out benchmarks/results/neighbour-sizes-h200.json
"""

import math
from collections.abc import Iterator
from typing import Any

from provenance import command_line, provenance, save
from tuner.policies.analytical import choose

from tuner.model.plan import Configuration
from tuner.recordings.files import open_recording
from tuner.recordings.values import RecordedSpace

FACTORS = (2, 4, 8)


def main() -> None:
    """Look up, print, write."""
    parser = command_line(__doc__, must_save=True)
    parser.add_argument("--recording", default="h200")
    options = parser.parse_args()
    rows = [{"kernel": name, **row_of(spaces)} for name, spaces in kernels_of(options.recording).items()]
    columns = [key for key in rows[0] if key != "kernel"]
    means = {key: mean([row[key] for row in rows if row[key] is not None]) for key in columns}
    for row in [*rows, {"kernel": "mean", **means}]:
        shares = (f"{key} {'-' if row[key] is None else f'{row[key]:.3f}'}" for key in columns)
        print(f"{row['kernel']:12s} {'  '.join(shares)}")
    document = {"provenance": provenance(), "rows": rows, "mean": means}
    save(options.out, document)


def kernels_of(recording: str) -> dict[str, dict[int, RecordedSpace]]:
    """Kernel -> its recorded spaces of one workload by N."""
    opened = open_recording(recording)
    kernels: dict[str, dict[int, RecordedSpace]] = {}
    for names in opened.names:
        if len(names) == 1:
            space = opened.space(names)
            workload = space.workloads[0]
            kernels.setdefault(workload.kernel, {})[int(workload.sizes["N"])] = space
    return kernels


def row_of(spaces: dict[int, RecordedSpace]) -> dict[str, float | None]:
    """Shares of the best speed of one kernel: analytical choice, default, and neighbours by their factor."""
    times = {size: times_of(space) for size, space in spaces.items()}
    best = {size: min(found, key=found.__getitem__) for size, found in times.items()}

    def shares(chosen: Iterator[tuple[int, Configuration]]) -> float | None:
        found = [
            times[size][best[size]] / times[size][one]
            for size, one in chosen
            if times[size].get(one, math.inf) < math.inf
        ]
        return len(found) / math.fsum(1 / share for share in found) if found else None

    analytical = (
        (size, choose(workload.candidates, space.limits, workload.roles, rule=None).configuration)
        for size, space in spaces.items()
        for workload in space.workloads
    )
    return {
        "analytical": shares(analytical),
        "default": shares((size, space.workloads[0].default) for size, space in spaces.items()),
        **{
            f"factor {factor}": shares(
                (size, best[other])
                for size in spaces
                for other in spaces
                if other in (size * factor, size // factor)
            )
            for factor in FACTORS
        },
    }


def times_of(space: RecordedSpace) -> dict[Configuration, float]:
    """Seconds of every configuration; infinite where it failed."""
    return {
        trial.configurations[0]: (one.makespan_s if one.ok and one.makespan_s else math.inf)
        for trial, one in space.trials.items()
    }


def mean(values: list[Any]) -> float:
    """Of shares."""
    return math.fsum(values) / len(values)


if __name__ == "__main__":
    main()
