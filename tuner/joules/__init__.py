"""Energy of regions of a Python program: ``tuner.energy``."""

from tuner.joules.energy_meter import EnergyMeter, energy
from tuner.joules.region_log import prometheus
from tuner.joules.regions import Region, RegionEnergy, RegionPart
from tuner.joules.training import TrainingCallback

__all__ = [
    "EnergyMeter",
    "Region",
    "RegionEnergy",
    "RegionPart",
    "TrainingCallback",
    "energy",
    "prometheus",
]
