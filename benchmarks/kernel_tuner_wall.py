"""Walls of processes that tune a kernel: Kernel Tuner, a user's loop and ``tuner``, judged by one timer.

Every column gets the same source, configurations, launches and compiler options, all made from one kernel
file (``benchmarks/users``), and is a process of its own; columns take turns on one GPU. Wall is from a
process's start to its end. *Cold* processes have new folders for all caches, *warm* ones those of the cold
one before. Byte code is there before, as pip leaves it. Memory is the most that a process and its children
took together.

    brute-force             Kernel Tuner over CuPy, every configuration, its defaults (7 launches each)
    adaptive_tabu_greywolf  its strategy of that name, 100 evaluations
    hybrid_vndx             likewise
    loop                    the loop that a user writes in an hour (kernel_tuner_loop.py)
    auto, exhaustive        ``tuner run --objective time``

``tuner`` checks every answer; the others check none. CuPy always flushes denormals, so users' kernel files
ask for that too; the scan's, which is the catalogue's, does not. When all columns of a kernel have ended,
one more process times what they chose and the whole space, both back to back and in single launches with a
cold L2 (kernel_tuner_neutral.py). Efficiency is the best time by the chosen one's, for each of the two
timings.

    pip install '.[cuda13,search]'
    python benchmarks/kernel_tuner_wall.py                        # what there is to run; needs no GPU
    python benchmarks/kernel_tuner_wall.py --out walls-h200.json [--only softmax triad] [--columns loop auto]
        [--cold 1] [--warm 3]
    python benchmarks/kernel_tuner_wall.py --show walls-h200.json [--docs docs/results.md]

``--out`` is written after every process. What it holds of other kernels, columns and caches stays, if it is
of the same GPU, driver and kernels.
"""

import argparse
import compileall
import contextlib
import hashlib
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from headlines import write_table
from provenance import MemoryPeak, provenance

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError, TunerError
from tuner.model.plan import Configuration, Plan, Scalar, Stage, StructValue, TunableValue, Workload
from tuner.problems.lookup import problem_for

# --- a kernel file's space as plain data, for processes that know nothing of ``tuner`` ---------------

KERNEL = "TUNED_KERNEL"
"""Macro that stands for the function with its template arguments."""

FLUSH = "--ftz=true"
"""Given by CuPy always, so it is not given twice."""

LAYOUT_BYTES = 16
"""Of a ``RowLayout`` of two arrays, which nothing reads where rows follow each other."""

Label = int | float | str
"""A tunable's value as others get it: truth values are 0 and 1."""


@dataclass(frozen=True)
class Task:
    """What is tuned.

    Attributes:
        workload: name, as ``tuner run`` takes it.
        source: text of the translation unit.
        headers: name -> text.
        options: NVRTC options.
        tunables: name -> labels that occur, in the order of the kernel file.
        configurations: labels in the order of ``tunables``.
        macros: name -> its value for each configuration; ``KERNEL`` is the function's.
        launches: blocks, threads and dynamic shared memory of each configuration.
        block_names: the tunables that are threads of a block in x, y, z, as far as there are any.
        arguments: of the function, in order: ``{"buffer", "dtype", "shape", "role"}`` or
            ``{"dtype", "value"}``.
    """

    workload: str
    source: str
    headers: dict[str, str]
    options: tuple[str, ...]
    tunables: dict[str, tuple[Label, ...]]
    configurations: tuple[tuple[Label, ...], ...]
    macros: dict[str, tuple[str, ...]]
    launches: tuple[dict[str, Any], ...]
    block_names: tuple[str, ...]
    arguments: tuple[dict[str, Any], ...]

    @property
    def digest(self) -> str:
        """Of all it says: numbers of configurations mean the same where it is the same."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]

    def index(self, values: Mapping[str, TunableValue]) -> int:
        """The number of a configuration as ``tuner`` names it."""
        return self.configurations.index(tuple(plain(values[name]) for name in self.tunables))

    def named(self, number: int) -> str:
        """A configuration in words."""
        return " ".join(
            f"{name}={v}" for name, v in zip(self.tunables, self.configurations[number], strict=True)
        )


def task_of(kernel: KernelFile, workload: Workload, architecture: int) -> Task:
    """The space of a workload.

    Args:
        kernel: of one launch, without conditions, whose blocks are as large as tunables say.
        workload: what is computed.
        architecture: compute capability times ten; configurations for newer devices are left out.

    Raises:
        InputError: the kernel file has something that Kernel Tuner has no words for.
    """
    plans = [kernel.plan(workload, configuration) for configuration in kernel.space(workload)]
    plans = [plan for plan in plans if all(s.min_architecture <= architecture for s in plan.stages)]
    stages = [plan.stages[0] for plan in plans]
    if any(len(plan.stages) != 1 or plan.stages[0].resident for plan in plans) or kernel.conditions:
        raise InputError(f"{workload}: only kernels of one launch, without conditions, can be compared")
    if len({(s.source, s.arguments, s.symbols, _other_options(s)) for s in stages}) != 1 or stages[0].symbols:
        raise InputError(f"{workload}: source, options and arguments must be those of all configurations")
    rows = tuple(tuple(map(plain, plan.configuration.values())) for plan in plans)
    names = tuple(plans[0].configuration)
    return Task(
        workload=str(workload),
        source=stages[0].source.text,
        headers=dict(stages[0].source.headers),
        options=tuple(option for option in _other_options(stages[0]) if option != FLUSH),
        tunables={
            name: tuple(plain(v) for v in kernel.tunables[name] if plain(v) in column)
            for name, column in zip(names, zip(*rows, strict=True), strict=True)
        },
        configurations=rows,
        macros=_macros(stages),
        launches=tuple({"grid": s.grid, "block": s.block, "shared_bytes": s.shared_bytes} for s in stages),
        block_names=block_names([plan.configuration for plan in plans], [s.block for s in stages]),
        arguments=tuple(arguments_of(plans[0])),
    )


def _macros(stages: Sequence[Stage]) -> dict[str, tuple[str, ...]]:
    """Macros that the options define, and the function's name, which may be one too."""
    found = [dict(_defined(s)) | {KERNEL: s.entry} for s in stages]
    return {name: tuple(macros[name] for macros in found) for name in found[0]}


def _defined(stage: Stage) -> Iterator[tuple[str, str]]:
    for option in stage.options:
        if option.startswith("-D"):
            name, _, value = option[2:].partition("=")
            yield name, value


def _other_options(stage: Stage) -> tuple[str, ...]:
    return tuple(option for option in stage.options if not option.startswith("-D"))


def plain(value: TunableValue) -> Label:
    """A value as others get it."""
    return int(value) if isinstance(value, bool) else value


def block_names(
    configurations: Sequence[Configuration], blocks: Sequence[tuple[int, int, int]]
) -> tuple[str, ...]:
    """The tunables that are the threads of a block, one per axis up to the last with more than one thread.

    Raises:
        InputError: an axis is no tunable's value.
    """
    columns = list(zip(*blocks, strict=True))
    while columns and set(columns[-1]) == {1}:
        columns.pop()
    chosen = []
    for axis, column in enumerate(columns):
        fitting = (
            name
            for name in configurations[0]
            if all(c[name] == threads for c, threads in zip(configurations, column, strict=True))
        )
        name = next(fitting, None)
        if name is None:
            raise InputError(f"the threads of a block along axis {axis} are no tunable's value")
        chosen.append(name)
    return tuple(chosen)


def arguments_of(plan: Plan) -> Iterator[dict[str, Any]]:
    """The function's arguments as plain values.

    Raises:
        InputError: one is a tensor map, or a struct other than a layout of rows of two arrays.
    """
    buffers = {buffer.name: buffer for buffer in plan.buffers}
    for argument in plan.stages[0].arguments:
        if isinstance(argument, Scalar):
            yield {"dtype": argument.dtype, "value": argument.value}
        elif isinstance(argument, StructValue) and len(argument.bytes) == LAYOUT_BYTES:
            yield {"dtype": "complex128", "value": 0.0}
        elif isinstance(argument, str):
            one = buffers[argument]
            yield {"buffer": one.name, "dtype": one.dtype, "shape": list(one.shape), "role": one.role}
        else:
            raise InputError("tensor maps and other structs cannot be passed by Kernel Tuner")


def write(task: Task, plan: Plan, folder: Path) -> None:
    """Write a task with its headers and its whole-numbered inputs, which may not be just any numbers."""
    for name, text in task.headers.items():
        (folder / name).write_text(text)
    indices = [
        buffer for buffer in plan.buffers if buffer.role == "in" and np.dtype(buffer.dtype).kind in "iu"
    ]
    if indices:
        sizes = {**dict(plan.workload.sizes), "batch": plan.workload.batch}
        made = problem_for(plan.problem).inputs(np, np.random.default_rng(0), plan.buffers, sizes)
        for buffer in indices:
            np.save(folder / f"{buffer.name}.npy", np.asarray(made[buffer.name]))
    (folder / "task.json").write_text(json.dumps(asdict(task)))


# --- processes, cold or warm -------------------------------------------------------------------------

BENCHMARKS = Path(__file__).resolve().parent
TIMEOUT_S = 180.0
TUNER = (sys.executable, "-c", "from tuner.cli.main import main; main()")
CACHES = {  # every folder in which a column, CuPy or the driver keeps what it compiled
    "XDG_CACHE_HOME": "cache",
    "XDG_STATE_HOME": "state",
    "CUPY_CACHE_DIR": "cupy",
    "CUDA_CACHE_PATH": "cuda",
}
TAIL_CHARACTERS = 2000


@dataclass(frozen=True)
class Ended:
    """A process that ended by itself.

    Attributes:
        wall_s: from its start to its end.
        peak_bytes: most memory of it and its children together.
        memory: ``pss`` or ``rss``: how that was measured.
        trouble: the end of what it wrote, if it failed.
    """

    wall_s: float
    peak_bytes: int
    memory: str
    trouble: str = ""


def environment(caches: Path) -> dict[str, str]:
    """The environment of a process that keeps its caches there, and byte code as an installation does."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **{name: str(caches / part) for name, part in CACHES.items()}}


def ended(command: Sequence[str | Path], caches: Path, log: Path) -> Ended:
    """Run a command to its end, its output into a file.

    A process that takes longer than ``TIMEOUT_S`` is stopped; so is it when we are.
    """
    with log.open("w") as output:
        began = time.monotonic()
        process = subprocess.Popen(
            list(map(str, command)),
            env=environment(caches),
            cwd=caches,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            with MemoryPeak(process.pid) as memory:
                status = process.wait(TIMEOUT_S)
                wall_s = time.monotonic() - began
        except subprocess.TimeoutExpired:
            status, wall_s = -1, TIMEOUT_S
        finally:
            _stop(process)
    trouble = f"status {status}: {log.read_text()[-TAIL_CHARACTERS:]}" if status else ""
    return Ended(wall_s, memory.peak_bytes, memory.measure, trouble)


def _stop(process: subprocess.Popen[Any]) -> None:
    """End a process that still runs: ask, then insist."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
    if process.poll() is None:
        process.kill()
        process.wait()


@contextlib.contextmanager
def new_folder() -> Iterator[Path]:
    """A folder for what processes leave."""
    with tempfile.TemporaryDirectory(prefix="wall-", ignore_cleanup_errors=True) as name:
        yield Path(name)


STRATEGIES = ("adaptive_tabu_greywolf", "hybrid_vndx")
KERNEL_TUNER, OURS = ("brute-force", *STRATEGIES), ("auto", "exhaustive")
COLUMNS = (*KERNEL_TUNER, "loop", *OURS)
BUDGET = 100  # evaluations of a strategy


def run(
    column: str, task: Task, *, folder: Path, caches: Path, kernel: Path, seed: int
) -> tuple[Ended, dict[str, int]]:
    """A column's process; ``evaluations`` and the number ``chosen``, unless it failed.

    Args:
        column: of ``COLUMNS``.
        task: what is tuned.
        folder: where it is written.
        caches: folder of the process's caches.
        kernel: the kernel file.
        seed: of the search.
    """
    with new_folder() as place:
        out = place / "out.json"
        if column in OURS:
            command: list[str | Path] = [
                *TUNER,
                "run",
                task.workload,
                "--kernel",
                kernel,
                "--objective",
                "time",
            ]
            command += ["--policy", column, "--seed", str(seed), "--min-occupancy", "0%"]
            command += ["--database", place / "tuner.db", "--json", out]
        elif column == "loop":
            command = [sys.executable, BENCHMARKS / "kernel_tuner_loop.py", folder, out]
        else:
            command = [sys.executable, BENCHMARKS / "kernel_tuner_child.py", folder, out, "--seed", str(seed)]
            command += ["--strategy", column, "--budget", str(BUDGET)] if column in STRATEGIES else []
        end = ended(command, caches, place / "log")
        if end.trouble:
            return end, {}
        found = json.loads(out.read_text())
    if column not in OURS:
        return end, found
    chosen = task.index(found["best"]["configurations"][task.workload])
    return end, {"evaluations": found["space"]["measured"], "chosen": chosen}


# --- what the runs come to ---------------------------------------------------------------------------

WIDTH = 120  # of lines of a page
TIMINGS = {"back_to_back": "back to back", "single": "single launches, cold L2"}


def judge(part: dict[str, Any], task: Task, folder: Path) -> None:
    """Add the best of the space and the efficiency of what was chosen, by both timings."""
    chosen = sorted({number for row in part["rows"] for number in row["chosen"]})
    with new_folder() as caches:
        out = caches / "out.json"
        script = BENCHMARKS / "kernel_tuner_neutral.py"
        command: list[str | Path] = [sys.executable, script, folder, out, "--finalists", *map(str, chosen)]
        end = ended(command, caches, caches / "log")
        if end.trouble:  # what was run before is worth having all the same
            print(f"judgement: {end.trouble}", flush=True)
            return
        found = json.loads(out.read_text())
    part["best"] = {}
    for timing in TIMINGS:
        times_ms = {int(number): ms for number, ms in found[timing].items()}
        best = min(times_ms, key=times_ms.__getitem__)
        part["best"][timing] = {"configuration": task.named(best), "ms": rounded(times_ms[best])}
        for row in part["rows"]:
            row.setdefault("efficiency", {})[timing] = [
                rounded(times_ms[best] / times_ms[number]) for number in row["chosen"]
            ]


def rounded(value: float) -> float:
    """Four digits: no wall or time here is known better."""
    return float(f"{value:.4g}")


def table(document: Mapping[str, Any], link: str = "") -> str:
    """A result in Markdown: walls with efficiencies by both timings, and ratios below."""
    first, *_, last = [*document["provenance"]] * 2
    dates = " to ".join(dict.fromkeys((first["date"][:10], last["date"][:10])))
    versions = last["packages"]
    peer = f"Kernel Tuner {versions['kernel_tuner']}, " if "kernel_tuner" in versions else ""
    hosts = " or ".join(dict.fromkeys(one["cpus"] for one in document["provenance"]))
    origin = f"{gpu_of(last)}, {hosts}, {peer}{dates}{link}."
    runs = {len(row["wall_s"]) for part in document["kernels"].values() for row in part["rows"]}
    repeats = " to ".join(map(str, sorted({min(runs, default=0), max(runs, default=0)})))
    meaning = f"Wall of the process, median of {repeats} runs; in brackets the median efficiency in percent,"
    head = ["kernel", "configurations", "caches", *(f"`{name}`" for name in COLUMNS), "memory of `tuner`"]
    lines = [
        *textwrap.wrap(f"{origin} {meaning} {' / '.join(TIMINGS.values())}:", WIDTH),
        "",
        f"| {' | '.join(head)} |",
        f"| --- | ---: | --- | {' | '.join(['---:'] * (len(COLUMNS) + 1))} |",
    ]
    for name, part in document["kernels"].items():
        for cache in ("cold", "warm"):
            rows = {row["column"]: row for row in part["rows"] if row["cache"] == cache}
            if not rows:
                continue
            least_s = min((wall_s(row) for row in rows.values()), default=math.inf)
            peaks = [peak for one in OURS if one in rows for peak in rows[one]["peak_mb"]]
            cells = [f"`{name}`", str(part["configurations"]), cache]
            cells += [cell(rows[one], least_s) if one in rows else "–" for one in COLUMNS]
            lines.append(f"| {' | '.join(cells)} | {f'{max(peaks):.0f} MB' if peaks else '–'} |")
    return "\n".join([*lines, "", *ratios(document["kernels"])]).rstrip()


def wall_s(row: Mapping[str, Any]) -> float:
    """The median of a row's runs; infinite where all failed."""
    return float(statistics.median(row["wall_s"] or [math.inf]))


def cell(row: Mapping[str, Any], least_s: float) -> str:
    """Wall, bold if it is the least of its line, and efficiencies where they were judged."""
    if not row["wall_s"]:
        return "failed"
    bold = "**" * (wall_s(row) == least_s)
    shares = [f"{100 * statistics.median(found):.1f}" for found in row.get("efficiency", {}).values()]
    return f"{bold}{wall_s(row):.1f} s{bold}" + f" ({' / '.join(shares)})" * bool(shares)


def ratios(kernels: Mapping[str, Any]) -> list[str]:
    """``auto``'s wall by that of its peers: the median over the kernels, least and most."""
    lines = []
    peers = {
        "the faster of Kernel Tuner's strategies": STRATEGIES,
        "Kernel Tuner's brute force": ("brute-force",),
        "the loop": ("loop",),
    }
    for cache in ("cold", "warm"):
        for peer, columns in peers.items():
            found = []
            for part in kernels.values():
                walls = {r["column"]: wall_s(r) for r in part["rows"] if r["cache"] == cache and r["wall_s"]}
                others = [walls[column] for column in columns if column in walls]
                if others and "auto" in walls:
                    found.append(walls["auto"] / min(others))
            if found:
                middle, least, most = statistics.median(found), min(found), max(found)
                span = f"{least:.2f} to {most:.2f} ×, {len(found)} kernels"
                lines.append(
                    f"- {cache}: `auto` took {middle:.2f} × the wall of {peer} in the median ({span})"
                )
    return lines


# --- the command -------------------------------------------------------------------------------------

ROOT = BENCHMARKS.parent
SCAN = ROOT / "kernels" / "scan-lf" / "kernel.toml"
USERS = BENCHMARKS / "users"
HOPPER = 90  # what is listed without a GPU


def kernel_files() -> dict[str, Path]:
    """Kernel files by name: users' kernels, and a scan of the catalogue."""
    pragmas = (path for path in USERS.glob("*.cu") if "#pragma tuner" in path.read_text())
    return {"scan": SCAN, **{path.stem: path for path in sorted([*USERS.glob("*.toml"), *pragmas])}}


def workload_of(kernel: KernelFile) -> Workload:
    """What is timed: the first sizes of a file, 1024 elements of the scan."""
    if kernel.path == SCAN:
        return kernel.workload({"N": 1024})
    return kernel.workloads()[0]


def main() -> None:
    """Run the columns chosen and judge them, list what there is, or show a result."""
    options = parsed(sys.argv[1:])
    if options.show is not None:
        show(options.show, options.docs)
    elif options.out is None:
        listed(options.only)
    else:
        try:
            measure(options)
        except KeyboardInterrupt:
            sys.exit(f"\nstopped; what was finished is in {options.out}")


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    names = list(kernel_files())
    parser.add_argument("--out", type=Path, metavar="FILE", help="run, and write the results to this file")
    parser.add_argument("--show", type=Path, metavar="FILE", help="print the table of a result; run nothing")
    parser.add_argument("--docs", type=Path, metavar="PAGE", help="with --show: write it into this page")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="KERNEL")
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, default=list(COLUMNS), metavar="COLUMN")
    parser.add_argument("--cold", type=int, default=3, metavar="N", help="cold runs (%(default)s)")
    parser.add_argument(
        "--warm", type=int, default=3, metavar="N", help="warm runs after these (%(default)s)"
    )
    options = parser.parse_args(words)
    options.only, options.columns = list(dict.fromkeys(options.only)), list(dict.fromkeys(options.columns))
    if options.cold < 1 or options.warm < 0:
        parser.error("--cold is at least 1, as warm runs need its caches, and --warm at least 0")
    if options.docs is not None and options.show is None:
        parser.error("--docs is given with --show")
    if options.out is not None and not options.out.resolve().parent.is_dir():
        parser.error(f"--out: there is no folder {options.out.resolve().parent}")
    return options


def refuse(message: str) -> NoReturn:
    """End with exit code 2."""
    print(message, file=sys.stderr)
    sys.exit(2)


def stored(path: Path) -> dict[str, Any]:
    """A result of this benchmark."""
    try:
        document = json.loads(path.read_text("utf-8"))
        table(document)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        refuse(f"{path} is no result of this benchmark: {type(error).__name__}: {error}")
    return dict(document)


def show(path: Path, page: Path | None) -> None:
    """Print a result's table, or put it into a page, in place of the one that is there."""
    found = table(stored(path), "" if page is None else f" ([JSON](../benchmarks/results/{path.name}))")
    if page is None:
        print(found)
    else:
        write_table(page, "walls", found)


def listed(names: Sequence[str]) -> None:
    """Print what there is to run."""
    print(f"{'kernel':14}{'workload':32}{'configurations':>15}  threads are   template or macros")
    for name in names:
        kernel = load_kernel_file(kernel_files()[name])
        task = task_of(kernel, workload_of(kernel), HOPPER)
        macros = ", ".join(f"{macro}={values[0]}" for macro, values in task.macros.items())
        threads = " ".join(task.block_names)
        print(f"{name:14}{task.workload:32}{len(task.configurations):>15}  {threads}   {macros}")
    print(f"columns: {', '.join(COLUMNS)}; --out FILE runs them")


def measure(options: argparse.Namespace) -> None:
    """Run the columns of all kernels chosen."""
    architecture = compute_capability()
    document = opened(options)
    compile_first(options.columns)
    for name in options.only:
        path = kernel_files()[name]
        kernel = load_kernel_file(path)
        workload = workload_of(kernel)
        try:
            task = task_of(kernel, workload, architecture)
        except TunerError as error:
            refuse(str(error))
        fresh = {"workload": task.workload, "configurations": len(task.configurations), "digest": task.digest}
        part = document["kernels"].setdefault(name, {**fresh, "rows": []})
        if part.get("digest") != task.digest:
            refuse(f"{options.out} has {name} of another kernel file; write to another file")
        print(f"{task.workload}: {len(task.configurations)} configurations", flush=True)
        with new_folder() as folder:
            write(task, kernel.plan(workload, kernel.default(workload)), folder)
            sitting = len(document["provenance"]) - 1
            for _ in compare(
                part["rows"], task, folder=folder, kernel=path, options=options, sitting=sitting
            ):
                save(options.out, document)
            judge(part, task, folder)
        save(options.out, document)
    print(table(document))


def compare(
    rows: list[dict[str, Any]],
    task: Task,
    *,
    folder: Path,
    kernel: Path,
    options: argparse.Namespace,
    sitting: int,
) -> Iterator[dict[str, Any]]:
    """Run the columns in turn, cold and then warm; yields the row to which each run was added."""
    with contextlib.ExitStack() as stack:
        caches: dict[str, Path] = {}
        turns = [("cold", seed) for seed in range(options.cold)] + [("warm", options.cold - 1)] * options.warm
        made: dict[tuple[str, str], dict[str, Any]] = {}
        for cache, seed in turns:  # a warm run has the seed whose caches it gets
            for column in options.columns:
                if cache == "cold":
                    caches[column] = stack.enter_context(new_folder())
                if (column, cache) not in made:
                    made[column, cache] = new_row(rows, column, cache, sitting)
                end, found = run(column, task, folder=folder, caches=caches[column], kernel=kernel, seed=seed)
                add(made[column, cache], end, found)
                told = end.trouble or f"{end.wall_s:.1f} s, {found['evaluations']} evaluations"
                print(f"  {column}, {cache}: {told}", flush=True)
                yield made[column, cache]


def new_row(rows: list[dict[str, Any]], column: str, cache: str, sitting: int) -> dict[str, Any]:
    """A row without runs, in place of one of an earlier sitting."""
    rows[:] = [row for row in rows if (row["column"], row["cache"]) != (column, cache)]
    lists: dict[str, Any] = {key: [] for key in ("wall_s", "evaluations", "chosen", "peak_mb")}
    rows.append({"column": column, "cache": cache, "sitting": sitting, **lists})
    return rows[-1]


def add(row: dict[str, Any], end: Ended, found: Mapping[str, int]) -> None:
    """Add a run to its row."""
    if end.trouble:
        row["trouble"] = end.trouble[-300:]
        return
    row["wall_s"].append(rounded(end.wall_s))
    row["peak_mb"].append(rounded(end.peak_bytes / 1e6))
    row["memory"] = end.memory
    row["evaluations"].append(found["evaluations"])
    row["chosen"].append(found["chosen"])


def opened(options: argparse.Namespace) -> dict[str, Any]:
    """What the file holds already, with the origin of this sitting."""
    sitting = provenance()
    document: dict[str, Any] = {"provenance": [], "kernels": {}}
    if options.out.exists():
        document = stored(options.out)
        before, machine = (gpu_of(one) for one in (document["provenance"][0], sitting))
        if machine != before:
            refuse(f"{options.out} is of {before}; this machine has {machine}; write to another file")
    document["provenance"].append(sitting)
    for module, extra in (("cupy", "cuda13"), ("kernel_tuner", "search")):
        wanted = module == "cupy" or set(KERNEL_TUNER) & set(options.columns)
        if wanted and importlib.util.find_spec(module) is None:
            refuse(f"{module} is not installed: pip install '.[{extra}]'; --columns leaves out what needs it")
    return document


def gpu_of(sitting: Mapping[str, Any]) -> str:
    """Name and driver of the first GPU of a sitting."""
    return "{name}, driver {driver_version}".format_map(sitting["gpus"][0])


def save(path: Path, document: Mapping[str, Any]) -> None:
    """Write it whole or not at all."""
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(document, separators=(",", ":")) + "\n")
    draft.replace(path)


def compute_capability() -> int:
    """Of GPU 0, times ten."""
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader", "--id=0"]
    try:
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        refuse(f"this benchmark needs an NVIDIA GPU: {error}")
    return int(answer.strip().replace(".", ""))


def compile_first(columns: Sequence[str]) -> None:
    """Make the byte code of all that is timed, and let each import its libraries once."""
    peers = ["kernel_tuner"] if set(KERNEL_TUNER) & set(columns) else []
    for name in ("tuner", "tuner.power", "tuner.policies", *peers):
        spec = importlib.util.find_spec(name)
        for folder in spec.submodule_search_locations or () if spec else ():
            compileall.compile_dir(folder, quiet=2)
    imported = [sys.executable, "-c", f"import {', '.join(['cupy', *peers])}; cupy.zeros(1)"]
    with new_folder() as caches:
        first = ["run", "scan-lf:N=64", "--objective", "time", "--policy", "analytical"]
        for command in (imported, [*TUNER, *first, "--database", caches / "tuner.db"]):
            if trouble := ended(command, caches, caches / "log").trouble:
                refuse(f"a first run failed: {trouble}")


if __name__ == "__main__":
    main()
