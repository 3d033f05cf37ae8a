"""Applications that run together: every combination recorded on a GPU, and sets searched on the recording.

    python benchmarks/applications.py --record four.zip [--device cuda:0] [--budget 540]
    python benchmarks/applications.py --out FILE.json [--recording h200-applications]
    python benchmarks/applications.py --show FILE.json [--docs docs/lab/applications.md]

``--record`` measures all trials of the co-run space in random order, and goes on where it ended when it is
given the same file again; what is measured is in FILE.db. The second form plays a search of the policy
``auto`` for time and for energy on each set of a recording, and states its answer against solo bests
together, at their best priorities and at equal ones, against one after another, and against the least
recorded cost. It needs no GPU. No clock is set.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headlines import write_table
from provenance import provenance, save

from tuner.cli.main import orderly_stop
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.formulas import Formula, Location
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.recipe import Rule
from tuner.measurement.paired import PairedRepeats, compared
from tuner.model.errors import InputError, TunerError
from tuner.model.expressions.callables import Expression
from tuner.model.objective import COVERAGE, Objective
from tuner.model.plan import STREAM_PRIORITY, Configuration, without_place
from tuner.model.records import RunStatus, StoredRun
from tuner.model.trial import Trial
from tuner.model.units import percent_with_interval, si, with_uncertainty
from tuner.recordings.files import RecordedSpaces, open_recording, write
from tuner.recordings.values import RecordedSpace
from tuner.report.progress import RunProgress
from tuner.search.plan import plan_search
from tuner.search.replaying import covered, stored_space
from tuner.search.request import SearchRequest
from tuner.search.session import Session
from tuner.search.setup import MeasurementSetup, open_setup
from tuner.search.together import SoloBests, record_of

PRIORITIES = 2
WINDOW_S = 0.5
OBJECTIVES = ("time", "energy")
Row = dict[str, Any]


@dataclass(frozen=True)
class Application:
    """An application with what its space has beside the rules of its kernel file.

    Attributes:
        workload: its kernel and size: 0.46 (MatrixMul) or 0.8 to 1.4 ms alone on an H200.
        rules: conditions, as under ``[constraints]``.
        default: values instead of those under ``[default]``.
    """

    workload: str
    rules: Sequence[str]
    default: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def kernel(self) -> str:
        """The name of its kernel."""
        return self.workload.partition(":")[0]


# What searches of each alone found on an H200, and some that are a little slower alone, as larger blocks of
# StreamCluster are. With two priorities of each stream 4 × 2 × 2 × 2 × 16 = 512 combinations of the four.
APPLICATIONS = {
    "StreamCluster": Application(
        "streamcluster:N=262144,DIM=256,K=10,CALLS=10",
        (
            "layout == 'centre'",
            "U == 16 and held == 'cache' and R == 1024 or U == 4 and held == 'shared' and R == 128",
            "B == 128 and P == 1 if U == 4 else B == 64 and P == 1 or B in (512, 1024) and P == 2",
        ),
    ),
    "ParticleFilter": Application(
        "particle-filter:N=8388608,H=1024,W=1024",
        (
            "cdf_by == 'scan' and S == 256 and search == 'binary'",
            "B == 128 and P == 4 and F == 128 or B == 512 and P == 2 and F == 64",
        ),
        {"B": 512, "P": 2, "F": 64, "S": 256},
    ),
    "Lud": Application(
        "lud:N=1536",
        ("B == 32 and C == 128 and FUSE == 1", "R == 1 and Q == 2 or R == 4 and Q == 1"),
        {"B": 32, "C": 128, "R": 4, "Q": 1, "FUSE": 1},
    ),
    "HotSpot": Application(
        "hotspot:ROWS=6144,COLUMNS=6144,STEPS=20",
        (
            "T == 6 and BUFFERS == 1",
            "X == 128 and POWER == 'register' or X == 64 and POWER == 'cache'",
            "Y == 2 and R == 16 if X == 128 else Y == 16 and R == 4",
        ),
        {"X": 64, "Y": 16, "R": 4, "T": 6, "BUFFERS": 1, "POWER": "cache"},
    ),
    "MatrixMul": Application(
        "matmul-split-k:M=2048,N=2048,K=2048",
        ("BM == BN and BM >= 64 and TM == 8 and TN == 8 and BK == 16 and S == 1",),
        {"BM": 128, "BN": 128, "BK": 16, "TM": 8, "TN": 8},
    ),
}
FOUR = ("StreamCluster", "ParticleFilter", "Lud", "HotSpot")
PAIRS = (("Lud", "ParticleFilter"), ("Lud", "MatrixMul"), ("StreamCluster", "HotSpot"))
SETS = (*((name,) for name in APPLICATIONS), *PAIRS, FOUR)


def catalog_of_sets() -> Catalog:
    """The catalogue, with the five applications restricted to the co-run space; hashes stay."""
    catalog = Catalog.load(())
    narrow = {one.kernel: _restricted(catalog.kernels[one.kernel], one) for one in APPLICATIONS.values()}
    return replace(catalog, kernels={**catalog.kernels, **narrow})


def _restricted(kernel: KernelFile, by: Application) -> KernelFile:
    rules = tuple(Rule(Expression(text), text) for text in by.rules)
    location = Location(str(kernel.path), "[default] of a restricted space")
    default = {
        name: value if isinstance(value, str) else Formula(location, value, ())
        for name, value in by.default.items()
    }
    recipe = kernel.recipe
    more = replace(recipe, rules=(*recipe.rules, *rules), default={**recipe.default, **default})
    return replace(kernel, recipe=more)


# --- recording ------------------------------------------------------------------------------------


def record(device: str, sets: Sequence[tuple[str, ...]], path: Path, budget_s: float) -> None:
    """Measure every trial of the sets in random order, singles first, then the largest; write a recording.

    What was measured is in a database beside the file: the same call goes on from there. The budget, Ctrl-C
    and a crash keep what is there.

    Raises:
        InputError: a device that is a recording, or a budget in which nothing was measured.
    """
    if device.startswith("replay:"):
        raise InputError(f"--record: {device} was measured already; name a GPU, as cuda:0")
    until = time.monotonic() + budget_s
    with Store(path.with_suffix(".db")) as store, ExitStack() as stack:
        recorder = _Recorder(device, store, stack)
        spaces: list[RecordedSpace] = []
        for names in sorted(sets, key=lambda names: (len(names) > 1, -len(names))):
            run = recorder.measured(names, until)
            if run is None:
                continue
            export = stored_space(store, recorder.catalog, run)
            spaces.append(export.space)
            print(f"{' + '.join(names)}: {covered(export)}", flush=True)
            for notice in export.notices:
                print(f"  {notice}", file=sys.stderr)
            write(path, spaces)
            if recorder.interrupted:
                break
    if not spaces:
        raise InputError(f"--budget {budget_s:g}: not one trial was measured in it")


class _Recorder:
    """Measures sets on one device, which is opened when the first of them is not complete yet."""

    def __init__(self, device: str, store: Store, stack: ExitStack) -> None:
        self.catalog = catalog_of_sets()
        self.interrupted = False
        self._device, self._store, self._stack = device, store, stack
        self._setup: MeasurementSetup | None = None

    def measured(self, names: Sequence[str], until: float) -> int | None:
        """The number of the run that has the trials of a set; None where there is not one."""
        request = SearchRequest(
            workloads=tuple(APPLICATIONS[name].workload for name in names),
            objective="energy",
            joules=True,
            policy="random",
            window_s=WINDOW_S,
            stream_priorities=PRIORITIES if len(names) > 1 else 1,
        )
        wanted = [str(one) for one in self.catalog.workloads(request.workloads)]
        runs = [run for run in self._store.history() if _workloads(run) == wanted]
        complete = next((run.id for run in runs if run.status is RunStatus.FINISHED), None)
        left_s = until - time.monotonic()
        if complete is not None or left_s <= 0.0 or self.interrupted:
            return complete or next((run.id for run in runs if run.trials), None)
        with RunProgress(request.objective) as progress:
            if self._setup is None:
                opened = open_setup(self._device, request, progress.warming)
                self._setup = self._stack.enter_context(opened)
            plan = plan_search(replace(request, time_limit_s=left_s), self.catalog, self._setup)
            outcome = Session(plan, self._setup, self._store, progress).run(resume=True, confirm=False)
        self.interrupted = outcome.status is RunStatus.INTERRUPTED
        return outcome.run if outcome.trials else None


def _workloads(run: StoredRun) -> list[str]:
    return [name for name, _ in run.conditions["workloads"]]


# --- searches on a recording ----------------------------------------------------------------------


def searched(recording: RecordedSpaces, name: str, sets: Sequence[tuple[str, ...]]) -> list[Row]:
    """A row for each objective and each of the sets that the recording has."""
    rows = []
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "runs.db") as store:
        for objective in OBJECTIVES:
            for names, workloads in _present(recording, sets):
                request = SearchRequest(workloads=workloads, objective=objective, policy="auto")
                with (
                    RunProgress(objective) as progress,
                    open_setup(f"replay:{name}", request, progress.warming) as setup,
                ):
                    plan = plan_search(request, catalog_of_sets(), setup)
                    document = Session(plan, setup, store, progress).run(resume=False).document
                rows.append(_row(recording, names, document, objective))
                print(_line(rows[-1]), flush=True)
    return rows


def _present(
    recording: RecordedSpaces, sets: Sequence[tuple[str, ...]]
) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Sets and their workloads in the order of a recording.

    Raises:
        InputError: it has none of them.
    """
    found = []
    for names in sets:
        of_kernel = {APPLICATIONS[name].kernel: name for name in names}
        for workloads in recording.names:
            kernels = [workload.partition(":")[0] for workload in workloads]
            if sorted(kernels) == sorted(of_kernel):
                found.append((tuple(of_kernel[kernel] for kernel in kernels), workloads))
    if not found:
        raise InputError(f"{recording.path}: none of the sets was recorded")
    return found


def _row(
    recording: RecordedSpaces, names: tuple[str, ...], document: Mapping[str, Any], objective: str
) -> Row:
    workloads = [one["name"] for one in document["workloads"]]
    best = document["best"]
    answer = Trial(
        tuple(Configuration(best["configurations"][name]) for name in workloads), best["clock_mhz"]
    )
    space = recording.space(tuple(workloads))
    known = sorted(
        cost for cost in map(Objective(objective).known, space.trials.values()) if math.isfinite(cost)
    )
    return {
        "set": list(names),
        "objective": objective,
        "workloads": workloads,
        "configurations": [best["configurations"][name] for name in workloads],
        "time_s": best["time_s"],
        "time_s_interval": COVERAGE * best["time_s_uncertainty"],
        "energy_j": best["energy_j"],
        "energy_j_interval": None if best["energy_j"] is None else COVERAGE * best["energy_j_uncertainty"],
        "trials": document["space"]["measured"],
        "whole": document["space"]["size"],
        "above": Objective(objective).known(space.look(answer)) / known[0] - 1,
        **(_together(recording, space, answer, objective) if len(names) > 1 else {}),
    }


def _together(recording: RecordedSpaces, space: RecordedSpace, answer: Trial, objective: str) -> Row:
    """An answer against solo bests together and against one after another, each as recorded once.

    Solo bests are at the priorities that suit them best, and once more at equal ones.
    """
    names = [workload.name for workload in space.workloads]
    if any((name,) not in recording.names for name in names):
        return {"solo_bests": None, "equal_solo_bests": None, "one_after_another": None}
    cost = Objective(objective).known
    chosen = []
    for workload in space.workloads:
        alone = recording.space((workload.name,)).trials
        chosen.append(min(alone, key=lambda trial: cost(alone[trial])).configurations[0])
    at_any = [
        trial for trial in space.trials if [without_place(one) for one in trial.configurations] == chosen
    ]
    equal = next(
        trial for trial in at_any if all(one.get(STREAM_PRIORITY, 0) == 0 for one in trial.configurations)
    )
    rival = SoloBests(equal, placed=tuple(at_any)).rival(space.trials, Objective(objective))
    each = [
        recording.space((name,)).look(Trial((without_place(one),)))
        for name, one in zip(names, answer.configurations, strict=True)
    ]
    return {
        "solo_bests": None if rival is None else _against(space, answer, rival),
        "equal_solo_bests": _against(space, answer, equal),
        "one_after_another": record_of(compared(answer, [(space.look(answer), each)]), names),
    }


def _against(space: RecordedSpace, answer: Trial, other: Trial) -> Row:
    """The change of time and joules from another trial to an answer."""
    paired = PairedRepeats(({answer: space.look(answer), other: space.look(other)},))
    slower, dearer = (paired.ratio(answer, other, Objective(quantity)) for quantity in OBJECTIVES)
    row: Row = {"time_s": space.look(other).makespan_s}
    if slower is not None:
        row |= {"slowdown": slower.value - 1, "slowdown_interval": slower.interval}
    if dearer is not None:
        row |= {"energy_saving": 1 - dearer.value, "energy_saving_interval": dearer.interval}
    return row


def _line(row: Row) -> str:
    head = f"{' + '.join(row['set'])}, {row['objective']}: {si(row['time_s'], 's')}"
    parts = [f"{row['trials']} ({row['whole']:,}) trials, {row['above']:.2%} above the least"]
    if row.get("solo_bests"):
        solo = row["solo_bests"]
        change = percent_with_interval(solo["slowdown"], solo["slowdown_interval"])
        parts.append(f"time against solo bests together {change}")
    return ", ".join([head, *parts])


def table(rows: Sequence[Row]) -> str:
    """The sets of several applications, in Markdown; below zero the answer takes less."""
    columns = ("applications", "for", "time", "energy", "time against solo bests, best priorities", "energy")
    columns += ("time, equal priorities", "time against one after another", "energy", "above the least")
    lines = [f"| {' | '.join(columns)} |", "|" + " --- |" * len(columns)]
    for row in rows:
        if not row.get("solo_bests"):
            continue
        solo, equal, after = (row[name] for name in ("solo_bests", "equal_solo_bests", "one_after_another"))
        cells = [
            " + ".join(row["set"]),
            row["objective"],
            with_uncertainty(row["time_s"], row["time_s_interval"], "s"),
            with_uncertainty(row["energy_j"], row["energy_j_interval"], "J"),
            percent_with_interval(solo["slowdown"], solo["slowdown_interval"]),
            percent_with_interval(-solo["energy_saving"], solo["energy_saving_interval"]),
            percent_with_interval(equal["slowdown"], equal["slowdown_interval"]),
            percent_with_interval(after["time_change"], after["time_change_interval"]),
            percent_with_interval(after["energy_change"], after["energy_change_interval"]),
            f"{100 * row['above']:.2f} %",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


# --- the command ----------------------------------------------------------------------------------


def main() -> None:
    """Record, or search a recording; bad input ends with exit code 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--record", type=Path, metavar="FILE.zip", help="measure the co-run space")
    parser.add_argument("--device", default="cuda:0", help="of --record")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds of --record")
    parser.add_argument("--recording", default="h200-applications", help="to search in")
    parser.add_argument("--only", type=int, metavar="COUNT", help="sets of so many applications")
    parser.add_argument("--out", type=Path, help="the document of the searches, as JSON")
    parser.add_argument("--show", type=Path, metavar="FILE.json", help="the table of such a document")
    parser.add_argument("--docs", type=Path, help="the page to write that table into")
    options = parser.parse_args()
    if options.show is not None:
        text = table(json.loads(options.show.read_text("utf-8"))["rows"])
        print(text) if options.docs is None else write_table(options.docs, "sets", text)
        return
    sets = [names for names in SETS if options.only in (None, len(names))]
    try:
        with orderly_stop():
            if options.record is not None:
                record(options.device, sets, options.record, options.budget)
                return
            rows = searched(open_recording(options.recording), options.recording, sets)
    except TunerError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error
    save(options.out, {"provenance": provenance(), "device": f"replay:{options.recording}", "rows": rows})


if __name__ == "__main__":
    main()
