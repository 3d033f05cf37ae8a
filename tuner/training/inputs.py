"""The inputs that a kernel is trained on: problem sizes drawn from ranges, or listed."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from tuner.config.problem_schema import MAX_SIZE
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError, suggestion
from tuner.prediction.training_set import Sizes

_NUMBER = r"\d+(?:(?:\^|\*\*)\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\s*\.\.\s*({_NUMBER})(?:\s+(log|lin))?")
_MOST_DIGITS = 16
_MOST_DRAWS = 200  # for one input that is allowed


@dataclass(frozen=True)
class DrawnSize:
    """Where the values of a size come from.

    Attributes:
        name: of the size.
        low: least value of a range.
        high: greatest value of a range.
        logarithmic: of a range: whether values are spread evenly in their logarithm.
        values: those that are drawn from in place of a range.
    """

    name: str
    low: int = 1
    high: int = 1
    logarithmic: bool = True
    values: tuple[int | str, ...] = ()

    def value(self, share: float) -> int | str:
        """The value at a share of the way, from 0 to 1."""
        if self.values:
            return self.values[min(int(share * len(self.values)), len(self.values) - 1)]
        if self.logarithmic:
            drawn = self.low * math.pow(self.high / self.low, share)
        else:
            drawn = self.low + share * (self.high - self.low)
        return min(max(round(drawn), self.low), self.high)


def drawn_sizes(kernel: KernelFile, text: str) -> tuple[DrawnSize, ...]:
    """Where the sizes of a kernel's inputs come from, as ``H=2^4..2^16 log, K=[128, 256]``.

    Sizes that the text leaves out are drawn from all their values; ranges evenly in the logarithm.

    Raises:
        InputError: a size is unknown or twice, or its values have another form or are none of the kernel's.
    """
    stated: dict[str, str] = {}
    for part in _parts(text):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise InputError(f"--inputs: {part.strip()!r} is not of the form H=16..65536 or H=[16, 64]")
        if name not in kernel.sizes:
            known = ", ".join(kernel.sizes) or "none"
            raise InputError(
                f"--inputs: {kernel.name} has no size {name!r}; it has {known}"
                f"{suggestion(name, kernel.sizes)}"
            )
        if name in stated:
            raise InputError(f"--inputs: {name} is there twice")
        stated[name] = value
    return tuple(_drawn(kernel, name, stated.get(name)) for name in kernel.sizes)


def _parts(text: str) -> list[str]:
    """The text cut at commas outside brackets."""
    return [part for part in re.split(r",(?![^\[]*\])", text) if part.strip()]


def _drawn(kernel: KernelFile, name: str, text: str | None) -> DrawnSize:
    values = kernel.sizes[name]
    if text is None:
        if isinstance(values, range):
            return DrawnSize(name, values[0], values[-1])
        return DrawnSize(name, values=tuple(values[:1] if name in kernel.optional else values))
    span = _RANGE.fullmatch(text)
    if span is not None:
        low, high = _number(span[1]), _number(span[2])
        if low > high:
            raise InputError(f"--inputs: {name}={text}: the range is empty")
        if low < 1:
            raise InputError(f"--inputs: {name}={text}: a range begins with 1 or more")
        if isinstance(values, range):
            if low not in values or high not in values:
                raise InputError(f"--inputs: {name}={text}: {kernel.name} takes {values[0]} to {values[-1]}")
            return DrawnSize(name, low, high, span[3] != "lin")
        inside = tuple(value for value in values if isinstance(value, int) and low <= value <= high)
        if not inside:
            raise InputError(f"--inputs: {name}={text}: none of {kernel.name}'s values is in the range")
        return DrawnSize(name, values=inside)
    listed = text[1:-1].split(",") if text.startswith("[") and text.endswith("]") else [text]
    chosen = tuple(_number(one) if re.fullmatch(_NUMBER, one.strip()) else one.strip() for one in listed)
    for value in chosen:
        if value not in values and str(value) not in map(str, values):
            raise InputError(f"--inputs: {kernel.name} has no {name}={value}")
    return DrawnSize(name, values=chosen)


def _number(text: str) -> int:
    """A number, or a power of one.

    Raises:
        InputError: it is beyond all sizes.
    """
    base, _, power = text.strip().replace("**", "^").partition("^")
    if len(base) <= _MOST_DIGITS and len(power) <= 2:  # noqa: PLR2004 - digits of an exponent
        found: int = int(base) ** int(power or 1)
        if found <= MAX_SIZE:
            return found
    raise InputError(f"{text:.40}: is beyond all sizes; the largest is 2^53")


def draw(sizes: Sequence[DrawnSize], count: int, seed: int, allowed: Callable[[Sizes], bool]) -> list[Sizes]:
    """Different inputs, spread evenly: a scrambled Halton sequence.

    Args:
        sizes: where their values come from.
        count: how many.
        seed: of the scrambling.
        allowed: whether an input may be taken.

    Returns:
        As many as there are; fewer where few are different and allowed.
    """
    from scipy.stats import qmc  # noqa: PLC0415 - takes a third of a second, and only training needs it

    found: dict[tuple[int | str, ...], Sizes] = {}
    sequence = qmc.Halton(max(1, len(sizes)), seed=seed)
    for _ in range(_MOST_DRAWS):
        for point in sequence.random(count):
            one = {size.name: size.value(share) for size, share in zip(sizes, point, strict=False)}
            key = tuple(one.values())
            if key not in found and allowed(one):
                found[key] = one
            if len(found) == count:
                return list(found.values())
        if math.prod(len(size.values) or size.high - size.low + 1 for size in sizes) <= len(found):
            break
    return list(islice(found.values(), count))


def listed_inputs(kernel: KernelFile, texts: Sequence[str]) -> list[Sizes]:
    """Inputs written out, each as ``H=100,W=7``.

    Raises:
        InputError: one is twice, or not of the kernel's sizes.
    """
    found: list[Sizes] = []
    for text in texts:
        sizes: dict[str, int | str] = {}
        for part in text.split(","):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals:
                raise InputError(f"--input {text}: {part.strip()!r} is not of the form SIZE=VALUE")
            if name in sizes:
                raise InputError(f"--input {text}: {name} is there twice")
            sizes[name] = _number(value) if re.fullmatch(_NUMBER, value) else value
        workload = kernel.workload(sizes)
        whole: Mapping[str, int | str] = dict(workload.sizes)
        if dict(whole) in found:
            raise InputError(f"--input {text}: is there twice")
        found.append(dict(whole))
    return found
