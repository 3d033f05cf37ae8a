"""Transforms of any length against cuFFT, side by side in one run on one GPU.

Complex lengths of 2, 3, 5 and 7, in both precisions; real rows, there and back; lengths with large primes.
Every row is about 2^29 bytes of input. Of each length the default and other configurations of the kernel are
timed until the row's seconds are over, and cuFFT's planned forms: out of place, in place, and with kernels
compiled for the plan. The best few go with a copy into interleaved rounds. The first half of those rounds
chooses configuration and form, the second half is reported. Times are medians with a cold L2 (160 MB are set
to zero before every repeat); plans and tables are made before. The JSON is written after every length.

    python benchmarks/kernels/fft_lengths.py --out benchmarks/results/fft-lengths-h200.json [--kinds primes]

Forms of a kernel take turns among the other configurations; ``--form whole`` leaves only those of one form.
"""

import argparse
import itertools
import json
import math
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from cold_timing import copy_bandwidth, median, spread
from fft_length_cases import KINDS, Contender, Contested, Problem, cufft
from provenance import provenance
from sweep import opened
from vendor_library import VendorLibrary

from tuner.compiler.compiler import CompiledStage
from tuner.model.errors import TunerError
from tuner.model.plan import Configuration, Plan, TunableValue

ROUNDS = 22
FINALISTS = 4
TOGETHER = 32  # configurations that are compiled at a time


def in_turns(space: list[Configuration], seed: int) -> list[Configuration]:
    """A space in random order, forms of the kernel in turn; last comes what but bounds registers."""
    random.Random(seed).shuffle(space)  # noqa: S311 - an order, not a secret
    forms: dict[TunableValue | None, list[Configuration]] = {}
    for one in sorted(space, key=lambda c: "form" not in dict(c) and bool(dict(c).get("blocks"))):
        forms.setdefault(dict(one).get("form"), []).append(one)
    rounds = itertools.zip_longest(*forms.values())
    return [one for turn in rounds for one in turn if one is not None]


def ours(problem: Contested, seconds: float, form: str | None = None) -> Iterator[Contender]:
    """The default and the stated answers; others that compile without spills, as far as time allows."""
    bench, kernel, begin = problem.bench, problem.kernel, time.monotonic()
    space = [one for one in kernel.space(problem.workload) if form in (None, dict(one).get("form"))]
    stated = kernel.stated_answers(problem.workload, bench.gpu_name)
    named = dict.fromkeys([problem.default.configuration, *stated])
    left = [one for one in in_turns(space, problem.n) if one not in named]
    turns = [list(named), *(left[i : i + TOGETHER] for i in range(0, len(left), TOGETHER))]
    for number, turn in enumerate(turns):
        if number > 0 and time.monotonic() - begin >= seconds:
            return
        plans = [kernel.plan(problem.workload, c) for c in turn]
        compiled = iter(bench.compiler.compile([stage for plan in plans for stage in plan.stages]))
        for plan in plans:
            made = [next(compiled) for _ in plan.stages]
            spills = any(not isinstance(m, CompiledStage) or m.resources.local_bytes for m in made)
            if spills and plan.configuration != problem.default.configuration:
                continue
            try:
                yield contender(problem, plan)
            except (TunerError, bench.cp.cuda.driver.CUDADriverError) as trouble:
                print(f"  {plan.configuration}: {trouble}", flush=True)


def contender(problem: Contested, plan: Plan) -> Contender:
    """A plan on the arrays of a problem, its table made."""
    bench = problem.bench
    stream = bench.cp.cuda.get_current_stream()
    given = {**problem.inputs, "y": problem.y}
    arrays = {b.name: bench.cp.zeros(b.shape, b.dtype) for b in plan.buffers if b.name not in given} | given
    for step in bench.code.preparation(plan, arrays):
        step.enqueue(stream)
    launches = bench.code.launches(plan, arrays)

    def run() -> None:
        for launch in launches:
            launch.enqueue(stream)

    return Contender(str(plan.configuration), run, lambda: problem.y, keep=arrays)


def timed(problem: Contested, contenders: Iterator[Contender], scale: float = 0.0) -> list[Contender]:
    """Those that answer right, fastest first.

    Of a peer, ``scale`` is what its answers must be multiplied by. It may be less exact than kernels must be.
    """
    found = []
    for one in contenders:
        problem.y.view(problem.bench.cp.uint8).fill(0xFF)
        if one.prepare is not None:
            one.prepare()
        one.run()
        one.wrong = problem.check(one.answer() * scale if scale else one.answer(), whole=False)
        if one.wrong:
            print(f"  {one.name}: {one.wrong}", flush=True)
        if one.wrong and not scale:
            continue
        one.ms = median([problem.bench.timer.once(one.run, one.prepare) for _ in range(5)])
        found.append(one)
    return sorted(found, key=lambda one: one.ms)


def contest(
    problem: Contested,
    rivals: Iterator[Contender],
    scale: float,
    seconds: float,
    form: str | None = None,
) -> dict[str, Any]:
    """One problem: our best configuration and our default, the best rival, and a copy of the bytes."""
    bench = problem.bench
    tried = timed(problem, ours(problem, seconds, form))
    peers = timed(problem, rivals, scale)
    default = next((one for one in tried if one.name == str(problem.default.configuration)), tried[0])
    answers = map(str, problem.kernel.stated_answers(problem.workload, bench.gpu_name))
    stated = next((one for name in answers for one in tried if one.name == name), default)
    finals = {one.name: one for one in (*tried[:FINALISTS], default, *peers)}
    runs = {name: one.run for name, one in finals.items()}
    prepare = {name: one.prepare for name, one in finals.items() if one.prepare is not None}
    half_bytes = (problem.x.nbytes + problem.y.nbytes) // 2
    source, target = (bench.cp.empty(half_bytes, bench.cp.uint8) for _ in range(2))
    runs["copy"] = lambda: bench.cp.copyto(target, source)
    times = bench.timer.interleaved(runs, ROUNDS, prepare, seed=problem.n)
    half = ROUNDS // 2

    def best(names: list[str]) -> str:
        return min(names, key=lambda name: median(times[name][:half]))

    mine, peer = best([one.name for one in tried[:FINALISTS]]), best([one.name for one in peers])
    finals[mine].run()
    ms, default_ms, peer_ms, copy_ms = (
        median(times[name][half:]) for name in (mine, default.name, peer, "copy")
    )
    return {
        **dict(problem.workload.sizes),
        "kernel": problem.kernel.name,
        "batch": problem.workload.batch,
        "configuration": mine,
        "ms": ms,
        "spread_ms": spread(times[mine][half:]),
        "default": default.name,
        "default_ms": default_ms,
        "stated": stated.name,
        "stated_ms": stated.ms,
        "peer": peer,
        "peer_ms": peer_ms,
        "copy_ms": copy_ms,
        "ratio": peer_ms / ms,
        "wrong": problem.check(problem.y, whole=True),
        "tried": [{"configuration": one.name, "ms": one.ms} for one in tried],
        "peers": [{"form": one.name, "ms": one.ms, "wrong": one.wrong} for one in peers],
    }


def line(name: str, row: dict[str, Any]) -> str:
    """One length, for the terminal."""
    ours = f"{row['ms']:.4f} ± {row['spread_ms']:.4f} ms, {100 * row['copy_ms'] / row['ms']:5.1f} % of a copy"
    peer = f"{row['ratio']:.3f} x {row['peer']} ({row['peer_ms']:.4f} ms)"
    default = f"default {row['peer_ms'] / row['default_ms']:.3f} x"
    wrong = f"  WRONG {row['wrong']}" if row["wrong"] else ""
    tried = f"{row['configuration']}  of {len(row['tried'])}"
    return f"{name:13} {row['N']:8}  {ours}  {peer}  {default}  {tried}{wrong}"


def summary(name: str, rows: list[dict[str, Any]]) -> str:
    """Share of lengths that are no slower than cuFFT, and the geometric mean of the ratios."""
    ratios = [row["ratio"] for row in rows]
    defaults = [row["peer_ms"] / row["default_ms"] for row in rows]
    at_least = 100 * sum(ratio >= 1 for ratio in ratios) / len(ratios)
    mean, by_default = (math.exp(sum(map(math.log, some)) / len(some)) for some in (ratios, defaults))
    return (
        f"{name}: {at_least:.0f} % of {len(rows)} lengths >= 1.0 x cuFFT, geometric mean {mean:.3f} x, least"
        f" {min(ratios):.3f} x; defaults {by_default:.3f} x"
    )


def main() -> None:
    """Measure, print a line for each length and a summary of each kind, write the JSON after each length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--lengths", nargs="*", type=int, help="these instead of those of the kind")
    parser.add_argument("--seconds", type=float, default=15, help="for the configurations of a length")
    parser.add_argument("--form", help="of the kernel, beside the default and the stated answer")
    options = parser.parse_args()
    bench = opened()
    from cupy.cuda import cufft as loaded  # noqa: PLC0415 - loads the library that goes with CuPy's CUDA

    library, version = VendorLibrary("libcufft", (12, 11)), loaded.getVersion()
    facts = {**provenance(), "cufft": version, "copy_gb_s": copy_bandwidth(bench.cp, bench.timer)}
    document: dict[str, Any] = {"provenance": facts, "rows": {}}
    print(f"cuFFT {version}, copy {facts['copy_gb_s']:.0f} GB/s", flush=True)
    for name in options.kinds:
        rows = document["rows"].setdefault(name, [])
        for n in options.lengths or KINDS[name].lengths:
            try:
                problem = Problem(bench, KINDS[name], n)
                scale = 1 / n if KINDS[name].direction == "inverse" else 1.0
                rivals = cufft(problem, library)
                rows.append(contest(problem, rivals, scale, options.seconds, options.form))
            except TunerError as trouble:
                print(f"{name:13} {n:5}  left out: {trouble}", flush=True)
                continue
            options.out.write_text(json.dumps(document, indent=1) + "\n")
            print(line(name, rows[-1]), flush=True)
            bench.cp.get_default_memory_pool().free_all_blocks()
        if rows:
            print(summary(name, rows), flush=True)


if __name__ == "__main__":
    main()
