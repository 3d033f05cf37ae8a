"""Which bound a number breaks, in words, for files and requests alike."""

from collections.abc import Mapping
from typing import Any

_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def bound(kind: str, context: Mapping[str, Any]) -> str:
    """Which bound a number breaks, as ``must be at most 5``; empty for a mistake of another kind.

    Args:
        kind: of pydantic's error.
        context: of the same.
    """
    if kind not in _BOUNDS:
        return ""
    words, name = _BOUNDS[kind]
    limit = context[name]
    return f"must be {words} {limit if isinstance(limit, int) else format(limit, 'g')}"
