"""Which tuner this is: who measures for each other must have the same content."""

import functools
import hashlib
import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from tuner.kernel_files.source_folder import kernels_root
from tuner.model.records import PROTOCOL
from tuner.model.version import VERSION

_BESIDE = ("power", "policies")  # in a checkout; installed they are in the package
_DECIDE = (".py", ".cu", ".cuh", ".toml", ".csv")
_TABLES = ("policies/surrogate/beliefs.json",)
_NOT_OF_NUMBERS = ("systemd", "page", "__pycache__")
_SHOWN = 12


class PackageBuild(NamedTuple):
    """Build of the package, which must be equal for two processes to measure and compare in the same way.

    Attributes:
        version: of the package.
        protocol: of measuring.
        content: SHA-256 over the files of the package that decide numbers; empty where it is not known.
    """

    version: str
    protocol: int
    content: str

    def __str__(self) -> str:
        return (
            f"tuner {self.version} (content {self.content[:_SHOWN] or 'unknown'}, protocol {self.protocol})"
        )

    def misfit(self, other: "PackageBuild | None") -> str:
        """Return the reason why this process must not measure with that of another build; empty if it may.

        Args:
            other: of the other process; None where it told none.
        """
        # a checkout names its commit, and many commits change nothing that counts
        if other == self or (other is not None and self.content and self[1:] == other[1:]):
            return ""
        there = other or "an older tuner"
        return f"it has {there}, and this is {self}; install the same package on both hosts"


@functools.cache
def own_build() -> PackageBuild:
    """The build of this process, read from the disk when it is first asked for."""
    return PackageBuild(VERSION, PROTOCOL, content_of(decisive_files()))


def decisive_files() -> dict[str, Path]:
    """The files that decide numbers, by names that are the same installed and in a checkout."""
    package = Path(str(files("tuner")))
    roots = {"": package, "kernels": kernels_root()}
    for name in _BESIDE:
        roots[name] = package / name if (package / name).is_dir() else package.parent / name
    paths = {}
    for prefix, root in roots.items():
        cut = len(str(root)) + 1
        for folder, inner, names in os.walk(root):
            inner[:] = [name for name in inner if name not in _NOT_OF_NUMBERS]
            for path in (f"{folder}/{name}" for name in names):
                name = f"{prefix}/{path[cut:]}" if prefix else path[cut:]
                if name.endswith(_DECIDE) or name in _TABLES:
                    paths[name] = Path(path)
    return paths


def content_of(paths: Mapping[str, Path]) -> str:
    """SHA-256 over names and contents of files."""
    total = hashlib.sha256()
    for name in sorted(paths):
        total.update(f"{name}\0{hashlib.sha256(paths[name].read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()
