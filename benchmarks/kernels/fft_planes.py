"""Transforms of planes and columns, and convolutions, against cuFFT, side by side in one run on one GPU.

About 2^26 complex64 numbers: planes of 512^2 to 8192^2, columns that lie side by side, rows with one filter.
The protocol is that of fft_lengths.py: of each case the default, the stated answer and other
configurations are timed until its seconds are over, and cuFFT's planned forms (rank 2, or strided); the best
few go into interleaved rounds, of which the first half chooses and the second half is reported. Every answer
is held to CuPy's in double precision. The JSON is written after every case.

    python benchmarks/kernels/fft_planes.py --out benchmarks/results/fft-planes-h100.json [--only fft-2d]
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from cold_timing import copy_bandwidth
from fft_lengths import contest, line, summary
from fft_plane_cases import CASES, PlaneProblem, rivals
from provenance import provenance
from sweep import opened
from vendor_library import VendorLibrary

from tuner.model.errors import TunerError


def main() -> None:
    """Measure, print a line for each case and a summary of each kernel, write the JSON after each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="cases whose name contains this, e.g. 'fft-2d'")
    parser.add_argument("--seconds", type=float, default=5, help="for the configurations of a case")
    options = parser.parse_args()
    bench = opened()
    from cupy.cuda import cufft as loaded  # noqa: PLC0415 - loads the library that goes with CuPy's CUDA

    library, version = VendorLibrary("libcufft", (12, 11)), loaded.getVersion()
    facts = {**provenance(), "cufft": version, "copy_gb_s": copy_bandwidth(bench.cp, bench.timer)}
    document: dict[str, Any] = {"provenance": facts, "rows": {}}
    print(f"cuFFT {version}, copy {facts['copy_gb_s']:.0f} GB/s", flush=True)
    for case in (case for case in CASES if options.only in case.name):
        try:
            problem = PlaneProblem(bench, case)
            scale = 1 / problem.x[0].size if case.inverse else 1.0
            row = contest(problem, rivals(problem, library), scale, options.seconds)
        except TunerError as trouble:
            print(f"{case.name}: left out: {trouble}", flush=True)
            continue
        document["rows"].setdefault(case.kernel, []).append(row)
        options.out.write_text(json.dumps(document, indent=1) + "\n")
        print(line(case.name, row), flush=True)
        del problem
        bench.cp.get_default_memory_pool().free_all_blocks()
    for name, rows in document["rows"].items():
        print(summary(name, rows), flush=True)


if __name__ == "__main__":
    main()
