"""How the rows of a call's arrays lie in memory."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RowLayout:
    """Where the rows of arrays begin, and whether the output is the input's memory.

    Rows are what the first axis of an array counts, the batch.

    Attributes:
        pitches: (array, elements from the beginning of a row to that of the next) of the arrays whose rows do
            not follow each other.
        in_place: the output takes the place of the input that the kernel file names.
    """

    pitches: tuple[tuple[str, int], ...] = ()
    in_place: bool = False


DENSE = RowLayout()
"""Rows follow each other, and every output is an array of its own."""
