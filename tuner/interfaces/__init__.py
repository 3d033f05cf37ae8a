"""The borders of the project: device, measurer, trial store, power sampler, meter, clock control, policy.

Each is a few verbs wide and has a simulated implementation in the package. Nothing here imports an
implementation; ``tuner.registry`` finds those by name. What is imported from here brings its own module and
no other: a guardian of clocks knows neither trials nor policies, and starts in half the time.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.devices.base import Check, Device, LoadSource, Progress, RunRecord
    from tuner.interfaces.power import (
        LEAST_W,
        MOST_W,
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
    from tuner.measurement.base import Anchor, Contest, Measurer, PlannedTrial, TrialPool, TrialStore
    from tuner.power.base import (
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
    from tuner.space.search_view import (
        Candidate,
        ClockPoint,
        Criterion,
        LargeSpace,
        Payback,
        Policy,
        PriorRun,
        Search,
        StageLaunch,
    )
else:
    _NAMES = {
        "devices": ("Check", "Device", "LoadSource", "Progress", "RunRecord"),
        "energy": (
            "CorrectedPower",
            "EnergyTotal",
            "Meter",
            "PowerLevel",
            "PowerReading",
            "ProgramEnergy",
            "ProgramTimeline",
            "Recording",
            "Span",
            "SpanEnergy",
            "SpentEnergy",
        ),
        "policies": (
            "Candidate",
            "ClockPoint",
            "Criterion",
            "LargeSpace",
            "Payback",
            "Policy",
            "PriorRun",
            "Search",
            "StageLaunch",
        ),
        "power": (
            "LEAST_W",
            "MOST_W",
            "ClockControl",
            "ClockReading",
            "PowerLimitControl",
            "PowerSampler",
            "PowerSource",
            "Reading",
            "Response",
            "Sample",
            "SensorInfo",
            "SettableClocks",
            "SettableLimits",
        ),
        "trials": ("Anchor", "Contest", "Measurer", "PlannedTrial", "TrialPool", "TrialStore"),
    }
    _MODULES = {name: module for module, names in _NAMES.items() for name in names}

    def __getattr__(name):  # noqa: ANN001, ANN202 - hidden from type checkers, who would take every name
        """What ``__all__`` names, imported when first asked for."""
        from importlib import import_module  # noqa: PLC0415 - as the docstring says

        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = [
    "LEAST_W",
    "MOST_W",
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
    "LargeSpace",
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
