"""Problem sizes: lists of values, or ranges of whole numbers as Python's ``range``."""

SizeValues = tuple[int | str, ...] | range


def chosen(values: SizeValues, given: int | str) -> int | str | None:
    """The value that ``given`` names, by the text it is written as; None where there is none."""
    text = str(given)
    if isinstance(values, range):
        plain = text.isascii() and text.isdecimal() and len(text) < 20  # noqa: PLR2004 - no long conversion
        return int(text) if plain and str(int(text)) == text and int(text) in values else None
    return next((value for value in values if str(value) == text), None)


def is_text(value: str) -> bool:
    """True where a workload, as ``kernel:size=value,...``, can name the value."""
    return bool(value) and value == value.strip() and value.isprintable() and not set(value) & set(",=")


def listed(values: SizeValues) -> tuple[int | str, ...]:
    """The values that commands and tests show: all of a list; ends and powers of two of a range."""
    if not isinstance(values, range):
        return values
    powers = (1 << exponent for exponent in range(values[0].bit_length(), values[-1].bit_length()))
    return tuple(sorted({values[0], *powers, values[-1]}))


def described(values: SizeValues) -> str:
    """The choice in words, for messages."""
    if isinstance(values, range):
        return f"the whole numbers from {values[0]} to {values[-1]}"
    return ", ".join(map(str, values))
