"""Sizes of a kernel that were tuned, and which of them are near to another one."""

import heapq
import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tuner.config import KernelFile
from tuner.model import Workload

T = TypeVar("T")

Sizes = tuple[tuple[tuple[str, str], ...], tuple[float, ...]]
"""Those that are no number above zero, as text by name, and the logarithms of the others."""


@dataclass(frozen=True)
class Neighbours(Generic[T]):
    """What is known at sizes of one kernel; looked through once, not for each question.

    Attributes:
        alike: sizes that are no number -> logarithms of the others -> what is known there.
    """

    alike: dict[tuple[tuple[str, str], ...], dict[tuple[float, ...], list[T]]] = field(default_factory=dict)

    def add(self, sizes: Sizes, known: T) -> None:
        """Take note of something."""
        texts, logarithms = sizes
        self.alike.setdefault(texts, {}).setdefault(logarithms, []).append(known)

    def nearest(self, sizes: Sizes, most: int, rank: Callable[[T], tuple[int, ...]]) -> list[T]:
        """The first by ``rank`` of each of so many sizes, the nearest first, this size itself left out."""
        texts, logarithms = sizes
        there = self.alike.get(texts, {})
        distances = ((_distance(logarithms, one), one) for one in there if one != logarithms)
        found = [(distance, min(there[one], key=rank)) for distance, one in heapq.nsmallest(most, distances)]
        return [known for _, known in sorted(found, key=lambda one: (one[0], rank(one[1])))]


def _distance(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Sum of the logarithms of the ratios of sizes."""
    total: float = sum(map(abs, map(operator.sub, one, other)))
    return total


def sizes_of(workload: Workload) -> Sizes:
    """The sizes of a workload."""
    return _parted(workload.sizes)


def sizes_named(kernel: KernelFile, name: str) -> Sizes | None:
    """Sizes of a stored workload as the kernel file has them now; None where it has not."""
    given = dict(pair.split("=", 1) for pair in name.partition(":")[2].split(",") if pair)
    full = {size: given.get(size, str(values[0])) for size, values in kernel.sizes.items()}
    if set(given) - set(full):
        return None
    return _parted((size, int(text) if text.isdecimal() else text) for size, text in full.items())


def _parted(sizes: Iterable[tuple[str, int | str]]) -> Sizes:
    texts, logarithms = [], []
    for name, value in sizes:
        if isinstance(value, int) and value > 0:
            logarithms.append(math.log(value))
            texts.append((name, ""))
        else:
            texts.append((name, str(value)))
    return tuple(texts), tuple(logarithms)
