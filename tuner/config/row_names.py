"""Names by which expressions of a kernel file tell how the rows of arrays lie in memory.

They are there where an array has ``row_pitch`` or ``in_place``: ``x_pitch`` for an array x, ``row_align`` and
``in_place``.
"""

import math
from collections.abc import Collection, Mapping, Sequence

from tuner.config.argument_recipes import BufferRecipe
from tuner.config.argument_schema import Argument, BufferArgument
from tuner.kernel_files.formulas import Environment, Formula, Place
from tuner.model.errors import InputError
from tuner.model.row_layout import RowLayout

ROW_ALIGN = "row_align"
"""Where rows lie apart, they begin at multiples of so many elements: 1, 2, 4, 8 or 16. Else 0."""
IN_PLACE = "in_place"
"""Whether the output takes the place of its input."""

_MOST_ALIGNED = 16  # no access is wider than 16 elements, and code is compiled for each alignment


def pitch_name(buffer: str) -> str:
    """The name of the elements from one row of an array to the next."""
    return f"{buffer}_pitch"


def row_names(arguments: Sequence[Argument]) -> list[str]:
    """The names that the arrays of a kernel file bring."""
    buffers = [one for one in arguments if isinstance(one, BufferArgument)]
    pitches = [pitch_name(one.buffer) for one in buffers if one.row_pitch]
    shared = [IN_PLACE] if any(one.in_place is not None for one in buffers) else []
    return [*pitches, *([ROW_ALIGN] if pitches else []), *shared]


def check_rows(
    place: Place, argument: BufferArgument, shape: Sequence[Formula], known: Collection[str]
) -> None:
    """Refuse an array without rows, or with some whose length is not known before a configuration is.

    Args:
        place: of the key.
        argument: the array.
        shape: its axes.
        known: names that may decide the length of a row.

    Raises:
        KernelFileError: the first axis is not the batch or the only one, or a row depends on a tunable.
    """
    if not argument.row_pitch:
        return
    if shape[0].expression.text != "batch" or len(shape) == 1:
        raise place.error(f'{argument.buffer} needs a shape of rows, as ["batch", "N"]')
    names = frozenset[str]().union(*(axis.expression.names for axis in shape[1:]))
    beyond = ", ".join(sorted(names.difference(known)))
    if beyond:
        raise place.error(f"the length of a row depends on {beyond}; sizes alone may decide it")


def check_in_place(place: Place, argument: BufferArgument, buffers: Mapping[str, BufferArgument]) -> None:
    """Refuse an output that cannot take the place of what it names.

    Raises:
        KernelFileError: the array is no output, or names no input of its own type and shape.
    """
    if argument.in_place is None:
        return
    if argument.role != "out":
        raise place.error(f"only an out array takes the place of another, and this is {argument.role}")
    other = buffers.get(argument.in_place)
    if other is None or other.role != "in":
        choices = ", ".join(one.buffer for one in buffers.values() if one.role == "in")
        raise place.error(f"no in array is called {argument.in_place!r}; choose from {choices}")
    if (argument.dtype, argument.shape) != (other.dtype, other.shape):
        raise place.error(f"{other.buffer} has another type or shape")


def row_values(buffers: Sequence[BufferRecipe], env: Environment, layout: RowLayout) -> dict[str, int | bool]:
    """The values of the names.

    Args:
        buffers: of the kernel file.
        env: sizes and batch.
        layout: of a call's arrays.

    Raises:
        InputError: the kernel file does not say that rows may lie apart, or that it works in place.
    """
    given = dict(layout.pitches)
    values: dict[str, int | bool] = {}
    for buffer in buffers:
        if buffer.row_pitch:
            length = math.prod(axis.whole(env, least=1) for axis in buffer.shape[1:])
            values[pitch_name(buffer.name)] = given.pop(buffer.name, length)
    if given:
        raise InputError(f"rows of {', '.join(given)} must follow each other")
    if values:
        values[ROW_ALIGN] = math.gcd(_MOST_ALIGNED, *values.values()) if layout.pitches else 0
    if any(buffer.in_place is not None for buffer in buffers):
        values[IN_PLACE] = layout.in_place
    elif layout.in_place:
        raise InputError("outputs must be arrays of their own")
    return values
