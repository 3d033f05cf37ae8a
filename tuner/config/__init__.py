"""Kernel files: ``kernel.toml`` to workloads, spaces and plans."""

from tuner.config.kernel_file import KernelFile, json_schema, load_kernel_file

__all__ = ["KernelFile", "json_schema", "load_kernel_file"]
