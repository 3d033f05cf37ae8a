"""Joules as they are stated: with an uncertainty about the mean over minutes, not about the window alone."""

from dataclasses import dataclass, replace

from tuner.model.trial import Measurement
from tuner.model.uncertainty import Part, contracted, expanded, student_factor

_COVERAGE = 1.96  # standard uncertainties in half a 95 % interval

ASSUMED_SCATTER = 0.004
"""Relative standard deviation of joules of one trial's windows over minutes, where a run cannot tell."""


@dataclass(frozen=True)
class WindowScatter:
    """Scatter of joules between windows of one trial.

    Attributes:
        deviation: relative standard deviation.
        degrees: degrees of freedom it was learnt with; None where it is assumed.
    """

    deviation: float = ASSUMED_SCATTER
    degrees: float | None = None

    @property
    def learnt(self) -> bool:
        """True where the run has shown it."""
        return self.degrees is not None

    @property
    def interval(self) -> float:
        """Half the relative 95 % interval of a window without an uncertainty of its own."""
        return _COVERAGE * student_factor(self.degrees) * self.deviation


ASSUMED = WindowScatter()


def stated(measurement: Measurement, scatter: WindowScatter = ASSUMED) -> Measurement:
    """The measurement with the uncertainty of its joules about the mean over minutes.

    That of its windows stays available as ``Energy.window_uncertainty_j``; stating again replaces it.
    """
    measured = of_window(measurement)
    energy = measured.energy
    if energy is None:
        return measured
    own = contracted(energy.uncertainty_j, energy.degrees)
    between = Part((scatter.deviation * energy.joules) ** 2, scatter.degrees)
    uncertainty_j, degrees = expanded([own, between])
    if energy.uncertainty_j > uncertainty_j:  # of few degrees, which a known part makes seem more
        uncertainty_j, degrees = energy.uncertainty_j, energy.degrees
    told = replace(
        energy,
        uncertainty_j=uncertainty_j,
        degrees=degrees,
        window_uncertainty_j=energy.uncertainty_j,
        window_degrees=energy.degrees,
    )
    return replace(measured, energy=told)


def of_window(measurement: Measurement) -> Measurement:
    """The measurement with the uncertainty of its windows alone: undoes ``stated``."""
    energy = measurement.energy
    if energy is None or energy.window_uncertainty_j is None:
        return measurement
    own = replace(
        energy,
        uncertainty_j=energy.window_uncertainty_j,
        degrees=energy.window_degrees,
        window_uncertainty_j=None,
        window_degrees=None,
    )
    return replace(measurement, energy=own)
