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
import itertools
import json
import math
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from application_recording import (
    LEAST_WINDOW_S,
    analysed,
    record,
    recorded_order,
    recorded_solo,
    show_analysis,
)
from application_sets import (
    KERNELS,
    PRIORITIES,
    SPACES,
    block_of,
    catalog_of,
    chosen_sets,
    recorded_space,
    spec_of,
    usual_sizes,
)
from provenance import provenance

from tuner.cli.main import orderly_stop
from tuner.database.runs import Store
from tuner.devices.kinds import PREFIX
from tuner.devices.replay import ReplayDevice
from tuner.devices.simulated.device import SimulatedDevice
from tuner.devices.simulated.time_model import RoundModel
from tuner.kernel_files.catalog import Catalog
from tuner.measurement.paired import PairedRepeats
from tuner.model import registry
from tuner.model.errors import CompileError, InputError, RunInterrupted, TunerError
from tuner.model.objective import COVERAGE, Objective
from tuner.model.plan import Configuration, Plan, Resources
from tuner.model.records import RunStatus
from tuner.model.trial import Measurement, Status, Trial
from tuner.recordings.files import open_recording
from tuner.report.progress import RunProgress
from tuner.search.candidates import fit_batches, prepare
from tuner.search.plan import plan_search
from tuner.search.request import SearchRequest
from tuner.search.session import Session
from tuner.search.setup import MeasurementSetup, open_setup
from tuner.search.together import MOST_APART
from tuner.search.tuning import tune_alone
from tuner.space.search_view import Policy, Search

# --- the command -----------------------------------------------------------------------------------

# --- the rows of Table IV: each set of applications tuned for time and for energy, and what that brings

OBJECTIVES = ("time", "energy")
SEARCHED_CLOCKS = ("sim:k20c", "sim:k40c")  # those of the paper
SOLO_TRIALS = 40
TURNS = ((0, 1), (1, 0), (0, 1))  # of the answer for energy and that for time
SMALL = 200  # spaces of so many trials are in the document whole
Row = dict[str, Any]


class Watched:
    """A policy that remembers which trials it asked for.

    Args:
        policy: the policy.

    Attributes:
        asked: trials that were measured for it, each once, in their order.
        found: what it returned.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.asked: dict[Trial, None] = {}
        self.found: Trial | None = None

    def __call__(self, search: Search) -> Generator[list[Trial], list[Measurement], Trial | None]:
        """Run the policy."""
        generator = self._policy(search)
        try:
            batch = next(generator)
            while True:
                measured = yield batch
                ran = zip(batch, measured, strict=True)
                self.asked |= dict.fromkeys(trial for trial, one in ran if one.status is not Status.PRUNED)
                batch = generator.send(measured)
        except StopIteration as end:
            self.found = end.value
            return self.found
        finally:
            generator.close()


@dataclass
class Bench:
    """What all runs of a table share, and what they have found.

    Attributes:
        options: of the command.
        sizes: name of the sizes.
        catalog: with the restricted spaces.
        store: database of the runs.
        answers: of the objective time, by set.
        rows: of the table.
    """

    options: argparse.Namespace
    sizes: str
    catalog: Catalog
    store: Store
    answers: dict[tuple[str, ...], Trial] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    @property
    def device(self) -> str:
        """The device, as given."""
        return str(self.options.device)

    @property
    def recorded(self) -> bool:
        """Whether nothing runs."""
        return self.device.startswith(PREFIX)

    def specs(self, names: Sequence[str]) -> tuple[str, ...]:
        """The workloads of a set; of a recording those that it has, at its own sizes."""
        if self.recorded:
            return recorded_order(open_recording(self.device.removeprefix(PREFIX)), names)[1]
        return tuple(spec_of(name, self.sizes) for name in names)

    def request(self, names: Sequence[str], objective: str) -> SearchRequest:
        """What one search is asked for."""
        options = self.options
        searched = self.device in SEARCHED_CLOCKS and objective == "energy"
        return SearchRequest(
            workloads=self.specs(names),
            objective=objective,
            policy=options.policy,
            clocks="all" if searched else "off",
            seed=options.seed,
            window_s=None if self.recorded else options.window,
            min_occupancy=options.min_occupancy,
            energy_precision=options.energy_precision,
            time_limit_s=options.time_limit,
            solo_bests=SOLO_TRIALS if len(names) > 1 and not self.recorded else None,
            stream_priorities=PRIORITIES[options.space] if len(names) > 1 and not self.recorded else 1,
        )


def fill_table(bench: Bench, sets: Sequence[tuple[str, ...]]) -> None:
    """All rows, written as they come."""
    present = _recorded_sets(bench, sets) if bench.recorded else sets
    for objective in OBJECTIVES:
        for group in [[one] for one in present] if bench.recorded else [present]:
            _tune_sets(bench, group, objective)
    apart = _apart(bench.rows)
    if apart is not None and apart[2] > MOST_APART:
        longest, shortest, ratio = apart
        print(f"{longest} takes {ratio:.3g} times as long alone as {shortest}: it hides those it runs with")


def _apart(rows: Sequence[Row]) -> tuple[str, str, float] | None:
    """Which application takes longest alone and which shortest, and their ratio; None of fewer than two."""
    alone = {
        row["set"][0]: row["time_s"]
        for row in rows
        if len(row["set"]) == 1 and row["objective"] == "time" and "error" not in row
    }
    if len(alone) < 2:
        return None
    shortest, longest = min(alone, key=alone.__getitem__), max(alone, key=alone.__getitem__)
    return longest, shortest, alone[longest] / alone[shortest]


def _recorded_sets(bench: Bench, sets: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The sets that a recording has, with the applications in its order."""
    recording = open_recording(bench.device.removeprefix(PREFIX))
    known = [sorted(one.partition(":")[0] for one in workloads) for workloads in recording.names]
    found = [
        recorded_order(recording, names)[0]
        for names in sets
        if sorted(KERNELS[name] for name in names) in known
    ]
    left_out = [" + ".join(names) for names in sets if sorted(KERNELS[name] for name in names) not in known]
    if left_out:
        print(f"not in {recording.path}: {'; '.join(left_out)}", file=sys.stderr)
    if not found:
        raise InputError(f"{bench.device}: none of the sets was recorded")
    return found


def _tune_sets(bench: Bench, sets: Sequence[tuple[str, ...]], objective: str) -> None:
    """Tune the sets for one objective, on one open device."""
    first = bench.request(sets[0], objective)
    first.check()
    with RunProgress(objective) as progress, open_setup(bench.device, first, progress.warming) as setup:
        for names in sets:
            row = _row(bench, setup, names, objective, progress)
            bench.rows.append(row)
            write(bench.options.out, _document(bench))  # a call that is ended keeps its rows
            print(_line(row), flush=True)
            if row.get("status") == RunStatus.INTERRUPTED.value:
                raise RunInterrupted("interrupted: what was found is in the document")


def _row(
    bench: Bench, setup: MeasurementSetup, names: tuple[str, ...], objective: str, progress: RunProgress
) -> Row:
    request = bench.request(names, objective)
    resume = bench.options.database is not None
    watched = Watched(registry.load("policy", request.policy))
    plan = plan_search(request, bench.catalog, setup).following(request.policy, {}, watched)
    if request.solo_bests is not None:
        tune_alone(plan, bench.catalog, setup, bench.store, progress)
    outcome = Session(plan, setup, bench.store, progress).run(resume=resume)
    row: Row = {
        "set": list(names),
        "objective": objective,
        "device": bench.device,
        "space": bench.options.space,
    }
    document = outcome.document
    if outcome.answer is None:
        status = document["status"]
        return row | {"error": outcome.no_answer, "trials": len(watched.asked), "status": status}
    best, workloads = document["best"], [one["name"] for one in document["workloads"]]
    answer = trial_of(best, workloads)
    tried = [trial_of(one, workloads) for one in document["trials"]]
    together = document["solo_bests"]
    solo = None if together is None else trial_of(together, workloads)
    row |= {
        "workloads": workloads,
        "modelled": document["modelled"],
        **_cost(best),
        "configurations": [best["configurations"][name] for name in workloads],
        "blocks": [
            block_of(name, bench.options.space, best["configurations"][workload])
            for name, workload in zip(names, workloads, strict=True)
        ],
        "trials": len(watched.asked),
        "measured": document["space"]["measured"],
        "whole": document["space"]["size"],
        "failed": document["space"]["failed"],
        "solo_bests": document["against_solo_bests"],
        "no_solo_bests": document["no_solo_bests"],
        "answer_is_solo_bests": solo == answer,
        "solo_bests_trial": None if solo is None else tried.index(solo),
        "one_after_another": document["one_after_another"],
        "status": document["status"],
        "own_times_s": [one["best"]["time_s"] for one in document["workloads"]],
        "tried": [
            _cost(one) | {"configurations": [one["configurations"][n] for n in workloads]}
            for one in document["trials"]
        ],
        "windows_s": document["wall"]["windows_s"],
        "wall_s": document["wall_s"],
        "notices": document["notices"],
    }
    clocks = bool(document["space"]["clocks_mhz"])
    costs = truth(bench.device, bench.specs(names), bench.catalog, clocks=clocks)
    row["optimum"] = judged(costs, answer, objective, len(names))
    row["policy_above"] = None
    if watched.found is not None and row["optimum"] is not None:
        row["policy_above"] = judged(costs, watched.found, objective, len(names))["above"]
    if costs and len(costs) <= SMALL:
        row["every"] = every_row(costs)
    if bench.recorded and len(names) > 1:
        row |= recorded_solo(open_recording(bench.device.removeprefix(PREFIX)), workloads, answer, objective)
    if objective == "time":
        bench.answers[names] = answer
    elif names in bench.answers:
        row["against_time"] = _against_time(
            bench, setup, names, answer, clocks=document["space"]["clocks_mhz"]
        )
    return row


def _cost(record: Mapping[str, Any]) -> Row:
    """Time and joules of a trial with halves of their 95 % intervals."""
    unsure_s, unsure_j = record["time_s_uncertainty"], record["energy_j_uncertainty"]
    return {
        "clock_mhz": record["clock_mhz"],
        "clock_seen_mhz": record["clock_seen_mhz"],
        "status": record["status"],
        "time_s": record["time_s"],
        "time_s_interval": None if unsure_s is None else COVERAGE * unsure_s,
        "energy_j": record["energy_j"],
        "energy_j_interval": None if unsure_j is None else COVERAGE * unsure_j,
        "flags": record["flags"],
    }


def _against_time(
    bench: Bench, setup: MeasurementSetup, names: Sequence[str], answer: Trial, *, clocks: Sequence[int]
) -> Row | None:
    """Slowdown and saving of the answer for energy against that for time, measured in turn."""
    fastest = bench.answers[tuple(names)]
    if clocks:  # the highest is what a search for time runs at
        fastest = Trial(fastest.configurations, clocks[0])
    if fastest == answer:
        return {
            "slowdown": 0.0,
            "slowdown_interval": 0.0,
            "saving": 0.0,
            "saving_interval": 0.0,
            "same": True,
        }
    both = (fastest, answer)
    plans = [[] if bench.recorded else _plans(bench, names, trial) for trial in both]
    turns = TURNS[:1] if bench.recorded else TURNS
    paired = PairedRepeats(
        tuple({both[i]: setup.measurer.measure(both[i], plans[i]) for i in turn} for turn in turns)
    )
    slower = paired.ratio(answer, fastest, Objective("time"))
    dearer = paired.ratio(answer, fastest, Objective("energy"))
    if slower is None or dearer is None:
        return None
    return {
        "slowdown": slower.value - 1,
        "slowdown_interval": slower.interval,
        "saving": 1 - dearer.value,
        "saving_interval": dearer.interval,
        "same": False,
    }


def _plans(bench: Bench, names: Sequence[str], trial: Trial) -> list[Any]:
    workloads = bench.catalog.workloads(list(bench.specs(names)))
    return [
        bench.catalog.kernel(workload.kernel).plan(workload, configuration)
        for workload, configuration in zip(workloads, trial.configurations, strict=True)
    ]


def _document(bench: Bench) -> Row:
    return {
        "provenance": provenance(),
        "device": bench.device,
        "space": bench.options.space,
        "sizes": bench.sizes,
        "policy": bench.options.policy,
        "min_occupancy": bench.options.min_occupancy,
        "seed": bench.options.seed,
        "modelled": any(row.get("modelled") for row in bench.rows),
        "rows": bench.rows,
    }


def _line(row: Row) -> str:
    head = f"{' + '.join(row['set'])}, {row['objective']}:"
    if "error" in row:
        return f"{head} {row['error']}"
    clock = "" if row["clock_mhz"] is None else f" at {row['clock_mhz']} MHz"
    parts = [f"{' | '.join(row['blocks'])}{clock}", f"{row['trials']} ({row['whole']:,}) trials"]
    parts.append(f"{row['time_s'] * 1e3:.4g} ms")
    if row["energy_j"] is not None:
        parts.append(f"{row['energy_j']:.4g} ± {row['energy_j_interval']:.2g} J")
    if row.get("against_time"):
        one = row["against_time"]
        parts.append(f"slowdown {_percent(one, 'slowdown')}, saving {_percent(one, 'saving')}")
    if row["solo_bests"] is not None:
        one = row["solo_bests"]
        what = "slowdown" if row["objective"] == "time" or "energy_saving" not in one else "energy_saving"
        parts.append(f"{what} against solo bests together {_percent(one, what)}")
    if row["optimum"] is not None:
        parts.append(f"{row['optimum']['above']:.2%} above the least of {row['optimum']['trials']:,}")
    return f"{head} {', '.join(parts)}{' (modelled)' if row['modelled'] else ''}"


def _percent(record: Mapping[str, Any], key: str) -> str:
    interval = record.get(f"{key}_interval") or 0.0
    return f"{100 * record[key]:.1f} ± {100 * interval:.1f} %"


def write(path: Path | None, document: Row) -> None:
    """Write a document as JSON where a file was asked for."""
    if path is not None:
        path.write_text(json.dumps(document, indent=1) + "\n")


# --- what every trial of a set of applications costs: by the model without noise, or as it was recorded

Costs = Mapping[Trial, tuple[float, float]]
"""Seconds and joules of a round; not a number where no joules are known."""


def truth(device: str, specs: Sequence[str], catalog: Catalog, *, clocks: bool) -> Costs:
    """The costs of all trials; none on a GPU, where nobody knows them.

    Args:
        device: as a command takes it.
        specs: workloads that run together.
        catalog: with the spaces.
        clocks: at every clock of a modelled device, not only at the highest.
    """
    if device.startswith("replay:"):
        return _recorded(ReplayDevice(device, specs))
    if device.startswith("sim:"):
        return _modelled(SimulatedDevice(device), specs, catalog, clocks=clocks)
    return {}


def _recorded(device: ReplayDevice) -> Costs:
    time, energy = Objective("time"), Objective("energy")
    found = {trial: (time.cost(one), energy.known(one)) for trial, one in device.space.trials.items()}
    return {trial: costs for trial, costs in found.items() if math.isfinite(costs[0])}


def _modelled(device: SimulatedDevice, specs: Sequence[str], catalog: Catalog, *, clocks: bool) -> Costs:
    model = RoundModel(device.gpu)
    pairs = [(catalog.kernel(workload.kernel), workload) for workload in catalog.workloads(list(specs))]
    fitted, _ = fit_batches(pairs, device.free_memory_bytes())
    lists = []
    for item in prepare([(kernel, one) for (kernel, _), one in zip(pairs, fitted, strict=True)], device):
        plans = [item.plans[one.configuration] for one in item.candidates]
        known = zip(plans, device.resources(plans), strict=True)
        lists.append([plan for plan, resources in known if _runs(model, plan, resources)])
    every: dict[Trial, tuple[float, float]] = {}
    for clock_mhz in device.gpu.clocks_mhz if clocks else device.gpu.clocks_mhz[:1]:
        for plans in itertools.product(*lists):
            one = model.round(plans, clock_mhz)
            time_s = max(one.ends_s)
            trial = Trial(tuple(plan.configuration for plan in plans), clock_mhz if clocks else None)
            every[trial] = time_s, one.watts * time_s
    return every


def _runs(model: RoundModel, plan: Plan, resources: tuple[Resources, ...] | CompileError) -> bool:
    return not isinstance(resources, CompileError) and not model.misfit(plan, resources)


def judged(costs: Costs, answer: Trial, objective: str, workloads: int) -> dict[str, Any] | None:
    """How far an answer is from the least cost; None where that is not known.

    Args:
        costs: of all trials.
        answer: one of them.
        objective: ``time`` or ``energy``.
        workloads: so many run together.
    """
    place = 0 if objective == "time" else 1
    known = {trial: both for trial, both in costs.items() if math.isfinite(both[place])}
    if answer not in known:
        return None
    least = min(known, key=lambda trial: known[trial][place])
    return {
        "trials": len(known),
        "above": known[answer][place] / known[least][place] - 1,
        "configurations": [dict(least.configurations[lane]) for lane in range(workloads)],
        "clock_mhz": least.clock_mhz,
        "time_s": known[least][0],
        "energy_j": known[least][1] if math.isfinite(known[least][1]) else None,
        "median_above": sorted(both[place] for both in known.values())[len(known) // 2] / known[least][place]
        - 1,
    }


def every_row(costs: Costs) -> list[dict[str, Any]]:
    """All costs as JSON has them, for pictures of a small space."""
    return [
        {
            "configurations": [dict(one) for one in trial.configurations],
            "clock_mhz": trial.clock_mhz,
            "time_s": time_s,
            "energy_j": joules if math.isfinite(joules) else None,
        }
        for trial, (time_s, joules) in costs.items()
    ]


def trial_of(record: Mapping[str, Any], names: Sequence[str]) -> Trial:
    """The trial of a document, its configurations by the names of the workloads."""
    chosen = tuple(Configuration(record["configurations"][name]) for name in names)
    return Trial(chosen, record["clock_mhz"], record.get("power_limit_w"))


# --- the command -----------------------------------------------------------------------------------


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
