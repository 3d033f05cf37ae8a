"""What a call of a tuned kernel costs: ``tuner.apply`` and ``tuner.plan`` beside calls of the libraries.

Two parts. ``host``: microseconds of Python and driver that a call takes to put its work into the stream, at
sizes where the GPU is faster than the host. ``end``: microseconds until the result is there, for one call
that is waited for (``wall``), and per call of many in a row between two events (``events``); the caches of
the GPU are warm. Contenders take turns in changing order; medians, with half of the range from 16 to 84 %.

    python benchmarks/apply_calls.py --out benchmarks/results/apply-calls-h200.json
    python benchmarks/apply_calls.py --part host --kernels fft
"""

import argparse
import gc
import itertools
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from apply_contenders import OURS, Case, Contender, arrays_of, ours, peers
from provenance import provenance

from tuner.compiler.compiler import Compiler
from tuner.kernel_files.catalog import Catalog

HOST_CASES = (
    Case("fft", 1024, 16),
    Case("fft-large", 2**16, 1),
    Case("fft-large", 2**20, 1),
    Case("scan-lf", 1024, 16),
    Case("tridiag-wm", 512, 16),
)
SIZES = {
    "fft": tuple(2**i for i in range(6, 14)),
    "fft-large": tuple(2**i for i in range(13, 21)),
    "scan-lf": (64, 256, 1024, 4096),
    "tridiag-wm": (64, 256, 512, 1024, 4096),
}
BATCHES = (1, 16, 1024)
MOST_ELEMENTS = 2**27  # of an array
IN_A_BLOCK = 100  # calls; fewer than the driver queues without waiting
BLOCKS = 60
ROUNDS = 60
EVENT_S = 0.002  # of calls in a row


def main() -> None:
    """Time what was asked for, print it, and write it down."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=("host", "end", "both"), default="both")
    parser.add_argument("--kernels", nargs="*", choices=OURS, default=OURS)
    parser.add_argument("--sizes", nargs="*", type=int, help="only these N")
    parser.add_argument("--batches", nargs="*", type=int, default=BATCHES)
    parser.add_argument("--default", action="store_true", help="time the default configurations as well")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds; what comes later is left out")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    import cupy  # noqa: PLC0415 - so that --help needs no GPU

    ends_s = time.monotonic() + options.limit
    end_cases = [
        Case(kernel, n, batch)
        for kernel in options.kernels
        for n in SIZES[kernel]
        for batch in options.batches
        if n * batch <= MOST_ELEMENTS and (not options.sizes or n in options.sizes)
    ]
    host_cases = [case for case in HOST_CASES if case.kernel in options.kernels]
    cases = [
        *(("host", case) for case in host_cases if options.part != "end"),
        *(("end", case) for case in end_cases if options.part != "host"),
    ]
    compile_defaults(cupy, [case for _, case in cases])
    document: dict[str, Any] = {"provenance": provenance(), "host": [], "end": [], "left_out": []}
    configurations = ("default", None) if options.default else (None,)
    with cupy.cuda.Stream(non_blocking=True):
        for (part, case), configuration in itertools.product(cases, configurations):
            if time.monotonic() > ends_s:
                document["left_out"].append([part, vars(case), configuration])
                continue
            rows = timed(cupy, part, case, configuration)
            document[part] += rows
            for row in rows:
                print(shown(row), flush=True)
            if options.out is not None:
                options.out.write_text(json.dumps(document, indent=1) + "\n")


def compile_defaults(cp: Any, cases: Sequence[Case]) -> None:
    """Compile every default configuration with all cores, so that the first calls find them."""
    catalog, stages = Catalog.load(), []
    for case in cases:
        kernel = catalog.kernel(case.kernel)
        workload = kernel.workload({"N": case.n}, case.batch)
        stages += kernel.plan(workload, kernel.default(workload)).stages
    with Compiler(f"sm_{cp.cuda.Device().compute_capability}") as compiler:
        compiler.compile(stages)


def timed(cp: Any, part: str, case: Case, configuration: str | None) -> list[dict[str, Any]]:
    """A row for each contender of a case."""
    inputs, out = arrays_of(cp, case)
    begun_s = time.perf_counter()
    contenders = ours(case, inputs, out, configuration)
    first_s = time.perf_counter() - begun_s
    contenders += peers(cp, case, inputs, out)
    errors = checked(contenders)
    for _, contender in itertools.product(range(3), contenders):
        contender.call()
    gc.collect()
    gc.disable()
    try:
        figures = host_us(cp, contenders) if part == "host" else end_us(cp, contenders)
    finally:
        gc.enable()
    return [
        {
            "kernel": case.kernel,
            "n": case.n,
            "batch": case.batch,
            "configuration": configuration or "as apply chooses",
            "contender": contender.name,
            "ours": contender.ours,
            "note": contender.note,
            "first_s": round(first_s, 3) if contender.ours else None,
            "difference": error,
            **figure,
        }
        for contender, figure, error in zip(contenders, figures, errors, strict=True)
    ]


def checked(contenders: Sequence[Contender]) -> list[float | None]:
    """Largest difference of each answer from the last that there is, relative to the largest element."""
    answers: list[Any] = []
    for contender in contenders:
        contender.call()
        answers.append(None if contender.answer is None else contender.answer().copy())
    known = [answer for answer in answers if answer is not None]
    scale = float(abs(known[-1]).max())
    return [None if one is None else float(abs(one - known[-1]).max()) / scale for one in answers]


def host_us(cp: Any, contenders: Sequence[Contender]) -> list[dict[str, float]]:
    """What a call takes of the host, waiting for nothing."""
    stream = cp.cuda.get_current_stream()
    samples = _turns(contenders, BLOCKS, lambda call: _block(call, stream))
    return [{"host_us": middle, "host_spread_us": spread} for middle, spread in map(_summary, samples)]


def _block(call: Callable[[], Any], stream: Any) -> float:
    stream.synchronize()
    begun = time.perf_counter_ns()
    for _ in range(IN_A_BLOCK):
        call()
    ended = time.perf_counter_ns()
    stream.synchronize()
    return (ended - begun) / 1e3 / IN_A_BLOCK


def end_us(cp: Any, contenders: Sequence[Contender]) -> list[dict[str, float]]:
    """How long until the result is there."""
    stream = cp.cuda.get_current_stream()
    begin, end = cp.cuda.Event(), cp.cuda.Event()

    def waited(call: Callable[[], Any]) -> float:
        stream.synchronize()
        begun = time.perf_counter_ns()
        call()
        stream.synchronize()
        return (time.perf_counter_ns() - begun) / 1e3

    walls = [_summary(sample) for sample in _turns(contenders, ROUNDS, waited)]
    slowest_us = max(middle for middle, _ in walls)
    count = int(min(IN_A_BLOCK, max(3, EVENT_S * 1e6 / slowest_us)))

    def in_a_row(call: Callable[[], Any]) -> float:
        begin.record(stream)
        for _ in range(count):
            call()
        end.record(stream)
        end.synchronize()
        return float(cp.cuda.get_elapsed_time(begin, end)) * 1e3 / count

    events = [_summary(sample) for sample in _turns(contenders, ROUNDS // 3, in_a_row)]
    return [
        {
            "wall_us": wall,
            "wall_spread_us": wall_spread,
            "events_us": event,
            "events_spread_us": event_spread,
        }
        for (wall, wall_spread), (event, event_spread) in zip(walls, events, strict=True)
    ]


def _turns(
    contenders: Sequence[Contender], rounds: int, measured: Callable[[Callable[[], Any]], float]
) -> list[list[float]]:
    samples: list[list[float]] = [[] for _ in contenders]
    order, rng = list(range(len(contenders))), random.Random(0)  # noqa: S311 - an order of turns
    for _ in range(rounds):
        rng.shuffle(order)
        for place in order:
            samples[place].append(measured(contenders[place].call))
    return samples


def _summary(sample: Sequence[float]) -> tuple[float, float]:
    low, middle, high = np.percentile(sample, (16, 50, 84))
    return round(float(middle), 3), round(float(high - low) / 2, 3)


def shown(row: dict[str, Any]) -> str:
    """A line for people."""
    figures = "  ".join(
        f"{name} {row[f'{name}_us']:9.2f} ± {row[f'{name}_spread_us']:.2f} us"
        for name in ("host", "wall", "events")
        if f"{name}_us" in row
    )
    place = f"{row['kernel']} N={row['n']} batch={row['batch']}"
    return f"{place:34} {row['contender']:34} {figures}  {row['note']}"


if __name__ == "__main__":
    main()
