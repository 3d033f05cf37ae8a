"""Energy of regions of a Python program: ``tuner.energy``."""

from tuner.joules.regions import Region, RegionEnergy, RegionPart
from tuner.regions.meter import EnergyMeter, energy

__all__ = ["EnergyMeter", "Region", "RegionEnergy", "RegionPart", "energy"]
