"""The configurations of a workload."""

from tuner.space.conditions import Condition
from tuner.space.space import Space

__all__ = ["Condition", "Space"]
