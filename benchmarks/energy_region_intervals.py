"""How wide the intervals of regions are, and how often they hold the truth: simulated sensors, played loads.

Sensors, loads and lengths are those of ``tests/test_power_windows.py``; every number is modelled. A cell has
the rms error and the median standard uncertainty, both of the joules, and how many intervals of 95 % hold the
truth. 400 runs of each cell take half a minute.

    python benchmarks/energy_region_intervals.py --out benchmarks/results/energy-region-intervals.json
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from provenance import command_line, provenance, save

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # the loads

from test_power_windows import LOADS, SPAN_SENSORS, played

SECONDS = (0.005, 0.05, 0.3, 2.0)


def main() -> None:
    """Play, print the table, write what was seen."""
    parser = command_line(__doc__)
    parser.add_argument("--runs", type=int, default=400, help="of each cell")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    random, rows = np.random.default_rng(options.seed), list[dict[str, Any]]()
    names = [load.__name__.replace("_", " ") for load in LOADS]
    print(f"| sensor | region | {' | '.join(names)} |")
    print("| --- " * (2 + len(names)) + "|")
    for sensor, models in SPAN_SENSORS.items():
        for seconds in SECONDS:
            cells = []
            for name, load in zip(names, LOADS, strict=True):
                results = [played(models, load, seconds, random) for _ in range(options.runs)]
                errors = np.array([found.joules / joules - 1.0 for found, joules in results])
                sigmas = np.array([found.sigma_j / joules for found, joules in results])
                row: dict[str, Any] = {
                    "sensor": sensor,
                    "seconds": seconds,
                    "load": name,
                    "error_rms": float(np.sqrt(np.mean(errors**2))),
                    "sigma_median": float(np.median(sigmas)),
                    "covered": float(np.mean(np.abs(errors) <= 1.96 * sigmas)),
                }
                rows.append(row)
                error, sigma = (f"{100 * row[key]:.2g} %" for key in ("error_rms", "sigma_median"))
                cells.append(f"{error}, {sigma}, {100 * row['covered']:.0f} %")
            print(f"| {sensor} | {seconds:g} s | {' | '.join(cells)} |", flush=True)
    save(options.out, {"provenance": provenance(), "runs": options.runs, "modelled": True, "rows": rows})


if __name__ == "__main__":
    main()
