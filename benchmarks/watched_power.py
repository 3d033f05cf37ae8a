"""Does watching the power of a GPU, as ``GET /v1/power`` has it sampled, change the joules of trials?

Windows of one configuration of a scan are measured in blocks of eight: two not watched, four watched, two
not watched, so that a steady drift cancels within a block. While a window is watched, the daemon's own
``PowerWatch`` samples the GPU once a second from a child process: energy counter, clock, temperature and
processes. Windows take twice their usual time, so that at least one sample falls into each; between two
windows of different kinds the watch has two seconds to begin or to end. Stated is the mean ratio of watched
to unwatched joules per round over all blocks, with its 95 % interval (of the blocks' scatter), and the same
for the time of a round. Less than 0.1 % is wanted.

Takes nine minutes on an H200 and sets nothing. On a simulated device, of which nothing is sampled, it shows
that the script works:

    python benchmarks/watched_power.py [--device cuda:0] [--blocks 30]
        [--out benchmarks/results/watched-power-h200.json]
"""

import argparse
import asyncio
import contextlib
import json
import math
import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from energy_windows import Tools, measured, plans_of, tools_of, warmed
from provenance import provenance

from tuner.daemon.power_watch import PowerWatch
from tuner.model.errors import InputError
from tuner.model.jobs import DeviceIdentity
from tuner.model.plan import Plan
from tuner.model.trial import student_factor

BLOCK = (False, False, True, True, True, True, False, False)
WINDOW_S = 1.6
SETTLE_S = 2.0  # for the child of the watch to start, or to end
PATIENCE_S = 30.0
TRIES = 5  # of a window in which the sensor had a gap
COVERAGE = 1.96


class Watcher:
    """The daemon's watch in a loop of its own, as the daemon has it.

    Args:
        identity: of the device.
    """

    def __init__(self, identity: DeviceIdentity) -> None:
        self.samples: list[Mapping[str, Any]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._watch = PowerWatch(lambda: {identity.spec: identity}, lambda _: True, self.samples.append)
        self._watching: contextlib.AbstractContextManager[None] | None = None

    def set(self, *, watching: bool) -> None:
        """Begin or end to watch, and wait until that has settled; nothing where it is so already."""
        if watching == (self._watching is not None):
            return
        asyncio.run_coroutine_threadsafe(self._change(watching=watching), self._loop).result(PATIENCE_S)
        time.sleep(SETTLE_S)

    async def _change(self, *, watching: bool) -> None:
        if watching:
            self._watching = self._watch.watching()
            self._watching.__enter__()
        elif self._watching is not None:
            self._watching.__exit__(None, None, None)
            self._watching = None

    def close(self) -> None:
        """End to watch."""
        self._loop.call_soon_threadsafe(self._watch.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)


@contextlib.contextmanager
def watcher(identity: DeviceIdentity) -> Iterator[Watcher]:
    """A watcher, ended with the block."""
    made = Watcher(identity)
    try:
        yield made
    finally:
        made.close()


def blocks(spec: str, count: int) -> tuple[list[list[dict[str, Any]]], int]:
    """Windows of each block, in the order of ``BLOCK``; and how many samples were taken meanwhile."""
    found = []
    with tools_of(spec) as tools, watcher(tools.sensors.device.identity) as watch:
        plan = plans_of(tools.sensors.device)[0]
        warmed(tools, plan)
        for number in range(count):
            block = []
            for watching in BLOCK:
                watch.set(watching=watching)
                block.append(without_gap(tools, plan, watching=watching))
            found.append(block)
            print(f"\rblock {number + 1} of {count}, {len(watch.samples)} samples", end="", flush=True)
        print()
        return found, len(watch.samples)


def without_gap(tools: Tools, plan: Plan, *, watching: bool) -> dict[str, Any]:
    """One window, measured again where the sensor had a gap; with the gaps that came before it.

    Raises:
        InputError: the sensor had a gap in every try.
    """
    gaps: list[str] = []
    while True:
        try:
            found = measured(tools, plan, WINDOW_S)
        except InputError as error:  # noqa: PERF203 - a window takes a second
            gaps.append(str(error))
            if len(gaps) == TRIES:
                raise
        else:
            return {**found, "watched": watching, "gaps": gaps}


def ratio(found: list[list[dict[str, Any]]], name: str) -> tuple[float, float]:
    """Mean of watched to unwatched over the blocks less one, and half of its 95 % interval."""
    ratios = [
        sum(one[name] for one in block if one["watched"])
        / sum(one[name] for one in block if not one["watched"])
        for block in found
    ]
    deviation = statistics.stdev(ratios) if len(ratios) > 1 else math.inf
    half = COVERAGE * student_factor(len(ratios) - 1) * deviation / math.sqrt(len(ratios))
    return statistics.fmean(ratios) - 1.0, half


def main() -> None:
    """Measure, print the ratios, and write all windows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cuda:0", metavar="SPEC")
    parser.add_argument("--blocks", type=int, default=30, help="of eight windows")
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args()
    found, samples = blocks(options.device, options.blocks)
    changes = {}
    for name, label in (("joules", "energy of a round"), ("median_round_s", "time of a round")):
        changes[name], half = ratio(found, name)
        changes[f"{name}_interval"] = half
        print(f"{label}, watched against not: {100 * changes[name]:+.3f} % ± {100 * half:.3f} % (95 %)")
    again = sum(len(window["gaps"]) for block in found for window in block)
    print(f"{again} windows were measured again, as the sensor had gaps in them")
    if options.out is not None:
        document = {**provenance(), "device": options.device, "samples": samples, "changes": changes}
        options.out.write_text(json.dumps({**document, "blocks": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
