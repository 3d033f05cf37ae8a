"""What peers.py compares: families of kernels, their bytes, rates and targets."""

import math
from dataclasses import dataclass
from typing import Any

ELEMENTS = 2**26
BYTES = {"scan": 8, "tridiagonal": 20, "fft": 16}
RATES = {"scan": "MData/s", "tridiagonal": "MRows/s", "fft": "GFlop/s"}


@dataclass(frozen=True)
class Family:
    """Kernels of one table; ``problem`` is what they solve."""

    problem: str
    kernels: tuple[str, ...]
    sizes: tuple[int, ...]


FAMILIES = {
    "scan": Family("scan", ("scan-lf", "scan-ks"), tuple(2**k for k in range(6, 14))),
    "tridiagonal": Family(
        "tridiagonal",
        ("tridiag-cr", "tridiag-pcr", "tridiag-lf", "tridiag-wm"),
        tuple(2**k for k in range(6, 13)),
    ),
    "fft": Family("fft", ("fft",), tuple(2**k for k in range(6, 14))),
    "fft-large": Family("fft", ("fft-large",), tuple(2**k for k in range(14, 24))),
}


def rate(problem: str, n: int, ms: float) -> float:
    """Of a time for all elements, in the unit of ``RATES``."""
    if problem == "fft":
        return 5 * math.log2(n) * ELEMENTS / ms / 1e6
    return ELEMENTS / ms / 1e3


def target(family: str, row: dict[str, Any]) -> dict[str, Any]:
    """The target in words, and whether it is met."""
    n, of_bare, ratio = row["n"], row["of_bare"], row["ratio"]
    if family == "scan":
        return {
            "target": ">= 97.5 % of bare and >= 1.00 x the best peer",
            "met": of_bare >= 0.975 and ratio >= 1.0,
        }
    if family == "tridiagonal":
        return {"target": ">= 95 % of bare (best of the four 98 %)", "met": of_bare >= 0.95}
    small, large = (1.0 if n == 64 else 1.01), (1.25 if n <= 2**19 or n == 2**22 else 1.2)
    least = large if family == "fft-large" else small
    return {"target": f">= {least:.2f} x cuFFT", "met": ratio >= least}
