"""Scans of one long row against CUB's DeviceScan, side by side in one run on one GPU.

For every case some configurations of the kernel are timed, and every form of CUB: as it comes, and with other
tunings. The best few of both go with bare copies into interleaved rounds. The first half of those rounds
chooses configuration and form, the second half is reported. Times are medians with a cold L2 (160 MB are
zeroed before every repeat) of everything that a call puts into the stream: the kernel's board set to zero and
its launch, CUB's initialisation and its launch. CUB's temporary storage is allocated before. Forms of CUB
whose error is not allowed do not count. *Of a copy* is of the fastest copy, by the bytes that are moved.

    python benchmarks/kernels/long_scan_peers.py --out benchmarks/results/long-scan-peers-h200.json
                                                 [--seconds 200] [--only 'recurrence|segments|complex']
"""

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

import answers
from bare import bare
from cold_timing import copy_bandwidth, median, spread
from long_scan_cases import CASES, Case, make
from long_scan_cub import Form, asked_of, compiled, forms, peers
from peer import Peer
from provenance import provenance
from sweep import Bench, Result, opened

from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Configuration, Workload

ROUNDS = 22
FINALISTS = 4
FAIR = 10  # times the error allowed to us: CUB adds up floats as floats
LEAST = 1024  # elements of a tile


def shortlist(kernel: KernelFile, workload: Workload) -> list[Configuration]:
    """Pipelines; tiles of 8 KiB and more by shuffles, some of them in more ways to wait and to stay.

    Of kernels other than ``scan-long``, whose spaces are small, all tiles of 1024 elements or more.
    """
    if kernel.name != "scan-long":
        return [c for c in kernel.space(workload) if int(c["P"]) * int(c["L"]) >= LEAST]

    wide = dict(workload.sizes)["dtype"] in ("float64", "int64", "complex64")
    least, middling = (LEAST, (8, 12, 16, 24)) if wide else (2 * LEAST, (16, 24))

    def wanted(c: Configuration) -> bool:
        if c["slots"]:
            return True
        tile, quick = int(c["P"]) * int(c["L"]), c.get("pause", 0) == 0
        plain = c["blocks"] == 1 and c.get("groups", 1) == 1 and quick
        if not c["shuffle"] or not least <= tile <= 32768:
            return False
        middle = c["P"] in middling and c["L"] in (128, 256)
        simple = plain and c["L"] in (128, 256, 512) and int(c["P"]) >= 8
        return simple or (middle and (c["blocks"] == 1 or quick))

    widest: dict[tuple[Any, ...], Configuration] = {}
    for c in kernel.space(workload):
        if wanted(c):
            key = tuple(value for name, value in c.items() if name != "E")
            if key not in widest or int(c["E"]) > int(widest[key]["E"]):
                widest[key] = c
    return list(widest.values())


def main() -> None:
    """Measure, print a line for each case, write the JSON after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--build", type=Path, default=Path("build-cub-long"), help="folder for CUB's library")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no case is begun after these")
    parser.add_argument("--only", default="", help="cases whose names this regular expression finds")
    options = parser.parse_args()
    bench, begin = opened(), time.monotonic()
    cases = [case for case in CASES if re.search(options.only, case.name)]
    listed = [form for form in forms() if form.asked in map(asked_of, cases)]
    functions = compiled(listed, int(bench.cp.cuda.Device().compute_capability), options.build)
    copy_gb_s = copy_bandwidth(bench.cp, bench.timer)
    document: dict[str, Any] = {"provenance": {**provenance(), "copy_gb_s": copy_gb_s}, "rows": []}
    print(f"copy: {copy_gb_s:.0f} GB/s; CUB built after {time.monotonic() - begin:.0f} s", flush=True)
    for case in cases:
        if time.monotonic() - begin > options.seconds:
            print(f"left out: {case.name}")
            continue
        row = contest(bench, case, list(peers(bench.cp, functions, listed)), copy_gb_s)
        document["rows"].append(row)
        options.out.write_text(json.dumps(document, indent=1) + "\n")
        print(line(row), flush=True)
        bench.cp.get_default_memory_pool().free_all_blocks()


def contest(
    bench: Bench, case: Case, listed: list[tuple[Form, Callable[..., Peer]]], copy_gb_s: float
) -> dict[str, Any]:
    """Our best configuration, CUB's best form and the fastest copy of one row."""
    cp, kernel = bench.cp, bench.catalog.kernel(case.kernel)
    data = make(cp, case)
    workload = kernel.workload(case.sizes, batch=1)
    results = bench.sweep(kernel, workload, data, 5, shortlist(kernel, workload))
    chosen = [r for r in results if not r.trouble][:FINALISTS]
    tried = []
    for peer in (ready(case, data) for form, ready in listed if form.asked == asked_of(case)):
        data.poison(cp)
        peer.run()
        error = data.error(cp)
        if error <= FAIR * answers.allowed_error(data.family, data.n):
            tried.append((median([bench.timer.once(peer.run) for _ in range(5)]), error, peer))
    tried.sort(key=lambda one: one[0])
    moves = bare(cp, "scan", data.inputs, data.output)
    runs = {f"{r.configuration}": r.run for r in chosen}
    runs |= {peer.key: peer.run for _, _, peer in tried[:FINALISTS]} | moves
    times = bench.timer.interleaved(runs, ROUNDS, seed=case.n)
    moved_bytes = sum(array.nbytes for array in (*data.inputs, data.output))
    return {
        **case.sizes,
        "name": case.name,
        **_row(times, chosen, tried, list(moves), moved_bytes / (2 * data.output.nbytes)),
        "bytes": moved_bytes,
        "roofline_ms": moved_bytes / copy_gb_s / 1e6,
        "wrong": [f"{r.configuration}: {r.trouble}" for r in results if r.trouble.startswith("wrong")],
        "troubles": sum(bool(r.trouble) for r in results),
        "configurations": [{**dict(r.configuration), "ms": r.ms} for r in results if not r.trouble],
        "forms": [{"form": peer.form, "ms": ms, "error": error} for ms, error, peer in tried],
    }


def _row(
    times: dict[str, list[float]], chosen: list[Result], tried: list[Any], moves: list[str], copies: float
) -> dict[str, Any]:
    """What the second half of the rounds says of those that the first half chose.

    Args:
        times: of each contender, a time for every round.
        chosen: our configurations.
        tried: time alone, error and peer of each form of CUB.
        moves: names of the bare copies.
        copies: bytes that are moved, by those of a copy.
    """
    half = ROUNDS // 2

    def best(names: list[str]) -> str:
        return min(names, key=lambda name: median(times[name][:half]))

    ours, copy = best([f"{r.configuration}" for r in chosen]), best(moves)
    peer = best([peer.key for _, _, peer in tried if peer.key in times])
    ms, peer_ms, copy_ms = (median(times[name][half:]) for name in (ours, peer, copy))
    return {
        "configuration": ours,
        "ms": ms,
        "spread_ms": spread(times[ours][half:]),
        "error": next(r.error for r in chosen if f"{r.configuration}" == ours),
        "peer": peer,
        "peer_ms": peer_ms,
        "peer_error": next(error for _, error, one in tried if one.key == peer),
        "peer_default_ms": next((one for one, _, p in tried if p.form.startswith("default")), math.nan),
        "copy": copy,
        "copy_ms": copy_ms,
        "ratio": peer_ms / ms,
        "of_copy": copies * copy_ms / ms,
    }


def line(row: dict[str, Any]) -> str:
    """One case, for the terminal."""
    rate = f"{row['bytes'] / row['ms'] / 1e6:.0f} GB/s"
    ours = f"{row['ms']:.4f} ± {row['spread_ms']:.4f} ms, {rate}, {100 * row['of_copy']:.1f} % of a copy"
    by_default = f"{row['peer_default_ms']:.4f} as it comes"
    peer = f"{row['ratio']:.3f} x CUB ({row['peer_ms']:.4f}, {row['peer']}; {by_default})"
    errors = f"error {row['error']:.1e} (CUB {row['peer_error']:.1e})"
    wrong = f"wrong {len(row['wrong'])}, left out {row['troubles']}"
    return f"{row['name']:60} {ours}  {peer}  {errors}  {row['configuration']}  {wrong}"


if __name__ == "__main__":
    main()
