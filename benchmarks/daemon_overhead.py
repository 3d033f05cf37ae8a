"""Runs work on a GPU, alone and beside a daemon that has jobs waiting: what does the work lose?

A process of its own is the machine's work: on a real GPU it multiplies matrices in a loop and counts rounds;
on a modelled one it is there, and has its even share. Blocks with the daemon and without it alternate. The
daemon has long jobs in its queue and may tune whenever the GPU is free, as it is for a moment before each
block; what counts is the rate while both are there, and how long the daemon's own process is still on the GPU
after the work came.

    python benchmarks/daemon_overhead.py --device cuda:0 --out benchmarks/results/daemon-overhead-h200.json
    python benchmarks/daemon_overhead.py --device sim:jetson-tx1
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from provenance import provenance

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from daemon_scene import Scene

PROMISED_LOSS = 0.01
PROMISED_AWAY_S = 1.0
_WORKLOAD = "scan-lf:N=1024"
_SETTLE_S = 3.0  # of work before its rate counts: clocks and temperature
_PATIENCE_S = 120.0
_SETTINGS = """
[online]
refine = false
sample_every_hours = 0
retune_stale = false
"""
# Says when the first round has ended, then each tenth of a second how many have.
_REAL = """
import sys, time
import cupy
side = 2048
a, b = cupy.random.rand(side, side, dtype="float32"), cupy.random.rand(side, side, dtype="float32")
c = cupy.empty_like(a)
rounds, told_s = 0, 0.0
while True:
    cupy.matmul(a, b, out=c)
    cupy.cuda.get_current_stream().synchronize()
    rounds += 1
    now_s = time.monotonic()
    if now_s - told_s >= 0.1:
        told_s = now_s
        print(now_s, rounds, flush=True)
"""
# Those on a modelled GPU share it evenly: a round is a second of it.
_MODELLED = """
import sys, time
from tuner.devices.gpu_users import Occupant, present
gpu = sys.argv[1]
Occupant(gpu).enter()
rounds, before_s = 0.0, time.monotonic()
while True:
    time.sleep(0.02)
    now_s = time.monotonic()
    rounds, before_s = rounds + (now_s - before_s) / max(1, len(present(gpu))), now_s
    print(now_s, rounds, flush=True)
"""


def main() -> int:
    """Measure, print a table, write it; 1 if what is promised was not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="sim:jetson-tx1")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--blocks", type=int, default=6, help="of each kind")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each block")
    options = parser.parse_args()
    blocks = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.blocks):
            place = Path(folder) / str(number)
            place.mkdir()
            pair = [
                alone(options.device, place, options.seconds),
                beside(options.device, place, options.seconds),
            ]
            blocks += pair
            print(*map(_line, pair), sep="\n", flush=True)
    found = {"modelled": options.device.startswith("sim:"), **summary(blocks)}
    print(_told(found))
    if options.out is not None:
        document = {"provenance": provenance(), "device": options.device, **found, "blocks": blocks}
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    return int(not kept_promises(found))


def alone(device: str, folder: Path, seconds: float) -> dict[str, Any]:
    """A block without a daemon."""
    with working(device, folder) as work:
        return {"daemon": False, **_rate(work, seconds)}


def beside(device: str, folder: Path, seconds: float) -> dict[str, Any]:
    """A block with a daemon that was tuning when the work came, and has jobs waiting from then on."""
    played = folder / "daemon"
    played.mkdir()
    with Scene(played, devices=(device,), settings=_SETTINGS, bare=True) as scene:
        scene.start()
        client = scene.client()
        for seed in range(3):
            client.submit(_WORKLOAD, device=device, policy="exhaustive", seed=seed)
        if not scene.until(lambda: any(job.trials for job in client.jobs(("running",))), _PATIENCE_S):
            raise RuntimeError(f"no job measures: {scene.log.read_text(errors='replace')[-2000:]}")
        with working(device, folder / "daemon") as work:
            came_s = _first(work)
            scene.until(lambda: not scene.processes("runner"), _PATIENCE_S)
            away_s = time.monotonic() - came_s
            rate = _rate(work, seconds)
            waiting = sum(job.state == "queued" for job in client.jobs())
            returned = bool(scene.processes("runner"))
        return {"daemon": True, "away_s": away_s, "waiting": waiting, "returned": returned, **rate}


@contextmanager
def working(device: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """The machine's own work, in a process."""
    code = _MODELLED if device.startswith("sim:") else _REAL
    environment = {**os.environ, "TUNER_SIMULATED_GPUS": str(folder / "gpus")}
    index = device.partition(":")[2]
    if not device.startswith("sim:"):
        environment["CUDA_VISIBLE_DEVICES"] = index or "0"
    command = [sys.executable, "-c", code, device]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as work:
        try:
            yield work
        finally:
            work.send_signal(signal.SIGKILL)


def _first(work: "subprocess.Popen[str]") -> float:
    """When the work began to compute."""
    return _next(work)[0]


def _rate(work: "subprocess.Popen[str]", seconds: float) -> dict[str, float]:
    """Rounds per second over so many seconds, after some in which clocks and temperature settle."""
    settled_s = time.monotonic() + _SETTLE_S
    begun = _next(work)
    while begun[0] < settled_s:
        begun = _next(work)
    last = begun
    while last[0] - begun[0] < seconds:
        last = _next(work)
    return {"rounds_per_s": (last[1] - begun[1]) / (last[0] - begun[0])}


def _next(work: "subprocess.Popen[str]") -> tuple[float, float]:
    if work.stdout is None or not (line := work.stdout.readline()):
        raise RuntimeError("the work has ended; does CuPy find a GPU?")
    at_s, rounds = line.split()
    return float(at_s), float(rounds)


def summary(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians and spreads of both kinds of block, and what the work loses."""
    rates = {
        name: [block["rounds_per_s"] for block in blocks if block["daemon"] is there]
        for name, there in (("alone", False), ("beside", True))
    }
    medians = {name: statistics.median(values) for name, values in rates.items()}
    pairs = [1.0 - beside / alone for alone, beside in zip(rates["alone"], rates["beside"], strict=True)]
    away_s = [block["away_s"] for block in blocks if block["daemon"]]
    return {
        "median_rounds_per_s": medians,
        "spread": {name: (max(values) - min(values)) / medians[name] for name, values in rates.items()},
        "loss": statistics.median(pairs),
        "losses": pairs,
        "away_s": {"median": statistics.median(away_s), "longest": max(away_s)},
        "returned": sum(block.get("returned", False) for block in blocks),
        "waiting": [block["waiting"] for block in blocks if block["daemon"]],
    }


def kept_promises(found: Mapping[str, Any]) -> bool:
    """Whether the work lost less than promised, and had its GPU back in time."""
    return (
        found["loss"] < PROMISED_LOSS
        and found["away_s"]["longest"] < PROMISED_AWAY_S
        and not found["returned"]
        and all(found["waiting"])
    )


def _line(block: Mapping[str, Any]) -> str:
    if not block["daemon"]:
        return f"alone:  {block['rounds_per_s']:.2f} rounds/s"
    return (
        f"beside: {block['rounds_per_s']:.2f} rounds/s, {block['waiting']} jobs waiting;"
        f" the daemon was off the GPU after {1e3 * block['away_s']:.0f} ms"
    )


def _told(found: Mapping[str, Any]) -> str:
    rates, spread, away_s = found["median_rounds_per_s"], found["spread"], found["away_s"]
    one, two = (f"{rates[name]:.2f} (spread {100 * spread[name]:.2f} %)" for name in ("alone", "beside"))
    median_ms, longest_ms = 1e3 * away_s["median"], 1e3 * away_s["longest"]
    label = "modelled: " if found["modelled"] else ""
    return (
        f"{label}alone {one} rounds/s, beside {two}: loses {100 * found['loss']:.2f} %;\n"
        f"the daemon is off the GPU after {median_ms:.0f} ms, {longest_ms:.0f} ms at most;"
        f" it came back too early {found['returned']} times"
    )


if __name__ == "__main__":
    sys.exit(main())
