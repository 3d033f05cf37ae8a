"""The borders of the project: device, measurer, trial store, power sampler, meter, clock control, policy.

Each is a few verbs wide and has a simulated implementation in the package. Nothing here imports an
implementation; ``tuner.registry`` finds those by name.
"""

from tuner.interfaces.devices import Check, Device, LoadSource, Progress, RunRecord
from tuner.interfaces.energy import (
    CorrectedPower,
    EnergyTotal,
    Meter,
    PowerLevel,
    PowerReading,
    ProgramEnergy,
    ProgramTimeline,
    Recording,
    Span,
    SpanEnergy,
    SpentEnergy,
)
from tuner.interfaces.policies import (
    Candidate,
    ClockPoint,
    Criterion,
    Payback,
    Policy,
    PriorRun,
    Search,
    StageLaunch,
)
from tuner.interfaces.power import (
    ClockControl,
    ClockReading,
    PowerLimitControl,
    PowerSampler,
    PowerSource,
    Reading,
    Response,
    Sample,
    SensorInfo,
    SettableClocks,
    SettableLimits,
)
from tuner.interfaces.trials import Anchor, Contest, Measurer, PlannedTrial, TrialPool, TrialStore

__all__ = [
    "Anchor",
    "Candidate",
    "Check",
    "ClockControl",
    "ClockPoint",
    "ClockReading",
    "Contest",
    "CorrectedPower",
    "Criterion",
    "Device",
    "EnergyTotal",
    "LoadSource",
    "Measurer",
    "Meter",
    "Payback",
    "PlannedTrial",
    "Policy",
    "PowerLevel",
    "PowerLimitControl",
    "PowerReading",
    "PowerSampler",
    "PowerSource",
    "PriorRun",
    "ProgramEnergy",
    "ProgramTimeline",
    "Progress",
    "Reading",
    "Recording",
    "Response",
    "RunRecord",
    "Sample",
    "Search",
    "SensorInfo",
    "SettableClocks",
    "SettableLimits",
    "Span",
    "SpanEnergy",
    "SpentEnergy",
    "StageLaunch",
    "TrialPool",
    "TrialStore",
]
