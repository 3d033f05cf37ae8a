"""What a round adds to the launches in it, by their length and by the number of workloads.

A kernel of arithmetic on a fifth of the multiprocessors runs alone in one stream, launch behind launch, and
as one, two and three workloads of a round. Together they fit on the GPU without being in each other's way, so
what a round takes longer than a launch is fork, join and timing.

    python benchmarks/round_overhead.py --out benchmarks/results/round-overhead-h200.json [--device 0]
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import cupy as cp
from provenance import provenance

from tuner.devices.cuda.device import CudaDevice
from tuner.model.plan import Buffer, Configuration, Plan, ProblemSpec, Scalar, Source, Stage, Work, Workload

CODE = """
extern "C" __global__ void steps(const float* x, float* y, int count) {
    float value = threadIdx.x;
    for (int i = 0; i < count; ++i) value = value * 1.0001f + 0.5f;
    if (value == 0.25f) y[0] = x[0];  // never, and the compiler cannot know
}
"""
THREADS, PART = 128, 5
LENGTHS_US = (3, 5, 10, 20, 50, 100, 200, 500, 1000)
MOST_WORKLOADS = 3
WINDOW_S, LEAD_S, REPEATS = 0.3, 0.03, 9
ROWS, N = 2**16, 256  # arrays past the L2, so that a rotation is short; the kernel leaves them alone


def main() -> None:
    """Measure, print a table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", type=int, default=0)
    options = parser.parse_args()
    device = CudaDevice(options.device)
    blocks = max(1, device.limits.multiprocessors // PART)
    alone = Alone(blocks)
    per_us = alone.count_per_us()
    sizes = []
    for length_us in LENGTHS_US:
        count = max(1, round((length_us - 2) * per_us))
        launch_s = alone.launch_s(count)
        rounds = [measured(device, count, blocks, workloads) for workloads in range(1, MOST_WORKLOADS + 1)]
        again_s = alone.launch_s(count)
        launch_s = (launch_s + again_s) / 2
        for one in rounds:
            one["overhead_s"] = one["makespan_s"] - launch_s
            one["overhead"] = one["overhead_s"] / launch_s
        sizes.append({"launch_s": launch_s, "rounds": rounds})
        cells = (f"{1e6 * one['overhead_s']:.2f} µs, {100 * one['overhead']:.1f} %" for one in rounds)
        print(f"| {1e6 * launch_s:.4g} µs | {' | '.join(cells)} |", flush=True)
    device.close()
    result = {"provenance": provenance(), "blocks": blocks, "threads": THREADS, "sizes": sizes}
    options.out.write_text(json.dumps(result, indent=1) + "\n")


class Alone:
    """The kernel in one stream, with the host far ahead."""

    def __init__(self, blocks: int) -> None:
        self._function = cp.RawKernel(CODE, "steps")
        self._stream = cp.cuda.Stream(non_blocking=True)
        self._blocks = blocks
        self._array = cp.zeros(1, cp.float32)
        self._lead = 1
        self._lead = round(LEAD_S * 1e6 * self.count_per_us())

    def count_per_us(self) -> float:
        """Passes of the loop in a microsecond."""
        few, many = self.launch_s(10_000), self.launch_s(110_000)
        return 100_000 / (many - few) * 1e-6

    def launch_s(self, count: int) -> float:
        """Time of a launch among many, from events, behind a long one that the host uses to get ahead."""
        launches = 2000 if count < 10_000 else 200
        times = []
        for _ in range(REPEATS):
            begin, end = cp.cuda.Event(block=True), cp.cuda.Event(block=True)
            self._launch(self._lead)
            self._launch(count)
            begin.record(self._stream)
            for _ in range(launches):
                self._launch(count)
            end.record(self._stream)
            end.synchronize()
            times.append(cp.cuda.get_elapsed_time(begin, end) * 1e-3 / launches)
        return statistics.median(times)

    def _launch(self, count: int) -> None:
        arguments = (self._array, self._array, cp.int32(count))
        self._function((self._blocks,), (THREADS,), arguments, stream=self._stream)


def measured(device: CudaDevice, count: int, blocks: int, workloads: int) -> dict[str, Any]:
    """Rounds of so many workloads."""
    record = device.run([plan(str(index), count, blocks) for index in range(workloads)], WINDOW_S)
    if record.makespan_s is None:
        raise SystemExit(f"the rounds failed: {record.results}")
    return {
        "workloads": workloads,
        "makespan_s": record.makespan_s,
        "makespan_uncertainty_s": record.makespan_uncertainty_s,
        "mean_round_s": (record.end_s - record.start_s) / record.rounds,
        "flags": [str(flag) for flag in record.flags],
    }


def plan(name: str, count: int, blocks: int) -> Plan:
    """The kernel as a workload."""
    stage = Stage(
        name="steps",
        source=Source("steps.cu", CODE),
        entry="steps",
        options=(),
        grid=(blocks, 1, 1),
        block=(THREADS, 1, 1),
        shared_bytes=0,
        arguments=("x", "y", Scalar("int32", count)),
    )
    return Plan(
        Workload(f"steps-{name}", (("N", N),), ROWS),
        Configuration({"count": count}),
        (stage,),
        (Buffer("x", "float32", (ROWS, N), "in"), Buffer("y", "float32", (ROWS, N), "out")),
        ProblemSpec("expression", reference=(("y", "x"),)),
        Work(8.0 * ROWS * N, float(count)),
    )


if __name__ == "__main__":
    main()
