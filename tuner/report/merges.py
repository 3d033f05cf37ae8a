"""What a merge of databases did, in sentences."""

from collections.abc import Iterator

from tuner.database.merging import MergeReport
from tuner.model.records import RunStatus


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def merge_lines(report: MergeReport, source: str) -> Iterator[str]:
    """Sentences for people.

    Args:
        report: of the merge.
        source: where the runs are from.
    """
    added = f"{_counted(report.runs_added, 'run')} added, with {_counted(report.trials_added, 'trial')}"
    yield f"{source}: {added}; {_counted(report.runs_known, 'run')} known already"
    if report.runs_unfinished:
        of_each = ", ".join(f"{count:,} {status}" for status, count in report.unfinished.items())
        how = (
            "; --limited takes what a limit has ended" if RunStatus.LIMITED.value in report.unfinished else ""
        )
        yield f"{_counted(report.runs_unfinished, 'run')} left out: no finished search ({of_each}){how}"
    yield from (f"left out: {why}" for why in report.refused)
    if more := report.runs_refused - len(report.refused):
        yield f"left out: {_counted(more, 'more run')}, damaged or not understood"
