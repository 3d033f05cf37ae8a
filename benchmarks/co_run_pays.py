"""When tuning kernels together pays: 30 pairs and 10 triples against solo bests at their best priorities.

    python benchmarks/co_run_pays.py --out pays.json [--device cuda:0] [--seconds 470]
    python benchmarks/co_run_pays.py --show pays.json [--docs docs/lab/applications.md]

Each kernel is tuned alone once, and each set together then, for time and with two stream priorities (none on
a simulated device, which knows no priorities). What the answer gains is against the *fair rival*: the solo
bests together, at the priorities that suit these best. Beside it stands what is known before the search of
the set: times alone, launches as compiled, work, and the times of the solo bests together.

``--out`` is written after every set, and trials are in FILE.db beside it: the same command goes on where it
ended. No set is begun after ``--seconds``. No clock is set.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from headlines import write_table
from provenance import provenance, save

from tuner.cli.main import orderly_stop
from tuner.database.runs import Store
from tuner.devices.gpu_models import GpuModel, gpu_model, stand_in
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import CompileError, InputError, RunInterrupted, TunerError
from tuner.model.plan import STREAM_PRIORITY, Configuration, without_place
from tuner.model.records import RunStatus
from tuner.model.units import percent_with_interval, si
from tuner.report.progress import RunProgress
from tuner.search.answer import Outcome
from tuner.search.request import SearchRequest
from tuner.search.setup import MeasurementSetup, open_setup
from tuner.search.tuning import tune
from tuner.space.occupancy import launches

PRIORITIES = 2
TRIALS = 40  # of a search of a kernel alone, and of a set where nothing else is said
LEAST_TRIALS = 2 * PRIORITIES**3  # solo bests are measured at all priorities, a triple's at eight
Row = dict[str, Any]

USERS = Path(__file__).resolve().parent / "users"
OWN = ("add", "bgemm", "convolution", "matmul", "softmax", "spmv", "stencil")
WORKLOADS = (  # 0.05 to 0.15 ms alone on an H200, then 0.25 to 0.6 ms
    *("add:N=33554432", "bgemm:N=32768", "softmax:N=16384,C=2048", "spmv:N=524288", "stencil:N=384"),
    *("scan-lf:N=1024", "scan-long:N=67108864", "gemv-batched:n=128", "gemm-batched:n=64"),
    *("potrf-batched:n=64", "getrf-batched:n=64"),
    *("fft:N=1024", "tridiag-wm:N=512", "convolution:N=4096", "matmul:N=2048"),
    *("matmul-split-k:M=2048,N=2048,K=2048", "streamcluster:N=131072,DIM=256,K=10"),
    *("particle-filter:N=2097152,H=1024,W=1024", "lud:N=768", "hotspot:ROWS=4096,COLUMNS=4096"),
)
SETS = tuple(  # every fourth is a triple; a rule is fixed on the first, third, … pair and triple
    tuple(line.split())
    for line in """\
fft convolution
lud particle-filter
add bgemm
fft convolution tridiag-wm
lud fft
softmax gemm-batched
matmul tridiag-wm
lud particle-filter fft
hotspot streamcluster
spmv stencil
convolution streamcluster
lud hotspot streamcluster
fft tridiag-wm
stencil potrf-batched
lud matmul-split-k
matmul fft lud
hotspot matmul
scan-lf getrf-batched
particle-filter convolution
convolution streamcluster tridiag-wm
gemv-batched scan-long
particle-filter tridiag-wm
bgemm potrf-batched
particle-filter matmul-split-k hotspot
lud convolution
add spmv
streamcluster matmul
add bgemm potrf-batched
softmax getrf-batched
lud hotspot
gemm-batched gemv-batched
scan-lf gemm-batched getrf-batched
particle-filter hotspot
scan-long stencil
matmul-split-k fft
softmax spmv stencil
scan-lf bgemm
potrf-batched gemv-batched
spmv gemm-batched
gemv-batched scan-long potrf-batched""".splitlines()
)
LATER = tuple(  # judge a rule that was fixed on all of those before any of these was measured
    tuple(line.split())
    for line in """\
streamcluster tridiag-wm
matmul convolution
lud matmul
scan-lf spmv
lud streamcluster hotspot matmul
gemm-batched stencil
particle-filter fft
add potrf-batched
hotspot convolution
particle-filter convolution lud
bgemm spmv
tridiag-wm hotspot
getrf-batched convolution
scan-long add
matmul-split-k particle-filter streamcluster
softmax potrf-batched
lud tridiag-wm
getrf-batched particle-filter
fft streamcluster
stencil bgemm gemm-batched
matmul-split-k tridiag-wm
gemv-batched spmv
matmul particle-filter
scan-long bgemm spmv""".splitlines()
)


def measured(device: str, sets: Sequence[tuple[str, ...]], out: Path, trials: int, seconds: float) -> None:
    """Measure the sets that a result lacks, and store it after each of them.

    Args:
        device: see ``open_device``.
        sets: by the names of their kernels.
        out: the result; what it holds of other sets stays.
        trials: of a set's search, at most.
        seconds: after which no set is begun.

    Raises:
        InputError: a recording, or a result that was measured otherwise.
    """
    if device.startswith("replay:"):
        raise InputError(f"--device {device}: it was measured already, and has no other sets; name a GPU")
    if trials < LEAST_TRIALS:
        raise InputError(
            f"--trials {trials}: solo bests take up to half of them; give {LEAST_TRIALS} or more"
        )
    before = _document(out, "--out") if out.exists() else None
    begun = time.monotonic()
    by_kernel = {spec.partition(":")[0]: spec for spec in WORKLOADS}
    catalog = Catalog.load([USERS / f"{name}.toml" for name in OWN])
    request = SearchRequest(
        objective="time",
        budget=trials,
        solo_bests=TRIALS,
        stream_priorities=1 if device.startswith("sim:") else PRIORITIES,
    )
    with (
        Store(out.with_suffix(".db")) as store,
        RunProgress(request.objective) as progress,
        open_setup(device, request, progress.warming) as setup,
    ):
        identity = setup.device.identity
        how = {"device": identity.spec, "gpu": identity.name, "modelled": identity.modelled}
        how |= {"trials": trials, "stream_priorities": request.stream_priorities}
        alone, rows = _stored(out, before, how)
        for names in sets:
            since = time.monotonic()
            if since - begun >= seconds or any(row["set"] == list(names) for row in rows):
                continue
            of_set = replace(request, workloads=tuple(by_kernel[name] for name in names))
            try:
                outcome = tune(setup, of_set, catalog, store, progress, resume=True)
                if outcome.status is RunStatus.INTERRUPTED:
                    break
                rows.append(_row(names, outcome))
                alone |= {
                    name: _alone(catalog, setup, store, outcome, place)
                    for place, name in enumerate(names)
                    if name not in alone
                }
            except (KeyboardInterrupt, RunInterrupted):
                break
            except TunerError as error:  # the other sets are measured all the same
                rows.append({"set": list(names), "failed": str(error)})
            rows[-1]["wall_s"] = time.monotonic() - since
            print(_line(rows[-1], alone), flush=True)
            save(out, {"provenance": provenance(), **how, "alone": alone, "rows": rows})
    left = len(sets) - len(rows)
    if left:
        print(f"{left} of {len(sets)} sets are left: the same command goes on", flush=True)


def _stored(
    out: Path, document: Mapping[str, Any] | None, how: Mapping[str, Any]
) -> tuple[dict[str, Row], list[Row]]:
    """The kernels alone and the sets of a result, if they were measured in the same way.

    Raises:
        InputError: they were not.
    """
    if document is None:
        return {}, []
    for name, value in how.items():
        if document.get(name) != value:
            raise InputError(
                f"--out {out}: its {name} is {document.get(name)}, not {value}; name another file"
            )
    return document["alone"], [row for row in document["rows"] if "failed" not in row]


def _document(path: Path, option: str) -> dict[str, Any]:
    """A stored result.

    Raises:
        InputError: there is none.
    """
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{option} {path}: {error}; name a result of this script") from error
    if not isinstance(document, dict) or not {"alone", "rows"} <= document.keys():
        raise InputError(f"{option} {path}: it has no sets; name a result of this script")
    return document


# --- what is known of a set ----------------------------------------------------------------------


def _row(names: Sequence[str], outcome: Outcome) -> Row:
    """A set: the solo bests together, and what the search has gained on them.

    Raises:
        InputError: no trial was valid, or solo bests were not compared.
    """
    document = outcome.document
    best, rival, changes = document["best"], document["solo_bests"], document["against_solo_bests"]
    if best is None or rival is None or changes is None:
        raise InputError(document["no_solo_bests"] or "no trial is valid")
    priorities = document["solo_best_priorities"] or {}
    solo = [without_place(Configuration(one)) for one in rival["configurations"].values()]
    together = [
        {
            "priorities": [one.get(STREAM_PRIORITY) for one in trial.configurations],
            "time_s": known.makespan_s,
            "own_s": [result.time_s for result in known.results],
        }
        for trial, known in outcome.trials
        if [without_place(one) for one in trial.configurations] == solo and known.ok
    ]
    after = document["one_after_another"] or {}
    return {
        "set": list(names),
        "solo_bests_together": together,
        "rival_s": rival["time_s"],
        "equal_s": priorities["equal"]["time_s"] if priorities else None,
        "time_s": best["time_s"],
        "change": changes["slowdown"],
        "change_interval": changes["slowdown_interval"],
        "parts": priorities.get("against_equal"),
        "alone_s": [one["time_s"] for one in after.get("workloads", {}).values()],
        "one_after_another": [after.get("time_change"), after.get("time_change_interval")],
        "rival": rival["configurations"],
        "answer": best["configurations"],
        "searched_s": [known.makespan_s if known.ok else None for known in outcome.searched],
        "run": outcome.run,
    }


def _alone(catalog: Catalog, setup: MeasurementSetup, store: Store, outcome: Outcome, place: int) -> Row:
    """A workload at its solo best: its time alone, its work, and its launches as compiled."""
    document = outcome.document
    one, number = document["workloads"][place], list(document["solo_best_runs"].values())[place]
    run, rival = store.run(number), document["solo_bests"] or {}
    best = None if run is None or run.answer is None else run.answer["best"]
    workload = replace(catalog.workloads([one["name"]])[0], batch=one["batch"])
    values = without_place(Configuration(rival["configurations"][one["name"]]))
    plan = catalog.kernel(workload.kernel).plan(workload, values)
    limits, compiled = setup.device.limits, setup.device.resources([plan])[0]
    known = () if limits is None or isinstance(compiled, CompileError) else launches(limits, plan, compiled)
    spec = stand_in(setup.device.identity)
    gpu = None if spec is None else gpu_model(spec.removeprefix("sim:"))
    return {
        "workload": str(workload),
        "configuration": dict(values),
        "time_s": None if best is None else best["time_s"],
        "time_s_uncertainty": None if best is None else best["time_s_uncertainty"],
        "memory_s": None if gpu is None else plan.work.bytes / gpu.bandwidth,
        "lanes_s": None if gpu is None else plan.work.operations / operations_per_s(gpu),
        "stages": len(plan.stages),
        "launches": [asdict(launch) for launch in known],
        "multiprocessors": None if limits is None else limits.multiprocessors,
    }


def operations_per_s(gpu: GpuModel) -> float:
    """Single-precision operations of a GPU, a fused one for two, at its highest clock."""
    return 2.0 * gpu.fp32_lanes * gpu.limits.multiprocessors * gpu.clocks_mhz[0] * 1e6


# --- which of this tells whether tuning together pays --------------------------------------------

MATTERS = 0.02
"""Less time that is worth tuning together."""

SHOWN = 6  # numbers of a table, the best of them

Facts = Sequence[Row]  # of the workloads of a set alone


def gains(row: Row) -> bool | None:
    """Whether a set gains more than ``MATTERS``; None where the interval leaves it open."""
    gain, half = -row["change"], row["change_interval"]
    return None if abs(gain - MATTERS) < half else gain > MATTERS


def _sum(facts: Facts, name: str) -> float:
    return math.fsum(one[name] for one in facts)


def _of_time(facts: Facts, name: str) -> list[float]:
    return [one[name] / one["time_s"] for one in facts]


def _occupancies(facts: Facts) -> list[float]:
    return [min(launch["occupancy"] for launch in one["launches"]) for one in facts]


def _waves(facts: Facts) -> list[float]:
    """Grids by the blocks that the GPU holds at a time, the largest of each workload."""
    return [
        max(
            launch["blocks"] / (launch["blocks_per_sm"] * one["multiprocessors"])
            for launch in one["launches"]
        )
        for one in facts
    ]


def _tails(facts: Facts) -> list[float]:
    """Share of its waves that a workload's last one leaves empty."""
    return [1 - waves / math.ceil(waves) for waves in _waves(facts)]


def _delays(row: Row, facts: Facts) -> list[float]:
    rival = min(row["solo_bests_together"], key=lambda trial: trial["time_s"])
    return [own_s / one["time_s"] for own_s, one in zip(rival["own_s"], facts, strict=True)]


KNOWN: Mapping[str, Callable[[Row, Facts], float]] = {
    "time of solo bests together, by the longest alone": lambda row, facts: (
        row["rival_s"] / max(one["time_s"] for one in facts)
    ),
    "the same, by the sum alone": lambda row, facts: row["rival_s"] / _sum(facts, "time_s"),
    "the same, by what memory or lanes or the longest needs": lambda row, facts: (
        row["rival_s"]
        / max(_sum(facts, "memory_s"), _sum(facts, "lanes_s"), *(one["time_s"] for one in facts))
    ),
    "most delayed workload": lambda row, facts: max(_delays(row, facts)),
    "least delayed workload": lambda row, facts: min(_delays(row, facts)),
    "time at equal priorities, by that at the best": lambda row, _: (
        (row["equal_s"] or row["rival_s"]) / row["rival_s"]
    ),
    "share of memory bandwidth, of all": lambda _, facts: _sum(facts, "memory_s") / _sum(facts, "time_s"),
    "least share of bandwidth": lambda _, facts: min(_of_time(facts, "memory_s")),
    "difference of shares of bandwidth": lambda _, facts: (
        max(_of_time(facts, "memory_s")) - min(_of_time(facts, "memory_s"))
    ),
    "share of lanes (issue), of all": lambda _, facts: _sum(facts, "lanes_s") / _sum(facts, "time_s"),
    "most share of lanes": lambda _, facts: max(_of_time(facts, "lanes_s")),
    "least occupancy": lambda _, facts: min(_occupancies(facts)),
    "sum of occupancies": lambda _, facts: math.fsum(_occupancies(facts)),
    "fewest waves": lambda _, facts: min(_waves(facts)),
    "longest tail": lambda _, facts: max(_tails(facts)),
    "most launches": lambda _, facts: max(one["stages"] for one in facts),
    "sum of times alone (s)": lambda _, facts: _sum(facts, "time_s"),
    "longest by shortest alone": lambda _, facts: (
        max(one["time_s"] for one in facts) / min(one["time_s"] for one in facts)
    ),
}
"""What is known before a set is searched."""


@dataclass(frozen=True)
class Split:
    """A number above or below which sets gain.

    Attributes:
        known: its name.
        sign: 1 where they gain above, -1 below.
        limit: the number.
    """

    known: str
    sign: int
    limit: float

    def says(self, row: Row, alone: Mapping[str, Row]) -> bool:
        """Whether tuning the set together pays."""
        return (
            self.sign * KNOWN[self.known](row, [alone[name] for name in row["set"]]) > self.sign * self.limit
        )


def right(rows: Sequence[Row], says: Callable[[Row], bool]) -> tuple[list[bool], list[bool]]:
    """Whether a rule is right about each set that gains, and about each that does not."""
    found: dict[bool, list[bool]] = {True: [], False: []}
    for row in rows:
        truth = gains(row)
        if truth is not None:
            found[truth].append(says(row) is truth)
    return found[True], found[False]


def _shares(rows: Sequence[Row], split: Split, alone: Mapping[str, Row]) -> tuple[float, float]:
    gained, others = right(rows, lambda row: split.says(row, alone))
    return statistics.fmean(gained), statistics.fmean(others)


FIRST_TRIALS = 25
FIRST_GAIN = 0.014
"""Fixed on the first 40 sets: the rest gains little where no first trial is so far below the solo bests."""


def found_after(row: Row, trials: int) -> float:
    """Less time that the first trials of a search behind the default and the solo bests have found."""
    own = row["searched_s"][1:]
    behind = len(row["solo_bests_together"])
    rival_s = min(trial["time_s"] for trial in row["solo_bests_together"])
    return 1 - min(time_s for time_s in own[behind : behind + trials] if time_s) / rival_s


def judged_by_first(rows: Sequence[Row]) -> str:
    """How often the rule of the first trials is right."""
    both = right(rows, lambda row: found_after(row, FIRST_TRIALS) > FIRST_GAIN)
    gained, others = (f"{sum(found)} of {len(found)}" for found in both)
    rule = f"whether {FIRST_TRIALS} trials found {100 * FIRST_GAIN:g} %"
    return f"{rule} is right about {gained} sets that gain and {others} others"


def best_split(known: str, rows: Sequence[Row], alone: Mapping[str, Row]) -> Split:
    """The limit that is right most often on some sets, among those that gain and the others alike."""
    values = sorted({KNOWN[known](row, [alone[name] for name in row["set"]]) for row in rows})
    limits = [(low + high) / 2 for low, high in pairwise(values)]
    splits = [Split(known, sign, limit) for limit in limits for sign in (1, -1)]

    def score(split: Split) -> tuple[float, float]:
        shares = _shares(rows, split, alone)
        return min(shares), sum(shares)

    return max(splits, key=score)


def table(document: Mapping[str, Any]) -> str:
    """Each known number: its limit is fixed on every other pair and triple, and judged on the rest."""
    alone, measured_rows = document["alone"], [row for row in document["rows"] if "failed" not in row]
    halves: tuple[list[Row], list[Row]] = ([], [])
    for size in (2, 3):
        for number, row in enumerate(row for row in measured_rows if len(row["set"]) == size):
            halves[number % 2].append(row)
    if any(not {True, False} <= {gains(row) for row in half} for half in halves):
        return "too few sets to fix a limit on a half of them and judge it on the other"
    found = [best_split(known, halves[0], alone) for known in KNOWN]
    found.sort(key=lambda split: min(_shares(halves[0], split, alone)), reverse=True)
    columns = (
        "known before",
        "gains where it is",
        "right of the half that fixed it: gain, others",
        "of the rest",
    )
    lines = [f"| {' | '.join(columns)} |", "|" + " --- |" * len(columns)]
    for split in found[:SHOWN]:
        shares = [_shares(half, split, alone) for half in halves]
        cells = [split.known, f"{'above' if split.sign > 0 else 'below'} {split.limit:.3g}"]
        cells += [f"{100 * gain:.0f} %, {100 * other:.0f} %" for gain, other in shares]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


# --- the command ---------------------------------------------------------------------------------


def _line(row: Row, alone: Mapping[str, Row]) -> str:
    """A set in a line."""
    names = " + ".join(row["set"])
    if "failed" in row:
        return f"{names}: {row['failed']}"
    alone_s = ", ".join(si(alone[name]["time_s"], "s") for name in row["set"])
    gained = percent_with_interval(row["change"], row["change_interval"])
    return (
        f"{names}: alone {alone_s}, together {si(row['rival_s'], 's')}, tuned together"
        f" {si(row['time_s'], 's')}, {gained} in {len(row['searched_s'])} trials, {row['wall_s']:.1f} s"
    )


def main() -> None:
    """Measure, or show a result; bad input ends with exit code 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, help="the result, as JSON; it goes on where it ended")
    parser.add_argument("--device", default="cuda:0", help="of --out")
    parser.add_argument("--trials", type=int, default=TRIALS, help="of a set's search at most")
    parser.add_argument("--later", action="store_true", help="the sets that judge")
    parser.add_argument("--seconds", type=float, default=470.0, help="after which no set is begun")
    parser.add_argument("--show", type=Path, metavar="FILE.json", help="print a result")
    parser.add_argument("--docs", type=Path, help="the page to write the table of --show into")
    options = parser.parse_args()
    try:
        if options.out is not None:
            with orderly_stop():
                sets = LATER if options.later else SETS
                measured(options.device, sets, options.out, options.trials, options.seconds)
        elif options.show is not None:
            document = _document(options.show, "--show")
            for row in document["rows"]:
                print(_line(row, document["alone"]))
            print(judged_by_first([row for row in document["rows"] if "failed" not in row]))
            if options.docs is None:
                print(table(document))
            else:
                write_table(options.docs, "known", table(document))
        else:
            parser.error("give --out or --show")
    except TunerError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error


if __name__ == "__main__":
    main()
