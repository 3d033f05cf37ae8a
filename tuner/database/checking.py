"""What an examination would find, without changing anything."""

import sqlite3
from pathlib import Path

from tuner.database.examination import Examination
from tuner.database.faults import check_database, check_mirror


def check_copies(path: Path) -> Examination:
    """What an examination would find, without changing anything; other processes may go on.

    Args:
        path: of the database.

    Raises:
        StoreError: the files cannot be opened.
    """
    check_database(path)
    trouble = check_mirror(path)
    return Examination(rebuilt=(trouble,) if trouble else ())
