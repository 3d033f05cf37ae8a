"""The shipped kernels, read once in a process and not by every command and test that is in it."""

import functools
from pathlib import Path

from tuner.kernel_files import catalog
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.source_folder import kernels_root


def keep_shipped_kernels() -> None:
    """Let this process have the shipped kernels as they were first read, in catalogues and in tests."""
    root = kernels_root()
    kept = functools.cache(load_kernel_file)

    def load(path: str | Path) -> KernelFile:
        path = Path(path)
        return kept(path) if root in path.parents else load_kernel_file(path)

    setattr(catalog, "load_kernel_file", load)  # noqa: B010 - in place of a function of the module
