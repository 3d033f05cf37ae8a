"""Breaks what a daemon stands on while it tunes, at random instants: what is lost, stuck or left changed?

A real daemon with real job, worker and guardian processes, on a modelled GPU and on one that lives in a fake
NVML with clocks that are set: no clock of this machine is read or set, and no GPU is needed. Each round
submits some searches; while they run it breaks a few things one after the other, puts each right, and starts
the daemon again where it died; then it waits until all jobs have ended, and looks. The same seed plans the
same faults, jobs and instants.

    python benchmarks/daemon_faults.py --out benchmarks/results/daemon-faults.json
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from provenance import command_line, provenance, save

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # the fakes

from daemon_breaking import FAULTS, plan
from daemon_scene import Scene
from daemon_trial import Outcome, Trial

COLUMNS = (
    *("tried", "met its aim", "trials lost", "measured twice", "jobs stuck", "clocks left"),
    *("orphans, zombies", "unanswered", "daemon died"),
)


def main() -> int:
    """Break, print a table, write what was seen; 1 if anything was lost."""
    parser = command_line(__doc__)
    parser.add_argument("--count", type=int, default=500, help="faults")
    parser.add_argument("--kinds", nargs="*", choices=tuple(FAULTS), default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--together", type=int, default=4, help="faults while the same jobs run")
    parser.add_argument("--verbose", action="store_true", help="a line for every fault")
    parser.add_argument("--log", type=Path, help="where the log of the daemon is kept")
    options = parser.parse_args()
    begun_s = time.monotonic()
    seen, starts, stored = outcomes(options)
    rows = summary(seen)
    print(f"{'fault':20} " + " ".join(COLUMNS))
    for kind, numbers in rows.items():
        counts = " ".join(f"{number:>{len(title)}}" for title, number in zip(COLUMNS, numbers, strict=True))
        print(f"{kind:20} {counts}")
    took_s = time.monotonic() - begun_s
    print(f"{stored} trials stored, {starts} starts of the daemon, {took_s:.0f} s")
    if options.out is not None:
        document = {
            "provenance": provenance(),
            "seed": options.seed,
            "seconds": round(took_s, 1),
            "trials_stored": stored,
            "starts": starts,
            "rows": [
                {"fault": kind, **dict(zip(COLUMNS, numbers, strict=True))} for kind, numbers in rows.items()
            ],
            "failures": [
                {**vars(outcome), "endings": dict(outcome.endings)} for outcome in seen if not outcome.clean
            ],
        }
        save(options.out, document)
    return int(not all(outcome.clean for outcome in seen))


def outcomes(options: argparse.Namespace) -> tuple[list[Outcome], int, int]:
    """What each fault cost; how often the daemon was started; how many trials were stored in the end."""
    rng = random.Random(options.seed)  # noqa: S311 - no secrets
    seen: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder, Scene(Path(folder), disk=True) as scene:
        scene.start()
        trial = Trial(scene, rng)
        planned = plan(options.count, options.seed, tuple(options.kinds))
        try:
            while len(seen) < len(planned):
                done = trial.round(planned[len(seen) : len(seen) + options.together])
                seen += done
                if options.verbose:
                    print(*map(_line, done), sep="\n", flush=True)
        finally:
            if options.log is not None:
                options.log.write_bytes(scene.log.read_bytes())
        return seen, scene.starts, len(scene.trials())


def _line(outcome: Outcome) -> str:
    """An outcome in words: what is not as it should be."""
    told = {
        name: value
        for name, value in vars(outcome).items()
        if value and name not in ("fault", "seconds", "endings")
    }
    told["endings"] = dict(outcome.endings)
    return f"{outcome.fault} {outcome.seconds:.1f} s {told}"


def summary(seen: Sequence[Outcome]) -> dict[str, tuple[int, ...]]:
    """Counts by kind; the last row is the sum."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in seen:
        groups.setdefault(outcome.fault, []).append(outcome)
    groups = dict(sorted(groups.items()))
    groups["all"] = list(seen)
    return {
        kind: (
            len(group),
            sum(outcome.hit for outcome in group),
            sum(outcome.lost for outcome in group),
            sum(outcome.twice for outcome in group),
            sum(outcome.stuck for outcome in group),
            sum(outcome.clock_set for outcome in group),
            sum(len(outcome.left) for outcome in group),
            sum(len(outcome.unanswered) for outcome in group),
            sum(outcome.died for outcome in group),
        )
        for kind, group in groups.items()
    }


if __name__ == "__main__":
    sys.exit(main())
