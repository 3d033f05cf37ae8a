"""The catalogue of kernels: shipped ones, those of the system and of the user, and single files.

A later place overrides an earlier one by the name of the kernel. A broken file hides no other kernel.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.config.kernel_folders import LayeredKernels, ReadFolder, UnreadFolder
from tuner.config.loading import load_kernel_file
from tuner.config.shipped import kernels_root
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError, KernelFileError, UnknownNameError, suggestion
from tuner.model.plan import Workload
from tuner.model.workload_name import WorkloadName
from tuner.system.user_folders import user_folder

MAX_DIGITS = 18  # of a batch
SYSTEM_DIRECTORY = Path("/etc/tuner/kernels.d")
DEFAULT_WORKLOADS = ("scan-lf:N=1024", "tridiag-wm:N=512", "fft:N=1024")  # a scan, systems, a transform
_NAMED_PROBLEMS = ("scan", "tridiagonal", "fft")  # that several kernels solve

_FILE_SPEC = re.compile(r"(?P<file>[^:]*\.(?:cu|toml))(?::(?P<sizes>.*))?", re.DOTALL)


def named_files(
    specs: Sequence[str], files: Sequence[str | Path] = ()
) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """Workloads written with a file, as ``my.cu:N=4096``, with the name of its kernel; and all files.

    A file without sizes stands for its first workload, as with ``Catalog.workloads``.

    Args:
        specs: workloads.
        files: kernel files beside them.

    Raises:
        KernelFileError: a file is broken.
    """
    found, paths = [], [Path(file) for file in files]
    for spec in specs:
        match = _FILE_SPEC.fullmatch(spec.strip())
        if match is None:
            found.append(spec)
            continue
        path = Path(match["file"])
        kernel = load_kernel_file(path)
        found.append(f"{kernel.name}:{match['sizes']}" if match["sizes"] else _first(kernel))
        if path not in paths:
            paths.append(path)
    return tuple(found), tuple(paths)


def default_search_path() -> tuple[Path, ...]:
    """Folders of kernel files, the strongest last."""
    return kernels_root(), SYSTEM_DIRECTORY, user_folder("config") / "kernels.d"


def origin(path: Path) -> str:
    """The origin of a kernel file: ``shipped``, ``system``, ``user`` or ``file``."""
    names = ("shipped", "system", "user")
    for name, folder in zip(names, default_search_path(), strict=True):
        if folder in path.parents:
            return name
    return "file"


@dataclass(frozen=True)
class Catalog:
    """Kernels by name.

    Attributes:
        kernels: name -> kernel file, in the order of names. A shipped one is read when it is asked for.
        own: names of the kernels of single files, in the order given.
        folders: of which the kernels are, the strongest last.
    """

    kernels: Mapping[str, KernelFile]
    own: tuple[str, ...] = ()
    folders: tuple[ReadFolder | UnreadFolder, ...] = ()

    @classmethod
    def load(
        cls,
        extra_files: Iterable[str | Path] = (),
        search_path: Sequence[str | Path] | None = None,
        known: Iterable[ReadFolder] = (),
    ) -> "Catalog":
        """Find the kernel files of the search path; read those that are not shipped.

        The name of a shipped kernel is that of its folder: any other is known only when its file is read.

        Args:
            extra_files: kernel files that override all folders.
            search_path: folders, the strongest last; None for those of the package, system and user. A
                folder holds ``NAME.toml`` or ``NAME/kernel.toml``, or with tuning pragmas ``NAME.cu`` or
                ``NAME/kernel.cu``; one that is not there is skipped.
            known: folders that were read before, and are not read again while they are as they were.

        Raises:
            KernelFileError: one of ``extra_files`` is broken (broken files in folders are only noted).
        """
        folders = default_search_path() if search_path is None else tuple(map(Path, search_path))
        before = {one.folder: one for one in known}
        places: list[ReadFolder | UnreadFolder] = []
        for folder in folders:
            found = before.get(folder)
            if found is not None and found.is_current:
                places.append(found)
            else:
                places.append(UnreadFolder(folder) if folder == kernels_root() else ReadFolder.read(folder))
        own = {kernel.name: kernel for kernel in map(load_kernel_file, extra_files)}
        kernels = LayeredKernels(*(place.kernels for place in places), own)
        return cls(kernels, tuple(own), tuple(places))

    def with_kernels(self, kernels: Mapping[str, KernelFile]) -> "Catalog":
        """The same with further kernels, which override others of their names."""
        return replace(self, kernels=LayeredKernels(self.kernels, kernels))

    @property
    def broken(self) -> list[KernelFileError]:
        """Why files in the folders could not be used, the kernels of all others can; reads them all."""
        return [error for folder in self.folders for error in folder.broken]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the kernels, sorted."""
        return tuple(self.kernels)

    def workloads(self, specs: Sequence[str]) -> list[Workload]:
        """The workloads of some specs; without any, the kernels of single files, else ``DEFAULT_WORKLOADS``.

        A kernel of a file is taken at the first value of each size that lists its values.

        Raises:
            UnknownNameError: as of ``workload``.
            InputError: as of ``workload``.
        """
        own = [_first(self.kernels[name]) for name in self.own]
        return [self.workload(spec) for spec in specs or own or DEFAULT_WORKLOADS]

    def kernel(self, name: str) -> KernelFile:
        """The kernel of this name.

        Raises:
            UnknownNameError: no kernel has the name; the message lists those there are.
        """
        name = name.strip()
        if name in self.kernels:
            return self.kernels[name]
        known = ", ".join(self.names) or "there is none"
        message = f"unknown kernel {name!r}; choose from: {known}{suggestion(name, self.names)}"
        if name.endswith((".toml", ".cu")) or not suggestion(name, self.names):
            message += "; a kernel file follows --kernel, as in --kernel FILE"
        if self.broken:
            message += f" (kernel files that could not be read: {len(self.broken)}; {self.broken[0]})"
        raise UnknownNameError(message)

    def workload(self, spec: str) -> Workload:
        """The workload written as ``name[:key=value[,key=value]...][,batch=n]``, e.g. ``scan-lf:N=256``.

        Raises:
            UnknownNameError: the kernel, or a size, is not known, or a size is missing.
            InputError: the text has another form.
        """
        name = WorkloadName.parse(spec)
        kernel = self.kernel(name.kernel)
        sizes: dict[str, int | str] = {}
        for key, value in name.sizes:
            if not value:
                raise InputError(
                    f"workload {spec!r}: {key!r} is not of the form size=value{_example(kernel)}"
                )
            if key in sizes:
                raise InputError(f"workload {spec!r}: {key} is given twice")
            sizes[key] = value
        batch = None if name.batch is None else _whole(name.batch, spec)
        return self.workload_of(kernel, lambda one: one.workload(sizes, batch))

    def workload_of(self, kernel: KernelFile, at: Callable[[KernelFile], Workload]) -> Workload:
        """A kernel at the sizes that ``at`` gives it, or one that extends it and takes them.

        Raises:
            UnknownNameError: the kernel does not take them; the message names those of the same problem that
                do, or what those that extend it take.
            InputError: as of ``at``.
        """
        try:
            return at(kernel)
        except InputError as error:
            extending = [one for one in self.kernels.values() if kernel.name in one.recipe.extends]
            other = next((one for one in extending if _refusal(one, at) is None), None)
            if other is not None:
                return at(other)
            if not isinstance(error, UnknownNameError):
                raise
            others = [other.name for other in self._kin(kernel) if _refusal(other, at) is None]
            if others:
                named = " or ".join(others)
                raise UnknownNameError(f"{error}, or take {named}, which solves this too") from error
            if not extending:
                raise
            refusals = "; ".join(str(_refusal(one, at)) for one in extending)
            names = ", ".join(one.name for one in extending)
            raise UnknownNameError(f"{error}. Other sizes are those of {names}: {refusals}") from error

    def _kin(self, kernel: KernelFile) -> list[KernelFile]:
        """Other kernels of the same built-in problem."""
        if kernel.problem.name not in _NAMED_PROBLEMS:
            return []
        return [
            other
            for other in self.kernels.values()
            if other.problem.name == kernel.problem.name
            and other.name != kernel.name
            and _boundary(other) == _boundary(kernel)
        ]


def _boundary(kernel: KernelFile) -> Sequence[int | str]:
    """Which tridiagonal systems a kernel solves, see ``Tridiagonal.words``."""
    return kernel.sizes.get("boundary", ("open",))


def _refusal(kernel: KernelFile, at: Callable[[KernelFile], Workload]) -> InputError | None:
    """Why a kernel does not take sizes; None where it does."""
    try:
        at(kernel)
    except InputError as error:
        return error
    return None


def _example(kernel: KernelFile) -> str:
    example = kernel.example
    return f", as in {example}" if ":" in example else ""


def _first(kernel: KernelFile) -> str:
    """The kernel at the first value of each size that lists its values."""
    ranges = any(
        isinstance(values, range) for name, values in kernel.sizes.items() if name not in kernel.optional
    )
    return kernel.name if ranges else kernel.example


def _whole(text: str, spec: str) -> int:
    if not re.fullmatch(r"[0-9]+", text):
        raise InputError(f"workload {spec!r}: batch={text} is not a whole number")
    if len(text) > MAX_DIGITS:
        raise InputError(f"workload {spec!r}: batch={text} is too large")
    return int(text)
