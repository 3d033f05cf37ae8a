"""Kernel files: ``kernel.toml`` to workloads, spaces and plans."""

from tuner.config.loading import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.schema import json_schema

__all__ = ["KernelFile", "json_schema", "load_kernel_file"]
