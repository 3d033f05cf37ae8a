"""Damages the files of a database in every way and reads it by the real code: is anything wrong, or lost?

A database with runs, trials, jobs in all states, events, samples and counts is written by the real code;
once with all transactions in the files, once with the last ones only in the logs. Each time bits, bytes
or pages of the database, its mirror, both at different places or both alike are changed, cut off,
removed or replaced by an older copy. Then check, start of the daemon, `tuner history` and repair read
what is left, in any order.

Nothing may be served that was never stored; no start may fail; no exception may be another than this
program's; and every row whose bytes are unchanged in one copy must be served. Where they are is found by
a reader of SQLite's format of the benchmark's own.

    python benchmarks/damage.py --count 1000 --seed 1 --out benchmarks/results/damage.json
"""

import argparse
import logging
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from provenance import command_line, provenance, save

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # the scene

from damage_files import KINDS, TARGETS
from damage_scene import Outcome, attempt, scene

TOTALS = {
    "damages": lambda _: 1,
    "silently wrong": lambda one: bool(one.wrong),
    "refused starts": lambda one: bool(one.refused),
    "tracebacks": lambda one: bool(one.traceback),
    "rows one copy had, not served": lambda one: len(one.lost),
    "check changed a file": lambda one: one.changed,
    "check missed": lambda one: one.missed,
    "with a repair": lambda one: bool(one.repaired),
    "rows isolated": lambda one: one.isolated,
    "rows in an earlier state, told": lambda one: one.earlier,
    "rows rolled back with both logs": lambda one: one.rolled_back,
}


def main() -> int:
    """Damage, print a table, write what was seen; 1 if a target is missed."""
    parser = command_line(__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=1, help="so many times as many rows")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--targets", nargs="*", choices=TARGETS, default=list(TARGETS))
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    begun_s, seen = time.monotonic(), list[Outcome]()
    stopping: list[int] = []  # Ctrl-C counts between two damages: commands take one for an answer
    signal.signal(signal.SIGINT, lambda number, _: stopping.append(number))
    _damage(options, seen, stopping)
    if stopping:
        print(f"interrupted after {len(seen)} of {options.count}")
    _print(seen)
    failures = [(number, one) for number, one in enumerate(seen) if one.bad]
    if options.out is not None:
        document = {
            "provenance": provenance(),
            "seed": options.seed,
            "seconds": round(time.monotonic() - begun_s, 1),
            "totals": _totals(seen),
            "by_kind": {kind: _totals([one for one in seen if one.kind == kind]) for kind in options.kinds},
            "by_target": {
                target: _totals([one for one in seen if one.target == target]) for target in options.targets
            },
            "failures": [{"number": number, **asdict(one)} for number, one in failures],
        }
        save(options.out, document)
    return int(bool(failures) or len(seen) < options.count)


def _damage(options: argparse.Namespace, seen: list[Outcome], stopping: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scenes = [scene(folder / f"scene-{logs}", logs=logs, size=options.size) for logs in (False, True)]
        for number in range(options.count):
            if stopping:
                return
            rng = random.Random(f"{options.seed} {number}")  # noqa: S311 - no secrets
            kind, target = rng.choice(options.kinds), rng.choice(options.targets)
            one = attempt(scenes[number % 2], folder / "damaged", rng, kind, target)
            shutil.rmtree(folder / "damaged")
            seen.append(one)
            if one.bad or one.missed:
                what = (one.traceback or one.refused or "; ".join([*one.wrong, *one.lost]) or "missed")[-400:]
                logs = "with logs" if one.logs else "without logs"
                print(f"{number}: {one.kind} of {one.target} {logs}: {what}", flush=True)


def _totals(seen: Sequence[Outcome]) -> dict[str, int]:
    return {name: sum(int(count(one)) for one in seen) for name, count in TOTALS.items()}


def _print(seen: Sequence[Outcome]) -> None:
    groups: dict[str, Any] = {kind: [one for one in seen if one.kind == kind] for kind in KINDS}
    groups |= {f"of {target}": [one for one in seen if one.target == target] for target in TARGETS}
    groups["all"] = seen
    for name in TOTALS:
        print(f"{name:34}", *(f"{_totals(group)[name]:>7}" for group in groups.values()))
    print(f"{'':34}", *(f"{name[:7]:>7}" for name in groups))
    print(Counter(f"{one.kind} of {one.target}" for one in seen if one.bad) or "no target is missed")


if __name__ == "__main__":
    sys.exit(main())
