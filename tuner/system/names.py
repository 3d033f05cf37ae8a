"""Suggestions for mistyped names."""

import difflib
from collections.abc import Iterable


def suggestion(name: str, choices: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the choice nearest to ``name``, or an empty text."""
    near = difflib.get_close_matches(name, list(choices), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
