"""Checks of the values of a recording: each names the key and the valid values."""

import reprlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

from tuner.model.trial import Status

MAX_ROWS = 10_000_000  # a column held once costs nothing in a file, whatever count it claims


_SHORT = reprlib.Repr()  # of the beginning: a whole list may be of megabytes
_SHORT.maxlevel, _SHORT.maxlong = 4, 100
_SHORT.maxlist = _SHORT.maxdict = _SHORT.maxtuple = _SHORT.maxset = _SHORT.maxstring = _SHORT.maxother = 100


class _Same(Sequence[Any]):
    """A column whose rows are all the same: it takes no memory, however many rows a file claims."""

    def __init__(self, value: Any, count: int) -> None:  # noqa: ANN401 - any JSON value
        self._value, self._count = value, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, row: int) -> Any: ...  # noqa: ANN401 - any JSON value
    @overload
    def __getitem__(self, row: slice) -> Sequence[Any]: ...
    def __getitem__(self, row: int | slice) -> Any:
        rows = range(self._count)[row]  # IndexError beyond the end ends an iteration
        return self._value if isinstance(rows, int) else _Same(self._value, len(rows))


class Kind(NamedTuple):
    """A kind of value: what it is called, and which values are of it."""

    words: str
    accepts: Callable[[Any], bool]


def _whole(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    return type(value) is int


def _number(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # no float holds a larger integer


TEXT = Kind("text", lambda value: isinstance(value, str))
NAME = Kind(
    "a text that can be printed", lambda value: isinstance(value, str) and value != "" and value.isprintable()
)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
COUNT = Kind("a whole number, not below zero", lambda value: _whole(value) and value >= 0)
SIZE = Kind("a whole number above zero", lambda value: _whole(value) and value > 0)
NUMBER = Kind("a finite number", _number)
AMOUNT = Kind("a finite number, not below zero", lambda value: _number(value) and value >= 0)
POSITIVE = Kind("a finite number above zero", lambda value: _number(value) and value > 0)
TEXTS = Kind("a list of texts", lambda value: isinstance(value, list) and all(map(TEXT.accepts, value)))
PROBLEM = Kind("a text or a whole number", lambda value: isinstance(value, str) or _whole(value))
VALUE = Kind("a text, a finite number, true or false", lambda v: isinstance(v, str | bool) or _number(v))
STATUS = Kind(
    f"one of {', '.join(status.value for status in Status)}",
    lambda value: value in [status.value for status in Status],
)


def one_of(values: Sequence[Any]) -> Kind:
    """One of these values."""
    return Kind(f"one of {shown(list(values))}", lambda value: value in values)


def place(count: int) -> Kind:
    """A place in a list of so many."""
    return Kind(f"a place from 0 to {count - 1}", lambda value: _whole(value) and 0 <= value < count)


class Fields:
    """The object of a file; its values are checked as they are read, and messages name the key.

    Attributes:
        raw: the object as it is.

    Raises:
        ValueError: it is no object; (any method) a key is missing, or its value is not of the kind.
    """

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, Mapping):
            raise ValueError(f"{where}: expected an object, found {shown(value)}")  # noqa: TRY004 - of a file
        self.raw: Mapping[str, Any] = value
        self.where = where

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __contains__(self, key: str) -> bool:
        return key in self.raw

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - any JSON value
        if key not in self.raw:
            raise ValueError(f"{self.where}: {key} is missing")
        return self.raw[key]

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - any JSON value
        """The value of a key that may be missing."""
        return self.raw.get(key, default)

    def value(self, key: str, kind: Kind, *, optional: bool = False) -> Any:  # noqa: ANN401
        """The value of a key, which must be of a kind (or null where that is allowed)."""
        value = self[key]
        if (value is None and optional) or kind.accepts(value):
            return value
        raise ValueError(f"{self.where}: {key} is {shown(value)}; expected {kind.words}")

    def entries(self, key: str) -> list[Any]:
        """The list of a key."""
        value = self[key]
        if not isinstance(value, list):
            raise ValueError(f"{self.where}: {key} is {shown(value)}; expected a list")  # noqa: TRY004 - of a file
        return value

    def fields(self, key: str, where: str = "") -> "Fields":
        """The object of a key; ``where`` is what messages call it, if not the key of this one."""
        value = self[key]
        if not isinstance(value, Mapping):
            raise ValueError(f"{self.where}: {key} is {shown(value)}; expected an object")  # noqa: TRY004 - of a file
        return Fields(value, where or f"{self.where}.{key}")

    def column(self, key: str, count: int, kind: Kind, *, optional: bool = False) -> Sequence[Any]:
        """The column of a key: a value per row."""
        values = self[key]
        if isinstance(values, Mapping):
            return _Same(self.fields(key).value("all", kind, optional=optional), count)
        if not isinstance(values, list) or len(values) != count:
            actual = f"{len(values)} values" if isinstance(values, list) else shown(values)
            raise ValueError(f"{self.where}: {key} has {actual} for {count} rows")
        for row, value in enumerate(values):
            if not (kind.accepts(value) or (optional and value is None)):
                raise ValueError(f"{self.where}: {key}[{row}] is {shown(value)}; expected {kind.words}")
        return values


def shown(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """A value as a message shows it: short."""
    text = _SHORT.repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - characters of a line
