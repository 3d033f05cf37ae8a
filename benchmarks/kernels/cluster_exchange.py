"""What binds the cluster form of ``fft-large``: its pieces alone and together, on one GPU with clusters.

For every way to share N = 2^14 ... 2^18 points among the blocks of a cluster:

- launches over 2^26 points, each with one thing more than the one before: loads and stores without clusters
  and with them, two meetings of the cluster, the exchange by each kind of remote store, the exchanges within
  blocks, the arithmetic. The exchange without the rest is the most that a cluster form with these loads and
  stores could reach. They go with bare kernels of peers.py, which only copy, into interleaved rounds with a
  cold L2; the first half of the rounds chooses, the second half is reported;
- exchanges of blocks that stay, 1 or 4 problems between two meetings: GB/s of what goes to other blocks, over
  the whole GPU, and the time of 2^26 points at that rate;
- meetings alone, with and without the order of memory (arrive.release and arrive.relaxed).

Everything that is timed is checked first. ``--counters`` has Nsight Compute (``ncu``) read the hardware
counters of the recorded answers of fft-large instead; it needs the permission to read them.

    python benchmarks/kernels/cluster_exchange.py --out benchmarks/results/cluster-exchange-h200.json
    python benchmarks/kernels/cluster_exchange.py --counters \
        --out benchmarks/results/cluster-counters-h200.json
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from bare import bare
from cluster_counters import counters
from cluster_parts import (
    FORMS,
    POINTS,
    SENDS,
    SHAPES,
    Form,
    Shape,
    exchange_alone,
    has_exchanged,
    is_right,
    meet_alone,
    pieces,
)
from cluster_tables import bound_lines, bounds, recorded_answers, recorded_on, shape_lines
from cold_timing import copy_bandwidth, median, spread
from provenance import provenance
from sweep import Bench, opened

from tuner.compiler.compiler import CompiledStage
from tuner.devices.cuda.launches import Launch
from tuner.model.errors import TunerError
from tuner.model.plan import Plan

ROUNDS = 22
REPEATS = 9  # of launches of blocks that stay
SHORT, LONG = 500, 2500  # rounds of blocks that stay; the difference has neither launch nor end


class Probe:
    """The arrays of all launches, and the pieces on them."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        rng = bench.cp.random.default_rng(1)
        self.x = rng.standard_normal(2 * POINTS, dtype=bench.cp.float32).view(bench.cp.complex64)
        self.y = bench.cp.empty_like(self.x)

    def compiled(self, shape: Shape) -> None:
        """Compile all that is measured of a shape at once; what spills is told."""
        plans = [piece.plan for piece in pieces(shape)]
        plans += [exchange_alone(shape, form, sends, 1) for form in FORMS for sends in SENDS]
        plans += [meet_alone(shape, 1, in_order=in_order) for in_order in (True, False)]
        stages = [stage for plan in plans for stage in plan.stages]
        for stage, made in zip(stages, self.bench.compiler.compile(stages), strict=True):
            if isinstance(made, CompiledStage) and made.resources.local_bytes:
                print(f"  {stage.entry} spills {made.resources.local_bytes} bytes", flush=True)

    def launch(self, plan: Plan) -> Launch:
        """The one launch of a plan."""
        (launch,) = self.bench.code.launches(plan, {"x": self.x, "y": self.y})
        return cast("Launch", launch)

    def poison(self) -> None:
        """Fill the output with NaN."""
        self.y.view(self.bench.cp.uint8).fill(0xFF)


def ladder(probe: Probe, shape: Shape) -> list[dict[str, Any]]:
    """Milliseconds of every piece over 2^26 points, and the fastest bare kernel."""
    bench, rows = probe.bench, (POINTS // shape.n, shape.n)
    stream, found = bench.cp.cuda.get_current_stream(), {}
    wrong = []
    for piece in pieces(shape):
        launch = probe.launch(piece.plan)
        probe.poison()
        launch.enqueue(stream)
        if not is_right(bench.cp, piece, probe.x.reshape(rows), probe.y.reshape(rows)):
            wrong.append(piece.name)
        found[piece.name] = lambda launch=launch: launch.enqueue(stream)
    copies = bare(bench.cp, "fft", (probe.x,), probe.y)
    tried = {name: median([bench.timer.once(run) for _ in range(5)]) for name, run in copies.items()}
    copy = min(tried, key=lambda name: tried[name])
    times = bench.timer.interleaved({"copy": copies[copy], **found}, ROUNDS, seed=shape.n)
    half = ROUNDS // 2
    copy_ms = median(times["copy"][half:])
    return [
        {
            "piece": name,
            "chosen_ms": median(some[:half]),
            "ms": median(some[half:]),
            "spread_ms": spread(some[half:]),
            "of_copy": copy_ms / median(some[half:]),
            "correct": name not in wrong,
        }
        for name, some in times.items()
    ]


def round_ms(probe: Probe, short: Launch, long: Launch) -> tuple[float, float]:
    """Milliseconds of a round of blocks that stay, and their spread."""
    stream = probe.bench.cp.cuda.get_current_stream()
    runs = {name: lambda one=one: one.enqueue(stream) for name, one in (("short", short), ("long", long))}
    times = probe.bench.timer.interleaved(runs, REPEATS)
    rounds = LONG - SHORT
    differences = [(slow - quick) / rounds for slow, quick in zip(times["long"], times["short"], strict=True)]
    return median(differences), spread(differences)


def exchange(probe: Probe, shape: Shape, form: Form, sends: int) -> dict[str, Any]:
    """The rate at which blocks send points to others, and nothing else."""
    short, long = (probe.launch(exchange_alone(shape, form, sends, rounds)) for rounds in (SHORT, LONG))
    probe.poison()
    short.enqueue(None)
    clusters = short.grid[0] // shape.b
    correct = has_exchanged(probe.bench.cp, shape, clusters, probe.y)
    ms, spread_ms = round_ms(probe, short, long)
    points = clusters * shape.n * sends
    remote_bytes = 8 * points * (shape.b - 1) / shape.b
    return {
        "store_bytes": form.store_bytes,
        "counted": form.counted,
        "sends": sends,
        "clusters": clusters,
        "round_us": 1e3 * ms,
        "spread_us": 1e3 * spread_ms,
        "remote_gb_s": remote_bytes / ms / 1e6,
        "all_points_ms": ms * POINTS / points,
        "correct": correct,
    }


def meeting(probe: Probe, shape: Shape, *, in_order: bool) -> dict[str, Any]:
    """The time of one meeting, all blocks that the GPU holds meeting at once."""
    short, long = (probe.launch(meet_alone(shape, rounds, in_order=in_order)) for rounds in (SHORT, LONG))
    probe.poison()
    short.enqueue(None)
    correct = bool((probe.y[: short.grid[0]].real == SHORT).all())
    ms, spread_ms = round_ms(probe, short, long)
    return {
        "in_order": in_order,
        "us": 1e3 * ms,
        "spread_us": 1e3 * spread_ms,
        "correct": correct,
    }


def measured(probe: Probe, shape: Shape) -> dict[str, Any]:
    """All of one shape."""
    probe.compiled(shape)
    return {
        "n": shape.n,
        "n1": shape.n1,
        "p": shape.p,
        "b": shape.b,
        "threads": shape.threads,
        "shared_bytes": shape.shared_bytes,
        "pieces": ladder(probe, shape),
        "exchanges": [exchange(probe, shape, form, sends) for form in FORMS for sends in SENDS],
        "meetings": [meeting(probe, shape, in_order=in_order) for in_order in (True, False)],
    }


def main() -> None:
    """Measure, print a table for each shape and one of the bounds, write the JSON after each shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lengths", nargs="*", type=int, help="only these N")
    parser.add_argument(
        "--recorded", type=Path, help="results of peers.py; those of a GPU of this kind if not given"
    )
    parser.add_argument("--counters", action="store_true", help="read hardware counters instead, by ncu")
    options = parser.parse_args()
    shapes = [shape for shape in SHAPES if not options.lengths or shape.n in options.lengths]
    if not shapes:
        lengths = ", ".join(str(n) for n in sorted({shape.n for shape in SHAPES}))
        parser.error(f"--lengths: no shape of {options.lengths}; there are {lengths}")
    origin = provenance()
    recorded = recorded_answers(options.recorded or recorded_on(origin["gpus"]))
    if options.counters:
        counters({n: row["configuration"] for n, row in recorded.items()}, origin, options.out)
        return
    bench = opened()
    if bench.limits.compute_capability < (9, 0):
        print(
            "This benchmark needs a GPU with thread-block clusters: compute capability 9.0.", file=sys.stderr
        )
        sys.exit(2)
    origin["copy_gb_s"] = copy_bandwidth(bench.cp, bench.timer)
    probe = Probe(bench)
    document: dict[str, Any] = {"provenance": origin, "points": POINTS, "rounds": ROUNDS, "rows": []}
    for shape in shapes:
        try:
            document["rows"].append(measured(probe, shape))
        except TunerError as trouble:
            print(f"{shape}: left out: {trouble}", flush=True)
            continue
        document["bounds"] = bounds(document["rows"], recorded)
        options.out.write_text(json.dumps(document, indent=1) + "\n")
        print("\n".join(shape_lines(shape, document["rows"][-1])), flush=True)
    print("\n".join(bound_lines(document.get("bounds", []))))


if __name__ == "__main__":
    main()
