"""Numbers of one GPU as those of another of its kind, by what both measured of the same trial."""

import math
from dataclasses import replace

from tuner.measurement.paired import scaled_energy
from tuner.measurement.race import ASSUMED_REPEATABILITY
from tuner.model.trial import (
    ASSUMED_SCATTER,
    AnchorRatio,
    Energy,
    GpuSetting,
    Measurement,
    PoolGpu,
)


def ratio_of(home: Measurement, other: Measurement) -> AnchorRatio:
    """Home's anchor over another GPU's.

    Each is one measurement: the uncertainty holds those of both, and how windows differ from one to another.

    Args:
        home: the anchor as home measured it, valid.
        other: as the other GPU did, valid.
    """
    time, time_u = _quotient(
        (home.makespan_s or 0.0, home.makespan_uncertainty_s),
        (other.makespan_s or 0.0, other.makespan_uncertainty_s),
        ASSUMED_REPEATABILITY,
    )
    if home.energy is None or other.energy is None:
        return AnchorRatio(time, time_u)
    energy, energy_u = _quotient(
        (home.energy.joules, home.energy.uncertainty_j),
        (other.energy.joules, other.energy.uncertainty_j),
        ASSUMED_SCATTER,
    )
    return AnchorRatio(time, time_u, energy, energy_u)


def _quotient(home: tuple[float, float], other: tuple[float, float], between: float) -> tuple[float, float]:
    """Quotient of two values with uncertainties, and its relative uncertainty; 1 where one is no amount."""
    if home[0] <= 0 or other[0] <= 0:
        return 1.0, 0.0
    relative = math.hypot(home[1] / home[0], other[1] / other[0], math.sqrt(2.0) * between)
    return home[0] / other[0], relative


def scaled(measurement: Measurement, ratio: AnchorRatio) -> Measurement:
    """A measurement with times and joules of a round as the other GPU would have them.

    The ratio's uncertainty is added to theirs. What the trial cost and what was seen stay as they were.

    Args:
        measurement: with uncertainties of its windows.
        ratio: of the anchors.
    """
    makespan_s = measurement.makespan_s
    of_ratio_s = 0.0 if makespan_s is None else makespan_s * ratio.time * ratio.time_uncertainty
    return replace(
        measurement,
        results=tuple(
            replace(
                result,
                time_s=None if result.time_s is None else result.time_s * ratio.time,
                spread_s=result.spread_s * ratio.time,
                restore_s=result.restore_s * ratio.time,
            )
            for result in measurement.results
        ),
        makespan_s=None if makespan_s is None else makespan_s * ratio.time,
        makespan_spread_s=measurement.makespan_spread_s * ratio.time,
        makespan_uncertainty_s=math.hypot(measurement.makespan_uncertainty_s * ratio.time, of_ratio_s),
        energy=None
        if measurement.energy is None
        else scaled_energy(measurement.energy, ratio.energy, ratio.energy_uncertainty, ratio.time),
        estimated_j=None if measurement.estimated_j is None else measurement.estimated_j * ratio.energy,
    )


def measured_on(measurement: Measurement, gpu: PoolGpu) -> Measurement:
    """A measurement of a GPU as one of home's, with a note of where it was made."""
    return replace(scaled(measurement, gpu.ratio), gpu=gpu)


class NetEnergies:
    """The trials with the least joules and watts, by clock and power limit.

    Net joules are J (1 - idle power / P): fewer joules J at less power P are fewer net joules, whatever a GPU
    draws when idle. A trial that another undercuts in both is not kept.
    """

    def __init__(self) -> None:
        self._least: dict[GpuSetting, list[tuple[Energy, Measurement]]] = {}

    def add(self, setting: GpuSetting, measurement: Measurement) -> None:
        """Take note of a trial, if it was measured for joules.

        Args:
            setting: its clock and power limit.
            measurement: in home's units.
        """
        energy = measurement.energy
        if energy is None or energy.watts <= 0:
            return
        least = self._least.get(setting, [])
        if not any(_undercuts(other, energy) for other, _ in least):
            others = [pair for pair in least if not _undercuts(energy, pair[0])]
            self._least[setting] = [*others, (energy, measurement)]

    def at(self, setting: GpuSetting, ratio: AnchorRatio) -> tuple[Energy, ...]:
        """The energies at a setting, as another GPU would have them.

        Args:
            setting: clock and power limit.
            ratio: of that GPU over home.
        """
        energies = (scaled(measurement, ratio).energy for _, measurement in self._least.get(setting, ()))
        return tuple(energy for energy in energies if energy is not None)


def _undercuts(one: Energy, other: Energy) -> bool:
    return one.joules <= other.joules and one.watts <= other.watts
