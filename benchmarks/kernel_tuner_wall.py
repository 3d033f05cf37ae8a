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
    python benchmarks/kernel_tuner_wall.py --show benchmarks/results/kernel-tuner-wall-h200.json

Without neutral times (a run that was stopped) shares of the optimum are by the median of ``tuner``'s sweeps.
What ``--out`` holds of other parts and spaces stays; it is written after every process.
"""

import argparse
import contextlib
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from process_memory import MemoryPeak
from provenance import provenance

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError
from tuner.model.plan import Configuration, Plan, Scalar, StructValue, TunableValue, Workload

# --- a kernel file's space in the terms of Kernel Tuner --------------------------------------------

LAYOUT_BYTES = 16
"""Of a ``RowLayout`` of two arrays, which nothing reads where rows follow each other."""

Label = int | float | str
"""A tunable's value as Kernel Tuner gets it: truth values as 0 and 1, as C++ and its users write them."""


@dataclass(frozen=True)
class Launch:
    """Blocks, threads and dynamic shared memory of one configuration."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int


@dataclass(frozen=True)
class Task:
    """What Kernel Tuner is asked to tune.

    Attributes:
        workload: name, as ``tuner run`` takes it.
        kernel: kernel name with template arguments; a tunable's name stands for its value.
        source: file of the translation unit.
        options: NVRTC options, with the folders of headers.
        tunables: name -> labels that occur.
        configurations: the legal ones, labels in the order of ``tunables``.
        launches: one per configuration.
        block_names: the tunables that are threads of a block in x, y, z, as far as there are any.
        arguments: of the function, in order: ``{"buffer", "dtype", "shape", "role"}`` or
            ``{"dtype", "value"}``.
    """

    workload: str
    kernel: str
    source: str
    options: tuple[str, ...]
    tunables: dict[str, tuple[Label, ...]]
    configurations: tuple[tuple[Label, ...], ...]
    launches: tuple[Launch, ...]
    block_names: tuple[str, ...]
    arguments: tuple[dict[str, Any], ...]

    def write(self, path: Path) -> Path:
        """Write it as JSON, for a process that knows nothing of ``tuner``."""
        path.write_text(json.dumps(asdict(self)))
        return path


@dataclass(frozen=True)
class ComparedSpace:
    """A task, and the same configurations in our words.

    Attributes:
        task: for Kernel Tuner.
        configurations: in the order of the task's.
    """

    task: Task
    configurations: tuple[Configuration, ...]

    def index(self, values: Mapping[str, TunableValue]) -> int:
        """The number of a configuration as ``tuner`` names it."""
        return self.configurations.index(Configuration(values))

    def index_of_row(self, row: Sequence[Label]) -> int:
        """The number of a configuration as Kernel Tuner names it."""
        return self.task.configurations.index(tuple(row))


@dataclass(frozen=True)
class Naming:
    """How a configuration is written into the name of a template's instance.

    Attributes:
        kernel: see ``Task``.
        labels: tunable -> value -> label.
    """

    kernel: str
    labels: Mapping[str, Mapping[TunableValue, Label]]

    def row(self, configuration: Configuration) -> tuple[Label, ...]:
        """The labels of a configuration, in the order of the tunables."""
        return tuple(self.labels[name][configuration[name]] for name in self.labels)


def space_of(kernel: KernelFile, workload: Workload, architecture: int) -> ComparedSpace:
    """The space of a workload on a device.

    Args:
        kernel: with one stage, and an entry that is a template with one argument for each tunable that
            matters to the code.
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
    if len({(stage.source, stage.options, stage.arguments) for stage in stages}) != 1:
        raise InputError(f"{workload}: source, options and arguments must be those of all configurations")
    naming = name_of(plans, kernel.tunables)
    rows = tuple(naming.row(plan.configuration) for plan in plans)
    if len(set(rows)) != len(rows):
        raise InputError(f"{workload}: different configurations have the same labels")
    used = list(zip(*rows, strict=True))
    task = Task(
        workload=str(workload),
        kernel=naming.kernel,
        source=stages[0].source.path,
        options=(*stages[0].options, *(f"-I{folder}" for folder in header_folders(kernel))),
        tunables={
            name: tuple(label for label in labels.values() if label in column)
            for (name, labels), column in zip(naming.labels.items(), used, strict=True)
        },
        configurations=rows,
        launches=tuple(Launch(stage.grid, stage.block, stage.shared_bytes) for stage in stages),
        block_names=block_names([plan.configuration for plan in plans], [stage.block for stage in stages]),
        arguments=arguments_of(plans[0]),
    )
    return ComparedSpace(task, tuple(plan.configuration for plan in plans))


def name_of(plans: Sequence[Plan], tunables: Mapping[str, Sequence[TunableValue]]) -> Naming:
    """The instance's name with tunables in place of their values.

    A template argument that is a tunable's value becomes the tunable's name. One that only follows from a
    tunable (``bulk``, where ``store`` is ``"bulk"``) becomes its name too, and the tunable's labels are the
    arguments.

    Args:
        plans: of all configurations.
        tunables: the values of each, in the order of the kernel file, which the labels keep.

    Raises:
        InputError: an argument follows from no single tunable.
    """
    entry, _, arguments = plans[0].stages[0].entry.partition("<")
    rows = [plan.stages[0].entry.partition("<")[2].rstrip(">").split(", ") for plan in plans]
    names = list(plans[0].configuration)
    labels: dict[str, dict[TunableValue, Label]] = {
        name: {value: plain(value) for value in tunables[name] if value in occurring}
        for name in names
        for occurring in [{plan.configuration[name] for plan in plans}]
    }
    columns = list(zip(*rows, strict=True))
    behind = {place: one for place, column in enumerate(columns) if (one := _same(plans, names, column))}
    words = []
    for place, column in enumerate(columns):
        if len(set(column)) == 1:
            words.append(column[0])
            continue
        if place not in behind:
            free = [name for name in names if name not in behind.values()]
            name = _cause(plans, free, column)
            known = dict(_pairs(plans, name, column))
            labels[name] = {value: truth(known[value]) for value in labels[name]}
            behind[place] = name
        words.append(behind[place])
    return Naming(f"{entry}<{', '.join(words)}>" if arguments else entry, labels)


def _same(plans: Sequence[Plan], names: Sequence[str], column: Sequence[str]) -> str | None:
    """The tunable whose values stand in a place of the name."""
    fitting = (n for n in names if all(written(v) == word for v, word in _pairs(plans, n, column)))
    return next(fitting, None)


def _cause(plans: Sequence[Plan], names: Sequence[str], column: Sequence[str]) -> str:
    """The tunable from which a place of the name follows."""
    for name in names:
        pairs = set(_pairs(plans, name, column))
        if len(pairs) == len({value for value, _ in pairs}):
            return name
    raise InputError(f"the template argument {column[0]!r} follows from no tunable alone")


def _pairs(plans: Sequence[Plan], name: str, column: Sequence[str]) -> list[tuple[TunableValue, str]]:
    """What a tunable is, and what stands in a place of the name, in every plan."""
    return [(plan.configuration[name], word) for plan, word in zip(plans, column, strict=True)]


def plain(value: TunableValue) -> Label:
    """A value as Kernel Tuner gets it."""
    return int(value) if isinstance(value, bool) else value


def truth(word: str) -> Label:
    """A template argument as label: 0 and 1 for truth values, else the word."""
    return {"false": 0, "true": 1}.get(word, word)


def written(value: TunableValue) -> str:
    """A value as kernel files write it into names."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def block_names(
    configurations: Sequence[Configuration], blocks: Sequence[tuple[int, int, int]]
) -> tuple[str, ...]:
    """The tunables that are the threads of a block, one per axis that has more than one thread.

    Raises:
        InputError: an axis is no tunable's value.
    """
    chosen = []
    for axis, column in enumerate(zip(*blocks, strict=True)):
        if set(column) == {1}:
            continue
        name = next(
            (
                name
                for name in configurations[0]
                if all(c[name] == threads for c, threads in zip(configurations, column, strict=True))
            ),
            None,
        )
        if name is None or axis != len(chosen):
            raise InputError(f"the threads of a block along axis {axis} are no tunable's value")
        chosen.append(name)
    return tuple(chosen)


def header_folders(kernel: KernelFile) -> tuple[str, ...]:
    """Folders in which the source's headers lie."""
    headers = {name for stage in kernel.recipe.stages for name, _ in stage.source.headers}
    around = [kernel.path.parent, *sorted(kernel.path.parent.parent.iterdir())]
    return tuple(
        str(folder.resolve())
        for folder in around
        if folder.is_dir() and any((folder / header).is_file() for header in headers)
    )


def arguments_of(plan: Plan) -> tuple[dict[str, Any], ...]:
    """The function's arguments as plain values.

    Raises:
        InputError: one is a tensor map, or a struct other than a layout of rows of two arrays.
    """
    buffers = {buffer.name: buffer for buffer in plan.buffers}
    found: list[dict[str, Any]] = []
    for argument in plan.stages[0].arguments:
        if isinstance(argument, Scalar):
            found.append({"dtype": argument.dtype, "value": argument.value})
        elif isinstance(argument, StructValue) and len(argument.bytes) == LAYOUT_BYTES:
            found.append({"dtype": "complex128", "value": 0.0})
        elif isinstance(argument, str):
            one = buffers[argument]
            found.append({"buffer": one.name, "dtype": one.dtype, "shape": list(one.shape), "role": one.role})
        else:
            raise InputError("tensor maps and other structs cannot be passed by Kernel Tuner")
    return tuple(found)


# --- the tuners as processes of their own, cold or warm --------------------------------------------

BENCHMARKS = Path(__file__).resolve().parent
TIMEOUT_S = 300.0
TUNER = (sys.executable, "-c", "from tuner.cli.main import main; main()")
CACHES = {  # every folder in which either tuner, CuPy or the driver keeps what it compiled
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
        began: seconds since the epoch at which it was started.
        wall_s: from its start to its end.
        peak_bytes: most memory of it and its children together.
        memory: ``pss`` or ``rss``: how that was measured.
        processes: how many they were then.
        trouble: the end of what it wrote, if it failed.
    """

    began: float
    wall_s: float
    peak_bytes: int
    memory: str
    processes: int
    trouble: str = ""


@dataclass(frozen=True)
class Caches:
    """A set of cache folders: cold when they are new, warm for the processes after the first.

    Attributes:
        folder: where they are.
    """

    folder: Path

    @classmethod
    @contextlib.contextmanager
    def new(cls) -> Iterator["Caches"]:
        """Empty ones, for as long as the context lasts."""
        with folder() as place:
            yield cls(place)

    def environment(self) -> dict[str, str]:
        """The environment of a process that keeps its caches here."""
        return {**os.environ, **{name: str(self.folder / part) for name, part in CACHES.items()}}


def ended(command: Sequence[str | Path], caches: Caches, log: Path) -> Ended:
    """Run a command to its end, its output into a file.

    A process that takes longer than ``TIMEOUT_S`` is stopped; so is it when we are.
    """
    with log.open("w") as output:
        began = time.time()
        process = subprocess.Popen(
            list(map(str, command)),
            env=caches.environment(),
            cwd=caches.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            with MemoryPeak(process.pid) as memory:
                status = process.wait(TIMEOUT_S)
                wall_s = time.time() - began
        except subprocess.TimeoutExpired:
            status, wall_s = -1, TIMEOUT_S
        finally:
            _stop(process)
    trouble = f"status {status}: {log.read_text()[-TAIL_CHARACTERS:]}" if status else ""
    return Ended(began, wall_s, memory.peak_bytes, memory.measure, memory.processes, trouble)


def _stop(process: subprocess.Popen[Any]) -> None:
    """End a process that still runs: ask, then insist."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
    if process.poll() is None:
        process.kill()
        process.wait()


def kernel_tuner_run(
    space: ComparedSpace,
    caches: Caches,
    *,
    strategy: str,
    budget: int | None = None,
    seed: int = 0,
    verify: bool = False,
    backend: str = "cupy",
) -> dict[str, Any]:
    """Kernel Tuner over a space, or a user's own loop."""
    with folder() as place:
        task, out = space.task.write(place / "task.json"), place / "out.json"
        given = ["--strategy", strategy, "--seed", str(seed), "--backend", backend]
        given += ["--budget", str(budget)] if budget else []
        given += ["--verify"] if verify else []
        script, words = ("kernel_tuner_loop.py", []) if strategy == LOOP else ("kernel_tuner_child.py", given)
        end = ended([sys.executable, BENCHMARKS / script, task, out, *words], caches, place / "log")
        if end.trouble:
            return _facts(end)
        document = json.loads(out.read_text())
    trace = [
        (seconds(one["timestamp"]) - end.began, space.index_of_row(one["values"]), _in_s(one["time_ms"]))
        for one in document["results"]
    ]
    return {
        **_facts(end),
        "version": document["version"],
        "imported_s": document["imported_s"],
        "phases_s": {name: ms / 1e3 for name, ms in document["times_ms"].items()},
        "trace": trace,
        "evaluations": len(trace),
        "best": space.index_of_row(document["best"]),
    }


def tuner_run(
    space: ComparedSpace, caches: Caches, *, policy: str, seed: int = 0, kernel_file: Path | None = None
) -> dict[str, Any]:
    """``tuner run`` over a space; its answers are always checked."""
    with folder() as place:
        database, out = place / "tuner.db", place / "out.json"
        command: list[str | Path] = [*TUNER, "run", space.task.workload, "--objective", "time"]
        command += ["--policy", policy, "--seed", str(seed), "--min-occupancy", "0%"]
        command += ["--database", database, "--json", out]
        command += ["--kernel", kernel_file] if kernel_file else []
        end = ended(command, caches, place / "log")
        if end.trouble:
            return _facts(end)
        document = json.loads(out.read_text())
        trace = stored_trace(database, space, end.began)
    return {
        **_facts(end),
        "device": {key: document["device"][key] for key in ("name", "driver", "runtime")},
        "candidates": len(document["workloads"][0]["candidates"]),
        "phases_s": document.get("wall"),
        "trace": trace,
        "evaluations": document["space"]["measured"],
        "best": space.index(document["best"]["configurations"][space.task.workload]),
    }


def neutral_run(space: ComparedSpace, caches: Caches, finalists: Sequence[int]) -> dict[str, Any]:
    """Neutral times of a space.

    Raises:
        RuntimeError: the process failed; the message is the end of what it wrote.
    """
    with folder() as place:
        task, out = space.task.write(place / "task.json"), place / "out.json"
        script = BENCHMARKS / "kernel_tuner_neutral.py"
        command: list[str | Path] = [sys.executable, script, task, out, "--finalists", *map(str, finalists)]
        end = ended(command, caches, place / "log")
        if end.trouble:
            raise RuntimeError(end.trouble)
        document: dict[str, Any] = json.loads(out.read_text())
        return {**document, "wall_s": end.wall_s}


def stored_trace(database: Path, space: ComparedSpace, began: float) -> list[tuple[float, int, float | None]]:
    """The trials of the only run in a database, in their order: when each was stored, and its time."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        found = connection.execute("SELECT ended_at, trial, makespan_s, status FROM trials ORDER BY number")
        return [
            (
                seconds(at) - began,
                space.index(json.loads(trial)["configurations"][space.task.workload]),
                time_s if status == "ok" else None,
            )
            for at, trial, time_s, status in found
        ]


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder for what processes leave."""
    with tempfile.TemporaryDirectory(prefix="wall-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def seconds(text: str) -> float:
    """A time of day in UTC as seconds since the epoch."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=moment.tzinfo or timezone.utc).timestamp()


def _in_s(time_ms: float | None) -> float | None:
    return None if time_ms is None else time_ms / 1e3


def _facts(end: Ended) -> dict[str, Any]:
    return {
        "wall_s": end.wall_s,
        "peak_bytes": end.peak_bytes,
        "memory": end.memory,
        "processes": end.processes,
        "trouble": end.trouble,
        "best": None,
    }


# --- what the runs come to: quality by one neutral timer, and wall to it ---------------------------

NEAR = 0.98
"""Share of the optimum at which an answer counts as found."""

Step = tuple[float, int, float]
"""One evaluation: seconds since the process was started, number of the configuration, own time in seconds."""


def neutral_ms(neutral: Mapping[str, Any]) -> list[float]:
    """Milliseconds of every configuration, cold L2: those of 200 launches where there are as many."""
    times = list(neutral["ms"])
    for number, found in neutral["finalists"].items():
        times[int(number)] = found["cold_ms"]
    return times


def swept_ms(runs: Iterable[Mapping[str, Any]], configurations: int) -> list[float] | None:
    """Median milliseconds of every configuration in the sweeps of ``tuner``; None without a whole sweep.

    They stand in for neutral times where a run was stopped before those were taken.
    """
    sweeps = []
    for run in runs:
        times = {number: 1e3 * time_s for _, number, time_s in run["trace"] if time_s is not None}
        if run["tuner"] == "tuner" and len(times) == configurations:
            sweeps.append(times)
    if not sweeps:
        return None
    return [statistics.median(times[number] for times in sweeps) for number in range(configurations)]


def efficiencies(times_ms: Sequence[float]) -> list[float]:
    """The least time by each time."""
    least = min(times_ms)
    return [least / time if time > 0 else 0.0 for time in times_ms]


def incumbents(trace: Iterable[Step]) -> list[tuple[float, int]]:
    """When a run's own best changed, and to what, by its own times; failed evaluations have none."""
    found: list[tuple[float, int]] = []
    least = float("inf")
    for at_s, number, time_s in trace:
        if time_s is not None and time_s < least:
            least = time_s
            found.append((at_s, number))
    return found


def settled_s(run: Mapping[str, Any], efficiency: Sequence[float], share: float = NEAR) -> float | None:
    """Seconds after which the run's own best was, and stayed, within a share of the optimum.

    What the run answered in the end is its last incumbent, from the end of the process on.

    Returns:
        None where it ended with something worse.
    """
    history = [*incumbents(run["trace"]), (run["wall_s"], run["best"])]
    reached = None
    for at_s, number in history:
        if efficiency[number] < share:
            reached = None
        elif reached is None:
            reached = at_s
    return reached


def first_of(run: Mapping[str, Any], evaluations: int) -> dict[str, Any]:
    """A run with a smaller budget, of the same seed: its first evaluations, and the same way out.

    Kernel Tuner's strategies draw the same numbers whatever ``max_fevals`` is.
    """
    trace = [tuple(step) for step in run["trace"][:evaluations]]
    after_s = run["wall_s"] - run["trace"][-1][0]
    return {
        **run,
        "method": f"{run['method'].rpartition(' ')[0]} {evaluations}",
        "trace": trace,
        "evaluations": len(trace),
        "wall_s": trace[-1][0] + after_s,
        "best": incumbents(trace)[-1][1],
    }


@dataclass(frozen=True)
class Row:
    """One line of the table: runs of one tuner and method, alike but for the seed.

    Attributes:
        runs: how many.
        wall_s: median, least and most seconds from start to end of the process.
        evaluations: median.
        efficiency: median and least share of the optimum that the answers reach.
        reached: how many were within ``NEAR``.
        near_s: median seconds until then, over all runs; None where half never were.
        peak_bytes: most memory of the process tree.
        memory: how it was measured.
    """

    tuner: str
    method: str
    cache: str
    checked: bool
    runs: int
    wall_s: tuple[float, float, float]
    evaluations: float
    efficiency: tuple[float, float]
    reached: int
    near_s: float | None
    peak_bytes: int
    memory: str


def rows(runs: Iterable[Mapping[str, Any]], efficiency: Sequence[float] | None) -> list[Row]:
    """The lines of a space; without neutral times there is no quality."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for run in runs:
        if run.get("best") is not None:
            method = " ".join(filter(None, (run["method"], run["backend"])))
            key = (run["tuner"], method, run["cache"], run["checked"])
            groups.setdefault(key, []).append(run)
    return [_row(key, group, efficiency) for key, group in groups.items()]


def _row(key: tuple[Any, ...], group: list[Mapping[str, Any]], efficiency: Sequence[float] | None) -> Row:
    walls = [run["wall_s"] for run in group]
    reached = [None if efficiency is None else settled_s(run, efficiency) for run in group]
    shares = [0.0 if efficiency is None else efficiency[run["best"]] for run in group]
    middle = statistics.median_low([float("inf") if one is None else one for one in reached])
    return Row(
        *key,
        runs=len(group),
        wall_s=(statistics.median(walls), min(walls), max(walls)),
        evaluations=statistics.median(run["evaluations"] for run in group),
        efficiency=(statistics.median(shares), min(shares)),
        reached=sum(one is not None for one in reached),
        near_s=None if middle == float("inf") else middle,
        peak_bytes=max(run["peak_bytes"] for run in group),
        memory=group[0]["memory"],
    )


def table(name: str, found: Sequence[Row]) -> str:
    """A space's lines as text."""
    head = (
        f"{name}\n{'tuner':13s}{'method':35s}{'caches':8s}{'checks':8s}{'wall s':>8s}{'range s':>15s}"
        f"{'evaluations':>13s}{'optimum %':>11s}{'least %':>9s}{'to 98 % s':>11s}{'of runs':>9s}"
        f"{'peak MB':>9s}"
    )
    return "\n".join([head, *map(_line, found)])


def _line(row: Row) -> str:
    middle, least, most = row.wall_s
    known = row.efficiency[0] > 0
    near = "never" if row.near_s is None else f"{row.near_s:.1f}"
    return (
        f"{row.tuner:13s}{row.method:35s}{row.cache:8s}{'yes' if row.checked else 'no':8s}{middle:8.1f}"
        f"{f'{least:.1f}-{most:.1f}':>15s}{row.evaluations:13.0f}"
        + (f"{100 * row.efficiency[0]:11.2f}{100 * row.efficiency[1]:9.2f}" if known else f"{'':20s}")
        + (f"{near:>11s}{f'{row.reached} of {row.runs}':>9s}" if known else f"{'':20s}")
        + f"{row.peak_bytes / 1e6:9.0f}"
    )


# --- the command -----------------------------------------------------------------------------------

ROOT = Path(__file__).resolve().parents[1]
SPACES = {
    "scan": (ROOT / "kernels" / "scan-lf" / "kernel.toml", {"N": 1024}),
    "convolution": (ROOT / "benchmarks" / "spaces" / "convolution" / "kernel.toml", {"N": 4096}),
    "matmul": (ROOT / "benchmarks" / "spaces" / "matmul" / "kernel.toml", {"N": 2048}),
}
TUNERS = ("kernel-tuner", "loop", "tuner")
BACKENDS = ("cupy", "nvcuda")
BACKENDS_HELP = "of Kernel Tuner: all sweep cold, the first warm too; the last runs the strategy"
PARTS = ("exhaustive", "strategies", "neutral")
SWEEP, OWN_SWEEP, LOOP = "brute_force", "exhaustive", "loop"
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
        tuner: ``kernel-tuner``, ``loop`` or ``tuner``.
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
    parser.add_argument("--out", type=Path, required="--show" not in sys.argv)
    parser.add_argument("--show", type=Path, metavar="FILE", help="print the tables of a result; run nothing")
    parser.add_argument("--spaces", nargs="+", choices=list(SPACES), default=list(SPACES))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=5, help="of each strategy")
    parser.add_argument("--repeats", type=int, default=3, help="of the sweeps, cold and warm in turn")
    parser.add_argument("--tuners", nargs="+", choices=TUNERS, default=list(TUNERS))
    parser.add_argument("--checked", nargs="*", choices=list(SPACES), default=["scan"], help=CHECKED_HELP)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS), help=BACKENDS_HELP)
    options = parser.parse_args()
    if options.show is not None:
        for part in json.loads(options.show.read_text())["spaces"].values():
            print(table(title_of(part), [Row(**row) for row in part["rows"]]))
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
        kept: dict[Job, Caches] = {}
        for number, job in enumerate(jobs, 1):
            print(f"[{number}/{len(jobs)}] {job} ... ", end="", flush=True)
            warm = replace(job, cache="warm")
            if job.cache == "cold":
                kept[warm] = stack.enter_context(Caches.new())
            found = run(job, space, kept[warm], kernel_file)
            keep(part["runs"], found)
            save(options.out, document)
            print(
                found["trouble"] or f"{found['wall_s']:.1f} s, {found['evaluations']} evaluations", flush=True
            )
        if "neutral" in options.parts:
            finalists = sorted({found["best"] for found in part["runs"] if found["best"] is not None})
            try:
                part["neutral"] = neutral_run(space, stack.enter_context(Caches.new()), finalists)
            except RuntimeError as error:  # what was run before is worth having all the same
                print(f"neutral times: {error}", flush=True)
    finish(space, part)
    save(options.out, document)


def schedule(name: str, options: argparse.Namespace) -> list[Job]:
    """The processes of a space, those of both tuners in turn."""
    jobs = []
    first, *others = options.backends
    if "exhaustive" in options.parts:
        for repeat in range(options.repeats):
            for cache in ("cold", "warm"):
                jobs += [
                    Job("kernel-tuner", SWEEP, cache, repeat, checked=False, backend=first),
                    Job("loop", LOOP, cache, repeat, checked=False),
                    Job("tuner", OWN_SWEEP, cache, repeat),
                    Job("tuner", "auto", cache, repeat),
                ]
        jobs += [Job("kernel-tuner", SWEEP, checked=False, backend=other) for other in others]
        jobs += [Job("kernel-tuner", SWEEP, backend="cupy")] if name in options.checked else []
    if "strategies" in options.parts:
        for seed in range(1, options.seeds + 1):
            method = f"{STRATEGY} {max(BUDGETS)}"
            jobs.append(Job("kernel-tuner", method, seed=seed, checked=False, backend=options.backends[-1]))
            jobs.append(Job("tuner", "auto", seed=seed))
    return [job for job in dict.fromkeys(jobs) if job.tuner in options.tuners]


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
    print(table(title_of(part), found), flush=True)
    return runs


def title_of(part: dict[str, Any]) -> str:
    """The heading of a space's table."""
    title = f"\n{part['workload']}, {part['configurations']} configurations"
    return title if part["optimum_by"] is None else f"{title}, shares by {part['optimum_by']}"


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
