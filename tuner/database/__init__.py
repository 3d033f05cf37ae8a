"""What outlives a process: runs and trials, jobs and their events, in one SQLite file."""

from tuner.database.runs import (
    BUSY_TIMEOUT_S,
    MIGRATIONS,
    RESUMABLE,
    Store,
    StoredRun,
    default_path,
    workload_key,
)

__all__ = [
    "BUSY_TIMEOUT_S",
    "MIGRATIONS",
    "RESUMABLE",
    "Store",
    "StoredRun",
    "default_path",
    "workload_key",
]
