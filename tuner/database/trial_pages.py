"""Trials of a run, a page at a time."""

from collections.abc import Sequence

from tuner.database import decoding
from tuner.database.connection import Database
from tuner.database.decoding import NotUnderstood
from tuner.database.integrity.checksums import verified
from tuner.model.records import StoredTrial

_PAGE = (
    "SELECT number, trial, measurement, confirmed, ended_at FROM trials"  # noqa: S608 - constant text
    f" WHERE run_id = ? AND number > ? AND {verified('trials')} ORDER BY number LIMIT ?"
)

_FAILED = (
    "SELECT count(*) FROM trials WHERE run_id = ? AND status <> 'ok'"  # noqa: S608 - constant text
    f" AND {verified('trials')}"
)


def trials_page(
    database: Database, run_id: int, names: Sequence[str], *, after: int = 0, limit: int
) -> tuple[list[StoredTrial], int | None]:
    """Trials of a run in their order; what is not understood is left out.

    Args:
        database: that has them.
        run_id: number of the run.
        names: its workloads.
        after: only trials of higher numbers.
        limit: so many at most.

    Returns:
        The trials, and the number after which the next page begins; None after the last page.

    Raises:
        StoreError: the database cannot be used just now.
    """
    rows = database.read(lambda view: view.rows(_PAGE, (run_id, after, limit)))
    found = []
    for number, settings, measured, again, ended_at in rows:
        searched = decoding.trial(run_id, number, (settings, measured), names)
        known = searched if again is None else decoding.trial(run_id, number, (settings, again), names)
        if not isinstance(searched, NotUnderstood) and not isinstance(known, NotUnderstood):
            found.append(StoredTrial(number, *searched, known[1], ended_at))
    return found, rows[-1][0] if len(rows) == limit else None


def failed_trials(database: Database, run_id: int) -> int:
    """How many trials of a run are not ok.

    Raises:
        StoreError: the database cannot be used just now.
    """
    found = database.read(lambda view: view.row(_FAILED, (run_id,)))
    return 0 if found is None else int(found[0])
