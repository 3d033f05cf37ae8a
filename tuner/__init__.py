"""Tune concurrent GPU kernels, and the GPU clock, for time or energy."""

from typing import TYPE_CHECKING

from tuner.model.version import VERSION

__version__ = VERSION

__all__ = [
    "Client",
    "Kernel",
    "Result",
    "apply",
    "chosen",
    "energy",
    "fft",
    "judge",
    "linalg",
    "mark",
    "phase",
    "plan",
    "scan",
    "tridiagonal",
    "tune",
]

if TYPE_CHECKING:
    from tuner import fft, linalg, scan, tridiagonal
    from tuner.application import apply, chosen, plan
    from tuner.client.client import Client
    from tuner.joules.energy_meter import energy
    from tuner.python.judging import judge
    from tuner.python.kernel import Kernel
    from tuner.python.result import Result
    from tuner.python.tuning import tune
    from tuner.system.marks import mark, phase
else:
    _MODULES = {
        "Client": "tuner.client",
        "Kernel": "tuner.python",
        "Result": "tuner.python",
        "tune": "tuner.python",
        "apply": "tuner.application",
        "chosen": "tuner.application",
        "energy": "tuner.joules",
        "judge": "tuner.python.judging",
        "mark": "tuner.system.marks",
        "phase": "tuner.system.marks",
        "plan": "tuner.application",
    }

    def __getattr__(name):  # noqa: ANN001, ANN202 - hidden from type checkers, who would take every name
        """Import a name in ``__all__`` on first access, so that commands start without it."""
        from importlib import import_module  # noqa: PLC0415 - as the docstring says

        if name in ("fft", "linalg", "scan", "tridiagonal", "triton"):  # modules
            return import_module(f"tuner.{name}")
        if name in _MODULES:
            found = getattr(import_module(_MODULES[name]), name)
            globals()[name] = found  # asking again would take microseconds of every call
            return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():  # noqa: ANN202 - as above
        """List the names that are imported on first access, too."""
        return sorted({*globals(), *__all__})
