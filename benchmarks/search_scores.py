"""What searches are worth: efficiencies after some evaluations, tables and a picture."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from search_games import Play

LEVELS = (0.90, 0.98)  # shares of the optimum whose evaluations are counted
SHOWN = 6  # spaces in a table, and other searches in a picture
LISTED = 3  # with so many spaces or fewer their counts are listed, with more the median is given


@dataclass(frozen=True)
class Result:
    """All searches of one kind over one space.

    Attributes:
        space: name of the space.
        group: its group.
        size: its configurations.
        optimum_s: its shortest time.
        searcher: policy or strategy.
        ours: a policy of this project.
        plays: one per seed.
        budgets: evaluations after which it is scored; the largest is what it was allowed.
    """

    space: str
    group: str
    size: int
    optimum_s: float
    searcher: str
    ours: bool
    plays: tuple[Play, ...]
    budgets: tuple[int, ...]

    @property
    def budget(self) -> int:
        """Evaluations allowed."""
        return max(self.budgets)

    def efficiency(self, evaluations: int) -> float:
        """Median over seeds of optimum / best found after so many evaluations."""
        return statistics.median(self._efficiencies(evaluations))

    def mean(self, evaluations: int) -> float:
        """The same, its mean over seeds."""
        return statistics.fmean(self._efficiencies(evaluations))

    def worst_tenth(self, evaluations: int) -> float:
        """The same, what nine of ten seeds reach."""
        return float(np.quantile(self._efficiencies(evaluations), 0.1))

    def _efficiencies(self, evaluations: int) -> list[float]:
        return [efficiency(play, self.optimum_s, evaluations) for play in self.plays]

    def evaluations_to(self, level: float) -> float:
        """Median over seeds of the evaluations that reached a share of the optimum; infinity for never."""
        return statistics.median_low(reached(play, self.optimum_s, level) for play in self.plays)

    @property
    def search_ms(self) -> tuple[float, float] | None:
        """Median over seeds of the median and of the mean CPU time per evaluation."""
        found = [play.search_ms for play in self.plays if play.search_ms is not None]
        if not found:
            return None
        return statistics.median(m for m, _ in found), statistics.median(mean for _, mean in found)


def efficiency(play: Play, optimum_s: float, evaluations: int) -> float:
    """Optimum / best found after so many evaluations; 0 while nothing has worked."""
    best = [time_s for number, time_s in play.best if number <= evaluations]
    return optimum_s / best[-1] if best else 0.0


def reached(play: Play, optimum_s: float, level: float) -> float:
    """The evaluation at which the best reached a share of the optimum; infinity for never."""
    return next((number for number, time_s in play.best if optimum_s / time_s >= level), math.inf)


def row_of(result: Result) -> dict[str, Any]:
    """A result for JSON: scores, and of every seed where its best changed: [evaluations, efficiency in %]."""
    return {
        "space": result.space,
        "group": result.group,
        "configurations": result.size,
        "optimum_ms": result.optimum_s * 1e3,
        "search": result.searcher,
        "ours": result.ours,
        "budgets": result.budgets,
        "efficiency": {str(n): round(result.efficiency(n), 4) for n in result.budgets},
        "mean": {str(n): round(result.mean(n), 4) for n in result.budgets},
        "worst_tenth": {str(n): round(result.worst_tenth(n), 4) for n in result.budgets},
        "evaluations_to": {str(level): _finite(result.evaluations_to(level)) for level in LEVELS},
        "seeds": [
            {
                "evaluations": play.evaluations,
                **({"failed": play.failed} if play.failed else {}),
                "best": [[n, round(100 * result.optimum_s / time_s, 2)] for n, time_s in play.best],
                "search_ms": play.search_ms,
                **({"error": play.error} if play.error else {}),
            }
            for play in result.plays
        ],
    }


def result_of(row: Mapping[str, Any]) -> Result:
    """A result from JSON, as ``row_of`` gives it."""
    optimum_s = row["optimum_ms"] / 1e3
    plays = tuple(
        Play(
            seed=seed,
            evaluations=one["evaluations"],
            failed=one.get("failed", 0),
            best=tuple((n, optimum_s / (percent / 100)) for n, percent in one["best"]),
            search_ms=None if one["search_ms"] is None else (one["search_ms"][0], one["search_ms"][1]),
            error=one.get("error", ""),
        )
        for seed, one in enumerate(row["seeds"])
    )
    return Result(
        space=row["space"],
        group=row["group"],
        size=row["configurations"],
        optimum_s=optimum_s,
        searcher=row["search"],
        ours=row["ours"],
        plays=plays,
        budgets=tuple(row["budgets"]),
    )


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def tables(results: Sequence[Result]) -> str:
    """Markdown: a table per group and one with every space; where those are many, groups by search alone."""
    started = [result for result in results if any(play.evaluations for play in result.plays)]
    parts = []
    if len({result.space for result in started}) <= SHOWN:
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
    idle = {r.searcher: r.plays[0].error for r in results if not any(play.evaluations for play in r.plays)}
    parts += [f"{searcher} did not start: `{error}`" for searcher, error in idle.items()]
    return "\n\n".join(filter(None, parts)) + "\n"


def brief(results: Sequence[Result]) -> str:
    """Markdown for a page: our searches and the best others of each group, no remarks, no single spaces."""
    started = [result for result in results if any(play.evaluations for play in result.plays)]
    if len({result.space for result in started}) > SHOWN:
        drawn = [result for mine in _drawn(started) for result in mine]
        return f"**efficiency** after {_after(started)}\n\n{_overview(drawn, 'group', _cell)}\n"
    parts = []
    for group in dict.fromkeys(result.group for result in started):
        mine = [result for one in _drawn([r for r in started if r.group == group]) for result in one]
        parts += [f"**{group}**, {_counted(len({r.space for r in mine}), 'space')}", _table(mine)]
    return "\n\n".join(parts) + "\n"


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
            str(max(len(r.plays) for r in mine)),
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
    return [100 * statistics.fmean(of(r, n) for r in results) for n in results[0].budgets]


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
        plays = [(play, min(r.budget, r.size)) for r in mine for play in r.plays]
        broken = [play.error for play, _ in plays if play.error]
        if broken:
            what = f"{len(broken)} of {len(plays)} searches broke off ({_commonest(broken)})"
            lines.append(f"- {_label(mine[0])}: {what}")
        early = [play.evaluations for play, allowed in plays if not play.error and play.evaluations < allowed]
        if early:
            median = _counted(statistics.median_low(early), "evaluation")
            what = f"{len(early)} of {len(plays)} searches ended by themselves, median {median}"
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
