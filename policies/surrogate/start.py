"""Which trials a search begins with, before there is anything to learn from."""

import math

import numpy as np

from .beliefs import beliefs
from .features import Integers, latin
from .joint import Joint

GOOD = 0.1  # of a space: the trials believed to be the fastest, of which the first ones are taken


def start_rows(
    joint: Joint, pool: Integers, taken: Integers, count: int, draw: np.random.Generator
) -> list[Integers]:
    """Trials that between them tell much of a space.

    They are a Latin hypercube; where something is believed of the space, one over what is believed to be
    good. Its rows lie in corners, many of them with blocks of few threads or of very many; where such blocks
    are to be doubted, rows of likely ones are drawn at random instead.

    Args:
        joint: the space.
        pool: rows that may be drawn, shape (n, axes).
        taken: rows that are measured anyway, shape (k, axes).
        count: rows wanted.
        draw: source of randomness.
    """
    if joint.has_traits:
        order = np.argsort(joint.traits(pool) @ beliefs().mean, kind="stable")
        pool = pool[np.sort(order[: max(count, math.ceil(GOOD * len(pool)))])]
    if not joint.doubtful:
        return [pool[i] for i in latin(joint.codes(pool), joint.codes(taken), count, draw)]
    known = {tuple(row) for row in taken.tolist()}
    free = np.array([tuple(row) not in known for row in pool.tolist()], dtype=bool)
    likely = np.flatnonzero(free & (joint.unlikely(pool) == 0))
    chosen = likely if len(likely) >= count else np.flatnonzero(free)
    return list(pool[draw.choice(chosen, min(count, len(chosen)), replace=False)]) if len(chosen) else []
