"""The loop a user writes in an hour: CuPy compiles all on every core, seven launches each, the least median.

No answer is checked, and nothing is stored while it runs: the fewest steps that can find the fastest
configuration. It is the peer of what a tuner costs beside compiling and measuring.

    python kernel_tuner_loop.py TASK.json OUT.json
"""

import argparse
import json
import statistics
import time
from datetime import datetime, timezone
from pathlib import Path

from kernel_tuner_neutral import runs_of

ITERATIONS = 7  # as Kernel Tuner's default


def main() -> None:
    """Time all and write what was found in the form of ``kernel_tuner_child.py``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("task", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    started = time.time()
    task = json.loads(options.task.read_text())
    import cupy  # noqa: PLC0415 - --help needs no GPU

    imported_s = time.time() - started
    runs = runs_of(cupy, task)
    compile_ms = (time.time() - started - imported_s) * 1e3
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    results = []
    for number, run in runs.items():
        run()
        times_ms = []
        for _ in range(ITERATIONS):
            begin.record()
            run()
            end.record()
            end.synchronize()
            times_ms.append(float(cupy.cuda.get_elapsed_time(begin, end)))
        results.append(
            {
                "values": task["configurations"][number],
                "time_ms": statistics.median(times_ms),
                "timestamp": datetime.now(timezone.utc).isoformat(),
            }
        )
    best = min(results, key=lambda result: result["time_ms"])
    document = {
        "version": cupy.__version__,
        "imported_s": imported_s,
        "times_ms": {"compile": compile_ms},
        "results": results,
        "best": best["values"],
    }
    options.out.write_text(json.dumps(document))


if __name__ == "__main__":
    main()
