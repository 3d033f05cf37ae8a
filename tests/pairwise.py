"""Samples in which every pair of values that occurs together at all occurs together."""

import heapq
import itertools
import random
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

Row = TypeVar("Row", bound=Mapping[str, Hashable])


def pairwise(rows: Sequence[Row], *, first: Sequence[Row] = (), seed: int = 0) -> list[Row]:
    """A small sample of ``rows`` in which all pairs of values of ``rows`` occur.

    Greedy: always a row with the most pairs not seen yet. Their number only falls, so that a row whose count,
    made up to date, is still the highest is one (the lazy greedy algorithm of M. Minoux, "Accelerated greedy
    algorithms for maximizing submodular set functions", 1978).

    Args:
        rows: all that is valid; each gives every factor a value.
        first: rows that are in the sample in any case, before the others.
        seed: decides between rows with equally many.

    Returns:
        ``first`` and the rows that were drawn.
    """
    seen = {pair for row in first for pair in pairs_of(row)}
    chosen = list(first)
    ties = random.Random(seed)  # noqa: S311 - reproducible
    heap = [(-len(set(pairs_of(row)) - seen), ties.random(), i) for i, row in enumerate(rows)]
    heapq.heapify(heap)
    while heap and heap[0][0] < 0:
        _, tie, i = heapq.heappop(heap)
        new = set(pairs_of(rows[i])) - seen
        if heap and -len(new) > heap[0][0]:
            heapq.heappush(heap, (-len(new), tie, i))
        elif new:
            seen |= new
            chosen.append(rows[i])
    return chosen


def pairs_of(row: Mapping[str, Hashable]) -> Iterator[Hashable]:
    """Every pair of a row's values with their factors; the value itself where there is one factor."""
    return itertools.combinations(row.items(), min(2, len(row)))
