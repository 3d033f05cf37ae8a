"""Table IV of "Multi-Kernel Auto-Tuning on GPUs" in form: its applications alone, in pairs and all four.

Each set is tuned for time (Algorithms 1 and 3) and for energy (Algorithms 2 and 4) by the policy ``greedy``.
Stated are what was chosen, how many trials of the whole space the policy asked for, slowdown and saving of
the answer for energy against that for time (measured in turn), the answers against solo bests together and
against one after another, and where every cost is known how far an answer is from the least. Clocks are
searched on the modelled K20c and K40c, and never set on a GPU.

    python benchmarks/applications.py --device sim:k40c --out FILE.json     # the table
    python benchmarks/applications.py --device cuda:0 --balance             # solo times of the sizes
    python benchmarks/applications.py --device cuda:0 --record FILE.zip     # measures the co-run space
    python benchmarks/applications.py --analyse FILE.zip --out FILE.json    # plays searches on a recording
    python benchmarks/applications.py --device replay:FILE.zip --out FILE.json

``--record`` goes on where it ended when it is given the same file again; what is measured is in FILE.db.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from application_recording import LEAST_WINDOW_S, analysed, record, show_analysis
from application_sets import (
    KERNELS,
    SPACES,
    catalog_of,
    chosen_sets,
    recorded_space,
    spec_of,
    usual_sizes,
)
from application_table import Bench, fill_table, write
from provenance import provenance

from tuner.cli.main import orderly_stop
from tuner.database.runs import Store
from tuner.model.errors import InputError, TunerError
from tuner.model.trial import Trial
from tuner.report.progress import RunProgress
from tuner.search.setup import open_setup
from tuner.search.together import MOST_APART


def main(words: Sequence[str] | None = None) -> None:
    """One of the sub-steps; bad input ends with exit code 2."""
    options = parsed(words)
    try:
        with orderly_stop():
            _run(options)
    except TunerError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error


def _run(options: argparse.Namespace) -> None:
    if options.analyse is not None:
        found = analysed(options.analyse, options.seeds)
        show_analysis(found)
        write(options.out, {"provenance": provenance(), **found})
        return
    sets = chosen_sets(options.only)
    sizes = options.sizes or usual_sizes(options.space, options.device)
    if options.record is not None:
        sizes = options.sizes or usual_sizes(recorded_space(options.device), options.device)
        window_s = options.window or LEAST_WINDOW_S
        record(options.device, sets, sizes, options.record, budget_s=options.budget, window_s=window_s)
        return
    with _database(options.database) as path, Store(path) as store:
        bench = Bench(options, sizes, catalog_of(options.space), store)
        if options.balance:
            _balance(bench, sets)
            return
        fill_table(bench, sets)


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="sim:k40c", help="cuda:N, sim:NAME or replay:FILE")
    parser.add_argument(
        "--space", choices=tuple(SPACES), default="paper", help="block sizes only, or the co-run space"
    )
    parser.add_argument(
        "--sizes", choices=("table-ii", "gpu", "modelled"), help="default: by space and device"
    )
    parser.add_argument("--only", nargs="*", default=[], metavar="SET", help="Lud, Lud+MatrixMul, four ...")
    parser.add_argument("--policy", default="greedy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--window", type=float, help="seconds of a trial; default: as tuner run chooses")
    parser.add_argument("--energy-precision", type=float, default=0.01, help="of joules, 95 %%")
    parser.add_argument("--min-occupancy", type=float, metavar="SHARE", help="0 to 1; default: none")
    parser.add_argument("--time-limit", type=float, help="seconds of one search")
    parser.add_argument("--database", type=Path, help="keeps the runs, so that a later call goes on")
    parser.add_argument("--out", type=Path, help="the document, as JSON")
    parser.add_argument("--balance", action="store_true", help="measure solo times only")
    parser.add_argument("--record", type=Path, metavar="FILE.zip", help="measure the co-run space completely")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds of --record")
    parser.add_argument("--analyse", type=Path, metavar="FILE.zip", help="play searches on a recording")
    parser.add_argument("--seeds", type=int, default=11, help="of --analyse, for policies that draw")
    options = parser.parse_args(words)
    if sum((options.balance, options.record is not None, options.analyse is not None)) > 1:
        parser.error("--balance, --record and --analyse: choose one")
    if options.budget <= 0 or options.seeds < 1:
        parser.error("--budget and --seeds must be above zero")
    return options


@contextmanager
def _database(path: Path | None) -> Iterator[Path]:
    if path is not None:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "applications.db"


# --- solo times ----------------------------------------------------------------------------------


def _balance(bench: Bench, sets: Sequence[tuple[str, ...]]) -> None:
    """Solo times of the applications at their defaults: sizes at which one hides the others are seen."""
    names = [name for name in KERNELS if any(name in one for one in sets)]
    request = bench.request(names[:1], "time")
    times = {}
    with RunProgress("time") as progress, open_setup(bench.device, request, progress.warming) as setup:
        for name in names:
            workload = bench.catalog.workload(spec_of(name, bench.sizes))
            kernel = bench.catalog.kernel(workload.kernel)
            trial = Trial((kernel.default(workload),))
            measured = setup.measurer.measure(trial, [kernel.plan(workload, trial.configurations[0])])
            if measured.makespan_s is None or not measured.ok:
                raise InputError(f"{workload}: its default failed: {measured.results[0].detail}")
            times[name] = measured.makespan_s
            print(f"{workload} [{trial.configurations[0]}]: {measured.makespan_s * 1e3:.4g} ms", flush=True)
    apart = max(times.values()) / min(times.values())
    print(f"the longest is {apart:,.3g} times the shortest; wanted is at most {MOST_APART:g}")


if __name__ == "__main__":
    main()
