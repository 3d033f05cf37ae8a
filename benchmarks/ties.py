"""Do GPUs of a kind choose the same configuration, and does a GPU keep it? Spaces of many ties, swept whole.

    python benchmarks/ties.py --device cuda:0 --device cuda:1 --out benchmarks/results/ties-h200.json

Each device sweeps every space for time into a fresh database. Stated are, per space, the trials that tie,
whether all devices chose the same configuration, and how much slower than the fastest that is. The first
space is then tuned ``--again`` times more, with the stored answers at hand: a change is a flap. About four
minutes on two H200; no space is begun after ``--seconds``.
"""

import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from provenance import command_line, provenance, save

SPACES = (
    *("scan-lf:N=8192", "scan-ks:N=8192", "tridiag-lf:N=4096", "tridiag-pcr:N=4096", "tridiag-wm:N=4096"),
    *("fft:N=256", "fft:N=8192", "fft:N=64", "scan-lf:N=4096,dtype=float64", "scan-ks:N=4096,dtype=float64"),
    *("tridiag-lf:N=4", "tridiag-pcr:N=4", "tridiag-wm:N=4", "scan-lf:N=8", "scan-ks:N=8"),
    *("tridiag-cr:N=4096", "tridiag-cr:N=4", "fft:N=8", "scan-lf:N=4", "scan-ks:N=4"),
)
"""Of 44 to 133 configurations."""


def answers(
    device: str, spaces: Sequence[str], again: int, ends_at: float, seed: int
) -> dict[str, list[dict[str, Any]]]:
    """The answers of one device, in a process of its own: of the first space several, one after another."""
    import tuner  # noqa: PLC0415 - only who measures needs it

    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, space in enumerate((*spaces, *[spaces[0]] * again)):
            if time.time() > ends_at:
                break
            document = tuner.tune(
                space,
                device=device,
                policy="exhaustive",
                seed=1000 * seed + number,  # of a simulated device's noise, too
                database=Path(folder) / "tuner.db",
                progress=False,
            ).document
            best, fastest = document["best"], document["fastest"]
            found.setdefault(space, []).append(
                {
                    "configuration": best["configurations"],
                    "tied": len(document["tied"]),
                    "trials": document["space"]["measured"],
                    "slower": best["time_s"] / fastest["time_s"] - 1.0,
                }
            )
    return found


def compared(by_device: Sequence[dict[str, list[dict[str, Any]]]], again: int) -> dict[str, Any]:
    """What the answers of all devices have in common, of the spaces that all have swept."""
    rows = []
    for space in by_device[0]:
        if not all(space in one for one in by_device):
            continue
        firsts = [one[space][0] for one in by_device]
        rows.append(
            {
                "space": space,
                "trials": firsts[0]["trials"],
                "tied": [one["tied"] for one in firsts],
                "same": all(one["configuration"] == firsts[0]["configuration"] for one in firsts),
                "slower": max(one["slower"] for one in firsts),
                "configurations": [one["configuration"][space] for one in firsts],
            }
        )
    first = next(iter(by_device[0].values()))
    changes = sum(
        one["configuration"] != first[place]["configuration"] for place, one in enumerate(first[1:])
    )
    return {
        "spaces": rows,
        "same": sum(row["same"] for row in rows),
        "of": len(rows),
        "changes": changes,
        "again": min(again, len(first) - 1),
    }


def main() -> None:
    """Sweep, compare, print, write."""
    parser = command_line(__doc__)
    parser.add_argument("spaces", nargs="*", default=SPACES)
    parser.add_argument("--device", action="append", help="Several times. Default: sim:h200 and sim:h200.2.")
    parser.add_argument("--again", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=240.0)
    asked = parser.parse_args()
    devices = asked.device or ["sim:h200", "sim:h200.2"]
    ends_at = time.time() + asked.seconds
    with ProcessPoolExecutor(len(devices), get_context("spawn")) as pool:
        jobs = [
            pool.submit(
                answers, device, asked.spaces, asked.again if device == devices[0] else 0, ends_at, seed
            )
            for seed, device in enumerate(devices)
        ]
        result = compared([job.result() for job in jobs], asked.again)
    for row in result["spaces"]:
        word = "same" if row["same"] else "DIFFERS"
        told = f"{row['space']:30} {row['trials']:4} trials, ties {row['tied']}, at most"
        print(f"{told} {100 * row['slower']:.2f} % slower than the fastest: {word}")
    print(f"the same configuration in {result['same']} of {result['of']} spaces, on {', '.join(devices)}")
    print(f"{result['changes']} changes in {result['again']} further runs of {next(iter(asked.spaces))}")
    save(asked.out, {**result, "devices": devices, "provenance": provenance()})


if __name__ == "__main__":
    main()
