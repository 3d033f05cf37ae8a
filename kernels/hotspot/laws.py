"""How far temperatures are from those that the heat equation gives."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Shares = tuple[float, float, float, float]
AMBIENT = 80.0
CELLS = 2**24  # cells times steps that are computed at once
STRIP = 16  # rows of a strip, where those of the whole grid are too many


def shares(rows: int, columns: int) -> Shares:
    """What a step adds to a cell: kelvin by watt; parts of its difference to a neighbour and to the air.

    Returns:
        Those of its power, of a neighbour in its row, of one in its column, and of the air.
    """
    width, height, thickness, conductivity = 0.016 / columns, 0.016 / rows, 0.0005, 100.0
    across = 2 * conductivity * thickness * height / width  # W/K
    down = 2 * conductivity * thickness * width / height
    away = conductivity * width * height / thickness
    heat = 0.5 / (2 * across + 2 * down + away)
    return heat, heat * across, heat * down, heat * away


def stepped(before: Array, power: Array, steps: int, by: Shares) -> Array:
    """Temperatures after the steps, in float64, of a grid that no heat leaves sideways."""
    heat, across, down, away = by
    t = before.astype(np.float64)
    source = heat * power.astype(np.float64) + away * AMBIENT
    for _ in range(steps):
        right, below = across * np.diff(t, axis=1), down * np.diff(t, axis=0)
        t += source - away * t
        t[:, :-1] += right
        t[:, 1:] -= right
        t[:-1] += below
        t[1:] -= below
    return t


def errors(before: Array, after: Array, power: Array, STEPS: int) -> dict[str, float]:
    """Largest error, by the largest temperature and the number of steps, of all cells or of strips.

    Of a large grid two strips of rows and two of columns are looked at, one of each at a border. They cross
    whatever blocks a kernel cuts the grid into.
    """
    rows, columns = before.shape
    by = shares(rows, columns)
    if before.size * STEPS <= CELLS:
        return {"temperatures": _error(before, after, power, STEPS, by, (0, rows), (0, columns))}
    turned = by[0], by[2], by[1], by[3]
    return {
        "temperatures of rows": _error_of_strips(before, after, power, STEPS, by),
        "temperatures of columns": _error_of_strips(before.T, after.T, power.T, STEPS, turned),
    }


def _error_of_strips(before: Array, after: Array, power: Array, steps: int, by: Shares) -> float:
    rows, columns = before.shape
    high, rng = min(STRIP, rows), np.random.default_rng((rows, columns, steps))
    long = min(columns, max(STRIP, CELLS // (steps * (high + 2 * steps)) - 2 * steps))
    places = [
        (rows - high, columns - long),
        (rng.integers(rows - high + 1), rng.integers(columns - long + 1)),
    ]
    return max(
        _error(before, after, power, steps, by, (int(top), int(top) + high), (int(left), int(left) + long))
        for top, left in places
    )


def _error(  # noqa: PLR0917 - arrays, what steps depend on, and a window
    before: Array,
    after: Array,
    power: Array,
    steps: int,
    by: Shares,
    rows: tuple[int, int],
    columns: tuple[int, int],
) -> float:
    """The error in a window, from what lies no further than heat gets in the steps."""
    near = tuple(
        slice(max(0, first - steps), min(size, end + steps))
        for (first, end), size in zip((rows, columns), before.shape, strict=True)
    )
    inner = tuple(
        slice(first - part.start, end - part.start)
        for (first, end), part in zip((rows, columns), near, strict=True)
    )
    start, watts = np.ascontiguousarray(before[near]), np.ascontiguousarray(power[near])
    expected = stepped(start, watts, steps, by)[inner]
    largest = max(float(np.abs(start).max()), AMBIENT) + steps * by[0] * float(np.abs(watts).max())
    return float(np.abs(after[near][inner] - expected).max() / (steps * largest))
