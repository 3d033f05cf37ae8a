"""The shipped kernels, read once in a process and not by every command that is called in it."""

from pathlib import Path

from tuner.config import KernelFile, catalog, load_kernel_file


def keep_shipped_kernels() -> None:
    """Let catalogues of this process have the shipped kernels as they were first read."""
    root, read = catalog.kernels_root(), load_kernel_file
    kept: dict[Path, KernelFile] = {}

    def load(path: str | Path) -> KernelFile:
        path = Path(path)
        if root not in path.parents:
            return read(path)
        if path not in kept:
            kept[path] = read(path)
        return kept[path]

    setattr(catalog, "load_kernel_file", load)  # noqa: B010 - in place of a function of the module
