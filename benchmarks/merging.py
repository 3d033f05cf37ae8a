"""How long merging a large database takes, and how much memory: seconds, MB at most, what it added.

A file is made of runs whose trials are as large as real ones (0.9 kB). It is merged into an empty database,
merged again, which adds nothing, and the result is merged back into the file, which adds nothing either. Each
merge is a process of its own. Every transaction goes to the database and to its mirror.

    python benchmarks/merging.py --out benchmarks/results/merging.json [--trials 1000000] [--folder DIR]
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from provenance import command_line, provenance, save

from tuner.database.connection import Database
from tuner.database.files import mirror_of
from tuner.database.integrity.checksums import row_checksum
from tuner.database.merging import merge_file
from tuner.database.runs import ADD_TRIAL, Store
from tuner.database.transaction import Transaction
from tuner.model.jobs import DeviceIdentity
from tuner.model.plan import Configuration
from tuner.model.records import Conditions, RunStatus, measurement_record, trial_record
from tuner.model.trial import Energy, Measurement, Status, Trial, WorkloadResult
from tuner.model.typed import canonical

NAME = "scan-lf:N=1024"
TRIALS_OF_A_RUN = 200
LIMIT_S = 60.0
"""For a million trials."""


def main() -> None:
    """Make the files, merge them, print the table, write the JSON."""
    parser = command_line(__doc__)
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="where the databases are made; gigabytes")
    parser.add_argument("--merge", nargs=2, type=Path, metavar=("INTO", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.merge:
        print(json.dumps(merge(*options.merge)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        rows = measured(Path(folder), options.trials)
    document = {
        "provenance": provenance(),
        "protocol": {
            "trials": options.trials,
            "trials_of_a_run": TRIALS_OF_A_RUN,
            "limit_s": LIMIT_S * options.trials / 1_000_000,
        },
        "rows": rows,
    }
    save(options.out, document)


def measured(folder: Path, trials: int) -> list[dict[str, Any]]:
    """A row per merge; printed as it comes."""
    source, target = folder / "source.db", folder / "target.db"
    make(source, trials)
    print(f"{trials:,} trials, {source.stat().st_size / 1e6:.0f} MB")
    print(f"{'merge':24s}{'s':>8s}{'CPU s':>8s}{'MB at most':>12s}{'runs added':>12s}{'known':>8s}")
    rows = []
    for name, into, file in (
        ("into an empty database", target, source),
        ("the same again", target, source),
        ("back into the first", source, target),
    ):
        command = [sys.executable, __file__, "--merge", str(into), str(file)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True)
        row = {"merge": name, **json.loads(answer.stdout)}
        print(
            f"{name:24s}{row['seconds']:8.1f}{row['cpu_s']:8.1f}{row['peak_mb']:12.0f}{row['runs_added']:12,}"
            f"{row['runs_known']:8,}",
            flush=True,
        )
        rows.append(row)
    return rows


def merge(into: Path, file: Path) -> dict[str, Any]:
    """Merge a file, and say what that took."""
    begin_s = time.perf_counter()
    with Database(into) as database:
        report = merge_file(database, file)
    seconds = time.perf_counter() - begin_s
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": seconds,
        "cpu_s": usage.ru_utime + usage.ru_stime,  # with the start of Python
        "peak_mb": usage.ru_maxrss * 1024 / 1e6,
        "file_mb": file.stat().st_size / 1e6,
        "written_mb": (into.stat().st_size + mirror_of(into).stat().st_size) / 1e6,
        **asdict(report),
    }


def make(path: Path, trials: int) -> None:
    """A database of so many trials."""
    dice = random.Random(0)  # noqa: S311 - numbers of a benchmark
    with Store(path) as store:
        for seed in range(max(1, trials // TRIALS_OF_A_RUN)):
            conditions = Conditions(
                workloads=((NAME, 65536),),
                sources={"scan-lf": "4096b9f819a925c3"},
                device=DeviceIdentity("cuda:0", "GPU", f"GPU-{seed % 64}", "580", "13.0", modelled=False),
                objective="energy",
                policy="random",
                seed=seed,
                clocks="off",
                settings={"energy_precision": 0.01, "window_s": 0.9},
            )
            run = store.begin(conditions)
            texts = [trial_texts(place, dice) for place in range(TRIALS_OF_A_RUN)]
            store.database.write(partial(add, run, texts))
            best = {"configurations": {NAME: {"P": 4}}, "time_s": 1e-3}
            space = {"measured": TRIALS_OF_A_RUN}
            store.end(run, RunStatus.FINISHED, {"best": best, "space": space, "notices": ["x" * 6000]})


def trial_texts(place: int, dice: random.Random) -> tuple[str, str]:
    """A trial and its measurement, as stored."""
    values = {"L": 2 ** (place % 8), "P": place, "S": 8, "blocks": 1, "cap": 0, "r": 2, "shuffle": True}
    joules, watts = dice.random(), 100 * dice.random()
    energy = Energy(joules, joules / 150, watts, "simulated-stream", "gpu", 3.1 * dice.random())
    measurement = Measurement(
        (WorkloadResult(Status.OK, dice.random(), dice.random()),),
        makespan_s=dice.random(),
        makespan_spread_s=dice.random(),
        makespan_uncertainty_s=dice.random(),
        energy=energy,
        rounds=33,
        window_s=dice.random(),
        clock_mhz=998.0,
        check_s=dice.random(),
        energy_total_j=dice.random(),
        ended_s=dice.random(),
        power=("BRSTBdAP0A/QD9AP0A/QD9AP0A/QD6hsmAJGAD1ELiJbBQ==",),
    )
    trial = trial_record(Trial((Configuration(values),)), [NAME])
    return canonical(trial), canonical(measurement_record(measurement))


def add(run: int, texts: Sequence[tuple[str, str]], transaction: Transaction) -> None:
    """Store the trials of a run at once."""
    for number, (trial, measurement) in enumerate(texts, 1):
        at = "2026-01-02T03:04:05.678+00:00"
        row = (run, number, trial, measurement, None, "ok", 1e-3, 0.25, at, transaction.writes())
        transaction.execute_ascii(ADD_TRIAL, (*row, row_checksum("trials", *row)))


if __name__ == "__main__":
    main()
