"""The configurations of a workload."""

from tuner.space.enumeration import Condition
from tuner.space.space import Space

__all__ = ["Condition", "Space"]
