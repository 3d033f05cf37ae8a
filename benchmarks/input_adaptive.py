r"""Input-adaptive kernels: how much the input matters, and how well inputs are predicted that nobody tuned.

Each kernel is measured completely at ``--count`` inputs (log-uniform, no copies). Every trial is stored, so
that an interrupted measurement goes on. From the sweeps follow, as the tables of the G-ADAPT paper:

* Table I: inputs, share of exact and of near predictions by leave-one-out, runs of hill climbing, seconds;
* Fig. 2 and 3: what the default and the best single configuration lose over the inputs;
* Fig. 5 and 6: worst, default, single and predicted configuration by the best;
* the same with the block size alone as tunable, as in the paper;
* what a training costs that does not measure complete sweeps, and what it loses.

Clocks as found; nothing is set. On a GPU, a few kernels a call:

    python benchmarks/input_adaptive.py mvmul reduction --device cuda:0 --database adaptive.db \
        [--count 48] [--out benchmarks/results/input-adaptive-h200.json]

On a simulated device every number is modelled: ``--device sim:h200``. ``--analyse`` measures nothing, and
takes what the database has; then the device is opened for its limits alone, and may be the simulated one of
the same GPU.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance
from tuner.policies.independent import places

from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.size_condition import written_out
from tuner.model.jobs import DeviceIdentity
from tuner.model.plan import Configuration
from tuner.model.records import StoredRun
from tuner.prediction.accuracy import Accuracy, LeftOut
from tuner.prediction.methods import forest_of
from tuner.prediction.model import rounded
from tuner.prediction.training_set import FeatureTable, InputTrials, Sizes, TrainingSet
from tuner.search.candidates import plan_bytes
from tuner.search.request import SearchRequest
from tuner.search.setup import MeasurementSetup, open_setup
from tuner.studies.learning import accuracies, feature_table
from tuner.studies.sweep_progress import TrainingProgress
from tuner.studies.training import (
    LEAST_EVALUATIONS,
    StoredTrials,
    Trainer,
    TrainingRequest,
    draw,
    drawn_sizes,
)

# --- tables, in the forms of the G-ADAPT paper -----------------------------------------------------

METHODS = ("forest", "versions", "g-adapt", "one for all")
Row = Mapping[str, Any]


def show(path: Path, docs: Path | None) -> None:
    """Print the tables of a result, and put them between the marks of a page where one is given.

    Raises:
        SystemExit: the page has no such marks.
    """
    text = tables(json.loads(path.read_text())["kernels"])
    print(text)
    if docs is not None:
        begin, end = "<!-- input-adaptive -->\n", "<!-- end of input-adaptive -->\n"
        page = docs.read_text()
        if begin not in page or end not in page:
            raise SystemExit(f"{docs}: has no lines {begin.strip()} and {end.strip()}")
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        docs.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def tables(kernels: Mapping[str, Row]) -> str:
    """All tables, in Markdown."""
    return "\n\n".join(
        (
            "Each input predicted from the others (Table I):\n\n" + _accuracy(kernels),
            "What the choice costs, by the best of each input (Fig. 2, 3, 5 and 6):\n\n" + _costs(kernels),
            "With the block size alone as tunable, as in the paper:\n\n" + _block_size(kernels),
            "A training that measures a part of the sweeps, judged by the complete ones:\n\n"
            + _guided_table(kernels),
        )
    )


def _accuracy(kernels: Mapping[str, Row]) -> str:
    head = (
        *("kernel", "inputs", "method", "exact", "within 2 %", "5 %", "10 %", "mean", "worst"),
        *("best of 4 within 5 %", "mean"),
    )
    rows = []
    for name, kernel in kernels.items():
        for method in METHODS:
            found = kernel["accuracy"][method]
            rows.append(
                (
                    f"`{name}`" if method == METHODS[0] else "",
                    str(found["inputs"]),
                    method,
                    _percent(found["exact"]),
                    *map(_percent, found["within"]),
                    f"{found['mean']:.3f}",
                    f"{found['worst']:.2f}",
                    _percent(found["within_of_first"][1]),
                    f"{found['mean_of_first']:.3f}",
                )
            )
    return _table(head, rows)


def _costs(kernels: Mapping[str, Row]) -> str:
    head = (
        *("kernel", "configurations", "different bests", "worst: median", "at most", "default: mean"),
        *("at most", "one for all: mean", "at most", "versions: mean", "at most", "one for all by versions"),
        *("runs of hill climbing", "learning"),
    )
    rows = []
    for name, kernel in kernels.items():
        figures = kernel["figures"]
        worst, default, single, versions = (
            [row[column] for row in figures["rows"] if row[column] is not None]
            for column in ("worst", "default", "single", "versions")
        )
        rows.append(
            (
                f"`{name}`",
                str(kernel["configurations"]),
                f"{figures['best_configurations']} of {kernel['inputs']}",
                f"{statistics.median(worst):.2f}",
                f"{max(worst):.1f}",
                *_mean_and_most(default),
                *_mean_and_most(single),
                *_mean_and_most(versions),
                f"{figures['against_single']['versions']:.2f} ×",
                f"{kernel['hill_climbing_runs']:,}",
                f"{kernel['learning_s']:.0f} s",
            )
        )
    return _table(head, rows)


def _mean_and_most(values: Sequence[float]) -> tuple[str, str]:
    return f"{statistics.fmean(values):.2f}", f"{max(values):.1f}"


def _block_size(kernels: Mapping[str, Row]) -> str:
    rows = [
        (
            f"`{name}`",
            str(small["configurations"]),
            str(small["accuracy"]["forest"]["inputs"]),
            *map(_percent, small["accuracy"]["forest"]["within"]),
            f"{small['accuracy']['forest']['mean']:.3f}",
            _percent(small["accuracy"]["g-adapt"]["within"][1]),
            f"{small['accuracy']['g-adapt']['mean']:.3f}",
        )
        for name, kernel in kernels.items()
        if (small := kernel["block_size_only"]) is not None
    ]
    head = (
        *("kernel", "configurations", "inputs", "forest within 2 %", "5 %", "10 %", "mean"),
        *("g-adapt within 5 %", "mean"),
    )
    return _table(head, rows)


def _guided_table(kernels: Mapping[str, Row]) -> str:
    rows = []
    for name, kernel in kernels.items():
        complete = kernel["accuracy"]["forest"]["mean"]
        shown = {round(one["share"], 3): one for one in kernel["guided"]}
        rows += [
            (
                f"`{name}`",
                _percent(one["share"]),
                f"{one['mean']:.3f}",
                f"{complete:.3f}",
                f"{100 * (one['mean'] / complete - 1):+.1f} %",
                f"{one['best_found']:.3f}",
            )
            for one in shown.values()
        ]
    head = ("kernel", "trials", "mean", "of complete sweeps", "loss", "best trial by the best")
    return _table(head, rows)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


# --- the command -----------------------------------------------------------------------------------

INPUTS = {  # ranges, and what bounds the work of one input
    "mvmul": ("H=2^4..2^16, W=2^4..2^16", "H * W", 2**27),
    "matmul-split-k": ("M=2^5..2^12, N=2^5..2^12, K=2^5..2^13", "M * N * K", 2**34),
    "reduction": ("N=2^10..2^27", "N", 2**27),
    "scalar-product": ("P=2^0..2^16, L=2^5..2^20", "P * L", 2**27),
    "transpose-naive": ("H=2^4..2^16, W=2^4..2^16", "H * W", 2**27),
    "transpose": ("H=2^4..2^16, W=2^4..2^16", "H * W", 2**27),
    "convolution-rows": ("H=2^6..2^13, W=2^6..2^13, R=[2, 4, 8, 16]", "H * W", 2**26),
    "convolution-columns": ("H=2^6..2^13, W=2^6..2^13, R=[2, 4, 8, 16]", "H * W", 2**26),
}
BLOCK_SIZE: dict[str, tuple[tuple[str, ...], dict[str, int]]] = {
    # the tunables of a paper-sized space, and values of others; the rest as by default
    "reduction": (("B",), {}),
    "transpose": (("ROWS", "TILE"), {}),
    "matmul-split-k": (("BM", "BN"), {"BK": 16, "TM": 4, "TN": 4}),
    "mvmul": (("B",), {}),
    "transpose-naive": (("BLOCK_X", "BLOCK_Y"), {}),
}
SHARES = (0.1, 0.2, 0.25)  # of the complete sweeps that a guided training measures
FIRST = 6  # one input of so many is looked at without a model


def main() -> None:
    """Measure, analyse, print a line for each kernel, and write the results."""
    options = _options()
    if options.show is not None:
        show(options.show, options.docs)
        return
    results = {}
    with Store(options.database) as store:
        for name in options.kernels or INPUTS:
            if not options.analyse:
                _measure(name, options, store)
            if not options.measure:
                results[name] = _kernel(name, options, store)
                print(json.dumps({name: _short(results[name])}), flush=True)
    if options.measure:
        return
    document = {
        "modelled": any(one["device"]["modelled"] for one in results.values()),
        "provenance": provenance(),
        "count": options.count,
        "kernels": results,
    }
    if options.out is not None:
        if options.out.exists():
            results = json.loads(options.out.read_text())["kernels"] | results
            document["kernels"] = {name: results[name] for name in INPUTS if name in results}
        options.out.write_text(json.dumps(document, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="all of the eight without any")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--count", type=int, default=48, help="inputs of each kernel")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", type=Path, default=Path("input-adaptive.db"))
    parser.add_argument(
        "--window", type=float, metavar="SECONDS", help="of every trial; then none is measured again"
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--analyse", action="store_true", help="measure nothing")
    only.add_argument("--measure", action="store_true", help="analyse nothing")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", type=Path, metavar="FILE", help="print a result; measure nothing")
    parser.add_argument("--docs", type=Path, help="page to put them into, between its marks")
    return parser.parse_args()


def _measure(name: str, options: argparse.Namespace, store: Store) -> None:
    """Measure a kernel completely at the inputs that were not measured yet."""
    catalog = Catalog.load()
    with ExitStack() as stack:
        progress = stack.enter_context(TrainingProgress("time"))
        setup = stack.enter_context(
            open_setup(
                options.device, SearchRequest(objective="time", window_s=options.window), progress.warming
            )
        )
        inputs = _inputs(catalog.kernel(name), options, setup)
        search = {} if options.window is None else {"window_s": options.window}
        request = TrainingRequest(
            name, inputs, policy="exhaustive", method="g-adapt", search=search, confirm=options.window is None
        )
        Trainer(request, setup, catalog, store, progress).measure()


def _kernel(name: str, options: argparse.Namespace, store: Store) -> dict[str, Any]:
    """Analyse the sweeps of a kernel."""
    kernel = Catalog.load().kernel(name)
    with open_setup(options.device, SearchRequest(objective="time"), lambda *_: None) as setup:
        table = feature_table(kernel, setup.device.limits)
    run = _newest_run(store, name)
    measured_on = DeviceIdentity(**run.conditions["device"])
    stored = StoredTrials(store, kernel, measured_on, "time")
    data = stored.all()
    complete = [] if data is None else [one for one in data.inputs if stored.is_done(one.sizes)]
    if not complete:
        raise SystemExit(f"{name}: the database has no input that was measured to the end")
    return {
        "device": asdict(measured_on),
        "measured": run.started_at,
        "window_s": run.conditions["settings"]["window_s"],
        **_analysed(kernel, table, TrainingSet(tuple(complete))),
    }


def _newest_run(store: Store, name: str) -> StoredRun:
    """The newest run of a kernel."""
    for run in store.answered_alone(name):
        return run
    raise SystemExit(f"{name}: the database has no run; measure first, without --analyse")


def _inputs(kernel: KernelFile, options: argparse.Namespace, setup: MeasurementSetup) -> list[Sizes]:
    """The inputs of a kernel, whose arrays fit into a quarter of the free memory."""
    ranges, work, most = INPUTS[kernel.name]
    room = setup.device.free_memory_bytes() // 4
    names = work.split(" * ")

    def allowed(sizes: Sizes) -> bool:
        if math.prod(int(sizes[name]) for name in names) > most:
            return False
        workload = kernel.workload(sizes)
        return plan_bytes(kernel.plan(workload, kernel.default(workload))) <= room

    return draw(drawn_sizes(kernel, ranges), options.count, options.seed, allowed)


def _analysed(kernel: KernelFile, table: FeatureTable, data: TrainingSet) -> dict[str, Any]:
    begun = time.monotonic()
    left_out = accuracies(table, kernel, data, "forest", lambda *_: None)
    seconds = time.monotonic() - begun
    return {
        "inputs": len(data.inputs),
        "trials": data.trials,
        "configurations": len(data.configurations),
        "accuracy": {method: rounded(asdict(Accuracy.of(one))) for method, one in left_out.items()},
        "figures": _figures(kernel, data, left_out),
        "hill_climbing_runs": _hill_climbing_runs(kernel, data),
        "learning_s": seconds,
        "block_size_only": _block_size_only(kernel, table, data),
        "guided": [_guided(table, data, share) for share in SHARES],
    }


def _figures(
    kernel: KernelFile, data: TrainingSet, left_out: Mapping[str, Sequence[LeftOut]]
) -> dict[str, Any]:
    """By input: costs of the worst, the default, the best single and the predicted one, by the best."""
    versions = {tuple(one.sizes.items()): one.slowdown for one in left_out["versions"]}
    rows = []
    for one, forest, single in zip(data.inputs, left_out["forest"], left_out["one for all"], strict=True):
        workload = kernel.workload(one.sizes)
        default = one.place(written_out(kernel.recipe, kernel.default(workload)))
        slowdowns = one.slowdowns
        rows.append(
            {
                "sizes": one.sizes,
                "best_s": one.lowest,
                "worst": float(slowdowns[np.isfinite(slowdowns)].max()),
                "default": None if default is None else float(slowdowns[default]),
                "single": single.slowdown,
                "forest": forest.slowdown,
                "versions": versions.get(tuple(one.sizes.items())),
                "first_four": forest.best_of_first,
            }
        )
    gains = {
        name: [row["single"] / row[name] for row in rows if row[name] is not None]
        for name in ("forest", "versions")
    }
    return {
        "rows": rows,
        "best_configurations": len({_best(one) for one in data.inputs}),
        "against_single": {name: float(np.mean(values)) for name, values in gains.items()},
        "least_against_single": {name: float(min(values)) for name, values in gains.items()},
    }


def _best(one: InputTrials) -> Configuration:
    return one.configurations[int(one.costs.argmin())]


def _hill_climbing_runs(kernel: KernelFile, data: TrainingSet) -> int:
    """Runs of the paper's hill climbing over all inputs, at most: one for the base, K for each raised step.

    Fewer are K once parameters are at their maximum, and what rules forbid.
    """
    steps = sum(len(values) - 1 for values in kernel.tunables.values())
    return len(data.inputs) * (1 + steps * len(kernel.tunables))


def _block_size_only(kernel: KernelFile, table: FeatureTable, data: TrainingSet) -> dict[str, Any] | None:
    """Leave-one-out in a space as small as the paper's."""
    if kernel.name not in BLOCK_SIZE:
        return None
    free, fixed = BLOCK_SIZE[kernel.name]
    inputs = []
    for one in data.inputs:
        default = {**written_out(kernel.recipe, kernel.default(kernel.workload(one.sizes))), **fixed}
        kept = [
            place
            for place, configuration in enumerate(one.configurations)
            if all(configuration.get(name) == value for name, value in default.items() if name not in free)
        ]
        if len(kept) > 1:
            found = tuple(one.configurations[place] for place in kept)
            inputs.append(InputTrials(one.sizes, found, one.costs[kept], one.sigmas[kept]))
    small = TrainingSet(tuple(inputs))
    left_out = accuracies(table, kernel, small, "forest", lambda *_: None)
    return {
        "configurations": len(small.configurations),
        "accuracy": {method: rounded(asdict(Accuracy.of(one))) for method, one in left_out.items()},
    }


def _guided(table: FeatureTable, data: TrainingSet, share: float) -> dict[str, Any]:
    """A training that measures a share of the sweeps as ``tuner train`` does, judged by the complete ones."""
    seen: list[InputTrials] = []
    first = max(4, len(data.inputs) // FIRST)
    for number, one in enumerate(data.inputs):
        count = max(LEAST_EVALUATIONS, round(share * len(one.configurations)))
        scores: Sequence[float] | None = None
        if number >= first:
            forest = forest_of(table, TrainingSet(tuple(seen)))
            scores = [float(score) for score in forest.scores(one.sizes, one.configurations)]
        else:
            count *= 2
        chosen = places(len(one.configurations), scores, count, number)
        found = tuple(one.configurations[place] for place in chosen)
        seen.append(InputTrials(one.sizes, found, one.costs[chosen], one.sigmas[chosen]))
    partial = TrainingSet(tuple(one for one in seen if np.isfinite(one.costs).any()))
    slowdowns = [
        float(one.slowdowns[_first(forest_of(table, partial.without(one)).scores, one)])
        for one in data.inputs
    ]
    return {
        "share": partial.trials / data.trials,
        "best_found": float(
            np.mean([one.lowest / two.lowest for one, two in zip(seen, data.inputs, strict=True)])
        ),
        "mean": float(np.mean(slowdowns)),
        "within_10": float(np.mean([value <= 1.1 for value in slowdowns])),
    }


def _first(scores: Callable[..., Any], one: InputTrials) -> int:
    return int(scores(one.sizes, one.configurations).argmin())


def _short(result: Mapping[str, Any]) -> dict[str, Any]:
    """What is printed of a kernel."""
    return {
        "inputs": result["inputs"],
        "trials": result["trials"],
        "accuracy": {
            name: (one["within"], one["mean"], one["within_of_first"][1], one["mean_of_first"])
            for name, one in result["accuracy"].items()
        },
        "against_single": result["figures"]["against_single"],
        "least_against_single": result["figures"]["least_against_single"],
        "guided": result["guided"],
    }


if __name__ == "__main__":
    main()
