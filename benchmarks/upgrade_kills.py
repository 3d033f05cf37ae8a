"""Kills upgrades of the service: is the old or the new program in force then, and is a job lost?

A throw-away machine with a real systemd, as root. Each upgrade is to a version that migrates the database,
one in three to one that is never ready besides, and is killed -9 at a random instant after its first step.
Clients submit jobs meanwhile. What answers then must be the old or the new version, with a database of its
own; a second call must end in the new one, or in the old one where the new one is never ready; no
acknowledged job may be lost.

    python benchmarks/upgrade_kills.py --count 50 --out benchmarks/results/upgrade-kills.json
"""

import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from provenance import command_line, provenance, save

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from daemon_site import with_service
from upgrade_kills import back_to_old, kill_once, programs

LONGEST_S = 20.0  # an upgrade and its way back


def main() -> int:
    """Kill so many, print a line each, write them; 1 if one was not as it must be."""
    parser = command_line(__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=float, default=LONGEST_S, help="latest instant of a kill, s")
    options = parser.parse_args()
    rng, kills = random.Random(options.seed), []  # noqa: S311 - no secrets
    begun_s = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        site = stack.enter_context(with_service(folder))
        programs(site)
        for number in range(1, options.count + 1):
            back_to_old(site)
            kill = kill_once(site, rng, options.longest)
            kills.append(kill)
            print(f"{number:>3} {kill}", flush=True)
            found = {
                "count": number,
                "ended_before_the_kill": sum(one["ended_before"] for one in kills),
                "acknowledged_jobs": sum(one["acknowledged"] for one in kills),
                "faults": [one for one in kills if one["fault"]],
                "kills": kills,
                "seconds": round(time.monotonic() - begun_s, 1),
            }
            save(options.out, {"provenance": provenance(), "seed": options.seed, **found})
    return int(any(one["fault"] for one in kills))


if __name__ == "__main__":
    sys.exit(main())
