"""Tables of a file as classes, checked by the types of their keys: complaints, and a JSON Schema.

A key is text, a number, true or false, some of these (``Literal``), a list, a table of any names (``dict``),
a table of known keys (``FileTable``), or one of several. Nothing is converted.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from copy import copy
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, Union, get_args, get_origin
from typing import get_type_hints as hints_of

from tuner.model.errors import suggestion

Place = tuple[str | int, ...]
"""Names of tables and keys, and indices of lists, from the outermost on."""


class Complaint(NamedTuple):
    """A mistake in a file.

    Attributes:
        place: of the key.
        text: what is wrong, or would be right.
    """

    place: Place
    text: str


class FileTable:
    """A table of known keys, which are attributes: ``name: type = key(description, default)``.

    Args:
        values: attributes; others have their defaults.
    """

    MARK: ClassVar[str] = ""
    """A key that tells this table from others in its place; without one it is the last of them."""
    FOREIGN: ClassVar[Mapping[str, str]] = {}
    """Keys that somebody may look for here, and why there are none."""

    def __init__(self, **values: Any) -> None:  # noqa: ANN401 - of many types
        kind: Any = type(self)
        defaults = {one.attribute: copy(one.default) for one in _keys(kind).values()}
        vars(self).update({**defaults, **values})

    def check(self, given: AbstractSet[str]) -> None:
        """Refuse what no key shows by itself.

        Args:
            given: the keys that the file has.

        Raises:
            ValueError: with what would be right.
        """


_Table = TypeVar("_Table", bound=FileTable)


class _Key(NamedTuple):
    """A key of a table."""

    description: str
    default: Any
    name: str
    bounds: "Bounds"
    attribute: str = ""
    type: Any = None

    @property
    def is_needed(self) -> bool:
        return self.default is ...


def key(description: str, default: Any = ..., *, name: str = "", **bounds: Any) -> Any:  # noqa: ANN401
    """A key of a table; it is needed, unless there is a default.

    Args:
        description: for people and their editors.
        default: what it is where it is left out.
        name: in the file; otherwise that of the attribute.
        bounds: further ones, in the words of JSON Schema.
    """
    return _Key(description, default, name, tuple(bounds.items()))


Bounds = tuple[tuple[str, Any], ...]


def bounds(**words: Any) -> Bounds:  # noqa: ANN401 - numbers and texts
    """Bounds of a type, for ``Annotated``, in the words of JSON Schema."""
    return tuple(words.items())


_BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "pattern": (
        lambda text, form: re.fullmatch(form, text) is not None,
        "{value!r} does not have the form {bound}",
    ),
    "minLength": (lambda text, least: len(text) >= least, "must have a character"),
    "minItems": (lambda items, least: len(items) >= least, "must be a list of at least {count}"),
    "maxItems": (lambda items, most: len(items) <= most, "must be a list of at most {count}"),
    "minProperties": (lambda table, least: len(table) >= least, "must be a table of at least {count}"),
    "minimum": (lambda number, least: number >= least, "must be {bound} or more"),
    "exclusiveMinimum": (lambda number, least: number > least, "must be more than {bound}"),
    "maximum": (lambda number, most: number <= most, "must be at most {bound}"),
}
"""What holds under a bound, and the words where it does not. Others are for editors."""


def read_table(kind: type[_Table], table: Mapping[str, Any], complaints: list[Complaint]) -> _Table | None:
    """A table of a file.

    Args:
        kind: of the table.
        table: what the file has.
        complaints: those of this table are added.

    Returns:
        The table; None where there is something to complain of.
    """
    made: _Table | None = _Reader(complaints).table(kind, table, ())
    return made


@cache
def _keys(kind: type[FileTable]) -> dict[str, _Key]:
    """The keys of a table by their names in the file."""
    known = {}
    for attribute, form in hints_of(kind, include_extras=True).items():
        if isinstance(one := getattr(kind, attribute), _Key):
            known[one.name or attribute] = one._replace(attribute=attribute, type=form)
    return known


class _Reader:
    """Reads values by their types.

    Args:
        complaints: what is wrong is added.
    """

    def __init__(self, complaints: list[Complaint]) -> None:
        self._complaints = complaints

    def _wrong(self, place: Place, text: str) -> None:
        self._complaints.append(Complaint(place, text))

    def table(self, kind: Any, given: Any, place: Place) -> Any:  # noqa: ANN401 - as the type says
        """A table of known keys."""
        before, known = len(self._complaints), _keys(kind)
        values = {}
        for name, one in known.items():
            if name in given:
                values[one.attribute] = self.value(one.type, given[name], (*place, name), one.bounds)
            elif one.is_needed:
                self._wrong((*place, name), "is needed")
        for name in given:
            if name not in known:
                hint = f"unknown key{suggestion(name, known)}; known here: {', '.join(known)}"
                self._wrong((*place, name), kind.FOREIGN.get(name, hint))
        if len(self._complaints) > before:
            return None
        made = kind(**values)
        try:
            made.check(given.keys())
        except ValueError as error:
            self._wrong(place, str(error))
            return None
        return made

    def value(self, kind: Any, value: Any, place: Place, limits: Bounds = ()) -> Any:  # noqa: ANN401 - same
        """A value of a type, within bounds; what it is does not matter where there are complaints."""
        kind, limits = _bare(kind, limits)
        fitting = [each for each in _choices(kind) if _fits(each, value)]
        if not fitting:
            self._wrong(place, _expected(kind, value))
            return None
        chosen, inner = _bare(_marked(fitting, value), ())
        for word, bound in (*inner, *limits):
            holds, text = _BOUNDS.get(word, (None, ""))
            if holds is not None and value is not None and not holds(value, bound):
                count = "one" if bound == 1 else bound
                self._wrong(place, text.format(value=value, bound=bound, count=count))
                return None
        origin, parts = get_origin(chosen), get_args(chosen)
        if origin is list:
            return [self.value(parts[0], item, (*place, index)) for index, item in enumerate(value)]
        if origin is dict:
            return {
                self.value(parts[0], name, (*place, name)): self.value(parts[1], item, (*place, name))
                for name, item in value.items()
            }
        if _is_table(chosen):
            return self.table(chosen, value, place)
        return float(value) if chosen is float else value


# --- Types: what fits, and its words.

_WORDS = {
    bool: "true or false",
    dict: "a table",
    float: "a number",
    int: "a whole number",
    list: "a list",
    str: "text",
}


def _bare(kind: Any, limits: Bounds) -> tuple[Any, Bounds]:  # noqa: ANN401 - a type
    """A type without ``Annotated``, and all its bounds."""
    while get_origin(kind) is Annotated:
        kind, *more = get_args(kind)
        limits = (*limits, *(bound for each in more for bound in each))
    return kind, limits


def _choices(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a type
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _is_table(kind: Any) -> bool:  # noqa: ANN401 - a type
    return isinstance(kind, type) and issubclass(kind, FileTable)


def _basic(kind: Any) -> Any:  # noqa: ANN401 - a type
    """The type of TOML that a type is a form of."""
    kind, _ = _bare(kind, ())
    return dict if _is_table(kind) else get_origin(kind) or kind


def _fits(kind: Any, value: object) -> bool:  # noqa: ANN401 - a type
    basic = _basic(kind)
    if basic is Literal:
        return any(value == each and type(value) is type(each) for each in get_args(_bare(kind, ())[0]))
    if isinstance(value, bool):
        return basic is bool
    if basic is float:
        return isinstance(value, int | float) and math.isfinite(value)
    return isinstance(value, basic)


def _marked(fitting: list[Any], value: Any) -> Any:  # noqa: ANN401 - types, a value
    """The table whose mark a value has, of several; of other types the first."""
    if len(fitting) == 1 or not _is_table(fitting[0]):
        return fitting[0]
    return next((each for each in fitting if each.MARK in value), fitting[-1])


def _expected(kind: Any, value: Any) -> str:  # noqa: ANN401 - a type, a value
    choices = [each for each in _choices(kind) if each is not NoneType]
    literal = next((each for each in choices if _basic(each) is Literal), None)
    if literal is not None:
        names = [str(each).lower() if isinstance(each, bool) else each for each in get_args(literal)]
        return f"{str(value)!r} is not one of {', '.join(names)}{suggestion(str(value), names)}"
    if isinstance(value, float) and float in choices:
        return "must be a finite number"
    return f"must be {' or '.join(dict.fromkeys(_WORDS[_basic(each)] for each in choices))}"


# --- JSON Schema, by which editors complete keys.


def json_schema(kind: type[FileTable]) -> dict[str, Any]:
    """JSON Schema of a table, with a description of every key."""
    definitions: dict[str, Any] = {}
    return {**_table_schema(kind, definitions), "$defs": definitions}


def _table_schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - a type
    known = _keys(kind)
    return {
        "type": "object",
        "title": kind.__name__,
        "description": kind.__doc__,
        "properties": {name: dict(_key_schema(one, definitions)) for name, one in known.items()},
        "required": [name for name, one in known.items() if one.is_needed],
        "additionalProperties": False,
    }


def _key_schema(one: _Key, definitions: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from _schema(one.type, definitions).items()
    yield from one.bounds
    yield "description", one.description
    if isinstance(one.default, bool | int | float | str):
        yield "default", one.default


def _schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401, PLR0911 - a return a form
    kind, limits = _bare(kind, ())
    if limits:
        return {**_schema(kind, definitions), **dict(limits)}
    choices = [each for each in _choices(kind) if each is not NoneType]
    if len(choices) > 1:
        return {"anyOf": [_schema(each, definitions) for each in choices]}
    (kind,), parts = choices, get_args(choices[0])
    if _is_table(kind):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}  # a table may hold itself
            definitions[kind.__name__] = _table_schema(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if get_origin(kind) is Literal:
        return {"enum": list(parts)}
    if get_origin(kind) is list:
        return {"type": "array", "items": _schema(parts[0], definitions)}
    if get_origin(kind) is dict:
        form, value = _schema(parts[0], definitions)["pattern"], _schema(parts[1], definitions)
        return {"type": "object", "patternProperties": {form: value}, "additionalProperties": False}
    return {"type": {bool: "boolean", float: "number", int: "integer", str: "string"}[kind]}
