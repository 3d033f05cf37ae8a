"""The loop a user writes in an hour: CuPy compiles all on every core, seven launches each, the least median.

No answer is checked, and nothing is stored while it runs: the fewest steps that can find the fastest
configuration. It is the peer of what a tuner costs beside compiling and measuring.

    python kernel_tuner_loop.py TASK-FOLDER OUT.json
"""

import argparse
import json
import statistics
from pathlib import Path

from kernel_tuner_neutral import runs_of

ITERATIONS = 7  # as Kernel Tuner's default


def main() -> None:
    """Time all and write what was found in the form of ``kernel_tuner_child.py``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    import cupy  # noqa: PLC0415 - --help needs no GPU

    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    medians = []
    for run in runs_of(cupy, options.folder):
        run()
        times_ms = []
        for _ in range(ITERATIONS):
            begin.record()
            run()
            end.record()
            end.synchronize()
            times_ms.append(float(cupy.cuda.get_elapsed_time(begin, end)))
        medians.append(statistics.median(times_ms))
    options.out.write_text(json.dumps({"evaluations": len(medians), "chosen": medians.index(min(medians))}))


if __name__ == "__main__":
    main()
