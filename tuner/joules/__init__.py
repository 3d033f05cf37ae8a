"""Energy of regions of a Python program: ``tuner.energy``."""

from tuner.joules.regions import EnergyMeter, Region, RegionEnergy, RegionPart, energy

__all__ = ["EnergyMeter", "Region", "RegionEnergy", "RegionPart", "energy"]
