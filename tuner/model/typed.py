"""JSON values checked by their types, numbers held to bounds; their digests, and files sealed by one."""

import hashlib
import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from tuner.model.trial import Flag
from tuner.model.units import WIDEST

LARGEST = 2**63
"""Whole numbers are smaller, where they are no counts: SQLite keeps these."""
_DEEPEST = 32  # what this program writes has seven levels
_SHOWN = 40  # characters of a wrong value

Check = Callable[[Any, str], Any]


class UnfitError(ValueError):
    """A value is not what its type says; the message names where it is, and what would be right."""


def document(text: object) -> dict[str, Any]:
    """The object of a JSON text, whose numbers are finite and whose levels are few.

    Raises:
        UnfitError: it is none.
    """
    if not isinstance(text, str):
        raise UnfitError(f"it is {_kind(text)}, not a text")
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise UnfitError(f"it has more than {_DEEPEST} levels") from error
    except ValueError as error:
        raise UnfitError(f"it is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise UnfitError(f"it is {_kind(value)}, not an object")
    _plain(value, _DEEPEST)
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise UnfitError("a text in it has half of a character") from error
    return value


def _plain(value: object, levels: int) -> None:
    """Raise UnfitError for a number that is not finite or too large, and for too many levels."""
    if isinstance(value, dict | list):
        if not levels:
            raise UnfitError(f"it has more than {_DEEPEST} levels")
        for inner in value.values() if isinstance(value, dict) else value:
            _plain(inner, levels - 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise UnfitError(f"a number in it is {value}")
    elif isinstance(value, int) and abs(value) > WIDEST:
        raise UnfitError("a number in it has too many digits")


def typed(kind: Any, value: object, where: str = "") -> Any:  # noqa: ANN401 - what the type says
    """A value as a type has it: dataclasses of objects, enumerations of their values, tuples of lists.

    Args:
        kind: a dataclass, a TypedDict, an enumeration, texts to choose from, bool, int, float, str, Any, an
            object of one, or a list of them.
        value: what JSON has; every field of a dataclass without a default is there, and no other. An object
            of a TypedDict may have others.
        where: what it is, for the message.

    Raises:
        UnfitError: it does not fit.
    """
    return _check_of(kind)(value, where)


@cache
def _check_of(kind: Any) -> Check:  # noqa: ANN401, PLR0911 - a type; one return for each form of one
    origin, inner = get_origin(kind), get_args(kind)
    if origin is not None:
        return _composed(origin, inner)
    if kind is Any:
        return lambda value, _: value
    if is_typeddict(kind):
        return _document_of(kind)
    if kind is Flag:
        return lambda value, where: Flag.parse(_plain_kind(value, str, where))
    if is_dataclass(kind):
        return _record_of(kind)
    if issubclass(kind, Enum):
        return _member_of({member.value: member for member in kind})
    if kind is float:
        return _number
    return lambda value, where: _plain_kind(value, kind, where)


def _composed(origin: Any, inner: tuple[Any, ...]) -> Check:  # noqa: ANN401 - as above
    if origin in (Union, UnionType):
        return _one_of(inner)
    if origin is Annotated:
        return _at_least(*inner)
    if origin is Literal:
        return _member_of({each: each for each in inner})
    if origin is list:
        return _list_of(inner[0], list)
    if origin is tuple:
        return _list_of(inner[0]) if inner[1:] == (...,) else _fixed(inner)
    return _object_of(inner[1])


def _plain_kind(value: Any, kind: type, where: str) -> Any:  # noqa: ANN401 - of that type
    if type(value) is not kind:
        raise UnfitError(f"{where} is {_told(value)}, not {_WORDS.get(kind, kind.__name__)}")
    if isinstance(value, int) and abs(value) >= LARGEST:
        raise UnfitError(f"{where} has too many digits")
    return value


_WORDS = {str: "a text", int: "a whole number", bool: "true or false", NoneType: "null"}


def _number(value: Any, where: str) -> float | int:  # noqa: ANN401 - whatever JSON has
    if type(value) not in (float, int) or not abs(value) < math.inf:
        raise UnfitError(f"{where} is {_told(value)}, not a finite number")
    if type(value) is int and abs(value) >= LARGEST:
        raise UnfitError(f"{where} has too many digits")
    return value  # type: ignore[no-any-return]


def _one_of(kinds: tuple[Any, ...]) -> Check:
    checks = [_check_of(kind) for kind in kinds if kind is not NoneType]
    optional = NoneType in kinds

    def check(value: Any, where: str) -> Any:  # noqa: ANN401 - whatever JSON has
        if value is None and optional:
            return None
        for each in checks[:-1]:
            try:
                return each(value, where)
            except UnfitError:  # noqa: PERF203 - two or three turns
                continue
        return checks[-1](value, where)

    return check


def _at_least(kind: type, least: float) -> Check:
    name = "a whole number" if kind is int else "a finite number"

    def check(value: Any, where: str) -> float:  # noqa: ANN401 - whatever JSON has
        if type(value) not in (kind, int) or not abs(value) < math.inf:
            raise UnfitError(f"{where} is {_told(value)}, not {name}")
        if value < least:
            raise UnfitError(f"{where} is {_cut(value)}, less than {least:g}")
        if value and not 1 / WIDEST <= abs(value) <= WIDEST:
            raise UnfitError(f"{where} is {_cut(value)}, not of a size that was ever measured")
        return value  # type: ignore[no-any-return]

    return check


def _list_of(kind: Any, collect: type[Any] = tuple) -> Check:  # noqa: ANN401 - a type
    inner = _check_of(kind)

    def check(value: Any, where: str) -> Any:  # noqa: ANN401 - whatever JSON has
        if not isinstance(value, list | tuple):
            raise UnfitError(f"{where} is {_told(value)}, not a list")
        return collect(inner(element, f"{where}[{i}]") for i, element in enumerate(value))

    return check


def _fixed(kinds: tuple[Any, ...]) -> Check:
    checks = [_check_of(kind) for kind in kinds]

    def check(value: Any, where: str) -> tuple[Any, ...]:  # noqa: ANN401 - whatever JSON has
        if not isinstance(value, list | tuple) or len(value) != len(checks):
            raise UnfitError(f"{where} is {_told(value)}, not a list of {len(checks)}")
        return tuple(inner(element, where) for inner, element in zip(checks, value, strict=True))

    return check


def _object_of(kind: Any) -> Check:  # noqa: ANN401 - a type
    inner = _check_of(kind)

    def check(value: Any, where: str) -> dict[str, Any]:  # noqa: ANN401 - whatever JSON has
        if not isinstance(value, dict):
            raise UnfitError(f"{where} is {_told(value)}, not an object")
        return {name: inner(member, f"{where}.{name}") for name, member in value.items()}

    return check


def _member_of(members: dict[str, Any]) -> Check:
    def check(value: Any, where: str) -> Any:  # noqa: ANN401 - whatever JSON has
        if not isinstance(value, str) or value not in members:
            raise UnfitError(f"{where} is {_told(value)}, not one of {', '.join(members)}")
        return members[value]

    return check


def _record_of(kind: Any) -> Check:  # noqa: ANN401 - a dataclass
    hints = get_type_hints(kind, include_extras=True)
    checks = {field.name: _check_of(hints[field.name]) for field in fields(kind)}
    needed = {
        field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING
    }

    def check(value: Any, where: str) -> Any:  # noqa: ANN401 - whatever JSON has
        if not isinstance(value, dict):
            raise UnfitError(f"{where} is {_told(value)}, not an object")
        before = f"{where}." if where else ""
        try:
            values = {name: checks[name](member, f"{before}{name}") for name, member in value.items()}
        except KeyError as error:
            raise UnfitError(f"{before}{_cut(error.args[0])} is not known") from None
        if not needed <= values.keys():
            raise UnfitError(f"{before}{min(needed - values.keys())} is missing")
        return kind(**values)

    return check


def _document_of(kind: Any) -> Check:  # noqa: ANN401 - a TypedDict
    checks = {name: _check_of(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}
    needed = kind.__required_keys__

    def check(value: Any, where: str) -> dict[str, Any]:  # noqa: ANN401 - whatever JSON has
        if not isinstance(value, dict):
            raise UnfitError(f"{where or 'it'} is {_told(value)}, not an object")
        before = f"{where}." if where else ""
        if not needed <= value.keys():
            raise UnfitError(f"{before}{min(needed - value.keys())} is missing")
        return {
            name: checks[name](member, f"{before}{name}") if name in checks else member
            for name, member in value.items()
        }

    return check


def _told(value: object) -> str:
    return _kind(value) if isinstance(value, dict | list | bytes) else _cut(repr(value))


def _cut(text: object) -> str:
    line = ascii(text)[1:-1] if isinstance(text, str) and not text.isprintable() else str(text)
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def _kind(value: object) -> str:
    words: dict[type, str] = {
        dict: "an object",
        list: "a list",
        str: "a text",
        bytes: "bytes that are no text",
    }
    return words.get(type(value), type(value).__name__)


# --- The canonical text of a document, and its digest.

canonical: Callable[[object], str] = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), allow_nan=False
).encode
"""Makes JSON text that is the same for equal documents."""


def digest(document: object) -> str:
    """SHA-256 of the canonical JSON text."""
    return hashlib.sha256(canonical(document).encode()).hexdigest()


# --- Small JSON files that are trusted: a checksum over what they say tells whether they still say it.

_SEAL = "checksum"


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document with its checksum: SHA-256 of the canonical JSON of everything else."""
    return {**document, _SEAL: digest(dict(document))}


def unsealed(document: object, keys: Collection[str], *, earlier: bool = False) -> dict[str, Any]:
    """A document without its checksum, which is verified.

    Args:
        document: what JSON has.
        keys: of the document, all of them.
        earlier: accept one without a checksum, as earlier versions wrote it.

    Raises:
        UnfitError: it is another one, or has changed since it was written.
    """
    if not isinstance(document, dict):
        raise UnfitError("it holds no object")
    content = {name: value for name, value in document.items() if name != _SEAL}
    if content.keys() != set(keys):
        odd = sorted(content.keys() ^ set(keys))
        raise UnfitError(f"{odd[0]!r:.40} is {'not known' if odd[0] in content else 'missing'}")
    if _SEAL not in document and earlier:
        return content
    try:
        right = document.get(_SEAL) == digest(content)
    except (ValueError, RecursionError):  # a number that is not finite: never written
        right = False
    if not right:
        raise UnfitError("its checksum is not that of what it says")
    return content
