"""What a sweep of many small jobs costs beside the searches themselves, on four simulated GPUs in real time.

The GPUs are alike, and their windows take real time (a share of it), so that a job takes seconds as on a
GPU while the processors of this machine have room. The time of a run is what the search itself took:
compiling, windows and policy, from its open device to its answer (``wall_s`` of the run). All else is
overhead: starting processes, imports, opening database and device, queues, the sweep's own looks, and lanes
that are idle at the end.

    overhead = wall time x lanes / sum of the times of all runs - 1

    python benchmarks/sweep_overhead.py --jobs 1000 --out benchmarks/results/sweep-overhead.json
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from provenance import MemoryPeak, command_line, provenance, save, tree

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from daemon_scene import Scene

LANES = 4
PROMISED_OVERHEAD, PROMISED_BYTES = 0.05, 150 * 10**6
MODEL = "jetson-tx1"
_TUNER = "from tuner.cli.main import main; main()"
# Each process that Python starts reads this: four GPUs that are alike, whose windows take real time.
_HOOK = """
import sys
from dataclasses import replace
from tuner.devices import gpu_models

for _lane in range(1, {lanes} + 1):
    gpu_models._TABLE[f"lane-{{_lane}}"] = replace(gpu_models._TABLE["{model}"], name=f"lane-{{_lane}}")

WORDS = ("tuner.search.job_process", "serve")
if any(part in word for word in sys.orig_argv for part in WORDS):
    import time
    from tuner.devices.simulated import time_model

    _pass_time = time_model.Timeline.pass_time

    def pass_time(self, seconds, watts):
        _pass_time(self, seconds, watts)
        time.sleep(max(0.0, seconds) * {pace})

    time_model.Timeline.pass_time = pass_time
"""


def main() -> int:
    """Run the sweep, print what it cost, write it; 1 if what is promised was not kept."""
    parser = command_line(__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--on", choices=("daemon", "local"), default="daemon")
    parser.add_argument("--pace", type=float, default=0.2, help="real seconds per simulated second")
    parser.add_argument("--budget", type=int, default=8, help="trials of a job")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options)
    for name, value in found.items():
        print(f"{name:>24} {value:,.4g}" if isinstance(value, float) else f"{name:>24} {value}")
    save(options.out, {"provenance": provenance(), "label": "simulated GPUs in real time", **found})
    kept = found["overhead"] <= PROMISED_OVERHEAD and found["daemon_peak_rss_bytes"] <= PROMISED_BYTES
    return int(not kept)


def sweep_text(jobs: int, budget: int) -> str:
    """A sweep file of so many jobs: two kernels at five sizes, with as many seeds as that needs."""
    seeds = list(range(1, -(-jobs // (LANES * 10)) + 1))
    devices = [f"sim:lane-{lane}" for lane in range(1, LANES + 1)]
    return (
        f'[options]\nbudget = {budget}\npolicy = "greedy"\n\n[[group]]\nname = "scans"\n'
        'kernels = ["scan-lf", "scan-ks"]\nsizes = { N = [64, 128, 256, 512, 1024] }\n'
        f"devices = {json.dumps(devices)}\noptions = {{ seed = {seeds} }}\n"
    )


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The whole measurement, in an empty folder."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(_HOOK.format(lanes=LANES, model=MODEL, pace=options.pace))
    os.environ["PYTHONPATH"] = str(site)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages are compiled once
    file, result = folder / "sweep.toml", folder / "result.json"
    file.write_text(sweep_text(options.jobs, options.budget))
    with ExitStack() as stack:
        if options.on == "daemon":
            scene = stack.enter_context(_daemon(folder / "scene"))
            where, root = ["--socket", str(scene.socket)], scene.pid
        else:
            where, root = ["--on", f"local:{LANES}", "--database", str(folder / "tuner.db")], os.getpid()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        memory = stack.enter_context(MemoryPeak(root, 1.0))
        begun_s = time.monotonic()
        command = [sys.executable, "-c", _TUNER, "sweep", str(file), *where, "--json", str(result)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        command_s = time.monotonic() - begun_s
        peak = _status_bytes(root, "VmHWM") if options.on == "daemon" else 0
        cpu = _daemon_cpu(root) if options.on == "daemon" else {}
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = summary(json.loads(result.read_text()))
    return {
        "on": options.on,
        "pace": options.pace,
        "command_s": command_s,
        **found,
        "daemon_peak_rss_bytes": peak,
        "tree_peak_bytes": memory.peak_bytes,
        "tree_measure": memory.measure,
        "command_cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        **cpu,
    }


def summary(report: Mapping[str, Any]) -> dict[str, Any]:
    """Wall time, times of runs and overhead of a sweep, from its report."""
    answers = [one["answer"] for one in report["results"] if one["answer"] is not None]
    run_s = [answer["search_s"] for answer in answers]
    return {
        "jobs": report["jobs"],
        "finished": report["finished"],
        "failed": report["failed"],
        "lanes": LANES,
        "wall_s": report["wall_s"],
        "run_s_sum": sum(run_s),
        "run_s_median": statistics.median(run_s),
        "beside_run_s_median": report["wall_s"] * LANES / len(run_s) - statistics.mean(run_s),
        "overhead": report["wall_s"] * LANES / sum(run_s) - 1.0,
    }


@contextmanager
def _daemon(folder: Path) -> Iterator[Scene]:
    """A daemon on four simulated GPUs."""
    folder.mkdir()
    devices = [f"sim:lane-{lane}" for lane in range(1, LANES + 1)]
    with Scene(folder, devices=devices, bare=True) as scene:
        scene.start()
        yield scene


def _daemon_cpu(daemon: int) -> dict[str, float]:
    """Processor seconds of the daemon, of what starts its attempts, and of attempts that have ended."""
    own_s, _ = _cpu_s(daemon)
    others = [_cpu_s(pid) for pid in tree(daemon) if pid != daemon]
    return {
        "daemon_cpu_s": own_s,
        "launcher_cpu_s": sum(own for own, _ in others),
        "attempts_cpu_s": sum(ended for _, ended in others),
    }


def _cpu_s(pid: int) -> tuple[float, float]:
    """Processor seconds of a process, and of its children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system, ended_user, ended_system = (int(field) for field in fields[11:15])
    ticks = os.sysconf("SC_CLK_TCK")
    return (user + system) / ticks, (ended_user + ended_system) / ticks


def _status_bytes(pid: int, name: str) -> int:
    """A value of proc(5)'s status of a process, which it states in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    sys.exit(main())
