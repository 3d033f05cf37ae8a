"""``[arguments]``: the parameters of a kernel in one line each, as ``a = "in float32[N]"``.

A struct passed by value is a table of its fields, as ``p = { dt = "float32 = 0.1", n = "int32 = N" }``. One
without fields, as that of a function object without state, is ``{}`` and has one byte, as in C++.
"""

import re
from collections.abc import Mapping
from typing import Any, get_args

from tuner.model.errors import suggestion
from tuner.model.plan import BufferRole

ROLES = (*get_args(BufferRole), *(() if "constant" in get_args(BufferRole) else ("constant",)))
_DTYPE = r"(?P<dtype>(?:\{[^{}]*\}|[^\s\[\]={}])+)"
_BEGINNING = re.compile(rf"\s*(?:(?P<role>[A-Za-z]+)\s+)?{_DTYPE}\s*(?=[\[=]|$)")
_OPENING, _CLOSING = "([{", ")]}"
_EMPTY = {"empty": "uint8 = 0"}  # C++: sizeof an empty class is 1
_FORMS = "write an array as 'in float32[N]', and a value as 'int32 = N'"


def expanded(arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The ``[[argument]]`` tables that ``[arguments]`` stands for, in its order.

    Raises:
        ValueError: a line is not of the form; the message begins with its name.
    """
    found = []
    for name, text in arguments.items():
        if isinstance(text, Mapping):
            found.append({"scalar": name, "fields": dict(text) or _EMPTY})
            continue
        if not isinstance(text, str):
            raise ValueError(f"{name}: must be text; {_FORMS}")  # noqa: TRY004 - a mistake in a file
        try:
            found.append(_argument(name, text))
        except ValueError as e:
            raise ValueError(f"{name}: {e}") from e
    return found


def _argument(name: str, text: str) -> dict[str, Any]:
    match = _BEGINNING.match(text)
    if match is None:
        raise ValueError(f"{text!r} is neither an array nor a value; {_FORMS}")
    role, dtype, rest = match["role"], match["dtype"], text[match.end() :]
    if not rest.startswith("["):
        if role or not rest.removeprefix("=").strip():
            hint = "an array has a shape, as in 'in float32[N]'" if role else _FORMS
            raise ValueError(f"{text!r} is no value; {hint}")
        return {"scalar": name, "dtype": dtype, "value": rest[1:].strip()}
    if role not in ROLES:
        given = "" if role is None else f", not with {role!r}{suggestion(role, ROLES)}"
        raise ValueError(f"an array begins with one of {', '.join(ROLES)}{given}; as in 'in float32[N]'")
    axes, rest = _axes(text, rest)
    argument: dict[str, Any] = {"buffer": name, "dtype": dtype, "shape": axes, "role": role}
    if rest.strip():
        equals, made = rest.strip()[0], rest.strip()[1:].strip()
        if equals != "=" or not made:
            raise ValueError(f"{rest.strip()!r} follows the shape; an input follows as '= uniform(0, 1)'")
        argument["input"] = made
    return argument


def _axes(text: str, rest: str) -> tuple[list[str], str]:
    """The expressions between the brackets that ``rest`` opens, and what follows them."""
    axes, depth, start = [], 0, 1
    for place, letter in enumerate(rest):
        depth += (letter in _OPENING) - (letter in _CLOSING)
        if depth == 0 or (depth == 1 and letter == ","):
            axes.append(rest[start:place].strip())
            start = place + 1
        if depth == 0:
            if not all(axes):
                raise ValueError(f"{text!r}: an axis is empty; a single element is [1]")
            return axes, rest[start:]
    raise ValueError(f"{text!r}: the bracket of the shape is not closed")
