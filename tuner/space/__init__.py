"""The configurations of a workload."""
