"""Tunes the examples on this GPU, and holds each answer to a sweep of every configuration by CuPy.

For each example: ``tuner run`` as a process of its own, with empty caches; then every configuration, compiled
to cubins, loaded and launched by CuPy, back to back between CUDA events, in turn; then the fastest of these
and our answer once more, in an order drawn anew in every round. Medians of this one timer are compared. What
the time does not suffice for is left out of a sweep, at random, and said.

    python benchmarks/examples.py --json benchmarks/results/examples-h200.json [--only NAME ...] [--limit 450]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from example_sweeps import Sweeper
from provenance import provenance

from tuner.devices.cuda import probe
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Configuration

FOLDER = Path(__file__).resolve().parents[1] / "examples"
TUNER = (sys.executable, "-c", "from tuner.cli.main import main; main()")
MORE = {"matmul": ({}, {"dtype": "float16"})}  # examples with two workloads
TUNING_SHARE = 0.6  # of the time that is left, for the runs of the tuner
TARGET = 0.02


@dataclass
class Row:
    """What became of one example.

    Attributes:
        workload: name.
        configurations: size of its space.
        swept: how many of these were timed by CuPy.
        evaluations: trials of the tuner.
        wall_s: of the tuner's process.
        check: ``right``, or what was wrong.
        answer: our configuration.
        best: the fastest of the sweep.
        answer_s: time of ours, by the sweep's timer.
        best_s: time of the fastest, by the same.
        own_s: time of ours, as the tuner measured it.
        trouble: why there is no answer, or empty.
    """

    workload: str
    configurations: int = 0
    swept: int = 0
    evaluations: int = 0
    wall_s: float = 0.0
    check: str = ""
    answer: str = ""
    best: str = ""
    answer_s: float | None = None
    best_s: float | None = None
    own_s: float | None = None
    trouble: str = ""

    @property
    def loss(self) -> float | None:
        """How much slower our answer is than the fastest of the sweep, as a share."""
        return None if self.answer_s is None or self.best_s is None else self.answer_s / self.best_s - 1


def names() -> list[str]:
    """The examples."""
    return sorted(path.parent.name for path in FOLDER.glob("*/kernel.toml"))


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the rows with their origin to this file")
    parser.add_argument("--only", nargs="+", choices=names(), default=names(), metavar="NAME")
    parser.add_argument(
        "--limit", type=float, default=450.0, metavar="S", help="seconds in all (%(default)s)"
    )
    parser.add_argument("--objective", default="time", choices=["time", "energy"])
    options = parser.parse_args(arguments)
    if options.limit <= 0:
        parser.error("--limit is above 0")
    return options


def main() -> None:
    """Tune and sweep one example after another, print the table, write the JSON."""
    options = parsed()
    end = time.monotonic() + options.limit
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
    cp = probe.open_cupy(0)
    jobs = [(name, more) for name in options.only for more in MORE.get(name, ({},))]
    rows = []
    with tempfile.TemporaryDirectory(prefix="examples-") as folder:
        sweeper = Sweeper(cp, Path(folder) / "cubins")
        for number, (name, more) in enumerate(jobs):
            share = (end - time.monotonic()) / (len(jobs) - number)
            row = one(sweeper, name, more, time.monotonic() + share, options.objective)
            rows.append(row)
            print(told(row), flush=True)
            if options.json is not None:
                document = {"provenance": provenance(), "rows": [asdict(r) | {"loss": r.loss} for r in rows]}
                options.json.write_text(json.dumps(document, indent=1) + "\n")
        sweeper.close()
    print(table(rows))


def one(sweeper: "Sweeper", name: str, more: Mapping[str, str], until: float, objective: str) -> Row:
    """Tune and sweep one workload."""
    kernel = load_kernel_file(FOLDER / name / "kernel.toml")
    workload = kernel.workload({"N": kernel.sizes["N"][0]} | dict(more))
    row = Row(str(workload), configurations=len(kernel.space(workload)))
    answer = tuned(row, kernel, TUNING_SHARE * (until - time.monotonic()), objective)
    try:
        plans = [kernel.plan(workload, configuration) for configuration in kernel.space(workload)]
        found = sweeper.sweep(plans, answer, until)
        row.swept, row.best, row.best_s = found.timed, str(found.best), found.times[found.best]
        row.answer_s = None if answer is None else found.times.get(answer)
    except Exception as error:  # noqa: BLE001 - one example must not end the others
        row.trouble = row.trouble or f"sweep: {type(error).__name__}: {error}"
    return row


def tuned(row: Row, kernel: KernelFile, limit_s: float, objective: str) -> Configuration | None:
    """Our answer, by a process with empty caches; what it tells of itself is put into the row."""
    with tempfile.TemporaryDirectory(prefix="tuned-", ignore_cleanup_errors=True) as folder:
        out = Path(folder) / "run.json"
        command = [*TUNER, "run", row.workload, "--kernel", str(kernel.path), "--objective", objective]
        command += ["--device", "cuda:0", "--time-limit", f"{max(limit_s, 5):.0f}"]
        command += ["--database", f"{folder}/runs.db", "--json", str(out)]
        environment = {**os.environ, "XDG_CACHE_HOME": f"{folder}/cache"}
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        row.wall_s = time.monotonic() - began
        if done.returncode or not out.exists():
            row.trouble = f"tuner run: {done.stderr.strip()[-300:] or done.returncode}"
            return None
        document = json.loads(out.read_text())
    trials = document["trials"]
    row.evaluations = document["space"]["measured"]
    wrong = sum(trial["status"] == "wrong-answer" for trial in trials)
    row.check = f"{wrong} of {len(trials)} wrong" if wrong else "right"
    best = document["best"]
    if best is None:
        row.trouble = "tuner run: no answer"
        return None
    row.own_s = best["time_s"]
    answer = Configuration(best["configurations"][row.workload])
    row.answer = str(answer)
    return answer


def told(row: Row) -> str:
    """One line of what was just done."""
    swept = f"{row.swept} of {row.configurations} swept"
    return (
        f"{row.workload}: {row.wall_s:.1f} s, {row.evaluations} evaluations, {swept} {row.trouble}".rstrip()
    )


def table(rows: Sequence[Row]) -> str:
    """The rows for people."""
    lines = [
        f"{'workload':28}{'answer':>11}{'best swept':>12}{'loss':>8}{'evaluations':>13}{'wall':>8}  check",
    ]
    for row in rows:
        loss = "–" if row.loss is None else f"{row.loss:.1%}"
        lines.append(
            f"{row.workload:28}{_us(row.answer_s):>11}{_us(row.best_s):>12}{loss:>8}"
            f"{row.evaluations:>7} of {row.configurations:<4}{row.wall_s:>6.1f} s  {row.trouble or row.check}"
        )
    met = sum(row.loss is not None and row.loss <= TARGET and row.check == "right" for row in rows)
    lines.append(f"{met} of {len(rows)} within {TARGET:.0%} of the sweep, with right answers")
    return "\n".join(lines)


def _us(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e6:.1f} µs"


if __name__ == "__main__":
    main()
