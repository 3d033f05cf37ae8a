"""What searches are worth: efficiencies after some evaluations, tables and a picture."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from search_plays import Play

LEVELS = (0.90, 0.98)  # shares of the optimum whose evaluations are counted
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
        budget: evaluations allowed.
    """

    space: str
    group: str
    size: int
    optimum_s: float
    searcher: str
    ours: bool
    plays: tuple[Play, ...]
    budget: int

    def efficiency(self, evaluations: int) -> float:
        """Median over seeds of optimum / best found after so many evaluations."""
        return statistics.median(efficiency(play, self.optimum_s, evaluations) for play in self.plays)

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


def tables(results: Sequence[Result], budgets: Sequence[int]) -> str:
    """Markdown: one table per group, means over its spaces; one with every space; and what did not start."""
    started = [result for result in results if any(play.evaluations for play in result.plays)]
    groups = list(dict.fromkeys(result.group for result in started))
    parts = []
    for group in groups:
        mine = [result for result in started if result.group == group]
        parts.append(
            f"**{group}**, {_counted(len({r.space for r in mine}), 'space')}\n\n{_table(mine, budgets)}"
        )
    parts.append(f"**every space**\n\n{_by_space(started, budgets)}")
    idle = {r.searcher: r.plays[0].error for r in results if not any(play.evaluations for play in r.plays)}
    parts += [f"{searcher} did not start: {error}" for searcher, error in idle.items()]
    return "\n\n".join(parts) + "\n"


def _table(results: Sequence[Result], budgets: Sequence[int]) -> str:
    numbers = " | ".join(map(str, budgets))
    lines = [
        f"| search | seeds | {numbers} | to 90 % | to 98 % | CPU ms per evaluation | notes |",
        f"|---|{'---:|' * (len(budgets) + 1)}---|---|---|---|",
    ]
    for mine in _by_searcher(results):
        means = [100 * statistics.fmean(r.efficiency(n) for r in mine) for n in budgets]
        cells = [
            _label(mine[0]),
            str(max(len(r.plays) for r in mine)),
            *(f"{mean:.1f}" for mean in means),
            *(_evaluations(mine, level) for level in LEVELS),
            _search_time(mine),
            "; ".join(_remarks(mine)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_space(results: Sequence[Result], budgets: Sequence[int]) -> str:
    spaces = list(dict.fromkeys(result.space for result in results))
    lines = [f"| search | {' | '.join(spaces)} |", f"|---|{'---|' * len(spaces)}"]
    for mine in _by_searcher(results):
        found = {r.space: "/".join(f"{100 * r.efficiency(n):.0f}" for n in budgets) for r in mine}
        lines.append(f"| {_label(mine[0])} | {' | '.join(found.get(space, '–') for space in spaces)} |")
    return "\n".join(lines)


def _by_searcher(results: Sequence[Result]) -> Iterator[list[Result]]:
    for searcher in dict.fromkeys((r.ours, r.searcher) for r in results):
        yield [r for r in results if (r.ours, r.searcher) == searcher]


def _label(result: Result) -> str:
    return f"**{result.searcher}**" if result.ours else result.searcher


def _evaluations(results: Sequence[Result], level: float) -> str:
    counts = [result.evaluations_to(level) for result in results]
    if len(counts) > LISTED:
        counts = [statistics.median_low(counts)]
    return ", ".join(f"> {results[0].budget}" if math.isinf(n) else f"{n:.0f}" for n in counts)


def _search_time(results: Sequence[Result]) -> str:
    found = [result.search_ms for result in results if result.search_ms is not None]
    if not found:
        return "all at once"
    medians, means = zip(*found, strict=True)
    return f"{statistics.median(medians):.2g} (mean {statistics.median(means):.2g})"


def _remarks(results: Sequence[Result]) -> list[str]:
    """What a reader must know: crashes, and searches that ended before the budget was used up."""
    plays = [(play, min(r.budget, r.size)) for r in results for play in r.plays]
    crashed = [play.error for play, _ in plays if play.error]
    found = []
    if crashed:
        found.append(f"{len(crashed)} of {len(plays)} broke off ({_commonest(crashed)})")
    early = [play.evaluations for play, allowed in plays if not play.error and play.evaluations < allowed]
    if early:
        median = statistics.median_low(early)
        found.append(
            f"{len(early)} of {len(plays)} ended by themselves, median {_counted(median, 'evaluation')}"
        )
    return found


def _commonest(texts: Sequence[str]) -> str:
    return max(dict.fromkeys(texts), key=texts.count)


def _counted(count: float, what: str) -> str:
    return f"{count:.0f} {what}{'' if count == 1 else 's'}"


def plot(results: Sequence[Result], path: Path) -> None:
    """Efficiency over evaluations, one panel per group: medians over seeds, means over spaces."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the back end is chosen

    groups = list(dict.fromkeys(result.group for result in results))
    figure, panels = plt.subplots(
        1, len(groups), figsize=(6.5 * len(groups), 4.5), squeeze=False, layout="constrained"
    )
    for group, panel in zip(groups, panels[0], strict=True):
        mine = [result for result in results if result.group == group]
        steps = np.arange(1, max(r.budget for r in mine) + 1)
        for same in _by_searcher(mine):
            curve = [100 * statistics.fmean(r.efficiency(int(n)) for r in same) for n in steps]
            width, line = (2.0, "-") if same[0].ours else (1.0, "--")
            panel.plot(steps, curve, line, linewidth=width, label=same[0].searcher)
        panel.set(title=group, xlabel="evaluations", ylabel="efficiency, % of the optimum", xscale="log")
        panel.grid(alpha=0.3)
        panel.legend(fontsize="x-small", ncols=2)
    figure.savefig(path)
    plt.close(figure)
