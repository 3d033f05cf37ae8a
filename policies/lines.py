"""Descents along lines of trials, to later ones and to earlier ones, in strides where a line is long."""

from collections.abc import Iterable, Sequence

from tuner.model.trial import Trial

from .descent import Descent, Memory, first_minimum, while_allowed

ONE_BY_ONE = 8  # clocks at most that are tried one by one, about as many as the papers' GPUs have


def lowered(memory: Memory, delta: Trial, line: Sequence[Trial]) -> Descent:
    """Steps 4-10 of Algorithms 2 and 4, from the present clock (or power limit) on.

    The paper's GPUs have up to five clocks, which are tried one by one. Where there are a hundred, neighbours
    differ by less than the noise, and the first worsening says nothing: more than `ONE_BY_ONE` are descended
    in strides, which are then halved around the one found, to lower ones and, if that leads nowhere, to
    higher ones.

    Args:
        memory: what was measured.
        delta: where to begin.
        line: that trial at every clock (or power limit), the highest first.
    """
    stride = 1
    while len(line) > ONE_BY_ONE * stride:
        stride *= 2
    remaining = line[line.index(delta) :: stride]
    delta = (yield from first_minimum(memory, while_allowed(memory, remaining))) or delta
    while stride > 1:
        stride //= 2
        here = line.index(delta)
        both = (line[here::stride], line[here::-stride])
        delta = yield from along_lines(memory, (while_allowed(memory, side) for side in both), delta)
    return delta


def along_lines(memory: Memory, lines: Iterable[Iterable[Trial]], delta: Trial, gain: float = 0.0) -> Descent:
    """Descend along one line after another, all of which begin at ``delta``, until one leads away from it.

    Args:
        memory: what was measured.
        lines: trials to descend along.
        delta: where all begin.
        gain: relative gain below which the next line is tried all the same.

    Returns:
        The cheapest trial the lines led to (of equals the last), or ``delta``.
    """
    start, best = memory.measured_cost(delta), delta
    for line in lines:
        found = yield from first_minimum(memory, line)
        if found is None or found == delta:
            continue
        if memory.measured_cost(found) <= memory.measured_cost(best):
            best = found
        if memory.measured_cost(best) <= (1 - gain) * start:
            break
    return best
