"""What is believed of thread blocks before anything is measured, where only their tunables are known."""

import math
from collections.abc import Sequence

import numpy as np

from tuner.model.plan import Configuration
from tuner.space.search_view import Candidate

from .features import Floats
from .posterior import Posterior

LIKELY = (64, 512)  # threads of a block that most good configurations have: a power of two among these
AXES = ("block_size_x", "block_size_y", "block_size_z")  # tunables of blocks, as other tuners name them
SLOWER = 0.2  # logarithm of how much slower other blocks are believed to be
DOUBT = 0.2  # standard deviation of that
MOST = 0.4  # however much slower they were found to be


def unlikely(candidates: Sequence[Candidate], configurations: Sequence[Configuration]) -> Floats:
    """1 for configurations whose blocks are believed to be slow, else 0, shape (configurations,).

    Where launches are known, all are 0: what is known there leads to better candidates at once.

    Args:
        candidates: of the workload; tell whether launches are known.
        configurations: of the same workload.
    """
    if any(candidate.launches for candidate in candidates):
        return np.zeros(len(configurations))
    return np.array([not _is_likely(configuration) for configuration in configurations], dtype=float)


def _is_likely(configuration: Configuration) -> bool:
    sizes = [int(configuration[name]) for name in AXES if name in configuration]
    threads = math.prod(sizes)
    return not sizes or (LIKELY[0] <= threads <= LIKELY[1] and threads & (threads - 1) == 0)


def slowdown(posterior: Posterior, others: Floats, y: Floats, scale: float) -> float:
    """How much higher the responses of unlikely blocks are, as believed and as seen.

    Least squares through the process: b = (u'K⁻¹y + b₀/τ²) / (u'K⁻¹u + 1/τ²). A belief that is never revised
    would keep an optimum among such blocks out.

    Args:
        posterior: of what was measured.
        others: ``unlikely`` of that, shape (n,).
        y: responses, shape (n,).
        scale: of the responses: so much of a logarithm is one.
    """
    believed, precision = SLOWER / scale, (scale / DOUBT) ** 2
    u, seen = posterior.whitened(others), posterior.whitened(y)
    found = (float(u @ seen) + precision * believed) / (float(u @ u) + precision)
    return min(max(found, 0.0), MOST / scale)
