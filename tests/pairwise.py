"""Samples in which every pair of values that occurs together at all occurs together."""

import heapq
import itertools
import random
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

Row = TypeVar("Row", bound=Mapping[str, Hashable])


def pairwise(
    rows: Sequence[Row], *, first: Sequence[Row] = (), together: int = 2, seed: int = 0
) -> list[Row]:
    """A small sample of ``rows`` in which all pairs of values of ``rows`` occur.

    Greedy: always a row with the most pairs not seen yet. Their number only falls, so that a row whose count,
    made up to date, is still the highest is one (the lazy greedy algorithm of M. Minoux, "Accelerated greedy
    algorithms for maximizing submodular set functions", 1978).

    Args:
        rows: all that is valid; each gives every factor that it has a value.
        first: rows that are in the sample in any case, before the others.
        together: 2 for pairs, 1 for single values.
        seed: decides between rows with equally many.

    Returns:
        ``first`` and the rows that were drawn.
    """
    numbers = {item: number for number, item in enumerate(dict.fromkeys(_items((*rows, *first))))}
    pairs = [_pairs(row, together, numbers) for row in rows]
    unseen = -1
    for row in first:
        unseen &= ~_pairs(row, together, numbers)
    chosen = list(first)
    ties = random.Random(seed)  # noqa: S311 - reproducible
    heap = [(-(of_row & unseen).bit_count(), ties.random(), i) for i, of_row in enumerate(pairs)]
    heapq.heapify(heap)
    while heap and heap[0][0] < 0:
        _, tie, i = heap[0]
        new = (pairs[i] & unseen).bit_count()
        if new < -heap[0][0]:
            heapq.heapreplace(heap, (-new, tie, i))
        else:
            heapq.heappop(heap)
            unseen &= ~pairs[i]
            chosen.append(rows[i])
    return chosen


def _items(rows: Iterable[Mapping[str, Hashable]]) -> Iterator[tuple[str, Hashable]]:
    return itertools.chain.from_iterable(row.items() for row in rows)


def _pairs(row: Mapping[str, Hashable], together: int, numbers: Mapping[tuple[str, Hashable], int]) -> int:
    """Every pair of the row's values, and every value, as bits of one number: counted at once.

    Args:
        row: the values.
        together: as of ``pairwise``.
        numbers: of all values; the pair of a and b, a <= b, is bit a times their count plus b.
    """
    own = [numbers[item] for item in row.items()]
    values = sum(1 << one for one in own)
    if together == 1:
        return values
    return sum((values >> one) << (one + one * len(numbers)) for one in own)
