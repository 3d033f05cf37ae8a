"""Numbers with their units, as people read them."""

import math

_PREFIXES = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


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
    """A value with its interval, the interval to two significant digits: ``0.7710 ± 0.0012 J``."""
    if value is None or not math.isfinite(value):
        return "–"
    if not uncertainty:
        return si(value, unit)
    scale, prefix = next(((s, p) for s, p in _PREFIXES if abs(value) >= s), (1.0, ""))
    decimals = max(0, 1 - math.floor(math.log10(uncertainty / scale)))
    return f"{value / scale:,.{decimals}f} ± {uncertainty / scale:,.{decimals}f} {prefix}{unit}"


def percent(fraction: float | None, digits: int = 1) -> str:
    """A fraction as a signed percentage."""
    return "–" if fraction is None else f"{100 * fraction:+.{digits}f} %"
