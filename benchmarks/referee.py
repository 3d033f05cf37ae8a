"""Are the joules of answers right, and do their intervals cover? Judged by a counter log of its own.

Each workload is tuned for energy by ``tuner run`` with ``--trials`` trials, on a GPU that is *idle*: it has
cooled to within ``COOL_K`` of the coolest that was seen, or for ``COOL_S``. Then this process runs the answer
(A) and the default (B) again, in the order A B B A, ``--seconds`` each, while another process logs NVML's
energy counter: it polls the counter, and keeps each new value with the times of the reads around it. The mean
power of a phase is the growth of the counter between the first tick and the last of the phase, without its
first ``SETTLE_S``. Joules of a round are power times the mean time of a round in the phase. Neither the meter
nor any other code of ``tuner.power`` takes part in that.

Stated are the joules of answers and defaults by ``tuner`` and by the log, whether the log's lie in the stated
interval and how wide that is, the same for the savings, and temperatures: when the run began, as it states
them, and behind the log. The log's own uncertainty, from how its two phases differ and from the dates of its
ticks, stands beside it and widens nothing.

On a GPU, clocks as found, nothing is set. A workload takes about a minute, twenty of them 20 minutes;
``--part 1/3`` does a third of them, in 7 minutes, and ``--join`` puts results together:

    python benchmarks/referee.py [--part 1/3] [--out benchmarks/results/referee-idle-h200.json]

On a simulated device the truth is its power curve, and every number is modelled: ``--device sim:h200``. It
does not warm.
"""

import argparse
import json
import math
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from provenance import command_line, provenance
from tuner.power.nvml.library import Thermometer

from tuner.devices.base import Device
from tuner.devices.choice import open_device
from tuner.kernel_files.catalog import Catalog
from tuner.model.plan import Configuration, Plan
from tuner.model.trial import Status

# --- a log of NVML's energy counter, made by a process of its own; no code of the meter is in it

POLL_S = 0.002


class Tick(NamedTuple):
    """A new value of the counter: when it was surely not there yet, when it was, and the value."""

    before_s: float
    after_s: float
    joules: float

    @property
    def time_s(self) -> float:
        """The middle of the two."""
        return (self.before_s + self.after_s) / 2.0


def log_counter(uuid: str, connection: Connection) -> None:
    """Poll a GPU's counter until told to stop, and hand over its ticks; runs in a process of its own."""
    import pynvml  # noqa: PLC0415 - not on a machine without a GPU

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    ticks: list[Tick] = []
    asked_s, last = time.monotonic(), pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    connection.send("ready")
    while not connection.poll():
        now_s = time.monotonic()
        value = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        if value != last:
            ticks.append(Tick(asked_s, time.monotonic(), value / 1e3))
            last = value
        asked_s = now_s
        time.sleep(POLL_S)
    connection.send(ticks)


@contextmanager
def counter_log(uuid: str) -> Iterator[Callable[[], list[Tick]]]:
    """A log that runs; calling what is handed out ends it and gives its ticks."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=log_counter, args=(uuid, there), daemon=True)
    process.start()
    there.close()  # so that the end of the process is seen
    here.recv()

    def end() -> list[Tick]:
        here.send("stop")
        ticks: list[Tick] = here.recv()
        return ticks

    try:
        yield end
    finally:
        process.join(1.0)
        process.kill()


def power_of(ticks: Sequence[Tick], start_s: float, end_s: float) -> tuple[float, float]:
    """Mean power between the first tick and the last of a time, and its uncertainty by their dates."""
    inside = [tick for tick in ticks if start_s <= tick.before_s and tick.after_s <= end_s]
    first, last = inside[0], inside[-1]
    span_s = last.time_s - first.time_s
    watts = (last.joules - first.joules) / span_s
    dates_s = math.hypot(*((tick.after_s - tick.before_s) / math.sqrt(12.0) for tick in (first, last)))
    return watts, watts * dates_s / span_s


# --- the command -----------------------------------------------------------------------------------

EXAMPLES = Path(__file__).parent.parent / "examples"
WORKLOADS = (  # no transforms: at the power limit, as theirs, a workload takes minutes
    *("scan-lf:N=64", "scan-lf:N=128", "scan-lf:N=256", "scan-lf:N=512", "scan-lf:N=1024", "scan-lf:N=2048"),
    *("scan-lf:N=4096", "scan-ks:N=256", "scan-ks:N=512", "scan-ks:N=1024", "scan-ks:N=2048"),
    *("tridiag-lf:N=256", "tridiag-lf:N=512", "tridiag-cr:N=1024", "tridiag-wm:N=512", "tridiag-wm:N=2048"),
    *("vector-add", "reduction", "transpose", "stencil"),  # of the examples, at their first size
)
ORDER = "ABBA"
WARM_S = 2.0
COOL_K, COOL_S = 4.0, 25.0
SETTLE_S = 0.6  # of a phase: power follows the load within some 0.1 s, and the counter ticks every 0.1 s
TUNING = ("--objective", "energy", "--policy", "random", "--budget")
_RUN = 'from tuner.cli.main import main; main(prog_name="tuner")'


class Phase(NamedTuple):
    """Power and time of one phase."""

    start_s: float
    end_s: float
    rounds: int
    watts: float
    sigma_w: float

    @property
    def joules(self) -> float:
        """Of a round."""
        return self.watts * (self.end_s - self.start_s) / self.rounds


# --- the load ------------------------------------------------------------------------------------


def phases(device: Device, plans: dict[str, Plan], seconds: float) -> list[tuple[str, Phase]]:
    """Run the plans in their order, each for so many seconds, beside a log of the counter."""
    if device.identity.modelled:
        return [(name, simulated_phase(device, plans[name], seconds)) for name in ORDER]
    with counter_log(device.identity.uuid) as end:
        device.run([plans[ORDER[0]]], WARM_S)  # what the GPU was before is not what it is now
        records = [(name, device.run([plans[name]], seconds)) for name in ORDER]
        time.sleep(2 * POLL_S)
        ticks = end()
    found = []
    for name, record in records:
        if any(result.status is not Status.OK for result in record.results):
            raise SystemExit(f"{plans[name]}: {record.results}")
        power = power_of(ticks, record.start_s + SETTLE_S, record.end_s)
        found.append((name, Phase(record.start_s, record.end_s, record.rounds, *power)))
    return found


def simulated_phase(device: Any, plan: Plan, seconds: float) -> Phase:
    """A phase on a simulated device, whose power curve is known."""
    record = device.run([plan], seconds)
    pieces = device.power_segments(record.start_s + SETTLE_S)
    joules = math.fsum(
        (min(end, record.end_s) - start) * watts for start, end, watts in pieces if start < record.end_s
    )
    return Phase(
        record.start_s, record.end_s, record.rounds, joules / (record.end_s - record.start_s - SETTLE_S), 0.0
    )


def catalog() -> Catalog:
    """All kernels that ``WORKLOADS`` names."""
    return Catalog.load(extra_files=kernel_files())


def kernel_files() -> list[Path]:
    """The examples."""
    return [EXAMPLES / name / "kernel.toml" for name in WORKLOADS if ":" not in name]


# --- one answer ----------------------------------------------------------------------------------


class Coolness:
    """Waits until the GPU is as cool as when it was idle; where nobody tells, there is no wait.

    Attributes:
        read: degrees Celsius of the chip; None where nobody tells.
    """

    def __init__(self, device: str) -> None:
        self.read: Callable[[], float | None] = lambda: None
        with closing(open_device(device).device) as opened:
            if not opened.identity.modelled:
                self.read = Thermometer(opened.identity.uuid).read
        self._coolest = self.read()

    def wait(self) -> float | None:
        """Wait, ``COOL_S`` at most; the temperature then."""
        until_s = time.monotonic() + COOL_S
        while True:
            now = self.read()
            if now is None or self._coolest is None:
                return now
            self._coolest = min(self._coolest, now)
            if now <= self._coolest + COOL_K or time.monotonic() >= until_s:
                return now
            time.sleep(0.5)


def tune(spec: str, device: str, trials: int) -> dict[str, Any]:
    """Tune one workload for energy in a process of its own; the run as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.json"
        words = [
            "run",
            *([spec] if ":" in spec else []),
            "--device",
            device,
            *TUNING,
            str(trials),
            "--database",
            f"{folder}/tuner.db",
            "--json",
            str(path),
        ]
        if ":" not in spec:
            words += ["--kernel", str(EXAMPLES / spec / "kernel.toml")]
        subprocess.run(
            [sys.executable, "-P", "-c", _RUN, *words],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        document: dict[str, Any] = json.loads(path.read_text())
        return document


def judged(run: dict[str, Any], device: Device, seconds: float) -> dict[str, Any]:
    """What was stated of an answer, and what the log says."""
    kernels = catalog()
    name = run["workloads"][0]["name"]
    workload = kernels.workload(f"{name}{',' if ':' in name else ':'}batch={run['workloads'][0]['batch']}")
    kernel = kernels.kernel(workload.kernel)
    best, usual = (run[kind]["configurations"][name] for kind in ("best", "default"))
    plans = {
        "A": kernel.plan(workload, Configuration(best)),
        "B": kernel.plan(workload, Configuration(usual)),
    }
    if best == usual:
        del plans["B"]
        plans["B"] = plans["A"]
    found = phases(device, plans, seconds)
    row: dict[str, Any] = {"workload": name, "phases": [{"plan": n, **phase._asdict()} for n, phase in found]}
    for key, plan in (("best", "A"), ("default", "B")):
        mine = [phase for n, phase in found if n == plan]
        joules = math.fsum(phase.joules for phase in mine) / len(mine)
        dates = math.hypot(*(phase.sigma_w / phase.watts for phase in mine)) / len(mine) * joules
        own = math.hypot(dates, abs(mine[0].joules - mine[1].joules) / 2.0)
        half = 1.96 * run[key]["energy_j_uncertainty"]
        row[key] = {
            "stated_j": run[key]["energy_j"],
            "stated_half_j": half,
            "log_j": joules,
            "log_sigma_j": own,
            "half": half / run[key]["energy_j"],
            "off": run[key]["energy_j"] / joules - 1.0,
            "covered": abs(run[key]["energy_j"] - joules) <= half,
            "watts": mine[0].watts,
            "temperature_c": run[key]["temperature_c"],
            "flags": run[key]["flags"],
        }
    against = run["against_default"]
    if against and best != usual:
        saving = 1.0 - row["best"]["log_j"] / row["default"]["log_j"]
        half = against["energy_saving_interval"]
        row["saving"] = {
            "stated": against["energy_saving"],
            "stated_half": half,
            "log": saving,
            "covered": abs(against["energy_saving"] - saving) <= half,
        }
    return row


# --- all of them ---------------------------------------------------------------------------------


def show(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Print what was found; the counts."""
    for row in rows:
        show_row(row)
    answers = [row["best"] for row in rows]
    savings = [row["saving"] for row in rows if "saving" in row]
    both = [row[key] for row in rows for key in ("best", "default")]
    counts = {
        "within": sum(one["covered"] for one in both),
        "of": len(both),
        "median_half": statistics.median(one["half"] for one in both) if both else None,
        "mean_off": statistics.fmean(one["off"] for one in both) if both else None,
        "answers": len(answers),
        "answers_covered": sum(one["covered"] for one in answers),
        "defaults_covered": sum(row["default"]["covered"] for row in rows),
        "savings": len(savings),
        "savings_covered": sum(one["covered"] for one in savings),
        "largest_error": max((abs(one["off"]) for one in both), default=0.0),
    }
    told = (f"{value:.2%}" if isinstance(value, float) else str(value) for value in counts.values())
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in zip(counts, told, strict=True)))
    return counts


def show_row(row: dict[str, Any]) -> None:
    """One line of the table."""
    best, saving = row["best"], row.get("saving")
    told = (
        ""
        if saving is None
        else (
            f"  saving {saving['stated']:.2%} ± {saving['stated_half']:.2%}, log {saving['log']:.2%}"
            f" {'covered' if saving['covered'] else 'NOT covered'}"
        )
    )
    print(
        f"{row['workload']:<24} {1e3 * best['stated_j']:9.4f} ± {1e3 * best['stated_half_j']:.4f} mJ,"
        f" log {1e3 * best['log_j']:9.4f} ± {1.96e3 * best['log_sigma_j']:.4f} mJ, {best['off']:+.2%},"
        f" {best['watts']:.0f} W {'covered' if best['covered'] else 'NOT covered'}; default"
        f" {row['default']['off']:+.2%} ± {row['default']['half']:.2%}"
        f" {'covered' if row['default']['covered'] else 'NOT covered'}{told}{_temperatures(row)}",
        flush=True,
    )


def _temperatures(row: dict[str, Any]) -> str:
    """When the run began, as it states them, and behind the log."""
    celsius = (row["begun_c"], row["best"]["temperature_c"], row["ended_c"])
    known = [f"{one:.0f}" for one in celsius if one is not None]
    return f"  {', '.join(known)} °C" if known else ""


def main() -> None:
    """Tune, judge, print, write."""
    parser = command_line(__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--trials", type=int, default=3, help="of each run")
    parser.add_argument("--seconds", type=float, default=5.0, help="of one phase; each answer has two")
    parser.add_argument("--part", default="1/1", help="K/N: only every Nth workload, from the Kth on")
    parser.add_argument("--only", nargs="*", help="workloads instead of the twenty")
    parser.add_argument(
        "--join", nargs="*", type=Path, help="results of parts to put together; nothing is run"
    )
    options = parser.parse_args()
    origin: Any = provenance()
    if options.join:
        documents = [json.loads(path.read_text()) for path in options.join]
        rows = [row for document in documents for row in document["rows"]]
        origins = [document["provenance"] for document in documents]
        origin = [each for one in origins for each in (one if isinstance(one, list) else [one])]
    else:
        part, parts = map(int, options.part.split("/"))
        rows = []
        coolness = Coolness(options.device)
        for spec in (options.only or WORKLOADS)[part - 1 :: parts]:
            begun_c, begun_s = coolness.wait(), time.monotonic()
            run = tune(spec, options.device, options.trials)
            with closing(open_device(options.device).device) as device:
                row = judged(run, device, options.seconds)
            took_s = time.monotonic() - begun_s
            rows.append({**row, "begun_c": begun_c, "ended_c": coolness.read(), "took_s": took_s})
            show_row(rows[-1])
            store(options.out, options, origin, rows)
    print()
    store(options.out, options, origin, rows, show(rows))


def store(
    path: Path | None, options: argparse.Namespace, origin: Any, rows: list[Any], counts: Any = None
) -> None:
    """Write what there is so far."""
    if path:
        modelled = options.device.startswith("sim:")
        head = {"modelled": modelled, "provenance": origin, "trials": options.trials}
        head |= {"seconds": options.seconds, "counts": counts}
        path.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
