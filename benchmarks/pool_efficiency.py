"""How well one run uses the GPUs of a pool: exhaustive and auto on 1, 2, 4 ... workers.

Simulated devices take real time here (``pool_real_time``); with --device cuda the workers are GPUs of this
host, whose settings are not touched. Everything is compiled before, so that measuring is what is timed.
Efficiency is the rate of trials in the search (from the default trial to the last before contenders are
confirmed) over that of one worker, per worker. Contenders are confirmed on one GPU, within the whole time.

    python benchmarks/pool_efficiency.py --out benchmarks/results/pool-efficiency.json
    python benchmarks/pool_efficiency.py --device cuda --workers 1 2 --trials 48 --window 0.5 \
        --out benchmarks/results/pool-gpus.json
"""

import argparse
import itertools
import json
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
from pool_real_time import SPEED
from provenance import command_line, provenance

from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.pool.opening import open_pool, opener_on
from tuner.search.compilation import Compilation
from tuner.search.plan import plan_search
from tuner.search.request import SearchRequest
from tuner.search.session import TrialEvent
from tuner.search.tuning import run_request

REAL_TIME = Path(__file__).parent / "pool_real_time.py"
POLICIES = ("exhaustive", "auto")


@dataclass
class Watch:
    """Hears a run, and notes when its trials ended."""

    begun_s: float = field(default_factory=time.monotonic)
    ended_s: list[float] = field(default_factory=list)
    confirmed_s: list[float] = field(default_factory=list)
    told_: list[str] = field(default_factory=list)

    def measured(self, event: TrialEvent) -> None:
        """Note when a trial of the search ended."""
        if event.confirming:
            self.confirmed_s.append(time.monotonic())
        else:
            self.ended_s.append(time.monotonic())

    def told(self, sentence: str) -> None:
        """Keep what is said."""
        self.told_.append(sentence)

    def compiled(self, done: int, total: int) -> None:
        """Everything was compiled before."""

    def warming(self, watts: float, seconds: float) -> None:
        """A window of a warm-up."""

    @property
    def rate(self) -> float:
        """Trials per second of the search, behind the default trial."""
        if len(self.ended_s) < 2:
            return 0.0
        return (len(self.ended_s) - 1) / (self.ended_s[-1] - self.ended_s[0])


def main() -> None:
    """Measure, print a table, write what was seen."""
    parser = command_line(__doc__)
    parser.add_argument("--device", default="sim:jetson-tx1", help="sim:NAME, or cuda")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--workload", default="scan-lf:N=1024")
    parser.add_argument("--objective", default="energy")
    parser.add_argument(
        "--window", type=float, help="seconds of every window; the run's own choice if left out"
    )
    parser.add_argument(
        "--trials", type=int, help="of a run at most: 160 of scan-lf take minutes on one H200"
    )
    parser.add_argument("--speed", type=float, default=2.0, help="virtual seconds in a real one")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), choices=POLICIES)
    options = parser.parse_args()
    os.environ[SPEED] = str(options.speed)
    device = None if options.device == "cuda" else options.device
    preload = [] if device is None else [str(REAL_TIME)]
    with dask.config.set({"distributed.worker.preload": preload}):
        compile_all(options, device)
        rows: list[dict[str, Any]] = []
        for policy, workers in itertools.product(options.policies, options.workers):
            rows.append(measured(options, device, policy, workers))
            judge(rows)
            if options.out is not None:
                write(options, device, rows)
    print(f"{'policy':12} workers  trials  trials/s  efficiency  search s  whole s   best        repeats")
    for row in rows:
        print(
            f"{row['policy']:12} {row['workers']:7} {row['trials']:7} {row['trials_per_s']:9.2f}"
            f" {row['efficiency']:11.3f} {row['search_s']:9.1f} {row['wall_s']:8.1f}"
            f"   {row['best_cost']:.4g} ± {1.96 * row['best_uncertainty']:.2g} {row['unit']}"
            f"  {'same' if row['same_best'] else 'another'}"
        )


def write(options: argparse.Namespace, device: str | None, rows: list[dict[str, Any]]) -> None:
    """Write what was measured so far."""
    document = {
        "provenance": provenance(),
        "device": options.device,
        "speed": None if device is None else options.speed,
        "workload": options.workload,
        "objective": options.objective,
        "window_s": options.window,
        "trials": options.trials,
        "modelled": device is not None,
        "rows": rows,
    }
    options.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def compile_all(options: argparse.Namespace, device: str | None) -> None:
    """Fill the cache of compiled code."""
    request = SearchRequest((options.workload,), objective=options.objective, window_s=options.window)
    catalog = Catalog.load(())
    with open_pool("local:1", device, request, print) as setup:
        spaces = plan_search(request, catalog, setup).spaces(setup.device)
        Compilation(spaces, setup.device).resolve_all()


def measured(options: argparse.Namespace, device: str | None, policy: str, workers: int) -> dict[str, Any]:
    """One run on so many workers."""
    watch = Watch()
    request = SearchRequest(
        (options.workload,),
        objective=options.objective,
        policy=policy,
        window_s=options.window,
        budget=options.trials,
    )
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder, "pool.db")
        outcome = run_request(
            request,
            Catalog.load(()),
            watch,
            device=device,
            database=database,
            opener=opener_on(f"local:{workers}", watch.told, database, resume=False),
        )
        with Store(database) as store:
            stored = store.history(1)[0].trials
    best = outcome.document["best"]
    energy = options.objective == "energy"
    return {
        "policy": policy,
        "workers": workers,
        "trials": len(watch.ended_s),
        "stored": stored,
        "trials_per_s": watch.rate,
        "open_and_default_s": watch.ended_s[0] - watch.begun_s,
        "search_s": watch.ended_s[-1] - watch.ended_s[0],
        "confirm_s": watch.confirmed_s[-1] - watch.ended_s[-1],
        "wall_s": outcome.wall_s,
        "repeats": len(watch.confirmed_s),
        "best": best["configurations"],
        "best_cost": best["energy_j"] if energy else best["time_s"],
        "best_uncertainty": best["energy_j_uncertainty"] if energy else best["time_s_uncertainty"],
        "unit": "J" if energy else "s",
        "gpus": sorted({trial["gpu"]["uuid"] for trial in outcome.document["trials"]}),
        "ratios": ratios(outcome.document["trials"]),
        "told": watch.told_,
    }


def ratios(trials: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How the GPUs' anchors compare with home's, each once."""
    found = {json.dumps(trial["gpu"], sort_keys=True): trial["gpu"] for trial in trials}
    return list(found.values())


def judge(rows: list[dict[str, Any]]) -> None:
    """Add what compares a row with that of one worker."""
    for row in rows:
        one = next(other for other in rows if other["policy"] == row["policy"])
        speed_up = row["trials_per_s"] / one["trials_per_s"] if row["policy"] == "exhaustive" else None
        faster = one["search_s"] / row["search_s"]
        row["speed_up"] = faster if speed_up is None else speed_up
        row["efficiency"] = row["speed_up"] * one["workers"] / row["workers"]
        apart = abs(row["best_cost"] - one["best_cost"])
        both = 1.96 * (row["best_uncertainty"] ** 2 + one["best_uncertainty"] ** 2) ** 0.5
        row["same_best"] = row["best"] == one["best"] or apart <= both


if __name__ == "__main__":
    main()
