"""Launches of two plans at a time on a GPU, beside copies, thousands of times."""

from collections.abc import Sequence
from typing import Any

BETWEEN = 100  # launches of each plan between two waits for all of them


def wrong_launches(
    cp: Any, plans: Sequence[Any], outs: Sequence[Any], right: Any, launches: int
) -> list[int]:
    """How many launches of each plan leave another answer than ``right`` in its array, to the last bit.

    Two scans in two streams share the multiprocessors, so that blocks of a scan wait while others of it have
    not begun. A third stream copies.

    Args:
        cp: CuPy.
        plans: each writes to its array of ``outs``.
        outs: of the plans.
        right: what they must hold.
        launches: of all plans together.
    """
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(len(plans) + 1)]
    junk = cp.zeros((2, 2**22), cp.float32)
    wrong = [cp.zeros((), cp.int64) for _ in plans]
    cp.cuda.runtime.deviceSynchronize()
    for launch in range(launches // len(plans)):
        if launch % 2:
            with streams[-1]:
                cp.copyto(junk[0], junk[1])
        for stream, y, plan, count in zip(streams, outs, plans, wrong, strict=False):
            with stream:
                y.fill(-1)
                plan()
                cp.add(count, (y != right).any(), out=count)
        if launch % BETWEEN == 0:
            cp.cuda.runtime.deviceSynchronize()
    cp.cuda.runtime.deviceSynchronize()
    return [int(count) for count in wrong]
