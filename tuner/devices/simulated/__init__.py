"""Simulated GPUs in virtual time; their numbers are modelled, and labelled so."""

from tuner.devices.simulated.device import SimulatedDevice
from tuner.devices.simulated.faults import Faults

__all__ = ["Faults", "SimulatedDevice"]
