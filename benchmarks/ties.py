"""Do GPUs of a kind choose the same configuration, and does a GPU keep it? Spaces of many ties, swept whole.

    python benchmarks/ties.py --device cuda:0 --device cuda:1 --out benchmarks/results/ties-h200.json

Each device sweeps every space for time into a fresh database. Stated are, per space, the trials that tie,
whether all devices chose the same configuration, and how much slower than the fastest that is. The first
space is then tuned ``--again`` times more, with the stored answers at hand: a change is a flap. About four
minutes on two H200; no space is begun after ``--seconds``. With ``--policy auto`` they are searched.

    python benchmarks/ties.py --recorded h200 --out benchmarks/results/ties-recorded-h200.json

compares orders of trials that tie, without a GPU. Times of a recorded space are those of one GPU; each of two
*modelled* GPUs takes them with a deviation of its own for each configuration, ``--deviation``. At 0.15 % the
order that two real H200 chose by, fewest threads first, agrees about as often as they did (10 of 17).
"""

import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from provenance import command_line, provenance, save

SPACES = (
    *("scan-lf:N=8192", "scan-ks:N=8192", "tridiag-lf:N=4096", "tridiag-pcr:N=4096", "tridiag-wm:N=4096"),
    *("fft:N=256", "fft:N=8192", "fft:N=64", "scan-lf:N=4096,dtype=float64", "scan-ks:N=4096,dtype=float64"),
    *("tridiag-lf:N=4", "tridiag-pcr:N=4", "tridiag-wm:N=4", "scan-lf:N=8", "scan-ks:N=8"),
    *("tridiag-cr:N=4096", "tridiag-cr:N=4", "fft:N=8", "scan-lf:N=4", "scan-ks:N=4"),
)
"""Of 44 to 133 configurations."""

MOST, LEAST_TIED = 200, 5
"""Configurations and ties of a recorded space that orders are compared on."""


def answers(
    device: str, spaces: Sequence[str], *, policy: str, again: int, ends_at: float, seed: int
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
                policy=policy,
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


def orders(recording: str, deviation: float, pairs: int) -> list[dict[str, Any]]:
    """How often two modelled GPUs choose the same by each order, and how far behind their fastest that is."""
    from tuner.kernel_files.catalog import Catalog  # noqa: PLC0415 - only who replays needs them
    from tuner.model.errors import InputError  # noqa: PLC0415
    from tuner.model.objective import TIE, Objective, by_rule, within  # noqa: PLC0415
    from tuner.recordings.files import open_recording  # noqa: PLC0415

    catalog, spaces, chance, rows = Catalog.load(), open_recording(recording), np.random.default_rng(0), []
    for names in spaces.names:
        times = {
            trial: known
            for trial, known in spaces.space(names).trials.items()
            if known.ok and known.makespan_s is not None and not trial.clock_mhz
        }
        tied = len(within([*times.items()], TIE))
        if len(names) > 1 or len(times) > MOST or tied < LEAST_TIED:
            continue
        workload = catalog.workload(names[0])
        kernel = catalog.kernel(workload.kernel)
        space = kernel.space(workload)
        try:
            places = {trial: space.order(trial.configurations[0]) for trial in times}
            plans = {trial: kernel.plan(workload, trial.configurations[0]).stages for trial in times}
        except InputError:
            continue  # recorded of another version of the kernel
        used = {
            trial: (max(one.threads_per_block for one in of), max(one.shared_bytes for one in of))
            for trial, of in plans.items()
        }
        ranks: dict[str, Any] = {
            "of the space": places.__getitem__,
            "fewest threads first": lambda trial, used=used, places=places: (*used[trial], places[trial]),
            "most threads first": lambda trial, used=used, places=places: (-used[trial][0], places[trial]),
        }
        row: dict[str, Any] = {"space": names[0], "trials": len(times), "tied": tied}
        same, slower = dict.fromkeys(ranks, 0), {name: list[float]() for name in ranks}
        for _ in range(pairs):
            gpus = [
                {
                    trial: replace(
                        known, makespan_s=known.makespan_s * math.exp(chance.normal(0.0, deviation))
                    )
                    for trial, known in times.items()
                }
                for _ in range(2)
            ]
            for name, rank in ranks.items():
                chosen = [by_rule(Objective("time"), dict(within([*gpu.items()], TIE)), rank) for gpu in gpus]
                same[name] += chosen[0] == chosen[1]
                slower[name] += [
                    gpu[one].makespan_s / min(known.makespan_s for known in gpu.values()) - 1.0
                    for gpu, one in zip(gpus, chosen, strict=True)
                ]
        for name in ranks:
            row[name] = {"same": same[name] / pairs, "slower": statistics.fmean(slower[name])}
        rows.append(row)
    return rows


def compare_orders(recording: str, deviation: float, pairs: int, out: Path | None) -> None:
    """Replay, print, write."""
    rows = orders(recording, deviation, pairs)
    summary = {
        name: {what: statistics.fmean(row[name][what] for row in rows) for what in ("same", "slower")}
        for name, first in rows[0].items()
        if isinstance(first, dict)
    }
    for name, mean in summary.items():
        told = f"order {name}: two GPUs choose the same in {100 * mean['same']:.0f} % (modelled)"
        print(f"{told}, {100 * mean['slower']:.2f} % slower than the fastest, of {len(rows)} spaces")
    settings = {"recording": recording, "deviation": deviation, "pairs": pairs, "modelled": True}
    save(out, {**settings, "orders": summary, "spaces": rows, "provenance": provenance()})


def main() -> None:
    """Sweep, compare, print, write."""
    parser = command_line(__doc__)
    parser.add_argument("spaces", nargs="*", default=SPACES)
    parser.add_argument("--device", action="append", help="Several times. Default: sim:h200 and sim:h200.2.")
    parser.add_argument("--policy", default="exhaustive")
    parser.add_argument("--seed", type=int, help="Of the search on every device. Default: each its own.")
    parser.add_argument("--again", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--recorded", help="Compare orders on this recording: h200, h100 or a file.")
    parser.add_argument("--deviation", type=float, default=0.0015)
    parser.add_argument("--pairs", type=int, default=200)
    asked = parser.parse_args()
    if asked.recorded:
        compare_orders(asked.recorded, asked.deviation, asked.pairs, asked.out)
        return
    devices = asked.device or ["sim:h200", "sim:h200.2"]
    ends_at = time.time() + asked.seconds
    with ProcessPoolExecutor(len(devices), get_context("spawn")) as pool:
        jobs = [
            pool.submit(
                answers,
                device,
                asked.spaces,
                policy=asked.policy,
                again=asked.again if device == devices[0] else 0,
                ends_at=ends_at,
                seed=number if asked.seed is None else asked.seed,
            )
            for number, device in enumerate(devices)
        ]
        result = compared([job.result() for job in jobs], asked.again)
    for row in result["spaces"]:
        word = "same" if row["same"] else "DIFFERS"
        told = f"{row['space']:30} {row['trials']:4} trials, ties {row['tied']}, at most"
        print(f"{told} {100 * row['slower']:.2f} % slower than the fastest: {word}")
    print(f"the same configuration in {result['same']} of {result['of']} spaces, on {', '.join(devices)}")
    print(f"{result['changes']} changes in {result['again']} further runs of {next(iter(asked.spaces))}")
    save(asked.out, {**result, "policy": asked.policy, "devices": devices, "provenance": provenance()})


if __name__ == "__main__":
    main()
