"""``--clocks auto`` against the full sweep of clocks: what answers lose, and how many clocks are measured.

On modelled GPUs the truth is the model without noise, at every clock: of the answer's own configurations
(what the choice of the clock loses), and for single workloads of every configuration (what the whole search
loses).
``--clocks all`` is run beside it. Recordings with clocks are those of a modelled exhaustive run, exported by
``tuner db export``, and one of a stated curve: a time that is the same from 1,400 MHz on. All numbers are
modelled: they tell how the search does on such curves, not what a GPU would save.

    python benchmarks/clock_search.py --out benchmarks/results/clock-search-modelled.json
"""

import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from provenance import command_line, provenance, save

from tuner.devices.simulated.device import SimulatedDevice
from tuner.devices.simulated.time_model import RoundModel
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import CompileError
from tuner.model.plan import Configuration, Plan, Resources
from tuner.search.candidates import prepare

DEVICES = ("h200", "h100", "a100", "v100", "jetson-orin", "jetson-tx1", "k40c")
WORKLOADS = (("scan-lf:N=1024",), ("tridiag-wm:N=256",), ("scan-lf:N=1024", "fft:N=256"))
GOALS = (("energy", None), ("edp", None), ("energy", 0.05))
RECORDED = (("k40c", "all"), ("v100", "135:1530:45"), ("h200", "345:1980:60"))
_EXPONENT = {"energy": 0, "edp": 1}


class Truth:
    """The model of a device without noise.

    Args:
        device: its short name.
        specs: workloads that run together.
    """

    def __init__(self, device: str, specs: Sequence[str]) -> None:
        simulated = SimulatedDevice(device)
        self._model = RoundModel(simulated.gpu)
        self.clocks_mhz = simulated.gpu.clocks_mhz
        catalog = Catalog.load([])
        pairs = [(catalog.kernel(w.kernel), w) for w in catalog.workloads(list(specs))]
        self._plans: list[list[Plan]] = []
        for item in prepare(pairs, simulated, None):
            plans = [item.plans[one.configuration] for one in item.candidates]
            found = zip(plans, simulated.resources(plans), strict=True)
            self._plans.append([plan for plan, one in found if self._runs(plan, one)])

    def _runs(self, plan: Plan, resources: tuple[Resources, ...] | CompileError) -> bool:
        return not isinstance(resources, CompileError) and not self._model.misfit(plan, resources)

    def at(self, chosen: Sequence[Configuration]) -> dict[int, tuple[float, float]]:
        """Seconds and joules of a round at every clock."""
        plans = [
            next(plan for plan in plans if plan.configuration == one)
            for plans, one in zip(self._plans, chosen, strict=True)
        ]
        return self._line(plans)

    def every(self) -> Iterator[dict[int, tuple[float, float]]]:
        """The same of every configuration of a single workload."""
        (plans,) = self._plans
        return (self._line([plan]) for plan in plans)

    def _line(self, plans: Sequence[Plan]) -> dict[int, tuple[float, float]]:
        found = {}
        for mhz in self.clocks_mhz:
            one = self._model.round(plans, mhz)
            found[mhz] = max(one.ends_s), one.watts * max(one.ends_s)
        return found


def main() -> None:
    """Run everything, print and write the comparison."""
    parser = command_line(__doc__)
    parser.add_argument("--devices", nargs="*", default=DEVICES)
    parser.add_argument("--workloads", type=int, default=len(WORKLOADS), help="So many of the three.")
    options = parser.parse_args()
    rows = [
        row
        for device in options.devices
        for specs in WORKLOADS[: options.workloads]
        for row in modelled(device, specs)
    ]
    recordings = [recorded(device, clocks) for device, clocks in RECORDED if device in options.devices]
    flat = stated()
    result = {
        "provenance": provenance(),
        "modelled": True,
        "summary": summary(rows),
        "rows": rows,
        "recordings": recordings,
        "flat": flat,
    }
    print(json.dumps({key: result[key] for key in ("summary", "recordings", "flat")}, indent=1))
    save(options.out, result)


def modelled(device: str, specs: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows of one modelled GPU and some workloads."""
    truth = Truth(device, specs)
    lines = list(truth.every()) if len(specs) == 1 else []
    for objective, slowdown in GOALS:
        for clocks in ("auto", "all"):
            found = tuned(f"sim:{device}", specs, objective, slowdown, clocks)
            best = found["best"]
            chosen = [Configuration(best["configurations"][spec]) for spec in best["configurations"]]
            line = truth.at(chosen)
            fastest_s = min(time_s for one in (lines or [line]) for time_s, _ in one.values())
            allowed_s = math.inf if slowdown is None else (1 + slowdown) * fastest_s
            allowed_s = max(allowed_s, line[best["clock_mhz"]][0])  # as far as noise has let it
            cost = _cost(objective, *line[best["clock_mhz"]])
            row = {
                "device": f"sim:{device}",
                "workloads": list(specs),
                "objective": objective,
                "max_slowdown": slowdown,
                "clocks": clocks,
                "supported": len(truth.clocks_mhz),
                "clock_mhz": best["clock_mhz"],
                "clock_loss": cost / _lowest(objective, [line], allowed_s) - 1,
                "loss": cost / _lowest(objective, lines, allowed_s) - 1 if lines else None,
                **counted(found),
            }
            show(row)
            yield row


def _lowest(objective: str, lines: Sequence[dict[int, tuple[float, float]]], allowed_s: float) -> float:
    return min(
        _cost(objective, time_s, joules)
        for line in lines
        for time_s, joules in line.values()
        if time_s <= allowed_s
    )


def _cost(objective: str, time_s: float, joules: float) -> float:
    return joules * time_s ** _EXPONENT[objective]


def recorded(device: str, clocks: str) -> dict[str, Any]:
    """A recording with clocks of a modelled GPU: auto against the lowest true joules of its clocks."""
    with tempfile.TemporaryDirectory() as folder:
        database, file = Path(folder) / "tuner.db", Path(folder) / "recorded.zip"
        run(
            *("run", *WORKLOADS[0], "--device", f"sim:{device}", "--objective", "energy", "--clocks", clocks),
            *("--policy", "exhaustive", "--window", "0.5", "--database", database),
        )
        run("db", "export", "--run", "1", "--output", file, "--database", database)
        found = tuned(f"replay:{file}", WORKLOADS[0], "energy", None, "auto")
    truth, best, recorded_mhz = Truth(device, WORKLOADS[0]), found["best"], found["space"]["clocks_mhz"]
    line = truth.at([Configuration(one) for one in best["configurations"].values()])
    joules = line[best["clock_mhz"]][1]
    return {
        "recording": f"sim:{device}, --clocks {clocks}",
        "supported": len(recorded_mhz),
        "trials_recorded": found["space"]["pruned"],
        "clock_mhz": best["clock_mhz"],
        "clock_loss": joules / min(line[mhz][1] for mhz in recorded_mhz) - 1,
        "loss": joules / min(one[mhz][1] for one in truth.every() for mhz in recorded_mhz) - 1,
        **counted(found),
    }


def stated() -> dict[str, Any]:
    """The clocks of a stated curve: 304 µs from 1,400 MHz on, as ``tridiag-wm`` on an H200, and 1/f below."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from clock_lines import FLAT, flat_recording  # noqa: PLC0415 - of the tests

    with tempfile.TemporaryDirectory() as folder:
        file = flat_recording(Path(folder) / "flat.zip")
        found = tuned(f"replay:{file}", (), "energy", 0.02, "auto")
    best = found["best"]
    lowest = min(FLAT.joules(mhz) for mhz in FLAT.clocks_mhz if FLAT.time_s(mhz) <= 1.02 * FLAT.time_s(1980))
    return {
        "supported": len(FLAT.clocks_mhz),
        "clock_mhz": best["clock_mhz"],
        "time_s": best["time_s"],
        "clock_loss": FLAT.joules(best["clock_mhz"]) / lowest - 1,
        **counted(found),
    }


def tuned(
    device: str,
    specs: Sequence[str],
    objective: str,
    slowdown: float | None,
    clocks: str,
) -> dict[str, Any]:
    """The document of one ``tuner run``."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.json"
        limit = () if slowdown is None else ("--max-slowdown", str(slowdown))
        begun = time.monotonic()
        run(
            *("run", *specs, "--device", device, "--objective", objective, *limit, "--clocks", clocks),
            *("--database", Path(folder) / "tuner.db", "--json", file),
        )
        document: dict[str, Any] = json.loads(file.read_text())
        return {**document, "took_s": time.monotonic() - begun}


def run(*words: object) -> None:
    """One command of the command line, in this process.

    Raises:
        RuntimeError: it failed.
    """
    from tuner.cli.main import main as tuner  # noqa: PLC0415 - takes a moment

    said = StringIO()
    before, sys.argv = sys.argv, ["tuner", *map(str, words)]
    try:
        with redirect_stdout(said), redirect_stderr(said):
            tuner()
    except SystemExit as end:
        if end.code:
            raise RuntimeError(said.getvalue()) from end
    finally:
        sys.argv = before


def counted(found: dict[str, Any]) -> dict[str, Any]:
    """How much a run measured."""
    best = found["best"]["configurations"]
    return {
        "trials": len(found["trials"]),
        "clocks_measured": len({one["clock_mhz"] for one in found["trials"]}),
        "clocks_of_answer": len(
            {one["clock_mhz"] for one in found["trials"] if one["configurations"] == best}
        ),
        "windows_s": found["wall"]["windows_s"],
        "took_s": found["took_s"],
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians and worst cases of auto and of all."""
    found: dict[str, Any] = {}
    for clocks in ("auto", "all"):
        chosen = [row for row in rows if row["clocks"] == clocks]
        whole = [row["loss"] for row in chosen if row["loss"] is not None]
        if not chosen or not whole:
            continue
        found[clocks] = {
            "runs": len(chosen),
            "clock_loss_median": statistics.median(row["clock_loss"] for row in chosen),
            "clock_loss_worst": max(row["clock_loss"] for row in chosen),
            "loss_median": statistics.median(whole),
            "loss_worst": max(whole),
            "trials_median": statistics.median(row["trials"] for row in chosen),
            "clocks_measured_median": statistics.median(row["clocks_measured"] for row in chosen),
            "clocks_of_answer_median": statistics.median(row["clocks_of_answer"] for row in chosen),
        }
    return found


def show(row: dict[str, Any]) -> None:
    """One line of a row."""
    within = "" if row["max_slowdown"] is None else f" within {row['max_slowdown']:.0%}"
    whole = "" if row["loss"] is None else f", of all {row['loss']:+.2%}"
    print(
        f"{row['device']} {' + '.join(row['workloads'])} {row['objective']}{within},"
        f" --clocks {row['clocks']}:"
        f" {row['clock_mhz']} MHz, {row['clock_loss']:+.2%} of its clocks{whole}, {row['trials']} trials,"
        f" {row['clocks_measured']} clocks, {row['clocks_of_answer']} of the answer, {row['took_s']:.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    main()
