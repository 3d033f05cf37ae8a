"""Hardware counters of the recorded answers of ``fft-large``, read by Nsight Compute (``ncu``).

``counters`` of ``cluster_exchange.py --counters`` calls ncu on this script, which launches one answer:

    python benchmarks/kernels/cluster_counters.py 65536 '{"form": "cluster", ...}'
"""

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from sweep import opened

POINTS = 2**26
ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
METRICS = {
    "gpu__time_duration.sum": "time",
    "dram__bytes_read.sum": "device memory, read",
    "dram__bytes_write.sum": "device memory, written",
    f"dram__throughput{ELAPSED}": "device memory, of its peak",
    f"lts__t_sectors{ELAPSED}": "second-level cache, of its peak",
    f"l1tex__data_pipe_lsu_wavefronts_mem_shared{ELAPSED}": "shared memory wavefronts, of their peak",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": "bank conflicts of shared memory",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps that are resident",
    f"sm__inst_executed{ELAPSED}": "instructions, of their peak",
    "l1tex__m_l1tex2xbar_write_bytes_mem_dshared.sum": "sent to other blocks",
    "l1tex__m_l1tex2xbar_write_bytes_mem_dshared.sum.per_second": "sent to other blocks",
}
"""Metrics by their names, and what they are."""
STALLED = re.compile(r"smsp__average_warps_issue_stalled_\w+_per_issue_active\.ratio")
STALLS = 6  # reasons that are printed
TIMEOUT_S = 300


class CountersError(Exception):
    """The counters cannot be read; the message says why."""


def counters(answers: dict[int, dict[str, Any]], origin: dict[str, Any], out: Path) -> None:
    """Read the counters of each answer, print them, write the JSON; exit code 2 where that cannot be.

    Args:
        answers: configurations of ``fft-large`` by N.
        origin: see ``provenance``.
        out: the file.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        sys.exit(_refusal("ncu (Nsight Compute) is not on PATH"))
    if not answers:
        sys.exit(_refusal("no recorded answers of a GPU of this kind; name a file by --recorded"))
    document: dict[str, Any] = {"provenance": origin, "rows": []}
    for n, configuration in sorted(answers.items()):
        try:
            values = read(ncu, n, configuration)
        except CountersError as error:
            sys.exit(_refusal(f"N = {n}: {error}"))
        document["rows"].append({"n": n, "configuration": configuration, "counters": values})
        out.write_text(json.dumps(document, indent=1) + "\n")
        print("\n".join(lines(n, configuration, values)), flush=True)


def _refusal(message: str) -> int:
    print(message, file=sys.stderr)
    return 2


def read(ncu: str, n: int, configuration: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Value and unit of every counter of one launch.

    Raises:
        CountersError: the counters are not permitted to this user, or ncu fails.
    """
    done = _ncu(ncu, n, configuration)
    said = done.stdout + done.stderr
    if "ERR_NVGPUCTRPERM" in said:
        raise CountersError(
            "the driver does not permit this user to read hardware counters (ERR_NVGPUCTRPERM);"
            " an administrator can, or allows it by NVreg_RestrictProfilingToAdminUsers=0"
        )
    values = parsed(done.stdout)
    if not values:
        raise CountersError(f"ncu read no counters: {said[-2000:]}")
    return values


def _ncu(ncu: str, n: int, configuration: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    options = ["--csv", "--page", "raw", "--kernel-name", "regex:fft|ring|columns|rows"]
    options += ["--clock-control", "none"]  # by default ncu holds the clocks of the GPU at their base
    options += ["--section", "WarpStateStats", "--metrics", ",".join(METRICS)]
    child = [sys.executable, __file__, str(n), json.dumps(configuration)]
    try:
        return subprocess.run(
            [ncu, *options, *child], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise CountersError(f"ncu has not ended after {TIMEOUT_S} s") from None


def parsed(text: str) -> dict[str, dict[str, Any]]:
    """Our counters of the last kernel in what ncu prints: names, units, and a line for each kernel."""
    table = [line for line in csv.reader(io.StringIO(text)) if len(line) > 1]
    begin = next((i for i, line in enumerate(table) if line[0] == "ID"), None)
    if begin is None or len(table) < begin + 3:
        return {}
    names, units, numbers = table[begin], table[begin + 1], table[-1]
    found = {}
    for name, unit, text_of_number in zip(names, units, numbers, strict=False):
        if name not in METRICS and not STALLED.fullmatch(name):
            continue
        try:
            value = float(text_of_number.replace(",", ""))
        except ValueError:
            continue
        found[name] = {"value": value, "unit": unit}
    return found


def lines(n: int, configuration: dict[str, Any], values: dict[str, dict[str, Any]]) -> list[str]:
    """The counters of one launch, for the terminal."""
    words = " ".join(f"{key}={value}" for key, value in configuration.items())
    found = [f"N = {n}, {words}"]
    for name, what in METRICS.items():
        if name in values:
            found.append(f"  {what}: {values[name]['value']:,.2f} {values[name]['unit']}")
    stalls = sorted(
        ((one["value"], name) for name, one in values.items() if STALLED.fullmatch(name)),
        reverse=True,
    )
    for value, name in stalls[:STALLS]:
        reason = name.partition("_stalled_")[2].partition("_per_issue_active")[0]
        found.append(f"  warps that wait per instruction issued, {reason}: {value:.2f}")
    return found


def main() -> None:
    """Launch one answer once."""
    n, configuration = int(sys.argv[1]), json.loads(sys.argv[2])
    bench = opened()
    kernel = bench.catalog.kernel("fft-large")
    workload = kernel.workload({"N": n}, batch=POINTS // n)
    plan = kernel.plan(workload, kernel.configuration(workload, configuration))
    arrays = {buffer.name: bench.cp.zeros(buffer.shape, buffer.dtype) for buffer in plan.buffers}
    for launch in bench.code.launches(plan, arrays):
        launch.enqueue(bench.cp.cuda.get_current_stream())
    bench.cp.cuda.runtime.deviceSynchronize()


if __name__ == "__main__":
    main()
