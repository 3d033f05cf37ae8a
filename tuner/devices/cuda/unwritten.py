"""Outputs that a run left as they were filled before it: no kernel wrote them."""

from collections.abc import Mapping

import numpy as np

from tuner.devices.cuda.types import Array
from tuner.model.plan import Plan
from tuner.problems.arrays import chunks, to_host, value_dtype

_POISON = 0xFF
_LOOKED_AT = 2**24  # elements of an output: only wrong answers are looked at, but there may be many


def unwritten(plan: Plan, outputs: Mapping[str, Array]) -> str:
    """Which outputs were not written, wholly or in part; empty where all were.

    Whole numbers count only where the complete output is as it was filled, as they may be -1. Outputs that
    are inputs, too, hold values before the run, and are never found here.

    Args:
        plan: whose outputs they are.
        outputs: the arrays after the run, filled with one-bits before it.
    """
    for buffer in plan.buffers:
        if buffer.role == "out":
            left, seen = _left(outputs[buffer.name])
            if left == seen:
                return f"output {buffer.name!r} was not written"
            if left and value_dtype(buffer.dtype).kind in "fc":
                return f"output {buffer.name!r} was not written in {left} of {seen} elements"
    return ""


def _left(output: Array) -> tuple[int, int]:
    """Elements as they were filled, and elements that were looked at."""
    flat, left, seen = output.reshape(-1), 0, 0
    for piece in chunks(flat.size, 1):
        if seen >= _LOOKED_AT:
            break
        host = to_host(flat[piece])
        raw = host.view(np.uint8).reshape(host.size, host.itemsize)
        left += int((raw == _POISON).all(axis=1).sum())
        seen += host.size
    return left, seen
