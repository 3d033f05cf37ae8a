"""What a merge of databases did, in sentences."""

from collections.abc import Iterator

from tuner.database.merging import MergeReport


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
        count = _counted(report.runs_unfinished, "run")
        yield f"{count} left out: no finished search (running, failed, ended early, or by a limit: --limited)"
    if report.runs_refused:
        yield f"{_counted(report.runs_refused, 'run')} left out: damaged or not understood"
