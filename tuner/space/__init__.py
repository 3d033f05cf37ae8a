"""The configurations of a workload."""

from tuner.space.space import Space

__all__ = ["Space"]
