"""Are kernels of Triton run, timed, metered and searched as by Triton itself? Six kernels, four parts.

``bits``: outputs against those of Triton's own launcher on the same inputs, bit by bit, where sizes are
multiples of 16, where none is, and 1. ``times``: ``--timing single`` against ``triton.testing.do_bench``, in
turn. ``joules``: what ``tuner run`` states, against a log of NVML's energy counter (that of ``referee.py``).
``search``: the wall of a process of ``tuner run`` against that of one that calls ``triton.autotune`` over
the same configurations, and of that call alone, caches cold; then both winners in turn.

    python benchmarks/triton_kernels.py --out benchmarks/results/triton-h200.json

On a GPU, with PyTorch and Triton. What fails, or what the time does not suffice for, is told in its row.
"""

import importlib.util
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from cold_timing import outside_interval
from provenance import command_line, provenance, save
from referee import POLL_S, counter_log, power_of

from tuner.devices.choice import count_gpus, open_device
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.triton_stage import OPTIONS
from tuner.model.plan import Configuration, Plan, Scalar
from tuner.model.trial import Status

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (ROOT / "examples/triton", ROOT / "tests/data/triton")
SUM = """
kernel = { name = "scaled-sum", source = "kernels.py", entry = "scaled_sum" }
problem.sizes.n = [1]
problem.reference.out = "-(0.5 * x + y)"
launch.grid = "ceil_div(n, BLOCK)"
work = { bytes = "12 * n", operations = "2 * n" }
[arguments]
out = "out float32[n]"
x = "in float32[n]"
y = "in float32[n]"
n = "int32 = n"
scale = "float32 = 0.5"
negate = "bool = 1"
[tunables]
BLOCK = [128, 256, 512, 1024, 2048, 4096]
num_warps = [1, 2, 4, 8, 16]
num_stages = [1, 2]
"""
# kernel -> sizes where bits are compared, and those where it is timed and tuned
KERNELS: dict[str, tuple[list[str], str]] = {
    "scaled-sum": (["n=4096", "n=4099", "n=1"], "n=16777216"),
    "softmax": (["rows=64,cols=1024", "rows=33,cols=1001", "rows=1,cols=1"], "rows=8192,cols=4000"),
    "rms-norm": (["rows=64,cols=1024", "rows=33,cols=1001", "rows=1,cols=1"], "rows=8192,cols=4096"),
    "matmul": (["N=256", "N=131", "N=1"], "N=4096,GROUP=8"),
    "attention": (["n=256,heads=4", "n=101,heads=3", "n=1,heads=1"], "n=2048,heads=16"),
    "fused_moe": (["M=64,N=128,K=128", "M=37,N=65,K=77", "M=1,N=1,K=1"], "M=512,N=2048,K=2048"),
}
SEARCHED = ("scaled-sum", "rms-norm", "matmul")  # of 60, 75 and 72 configurations
COMPARED = 3  # configurations of a kernel whose bits and times are compared
TURNS = 9
NO_TIME = {"trouble": "the time does not suffice"}
WINDOW_S, WARM_S, LOG_S, SETTLE_S = 0.04, 1.0, 2.5, 0.5
CACHES = ("XDG_CACHE_HOME", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR", "CUDA_CACHE_PATH")
TUNER = (sys.executable, "-P", "-c", "from tuner.cli.main import main; main(prog_name='tuner')")


def kernel_at(name: str, values: str, folder: Path) -> KernelFile:
    """The kernel file of an example, written anew with these sizes and tunables alone."""
    text = SUM if name == "scaled-sum" else (SOURCES[0] / f"{name}.toml").read_text()
    for one, value in (each.split("=") for each in values.split(",")):
        text = re.sub(rf"(\b{one} = )\[.*?\]", rf"\g<1>[{value}]", text)
    folder.mkdir(parents=True, exist_ok=True)
    for source in (path for beside in SOURCES for path in beside.glob("*.py")):
        shutil.copy(source, folder)
    (folder / f"{name}.toml").write_text(text)
    return load_kernel_file(folder / f"{name}.toml")


def plans_of(kernel: KernelFile, most: int | None = None) -> list[Plan]:
    """Plans of its first workload: of every configuration, or of some that are spread over its space."""
    workload = kernel.workloads()[0]
    space = list(kernel.space(workload))
    chosen = space if most is None else [space[int(0.618 * i % 1 * len(space))] for i in range(1, most + 1)]
    return [kernel.plan(workload, one) for one in chosen]


def answer_of(kernel: KernelFile, values: Mapping[str, Any]) -> Plan:
    """The plan of a configuration."""
    return kernel.plan(kernel.workloads()[0], Configuration(values))


def by_triton(
    plan: Plan, arrays: Mapping[str, Any], place: int = -1, *, tuned: bool = False
) -> tuple[Any, dict[str, Any]]:
    """A stage's function, and what its own launcher is called with; ``tuned`` is by ``triton.autotune``."""
    stage = plan.stages[place]
    passed, given = iter(stage.arguments), dict[str, Any]()
    for one in stage.specialisation:
        value = next(passed) if one.dtype else one.constant
        if isinstance(value, Scalar):
            value = bool(value.value) if value.dtype == "bool" else value.value
        given[one.parameter] = arrays[value] if isinstance(value, str) and one.dtype else value
    for name, text in (option.split("=") for option in stage.options):
        given[name] = text == "true" if OPTIONS[name] is None else int(text)
    left = {n: v for n, v in given.items() if not tuned or n not in (*OPTIONS, *plan.configuration)}
    return getattr(importlib.import_module(Path(stage.source.path).stem), stage.entry), left


def ran(device: Any, plan: Plan) -> dict[str, Any]:
    """All arrays of a plan as a run by the tuner leaves them."""
    check, arrays = device.outputs(plan, 1, [one.name for one in plan.buffers])
    if check.status is not Status.OK:
        raise RuntimeError(f"{plan.label()}: {check.status.value} {check.detail}")
    return dict(arrays)


def on_gpu(plan: Plan, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs on the GPU for PyTorch, and outputs of zeros."""
    import torch  # noqa: PLC0415 - not without a GPU

    moved = {one.name: torch.from_numpy(np.array(arrays[one.name])).cuda() for one in plan.buffers}
    return moved | {one.name: moved[one.name].zero_() for one in plan.buffers if one.role == "out"}


# --- the parts: each takes a kernel, and gives what its row has ----------------------------------------


def bits(device: Any, name: str, folder: Path, _until: float) -> dict[str, Any]:
    """Compare outputs with those of Triton's launcher."""
    differing, specialisations, launches = list[str](), set(), 0
    for number, values in enumerate(KERNELS[name][0]):
        plans = plans_of(kernel_at(name, values, folder / str(number)), COMPARED)
        device.resources(plans)
        for plan in plans:
            ours = ran(device, plan)
            theirs = on_gpu(plan, ours)
            for place, stage in enumerate(plan.stages):
                function, given = by_triton(plan, theirs, place)
                function[stage.grid](**given)
            written = [one.name for one in plan.buffers if one.role == "out"]
            unlike = [n for n in written if ours[n].tobytes() != theirs[n].cpu().numpy().tobytes()]
            differing += [f"{plan.label()}: {each}" for each in unlike]
            specialisations |= {stage.specialisation for stage in plan.stages}
            launches += len(plan.stages)
    return {"launches": launches, "specialisations": len(specialisations), "differing": differing}


def times(device: Any, name: str, folder: Path, _until: float) -> dict[str, Any]:
    """Hold ``--timing single`` against ``do_bench``."""
    from triton.testing import do_bench  # noqa: PLC0415 - not without a GPU

    rows = []
    plans = plans_of(kernel_at(name, KERNELS[name][1], folder), COMPARED)
    device.resources(plans)
    for plan in plans:
        function, given = by_triton(plan, on_gpu(plan, ran(device, plan)))
        launch = partial(function[plan.stages[-1].grid], **given)
        launch()
        device.run([plan], 0.1)  # clocks come up
        found: dict[str, list[float]] = {"single_s": [], "do_bench_s": []}
        for _ in range(3):
            found["single_s"].append(device.run_single([plan], WINDOW_S).makespan_s)
            theirs_ms = do_bench(launch, warmup=5, rep=int(1e3 * WINDOW_S), return_mode="median")
            found["do_bench_s"].append(theirs_ms / 1e3)
        row = {key: statistics.median(values) for key, values in found.items()}
        ratio = row["single_s"] / row["do_bench_s"]
        rows.append({"configuration": str(plan.configuration), **row, "ratio": ratio})
    return {"configurations": rows, "median_ratio": statistics.median(row["ratio"] for row in rows)}


def joules(device: Any, name: str, folder: Path, until: float) -> dict[str, Any]:
    """Hold stated joules of one configuration against a log of the counter."""
    kernel = kernel_at(name, KERNELS[name][1], folder)
    run, _ = tuned(kernel, ("--objective", "energy", "--policy", "random", "--budget", "1"), folder, until)
    plan = answer_of(kernel, *run["best"]["configurations"].values())
    with counter_log(device.identity.uuid) as end:
        device.run([plan], WARM_S)
        record = device.run([plan], LOG_S)
        time.sleep(2 * POLL_S)
        power = power_of(end(), record.start_s + SETTLE_S, record.end_s)
    log, sigma = ((record.end_s - record.start_s) / record.rounds * watts for watts in power)
    stated, half = run["best"]["energy_j"], 1.96 * run["best"]["energy_j_uncertainty"]
    row = {"configuration": str(plan.configuration), "watts": power[0], "log_j": log, "log_sigma_j": sigma}
    row |= {"stated_j": stated, "stated_half_j": half, "off": stated / log - 1}
    return row | {"covered": abs(stated - log) <= half}


def search(device: Any, name: str, folder: Path, until: float) -> dict[str, Any]:
    """Search by both, each with cold caches, and hold the winners against each other."""
    kernel = kernel_at(name, KERNELS[name][1], folder)
    run, ours_s = tuned(kernel, ("--policy", "exhaustive", "--timing", "single"), folder, until)
    ours = answer_of(kernel, *run["best"]["configurations"].values())
    np.savez(folder / "arrays.npz", **ran(device, ours))
    command = [sys.executable, __file__, "--autotune", str(kernel.path)]
    told, theirs_s = child(command, folder / "theirs", until)
    answer = json.loads(told.splitlines()[-1])
    best = answer_of(kernel, {one: answer["best"][one] for one in ours.configuration})
    device.run([ours], 0.3)  # clocks come up
    turns = [device.run_single([plan], WINDOW_S).makespan_s for plan in [ours, best] * TURNS]
    ratios = sorted(a / b for a, b in zip(turns[::2], turns[1::2], strict=True))
    edge = outside_interval(TURNS)
    row = {"configurations": len(plans_of(kernel)), "measured": run["space"]["measured"]}
    row |= {"ours_process_s": ours_s, "theirs_process_s": theirs_s, "theirs_call_s": answer["call_s"]}
    row |= {"process_ratio": ours_s / theirs_s, "process_by_call": ours_s / answer["call_s"]}
    row |= {"ours": str(ours.configuration), "theirs": str(best.configuration)}
    return row | {"winner_ratio": ratios[TURNS // 2], "winner_interval": [ratios[edge], ratios[-1 - edge]]}


def child(command: Sequence[str], folder: Path, until: float) -> tuple[str, float]:
    """What a process prints, and how long it took; its caches are empty, its modules those of this one."""
    env = os.environ | {name: str(folder / name.lower()) for name in CACHES}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    begun, left_s = time.monotonic(), max(1.0, until - time.monotonic())
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=left_s)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[2:5])}: {done.stderr.strip()[-500:]}")
    return done.stdout, time.monotonic() - begun


def tuned(kernel: KernelFile, words: Sequence[str], folder: Path, until: float) -> tuple[Any, float]:
    """The run of a process of ``tuner run`` as JSON, and its wall."""
    command = [*TUNER, "run", "--kernel", str(kernel.path), "--device", "cuda:0", *words]
    command += ["--database", f"{folder}/runs.db", "--json", f"{folder}/run.json"]
    _, wall_s = child(command, folder / "ours", until)
    return json.loads((folder / "run.json").read_text()), wall_s


def autotune(file: Path) -> None:
    """Search by ``triton.autotune`` in this process; print what it chose, and how long its call took."""
    import torch  # noqa: PLC0415 - not without a GPU
    import triton  # noqa: PLC0415 - same

    plans = plans_of(load_kernel_file(file))
    every = [plan.configuration.as_dict() for plan in plans]
    names = [name for name in every[0] if name not in OPTIONS]
    split = [({n: one[n] for n in names}, {n: one[n] for n in one if n in OPTIONS}) for one in every]
    configs = [triton.Config(meta, **options) for meta, options in split]
    grids = {tuple(map(one.get, names)): plan.stages[0].grid for one, plan in zip(every, plans, strict=True)}
    with np.load(file.parent / "arrays.npz") as arrays:
        function, given = by_triton(plans[0], on_gpu(plans[0], arrays), tuned=True)
    tuned_by_triton = triton.autotune(configs=configs, key=[])(function)
    torch.cuda.synchronize()
    begun = time.monotonic()
    tuned_by_triton[lambda meta: grids[tuple(meta[name] for name in names)]](**given)
    torch.cuda.synchronize()
    print(json.dumps({"call_s": time.monotonic() - begun, "best": tuned_by_triton.best_config.all_kwargs()}))


PARTS = {"bits": bits, "times": times, "joules": joules, "search": search}


def main() -> int:
    """Do the parts, print a row of each kernel, and write them."""
    parser = command_line(__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts")
    parser.add_argument("--kernels", nargs="+", choices=KERNELS, default=list(KERNELS))
    parser.add_argument("--limit", type=float, default=270.0, help="seconds in all (%(default)s)")
    parser.add_argument("--autotune", type=Path, help="a kernel file: what ``search`` calls this script for")
    given = parser.parse_args()
    sys.path[:0] = map(str, SOURCES)
    if given.autotune:
        autotune(given.autotune)
        return 0
    if not count_gpus() or not all(map(importlib.util.find_spec, ("torch", "triton"))):
        print("This benchmark needs a CUDA GPU, PyTorch and Triton.", file=sys.stderr)
        return 2
    until, rows, origin = time.monotonic() + given.limit, list[dict[str, Any]](), provenance()
    origin["packages"] |= {name: metadata.version(name) for name in ("torch", "triton")}
    with closing(open_device("cuda:0").device) as device:
        for part, name in itertools.product(given.only, given.kernels):
            if part == "search" and name not in SEARCHED:
                continue
            begun = time.monotonic()
            row: dict[str, Any] = {"part": part, "kernel": name}
            with tempfile.TemporaryDirectory(prefix="triton-", ignore_cleanup_errors=True) as folder:
                try:
                    row |= PARTS[part](device, name, Path(folder), until) if begun < until else NO_TIME
                except Exception as error:  # noqa: BLE001 - one kernel must not end the others
                    row["trouble"] = f"{type(error).__name__}: {error}"
            rows.append({**row, "took_s": time.monotonic() - begun})
            print(json.dumps(rows[-1]), flush=True)
            save(given.out, {"rows": rows, "modelled": False, "provenance": origin})
    return 0


if __name__ == "__main__":
    sys.exit(main())
