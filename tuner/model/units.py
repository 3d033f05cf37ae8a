"""Numbers with units: bounded in documents, and as text for people."""

import math
import re
from datetime import datetime, timezone
from typing import Annotated

WIDEST = 1e60
"""None but 0 is beyond it, or nearer to 0 than its inverse: quotients and products of some are finite."""

Number = Annotated[float, -WIDEST]
Amount = Annotated[float, 0.0]
Positive = Annotated[float, 1 / WIDEST]
Count = Annotated[int, 0]


MODELLED = "modelled"
RECORDED = "recorded"
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?")
_MOST_DIGITS = 4  # of a percentage, after its point
_LEAST_HALF = 1e-6  # of an interval that is worth digits
_SHORT_S, _LONG_S, _LONG_MIN, _LEAST_MIN_S = 9.95, 119.5, 119.5, 60.0
_PREFIXES = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def moment(at: str | datetime | None) -> str:
    """A point in time to the second: ``2026-11-21 22:00:00 UTC``; None is a dash, other text stays.

    Args:
        at: ISO 8601; without a zone it is UTC, as the database has it.
    """
    if at is None:
        return "–"
    if isinstance(at, str):
        try:
            instant = datetime.fromisoformat(at.replace("Z", "+00:00"))  # Python 3.10 does not know Z
        except ValueError:
            return at
    else:
        instant = at
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=timezone.utc)
    return f"{instant.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def with_moments(text: str) -> str:
    """A sentence, each ISO 8601 stamp in it as ``moment`` writes it."""
    return _STAMP.sub(lambda match: moment(match.group()), text)


def si(value: float | None, unit: str, digits: int = 4) -> str:
    """A value with an SI prefix of its unit: ``0.00123, "s"`` is ``1.230 ms``; None is a dash."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0.0:
        return f"0 {unit}"
    if abs(value) >= 1000.0:  # noqa: PLR2004 - kilo
        return f"{significant(value, digits)} {unit}"
    value = float(f"{value:.{digits - 1}e}")  # 0.99996 s is 1.000 s, not 1,000 ms
    for scale, prefix in _PREFIXES:
        if abs(value) >= scale:
            return f"{significant(value / scale, digits)} {prefix}{unit}"
    return f"{value:.{digits - 1}e} {unit}"


def significant(value: float, digits: int = 4) -> str:
    """A number with so many significant digits, never in exponent form, thousands set apart."""
    if value == 0.0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def with_uncertainty(value: float | None, uncertainty: float | None, unit: str) -> str:
    """A value with its interval, the interval to two significant digits: ``0.7710 ± 0.0012 J``.

    The larger of the two chooses the prefix of the unit: ``-0.2 ± 5.5 mJ``. Numbers without a unit have none.
    """
    if value is None or not math.isfinite(value):
        return "–"
    if not uncertainty:
        return si(value, unit)
    larger = max(abs(value), uncertainty)
    prefixes = _PREFIXES if unit else ()
    scale, prefix = next(((s, p) for s, p in prefixes if larger >= s), (1.0, ""))
    decimals = max(0, 1 - math.floor(math.log10(uncertainty / scale)))
    rounded = round(value / scale, decimals) + 0.0  # without the sign of a zero
    return f"{rounded:,.{decimals}f} ± {uncertainty / scale:,.{decimals}f} {prefix}{unit}".rstrip()


def percent(fraction: float | None, digits: int = 1) -> str:
    """A fraction as a signed percentage."""
    return "–" if fraction is None else f"{100 * fraction:+.{digits}f} %"


def percent_with_interval(change: float, half: float | None, digits: int = 1) -> str:
    """A change as a percentage with its interval: ``-8.9 ± 0.1 %``, ``-11.30 ± 0.04 %``."""
    if half is None:
        return percent(change, digits)
    while 0 < 100 * half < 0.5 * 10**-digits and digits < _MOST_DIGITS:
        digits += 1
    return f"{100 * change + 0.0:+.{digits}f} ± {100 * half:.{digits}f} %"


def half_percent(half: float) -> str:
    """Half of an interval as a percentage: ``0.43 %``; a model's may be too small to be worth digits."""
    return "0.0001 % or less" if half <= _LEAST_HALF else f"{100 * half:.2g} %"


def lasting(seconds: float) -> str:
    """A duration as one number and its unit: ``7.1 s``, ``33 s``, ``12 min``, ``3.5 h``."""
    if seconds < _SHORT_S:
        return f"{seconds:.1f} s"
    if seconds < _LONG_S:
        return f"{seconds:.0f} s"
    minutes = seconds / _LEAST_MIN_S
    return f"{minutes:.0f} min" if minutes < _LONG_MIN else f"{minutes / 60:.1f} h"
