"""Kernel Tuner and ``tuner`` over the same spaces on one GPU: whole-process wall, quality, memory.

Both get the same CUDA sources, configurations, launches and compiler options, one after the other on one GPU.
Wall is from the start of a process to its end; *cold* processes have new folders for all caches, *warm* ones
those of the process before. Both tuners' byte code is there before, as after an installation. Memory is the
most that a process and its children took together. The answers are then measured again in turn by one neutral
timer, and so is, more briefly, every configuration: the best of them is the optimum. *To 98 %* is the wall
after which a run's own best was, and stayed, within 2 % of it.

Kernel Tuner sweeps cold with both of its CUDA backends, CuPy and cuda-python (nvcuda); warm with CuPy, which
alone keeps what it compiled; and runs its strategy with cuda-python, which compiles a little faster.
It runs with its defaults (7 iterations, cold L2 is not asked for, nothing printed) and with the
legal configurations as one constraint that its solver prunes by. See ``kernel_tuner_child.py`` for the two
repairs that its CuPy backend needs. Answers of ``tuner`` are always checked; Kernel Tuner runs without
checks, which is in its favour, and once with them. Its strategy with 50 evaluations is the first half of the
run with 100 of the same seed.

    pip install '.[cuda13,search]'
    python benchmarks/kernel_tuner_wall.py --out benchmarks/results/kernel-tuner-wall-h100.json
        [--spaces scan convolution matmul] [--parts exhaustive strategies neutral] [--seeds 5]
    python benchmarks/kernel_tuner_wall.py --again --out benchmarks/results/kernel-tuner-wall-h200.json

Without neutral times (a run that was stopped) shares of the optimum are by the median of ``tuner``'s sweeps.
What ``--out`` holds of other parts and spaces stays; it is written after every process.
"""

import argparse
import json
import subprocess
import sys
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from kernel_tuner_processes import TUNER, Caches, ended, folder, kernel_tuner_run, neutral_run, tuner_run
from kernel_tuner_scores import efficiencies, first_of, neutral_ms, rows, swept_ms, table
from kernel_tuner_tasks import ComparedSpace, space_of
from provenance import provenance

from tuner.kernel_files.catalog import load_kernel_file

ROOT = Path(__file__).resolve().parents[1]
SPACES = {
    "scan": (ROOT / "kernels" / "scan-lf" / "kernel.toml", {"N": 1024}),
    "convolution": (ROOT / "benchmarks" / "spaces" / "convolution" / "kernel.toml", {"N": 4096}),
    "matmul": (ROOT / "benchmarks" / "spaces" / "matmul" / "kernel.toml", {"N": 2048}),
}
TUNERS = ("kernel-tuner", "tuner")
BACKENDS = ("cupy", "nvcuda")
BACKENDS_HELP = "of Kernel Tuner: all sweep cold, the first warm too; the last runs the strategy"
PARTS = ("exhaustive", "strategies", "neutral")
SWEEP, OWN_SWEEP = "brute_force", "exhaustive"
STRATEGY = "adaptive_tabu_greywolf"  # the best of 20 on recorded spaces: benchmarks/search.py
BUDGETS = (50, 100)
CHECKED_HELP = "spaces that Kernel Tuner also sweeps with answers checked"
PROTOCOL = {
    "Kernel Tuner": "7 iterations; the legal configurations as one "
    "constraint; quiet; the benchmark pads the UUID to 16 bytes and asks for shared memory beyond 48 KiB; "
    "no NVML observer; PyTorch hidden",
    "tuner": "tuner run --objective time, every answer checked",
    "neutral": "CUDA events; optimum and shares by cold L2; finalists 200 launches each in turn",
}


@dataclass(frozen=True)
class Job:
    """One process.

    Attributes:
        tuner: ``kernel-tuner`` or ``tuner``.
        method: strategy or policy, with the number of evaluations where there is a budget.
        cache: ``cold`` or ``warm``: after a cold run of the same method.
        seed: of the search and its inputs.
        checked: whether answers are; those of ``tuner`` always.
        backend: of Kernel Tuner.
    """

    tuner: str
    method: str
    cache: str = "cold"
    seed: int = 0
    checked: bool = True
    backend: str = ""

    def __str__(self) -> str:
        checks = "" if self.checked else ", answers not checked"
        backend = f" ({self.backend})" if self.backend else ""
        return f"{self.tuner} {self.method}{backend}, {self.cache}, seed {self.seed}{checks}"


def main() -> None:
    """Run the parts chosen, print the tables, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--again", action="store_true", help="print the tables of what --out holds")
    parser.add_argument("--spaces", nargs="+", choices=list(SPACES), default=list(SPACES))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=5, help="of each strategy")
    parser.add_argument("--tuners", nargs="+", choices=TUNERS, default=list(TUNERS))
    parser.add_argument("--checked", nargs="*", choices=list(SPACES), default=["scan"], help=CHECKED_HELP)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS), help=BACKENDS_HELP)
    options = parser.parse_args()
    if options.again:
        document = json.loads(options.out.read_text())
        for part in document["spaces"].values():
            summarise(part)
        save(options.out, document)
        return
    document = opened(options.out)
    if "kernel-tuner" in options.tuners:
        document["kernel_tuner"] = installed_version()
    architecture = compute_capability()
    touch(options.tuners)
    try:
        for name in options.spaces:
            compare(name, architecture, options, document)
    except KeyboardInterrupt:
        sys.exit(f"\nstopped; what was finished is in {options.out}")


def installed_version() -> str:
    """Of Kernel Tuner.

    Raises:
        SystemExit: it is not installed.
    """
    try:
        return metadata.version("kernel_tuner")
    except metadata.PackageNotFoundError:
        sys.exit("Kernel Tuner is not installed: pip install '.[search]', or give --tuners tuner")


def opened(path: Path) -> dict[str, Any]:
    """What the file holds already, with the origin of this run."""
    document: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"spaces": {}}
    return {**document, "provenance": provenance(), "protocol": PROTOCOL}


def save(path: Path, document: dict[str, Any]) -> None:
    """Write it whole or not at all."""
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(document, separators=(",", ":")) + "\n")
    draft.replace(path)


def compute_capability() -> int:
    """Of GPU 0, times ten.

    Raises:
        SystemExit: there is none.
    """
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader", "--id=0"]
    try:
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"this benchmark needs an NVIDIA GPU: {error}")
    return int(answer.strip().replace(".", ""))


def touch(tuners: list[str]) -> None:
    """Import both once, so that neither is the first to read its files and to write their byte code."""
    with folder() as place, Caches.new() as caches:
        if "kernel-tuner" in tuners:
            ended([sys.executable, "-c", "import cupy, kernel_tuner; cupy.zeros(1)"], caches, place / "log")
        first = ["run", "scan-lf:N=64", "--objective", "time", "--policy", "analytical"]
        ended([*TUNER, *first, "--database", place / "tuner.db"], caches, place / "log")


def compare(name: str, architecture: int, options: argparse.Namespace, document: dict[str, Any]) -> None:
    """All parts of one space."""
    path, sizes = SPACES[name]
    kernel = load_kernel_file(path)
    space = space_of(kernel, kernel.workload(sizes), architecture)
    part: dict[str, Any] = document["spaces"].setdefault(name, {"runs": [], "neutral": None})
    part["workload"], part["configurations"] = space.task.workload, len(space.configurations)
    part["tunables"] = {key: list(values) for key, values in space.task.tunables.items()}
    print(f"{space.task.workload}: {len(space.configurations)} configurations", flush=True)
    kernel_file = path if path.is_relative_to(ROOT / "benchmarks") else None
    jobs = schedule(name, options)
    with ExitStack() as stack:
        kept = {tuner: stack.enter_context(Caches.new()) for tuner in TUNERS}
        for number, job in enumerate(jobs, 1):
            print(f"[{number}/{len(jobs)}] {job} ... ", end="", flush=True)
            shared = job.cache == "warm" or replace(job, cache="warm") in jobs
            with nullcontext(kept[job.tuner]) if shared else Caches.new() as caches:
                found = run(job, space, caches, kernel_file)
            keep(part["runs"], found)
            save(options.out, document)
            print(
                found["trouble"] or f"{found['wall_s']:.1f} s, {found['evaluations']} evaluations", flush=True
            )
        if "neutral" in options.parts:
            finalists = sorted({found["best"] for found in part["runs"] if found["best"] is not None})
            try:
                part["neutral"] = neutral_run(space, kept["kernel-tuner"], finalists)
            except RuntimeError as error:  # what was run before is worth having all the same
                print(f"neutral times: {error}", flush=True)
    finish(space, part)
    save(options.out, document)


def schedule(name: str, options: argparse.Namespace) -> list[Job]:
    """The processes of a space, those of both tuners in turn."""
    jobs = []
    first, *others = options.backends
    if "exhaustive" in options.parts:
        for cache in ("cold", "warm"):
            jobs.append(Job("kernel-tuner", SWEEP, cache, checked=False, backend=first))
            jobs.append(Job("tuner", OWN_SWEEP, cache))
        jobs += [Job("kernel-tuner", SWEEP, checked=False, backend=other) for other in others]
        jobs += [Job("kernel-tuner", SWEEP, backend="cupy")] if name in options.checked else []
    if "strategies" in options.parts:
        for seed in range(1, options.seeds + 1):
            method = f"{STRATEGY} {max(BUDGETS)}"
            jobs.append(Job("kernel-tuner", method, seed=seed, checked=False, backend=options.backends[-1]))
            jobs.append(Job("tuner", "auto", seed=seed))
    return [job for job in jobs if job.tuner in options.tuners]


def run(job: Job, space: ComparedSpace, caches: Caches, kernel_file: Path | None) -> dict[str, Any]:
    """Run a job; what it found, with what it was."""
    if job.tuner == "tuner":
        found = tuner_run(space, caches, policy=job.method, seed=job.seed, kernel_file=kernel_file)
    else:
        strategy, _, budget = job.method.partition(" ")
        found = kernel_tuner_run(
            space,
            caches,
            strategy=strategy,
            budget=int(budget) if budget else None,
            seed=job.seed,
            verify=job.checked,
            backend=job.backend,
        )
    return {**found, **asdict(job)}


def keep(runs: list[dict[str, Any]], found: dict[str, Any]) -> None:
    """Add a run in place of an earlier one of the same kind."""
    kind = [field.name for field in fields(Job)]
    runs[:] = [one for one in runs if any(one[key] != found[key] for key in kind)] + [found]


def summarise(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Print a space's table and add it to the document; returns the runs in it."""
    runs = with_halves(part["runs"])
    if part["neutral"] is not None:
        times_ms, by = neutral_ms(part["neutral"]), "neutral times"
    else:
        times_ms, by = swept_ms(runs, part["configurations"]), "own sweeps of tuner"
    share = None if times_ms is None else efficiencies(times_ms)
    found = rows(runs, share)
    part["rows"], part["optimum_by"] = [asdict(row) for row in found], None if share is None else by
    title = f"\n{part['workload']}, {part['configurations']} configurations"
    print(table(title if share is None else f"{title}, shares by {by}", found), flush=True)
    return runs


def finish(space: ComparedSpace, part: dict[str, Any]) -> None:
    """Print a space's table and its finalists, and add the table to the document."""
    runs = summarise(part)
    if part["neutral"] is None:
        return
    for number, one in part["neutral"]["finalists"].items():
        chosen = sorted({f"{run['tuner']} {run['method']}" for run in runs if run["best"] == int(number)})
        print(
            f"  {1e3 * one['cold_ms']:9.1f} ± {1e3 * one['cold_spread_ms']:.1f} µs cold L2, "
            f"{1e3 * one['warm_ms']:9.1f} ± {1e3 * one['warm_spread_ms']:.1f} µs warm: "
            f"{space.configurations[int(number)]} {'(' + ', '.join(chosen) + ')' if chosen else ''}",
            flush=True,
        )


def with_halves(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs, and those with smaller budgets that are in them."""
    whole = f"{STRATEGY} {max(BUDGETS)}"
    finished = [run for run in runs if run["method"] == whole and run["best"] is not None]
    return [first_of(run, n) for n in BUDGETS if n < max(BUDGETS) for run in finished] + runs


if __name__ == "__main__":
    main()
