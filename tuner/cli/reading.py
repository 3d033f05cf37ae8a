"""The database of commands that only look."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import InputError

if TYPE_CHECKING:
    from tuner.database import Store


@contextlib.contextmanager
def reading(database: Path | None) -> Iterator["Store | None"]:
    """The store; None where nothing was stored yet: a question makes no file.

    Args:
        database: as named; None for the default, which need not be there.

    Raises:
        InputError: nothing is in the file that was named.
    """
    if is_stored(database):
        from tuner.database import Store

        with Store(database) as store:
            yield store
    else:
        yield None


def is_stored(database: Path | None) -> bool:
    """Whether there is a database.

    Raises:
        InputError: nothing is in the file that was named.
    """
    from tuner.database import holds_something

    found = holds_something(database)
    if not found and database is not None:
        raise InputError(f"--database {database}: no results are there; name the file that `tuner run` wrote")
    return found
