"""Energy of regions of a Python program: ``tuner.energy``."""

from tuner.regions.meter import EnergyMeter, energy
from tuner.regions.region import Region, RegionEnergy, RegionPart

__all__ = ["EnergyMeter", "Region", "RegionEnergy", "RegionPart", "energy"]
