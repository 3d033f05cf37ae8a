"""Times launches as the kernels' targets state them: cold L2, CUDA events, medians, interleaved order.

As a script it holds the two timings of ``tuner run`` against each other, and single launches against this
timer, which no code of theirs takes part in; about three minutes on an H200:

    python benchmarks/cold_timing.py --device cuda:0 --out benchmarks/results/timings-h200.json

Each workload has ``--most`` of its configurations measured by both timings, in three passes of drawn order.
Stated are the winners, what each loses by the other timing, how well single launches repeat from pass to
pass, what the start and the cold L2 add, and the ratio to this timer (only on a GPU; else all is modelled).
"""

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from math import comb
from pathlib import Path
from typing import Any

from provenance import command_line, provenance, save

from tuner.devices.base import Device
from tuner.devices.choice import open_device
from tuner.kernel_files.catalog import Catalog
from tuner.model.plan import Plan
from tuner.search.candidates import prepare

COVERED = 0.95  # of a median's interval
FLUSH_BYTES = 160 * 10**6  # set to zero before every repeat: more than any L2 holds


class Timer:
    """Owns the memory that is flushed through; ``cp`` is CuPy."""

    def __init__(self, cp: Any) -> None:
        self._cp = cp
        self._flush = cp.empty(FLUSH_BYTES, dtype="uint8")
        self._begin, self._end = cp.cuda.Event(), cp.cuda.Event()

    def once(self, run: Callable[[], None], prepare: Callable[[], None] | None = None) -> float:
        """Milliseconds of one run on the current stream, its data out of the L2."""
        if prepare is not None:
            prepare()
        self._flush.fill(0)
        self._begin.record()
        run()
        self._end.record()
        self._end.synchronize()
        return float(self._cp.cuda.get_elapsed_time(self._begin, self._end))

    def interleaved(
        self,
        runs: Mapping[str, Callable[[], None]],
        repeats: int,
        prepare: Mapping[str, Callable[[], None]] | None = None,
        seed: int = 0,
    ) -> dict[str, list[float]]:
        """Milliseconds of every run, ``repeats`` of each, the order drawn anew in every round."""
        times: dict[str, list[float]] = {name: [] for name in runs}
        order = list(runs)
        rng = random.Random(seed)  # noqa: S311 - an order, not a secret
        for name in order:
            self.once(runs[name], (prepare or {}).get(name))
        for _ in range(repeats):
            rng.shuffle(order)
            for name in order:
                times[name].append(self.once(runs[name], (prepare or {}).get(name)))
        return times


def copy_bandwidth(cp: Any, timer: Timer) -> float:
    """GB/s of a device-to-device copy of 4 GiB, bytes read and written: the roofline of this run."""
    source, target = cp.zeros(2**30, cp.float32), cp.empty(2**30, cp.float32)
    times = [timer.once(lambda: cp.copyto(target, source)) for _ in range(11)]
    return float(2 * source.nbytes / median(times) / 1e6)


def outside_interval(count: int) -> int:
    """Values outside of the 95 % interval of a median, on each side, by the sign test.

    Six values are the fewest whose range covers 95 %; of fewer it is the range, which covers less.
    """
    outside, edge = 2 / 2**count, 0
    while outside + 2 * comb(count, edge + 1) / 2**count <= 1 - COVERED:
        edge += 1
        outside += 2 * comb(count, edge) / 2**count
    return edge


def spread(times: list[float]) -> float:
    """Half of the range that holds the middle 68 % of some times."""
    ordered = sorted(times)
    edge = round(0.16 * (len(ordered) - 1))
    return (ordered[-1 - edge] - ordered[edge]) / 2


def median(times: list[float]) -> float:
    """The median; infinity for none."""
    return statistics.median(times) if times else float("inf")


# --- as a script: the two timings of ``tuner run`` ------------------------------------------------

WORKLOADS = (
    *("scan-lf:N=1024,batch=64", "scan-lf:N=1024", "fft:N=1024,batch=512", "tridiag-wm:N=512,batch=256"),
    *("convolution:N=1024", "matmul:N=1024", "matmul:N=256", "reduction:N=1048576", "stencil:N=4096"),
    *("transpose:N=4096", "vector-add:N=1048576", "vector-add:N=67108864"),
)
WINDOW_S = 0.012
PASSES = 3
JUDGED = 8  # configurations of a workload that this timer times, too
_JUDGE_REPEATS = 31


def median_times(device: Device, plans: Sequence[Plan], seed: int) -> dict[str, list[list[float]]]:
    """Seconds by timing, pass and plan; infinity for a plan that fails."""
    rng = random.Random(seed)  # noqa: S311 - an order, not a secret
    runs = {"back-to-back": device.run, "single": device.run_single}
    found: dict[str, list[list[float]]] = {timing: [] for timing in runs}
    for _ in range(PASSES):
        order = [(timing, place) for timing in runs for place in range(len(plans))]
        rng.shuffle(order)
        device.run([plans[order[0][1]]], 0.2)  # clocks come up
        passed = {timing: [float("inf")] * len(plans) for timing in runs}
        for timing, place in order:
            passed[timing][place] = runs[timing]([plans[place]], WINDOW_S).makespan_s or float("inf")
        for timing in runs:
            found[timing].append(passed[timing])
    return found


def judged(plans: Sequence[Plan]) -> list[float]:
    """Seconds of plans by this timer, on arrays of zeros."""
    import cupy as cp  # noqa: PLC0415 - not without a GPU

    from tuner.compiler.compiler import Compiler  # noqa: PLC0415 - same
    from tuner.devices.cuda import probe  # noqa: PLC0415 - same
    from tuner.devices.cuda.arrays import BufferPool  # noqa: PLC0415 - same
    from tuner.devices.cuda.code import CodeCache  # noqa: PLC0415 - same

    limits, pool, timer = probe.gpu_limits(cp, 0), BufferPool(cp), Timer(cp)
    code = CodeCache(cp, Compiler(limits.architecture), limits)
    runs: dict[str, Callable[[], None]] = {}
    stream = cp.cuda.get_current_stream()
    for number, plan in enumerate(plans):
        (arrays,) = pool.sets(plan, 1)
        for array in arrays.values():
            array.fill(0)
        steps = [*code.preparation(plan, arrays), *code.launches(plan, arrays)]
        runs[str(number)] = lambda steps=steps: [step.enqueue(stream) for step in steps]  # type: ignore[misc]
    times = timer.interleaved(runs, _JUDGE_REPEATS)
    return [median(times[str(number)]) * 1e-3 for number in range(len(plans))]


def compared(name: str, times: Mapping[str, list[list[float]]], judge: Sequence[float]) -> dict[str, Any]:
    """What the two timings say of a workload's configurations."""
    own = {timing: [median(list(each)) for each in zip(*of, strict=True)] for timing, of in times.items()}
    best = {timing: min(range(len(of)), key=of.__getitem__) for timing, of in own.items()}
    single = own["single"]
    scatter = [
        max(each) / min(each) - 1 for each in zip(*times["single"], strict=True) if max(each) < float("inf")
    ]
    return {
        "workload": name,
        "configurations": len(single),
        "best_us": {timing: 1e6 * own[timing][best[timing]] for timing in own},
        "same_winner": len(set(best.values())) == 1,
        "back_to_back_winner_loses": single[best["back-to-back"]] / single[best["single"]] - 1,
        "single_winner_loses": own["back-to-back"][best["single"]] / min(own["back-to-back"]) - 1,
        "single_by_back_to_back": median([a / b for a, b in zip(single, own["back-to-back"], strict=True)]),
        "single_scatter": median(scatter),
        "by_judge": [seconds / single[place] for place, seconds in enumerate(judge)],
    }


def main() -> None:
    """Measure every workload, print a line of each, and store all."""
    parser = command_line(__doc__)
    parser.add_argument("workloads", nargs="*", default=WORKLOADS)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--most", type=int, default=40, help="configurations of a workload")
    given = parser.parse_args()
    files = sorted((Path(__file__).parents[1] / "examples").glob("*/kernel.toml"))
    catalog, rows = Catalog.load(files), []
    print(
        "workload, best back to back and single, what each winner loses by the other timing, repeats, judge"
    )
    with closing(open_device(given.device)[0]) as device:
        modelled = device.identity.modelled
        for name in given.workloads:
            (workload,) = catalog.workload_set([name])
            (item,) = prepare([(catalog.kernel(workload.kernel), workload)], device)
            step = max(1, len(item.candidates) // given.most)
            plans = [item.plans[each.configuration] for each in item.candidates[::step][: given.most]]
            checked = [plan for plan in plans if device.check(plan, 1).status.value == "ok"]
            judge = [] if modelled else judged(checked[:JUDGED])
            row = compared(name, median_times(device, checked, 1), judge)
            rows.append(row)
            print(
                f"{name}: {row['best_us']['back-to-back']:.4g} and {row['best_us']['single']:.4g} us,"
                f" {row['back_to_back_winner_loses']:.1%} and {row['single_winner_loses']:.1%},"
                f" {row['single_scatter']:.2%}, {median(row['by_judge']) if judge else float('nan'):.3f}"
                f"{' (modelled)' if modelled else ''}",
                flush=True,
            )
    save(given.out, {"workloads": rows, "modelled": modelled, "provenance": provenance()})


if __name__ == "__main__":
    main()
