"""Arguments of T1 documents as lines of ``[arguments]``."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuner.cuda_source.parameters import dtype_of
from tuner.model.plan import TunableValue
from tuner.recordings import checks

_VECTOR = re.compile(r"(half|float|double|u?int\d*|u?char|u?short|u?long)(2|3|4|8|16)")
_FIXED = {f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_ROLES = {"ReadOnly": "in", "WriteOnly": "out", "ReadWrite": "inout"}
_MAXIMUM = re.compile(r"\b(max|min)\(\s*([A-Za-z_]\w*)\s*\)")
_PROBLEM_SIZE = re.compile(r"\bProblemSize(?:\s*\[\s*(\d)\s*\])?")

Read = Callable[[object, str], str]
"""Makes an expression of a text; the second argument is the place for messages."""


def size_text(
    text: str, tunables: Mapping[str, Sequence[TunableValue]], sizes: Sequence[str], where: str
) -> str:
    """An expression with ``ProblemSize[i]`` and ``max(parameter)`` as kernel files write them.

    Raises:
        ValueError: a problem size or parameter of that name is not there.
    """

    def extreme(match: re.Match[str]) -> str:
        values = tunables.get(match[2])
        if values is None or not all(isinstance(one, (int, float)) for one in values):
            raise ValueError(f"{where}: {match[0]}: no parameter of numbers is called {match[2]!r}")
        numbers = [one for one in values if not isinstance(one, str)]
        return str(max(numbers) if match[1] == "max" else min(numbers))

    def size(match: re.Match[str]) -> str:
        place = int(match[1] or 0)
        if place >= len(sizes):
            raise ValueError(f"{where}: {match[0]}: ProblemSize has {len(sizes)} axes")
        return sizes[place]

    return _PROBLEM_SIZE.sub(size, _MAXIMUM.sub(extreme, text))


def is_constant(argument: Mapping[str, Any]) -> bool:
    """Whether an argument is in constant memory."""
    return (argument.get("MemType") or argument.get("MemoryType")) in ("Constant", "Symbol")


def argument_line(argument: Any, where: str, read: Read, notes: list[str]) -> str:  # noqa: ANN401 - any JSON
    """An argument as a line of ``[arguments]``.

    Args:
        argument: the JSON value.
        where: its place, for messages.
        read: makes an expression of a text.
        notes: gets what is left out or guessed.

    Raises:
        ValueError: it is of a kind that kernel files do not have; the message names the key.
    """
    name = checks.one(argument, "Name", where, checks.NAME)
    if not name.isidentifier():
        raise ValueError(f"{where}: Name is {name!r}; expected an identifier")
    dtype, lanes = _element(checks.one(argument, "Type", where, checks.TEXT), where)
    memory = argument.get("MemType") or argument.get("MemoryType")
    if memory == "Scalar":
        value = read(argument.get("FillValue", 0), f"{where}: FillValue")
        return f"{name} = {json.dumps(f'{dtype} = {value}')}"
    size = read(checks.member(argument, "Size", where), f"{where}: Size")
    shape = f"{size}, {lanes}" if lanes > 1 else size
    if is_constant(argument):
        return f"{name} = {json.dumps(f'constant {dtype}[{shape}]{_fill(argument, name, dtype, notes)}')}"
    if memory not in ("Vector", None):
        raise ValueError(f"{where}: MemoryType is {memory!r}; expected Scalar, Vector, Constant or Symbol")
    role = _ROLES.get(str(argument.get("AccessType", "ReadWrite")))
    if role is None:
        raise ValueError(f"{where}: AccessType is {argument['AccessType']!r}; expected {', '.join(_ROLES)}")
    made = "" if role == "out" else _fill(argument, name, dtype, notes)
    return f"{name} = {json.dumps(f'{role} {dtype}[{shape}]{made}')}"


def _element(kind: str, where: str) -> tuple[str, int]:
    """The dtype of an element, and how many make one of the kernel's vectors."""
    vector = _VECTOR.fullmatch(kind) if kind not in _FIXED else None
    base, lanes = (vector[1], int(vector[2])) if vector else (kind, 1)
    spelt = re.sub(r"^u(?=char|short|int$|long)", "unsigned ", base)
    dtype = _FIXED.get(base) or dtype_of(spelt)
    if dtype is None:
        raise ValueError(f"{where}: Type is {kind!r}; expected bool, int8 ... uint64, half, float or double")
    return dtype, lanes


def _fill(argument: Mapping[str, Any], name: str, dtype: str, notes: list[str]) -> str:
    """How the values are made; the usual ones where kernel files have no counterpart."""
    fill, value = argument.get("FillType"), argument.get("FillValue")
    number = value if checks.NUMBER.accepts(value) else None
    whole = "int" in dtype
    if fill == "Constant" and number is not None and dtype != "bool":
        return f" = constant({int(number) if whole else number})"
    if fill == "Random" and dtype != "bool":
        high = 1.0 if number is None else number
        if whole and high >= 1:
            return f" = integers(0, {int(high)})"
        if not whole and high > 0:
            return f" = uniform(0, {high})"
    if fill not in (None, "Random"):
        notes.append(f"{name}: FillType {fill!r} is left out; its values are the usual random ones")
    return ""
