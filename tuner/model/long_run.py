"""Joules as they are stated: with an uncertainty about the mean over minutes, not about the window alone."""

from dataclasses import dataclass, replace

from tuner.model.trial import Measurement
from tuner.model.uncertainty import Part, contracted, expanded

_COVERAGE = 1.96  # standard uncertainties in half a 95 % interval

ASSUMED_SCATTER = 0.004
"""Relative standard deviation of joules of one trial's windows over minutes, where a run cannot tell."""

ASSUMED_DRIFT = 0.006
"""Relative standard deviation of what joules still change by as a GPU warms, where a run cannot tell.

± 1.2 % (95 %) is 12 K at 0.1 % per kelvin: an H100 that warmed from 39 to 55 °C took 0.9 to 1.8 % more, an
H200 0.9 % more between its 20th second of load and its third minute.
"""


@dataclass(frozen=True)
class WindowScatter:
    """Scatter of joules between windows of one trial, and what the GPU's warming may still change.

    Attributes:
        deviation: relative standard deviation from window to window.
        degrees: degrees of freedom it was learnt with; None where it is assumed.
        drift: relative standard deviation of what is left of the drift when the run ends.
    """

    deviation: float = ASSUMED_SCATTER
    degrees: float | None = None
    drift: float = ASSUMED_DRIFT

    @property
    def parts(self) -> tuple[Part, Part]:
        """Relative variances of both."""
        return Part(self.deviation**2, self.degrees), Part(self.drift**2)

    @property
    def learnt(self) -> bool:
        """True where the run has shown it."""
        return self.degrees is not None

    @property
    def interval(self) -> float:
        """Half the relative 95 % interval of a window without an uncertainty of its own."""
        return _COVERAGE * expanded(self.parts)[0]


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
    between = [Part(part.variance * energy.joules**2, part.degrees) for part in scatter.parts]
    uncertainty_j, degrees = expanded([own, *between])
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
