"""Launches configurations thousands of times and compares every output with the first, bit by bit.

For forms whose blocks hand data to each other, which no race checker sees. The first output is checked
against float64; before every launch the output is poisoned, and every other launch runs beside a kernel of
another stream that moves memory, so that blocks start late and lines leave the L2.

    python benchmarks/kernels/stress.py fft-large:N=262144 --only form=ring \
        [--launches 10000] [--configurations 4]
"""

import argparse
import json
import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from provenance import provenance
from sweep import Bench, Data, make, opened

from tuner.model.errors import TunerError
from tuner.model.plan import Plan
from tuner.model.records import WorkloadName


def main() -> None:
    """Stress, print one line for each configuration, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("workloads", nargs="+")
    parser.add_argument("--only", nargs="*", default=[], help="tunable=value that a configuration must have")
    parser.add_argument("--launches", type=int, default=10_000)
    parser.add_argument("--configurations", type=int, default=4, help="drawn at random from the space")
    parser.add_argument("--elements", type=int, default=24, help="log2 of the elements of a launch")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    bench = opened()
    rows = []
    for text in options.workloads:
        kernel = bench.catalog.kernel(WorkloadName.parse(text).kernel)
        n = int(dict(bench.catalog.workload(text).sizes)["N"])
        workload = kernel.workload({"N": n}, batch=max(1, 2**options.elements // n))
        data = make(bench.cp, kernel.family, n, workload.batch * n)
        wanted = [c for c in kernel.space(workload) if all(_has(c, pair) for pair in options.only)]
        rng = random.Random(0)  # noqa: S311 - a sample, not a secret
        for configuration in rng.sample(wanted, min(options.configurations, len(wanted))):
            plan = kernel.plan(workload, configuration)
            row = {
                "workload": text,
                "configuration": dict(configuration),
                **stress(bench, plan, data, options),
            }
            rows.append(row)
            print(f"{text} [{configuration}]: {row}", flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps({"provenance": provenance(), "rows": rows}, indent=1) + "\n")


def _has(configuration: Any, pair: str) -> bool:
    name, _, value = pair.partition("=")
    return str(configuration.get(name)) == value


def stress(bench: Bench, plan: Plan, data: Data, options: argparse.Namespace) -> dict[str, Any]:
    """Error of the first launch, and how many launches differed from it."""
    cp = bench.cp
    try:
        run = bench.launcher(plan, data)
    except TunerError as error:
        return {"refused": str(error)}
    run()
    error = data.error(cp)
    first = data.output.copy()
    differing = cp.zeros((), cp.int64)
    words, expected = data.output.view(cp.int64), first.view(cp.int64)
    other = cp.cuda.Stream(non_blocking=True)
    junk = cp.zeros((2, 2**25), cp.float32)
    for launch in range(options.launches):
        data.poison(cp)
        if launch % 2:
            with other:
                cp.copyto(junk[0], junk[1])
        run()
        differing += (words != expected).any()
        if launch % 100 == 99:
            cp.cuda.runtime.deviceSynchronize()
    return {"launches": options.launches, "error": error, "differing": int(differing)}


if __name__ == "__main__":
    main()
