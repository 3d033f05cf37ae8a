"""Energy of regions of a Python program: ``tuner.energy``."""

from typing import TYPE_CHECKING

__all__ = [
    "EnergyMeter",
    "Region",
    "RegionEnergy",
    "RegionPart",
    "TrainingCallback",
    "energy",
    "prometheus",
]

if TYPE_CHECKING:
    from tuner.joules.energy_meter import EnergyMeter, TrainingCallback, energy
    from tuner.joules.regions import Region, RegionEnergy, RegionPart, prometheus
else:
    _MODULES = {
        "EnergyMeter": "energy_meter",
        "Region": "regions",
        "RegionEnergy": "regions",
        "RegionPart": "regions",
        "TrainingCallback": "energy_meter",
        "energy": "energy_meter",
        "prometheus": "regions",
    }

    def __getattr__(name):  # noqa: ANN001, ANN202 - hidden from type checkers, who would take every name
        """Import a name in ``__all__`` on first access: most commands need other modules here alone."""
        from importlib import import_module  # noqa: PLC0415 - as the docstring says

        if name in _MODULES:
            return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
