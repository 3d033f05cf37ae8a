"""Folders of kernel files: which files are in them, and reading them, all at once or one by one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tuner.config.loading import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import KernelFileError
from tuner.pragmas.directives import has_pragmas
from tuner.untrusted.limits import SOURCE_BYTES


def kernel_files(folder: Path) -> list[Path]:
    """The kernel files of a folder: ``NAME.toml``, ``NAME/kernel.toml``, and ``.cu`` files with pragmas.

    A source without pragmas belongs to a kernel file, unless it is the only ``kernel`` file of its folder.
    """
    files = [*folder.glob("*.toml"), *folder.glob("*/kernel.toml")]
    alone = [path for path in folder.glob("*/kernel.cu") if not path.with_suffix(".toml").exists()]
    sources = {*folder.glob("*.cu"), *folder.glob("*/kernel.cu")} - set(alone)
    return sorted([*files, *alone, *(path for path in sources if _has_pragmas(path))])


@dataclass(frozen=True)
class ReadFolder:
    """The kernels of a folder as they were read; the folder refers to no kernel file outside it.

    Attributes:
        folder: of kernel files.
        kernels: name -> kernel file.
        broken: why files could not be used.
        stamp: of the folder's files when they were read.
    """

    folder: Path
    kernels: dict[str, KernelFile]
    broken: list[KernelFileError]
    stamp: frozenset[tuple[str, int, int, int]]

    @classmethod
    def read(cls, folder: Path) -> "ReadFolder":
        """Read the kernel files of a folder; one that is not there has none."""
        stamp = _stamp(folder)  # before: what changes meanwhile is read again
        paths, broken = _listed(folder)
        kernels, unreadable = _read(paths)
        return cls(folder, kernels, broken + unreadable, stamp)

    @property
    def is_current(self) -> bool:
        """True while no file of the folder has changed, come or gone."""
        return _stamp(self.folder) == self.stamp


class UnreadFolder:
    """A folder whose kernels have the names of their folders, so that one is read without the others.

    Args:
        folder: of kernel files; one that is not there has none.

    Attributes:
        kernels: name -> kernel file, read when it is asked for.
    """

    def __init__(self, folder: Path) -> None:
        paths, self._unlisted = _listed(folder)
        self.kernels = KernelsOnDemand(paths)

    @property
    def broken(self) -> list[KernelFileError]:
        """Why files could not be used; reads them all."""
        return self._unlisted + self.kernels.broken


class KernelsOnDemand(Mapping[str, KernelFile]):
    """Kernels by name, each read when it is first asked for. May be used by several threads.

    Names, their number and whether there is one are those of the files that can be read: to iterate or count
    reads them all.

    Args:
        paths: of kernel files that are called as their kernels: ``NAME/kernel.toml`` or ``NAME.toml``.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths: dict[str, list[Path]] = {}
        for path in paths:
            self._paths.setdefault(path.parent.name if path.stem == "kernel" else path.stem, []).append(path)
        self._found: dict[str, tuple[dict[str, KernelFile], list[KernelFileError]]] = {}

    def __getitem__(self, name: str) -> KernelFile:
        """The kernel of a name.

        Raises:
            KeyError: no file is called so, or it is broken.
        """
        return self._of(name)[0][name]

    def __iter__(self) -> Iterator[str]:
        """The names of the kernels."""
        return (name for name in self._paths if name in self)

    def __len__(self) -> int:
        """The number of the kernels."""
        return sum(1 for _ in self)

    @property
    def broken(self) -> list[KernelFileError]:
        """Why files could not be used; reads them all."""
        return [error for name in self._paths for error in self._of(name)[1]]

    def _of(self, name: str) -> tuple[dict[str, KernelFile], list[KernelFileError]]:
        if name not in self._found:
            kernels, broken = _read(self._paths[name])
            broken += [
                KernelFileError(f"{kernel.path}: [kernel] name: must be {name!r}, as the file is called")
                for kernel in kernels.values()
                if kernel.name != name
            ]
            self._found.setdefault(name, (kernels, broken))  # another thread may have been first
        return self._found[name]


class LayeredKernels(Mapping[str, KernelFile]):
    """Kernels of several places by name, in the order of names; a later place overrides an earlier one.

    Args:
        places: the strongest last.
    """

    def __init__(self, *places: Mapping[str, KernelFile]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> KernelFile:
        """The kernel of the strongest place that has the name.

        Raises:
            KeyError: none has it.
        """
        for place in reversed(self._places):
            if name in place:
                return place[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        """The names, sorted."""
        return iter(sorted(set().union(*self._places)))

    def __len__(self) -> int:
        """The number of names."""
        return len(set().union(*self._places))


def _listed(folder: Path) -> tuple[list[Path], list[KernelFileError]]:
    try:
        return (kernel_files(folder) if folder.is_dir() else []), []
    except OSError as e:
        return [], [KernelFileError(f"{folder}: cannot be read: {e.strerror}")]


def _has_pragmas(path: Path) -> bool:
    """Whether a source beside kernel files is one itself; the sources of others have no pragmas."""
    return has_pragmas(path.read_bytes()[:SOURCE_BYTES].decode(errors="replace"))


def _read(paths: Sequence[Path]) -> tuple[dict[str, KernelFile], list[KernelFileError]]:
    """The kernels of the files of a folder, and why others cannot be used."""
    kernels: dict[str, KernelFile] = {}
    broken: list[KernelFileError] = []
    for path in paths:
        try:
            kernel = load_kernel_file(path)
        except KernelFileError as e:
            broken.append(e)
            continue
        first = kernels.setdefault(kernel.name, kernel)
        if first is not kernel:
            taken = f"{path}: [kernel] name: {kernel.name!r} is taken by {first.path}"
            broken.append(KernelFileError(taken))
    return kernels, broken


def _stamp(folder: Path) -> frozenset[tuple[str, int, int, int]]:
    """Name, size and times of every file below a folder, which change with its content."""
    found = set()
    with suppress(OSError):  # of a folder that this user may not read
        for path in folder.rglob("*"):
            try:
                status = path.stat()
            except OSError:  # gone since, or a broken link
                continue
            found.add((str(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return frozenset(found)
