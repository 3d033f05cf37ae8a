"""Tuning from Python: kernels on the caller's arrays, results as objects."""

from tuner.python.kernel import Kernel
from tuner.python.result import Result, TrialRow
from tuner.python.tuning import tune

__all__ = ["Kernel", "Result", "TrialRow", "tune"]
