"""Gflop/s of potrf, getrf, geqrf and of a product of matrices on modelled embedded GPUs, over the order.

Every number is modelled: no GPU runs (docs/simulated-devices.md). Of a factorisation the default and some
further configurations are asked for, and the fastest counts; the product is one call of a library.

    python benchmarks/kernels/linalg_modelled.py --out benchmarks/results/linalg-modelled.json
    python benchmarks/kernels/show_linalg_modelled.py benchmarks/results/linalg-modelled.json \
        --plot modelled.svg
"""

import argparse
import random
import sys
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from linalg_large_operations import OPERATIONS, LargeCase
from linalg_runs import Document, order, write
from provenance import provenance

from tuner.devices.base import Device
from tuner.devices.choice import open_device
from tuner.kernel_files.catalog import Catalog, kernel_of
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import TunerError
from tuner.model.plan import Configuration, Workload
from tuner.model.trial import Status

DEVICES = ("sim:jetson-tx1", "sim:jetson-orin")
SIZES = (256, 512, 1024, 2048, 4096, 8192)
DTYPE = "float32"
_WINDOW_S = 0.05  # of virtual time

_MATRIX = {"dtype": DTYPE, "shape": ["n", "n"]}
PRODUCT = {
    "kernel": {"name": "gemm"},
    "problem": {"name": "consistent", "sizes": {"n": {"from": 1, "to": 32768}}},
    "argument": [
        {"buffer": "A", "role": "in", **_MATRIX},
        {"buffer": "B", "role": "in", **_MATRIX},
        {"buffer": "C", "role": "out", **_MATRIX},
    ],
    "tunables": {"calls": [1]},
    "stage": [
        {
            **dict.fromkeys("mnk", "n"),
            **{letter: {"buffer": letter.upper()} for letter in "abc"},
            "name": "gemm",
            "library": "gemm",
        }
    ],
    "work": {"bytes": "12 * n * n", "operations": "2 * n ** 3"},
}


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", nargs="+", default=list(DEVICES), metavar="SPEC")
    parser.add_argument("--only", nargs="+", choices=OPERATIONS, default=list(OPERATIONS), metavar="KERNEL")
    parser.add_argument("--n", nargs="+", type=order(2, 32768), default=list(SIZES), help="orders")
    parser.add_argument("--configurations", type=int, default=6, help="beside the default; 6")
    parser.add_argument("--out", type=Path, help="JSON, written after every row")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Model, print and write; the exit code."""
    options = parsed(words)
    document: Document = {"provenance": provenance(), "modelled": True, "dtype": DTYPE, "rows": []}
    catalog = Catalog.load()
    kernels = [kernel_of(PRODUCT, {}, label="gemm"), *(catalog.kernel(name) for name in options.only)]
    try:
        for spec in options.device:
            with closing(open_device(spec).device) as device:
                if not device.identity.modelled:
                    print(f"{spec} is no modelled device", file=sys.stderr)
                    return 2
                for n in sorted(options.n):
                    for kernel in kernels:
                        document["rows"].append(_row(device, kernel, n, options.configurations))
                        print(line(document["rows"][-1]), flush=True)
                        write(options.out, document)
    except TunerError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _row(device: Device, kernel: KernelFile, n: int, others: int) -> Document:
    """The fastest of some configurations at one order."""
    sizes: dict[str, int | str] = {"n": n} if kernel.name == "gemm" else {"n": n, "dtype": DTYPE}
    workload = kernel.workload(sizes, 1)
    default = kernel.default(workload)
    further = [one for one in kernel.space(workload) if one != default]
    random.Random(n).shuffle(further)  # noqa: S311 - a sample
    times = {default: modelled_s(device, kernel, workload, default)}
    timed = ((one, modelled_s(device, kernel, workload, one)) for one in further)
    times |= dict(islice(((one, seconds) for one, seconds in timed if seconds is not None), others))
    known = {one: seconds for one, seconds in times.items() if seconds is not None}
    best = min(known, key=lambda one: known[one], default=None)
    row = {"device": device.identity.spec, "name": device.identity.name, "operation": kernel.name, "n": n}
    if best is None:
        return {**row, "ms": None, "gflops": None, "configuration": None}
    flops = 2 * n**3 if kernel.name == "gemm" else LargeCase(kernel.name, n, DTYPE).flops
    return {
        **row,
        "ms": 1e3 * known[best],
        "gflops": flops / known[best] / 1e9,
        "configuration": {} if kernel.name == "gemm" else dict(best),
    }


def modelled_s(
    device: Device, kernel: KernelFile, workload: Workload, configuration: Configuration
) -> float | None:
    """Seconds of a run without what restores its matrix; None where the device cannot run it."""
    plan = kernel.plan(workload, configuration)
    needed = max(stage.min_architecture for stage in plan.stages)
    if device.limits is None or not device.limits.reaches(needed):
        return None
    record = device.run([plan], _WINDOW_S)
    (result,) = record.results
    if result.status is not Status.OK or record.makespan_s is None:
        return None
    return float(record.makespan_s - result.restore_s)


def line(row: dict[str, Any]) -> str:
    """A row for the terminal."""
    what = f"{row['device']} {row['operation']} n={row['n']}"
    if row["ms"] is None:
        return f"{what}: does not run there"
    return f"{what}: {row['ms']:.3f} ms, {row['gflops']:.1f} Gflop/s (modelled)"


if __name__ == "__main__":
    sys.exit(main())
