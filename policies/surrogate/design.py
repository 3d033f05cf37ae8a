"""The first configurations: a Latin hypercube over what is legal."""

import numpy as np

from .encoding import Integers


def latin(codes: Integers, taken: Integers, count: int, draw: np.random.Generator) -> list[int]:
    """Rows that between them meet as many values of every tunable as so many rows can.

    A Latin hypercube has one point in each of its slices of every axis; constraints leave few of its points
    legal. So slices are filled greedily: the next row is the one that meets most slices that none before it
    met; of equals, one in slices that few met; of equals, any.

    Args:
        codes: ranks of the values of every legal configuration, shape (n, tunables).
        taken: ranks of what is measured anyway, shape (k, tunables): met, never returned.
        count: rows wanted.
        draw: source of randomness.

    Returns:
        At most ``count`` different rows.
    """
    tunables = codes.shape[1]
    everything = np.vstack([codes, taken])
    values = everything.max(axis=0, initial=0) + 1
    slices = everything * np.minimum(values, count + len(taken)) // values
    columns = np.arange(tunables)
    met = np.zeros((tunables, int(slices.max(initial=0)) + 1))
    for row in slices[len(codes) :]:
        met[columns, row] += 1
    slices = slices[: len(codes)]
    free = ~(codes[:, None, :] == taken[None, :, :]).all(axis=2).any(axis=1) if len(taken) else None
    free = np.ones(len(codes), dtype=bool) if free is None else free
    chance = draw.random(len(codes))
    chosen: list[int] = []
    while len(chosen) < count and free.any():
        times = met[columns, slices]
        order = np.lexsort((chance, times.sum(axis=1), -(times == 0).sum(axis=1)))
        row = int(order[free[order]][0])
        free[row] = False
        met[columns, slices[row]] += 1
        chosen.append(row)
    return chosen
