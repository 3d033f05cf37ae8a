"""What searches are worth: efficiencies after some evaluations, tables and a picture."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from search_games import Game, Play

LEVELS = (0.90, 0.98)  # shares of the optimum whose evaluations are counted
SHOWN = 6  # spaces in a table, and other searches in a picture
LISTED = 3  # with so many spaces or fewer their counts are listed, with more the median is given


@dataclass(frozen=True)
class Result:
    """The scores of all searches of one kind over one space, or over the spaces of a group.

    Attributes:
        space: name of the space, or of the group.
        group: its group.
        size: its configurations; 0 of a group.
        searcher: policy or strategy.
        ours: a policy of this project.
        budgets: evaluations after which it is scored; the largest is what it was allowed.
        seeds: searches of a space.
        curve: (evaluations, optimum / best found) wherever the median over seeds changed.
        means: number of evaluations -> the same, its mean over seeds.
        deviations: number of evaluations -> the same, its standard deviation over seeds.
        worst: number of evaluations -> what nine of ten seeds reach.
        failed: share of the evaluations that failed; NaN where that was not stored.
        to: share of the optimum -> median over seeds of the evaluations that reached it; infinity for never.
        search_ms: median over seeds of the median and of the mean CPU time per evaluation.
        early: evaluations of the searches that ended by themselves.
        errors: of the searches that broke off.
        idle: no search tried anything.
        spaces: of the group, where it is one; then scores are means over them.
    """

    space: str
    group: str
    size: int
    searcher: str
    ours: bool
    budgets: tuple[int, ...]
    seeds: int
    curve: tuple[tuple[int, float], ...]
    means: Mapping[int, float]
    deviations: Mapping[int, float]
    worst: Mapping[int, float]
    failed: float
    to: Mapping[float, float]
    search_ms: tuple[float, float] | None
    early: tuple[int, ...] = ()
    errors: tuple[str, ...] = ()
    idle: bool = False
    spaces: int = 1

    @property
    def budget(self) -> int:
        """Evaluations allowed."""
        return max(self.budgets)

    def efficiency(self, evaluations: int) -> float:
        """Median over seeds of optimum / best found after so many evaluations; 0 while nothing has worked."""
        return next((share for number, share in reversed(self.curve) if number <= evaluations), 0.0)

    def mean(self, evaluations: int) -> float:
        """The same, its mean over seeds."""
        return self.means[evaluations]

    def worst_tenth(self, evaluations: int) -> float:
        """The same, what nine of ten seeds reach."""
        return self.worst[evaluations]

    def evaluations_to(self, level: float) -> float:
        """Median over seeds of the evaluations that reached a share of the optimum; infinity for never."""
        return self.to[level]


def scored(game: Game, searcher: str, plays: Sequence[Play], budgets: Sequence[int], *, ours: bool) -> Result:
    """The scores of the searches of one kind over a space, one play for each seed."""
    optimum_s, allowed = game.optimum_s, min(max(budgets), len(game.times_s))
    shares = {n: [efficiency(play, optimum_s, n) for play in plays] for n in budgets}
    times = [play.search_ms for play in plays if play.search_ms is not None]
    changes = sorted({number for play in plays for number, _ in play.best})
    curve: list[tuple[int, float]] = []
    for number in changes:
        share = statistics.median(efficiency(play, optimum_s, number) for play in plays)
        if not curve or share != curve[-1][1]:
            curve.append((number, share))
    return Result(
        space=game.name,
        group=game.group,
        size=len(game.times_s),
        searcher=searcher,
        ours=ours,
        budgets=tuple(budgets),
        seeds=len(plays),
        curve=tuple(curve),
        means={n: statistics.fmean(found) for n, found in shares.items()},
        deviations={n: float(np.std(found, ddof=min(1, len(found) - 1))) for n, found in shares.items()},
        worst={n: float(np.quantile(found, 0.1)) for n, found in shares.items()},
        failed=sum(play.failed for play in plays) / max(1, sum(play.evaluations for play in plays)),
        to={
            level: statistics.median_low(reached(play, optimum_s, level) for play in plays)
            for level in LEVELS
        },
        search_ms=(statistics.median(m for m, _ in times), statistics.median(mean for _, mean in times))
        if times
        else None,
        early=tuple(p.evaluations for p in plays if not p.error and p.evaluations < allowed),
        errors=tuple(play.error for play in plays if play.error),
        idle=not any(play.evaluations for play in plays),
    )


def efficiency(play: Play, optimum_s: float, evaluations: int) -> float:
    """Optimum / best found after so many evaluations; 0 while nothing has worked."""
    best = [time_s for number, time_s in play.best if number <= evaluations]
    return optimum_s / best[-1] if best else 0.0


def reached(play: Play, optimum_s: float, level: float) -> float:
    """The evaluation at which the best reached a share of the optimum; infinity for never."""
    return next((number for number, time_s in play.best if optimum_s / time_s >= level), math.inf)


def row_of(result: Result) -> dict[str, Any]:
    """A result for JSON; its curve is [evaluations, efficiency]."""
    return {
        "space": result.space,
        "group": result.group,
        "configurations": result.size,
        "search": result.searcher,
        "ours": result.ours,
        "budgets": result.budgets,
        "seeds": result.seeds,
        "efficiency": [round(result.efficiency(n), 4) for n in result.budgets],
        "mean": [round(result.mean(n), 5) for n in result.budgets],
        "deviation": [round(result.deviations[n], 5) for n in result.budgets],
        "worst_tenth": [round(result.worst_tenth(n), 5) for n in result.budgets],
        "failed": round(result.failed, 5),
        "evaluations_to": [_finite(result.evaluations_to(level)) for level in LEVELS],
        "search_ms": result.search_ms,
        "curve": [[number, round(share, 5)] for number, share in result.curve],
        **({"early": result.early} if result.early else {}),
        **({"errors": result.errors} if result.errors else {}),
        **({"idle": True} if result.idle else {}),
        **({"spaces": result.spaces} if result.spaces > 1 else {}),
    }


def result_of(row: Mapping[str, Any]) -> Result:
    """A result from JSON, as ``row_of`` gives it."""
    budgets = tuple(row["budgets"])
    return Result(
        space=row["space"],
        group=row["group"],
        size=row["configurations"],
        searcher=row["search"],
        ours=row["ours"],
        budgets=budgets,
        seeds=row["seeds"],
        curve=tuple((number, share) for number, share in row["curve"]),
        means=dict(zip(budgets, row["mean"], strict=True)),
        deviations=dict(zip(budgets, row.get("deviation", [math.nan] * len(budgets)), strict=True)),
        worst=dict(zip(budgets, row["worst_tenth"], strict=True)),
        failed=row.get("failed", math.nan),
        to={
            level: math.inf if n is None else n
            for level, n in zip(LEVELS, row["evaluations_to"], strict=True)
        },
        search_ms=row["search_ms"] and tuple(row["search_ms"]),
        early=tuple(row.get("early", ())),
        errors=tuple(row.get("errors", ())),
        idle=row.get("idle", False),
        spaces=row.get("spaces", 1),
    )


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def tables(results: Sequence[Result]) -> str:
    """Markdown: a table per group and one with every space; where those are many, groups by search alone."""
    started = [result for result in results if not result.idle]
    parts = []
    if _spaces(started) <= SHOWN:
        for group in dict.fromkeys(result.group for result in started):
            mine = [result for result in started if result.group == group]
            count = len({result.space for result in mine})
            parts += [f"**{group}**, {_counted(count, 'space')}", _table(mine), _remarks(mine)]
        parts += [f"**every space**, efficiency after {_after(started)}", _overview(started, "space", _cell)]
        ours = [result for result in started if result.ours]
        if ours:
            parts += ["**every space**, mean; worst tenth of seeds", _overview(ours, "space", _spread)]
    else:
        parts += [f"**efficiency** after {_after(started)}", _overview(started, "group", _cell)]
        to = f"**evaluations to {100 * LEVELS[-1]:.0f} %** of the optimum, median of the spaces"
        parts += [to, _overview(started, "group", lambda same: _evaluations(same, LEVELS[-1], listed=1))]
        parts.append(_remarks(started))
    idle = {r.searcher: "".join(r.errors[:1]) for r in results if r.idle}
    parts += [f"{searcher} did not start: `{error}`" for searcher, error in idle.items()]
    return "\n\n".join(filter(None, parts)) + "\n"


def brief(results: Sequence[Result]) -> str:
    """Markdown for a page: our searches and the best others of each group, no remarks, no single spaces."""
    started = [result for result in results if not result.idle]
    if _spaces(started) > SHOWN:
        drawn = [result for mine in _drawn(started) for result in mine]
        return f"**efficiency** after {_after(started)}\n\n{_overview(drawn, 'group', _cell)}\n"
    parts = []
    for group in dict.fromkeys(result.group for result in started):
        mine = [result for one in _drawn([r for r in started if r.group == group]) for result in one]
        parts += [f"**{group}**, {_counted(len({r.space for r in mine}), 'space')}", _table(mine)]
    return "\n\n".join(parts) + "\n"


def expected_of_random(times_s: Sequence[float], draws: int) -> float:
    """The mean efficiency of the best of so many random draws without repetition, exact.

    Of n sorted times the i-th is the lowest of k drawn with the chance C(n - i, k - 1) / C(n, k).

    Args:
        times_s: of all configurations; infinity where one failed.
        draws: k.
    """
    ordered, n = sorted(times_s), len(times_s)
    k = min(draws, n)
    chances = (math.comb(n - i, k - 1) / math.comb(n, k) for i in range(1, n - k + 2))
    timed = zip(chances, ordered, strict=False)
    return math.fsum(chance * ordered[0] / time_s for chance, time_s in timed if math.isfinite(time_s))


def against_random(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: means of our searches less those of random draws, with 95 % intervals over seeds, by group.

    Args:
        rows: as `row_of` makes them, each with ``random``, what `expected_of_random` says of its budgets.
    """
    budgets = rows[0]["budgets"]
    lines = [f"| spaces | search | {' | '.join(map(str, budgets))} |", f"|---|---|{'---|' * len(budgets)}"]
    for group, search in dict.fromkeys((row["group"], row["search"]) for row in rows):
        mine = [row for row in rows if (row["group"], row["search"]) == (group, search)]
        cells = []
        for place in range(len(budgets)):
            mean = statistics.fmean(row["mean"][place] - row["random"][place] for row in mine)
            variance = sum(row["deviation"][place] ** 2 / row["seeds"] for row in mine) / len(mine) ** 2
            cells.append(f"{100 * mean:+.1f} ± {100 * 1.96 * math.sqrt(variance):.1f}")
        lines.append(f"| {group} ({len(mine)}) | {search} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _spaces(results: Sequence[Result]) -> int:
    return sum({result.space: result.spaces for result in results}.values())


def _after(results: Sequence[Result]) -> str:
    return "/".join(map(str, results[0].budgets)) + " evaluations, %"


def _cell(results: Sequence[Result]) -> str:
    return _shown(results, Result.efficiency)


def _spread(results: Sequence[Result]) -> str:
    return f"{_shown(results, Result.mean)}; {_shown(results, Result.worst_tenth)}"


def _shown(results: Sequence[Result], of: Callable[[Result, int], float]) -> str:
    return "/".join(f"{mean:.0f}" for mean in _means(results, of))


def marks(name: str) -> tuple[str, str]:
    """The lines of a page between which the tables of a JSON stand."""
    return f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"


def _table(results: Sequence[Result]) -> str:
    budgets = results[0].budgets
    numbers = " | ".join(map(str, budgets))
    lines = [
        f"| search | seeds | {numbers} | mean | worst tenth | to 90 % | to 98 % | CPU ms per evaluation |",
        f"|---|{'---:|' * (len(budgets) + 1)}---|---|---|---|---|",
    ]
    for mine in _by_searcher(results):
        cells = [
            _label(mine[0]),
            str(max(r.seeds for r in mine)),
            *(f"{mean:.1f}" for mean in _means(mine)),
            _shown(mine, Result.mean),
            _shown(mine, Result.worst_tenth),
            *(_evaluations(mine, level) for level in LEVELS),
            _search_time(mine),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _means(results: Sequence[Result], of: Callable[[Result, int], float] = Result.efficiency) -> list[float]:
    """Over spaces, in percent, after each number of evaluations."""
    whole = sum(r.spaces for r in results)
    return [100 * (math.fsum(r.spaces * of(r, n) for r in results) / whole) for n in results[0].budgets]


def _overview(results: Sequence[Result], of: str, cell: Callable[[Sequence[Result]], str]) -> str:
    """Rows: searches; columns: spaces or groups (attribute ``of``)."""
    names = list(dict.fromkeys(getattr(result, of) for result in results))
    lines = [f"| search | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for mine in _by_searcher(results):
        columns = [[result for result in mine if getattr(result, of) == name] for name in names]
        cells = [cell(same) if same else "–" for same in columns]
        lines.append(f"| {_label(mine[0])} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_searcher(results: Sequence[Result]) -> Iterator[list[Result]]:
    for searcher in dict.fromkeys((r.ours, r.searcher) for r in results):
        yield [r for r in results if (r.ours, r.searcher) == searcher]


def _label(result: Result) -> str:
    return f"**{result.searcher}**" if result.ours else result.searcher


def _evaluations(results: Sequence[Result], level: float, listed: int = LISTED) -> str:
    counts = [result.evaluations_to(level) for result in results]
    if len(counts) > listed:
        counts = [statistics.median_low(counts)]
    return ", ".join(f"> {results[0].budget}" if math.isinf(n) else f"{n:.0f}" for n in counts)


def _search_time(results: Sequence[Result]) -> str:
    found = [result.search_ms for result in results if result.search_ms is not None]
    if not found:
        return "all at once"
    medians, means = zip(*found, strict=True)
    return f"{statistics.median(medians):.2g} (mean {statistics.median(means):.2g})"


def _remarks(results: Sequence[Result]) -> str:
    """What a reader must know: crashes, and searches that ended before the budget was used up."""
    lines = []
    for mine in _by_searcher(results):
        plays = sum(r.seeds * r.spaces for r in mine)
        broken = [error for r in mine for error in r.errors]
        if broken:
            what = f"{len(broken)} of {plays} searches broke off ({_commonest(broken)})"
            lines.append(f"- {_label(mine[0])}: {what}")
        early = [evaluations for r in mine for evaluations in r.early]
        if early:
            median = _counted(statistics.median_low(early), "evaluation")
            what = f"{len(early)} of {plays} searches ended by themselves, median {median}"
            lines.append(f"- {_label(mine[0])}: {what}")
    return "\n".join(lines)


def _commonest(texts: Sequence[str]) -> str:
    return max(dict.fromkeys(texts), key=texts.count)


def _counted(count: float, what: str) -> str:
    return f"{count:.0f} {what}{'' if count == 1 else 's'}"


def plot(results: Sequence[Result], path: Path) -> None:
    """Efficiency over evaluations, one panel per group: medians over seeds, means over spaces.

    Of the other searches the best are drawn, by their efficiency averaged over the budgets.
    """
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the back end is chosen

    groups = list(dict.fromkeys(result.group for result in results))
    width = 6.5 * len(groups)
    figure, panels = plt.subplots(1, len(groups), figsize=(width, 4.5), squeeze=False, layout="constrained")
    for group, panel in zip(groups, panels[0], strict=True):
        for mine in _drawn([result for result in results if result.group == group]):
            steps = np.arange(1, mine[0].budget + 1)
            curve = [100 * statistics.fmean(r.efficiency(int(n)) for r in mine) for n in steps]
            line = {"linewidth": 2.0} if mine[0].ours else {"linewidth": 1.0, "linestyle": "--"}
            panel.step(steps, curve, where="post", label=mine[0].searcher, **line)
        panel.set(title=group, xlabel="evaluations", ylabel="efficiency, % of the optimum", xscale="log")
        panel.xaxis.set_major_formatter("{x:g}")
        panel.grid(alpha=0.3)
        panel.legend(fontsize="x-small", ncols=2)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _drawn(results: Sequence[Result]) -> list[list[Result]]:
    searches = list(_by_searcher(results))
    others = [mine for mine in searches if not mine[0].ours]
    best = sorted(others, key=lambda mine: statistics.fmean(_means(mine)), reverse=True)[:SHOWN]
    return [mine for mine in searches if mine[0].ours] + best
