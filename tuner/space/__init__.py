"""The configurations of a workload."""

from tuner.space.space import Space
from tuner.space.values import Condition

__all__ = ["Condition", "Space"]
