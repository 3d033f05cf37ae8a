"""Runs of another database file taken over.

Taken over are finished runs with all their trials. Others may be gone on with where they were measured, and
would then be there twice. A run is known by its content key, so that merging a file again, or the same run by
way of another host, adds nothing. It gets the next number here, and counts as begun and ended in the
transaction that stores it: clocks of hosts are never compared.

Runs are checked outside of transactions and stored some at a time, so that other processes wait milliseconds.
A merge that is killed leaves whole runs; the next one adds what is missing.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tuner.database.connection import Database
from tuner.database.files import now
from tuner.database.integrity.checksums import literal_checksum, verified
from tuner.database.merge_source import LONGEST_NAME, IncomingRun, MergeSource, RefusedRun
from tuner.database.run_content import RUN_COLUMNS, TRIAL_COLUMNS, content_key, literal
from tuner.database.runs import ADD_TRIAL, NEXT_RUN, workload_key
from tuner.database.transaction import Transaction
from tuner.model.records import fingerprint

_LOG = logging.getLogger(__name__)
_BATCH_BYTES = 4 * 2**20  # of a transaction: a tenth of a second
_MOST_NAMED = 100  # refused runs

_KNOWN = f"SELECT 1 FROM merged WHERE content = ? AND {verified('merged')}"  # noqa: S608 - constant text
_ALIKE = (
    f"SELECT id, {', '.join(RUN_COLUMNS)} FROM runs"  # noqa: S608 - constant text
    " WHERE fingerprint = ? AND started_at = ? AND ended_at = ?"
    f" AND id NOT IN (SELECT run_id FROM merged) AND {verified('runs')} ORDER BY id"
)
_TRIALS = (
    f"SELECT {', '.join(TRIAL_COLUMNS)} FROM trials"  # noqa: S608 - constant text
    f" WHERE run_id = ? AND {verified('trials')} ORDER BY number"
)
_ADD_RUN = (
    "INSERT INTO runs (id, fingerprint, workload_key, device_uuid, owner, began, ended,"  # noqa: S608
    f" {', '.join(RUN_COLUMNS)}) VALUES ({NEXT_RUN}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ADD_ORIGIN = "INSERT INTO merged (run_id, content, source, identity, number, at) VALUES (?, ?, ?, ?, ?, ?)"


@dataclass
class MergeReport:
    """What a merge did.

    Attributes:
        runs_added: runs that are here now, and were not.
        runs_known: runs that were here already.
        runs_unfinished: runs that were left out as they are not finished.
        unfinished: how many of them have each status.
        runs_refused: runs that were left out as they are damaged or not understood.
        trials_added: of the runs that were added.
        newest_run: number here of the last run that was added; None where none was.
        refused: why runs were refused, a sentence each; of very many, the first.
    """

    runs_added: int = 0
    runs_known: int = 0
    runs_unfinished: int = 0
    unfinished: dict[str, int] = field(default_factory=dict)
    runs_refused: int = 0
    trials_added: int = 0
    newest_run: int | None = None
    refused: list[str] = field(default_factory=list)


def merge_file(database: Database, path: Path, *, source: str = "", limited: bool = False) -> MergeReport:
    """Take over the finished runs of another database file that are not here yet.

    Args:
        database: to add them to, open.
        path: of the file, of this version or an earlier one; it is not changed.
        source: where the file is from, as messages and the provenance of its runs say; empty for its path.
        limited: take over runs that a budget or a time limit has ended too, as nobody else can go on with
            them.

    Raises:
        InputError: it is no database of this program, of a newer version, damaged as a whole, or too large.
        StoreError: one of the databases cannot be used; what was stored before stays.
    """
    report = MergeReport()
    with MergeSource(path, source, limited=limited) as incoming:
        merger = _Merger(database, source or str(path), incoming.identity)
        for batch in _batches(incoming, report):
            merger.add(batch, report)
    return report


def _batches(incoming: MergeSource, report: MergeReport) -> Iterator[list[IncomingRun]]:
    """Runs that may be stored, as many at a time as a transaction takes."""
    batch: list[IncomingRun] = []
    size = 0
    for one in incoming.runs():
        if isinstance(one, RefusedRun):
            _note(one, report)
            continue
        batch.append(one)
        size += one.size_bytes
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _note(refused: RefusedRun, report: MergeReport) -> None:
    if not refused.why:
        report.runs_unfinished += 1
        report.unfinished[refused.status] = report.unfinished.get(refused.status, 0) + 1
        return
    report.runs_refused += 1
    if len(report.refused) < _MOST_NAMED:
        report.refused.append(refused.why)


class _Merger:
    """Stores runs of one file.

    Args:
        database: to add them to.
        source: where the file is from.
        identity: of the database that the file is of.
    """

    def __init__(self, database: Database, source: str, identity: str) -> None:
        self._database = database
        self._source = source[:LONGEST_NAME]
        self._identity = identity

    def add(self, batch: list[IncomingRun], report: MergeReport) -> None:
        """Store the runs of a batch that are not here, in one transaction."""
        unknown = self._database.read(lambda view: [one for one in batch if not _is_known(view, one)])
        added = self._database.write(partial(self._add, unknown)) if unknown else {}
        report.runs_known += len(batch) - len(added)
        report.runs_added += len(added)
        report.trials_added += sum(len(one.trials) for one in added.values())
        report.newest_run = max(added, default=report.newest_run)

    def _add(self, runs: list[IncomingRun], transaction: Transaction) -> dict[int, IncomingRun]:
        """The runs that were added, by their numbers here."""
        added = {}
        for one in runs:
            if transaction.row(_KNOWN, (one.key,)) is None:  # another merge may run beside
                added[self._add_one(one, transaction)] = one
        return added

    def _add_one(self, one: IncomingRun, transaction: Transaction) -> int:
        run, conditions = one.run, one.run.conditions
        version = transaction.writes()
        names = [name for name, _ in conditions["workloads"]]
        number = transaction.insert(
            _ADD_RUN,
            (
                *(fingerprint(conditions), workload_key(names), conditions["device"]["uuid"], run.owner),
                *(version, version, *one.columns),
            ),
        )
        trials = [
            (number, *trial, version, literal_checksum("trials", f"({number}, {text}, {version})"))
            for trial, text in zip(one.trials, one.literals, strict=True)
        ]
        transaction.execute_many_ascii(ADD_TRIAL, trials)
        origin = run.origin
        first = (self._identity, run.id) if origin is None else (origin.identity, origin.number)
        transaction.insert(_ADD_ORIGIN, (number, one.key, self._source, *first, now()))
        return number


def _is_known(view: Transaction, one: IncomingRun) -> bool:
    """True where a run was merged before, or was measured for this database."""
    if view.row(_KNOWN, (one.key,)) is not None:
        return True
    run = one.run
    alike = view.rows(_ALIKE, (fingerprint(run.conditions), run.started_at, run.ended_at))
    return any(content_key(own[1:], map(literal, view.rows(_TRIALS, own[:1]))) == one.key for own in alike)
