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

compiles where there is nvcc and no GPU; --cubins FOLDER then needs no nvcc. ``--show FILE`` prints
the table of a result.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from cold_timing import Timer, median, outside_interval, spread
from provenance import provenance
from rodinia_forms import (
    FILES,
    WHERE,
    Array,
    Form,
    Inputs,
    NvccCompiler,
    RodiniaError,
    filter_float,
    filter_naive,
    hotspot,
    law_judge,
    lud,
    sources,
    streamcluster,
)

from tuner.compiler.compiler import Compiler
from tuner.devices.cuda import probe
from tuner.devices.cuda.code import CodeCache, StageCompiler
from tuner.devices.cuda.launches import Clearing, Launch, Step
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.elements import element_dtype
from tuner.model.errors import CompileError, DeviceError, TunerError
from tuner.model.jobs import DeviceLimits
from tuner.model.plan import Buffer, Configuration, Plan, Source, Workload
from tuner.problems.base import Deviation
from tuner.problems.lookup import problem_for

# --- the contests ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contest:
    """Kernels of ours and of Rodinia that do the same.

    Attributes:
        workload: of our kernel.
        forms: makes those of Rodinia.
        source: key of ``FILES``.
        differs: what the two do not have in common, for the reader of a ratio.
        timed: stages of ours that are timed; all where empty.
    """

    workload: str
    forms: Callable[[Source, KernelFile, Plan, Inputs], Iterator[Form]]
    source: str
    differs: str
    timed: tuple[str, ...] = ()


_CLUSTERING = "streamcluster:N=65536,DIM=256,K=16"
_SUMS = "Rodinia's program copies 4.5 MB a call to the host and sums there: not timed"
CONTESTS = {
    "lud": Contest(
        "lud:N=4096", lud, "lud", "Rodinia's is compiled with -use_fast_math, as its Makefile has it"
    ),
    "hotspot": Contest(
        "hotspot:ROWS=8192,COLUMNS=8192",
        hotspot,
        "hotspot",
        "20 steps, the step of our kernel (Rodinia's own is unstable at this size); Rodinia's kernel"
        " multiplies by a literal in double",
    ),
    "streamcluster": Contest(
        _CLUSTERING,
        streamcluster,
        "streamcluster",
        f"10 calls; ours with the sums on the GPU, Rodinia's two memsets and kernel without. {_SUMS}",
    ),
    "streamcluster-costs": Contest(
        _CLUSTERING, streamcluster, "streamcluster", f"10 calls, both without the sums. {_SUMS}", ("costs",)
    ),
    "particlefilter-float": Contest(
        "particle-filter:N=100000,H=128,W=128",
        filter_float,
        "particlefilter-float",
        "one frame, both in double; other noise (Rodinia: LCG and Box-Muller); Rodinia's distribution is made"
        " by one thread, without a barrier after the blocks that it depends on (a race), and searched"
        " linearly; its frame is given to it contiguous",
    ),
    "particlefilter-naive": Contest(
        "particle-filter:N=100000,H=128,W=128",
        filter_naive,
        "particlefilter-naive",
        "the search alone, which is all that Rodinia's naive variant does on the GPU; both in double, on the"
        " same distribution",
        ("resample",),
    ),
}

# --- forms on the GPU, and their times ------------------------------------------------------------


READ = ("in", "inout")
TRIED = 3  # runs of each form before the rounds
FINALISTS = 3  # forms of Rodinia that go into the rounds


@dataclass
class Result:
    """What became of a form.

    Attributes:
        form: as asked for.
        deviation: of its answer from the right one; None where it did not run.
        trouble: why it did not run, or empty.
        tried_ms: median of a few runs.
        times_ms: of the rounds.
    """

    form: Form
    deviation: Deviation | None = None
    trouble: str = ""
    tried_ms: float = inf
    times_ms: list[float] = field(default_factory=list)
    run: Callable[[], None] = lambda: None
    prepare: Callable[[], None] = lambda: None

    @property
    def right(self) -> bool:
        """It ran, and its answer is within what is allowed."""
        return self.deviation is not None and bool(self.deviation.ok)

    def half_ms(self, second: bool) -> list[float]:
        """The times that choose, or those that are reported."""
        middle = len(self.times_ms) // 2
        return self.times_ms[middle:] if second else self.times_ms[:middle]

    def row(self) -> dict[str, Any]:
        """For JSON."""
        row: dict[str, Any] = {"name": self.form.name}
        if self.form.plan.configuration:
            row["configuration"] = dict(self.form.plan.configuration)
        if self.deviation is not None:
            what = {"what": self.deviation.what, "error": self.deviation.error}
            row |= {**what, "allowed": self.deviation.allowed, "right": self.right}
        if self.trouble:
            return {**row, "trouble": self.trouble}
        row["tried_ms"] = self.tried_ms
        if self.times_ms:
            reported = self.half_ms(second=True)
            row |= {"ms": median(reported), "spread_ms": spread(reported), "rounds_ms": self.times_ms}
        return row


class Arena:
    """Runs forms of one contest; arrays of the same name, shape and contents are the same.

    Args:
        cp: CuPy.
        limits: of the GPU.
    """

    def __init__(self, cp: Any, limits: DeviceLimits) -> None:
        self._cp = cp
        self._limits = limits
        self._timer = Timer(cp)
        self._arrays: dict[tuple[object, ...], Any] = {}
        self._code: list[CodeCache] = []  # graphs need the functions, but do not keep them

    def tried(self, forms: Sequence[Form], compiler: StageCompiler) -> list[Result]:
        """Each form, checked once and timed a few times; those that fail say why."""
        code = CodeCache(self._cp, compiler, self._limits)
        self._code.append(code)
        return [self._tried(form, code) for form in forms]

    def _tried(self, form: Form, code: CodeCache) -> Result:
        result = Result(form)
        driver, runtime = self._cp.cuda.driver, self._cp.cuda.runtime
        try:
            arrays = {buffer.name: self._array(form, buffer, "") for buffer in form.plan.buffers}
            steps = code.launches(form.plan, arrays)
            timed = [step for step in steps if not form.timed or self._stage(form, step) in form.timed]
            result.prepare = self._preparation(form, arrays)
            self._poison(form, arrays)
            result.prepare()
            self._enqueued(form, steps, arrays, self._cp.cuda.get_current_stream())
            self._cp.cuda.runtime.deviceSynchronize()
            result.deviation = form.judge(
                {b.name: arrays[b.name].get() for b in form.plan.buffers if b.role not in {"in", "scratch"}}
            )
            result.run = self._graph(form, timed, arrays)
            result.tried_ms = median([self._timer.once(result.run, result.prepare) for _ in range(TRIED)])
        except (DeviceError, driver.CUDADriverError, runtime.CUDARuntimeError) as error:
            result.trouble = str(error)
        return result

    def rounds(self, results: Sequence[Result], count: int) -> None:
        """Times of all, by turns, cold; the order is drawn anew in every round."""
        names = [str(place) for place in range(len(results))]
        by_name = dict(zip(names, results, strict=True))
        times = self._timer.interleaved(
            {name: result.run for name, result in by_name.items()},
            count,
            {name: result.prepare for name, result in by_name.items()},
        )
        for name, result in by_name.items():
            result.times_ms = times[name]

    def _stage(self, form: Form, step: Step) -> str:
        return form.plan.stages[step.place].name if isinstance(step, Launch) else ""

    def _enqueued(self, form: Form, steps: Sequence[Step], arrays: Mapping[str, Any], stream: Any) -> None:
        for step in steps:
            for name in form.cleared:
                Clearing(arrays[name]).enqueue(stream)
            step.enqueue(stream)

    def _graph(self, form: Form, steps: Sequence[Step], arrays: Mapping[str, Any]) -> Callable[[], None]:
        """What launches all steps as one graph on the current stream."""
        stream = self._cp.cuda.Stream(non_blocking=True)
        stream.begin_capture()
        try:
            self._enqueued(form, steps, arrays, stream)
        except Exception:
            with suppress(self._cp.cuda.runtime.CUDARuntimeError):
                stream.end_capture()  # what cannot be captured spoils the capture, and no more
            raise
        graph = stream.end_capture()
        current = self._cp.cuda.get_current_stream
        graph.upload(current())
        return lambda: graph.launch(current())

    def _array(self, form: Form, buffer: Buffer, kind: str) -> Any:
        """The array of a buffer, filled with its input."""
        given = form.inputs[buffer.name] if buffer.role in READ else None
        key = (buffer.name, buffer.shape, buffer.dtype, id(given), kind)
        if key not in self._arrays:
            array = self._cp.empty(buffer.shape, element_dtype(buffer.dtype))
            if given is not None:
                self._cp.copyto(array, self._cp.asarray(np.ascontiguousarray(_fitting(given, buffer))))
            self._arrays[key] = array
        return self._arrays[key]

    def _preparation(self, form: Form, arrays: Mapping[str, Any]) -> Callable[[], None]:
        """Restores what a run changes; not timed."""
        changed = [buffer for buffer in form.plan.buffers if buffer.role == "inout"]
        pairs = [(arrays[buffer.name], self._array(form, buffer, "original")) for buffer in changed]

        def restore() -> None:
            for array, original in pairs:
                self._cp.copyto(array, original)

        return restore

    def _poison(self, form: Form, arrays: Mapping[str, Any]) -> None:
        for buffer in form.plan.buffers:
            if buffer.role not in READ:
                arrays[buffer.name].data.memset_async(0xFF, arrays[buffer.name].nbytes)


def _fitting(given: Array, buffer: Buffer) -> Array:
    """An input as its buffer has it.

    Raises:
        ValueError: it is of another type or size.
    """
    if given.dtype != element_dtype(buffer.dtype) or given.size != buffer.elements:
        raise ValueError(f"{buffer.name}: {given.dtype} {given.shape} for {buffer.dtype} {buffer.shape}")
    return given.reshape(buffer.shape)


def finalists(results: Sequence[Result]) -> list[Result]:
    """The fastest right ones."""
    return sorted((one for one in results if one.right), key=lambda one: one.tried_ms)[:FINALISTS]


def fastest(results: Sequence[Result]) -> Result:
    """By the first half of the rounds, of which nothing else is reported."""
    return min(results, key=lambda one: median(one.half_ms(second=False)))


def ratio(slow: Result, fast: Result) -> tuple[float, float, float]:
    """Median of the ratios of the rounds that are reported, and its 95 % interval."""
    pairs = zip(slow.half_ms(second=True), fast.half_ms(second=True), strict=True)
    ratios = sorted(one / other for one, other in pairs)
    edge = outside_interval(len(ratios))
    return median(ratios), ratios[edge], ratios[-1 - edge]


# --- the table ------------------------------------------------------------------------------------


Row = Mapping[str, Any]
HEAD = ("contest", "Rodinia's fastest", "ms", "ours", "ms", "× Rodinia's")


def shown(document: Row) -> str:
    """Where it was measured, and a line for each configuration of ours."""
    gpu, made = document["provenance"]["gpus"][0], document["provenance"]["date"][:10]
    origin = f"{gpu['name']}, driver {gpu['driver_version']}, clocks as found, {made}"
    nvcc = "; ".join(document["nvcc"])
    rows = [line for row in document["contests"] for line in lines(row)]
    cells = [f"| {' | '.join(row)} |" for row in (HEAD, ["---"] * len(HEAD), *rows)]
    return f"{origin}. nvcc: {nvcc}.\n\n" + "\n".join(cells)


def lines(row: Row) -> list[tuple[str, ...]]:
    """Each configuration of ours beside Rodinia's fastest right form."""
    chosen = next((one for one in row["rodinia"] if one["name"] == row["fastest"]), None)
    theirs = ("none is right", "–") if chosen is None else (chosen["name"], _ms(chosen))
    found = []
    for place, one in enumerate(row["ours"]):
        head = (f"{row['contest']}: `{row['workload']}`", *theirs) if place == 0 else ("", "", "")
        values = " ".join(f"{name}={value}" for name, value in one["configuration"].items())
        found.append((*head, f"{one['name']}: {values}", _ms(one), _ratio(one)))
    return found


def _ms(one: Row) -> str:
    return f"{one['ms']:.4f} ± {one['spread_ms']:.4f}" if "ms" in one else "wrong"


def _ratio(one: Row) -> str:
    ratio = one.get("ratio")
    return "–" if ratio is None else f"{ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})"


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
    if options.show is not None:
        print(shown(json.loads(options.show.read_text())))
        return 0
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
    parser.add_argument("folder", type=Path, nargs="?", help="Rodinia, or its folder cuda")
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
    parser.add_argument("--show", type=Path, metavar="FILE", help="print the table of a result")
    options = parser.parse_args(arguments)
    if options.show is None and options.folder is None:
        parser.error("the following arguments are required: folder")
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
