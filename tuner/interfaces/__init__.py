"""The borders of the project: device, power sampler, meter, clock control, policy.

Each is a few verbs wide and has a simulated implementation in the package. Nothing here imports an
implementation; ``tuner.registry`` finds those by name.
"""

from tuner.interfaces.devices import Check, Device, LoadSource, Progress, RunRecord
from tuner.interfaces.policies import Candidate, Payback, Policy, PriorRun, Search, StageLaunch
from tuner.interfaces.power import (
    ClockControl,
    ClockReading,
    Meter,
    PowerReading,
    PowerSampler,
    PowerSource,
    Reading,
    Recording,
    Response,
    Sample,
    SensorInfo,
)

__all__ = [
    "Candidate",
    "Check",
    "ClockControl",
    "ClockReading",
    "Device",
    "LoadSource",
    "Meter",
    "Payback",
    "Policy",
    "PowerReading",
    "PowerSampler",
    "PowerSource",
    "PriorRun",
    "Progress",
    "Reading",
    "Recording",
    "Response",
    "RunRecord",
    "Sample",
    "Search",
    "SensorInfo",
    "StageLaunch",
]
