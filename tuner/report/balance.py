"""What ``tuner run --balance`` prints: solo times before and after, and the command that uses them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tuner.model.plan import shown_values
from tuner.report.layout import ReportLine, lines_of, table
from tuner.report.trials_table import interval
from tuner.report.words import label, significant, with_uncertainty

_INDENT = "  "


def balance_lines(document: Mapping[str, Any], command: str, width: int) -> Iterator[ReportLine]:
    """The lines of a balance.

    Args:
        document: see ``tuner.search.together.balance_document``.
        command: that tunes what is proposed.
        width: characters of a line.
    """
    proposed, most = document["proposed"], document["most_apart"]
    yield from _times(document, document["workloads"], document["apart"], "solo times as asked for", width)
    if proposed is not None:
        yield ReportLine("")
        title = "solo times as proposed"
        yield from _times(document, proposed, document["proposed_apart"], title, width)
    yield ReportLine("")
    if proposed is None and document["balanced"]:
        yield from lines_of(f"solo times are within a factor of {most:g}: there is nothing to balance", width)
    for sentence in document["advice"]:
        yield from lines_of(f"not within a factor of {most:g}: {sentence}", width, "yellow")
    if proposed is not None:
        yield from lines_of(f"{'use' if document['balanced'] else 'nearest'}: {command}", width)


def _times(
    document: Mapping[str, Any],
    workloads: Sequence[Mapping[str, Any]],
    apart: float,
    title: str,
    width: int,
) -> Iterator[ReportLine]:
    """A table of workloads under its title."""
    words = label(document)
    mark = f"{words}; " if words else ""
    yield from lines_of(
        f"{title} ({mark}± is 95 %): the longest is {significant(apart, 3)} times the shortest", width
    )
    rows = [["workload", "batch", "alone", "from"]]
    for one in workloads:
        time = with_uncertainty(one["time_s"], interval(one["time_s_uncertainty"]), "s")
        origin = "default" if one["run"] is None else f"run {one['run']}"
        rows.append([one["name"], f"{one['batch']:,}", time, origin])
    notes = ["configuration", *(shown_values(one["configuration"]) for one in workloads)]
    head, *lines = table(rows, notes, width, right={1, 2}, indent=_INDENT)
    yield ReportLine(head, "dim")
    yield from map(ReportLine, lines)
