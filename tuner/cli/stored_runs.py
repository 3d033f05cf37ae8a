"""Runs that commands take: a number of the database, or a document that ``tuner run --json`` wrote."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.db import reading
from tuner.model.errors import InputError
from tuner.untrusted.files import read_bytes
from tuner.untrusted.json import load_json
from tuner.untrusted.limits import JSON_BYTES

if TYPE_CHECKING:
    from tuner.database.runs import Store
    from tuner.model.records import StoredRun
    from tuner.model.run_document import RunDocument


_LARGEST = 2**63 - 1  # number that SQLite can look for
_PAGE = 50  # runs that are read at a time


def document_of(name: str | None, database: Path | None, *, with_series: bool = False) -> "RunDocument":
    """The document of a run, with its trials as far as they are known.

    Args:
        name: a number of ``tuner history``, or a file; None for the newest run.
        database: as named; None for the default.
        with_series: of a stored run, its trials with what ``tuner.search.trial_series`` adds.

    Raises:
        InputError: there is no such run, or the file holds no document of a run.
    """
    if name is None or name.isdecimal():
        return _stored(None if name is None else int(name), database, with_series=with_series)
    path = Path(name)
    if not path.is_file():
        raise InputError(f"{name}: neither the number of a run (`tuner history`) nor a file")
    return _read(path)


def newest_answered(database: Path | None, *, alone: bool = False) -> str:
    """The number of the newest run with an answer.

    Args:
        database: as named; None for the default.
        alone: of the runs of one workload only.

    Raises:
        InputError: there is none.
    """
    with reading(database) as store:
        for run in () if store is None else _answered(store):
            if not alone or len(run.conditions["workloads"]) == 1:
                return str(run.id)
    which = "no run of one workload with an answer" if alone else "no run with an answer"
    raise InputError(f"{which} is stored; `tuner history` lists the runs")


def _answered(store: "Store") -> "Iterator[StoredRun]":
    """Runs with an answer, newest first."""
    before: int | None = None
    while page := store.page(_PAGE, before, answered=True):
        yield from page
        before = page[-1].id


def _stored(number: int | None, database: Path | None, *, with_series: bool) -> "RunDocument":
    from tuner.search.stored import stored_document

    with reading(database) as store:
        found = None
        if store is not None:
            if number is None:
                found = next(iter(store.history(1)), None)
            else:
                found = store.run(number) if number <= _LARGEST else None
        if store is None or found is None:
            what = "no run is stored" if number is None else f"run {number}: there is no such run"
            raise InputError(f"{what}; `tuner history` lists the runs")
        return stored_document(store, found, with_series=with_series)


def _read(path: Path) -> "RunDocument":
    from tuner.model.run_document import run_document
    from tuner.model.typed import UnfitError

    try:
        document = load_json(read_bytes(path, JSON_BYTES))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})") from None
    try:
        return run_document({"modelled": False, **document} if isinstance(document, dict) else document)
    except UnfitError as error:
        raise InputError(f"{path}: not a document of `tuner run --json`: {error}") from None


def title_of(document: "RunDocument", name: str | None) -> str:
    """How a document is called in a comparison: the run's number, or the file."""
    return f"run {document['run']}" if name is None or name.isdecimal() else name
