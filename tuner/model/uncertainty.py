"""Standard uncertainties whose 95 % intervals hold, however few values they were estimated from.

An interval is printed as value +- 1.96 u. Where a variance was estimated from the scatter of few values, the
interval that covers 95 % is wider than 1.96 of its root: Student's t for its degrees of freedom takes the
place of 1.96. Here u is that interval divided by 1.96, so that whoever prints or compares needs no degrees.
Parts with different degrees are joined by the formula of Welch and Satterthwaite, as in the "Guide to the
expression of uncertainty in measurement" (JCGM 100, annex G.4).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

_UPPER = 0.975  # a two-sided interval of 95 % leaves 2.5 % above
_NORMAL = 1.96  # half of that interval of a normal distribution, in its standard deviations
_MANY = 1000.0  # degrees from which Student's distribution is the normal one to a thousandth


@dataclass(frozen=True)
class Part:
    """One part of a variance.

    Attributes:
        variance: in the square of the value's unit.
        degrees: degrees of freedom it was estimated with; None where it is known, not estimated.
    """

    variance: float
    degrees: float | None = None


def student_factor(degrees: float | None) -> float:
    """Half of Student's 95 % interval against that of a normal distribution: 6.48 for one degree, 1 for many.

    Args:
        degrees: degrees of freedom, at least a fraction; None for many.
    """
    if degrees is None or degrees >= _MANY:
        return 1.0
    from scipy.special import stdtrit  # noqa: PLC0415 - takes 0.2 s, which `tuner --help` need not wait for

    return float(stdtrit(degrees, _UPPER)) / _NORMAL


def expanded(parts: Iterable[Part]) -> tuple[float, float | None]:
    """The uncertainty of a value whose variance has these parts, and its effective degrees of freedom.

    Returns:
        (u, degrees): +- 1.96 u covers 95 %; ``contracted`` undoes the widening.
    """
    known = [part for part in parts if part.variance > 0]
    variance = math.fsum(part.variance for part in known)
    if variance == 0:
        return 0.0, None
    spread = math.fsum(part.variance**2 / part.degrees for part in known if part.degrees is not None)
    degrees = None if spread == 0 or variance**2 / spread >= _MANY else variance**2 / spread
    return student_factor(degrees) * math.sqrt(variance), degrees


def contracted(uncertainty: float, degrees: float | None) -> Part:
    """The variance that ``expanded`` made an uncertainty of."""
    return Part((uncertainty / student_factor(degrees)) ** 2, degrees)
