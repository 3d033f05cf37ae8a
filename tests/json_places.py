"""Every place in a JSON value, and another value there."""

import copy
from collections.abc import Iterator
from typing import Any


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in a document."""
    if before:
        yield before
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*before, key))


def with_value(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A document with another value at a place."""
    changed = copy.deepcopy(document)
    at = changed
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    return changed
