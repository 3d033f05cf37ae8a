"""Files of other tools, told by what is in them."""

from pathlib import Path
from typing import Any, NamedTuple

from tuner.exchange.t1 import is_t1
from tuner.exchange.t4 import is_t4, space_of_t4
from tuner.model.errors import InputError
from tuner.recordings.other_tuners import closed_json, packed_text, read_cache
from tuner.recordings.values import RecordedSpace
from tuner.untrusted.json import load_json

_KNOWN = "a T1 input, T4 results, or a cache of Kernel Tuner"


class ForeignFile(NamedTuple):
    """A file of another tool.

    Attributes:
        kind: ``t1``, or what it is a recording of, in words.
        document: the JSON value.
        space: what it recorded; None of a T1 file.
        cut_off: whether its end was missing and has been added.
    """

    kind: str
    document: Any
    space: RecordedSpace | None
    cut_off: bool = False


def read_foreign(path: Path) -> ForeignFile:
    """Read a file of another tool.

    Raises:
        InputError: it cannot be read, or is none that is known; the message names the key.
    """
    try:
        path.stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        text = packed_text(path)
        document = closed_json(text)
        if is_t1(document):
            return ForeignFile("t1", load_json(text), None)
        if is_t4(document):
            return ForeignFile("T4 results", document, space_of_t4(document, path.name.partition(".")[0]))
    except (ValueError, RecursionError, OverflowError) as error:
        raise InputError(f"{path}: {_KNOWN} is expected: {error}") from error
    if isinstance(document, dict) and "cache" in document:
        return ForeignFile("cache of Kernel Tuner", document, read_cache(path), _is_cut_off(text))
    raise InputError(f"{path}: neither {_KNOWN.replace('a T1', 'T1')}; what it holds is not known")


def _is_cut_off(text: str) -> bool:
    try:
        load_json(text)
    except ValueError:
        return True
    return False
