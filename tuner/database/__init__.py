"""What outlives a process: runs and trials, jobs and their events, in one SQLite file and its mirror."""

from tuner.database.connection import Database, default_path, holds_something
from tuner.database.faults import BUSY_TIMEOUT_S
from tuner.database.integrity.check import check_copies
from tuner.database.integrity.examination import Examination, IsolatedRow, Position, RowRepair
from tuner.database.jobs import Jobs
from tuner.database.ledger import Ledger
from tuner.database.migrations import MIGRATIONS
from tuner.database.runs import RESUMABLE, Store, workload_key
from tuner.model.records import StoredRun

__all__ = [
    "BUSY_TIMEOUT_S",
    "MIGRATIONS",
    "RESUMABLE",
    "Database",
    "Examination",
    "IsolatedRow",
    "Jobs",
    "Ledger",
    "Position",
    "RowRepair",
    "Store",
    "StoredRun",
    "check_copies",
    "default_path",
    "holds_something",
    "workload_key",
]
