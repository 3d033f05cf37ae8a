"""Problem sizes: lists of values, or ranges of whole numbers as Python's ``range``."""

import itertools
import math
from collections.abc import Collection, Mapping

SizeValues = tuple[int | str, ...] | range

MOST_TEXTS = 32
"""Combinations of texts that are all shown."""


def chosen(values: SizeValues, value: int | str) -> int | str | None:
    """The value that ``candidate`` names, by the text it is written as; None where there is none."""
    text = str(value)
    if isinstance(values, range):
        plain = text.isascii() and text.isdecimal() and len(text) < 20  # noqa: PLR2004 - no long conversion
        return int(text) if plain and str(int(text)) == text and int(text) in values else None
    return next((candidate for candidate in values if str(candidate) == text), None)


def is_text(value: str) -> bool:
    """True where a workload, as ``kernel:size=value,...``, can name the value."""
    return bool(value) and value == value.strip() and value.isprintable() and not set(value) & set(",=")


def listed(values: SizeValues) -> tuple[int | str, ...]:
    """The values that commands and tests show: all of a list; ends and powers of two of a range."""
    if not isinstance(values, range):
        return values
    powers = (1 << exponent for exponent in range(values[0].bit_length(), values[-1].bit_length()))
    return tuple(sorted({values[0], *powers, values[-1]}))


def without_optional(sizes: Mapping[str, SizeValues], optional: Collection[str]) -> dict[str, SizeValues]:
    """The sizes, ranges that are optional with their first value alone."""
    return {
        name: (values[0],) if name in optional and isinstance(values, range) else values
        for name, values in sizes.items()
    }


def combinations(sizes: Mapping[str, SizeValues]) -> list[dict[str, int | str]]:
    """The combinations that commands and tests show: of ``listed`` values, or of fewer.

    Where there are several ranges, each is shown at its ends and at the power of two between them that is
    nearest to their geometric mean. Where texts have more than ``MOST_TEXTS`` combinations, those are shown
    that differ from the first values in one text at most.
    """
    candidates = (dict(zip(sizes, values, strict=True)) for values in itertools.product(*_shown(sizes)))
    first = _first_texts(sizes)
    return [
        combination
        for combination in candidates
        if sum(combination[name] != text for name, text in first.items()) <= 1
    ]


def count_combinations(sizes: Mapping[str, SizeValues]) -> int:
    """The length of ``combinations``."""
    first = _first_texts(sizes)
    listed_values = dict(zip(sizes, _shown(sizes), strict=True))
    others = math.prod(len(values) for name, values in listed_values.items() if name not in first)
    return others * (1 + sum(len(listed_values[name]) - 1 for name in first))


def _first_texts(sizes: Mapping[str, SizeValues]) -> dict[str, int | str]:
    """The first value of every size that is a text, where they have too many combinations."""
    texts = {name: values for name, values in sizes.items() if isinstance(values[0], str)}
    many = math.prod(len(values) for values in texts.values()) > MOST_TEXTS
    return {name: values[0] for name, values in texts.items()} if many else {}


def _shown(sizes: Mapping[str, SizeValues]) -> list[tuple[int | str, ...]]:
    several = sum(isinstance(values, range) for values in sizes.values()) > 1
    return [
        tuple(sorted({values[0], middle(values), values[-1]}))
        if several and isinstance(values, range)
        else listed(values)
        for values in sizes.values()
    ]


def middle(values: range) -> int:
    """The power of two that is nearest to the geometric mean; the first value where it is none of them."""
    power = 1 << round((math.log2(values[0]) + math.log2(values[-1])) / 2)
    return power if power in values else values[0]


def described(values: SizeValues) -> str:
    """The choice in words, for messages."""
    if isinstance(values, range):
        return f"the whole numbers from {values[0]} to {values[-1]}"
    return ", ".join(map(str, values))
