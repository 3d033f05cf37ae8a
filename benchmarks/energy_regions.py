"""What entering and leaving a region of ``tuner.energy`` takes of the calling thread, in microseconds.

On a simulated H200 and on a fake NVML with two GPUs (real pynvml, no GPU needed), with fake powercap zones
for the host's scope. Each row enters and leaves many regions: one after the other, a hundred inside of each
other, from four threads, and after a pause, when the recording has ended and begins anew. A region is asked
for its energy once a second, as a program would. The thread of the recording runs meanwhile, and its
interruptions count. The CPU of the recording is that of this process while one region is open and nothing
else runs.

    python benchmarks/energy_regions.py --out benchmarks/results/energy-regions.json
"""

import argparse
import contextlib
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance, save

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # the fakes

from fake_nvml_state import SECOND_UUID, UUID, fake_nvml, script, sensors_of_h200
from powercap_trees import build, played
from tuner.power.sensors import powercap

import tuner
from tuner.joules import EnergyMeter
from tuner.joules import recording as process

PAUSE_S = 1.0  # after which a recording has ended
NESTED, THREADS = 100, 4
HOST_W = {"package-0": 80.0, "dram": 12.0}


class Times:
    """How long regions took to enter and to leave, in seconds."""

    def __init__(self) -> None:
        self.entering_s: list[float] = []
        self.leaving_s: list[float] = []

    def enter(self, meter: AbstractContextManager[Any]) -> None:
        """Enter a region."""
        begin_s = time.perf_counter()
        meter.__enter__()
        self.entering_s.append(time.perf_counter() - begin_s)

    def leave(self, meter: AbstractContextManager[Any]) -> None:
        """Leave it."""
        begin_s = time.perf_counter()
        meter.__exit__(None, None, None)
        self.leaving_s.append(time.perf_counter() - begin_s)

    def row(self) -> dict[str, float]:
        """Median, 99 % and maximum in microseconds."""
        found: dict[str, float] = {"regions": len(self.entering_s)}
        for what, seconds in (("entering", self.entering_s), ("leaving", self.leaving_s)):
            microseconds = 1e6 * np.array(seconds)
            found |= {
                f"{what}_median_us": float(np.median(microseconds)),
                f"{what}_99_us": float(np.percentile(microseconds, 99)),
                f"{what}_most_us": float(microseconds.max()),
            }
        return found


def one_by_one(meter: EnergyMeter, times: Times, count: int) -> None:
    """Regions one after the other, with a short pause, and one result a second."""
    asked_s = time.monotonic()
    for _ in range(count):
        times.enter(meter)
        times.leave(meter)
        time.sleep(0.0005)
        if time.monotonic() - asked_s > 1.0:
            with meter as region:
                time.sleep(0.001)
            region.result()
            asked_s = time.monotonic()


def nested(meter: EnergyMeter, times: Times, count: int) -> None:
    """A hundred regions inside of each other, again and again."""
    for _ in range(count // NESTED):
        for _ in range(NESTED):
            times.enter(meter)
        time.sleep(0.005)
        for _ in range(NESTED):
            times.leave(meter)


def threads(meter: EnergyMeter, times: Times, count: int) -> None:
    """Four threads, each with regions of its own."""
    own = [Times() for _ in range(THREADS)]
    started = [threading.Thread(target=one_by_one, args=(meter, one, count // THREADS)) for one in own]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    for one in own:
        times.entering_s += one.entering_s
        times.leaving_s += one.leaving_s


def after_pauses(meter: EnergyMeter, times: Times, count: int) -> None:
    """Regions that begin when the recording has ended, and the processor's caches hold other things."""
    for _ in range(max(5, count // 500)):
        time.sleep(PAUSE_S)
        times.enter(meter)
        times.leave(meter)


def empty_after_pauses(count: int) -> Times:
    """The same with blocks that do nothing: what a pause costs by itself."""
    times, empty = Times(), contextlib.nullcontext()
    for _ in range(max(5, count // 500)):
        time.sleep(PAUSE_S)
        times.enter(empty)
        times.leave(empty)
    return times


PATTERNS = {
    "one by one": one_by_one,
    "100 nested": nested,
    "4 threads": threads,
    "after a pause": after_pauses,
}


def recording_cpu(meter: EnergyMeter, seconds: float = 3.0) -> float:
    """CPU time of this process while a region is open, in cores."""
    with meter:
        time.sleep(1.0)  # until the rhythm of a counter is known
        begin_s = time.process_time()
        time.sleep(seconds)
        return (time.process_time() - begin_s) / seconds


@contextmanager
def scenes() -> Iterator[dict[str, dict[str, Any]]]:
    """What is measured, by its name: arguments of ``tuner.energy``."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        state = stack.enter_context(fake_nvml(Path(folder)))
        stack.callback(process.REGISTRY.close)
        state.gpu_count = 2
        for gpu, watts in ((state.first, 400.0), (state.second, 200.0)):
            script(gpu, (0.0, watts))
            sensors_of_h200(gpu)
        powercap.ROOT = str(build(Path(folder) / "sys"))
        powercap.SysfsAttribute = played(HOST_W, time.monotonic)
        yield {
            "simulated H200": {"device": "sim:h200"},
            "NVML": {"device": UUID},
            "NVML, two GPUs": {"device": [UUID, SECOND_UUID]},
            "NVML and host": {"scope": "gpu+cpu", "device": UUID},
        }


def print_row(rows: list[dict[str, Any]], scene: str, pattern: str, times: Times, cpu: float) -> None:
    """Keep a row, and print it."""
    row = {"device": scene, "pattern": pattern, "recording_cpu": cpu, **times.row()}
    rows.append(row)
    figures = [
        f"{row[f'{what}_{which}_us']:.1f} µs"
        for what in ("entering", "leaving")
        for which in ("median", "99")
    ]
    print(f"| {scene} | {pattern} | {' | '.join(figures)} | {cpu:.1%} |", flush=True)


def main() -> None:
    """Measure, print the table, write what was seen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--regions", type=int, default=10_000, help="of each pattern")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.regions < NESTED:
        parser.error(f"--regions: {NESTED} or more, which are inside of each other")
    rows: list[dict[str, Any]] = []
    print("| device | regions | entering, median | 99 % | leaving, median | 99 % | recording, of a core |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print_row(rows, "an empty block", "after a pause", empty_after_pauses(options.regions), 0.0)
    with scenes() as found:
        for scene, arguments in found.items():
            meter = tuner.energy(**arguments)
            cpu = recording_cpu(meter)
            for pattern, play in PATTERNS.items():
                times = Times()
                play(meter, times, options.regions)
                print_row(rows, scene, pattern, times, cpu)
    save(options.out, {"provenance": provenance(), "rows": rows})


if __name__ == "__main__":
    main()
