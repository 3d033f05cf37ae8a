"""Kills those who hold a GPU's clock or power limit at random instants: what is left set afterwards?

On a fake NVML and a fake Jetson: nothing of this machine is read or set, and no GPU is needed. A holder sets
one clock after the other, or one power limit, or both at once, each with a guardian of its own. Holder,
guardians or helper, or all of them, are killed 0 to 1.2 s after the start, so that every step from the first
to the last is hit. In the container scenes, holder and guardian have namespaces of their own and another boot
id, and share the runtime directory with who restores. Looked at is what is set after the next start. Each of
the fifteen scenes takes some four minutes for 200 kills.

    python benchmarks/kill_clocks.py --out benchmarks/results/clock-kills.json
"""

import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from provenance import command_line, provenance, save

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # the fakes

from clock_kills import Outcome, kills, run
from helper_kills import SCENES, unavailable

COLUMNS = (
    "kills",
    "set at the kill",
    "left for the next start",
    "changed after it",
    "journals after it",
)


def main() -> int:
    """Kill, print a table, write what was seen; 1 if anything is left set or in the journal."""
    parser = command_line(__doc__)
    parser.add_argument("--count", type=int, default=200, help="kills of each scene")
    parser.add_argument("--scenes", nargs="*", choices=SCENES, default=list(SCENES))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # of each clock that is restored
    left_out = {name: reason for name in options.scenes if (reason := unavailable(name))}
    for name, reason in left_out.items():
        print(f"{name}: left out: {reason}", file=sys.stderr)
    scenes = [name for name in options.scenes if name not in left_out]
    seen = [outcome for name in scenes for outcome in outcomes(name, options.count, options.seed)]
    rows = summary(seen)
    print(f"{'scene':14} {'killed':18} {'by':18} " + " ".join(COLUMNS))
    for key, numbers in rows.items():
        counts = " ".join(f"{number:>{len(title)}}" for title, number in zip(COLUMNS, numbers, strict=True))
        print(f"{key[0]:14} {key[1]:18} {key[2]:18} {counts}")
    if options.out is not None:
        document = {
            "provenance": provenance(),
            "seed": options.seed,
            "left_out": left_out,
            "rows": [
                dict(zip(("scene", "killed", "by", *COLUMNS), (*key, *numbers), strict=True))
                for key, numbers in rows.items()
            ],
            "failures": [asdict(outcome) for outcome in seen if outcome.changed or outcome.journals],
        }
        save(options.out, document)
    return int(any(outcome.changed or outcome.journals for outcome in seen))


def outcomes(name: str, count: int, seed: int) -> Iterator[Outcome]:
    """Kill so often in one scene."""
    with tempfile.TemporaryDirectory() as folder, SCENES[name](Path(folder)) as scene:
        for kill in kills(scene.roles, count, seed):
            yield run(scene, kill)


def summary(seen: Sequence[Outcome]) -> dict[tuple[str, str, str], tuple[int, ...]]:
    """Counts by scene, victims and signals; the last row is the sum."""
    groups: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in seen:
        kill = outcome.kill
        key = (outcome.scene, " and ".join(kill.victims), " ".join(kill.signals))
        groups.setdefault(key, []).append(outcome)
    groups = dict(sorted(groups.items()))
    groups["all", "", ""] = list(seen)
    return {
        key: (
            len(group),
            sum(outcome.was_set for outcome in group),
            sum(outcome.left_set for outcome in group),
            sum(outcome.changed for outcome in group),
            sum(outcome.journals for outcome in group),
        )
        for key, group in groups.items()
    }


if __name__ == "__main__":
    sys.exit(main())
