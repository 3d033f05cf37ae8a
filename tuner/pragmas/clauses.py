"""The text of pragmas in parts: lists, clauses with brackets, values of tunables."""

import math
import re
from dataclasses import dataclass

MOST_VALUES = 1000
_MOST_DIGITS = 400
_LARGEST = 2**63 - 1
_NAME = r"[A-Za-z_]\w*"
_OPENING, _CLOSING = "([{", ")]}"
_NUMBER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|\d+)")
_FRACTION = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?")
_WORDS = {"true": True, "false": False}

Value = int | float | bool


@dataclass(frozen=True)
class ValueList:
    """The values of a tunable, as a pragma states them.

    Attributes:
        name: of the tunable; empty where the pragma does not say it.
        values: in their order.
        when: the condition, an expression; empty without one.
        otherwise: value where the condition is false; None where the pragma does not say it.
    """

    name: str
    values: tuple[Value, ...]
    when: str = ""
    otherwise: Value | None = None


def split_list(text: str) -> list[str]:
    """The parts between commas that stand in no brackets and no quotes; none of an empty text.

    Raises:
        ValueError: a bracket or a quote is not closed.
    """
    parts, open_brackets, quote = [""], [], ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in _OPENING:
            open_brackets.append(letter)
        elif letter in _CLOSING and (not open_brackets or _pair(open_brackets.pop()) != letter):
            raise ValueError(f"{letter} closes no bracket")
        if letter == "," and not open_brackets and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    if open_brackets:
        raise ValueError(f"{open_brackets[-1]} is not closed")
    if quote:
        raise ValueError(f"{quote} is not closed")
    parts = [part.strip() for part in parts]
    if parts == [""]:
        return []
    if "" in parts:
        raise ValueError("there is nothing between two commas, or behind the last")
    return parts


def _pair(opening: str) -> str:
    return _CLOSING[_OPENING.index(opening)]


def clauses(text: str) -> list[tuple[str, str]]:
    """The clauses ``name(...)`` of a pragma, each with what stands in its brackets.

    Raises:
        ValueError: there is something else.
    """
    found, rest = [], text.strip()
    while rest:
        match = re.match(rf"({_NAME})\s*\(", rest)
        if match is None:
            raise ValueError(f"{rest.split()[0]!r} is no clause; write NAME(...)")
        inside, rest = _inside(rest[match.end() - 1 :])
        found.append((match[1], inside))
        rest = rest.lstrip(", \t")
    return found


def _inside(text: str) -> tuple[str, str]:
    """What stands in the bracket that a text begins with, and what follows."""
    depth, quote = 0, ""
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter == "(") - (letter == ")")
            if depth == 0:
                return text[1:place].strip(), text[place + 1 :].strip()
    raise ValueError("( is not closed")


def one_value(text: str) -> Value:
    """A number, ``true`` or ``false``; suffixes and brackets of C are left out.

    Raises:
        ValueError: it is something else.
    """
    bare = text.strip()
    while bare.startswith("(") and bare.endswith(")"):
        bare = bare[1:-1].strip()
    if bare in _WORDS:
        return _WORDS[bare]
    bare = bare.replace("'", "")
    if len(bare) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(bare)} digits; at most {_MOST_DIGITS} are read")
    if re.fullmatch(r"[+-]?0\d+[uUlL]*", bare):
        raise ValueError(f"{text.strip()!r} is octal in C++; write it without the leading 0")
    whole = re.fullmatch(rf"({_NUMBER.pattern})[uUlL]{{0,3}}", bare)
    if whole:
        number = int(whole[1], 0) if "x" in whole[1].lower() else int(whole[1])
        if abs(number) > _LARGEST:
            raise ValueError(f"{number} has more than 63 bits")
        return number
    fraction = re.fullmatch(rf"({_FRACTION.pattern})[fF]?", bare)
    if fraction:
        if math.isinf(float(fraction[1])):
            raise ValueError(f"{bare} is beyond all numbers of type double")
        return float(fraction[1])
    hint = ""
    if "=" in bare:
        hint = "; a name stands before a colon, as P: 1, 2"
    elif " " in bare:
        hint = "; write commas between values"
    raise ValueError(f"{text.strip()!r} is no number, true or false{hint}")


def value_list(keyword: str, text: str) -> ValueList:
    """What ``erange``, ``range`` or ``values`` states.

    Raises:
        ValueError: it has another form, or no values or too many.
    """
    name, text = named(text)
    text, otherwise = _cut(text, "otherwise")
    text, when = _cut(text, "when")
    parts = split_list(text)
    values = tuple(map(one_value, parts)) if keyword == "values" else _series(keyword, parts)
    if not values:
        raise ValueError("there are no values")
    if len(values) > MOST_VALUES:
        raise ValueError(f"there are {len(values)} values; at most {MOST_VALUES} can be tuned")
    if len(set(map(str, values))) < len(values):
        raise ValueError("a value is there twice")
    if len({isinstance(value, bool) for value in values}) > 1:
        raise ValueError("numbers and true or false are mixed")
    return ValueList(name, values, when, None if not otherwise else one_value(otherwise))


def named(text: str) -> tuple[str, str]:
    """The name that a pragma begins with, ``NAME:``, and the rest."""
    match = re.match(rf"({_NAME})\s*:(?!:)\s*(.*)", text)
    return (match[1], match[2]) if match else ("", text)


def _cut(text: str, word: str) -> tuple[str, str]:
    match = re.search(rf"\b{word}\b", text)
    if match is None:
        return text, ""
    rest = text[match.end() :].strip()
    if not rest:
        raise ValueError(f"nothing follows {word!r}")
    return text[: match.start()].strip(), rest


def _series(keyword: str, parts: list[str]) -> tuple[int, ...]:
    numbers = [one_value(part) for part in parts]
    if not all(type(number) is int for number in numbers) or len(numbers) not in (2, 3):
        third = "BASE" if keyword == "erange" else "STEP"
        raise ValueError(f"write FIRST, LAST[, {third}] with whole numbers")
    first, last, step = (int(number) for number in (*numbers, 2 if keyword == "erange" else 1)[:3])
    if first > last:
        raise ValueError(f"the range is empty: it begins with {first} and ends with {last}")
    if keyword == "range":
        if step < 1:
            raise ValueError(f"the step is {step}; it must be at least 1")
        if (last - first) // step + 1 > MOST_VALUES:
            raise ValueError(
                f"there are {(last - first) // step + 1} values; at most {MOST_VALUES} can be tuned"
            )
        return tuple(range(first, last + 1, step))
    if first < 1 or step < 2:  # noqa: PLR2004
        raise ValueError("FIRST must be at least 1, and BASE at least 2")
    values = [first]
    while values[-1] * step <= last:
        values.append(values[-1] * step)
    return tuple(values)
