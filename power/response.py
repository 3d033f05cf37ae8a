"""Response of a power sensor: equation (6) and the energy under a corrected trace."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def corrected_watts(times_s: Array, watts: Array, capacitance_s: float) -> Array:
    """Undo a first-order lag: ``P(t_i) = Pm(t_i) + C * (Pm(t_i+1) - Pm(t_i-1)) / (t_i+1 - t_i-1)``.

    Equation (6) of "Multi-Kernel Auto-Tuning on GPUs: Performance and Energy-Aware Optimization". At the ends
    of a trace, where a neighbour is missing, the difference is one-sided. Nothing is clamped: a corrected
    sample may be negative or above the board's limit, and their sum is right only if it stays so.

    Args:
        times_s: strictly increasing times of fresh samples in seconds, shape (n,).
        watts: measured power, shape (n,).
        capacitance_s: C in seconds; 0 returns the samples as they are.
    """
    if len(times_s) < 2 or capacitance_s == 0:  # noqa: PLR2004 - a slope needs two points
        return watts.copy()
    before = np.concatenate(([0], np.arange(len(times_s) - 1)))
    after = np.concatenate((np.arange(1, len(times_s)), [len(times_s) - 1]))
    slope = (watts[after] - watts[before]) / (times_s[after] - times_s[before])
    return watts + capacitance_s * slope


def energy_j(times_s: Array, watts: Array, capacitance_s: float = 0.0) -> float:
    """Joules under the corrected trace, by the trapezoid rule, from the first sample to the last.

    With the differences of equation (6) the sum telescopes for any spacing of the samples:
    ``E = integral(Pm) + C * (Pm(last) - Pm(first))``.

    Args:
        times_s: strictly increasing times in seconds, shape (n,).
        watts: measured power, shape (n,).
        capacitance_s: C of equation (6) in seconds.
    """
    power = corrected_watts(times_s, watts, capacitance_s)
    return float(np.sum(np.diff(times_s) * (power[1:] + power[:-1])) / 2.0)
