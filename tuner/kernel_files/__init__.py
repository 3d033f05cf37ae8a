"""Kernel files: ``kernel.toml`` to workloads, spaces and plans."""
