"""Kernel Tuner and ``tuner`` over the same spaces on one GPU: whole-process wall, quality, memory.

Both get the same CUDA sources, configurations, launches and compiler options, one after the other on one GPU.
Wall is from the start of a process to its end; *cold* processes have new folders for all caches, *warm* ones
those of the process before. Memory is the most that a process and its children took together. The answers are
then measured again in turn by one neutral timer, and so is, more briefly, every configuration: the best of
them is the optimum. *To 98 %* is the wall after which a run's own best was, and stayed, within 2 % of it.

Kernel Tuner runs with its defaults (7 iterations, cold L2 is not asked for, nothing printed) and with the
legal configurations as one constraint that its solver prunes by. See ``kernel_tuner_child.py`` for the two
repairs that its CuPy backend needs. Answers of ``tuner`` are always checked; Kernel Tuner runs without
checks, which is in its favour, and once with them. Its strategy with 50 evaluations is the first half of the
run with 100 of the same seed.

    pip install '.[cuda13,search]'
    python benchmarks/kernel_tuner_wall.py --out benchmarks/results/kernel-tuner-wall-h100.json
        [--spaces scan convolution matmul] [--parts exhaustive strategies neutral] [--seeds 5]

What ``--out`` holds of other parts and spaces stays; it is written after every process.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from kernel_tuner_processes import TUNER, Caches, ended, folder, kernel_tuner_run, neutral_run, tuner_run
from kernel_tuner_scores import efficiencies, first_of, neutral_ms, rows, table
from kernel_tuner_tasks import ComparedSpace, space_of
from provenance import provenance

from tuner.config import load_kernel_file

ROOT = Path(__file__).resolve().parents[1]
SPACES = {
    "scan": (ROOT / "kernels" / "scan-lf" / "kernel.toml", {"N": 1024}),
    "convolution": (ROOT / "examples" / "convolution" / "kernel.toml", {"N": 4096}),
    "matmul": (ROOT / "examples" / "matmul" / "kernel.toml", {"N": 2048}),
}
TUNERS = ("kernel-tuner", "tuner")
PARTS = ("exhaustive", "strategies", "neutral")
STRATEGY = "adaptive_tabu_greywolf"  # the best of 20 on recorded spaces: benchmarks/search.py
BUDGETS = (50, 100)
PROTOCOL = {
    "Kernel Tuner": "CuPy backend unless a run says otherwise; 7 iterations; the legal configurations as one "
    "constraint; quiet; the benchmark pads the UUID to 16 bytes and asks for shared memory beyond 48 KiB; "
    "no NVML observer; PyTorch hidden",
    "tuner": "tuner run --objective time, every answer checked",
    "neutral": "CUDA events; optimum and shares by cold L2; finalists 200 launches each in turn",
}

Job = tuple[str, Callable[[], dict[str, Any]]]
"""What to print, and a run."""


def main() -> None:
    """Run the parts chosen, print the tables, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--spaces", nargs="+", choices=list(SPACES), default=list(SPACES))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=5, help="of each strategy")
    parser.add_argument(
        "--tuners", nargs="+", choices=["kernel-tuner", "tuner"], default=["kernel-tuner", "tuner"]
    )
    parser.add_argument("--verified", nargs="*", choices=list(SPACES), default=["scan"])
    parser.add_argument("--backend", choices=["cupy", "nvcuda"], default="cupy", help="of Kernel Tuner")
    options = parser.parse_args()
    document = opened(options.out)
    if "kernel-tuner" in options.tuners:
        document["kernel_tuner"] = metadata.version("kernel_tuner")
    architecture = compute_capability()
    touch(options.tuners)
    try:
        for name in options.spaces:
            compare(name, architecture, options, document)
    except KeyboardInterrupt:
        sys.exit(f"\nstopped; what was finished is in {options.out}")


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
    with folder() as place:
        if "kernel-tuner" in tuners:
            ended([sys.executable, "-c", "import cupy, kernel_tuner; cupy.zeros(1)"], Caches(), place / "log")
        ended([*TUNER, "devices"], Caches(), place / "log")


def compare(name: str, architecture: int, options: argparse.Namespace, document: dict[str, Any]) -> None:
    """All parts of one space."""
    path, sizes = SPACES[name]
    kernel = load_kernel_file(path)
    space = space_of(kernel, kernel.workload(sizes), architecture)
    part: dict[str, Any] = document["spaces"].setdefault(name, {"runs": [], "neutral": None})
    part["workload"], part["configurations"] = space.task.workload, len(space.configurations)
    part["tunables"] = {key: list(values) for key, values in space.task.tunables.items()}
    print(f"{space.task.workload}: {len(space.configurations)} configurations", flush=True)
    kernel_file = path if path.is_relative_to(ROOT / "examples") else None
    compiled = Caches()
    jobs = list(jobs_of(name, space, options, kernel_file, compiled))
    for number, (label, run) in enumerate(jobs, 1):
        print(f"[{number}/{len(jobs)}] {label} ... ", end="", flush=True)
        found = run()
        keep(part["runs"], found)
        save(options.out, document)
        print(found["trouble"] or f"{found['wall_s']:.1f} s, {found['evaluations']} evaluations", flush=True)
    if "neutral" in options.parts:
        finalists = sorted({run["best"] for run in part["runs"] if run["best"] is not None})
        part["neutral"] = neutral_run(space, compiled, finalists)
    finish(space, part)
    save(options.out, document)


def keep(runs: list[dict[str, Any]], found: dict[str, Any]) -> None:
    """Add a run in place of an earlier one of the same kind."""
    kind = ("tuner", "method", "cache", "verified", "seed")
    runs[:] = [run for run in runs if any(run[key] != found[key] for key in kind)] + [found]


def jobs_of(
    name: str, space: ComparedSpace, options: argparse.Namespace, kernel_file: Path | None, compiled: Caches
) -> Iterator[Job]:
    """The runs of a space, those of both tuners in turn."""
    peer, own = "kernel-tuner" in options.tuners, "tuner" in options.tuners
    own_caches = Caches()
    if "exhaustive" in options.parts:
        for cache in ("cold", "warm"):
            if peer:
                yield _peer(space, options, compiled, cache, "brute_force")
            if own:
                yield _own(space, own_caches, cache, "exhaustive", kernel_file)
        if peer and name in options.verified and options.backend == "cupy":
            yield _peer(space, options, Caches(), "cold", "brute_force", verify=True)
    if "strategies" in options.parts:
        for seed in range(1, options.seeds + 1):
            if peer:
                yield _peer(space, options, Caches(), "cold", STRATEGY, budget=max(BUDGETS), seed=seed)
            if own:
                yield _own(space, Caches(), "cold", "auto", kernel_file, seed=seed)


def _peer(
    space: ComparedSpace, options: argparse.Namespace, caches: Caches, cache: str, strategy: str, **given: Any
) -> Job:
    method = f"{strategy} {given['budget']}" if "budget" in given else strategy
    label = f"Kernel Tuner {method}, {cache}" + (", answers checked" if given.get("verify") else "")

    def run() -> dict[str, Any]:
        found = kernel_tuner_run(space, caches, strategy=strategy, backend=options.backend, **given)
        return {**found, "method": method, "cache": cache, "backend": options.backend}

    return f"{label}, seed {given.get('seed', 0)}", run


def _own(
    space: ComparedSpace, caches: Caches, cache: str, policy: str, kernel_file: Path | None, *, seed: int = 0
) -> Job:
    def run() -> dict[str, Any]:
        found = tuner_run(space, caches, policy=policy, seed=seed, kernel_file=kernel_file)
        return {**found, "method": policy, "cache": cache}

    return f"tuner {policy}, {cache}, seed {seed}", run


def finish(space: ComparedSpace, part: dict[str, Any]) -> None:
    """Print a space's table and add it to the document."""
    share = None if part["neutral"] is None else efficiencies(neutral_ms(part["neutral"]))
    runs = with_halves(part["runs"])
    found = rows(runs, share)
    part["rows"] = [asdict(row) for row in found]
    print(table(f"\n{part['workload']}, {part['configurations']} configurations", found), flush=True)
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
