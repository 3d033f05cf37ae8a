"""Rodinia's lud, hotspot, streamcluster and particle filter against our applications, in one run on one GPU.

    git clone https://github.com/yuhc/gpu-rodinia rodinia
    python benchmarks/kernels/rodinia_peers.py rodinia --out benchmarks/results/rodinia-h200.json \
        [--only lud hotspot]

The folder is the user's: nothing of Rodinia (University of Virginia, BSD licence) is in this project. Its
files are compiled as they are, with nvcc and the flags of their Makefiles. Only kernels are timed, on the
same inputs as ours and checked as ours: no copies to or from the host, no allocation. Rodinia gets the block
sizes and pyramid heights that its sources offer. Ours are the default, the analytical choice and the best
known: from files of ``tuner run --json`` (--known), or from a search in this run.

Each form is one CUDA graph, launched once a round, cold, by turns in an order drawn anew. The first half of
the rounds chooses Rodinia's form, the second half is reported: medians, ± half of the middle 68 %, and the
median of the ratios with its 95 % interval.

    python benchmarks/kernels/rodinia_peers.py rodinia --build-only --cubins FOLDER --architecture sm_90

compiles where there is nvcc and no GPU; --cubins FOLDER then needs no nvcc.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

import numpy as np
from provenance import provenance
from rodinia_contests import CONTESTS, Contest
from rodinia_forms import Form, Inputs
from rodinia_judges import law_judge
from rodinia_rounds import Arena, Result, fastest, finalists, ratio
from rodinia_sources import FILES, WHERE, NvccCompiler, RodiniaError, sources

from tuner.compiler.compiler import Compiler
from tuner.devices.cuda import probe
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import CompileError, TunerError
from tuner.model.plan import Configuration, Plan, Source, Workload
from tuner.problems.lookup import problem_for

TUNER = (sys.executable, "-c", "from tuner.cli.main import main; main()")
PROTOCOL = {
    "time": "one CUDA graph a run; 160 MB are set to zero and inputs restored before it, not timed",
    "reported": "second half of the rounds; the first half chose the form",
    "ratio": "Rodinia's fastest right form by ours: median over rounds, 95 % interval by the sign test",
    "rodinia": f"{WHERE}; kernels only, flags of the Makefiles",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write the JSON; 2 where something is missing."""
    options = _parsed(arguments)
    try:
        files = sources(options.folder, list(dict.fromkeys(CONTESTS[name].source for name in options.only)))
        with tempfile.TemporaryDirectory(prefix="rodinia-") as folder:
            cubins = options.cubins or Path(folder)
            if options.build_only:
                build(options.only, files, NvccCompiler(options.architecture, cubins))
                return 0
            return _measure(options, files, cubins)
    except (RodiniaError, TunerError) as error:
        print(error, file=sys.stderr)
        return 2


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, help="Rodinia, or its folder cuda")
    parser.add_argument("--out", type=Path, help="write the rows with their origin to this JSON file")
    parser.add_argument("--only", nargs="+", choices=list(CONTESTS), default=list(CONTESTS), metavar="NAME")
    parser.add_argument(
        "--known", nargs="*", type=Path, default=[], metavar="FILE", help="of tuner run --json: best known"
    )
    parser.add_argument(
        "--search", type=float, default=25.0, metavar="S", help="seconds for the best of each other workload"
    )
    parser.add_argument("--rounds", type=int, default=32, help="of each contest (%(default)s)")
    parser.add_argument("--sizes", nargs="*", default=[], metavar="WORKLOAD", help="others than the paper's")
    parser.add_argument("--cubins", type=Path, metavar="FOLDER", help="compiled kernels of Rodinia, kept")
    parser.add_argument("--build-only", action="store_true", help="compile Rodinia's kernels, no GPU needed")
    parser.add_argument("--architecture", default="sm_90", help="of --build-only (%(default)s)")
    options = parser.parse_args(arguments)
    if options.rounds < 12:
        parser.error("--rounds is 12 or more: six to choose, six for an interval of 95 %")
    if options.search < 0:
        parser.error("--search is 0 or more; 0 leaves the best known to --known")
    if options.build_only and options.cubins is None:
        parser.error("--build-only needs --cubins FOLDER to build into")
    return options


def build(names: Sequence[str], files: Mapping[str, Source], compiler: NvccCompiler) -> None:
    """Compile all forms of some contests.

    Raises:
        CompileError: nvcc does not accept a file, or a kernel is not in it.
    """
    catalog = Catalog.load()
    for name in names:
        kernel, workload = resolved(catalog, CONTESTS[name].workload)
        ours = kernel.plan(workload, kernel.default(workload))
        forms = list(CONTESTS[name].forms(files[CONTESTS[name].source], kernel, ours, drawn(ours)))
        made = compiler.compile([stage for form in forms for stage in form.plan.stages])
        for one in made:
            if isinstance(one, CompileError):
                raise one
        print(f"{name}: {len(forms)} forms", flush=True)


def resolved(catalog: Catalog, text: str) -> tuple[KernelFile, Workload]:
    """The kernel and the workload of a name."""
    name, _, sizes = text.partition(":")
    kernel = catalog.kernel(name)
    return kernel, kernel.workload(dict(part.split("=") for part in sizes.split(",")))


def drawn(plan: Plan, seed: int = 0) -> dict[str, Any]:
    """Random inputs as the kernel file wants them, on the host."""
    sizes = {**dict(plan.workload.sizes), "batch": plan.workload.batch}
    made = problem_for(plan.problem).inputs(np, np.random.default_rng(seed), plan.buffers, sizes)
    return {name: np.asarray(array) for name, array in made.items()}


def _measure(options: argparse.Namespace, files: Mapping[str, Source], cubins: Path) -> int:
    cp = probe.open_cupy(0)
    limits = probe.gpu_limits(cp, 0)
    compiler = NvccCompiler(limits.architecture, cubins)
    document: dict[str, Any] = {
        "provenance": provenance(),
        "protocol": PROTOCOL,
        "sources": {FILES[name].path: source.sha256 for name, source in files.items()},
        "contests": [],
    }
    chosen = Choices(options.known, options.search)
    catalog = Catalog.load()
    others = {text.partition(":")[0]: text for text in options.sizes}
    with Compiler(limits.architecture) as own:
        for name in options.only:
            contest = CONTESTS[name]
            text = others.get(contest.workload.partition(":")[0], contest.workload)
            kernel, workload = resolved(catalog, text)
            plan = kernel.plan(workload, kernel.default(workload))
            inputs = drawn(plan)
            arena = Arena(cp, limits)
            peers = arena.tried(list(contest.forms(files[contest.source], kernel, plan, inputs)), compiler)
            ours = arena.tried(our_forms(kernel, workload, contest, inputs, chosen), own)
            best = finalists(peers)
            right = [one for one in ours if one.right]
            arena.rounds([*right, *best], options.rounds)
            row = compared(name, str(workload), contest, ours, peers, best)
            document["contests"].append(row)
            document["nvcc"] = compiler.versions()
            print(told(row), flush=True)
            if options.out is not None:
                options.out.write_text(json.dumps(document, indent=1) + "\n")
            del arena, ours, peers, best, right
            cp.get_default_memory_pool().free_all_blocks()
    return 0


def our_forms(
    kernel: KernelFile, workload: Workload, contest: Contest, inputs: Inputs, chosen: "Choices"
) -> list[Form]:
    """Our kernel in each of its configurations; one that is two of them is named after both."""
    named: dict[Configuration, list[str]] = {kernel.default(workload): ["default"]}
    for what, configuration in chosen.of(kernel, workload).items():
        named.setdefault(configuration, []).append(what)
    forms = []
    for configuration, words in named.items():
        plan = kernel.plan(workload, configuration)
        judge = law_judge(plan, inputs, lambda arrays, plan=plan: _outputs(plan, arrays))
        forms.append(Form(" and ".join(words), plan, inputs, judge, timed=contest.timed))
    return forms


def _outputs(plan: Plan, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {b.name: arrays[b.name] for b in plan.buffers if b.role in {"out", "inout"}}


class Choices:
    """The analytical choice and the best known configuration of workloads, asked of ``tuner run``.

    Args:
        known: files of ``tuner run --json`` with best configurations.
        search_s: seconds of a search for a workload that is in none of them; 0 for no search.
    """

    def __init__(self, known: Sequence[Path], search_s: float) -> None:
        self._search_s = search_s
        self._known: dict[str, Any] = {}
        for path in known:
            self._known |= _best(path)
        self._found: dict[str, dict[str, Configuration]] = {}

    def of(self, kernel: KernelFile, workload: Workload) -> dict[str, Configuration]:
        """Configurations by what they are; what could not be had is left out, and said."""
        name = str(workload)
        if name not in self._found:
            self._found[name] = self._asked(kernel, workload)
        return self._found[name]

    def _asked(self, kernel: KernelFile, workload: Workload) -> dict[str, Configuration]:
        name, default = str(workload), kernel.default(workload)
        found = {}
        document = _tuned(name, "--policy", "analytical")
        if document is not None:
            tried = [trial["configurations"][name] for trial in document["trials"]]
            others = [kernel.configuration(workload, one) for one in tried]
            found["analytical"] = next((one for one in others if one != default), default)
        best = self._known.get(name)
        if best is None and self._search_s:
            searched = _tuned(name, "--time-limit", str(self._search_s))
            best = searched and searched["best"] and searched["best"]["configurations"][name]
        if best:
            found["best known"] = kernel.configuration(workload, best)
        return found


def _best(path: Path) -> dict[str, Any]:
    """Best configurations by workload of a file.

    Raises:
        RodiniaError: the file is not one of ``tuner run --json``.
    """
    try:
        return dict(json.loads(path.read_text())["best"]["configurations"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RodiniaError(f"--known {path}: not a result of tuner run --json: {error!r}") from error


def _tuned(workload: str, *options: str) -> dict[str, Any] | None:
    """What ``tuner run`` finds in a process of its own, with a database of its own."""
    with tempfile.TemporaryDirectory(prefix="rodinia-tuner-", ignore_cleanup_errors=True) as folder:
        out = Path(folder) / "run.json"
        command = [*TUNER, "run", workload, "--device", "cuda:0", "--objective", "time", *options]
        command += ["--database", f"{folder}/runs.db", "--json", str(out)]
        # not in a checkout, whose folder tuner/ would stand before the package
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode or not out.exists():
            print(f"{workload} {' '.join(options)}: {done.stderr.strip()[-300:]}", file=sys.stderr)
            return None
        document: dict[str, Any] = json.loads(out.read_text())
    return document


def compared(  # noqa: PLR0917 - what a contest came to
    name: str,
    workload: str,
    contest: Contest,
    ours: Sequence[Result],
    peers: Sequence[Result],
    best: Sequence[Result],
) -> dict[str, Any]:
    """One contest for JSON; ratios are missing where Rodinia has no right answer."""
    row: dict[str, Any] = {"contest": name, "workload": workload, "differs": contest.differs}
    row |= {"stages": contest.timed or "all", "rodinia": [one.row() for one in peers]}
    chosen = fastest(best) if best else None
    row["fastest"] = None if chosen is None else chosen.form.name
    row["ours"] = []
    for one in ours:
        row["ours"].append(one.row())
        if chosen is not None and one.right:
            middle, low, high = ratio(chosen, one)
            row["ours"][-1]["ratio"] = {"median": middle, "low": low, "high": high}
    return row


def told(row: Mapping[str, Any]) -> str:
    """A contest for the terminal."""
    lines = [f"{row['contest']}: {row['workload']}", f"  differs: {row['differs']}"]
    for one in row["rodinia"]:
        mark = "*" if one["name"] == row["fastest"] else " "
        lines.append(f" {mark}{one['name']:52} {_time(one)}")
    for one in row["ours"]:
        found = one.get("ratio")
        times = "" if found is None else f"  {_times(found)} Rodinia's"
        lines.append(f"  ours, {one['name']:46} {_time(one)}{times}")
        lines.append(f"    {' '.join(f'{key}={value}' for key, value in one['configuration'].items())}")
    return "\n".join(lines)


def _times(found: Mapping[str, float]) -> str:
    return f"{found['median']:.2f} ({found['low']:.2f} to {found['high']:.2f}) x"


def _time(one: Mapping[str, Any]) -> str:
    if "trouble" in one:
        return str(one["trouble"])
    if not one["right"]:
        return f"wrong: {one['what']} {one['error']:.1e}, allowed {one['allowed']:.1e}"
    error = f"{one['what']} {one['error']:.1e}"
    if "ms" not in one:
        return f"{one['tried_ms']:9.4f} ms (tried)           {error}"
    return f"{one['ms']:9.4f} ± {one['spread_ms']:.4f} ms  {error}"


if __name__ == "__main__":
    sys.exit(main())
