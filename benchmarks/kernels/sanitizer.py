"""Runs the forms of the prefix kernels under compute-sanitizer, and checks their answers.

Of each workload few configurations run that together have every value of the tunables which choose a form:
where elements are loaded and stored, whether they move by shuffles, how blocks work together. Kernels are
compiled before. For racecheck every lane arrives at barriers, at which else one lane does for its warp, whose
lanes have met: racecheck takes no notice of that meeting.

    python benchmarks/kernels/sanitizer.py --out benchmarks/results/sanitizer-h200.json [--only fft]
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

import numpy as np
from provenance import provenance
from sweep import Bench, opened

from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.source_folder import kernels_root
from tuner.model.errors import TunerError
from tuner.model.plan import Configuration, Plan, Workload
from tuner.problems.lookup import problem_for

WORKLOADS = (
    *((f"scan-{circuit}:N=1000", 40) for circuit in ("lf", "ks")),
    ("scan-long:N=131072", 2),
    ("scan-long:N=100003,dtype=float64,operator=max,direction=reverse", 1),
    ("scan-flags:N=131072", 2),
    ("scan-flags:N=100003,dtype=complex64", 1),
    ("scan-flags:N=131072,dtype=float16,direction=reverse", 1),
    ("scan-offsets:N=100003,ends=65", 1),
    ("linear-recurrence:N=131072", 2),
    *((f"tridiag-{method}:N=1000", 20) for method in ("cr", "pcr", "lf", "wm")),
    ("tridiag-large:N=9001", 3),
    ("tridiag-periodic:N=1000", 5),
    ("tridiag-periodic-large:N=9001", 3),
    ("tridiag-periodic-large:N=65535,dtype=float64", 1),
    ("tridiag-several:N=1000,K=3", 5),
    ("tridiag-several-large:N=9001,K=3", 2),
    ("tridiag-several-large:N=65535,K=4,dtype=complex64", 1),
    ("fft:N=1024", 40),
    ("fft-any:N=1000", 20),
    ("fft-any:N=1009,direction=inverse", 20),
    ("fft-real:N=1000", 20),
    ("fft-real:N=1000,direction=inverse", 20),
    ("fft-real-long:N=10000", 100),
    ("fft-real-long:N=10000,direction=inverse", 100),
    ("fft-real-long:N=19683,dtype=float64", 100),
    ("fft-real-long:N=10007", 3),
    ("fft-long:N=10000", 300),
    ("fft-long:N=15625,direction=inverse", 300),
    ("fft-long:N=9216,dtype=complex128", 300),
    ("fft-long:N=10007", 3),
    ("fft-long:N=100000", 2),
    ("fft-large:N=16384", 300),
    ("fft-large:N=65536", 80),
    ("fft-columns:N=512,W=100", 3),
    ("fft-2d:M=64,N=64", 8),
    ("fft-convolution:N=1000", 20),
)
FORM_TUNABLES = (
    "form",
    "load",
    "store",
    "shuffle",
    "stay",
    "slots",
    "split",
    "split1",
    "split2",
    "bounded",
    "sync",
)
DRAWS = 400
LANES_ARRIVE = "#define LANES_ARRIVE\n"
BARRIERS = Path("common", "mbarrier.cuh")
RUN_S = 240


def main() -> None:
    """Run, print a line for each workload and tool, write the JSON after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--tools", nargs="+", choices=("memcheck", "racecheck"), default=["memcheck", "racecheck"]
    )
    parser.add_argument("--only", default="", help="workloads that this regular expression finds")
    parser.add_argument("--jobs", type=int, default=4, help="processes at a time")
    parser.add_argument("--seconds", type=float, default=3000, help="no process is begun after these")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)  # place of the workload that is run here
    parser.add_argument("--kernels", type=Path, default=kernels_root(), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        run_forms(options.kernels, *WORKLOADS[options.child])
        return
    chosen = [k for k, (text, _) in enumerate(WORKLOADS) if re.search(options.only, text)]
    document: dict[str, Any] = {"provenance": provenance(), "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        kernels = {"memcheck": kernels_root(), "racecheck": with_lanes_arriving(Path(folder, "kernels"))}
        compile_forms([kernels[tool] for tool in options.tools], chosen)
        begin, turns = time.monotonic(), [(k, tool) for k in chosen for tool in options.tools]

        def checked(turn: tuple[int, str]) -> dict[str, Any]:
            k, tool = turn
            if time.monotonic() - begin > options.seconds:
                return {"workload": WORKLOADS[k][0], "tool": tool, "trouble": "not begun in time"}
            return sanitized(k, tool, kernels[tool])

        with ThreadPoolExecutor(options.jobs) as pool:
            for row in pool.map(checked, turns):
                document["rows"].append(row)
                print(json.dumps(row)[:1500], flush=True)
                if options.out is not None:
                    options.out.write_text(json.dumps(document, indent=1) + "\n")
    sys.exit(any(row["trouble"] for row in document["rows"]))


def with_lanes_arriving(folder: Path) -> Path:
    """The kernels where every lane of a warp arrives at barriers."""
    shutil.copytree(kernels_root(), folder)
    barriers = folder / BARRIERS
    barriers.write_text(LANES_ARRIVE + barriers.read_text())
    return folder


def forms_of(kernel: KernelFile, workload: Workload) -> list[Configuration]:
    """Few configurations that together have every value of the tunables which choose a form."""
    space = list(kernel.space(workload))
    drawn = random.Random(0).sample(space, min(DRAWS, len(space)))  # noqa: S311 - a sample, not a secret
    missing, chosen = {part for one in drawn for part in _form(one)}, []
    while missing:
        best = max(drawn, key=lambda one: len(missing & _form(one)))
        chosen.append(best)
        missing -= _form(best)
    return chosen


def _form(configuration: Configuration) -> set[tuple[str, Any]]:
    """What it has of the tunables that choose a form; numbers count as zero or not."""
    values = dict(configuration)
    return {
        (name, values[name] if isinstance(values[name], str) else bool(values[name]))
        for name in FORM_TUNABLES
        if name in values
    }


def plans_of(kernels: Path, text: str, batch: int, architecture: int) -> Iterator[Plan]:
    """Of the forms that a GPU can run."""
    catalog = Catalog.load(search_path=[kernels])
    asked = catalog.workload(text)
    kernel = catalog.kernel(asked.kernel)
    workload = kernel.workload(dict(asked.sizes), batch)
    for configuration in forms_of(kernel, workload):
        plan = kernel.plan(workload, configuration)
        if all(stage.min_architecture <= architecture for stage in plan.stages):
            yield plan


def _architecture(bench: Bench) -> int:
    major, minor = bench.limits.compute_capability
    return int(10 * major + minor)


def compile_forms(folders: Sequence[Path], chosen: Sequence[int]) -> None:
    """Into the cache on disk, from which the sanitized processes take them."""
    bench = opened()
    plans = [
        plan
        for folder in folders
        for k in chosen
        for plan in plans_of(folder, *WORKLOADS[k], _architecture(bench))
    ]
    bench.compiler.compile([stage for plan in plans for stage in plan.stages])


def sanitized(place: int, tool: str, kernels: Path) -> dict[str, Any]:
    """What a tool says of the forms of a workload, which run in a process of their own."""
    command = [
        "compute-sanitizer",
        f"--tool={tool}",
        "--target-processes=application-only",
        "--error-exitcode=9",
    ]
    command += [sys.executable, __file__, f"--child={place}", f"--kernels={kernels}"]
    row: dict[str, Any] = {"workload": WORKLOADS[place][0], "batch": WORKLOADS[place][1], "tool": tool}
    try:
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
        return row | {"forms": _answers(said.decode()), "trouble": f"not done after {RUN_S} s"}
    told = [line for line in ended.stdout.splitlines() if line.startswith("=========")]
    summary = next((line for line in reversed(told) if "SUMMARY" in line), "")
    row |= {"forms": _answers(ended.stdout), "summary": summary.strip("= "), "trouble": ""}
    if ended.returncode or not summary or not row["forms"]:
        row["trouble"] = (
            "\n".join([*told[:30], *ended.stderr.splitlines()[-8:]]) or f"exit code {ended.returncode}"
        )
    return row


def _answers(printed: str) -> list[str]:
    return [line for line in printed.splitlines() if line and not line.startswith("=========")]


def run_forms(kernels: Path, text: str, batch: int) -> None:
    """Run each form once, print its configuration and error; exit code 1 where an answer is wrong."""
    bench, wrong = opened(), 0
    cp = bench.cp
    for plan in plans_of(kernels, text, batch, _architecture(bench)):
        problem = problem_for(plan.problem)
        sizes = {**dict(plan.workload.sizes), "batch": plan.workload.batch}
        buffers = {b.name: b for b in plan.buffers}
        shared = [b for b in plan.buffers if b.role in ("in", "out")]
        inputs = problem.inputs(np, np.random.default_rng(1), shared, sizes)
        arrays = {name: cp.zeros(b.shape, b.dtype) for name, b in buffers.items() if name not in inputs}
        arrays |= {name: cp.asarray(array) for name, array in inputs.items()}
        try:
            for step in (*bench.code.preparation(plan, arrays), *bench.code.launches(plan, arrays)):
                step.enqueue(cp.cuda.get_current_stream())
            cp.cuda.runtime.deviceSynchronize()
        except TunerError as error:
            print(f"refused: [{plan.configuration}]: {error}", flush=True)
            continue
        outputs = {b.name: arrays[b.name].get() for b in plan.buffers if b.role == "out"}
        found = problem.compare(inputs, outputs, sizes)
        wrong += not found.ok
        print(f"{'right' if found.ok else 'WRONG'}: [{plan.configuration}]", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
