"""Power over time of a factorisation by several schemes, in one picture, with joules of each.

Schemes are ``hybrid`` (panels by the CPU), ``gpu-only`` (the kernel of the catalogue), ``cusolver``, and
``gemm``, cuBLAS's product of two matrices of that order. Each is searched for a short time, then runs again
and again for some seconds, its matrix restored before every run. A child process runs them while this one
records power, as ``tuner power trace`` does. Joules are those of a run, its copy of the matrix included, with
95 % intervals; net joules are without those of the idle GPU with the child on it. ``--scope gpu+cpu`` adds
the host's rails where they can be read; the curves are those of the GPU in any case.

    python benchmarks/kernels/linalg_power.py --only potrf --n 16384 --dtype float64 \
        --out power.json --plot power.svg
    python benchmarks/kernels/linalg_power.py --n 16384 --dtype float32 --schemes gemm \
        --out gemm.json --plot gemm.svg
    python benchmarks/kernels/linalg_power.py --show power.json --plot power.svg   # measures nothing
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from linalg_contest import Contender, Machine, Searcher, as_json, field_of, order, seconds
from linalg_energy import loop_of, repeat, run_s
from linalg_large_contest import (
    DTYPES,
    OPERATIONS,
    LargeCase,
    LargeLibraries,
    LargeSets,
    Opened,
    cpu_facts,
    hybrid_found,
    product,
)
from linalg_large_contest import opened as begun
from linalg_peers import origin
from provenance import provenance
from tuner.power.base import PowerSampler, Sample, SensorInfo, Span
from tuner.power.energy.programs import corrected_power
from tuner.power.energy.spans import span_energy

from tuner.compiler.compiler import Compiler
from tuner.devices.cuda import probe
from tuner.devices.cuda.code import CodeCache
from tuner.joules.traces import IdleTimes, Recorder, run_traced
from tuner.joules.watching import gpu_for, opened, opened_host
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import InputError, TunerError
from tuner.model.units import si, with_uncertainty
from tuner.report.power_tables import need_matplotlib

# --- what a child draws ---------------------------------------------------------------------------


SIGMAS = 1.96  # standard uncertainties to either side cover 95 %
_COUNTER_S = 0.02  # between reads of a counter
_IDLE_S = 0.5  # before the child starts
_AROUND_S = 0.25  # of power that is kept before a scheme, and behind it

Readings = Sequence[tuple[SensorInfo, Sequence[Sample]]]


@dataclass(frozen=True)
class Traced:
    """What the sensors saw while the child ran.

    Attributes:
        code: exit code of the child.
        parts: readings of the GPU together, and each of the host's by itself.
    """

    code: int
    parts: Sequence[Readings]


class OftenRead:
    """A sampler whose counter is read again and again: a trace reads counters at its ends only."""

    def __init__(self, sampler: PowerSampler) -> None:
        self._sampler = sampler
        self.info = replace(sampler.info, longest_pause_s=2 * _COUNTER_S)

    @property
    def due_s(self) -> float:
        """See ``PowerSampler.due_s``."""
        return self._sampler.due_s

    def poll(self) -> list[Sample]:
        """See ``PowerSampler.poll``."""
        return self._sampler.poll()

    def close(self) -> None:
        """See ``PowerSampler.close``."""
        self._sampler.close()


def traced(command: Sequence[str], scope: str, sensor: str | None) -> Traced:
    """Run a command, and record power.

    Raises:
        TunerError: no sensor answers, none shows power over time, or the command cannot be started.
    """
    sensors = [sensor] if sensor else []
    gpu = gpu_for(None, sensors, "this benchmark", scope)
    with opened(gpu, sensors) as of_gpu, opened_host(scope) as of_host:
        if all(sampler.info.kind == "counter" for sampler in of_gpu):
            names = ", ".join(sampler.info.name for sampler in of_gpu)
            raise InputError(f"{names}: a counter shows no power over time; name another --sensor")
        samplers = [OftenRead(one) if one.info.kind == "counter" else one for one in (*of_gpu, *of_host)]
        recorder = Recorder(samplers)
        outcome = run_traced(command, recorder, IdleTimes(_IDLE_S))
        readings = [(channel.info, tuple(channel.samples)) for channel in recorder.channels]
    count = len(of_gpu)
    return Traced(outcome.exit_code, [readings[:count], *([one] for one in readings[count:])])


def figures(found: Traced, span: Span, idle: Span, runs: int, flops: float) -> dict[str, Any]:
    """Joules and power over time of a scheme; joules and Gflop/s/W are of one run, with 95 % intervals.

    Args:
        found: of all schemes.
        span: when this one ran.
        idle: when nothing ran.
        runs: how often it ran, one after another.
        flops: of a run.

    Raises:
        InputError: the sensors showed nothing of it.
    """
    joules, sigma_j, counted = spent(found, span)
    idle_j, idle_sigma_j, _ = spent(found, idle)
    share = span.duration_s / idle.duration_s
    net_j, net_sigma_j = joules - idle_j * share, math.hypot(sigma_j, idle_sigma_j * share)
    row: dict[str, Any] = {"seconds": span.duration_s / runs, "counted": counted}
    row["joules"] = _shown(joules / runs, sigma_j / runs)
    row["net_joules"] = _shown(net_j / runs, net_sigma_j / runs)
    row["mean_w"] = joules / span.duration_s
    rate = 1e-9 * flops * runs / joules
    row["gflops_per_w"] = _shown(rate, rate * sigma_j / joules)
    return row | _curve(found, span)


def spent(found: Traced, span: Span) -> tuple[float, float, list[Mapping[str, str]]]:
    """Joules of a span, their standard uncertainty, and by which sensors.

    Raises:
        InputError: the sensors showed nothing of it.
    """
    joules, variance_j2, counted = 0.0, 0.0, []
    for readings in found.parts:
        energy = span_energy(readings, span)
        if energy is None:
            names = ", ".join(info.name for info, _ in readings)
            raise InputError(f"{names} showed nothing of {span.duration_s:.2g} s; --seconds must be longer")
        joules += energy.joules
        variance_j2 += energy.sigma_j**2
        counted.append({"scope": energy.scope, "sensor": energy.sensor})
    return joules, math.sqrt(variance_j2), counted


def _curve(found: Traced, span: Span) -> dict[str, Any]:
    """Power of the GPU over time, corrected for how the sensor follows it; time 0 is the begin."""
    info, samples = next(one for one in found.parts[0] if one[0].kind != "counter")
    shown = corrected_power(samples, info)
    times_s = shown.times_s - shown.age_s - span.start_s
    kept = (times_s >= -_AROUND_S) & (times_s <= span.duration_s + _AROUND_S)
    return {
        "times_s": [round(float(time_s), 4) for time_s in times_s[kept]],
        "watts": [round(float(watts), 1) for watts in shown.corrected_w[kept]],
        "curve": {"scope": info.scope, "sensor": info.name},
    }


def _shown(value: float, sigma: float) -> dict[str, float]:
    return {"value": value, "half": SIGMAS * sigma}


# --- the picture ----------------------------------------------------------------------------------


Document = dict[str, Any]

_COLOURS = {"gpu-only": "#1f77b4", "hybrid": "#e08e0b", "cusolver": "#c0392b", "gemm": "#9aa5b1"}
_WORDS = {"gpu-only": "GPU-only", "cusolver": "cuSOLVER"}


def line(name: str, scheme: Mapping[str, Any]) -> str:
    """A scheme in one line: joules of a run and how long it takes."""
    counted = " + ".join(f"{part['scope']} by {part['sensor']}" for part in scheme["counted"])
    what = scheme["form"] or " ".join(f"{key}={value}" for key, value in scheme["configuration"].items())
    return (
        f"{label(name, scheme)}, net {_figure(scheme['net_joules'], 'J')}, mean {scheme['mean_w']:.0f} W"
        f" ({counted}; {scheme['runs']} runs; {what})"
    )


def label(name: str, scheme: Mapping[str, Any]) -> str:
    """A scheme in the legend."""
    rate = scheme["gflops_per_w"]
    return (
        f"{_WORDS.get(name, name)}: {_figure(scheme['joules'], 'J')} in {si(scheme['seconds'], 's')},"
        f" {rate['value']:.3g} ± {rate['half']:.1g} Gflop/s/W"
    )


def _figure(found: Mapping[str, float], unit: str) -> str:
    return with_uncertainty(found["value"], found["half"], unit)


def uncounted(document: Document) -> str:
    """A sentence where the CPU computes and its joules are not counted; else nothing."""
    hybrid = document["schemes"].get("hybrid")
    if hybrid is None or any(part["scope"] != "gpu" for part in hybrid["counted"]):
        return ""
    return "joules of the CPU, which factors the panels of hybrid, are not counted (--scope gpu+cpu)"


def picture(document: Document, path: Path) -> None:
    """Draw watts of the GPU over time; the same result gives the same file."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "linalg"
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the back end is chosen

    figure, axes = plt.subplots(figsize=(9.0, 4.8), layout="constrained")
    for name, scheme in document["schemes"].items():
        axes.plot(scheme["times_s"], scheme["watts"], lw=1.2, color=_COLOURS[name], label=label(name, scheme))
    sensors = sorted({scheme["curve"]["sensor"] for scheme in document["schemes"].values()})
    scopes = sorted({part["scope"] for scheme in document["schemes"].values() for part in scheme["counted"]})
    note = uncounted(document)
    axes.set(
        xlabel="time since the first run began (s)",
        ylabel=f"power of the GPU (W, {', '.join(sensors)})",
        title=f"{document['operation']}, {document['dtype']}, n = {document['n']}; a run after another\n"
        f"{origin(document)}",
    )
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    title = f"of a run, {' + '.join(scopes)}, ± 95 %" + (f"\n{note}" if note else "")
    figure.legend(
        loc="outside lower left",
        fontsize="small",
        frameon=False,
        title=title,
        title_fontsize="x-small",
        alignment="left",
    )
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


SCHEMES = ("hybrid", "gpu-only", "cusolver", "gemm")
_PAUSE_S = 0.5  # before a scheme, and behind it
_IDLE_CHILD_S = 1.0
now_s = time.monotonic


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", choices=OPERATIONS, default="potrf", metavar="KERNEL", help="potrf, getrf or geqrf; potrf")
    add("--n", type=order(2, 32768), default=16384, help="order, 2 to 32768; 16384")
    add("--dtype", choices=DTYPES, default="float64")
    add("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES[:3]), metavar="SCHEME")
    add("--seconds", type=seconds, default=2.0, help="of each scheme, at least one run; 2")
    add("--budget", type=seconds, default=10.0, metavar="SECONDS", help="for the search of each scheme; 10")
    add("--scope", default="gpu", help="what joules are counted of, as tuner power trace takes it; gpu")
    add("--sensor", help="the GPU's reading by its name; the best that answers")
    add("--out", type=Path, help="JSON")
    add("--plot", type=Path, metavar="FILE.svg", help="the picture; needs the extra plot")
    add("--show", type=Path, metavar="FILE", help="print and draw this result, and measure nothing")
    add("--child", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, write, draw; the exit code."""
    options = parsed(words)
    if options.child is not None:
        return run_schemes(options)
    given = list(sys.argv[1:] if words is None else words)
    try:
        if options.plot is not None:
            need_matplotlib()
        document = json.loads(options.show.read_text()) if options.show else measured(options, given)
    except TunerError as error:
        print(f"{error}\nThis benchmark needs a CUDA GPU whose power can be read.", file=sys.stderr)
        return 2
    if isinstance(document, int):
        return document
    for name, scheme in document["schemes"].items():
        print(line(name, scheme))
    if options.out is not None:
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    if options.plot is not None:
        picture(document, options.plot)
    return 0


def measured(options: argparse.Namespace, given: Sequence[str]) -> dict[str, Any] | int:
    """What is stored; the exit code of a child that failed, which has said why.

    Raises:
        TunerError: power cannot be read, or shows nothing of a scheme.
    """
    with tempfile.TemporaryDirectory(prefix="tuner-linalg-power-") as folder:
        told = Path(folder, "schemes.json")
        command = [sys.executable, __file__, *given, "--child", str(told)]
        found = traced(command, options.scope, options.sensor)
        if found.code:
            return found.code
        document: dict[str, Any] = json.loads(told.read_text())
    idle = Span(*document["idle_s"])
    document["schemes"] = {
        name: scheme | figures(found, Span(*scheme["span_s"]), idle, scheme["runs"], scheme["flops"])
        for name, scheme in document["schemes"].items()
    }
    return document | {"provenance": provenance(), "scope": options.scope}


# --- in the child --------------------------------------------------------------------------------


def run_schemes(options: argparse.Namespace) -> int:
    """Search, then run each scheme by itself, and nothing; write to a file what was run when."""
    case = LargeCase(options.only, options.n, options.dtype)
    try:
        cp = probe.open_cupy(0)
        limits = probe.gpu_limits(cp, 0)
        with Compiler(limits.architecture) as compiler:
            libraries = LargeLibraries(cp)
            searcher = Searcher(limits, compiler, Catalog.load(), batch=1)
            machine = Machine(cp, CodeCache(cp, compiler, limits), libraries, searcher)
            begin = begun(searcher, case, hybrid="hybrid" in options.schemes)
            sets = begin.on(cp)
            schemes = found_schemes(machine, libraries, begin, sets, options)
            rows = {
                name: _row(case, name, one, *timed(machine, one, sets, options.seconds))
                for name, one in schemes.items()
            }
    except TunerError as error:
        print(f"{error}\nThis benchmark needs a CUDA GPU.", file=sys.stderr)
        return 2
    begin_s = now_s()
    time.sleep(_IDLE_CHILD_S)
    idle_s = (begin_s, now_s())
    time.sleep(_PAUSE_S)
    facts = {**vars(case), "libraries": libraries.versions(), "schemes": rows, "idle_s": idle_s}
    facts["cpu"] = cpu_facts() if "hybrid" in rows else None
    facts["missing"] = [name for name in options.schemes if name not in rows]
    options.child.write_text(json.dumps(facts))
    if facts["missing"]:
        print(f"nothing answers right: {', '.join(facts['missing'])}", file=sys.stderr)
    return 0 if rows else 2


def found_schemes(
    machine: Machine, libraries: LargeLibraries, begin: Opened, sets: LargeSets, options: argparse.Namespace
) -> Mapping[str, Contender]:
    """The fastest right form of every scheme that is asked for; those that do not run are left out."""
    wanted, found = options.schemes, dict[str, Contender | None]()
    case = begin.space.case
    if "gpu-only" in wanted or "cusolver" in wanted:
        forms = libraries.factorizations(case, sets)
        ends_s = time.monotonic() + options.budget
        field = field_of(machine, begin.space, begin.first, sets, forms=forms, ends_s=ends_s)
        found["gpu-only"] = min(field.right_own, key=lambda one: one.quick_ms, default=None)
        found["cusolver"] = next(iter(field.right_peers), None)
    if begin.hybrid is not None:
        found["hybrid"] = hybrid_found(machine, begin.hybrid, sets, options.budget).best
    if "gemm" in wanted:
        found["gemm"] = product(machine, libraries.gemm(case, sets), sets)
    known = {name: found.get(name) for name in SCHEMES if name in wanted}
    return {name: one for name, one in known.items() if one is not None}


def timed(
    machine: Machine, scheme: Contender, sets: LargeSets, least_s: float
) -> tuple[int, tuple[float, float]]:
    """Run a scheme again and again; how often, and when it began and ended."""
    loop = loop_of(machine, sets, scheme)
    runs = max(1, math.ceil(least_s / run_s(machine, loop)))
    synchronize = machine.cp.cuda.runtime.deviceSynchronize
    synchronize()
    time.sleep(_PAUSE_S)
    begin_s = now_s()
    repeat(loop, runs)
    synchronize()
    end_s = now_s()
    time.sleep(_PAUSE_S)
    return runs, (begin_s, end_s)


def _row(
    case: LargeCase, name: str, scheme: Contender, runs: int, span_s: tuple[float, float]
) -> dict[str, Any]:
    form = scheme.form
    return {
        "runs": runs,
        "span_s": span_s,
        "flops": 2 * case.n**3 if name == "gemm" else case.flops,
        "configuration": as_json(scheme.configuration),
        "form": None if form is None else form.key,
        "graph": scheme.graph,
    }


if __name__ == "__main__":
    sys.exit(main())
