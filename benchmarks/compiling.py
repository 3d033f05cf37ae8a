"""What compiling on demand costs: wall time, CPU time and memory of the process tree, with cold caches.

Three parts: spaces compiled as a whole, by the number of children; the analytical answer of a workload; and
whole runs. Memory is the proportional set size (PSS) of all processes together, sampled four times a second,
and that of one compile child while it works.

    python benchmarks/compiling.py --out benchmarks/results/compiling-cpu.json [--device sim:jetson-tx1]
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from provenance import provenance

from tuner.compiler.compiler import Compiler
from tuner.kernel_files.catalog import Catalog
from tuner.model.plan import Stage

EVERY_S = 0.25
TUNER = (sys.executable, "-c", "from tuner.cli.main import main; main()")
SPACES = (
    ("scan-lf:N=1024", 1),
    ("fft-large:N=1048576", 20),
)  # a workload, and every how manieth configuration
EXPLAINED = ("scan-lf:N=1024", "tridiag-wm:N=512", "fft:N=1024", "fft-large:N=1048576")
MIB = 2**20


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="sim:jetson-tx1", help="of the runs and answers")
    parser.add_argument("--architecture", default="sm_90", help="of the spaces compiled as a whole")
    parser.add_argument("--jobs", type=int, nargs="*", default=[1, 2, 4, 8, 12, 16])
    parser.add_argument("--explain", nargs="*", default=list(EXPLAINED), help="workloads")
    parser.add_argument("--run", action="append", default=[], help="words of a run, as one argument")
    options = parser.parse_args()
    cpus = len(os.sched_getaffinity(0))
    document: dict[str, Any] = {"provenance": provenance(), "cpus": cpus, "device": options.device}
    document["spaces"] = [
        space(spec, step, jobs, options.architecture)
        for spec, step in SPACES
        for jobs in options.jobs
        if jobs <= max(2, cpus)
    ]
    document["explain"] = [
        {"workload": spec, **command("explain", spec, "--device", options.device)} for spec in options.explain
    ]
    document["runs"] = [
        {"words": words, **command("run", *words.split(), "--device", options.device)}
        for words in options.run
    ]
    options.out.write_text(json.dumps(document, indent=1) + "\n")


def space(spec: str, step: int, jobs: int, architecture: str) -> dict[str, Any]:
    """Compile configurations of a workload in so many children."""
    catalog = Catalog.load(search_path=None)
    workload = catalog.workload(spec)
    kernel = catalog.kernel(workload.kernel)
    plans = [kernel.plan(workload, configuration) for configuration in kernel.space(workload)[::step]]
    stages: list[Stage] = [stage for plan in plans for stage in plan.stages]
    with tempfile.TemporaryDirectory() as folder, Compiler(architecture, Path(folder), jobs=jobs) as compiler:
        with sampled(os.getpid()) as memory:
            begun_s, cpu_s = time.perf_counter(), children_s()
            compiler.compile(stages)
            wall_s = time.perf_counter() - begun_s
        compiler.close()
    row = {
        "workload": spec,
        "configurations": len(plans),
        "jobs": jobs,
        "wall_s": wall_s,
        "cpu_s": children_s() - cpu_s,
        **memory.mib(),
    }
    print(
        f"{spec}: {len(plans)} configurations by {jobs}: {wall_s:.2f} s, CPU {row['cpu_s']:.1f} s,"
        f" {shown(memory)}",
        flush=True,
    )
    return row


def command(*words: str) -> dict[str, Any]:
    """One command of the CLI with cold caches and a database of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"XDG_CACHE_HOME": f"{folder}/cache", "XDG_STATE_HOME": f"{folder}/state"}
        environment["CUPY_CACHE_DIR"] = f"{folder}/cupy"
        begun_s, cpu_s = time.perf_counter(), children_s()
        process = subprocess.Popen(
            [*TUNER, *words, "--json", f"{folder}/out.json"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        said: list[tuple[float, str]] = []

        def listen() -> None:
            said.extend((time.perf_counter() - begun_s, line.strip()) for line in process.stderr or ())

        listener = threading.Thread(target=listen)
        listener.start()
        with sampled(process.pid) as memory:
            process.wait()
        wall_s = time.perf_counter() - begun_s
        listener.join()
        document = json.loads(Path(folder, "out.json").read_text())
    first_s = next((at_s for at_s, line in said if "first answer" in line), None)
    compiled = [
        {key: workload.get("space", workload).get(key) for key in ("pruned", "uncompiled", "considered")}
        for workload in document["workloads"]
    ]
    print(
        f"{' '.join(words)}: {wall_s:.1f} s"
        + ("" if first_s is None else f", first answer after {first_s:.1f} s")
        + f", CPU {children_s() - cpu_s:.1f} s, {shown(memory)}, {compiled}",
        flush=True,
    )
    return {
        "wall_s": wall_s,
        "cpu_s": children_s() - cpu_s,
        "first_answer_s": first_s,
        **memory.mib(),
        "workloads": compiled,
        "wall": document.get("wall"),
        "measured": document.get("space", {}).get("measured"),
    }


def shown(memory: "Peak") -> str:
    """The numbers in a line."""
    found = memory.mib()
    return (
        f"PSS {found['tree_mib']:.0f} MiB (first process {found['root_mib']:.0f},"
        f" {found['compilers']} compilers {found['compilers_mib']:.0f}; one at most {found['child_mib']:.0f})"
    )


def children_s() -> float:
    """CPU time of children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Peak:
    """The most memory seen, in bytes.

    Attributes:
        tree: of a tree of processes.
        child: of the largest compile child in it.
        compilers: of all compile children when the tree was largest, and their number.
        root: of the first process then.
    """

    def __init__(self) -> None:
        self.tree = self.child = self.root = 0
        self.compilers = (0, 0)

    def look(self, root: int) -> None:
        """Take a sample."""
        sizes = {pid: pss(pid) for pid in tree(root)}
        children = [size for pid, size in sizes.items() if pid != root and compiles(pid)]
        self.child = max(self.child, max(children, default=0))
        if sum(sizes.values()) > self.tree:
            self.tree, self.root = sum(sizes.values()), sizes[root]
            self.compilers = sum(children), len(children)

    def mib(self) -> dict[str, float]:
        """The numbers for a document."""
        return {
            "tree_mib": self.tree / MIB,
            "root_mib": self.root / MIB,
            "compilers_mib": self.compilers[0] / MIB,
            "compilers": self.compilers[1],
            "child_mib": self.child / MIB,
        }


@contextmanager
def sampled(root: int) -> Iterator[Peak]:
    """Sample the memory of a process and all below it."""
    peak, ended = Peak(), threading.Event()

    def watch() -> None:
        while not ended.wait(EVERY_S):
            peak.look(root)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def tree(root: int) -> Sequence[int]:
    """A process and all below it."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(after_name[1]), []).append(int(folder.name))
    found = [root]
    for pid in found:
        found.extend(parents.get(pid, ()))
    return found


def pss(pid: int) -> int:
    """Proportional set size in bytes; 0 of a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def compiles(pid: int) -> bool:
    """Whether a process is a compile child: it has loaded NVRTC, and not the driver."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False
    return "libnvrtc" in maps and "libcuda.so" not in maps


if __name__ == "__main__":
    main()
