"""What the runs of benchmarks/kernel_tuner_wall.py come to: quality by one neutral timer, and wall to it."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NEAR = 0.98
"""Share of the optimum at which an answer counts as found."""

Step = tuple[float, int, float]
"""One evaluation: seconds since the process was started, number of the configuration, own time in seconds."""


def neutral_ms(neutral: Mapping[str, Any]) -> list[float]:
    """Milliseconds of every configuration, cold L2: those of 200 launches where there are as many."""
    times = list(neutral["ms"])
    for number, found in neutral["finalists"].items():
        times[int(number)] = found["cold_ms"]
    return times


def swept_ms(runs: Iterable[Mapping[str, Any]], configurations: int) -> list[float] | None:
    """Median milliseconds of every configuration in the sweeps of ``tuner``; None without a whole sweep.

    They stand in for neutral times where a run was stopped before those were taken.
    """
    sweeps = []
    for run in runs:
        times = {number: 1e3 * time_s for _, number, time_s in run["trace"] if time_s is not None}
        if run["tuner"] == "tuner" and len(times) == configurations:
            sweeps.append(times)
    if not sweeps:
        return None
    return [statistics.median(times[number] for times in sweeps) for number in range(configurations)]


def efficiencies(times_ms: Sequence[float]) -> list[float]:
    """The least time by each time."""
    least = min(times_ms)
    return [least / time if time > 0 else 0.0 for time in times_ms]


def incumbents(trace: Iterable[Step]) -> list[tuple[float, int]]:
    """When a run's own best changed, and to what, by its own times; failed evaluations have none."""
    found: list[tuple[float, int]] = []
    least = float("inf")
    for at_s, number, time_s in trace:
        if time_s is not None and time_s < least:
            least = time_s
            found.append((at_s, number))
    return found


def settled_s(run: Mapping[str, Any], efficiency: Sequence[float], share: float = NEAR) -> float | None:
    """Seconds after which the run's own best was, and stayed, within a share of the optimum.

    What the run answered in the end is its last incumbent, from the end of the process on.

    Returns:
        None where it ended with something worse.
    """
    history = [*incumbents(run["trace"]), (run["wall_s"], run["best"])]
    reached = None
    for at_s, number in history:
        if efficiency[number] < share:
            reached = None
        elif reached is None:
            reached = at_s
    return reached


def first_of(run: Mapping[str, Any], evaluations: int) -> dict[str, Any]:
    """A run with a smaller budget, of the same seed: its first evaluations, and the same way out.

    Kernel Tuner's strategies draw the same numbers whatever ``max_fevals`` is.
    """
    trace = [tuple(step) for step in run["trace"][:evaluations]]
    after_s = run["wall_s"] - run["trace"][-1][0]
    return {
        **run,
        "method": f"{run['method'].rpartition(' ')[0]} {evaluations}",
        "trace": trace,
        "evaluations": len(trace),
        "wall_s": trace[-1][0] + after_s,
        "best": incumbents(trace)[-1][1],
    }


@dataclass(frozen=True)
class Row:
    """One line of the table: runs of one tuner and method, alike but for the seed.

    Attributes:
        runs: how many.
        wall_s: median, least and most seconds from start to end of the process.
        evaluations: median.
        efficiency: median and least share of the optimum that the answers reach.
        reached: how many were within ``NEAR``.
        near_s: median seconds until then, over all runs; None where half never were.
        peak_bytes: most memory of the process tree.
        memory: how it was measured.
    """

    tuner: str
    method: str
    cache: str
    checked: bool
    runs: int
    wall_s: tuple[float, float, float]
    evaluations: float
    efficiency: tuple[float, float]
    reached: int
    near_s: float | None
    peak_bytes: int
    memory: str


def rows(runs: Iterable[Mapping[str, Any]], efficiency: Sequence[float] | None) -> list[Row]:
    """The lines of a space; without neutral times there is no quality."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for run in runs:
        if run.get("best") is not None:
            method = " ".join(filter(None, (run["method"], run["backend"])))
            key = (run["tuner"], method, run["cache"], run["checked"])
            groups.setdefault(key, []).append(run)
    return [_row(key, group, efficiency) for key, group in groups.items()]


def _row(key: tuple[Any, ...], group: list[Mapping[str, Any]], efficiency: Sequence[float] | None) -> Row:
    walls = [run["wall_s"] for run in group]
    reached = [None if efficiency is None else settled_s(run, efficiency) for run in group]
    shares = [0.0 if efficiency is None else efficiency[run["best"]] for run in group]
    middle = statistics.median_low([float("inf") if one is None else one for one in reached])
    return Row(
        *key,
        runs=len(group),
        wall_s=(statistics.median(walls), min(walls), max(walls)),
        evaluations=statistics.median(run["evaluations"] for run in group),
        efficiency=(statistics.median(shares), min(shares)),
        reached=sum(one is not None for one in reached),
        near_s=None if middle == float("inf") else middle,
        peak_bytes=max(run["peak_bytes"] for run in group),
        memory=group[0]["memory"],
    )


def table(name: str, found: Sequence[Row]) -> str:
    """A space's lines as text."""
    head = (
        f"{name}\n{'tuner':13s}{'method':35s}{'caches':8s}{'checks':8s}{'wall s':>8s}{'range s':>15s}"
        f"{'evaluations':>13s}{'optimum %':>11s}{'least %':>9s}{'to 98 % s':>11s}{'of runs':>9s}"
        f"{'peak MB':>9s}"
    )
    return "\n".join([head, *map(_line, found)])


def _line(row: Row) -> str:
    middle, least, most = row.wall_s
    known = row.efficiency[0] > 0
    near = "never" if row.near_s is None else f"{row.near_s:.1f}"
    return (
        f"{row.tuner:13s}{row.method:35s}{row.cache:8s}{'yes' if row.checked else 'no':8s}{middle:8.1f}"
        f"{f'{least:.1f}-{most:.1f}':>15s}{row.evaluations:13.0f}"
        + (f"{100 * row.efficiency[0]:11.2f}{100 * row.efficiency[1]:9.2f}" if known else f"{'':20s}")
        + (f"{near:>11s}{f'{row.reached} of {row.runs}':>9s}" if known else f"{'':20s}")
        + f"{row.peak_bytes / 1e6:9.0f}"
    )
