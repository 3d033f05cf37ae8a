"""When tuning kernels together pays: 30 pairs and 10 triples against solo bests at their best priorities.

    python benchmarks/co_run_pays.py --out pays.json [--device cuda:0] [--seconds 470]
    python benchmarks/co_run_pays.py --show pays.json

Each kernel is tuned alone once, and each set together then, for time and with two stream priorities (none on
a simulated device, which knows no priorities). What the answer gains is against the *fair rival*: the solo
bests together, at the priorities that suit these best. Beside it stands what is known before the search of
the set: times alone, launches as compiled, work, and the times of the solo bests together.

``--out`` is written after every set, and trials are in FILE.db beside it: the same command goes on where it
ended. No set is begun after ``--seconds``. No clock is set.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from provenance import provenance, save

from tuner.cli.main import orderly_stop
from tuner.database.runs import Store
from tuner.devices.gpu_models import gpu_model, stand_in
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import CompileError, InputError, RunInterrupted, TunerError
from tuner.model.plan import STREAM_PRIORITY, Configuration, Plan, without_priority
from tuner.model.records import RunStatus, StoredRun
from tuner.model.trial import Trial
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
        rows = _stored(out, how)
        for names in sets:
            since = time.monotonic()
            if since - begun >= seconds or any(row["set"] == list(names) for row in rows):
                continue
            of_set = replace(request, workloads=tuple(by_kernel[name] for name in names))
            try:
                outcome = tune(setup, of_set, catalog, store, progress, resume=True)
                if outcome.status is RunStatus.INTERRUPTED:
                    break
                rows.append(_row(names, outcome, setup, catalog, store))
            except (KeyboardInterrupt, RunInterrupted):
                break
            except TunerError as error:  # the other sets are measured all the same
                rows.append({"set": list(names), "failed": str(error)})
            rows[-1]["wall_s"] = time.monotonic() - since
            print(_line(rows[-1]), flush=True)
            save(out, {"provenance": provenance(), **how, "rows": rows})
    left = len(sets) - len(rows)
    if left:
        print(f"{left} of {len(sets)} sets are left: the same command goes on", flush=True)


def _stored(out: Path, how: Mapping[str, Any]) -> list[Row]:
    """The rows of a result, if they were measured in the same way.

    Raises:
        InputError: they were not.
    """
    if not out.exists():
        return []
    document = json.loads(out.read_text("utf-8"))
    for name, value in how.items():
        if document.get(name) != value:
            raise InputError(
                f"--out {out}: its {name} is {document.get(name)}, not {value}; name another file"
            )
    return [row for row in document["rows"] if "failed" not in row]


# --- what is known of a set ----------------------------------------------------------------------


def _row(
    names: Sequence[str], outcome: Outcome, setup: MeasurementSetup, catalog: Catalog, store: Store
) -> Row:
    """A set: what was known before its search, and what the search has gained.

    Raises:
        InputError: no trial was valid, or solo bests were not compared.
    """
    document = outcome.document
    best, rival, changes = document["best"], document["solo_bests"], document["against_solo_bests"]
    if best is None or rival is None or changes is None:
        raise InputError(document["no_solo_bests"] or "no trial is valid")
    priorities = document["solo_best_priorities"] or {}
    solo = {name: without_priority(Configuration(one)) for name, one in rival["configurations"].items()}
    together = [
        {
            "priorities": [one.get(STREAM_PRIORITY) for one in trial.configurations],
            "time_s": known.makespan_s,
            "own_s": [result.time_s for result in known.results],
        }
        for trial, known in outcome.trials
        if _plain(trial) == tuple(solo.values()) and known.ok
    ]
    after = document["one_after_another"]

    def plan_of(name: str, batch: int) -> Plan:
        workload = replace(catalog.workloads([name])[0], batch=batch)
        return catalog.kernel(workload.kernel).plan(workload, solo[name])

    return {
        "set": list(names),
        "before": {
            "workloads": [
                _alone(plan_of(one["name"], one["batch"]), store.run(number), setup)
                for one, number in zip(
                    document["workloads"], document["solo_best_runs"].values(), strict=True
                )
            ],
            "solo_bests_together": together,
        },
        "rival_s": rival["time_s"],
        "equal_s": priorities["equal"]["time_s"] if priorities else None,
        "time_s": best["time_s"],
        "change": changes["slowdown"],
        "change_interval": changes["slowdown_interval"],
        "parts": priorities.get("against_equal"),
        "against_one_after_another": None
        if after is None
        else [after["time_change"], after["time_change_interval"]],
        "rival": rival["configurations"],
        "answer": best["configurations"],
        "trials": len(outcome.trials),
        "searched_s": [known.makespan_s if known.ok else None for known in outcome.searched],
        "run": outcome.run,
    }


def _plain(trial: Trial) -> tuple[Configuration, ...]:
    return tuple(map(without_priority, trial.configurations))


def _alone(plan: Plan, run: StoredRun | None, setup: MeasurementSetup) -> Row:
    """A workload at its solo best: its time alone, its work, and its launches as compiled."""
    best = None if run is None or run.answer is None else run.answer["best"]
    limits, compiled = setup.device.limits, setup.device.resources([plan])[0]
    known = () if limits is None or isinstance(compiled, CompileError) else launches(limits, plan, compiled)
    model = stand_in(setup.device.identity)
    return {
        "name": str(plan.workload),
        "time_s": None if best is None else best["time_s"],
        "time_s_uncertainty": None if best is None else best["time_s_uncertainty"],
        "bytes": plan.work.bytes,
        "operations": plan.work.operations,
        "stages": len(plan.stages),
        "launches": [asdict(one) for one in known],
        "multiprocessors": None if limits is None else limits.multiprocessors,
        "bandwidth": None if model is None else gpu_model(model.removeprefix("sim:")).bandwidth,
    }


# --- the command ---------------------------------------------------------------------------------


def _line(row: Row) -> str:
    """A set in a line."""
    names = " + ".join(row["set"])
    if "failed" in row:
        return f"{names}: {row['failed']}"
    alone_s = [one["time_s"] for one in row["before"]["workloads"]]
    gained = percent_with_interval(row["change"], row["change_interval"])
    return (
        f"{names}: alone {', '.join(si(each, 's') for each in alone_s)}, together {si(row['rival_s'], 's')},"
        f" tuned together {si(row['time_s'], 's')}, {gained} in {row['trials']} trials, {row['wall_s']:.1f} s"
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
    options = parser.parse_args()
    try:
        if options.out is not None:
            with orderly_stop():
                sets = LATER if options.later else SETS
                measured(options.device, sets, options.out, options.trials, options.seconds)
        elif options.show is not None:
            for row in json.loads(options.show.read_text("utf-8"))["rows"]:
                print(_line(row))
        else:
            parser.error("give --out or --show")
    except TunerError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error


if __name__ == "__main__":
    main()
