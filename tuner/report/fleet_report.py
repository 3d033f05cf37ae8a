"""The table of ``tuner fleet``: answers on the GPUs of a kind, and how they differ."""

from collections.abc import Iterator, Sequence

from rich.console import Group

from tuner.report.layout import GAP, LEAST_WIDTH, ReportLine, lines_of, rendered, table
from tuner.report.words import with_uncertainty
from tuner.search.fleet import OUTLIER, Amount, FleetGroup, GpuAnswer

_NONE = (
    "no workload has answers of two GPUs of a kind here: `tuner run --verify` on another GPU of the kind"
    " gives the second"
)
_SENSORS = "the gain of a GPU's power sensor, which may be some percent off, is in no interval"


def fleet_report(groups: Sequence[FleetGroup], width: int) -> Group:
    """Groups as rich prints them.

    Args:
        groups: of ``tuner.search.fleet.fleet``.
        width: characters of a line, 40 at least.
    """
    width = max(width, LEAST_WIDTH)
    if not groups:
        return rendered(lines_of(_NONE, width))
    lines: list[ReportLine] = []
    for group in groups:
        lines += [*_group(group, width), ReportLine("")]
    return rendered([*lines, *lines_of(f"± is 95 %; {_SENSORS}", width)])


def _group(group: FleetGroup, width: int) -> Iterator[ReportLine]:
    modelled = " (modelled)" if group.modelled else ""
    named = " + ".join(f"{name}, batch {batch:,}" for name, batch in group.workloads.items())
    clocks = "clocks as found" if group.clocks == "off" else f"clocks {group.clocks}"
    yield from lines_of(f"{named} · {group.objective}, {clocks}", width, "bold")
    yield from lines_of(f"{group.model}, driver {group.driver}: {len(group.gpus)} GPUs", width)
    rows = [["GPU", "where", "run", f"time{modelled}", f"energy{modelled}", "answer"], *map(_row, group.gpus)]
    yield from map(ReportLine, table(rows, [""] * len(rows), width, right={2, 3, 4}, indent=GAP))
    spreads = (("time", group.time_spread), ("energy", group.energy_spread))
    told = [
        f"{name} by {100 * spread.value:.1f} ± {100 * spread.interval:.1f} %"
        for name, spread in spreads
        if spread is not None
    ]
    if told:
        yield from lines_of(f"the GPUs differ in {' and in '.join(told)}{modelled}", width)
    named_on = {gpu.uuid: _place(gpu) for gpu in group.gpus}
    for one in group.outliers:
        more = f"{100 * one.excess:.1f} ± {100 * one.interval:.1f} %"
        yield from lines_of(
            f"outlier: {one.uuid} ({named_on[one.uuid]}) needs {more} more joules than the median of the"
            f" others{modelled}; from {100 * OUTLIER:g} % on a GPU is named",
            width,
            "bold",
        )


def _row(gpu: GpuAnswer) -> list[str]:
    how = "refuted: not the best here" if gpu.refuted else "verified" if gpu.verified else "searched"
    return [gpu.uuid, _place(gpu), str(gpu.run), _shown(gpu.time, "s"), _shown(gpu.energy, "J"), how]


def _place(gpu: GpuAnswer) -> str:
    """The host of a GPU and its name there."""
    return f"{gpu.host or 'this host'} {gpu.device}".rstrip()


def _shown(amount: Amount | None, unit: str) -> str:
    return "–" if amount is None else with_uncertainty(amount.value, amount.interval, unit)
