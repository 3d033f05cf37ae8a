"""The catalogue of kernels: shipped ones, those of the system and of the user, single files; their changes.

A later place overrides an earlier one by the name of the kernel. A broken file hides no other kernel.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.kernel_files.cuda_source.tokens import has_pragmas
from tuner.kernel_files.kernel_document import parsed_document
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.reader import read_recipe, recipe_of
from tuner.kernel_files.source_folder import kernels_root
from tuner.model.errors import InputError, KernelFileError, UnknownNameError, suggestion
from tuner.model.expressions.callables import PythonExpression
from tuner.model.plan import Source, Workload
from tuner.model.records import WorkloadName
from tuner.system.untrusted.reading import SOURCE_BYTES, read_bytes
from tuner.system.user_folders import user_folder

# --- Detects changes of kernel files, the driver or the GPUs.
#
# Looking costs a few stat calls, so that it may be done often: nothing is read again, and no GPU is asked,
# until something looks different. What is then read decides: a file that was only touched makes no answer
# stale.

DRIVER_FILES = (
    Path("/sys/module/nvidia/version"),
    Path("/proc/driver/nvidia/version"),
    Path("/etc/nv_tegra_release"),  # of a Jetson
)
"""Files that identify the version of the driver without a call to it."""

GPU_FILES = Path("/proc/driver/nvidia/gpus")
"""A folder per GPU, with its UUID in ``information``."""

MOST_FILES = 20_000
"""That are looked at below the kernel directories: what may be in one that is trusted."""

_LONGEST = 64 * 1024  # bytes of a file of the driver


@dataclass(frozen=True)
class Changes:
    """The changes since the last look.

    Attributes:
        sources: kernel files or sources: the catalogue is to be read again.
        devices: the driver, or which GPUs there are: they are to be asked who they are.
    """

    sources: bool = False
    devices: bool = False


class ChangeWatcher:
    """Compares the conditions of answers with those of the last look."""

    def __init__(
        self,
        directories: Sequence[Path] = (),
        *,
        shipped: Path | None = None,
        driver_files: Sequence[Path] = DRIVER_FILES,
        gpu_files: Path = GPU_FILES,
    ) -> None:
        self._folders = (kernels_root() if shipped is None else shipped, *directories)
        self._driver_files = tuple(driver_files)
        self._gpu_files = gpu_files
        self._sources = sources_seen(self._folders)
        self._devices = self._devices_seen()

    def look(self) -> Changes:
        """Return the changes since the last look; reads small files and the times of others."""
        sources, devices = sources_seen(self._folders), self._devices_seen()
        changes = Changes(sources != self._sources, devices != self._devices)
        self._sources, self._devices = sources, devices
        return changes

    def _devices_seen(self) -> tuple[str, ...]:
        gpus = sorted(self._gpu_files.glob("*/information"))
        # of a GPU's information the line that names it: the others may change as it works
        texts = (_text(path).splitlines() for path in gpus)
        lines = (next((line for line in text if "UUID" in line), "") for text in texts)
        return (*map(_text, self._driver_files), *lines)


def sources_seen(folders: Iterable[Path]) -> frozenset[tuple[object, ...]]:
    """Every file below folders, by path, times, size and number; those of links are what they lead to."""
    seen: set[tuple[object, ...]] = set()
    pending = [_watched(Path(folder)) for folder in folders]
    entered: set[tuple[int, int]] = set()
    files = 0
    while pending and files < MOST_FILES:
        folder = pending.pop()
        try:
            status = folder.stat()
            here = list(os.scandir(folder))
        except OSError as error:
            seen.add((str(folder), error.errno))
            continue
        if (status.st_dev, status.st_ino) in entered:  # a link leads back
            continue
        entered.add((status.st_dev, status.st_ino))
        for entry in here:
            if _is_folder(entry):
                pending.append(Path(entry.path))
                continue
            files += 1
            try:
                status = entry.stat()
            except OSError as error:
                seen.add((entry.path, error.errno))
                continue
            times = status.st_mtime_ns, status.st_ctime_ns
            seen.add((entry.path, *times, status.st_size, status.st_ino))
    return frozenset(seen)


def _watched(folder: Path) -> Path:
    """The folder; of a kernel file that stands in the place of one, that which it is in."""
    return folder.parent if _is_kernel_file(folder) else folder


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # it went just now
        return False


def _text(path: Path) -> str:
    """The text of a small file; empty where there is none."""
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST).decode(errors="replace")
    except OSError:
        return ""


# --- Makes kernels of files, and of documents that are no files.


def load_kernel_file(path: str | Path) -> KernelFile:
    """Read and validate a kernel file, its sources and headers.

    Raises:
        KernelFileError: it cannot be read or is not a kernel file; the message names the key.
    """
    path = Path(path)
    recipe = read_recipe(path)
    return KernelFile(path, recipe, hashlib.sha256(path.read_bytes()).hexdigest())


def kernel_of(
    document: Mapping[str, Any],
    sources: Mapping[str, Source],
    *,
    label: str,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    restrictions: Sequence[Callable[..., Any]] = (),
    data: Path | None = None,
) -> KernelFile:
    """A kernel that is described by a program instead of a file.

    Args:
        document: what a kernel file of the same kernel says, as a mapping; paths in it are absolute.
        sources: CUDA C++ by the names that the document calls it by.
        label: what messages call the kernel instead of the file.
        functions: further derived names: functions of a configuration, see ``PythonExpression``.
        restrictions: functions that are true for the configurations that may be tried.
        data: folder of the files that the document names; not part of the fingerprint, as their content is.

    Raises:
        KernelFileError: a key is wrong.
        InputError: a function has a parameter that is no size, tunable or derived name.
    """
    path = Path(label)
    recipe = recipe_of(path, parsed_document(path, document), sources, functions or {}, restrictions)
    text = json.dumps(document, sort_keys=True, default=str)
    digest = hashlib.sha256((text if data is None else text.replace(str(data), "")).encode())
    expressions = [*(rule.expression for rule in recipe.rules)]
    expressions += [recipe.derived[name].expression for name in functions or {}]
    for expression in expressions:
        if isinstance(expression, PythonExpression):
            digest.update(f"{expression.text}\0{expression.digest}\0".encode())
    return KernelFile(path, recipe, digest.hexdigest())


# --- Folders of kernel files: which files are in them, and reading them, all at once or one by one.


def kernel_files(folder: Path) -> list[Path]:
    """The kernel files of a folder: ``NAME.toml``, ``NAME/kernel.toml``, and ``.cu`` files with pragmas.

    A source without pragmas belongs to a kernel file, unless it is the only ``kernel`` file of its folder.
    A kernel file that stands in the place of a folder is itself all that is in it.
    """
    if _is_kernel_file(folder):
        return [folder]
    files = [*folder.glob("*.toml"), *folder.glob("*/kernel.toml")]
    alone = [path for path in folder.glob("*/kernel.cu") if not path.with_suffix(".toml").exists()]
    sources = {*folder.glob("*.cu"), *folder.glob("*/kernel.cu")} - set(alone)
    beginnings = ((path, path.read_bytes()[:SOURCE_BYTES].decode(errors="replace")) for path in sources)
    return sorted([*files, *alone, *(path for path, text in beginnings if has_pragmas(text))])


def _is_kernel_file(path: Path) -> bool:
    return path.suffix in (".toml", ".cu") and not path.is_dir()


# --- Kernel files that were added to a folder: each stands there as ``NAME.path``, which holds its path.

ADDED = ".path"
_LONGEST_PATH = 4096  # bytes, as Linux has it


def added_files(folder: Path) -> dict[str, Path]:
    """Name of the kernel -> kernel file that was added to a folder, which need not be there any more."""
    paths = {}
    for place in sorted(folder.glob(f"*{ADDED}")):
        try:
            text = read_bytes(place, _LONGEST_PATH).decode().strip()
        except (OSError, ValueError):  # gone, or none of ours
            continue
        if text.startswith("/") and "\n" not in text and "\0" not in text:
            paths[place.stem] = Path(text)
    return paths


def with_added(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Folders, each followed by the kernel files that were added to it."""
    return tuple(path for folder in folders for path in (folder, *added_files(folder).values()))


@dataclass(frozen=True)
class ReadFolder:
    """The kernels of a folder as they were read; the folder refers to no kernel file outside it.

    Attributes:
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
    """

    def __init__(self, folder: Path) -> None:
        paths, self._unlisted = _listed(folder)
        self.kernels = KernelsOnDemand(paths)

    @property
    def broken(self) -> list[KernelFileError]:
        """Errors of the files that could not be used; reads all files."""
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
        self._by_path: dict[str, tuple[dict[str, KernelFile], list[KernelFileError]]] = {}

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
        """Errors of the files that could not be used; reads all files."""
        return [error for name in self._paths for error in self._of(name)[1]]

    def perhaps_extending(self, name: str) -> list[str]:
        """Names of kernels that may extend another, by the texts of their files: to read all takes long."""
        return [
            each
            for each, paths in self._paths.items()
            if any(_mentions(path, "extends", name) for path in paths)
        ]

    def _of(self, name: str) -> tuple[dict[str, KernelFile], list[KernelFileError]]:
        if name not in self._by_path:
            kernels, broken = _read(self._paths[name])
            broken += [
                KernelFileError(f"{kernel.path}: [kernel] name: must be {name!r}, as the file is called")
                for kernel in kernels.values()
                if kernel.name != name
            ]
            self._by_path.setdefault(name, (kernels, broken))  # another thread may have been first
        return self._by_path[name]


def _mentions(path: Path, *words: str) -> bool:
    """Return True if all words are in a file, or nobody knows."""
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError):
        return True
    return all(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) for word in words)


class LayeredKernels(Mapping[str, KernelFile]):
    """Kernels of several layers by name, in the order of names; a later layer overrides an earlier one.

    Args:
        layers: the strongest last.
    """

    def __init__(self, *layers: Mapping[str, KernelFile]) -> None:
        self._layers = layers

    def __getitem__(self, name: str) -> KernelFile:
        """The kernel of the strongest layer that has the name.

        Raises:
            KeyError: none has it.
        """
        for layer in reversed(self._layers):
            if name in layer:
                return layer[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        """The names, sorted."""
        return iter(sorted(set().union(*self._layers)))

    def __len__(self) -> int:
        """The number of names."""
        return len(set().union(*self._layers))

    def perhaps_extending(self, name: str) -> set[str]:
        """Names of kernels that may extend another."""
        return set().union(*(_perhaps_extending(layer, name) for layer in self._layers))


def _perhaps_extending(kernels: Mapping[str, KernelFile], name: str) -> Collection[str]:
    if isinstance(kernels, KernelsOnDemand | LayeredKernels):
        return kernels.perhaps_extending(name)
    return kernels.keys()


def _listed(folder: Path) -> tuple[list[Path], list[KernelFileError]]:
    try:
        return (kernel_files(folder) if folder.is_dir() or _is_kernel_file(folder) else []), []
    except OSError as e:
        return [], [KernelFileError(f"{folder}: cannot be read: {e.strerror}")]


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
            message = f"{path}: [kernel] name: {kernel.name!r} is taken by {first.path}"
            broken.append(KernelFileError(message))
    return kernels, broken


def _stamp(folder: Path) -> frozenset[tuple[str, int, int, int]]:
    """Name, size and times of every file below a folder, or beside a kernel file: they change with them."""
    stamps = set()
    with suppress(OSError):  # of a folder that this user may not read
        for path in _watched(folder).rglob("*"):
            try:
                status = path.stat()
            except OSError:  # gone since, or a broken link
                continue
            stamps.add((str(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return frozenset(stamps)


# --- The catalogue: kernels and workloads by name.

MAX_DIGITS = 18  # of a batch
SYSTEM_DIRECTORY = Path("/etc/tuner/kernels.d")
DEFAULT_WORKLOADS = ("scan-lf:N=1024", "tridiag-wm:N=512", "fft:N=1024")  # a scan, systems, a transform
_NAMED_PROBLEMS = ("scan", "tridiagonal", "fft")  # that several kernels solve

_FILE_SPEC = re.compile(r"(?P<file>[^:]*\.(?:cu|toml))(?::(?P<sizes>.*))?", re.DOTALL)


def named_files(
    specs: Sequence[str], files: Sequence[str | Path] = ()
) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """Workloads written with a file, as ``my.cu:N=4096``, with the name of its kernel; and all files.

    A file without sizes is its kernel without sizes, which ``Catalog.workloads`` knows what to take for.

    Raises:
        KernelFileError: a file is broken.
    """
    workloads, paths = [], [Path(file) for file in files]
    for spec in specs:
        match = _FILE_SPEC.fullmatch(spec.strip())
        if match is None:
            workloads.append(spec)
            continue
        path = Path(match["file"])
        kernel = load_kernel_file(path)
        workloads.append(f"{kernel.name}:{match['sizes']}" if match["sizes"] else kernel.name)
        if path not in paths:
            paths.append(path)
    return tuple(workloads), tuple(paths)


def user_directory() -> Path:
    """The folder of the user's own kernel files, which need not be there."""
    return user_folder("config") / "kernels.d"


def default_search_path() -> tuple[Path, ...]:
    """Folders of kernel files and files that were added to them, the strongest last."""
    return kernels_root(), *with_added((SYSTEM_DIRECTORY, user_directory()))


def origin(path: Path) -> str:
    """The origin of a kernel file: ``shipped``, ``system``, ``user``, ``added`` or ``file``."""
    folders = {"shipped": kernels_root(), "system": SYSTEM_DIRECTORY, "user": user_directory()}
    for name, folder in folders.items():
        if folder in path.parents:
            return name
    return "added" if path in default_search_path() else "file"


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
        cached: Iterable[ReadFolder] = (),
    ) -> "Catalog":
        """Find the kernel files of the search path; read those that are not shipped.

        The name of a shipped kernel is that of its folder: any other is known only when its file is read.

        Args:
            extra_files: kernel files that override all folders.
            search_path: folders, the strongest last; None for those of the package, system and user. A
                folder holds ``NAME.toml`` or ``NAME/kernel.toml``, or with tuning pragmas ``NAME.cu`` or
                ``NAME/kernel.cu``; one that is not there is skipped. A kernel file may stand for a folder.
            cached: folders that were read before, and are not read again while they are as they were.

        Raises:
            KernelFileError: one of ``extra_files`` is broken (broken files in folders are only noted).
        """
        folders = default_search_path() if search_path is None else tuple(map(Path, search_path))
        before = {folder.folder: folder for folder in cached}
        layers: list[ReadFolder | UnreadFolder] = []
        for folder in folders:
            earlier = before.get(folder)
            if earlier is not None and earlier.is_current:
                layers.append(earlier)
            else:
                layers.append(UnreadFolder(folder) if folder == kernels_root() else ReadFolder.read(folder))
        own = {kernel.name: kernel for kernel in map(load_kernel_file, extra_files)}
        kernels = LayeredKernels(*(layer.kernels for layer in layers), own)
        return cls(kernels, tuple(own), tuple(layers))

    def with_kernels(self, kernels: Mapping[str, KernelFile]) -> "Catalog":
        """The same with further kernels, which override others of their names."""
        return replace(self, kernels=LayeredKernels(self.kernels, kernels))

    @property
    def broken(self) -> list[KernelFileError]:
        """Errors of the files in the folders that could not be used; others can be used. Reads all files."""
        return [error for folder in self.folders for error in folder.broken]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the kernels, sorted."""
        return tuple(self.kernels)

    def workloads(self, specs: Sequence[str]) -> list[Workload]:
        """The workloads of some specs; without any, the kernels of single files, else ``DEFAULT_WORKLOADS``.

        A kernel of a file that is named without sizes is taken at the first value of each that lists them.

        Raises:
            UnknownNameError: as of ``workload``.
            InputError: as of ``workload``.
        """
        named = specs or self.own or DEFAULT_WORKLOADS
        return [self.workload(_first(self.kernels[spec]) if spec in self.own else spec) for spec in named]

    def without_sizes(self, specs: Sequence[str]) -> list[KernelFile]:
        """The kernels that some specs name without sizes, or that are meant without any spec."""
        return [self.kernel(spec) for spec in specs or self.own if ":" not in spec]

    def workload_set(self, specs: Sequence[str]) -> list[Workload]:
        """The workloads of some specs, to run together; see ``workloads``.

        Raises:
            UnknownNameError: as of ``workload``.
            InputError: as of ``workload``; or a workload is named twice, whatever its batch.
        """
        workloads = self.workloads(specs)
        names = [str(workload) for workload in workloads]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(f"{', '.join(twice)}: named more than once; a co-run holds a workload once")
        return workloads

    def exact(self, specs: Sequence[str]) -> tuple[str, ...]:
        """The specs of workloads that run together in the one way of writing each; see ``workload_set``."""
        return tuple(self.kernels[workload.kernel].spec_of(workload) for workload in self.workload_set(specs))

    def kernel(self, name: str) -> KernelFile:
        """The kernel of this name.

        Raises:
            UnknownNameError: no kernel has the name; the message says where those there are stand.
        """
        name = name.strip()
        if name in self.kernels:
            return self.kernels[name]
        if "@" in name:  # as programs are called, and kernels never
            raise UnknownNameError(
                f"{name}: a program is no kernel, and its answer goes into no file: `tuner history` has the"
                " number of its run, and `tuner program exec --use RUN` runs it with the answer"
            )
        near = suggestion(name, self.names)
        message = f"unknown kernel {name!r}{near}; `tuner kernels list` shows those there are"
        if not near:
            message += "; your own is named by its file, or known by its name after `tuner kernels add FILE`"
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
                example = f", as in {kernel.example}" if ":" in kernel.example else ""
                raise InputError(f"workload {spec!r}: {key!r} is not of the form size=value{example}")
            if key in sizes:
                raise InputError(f"workload {spec!r}: {key} is given twice")
            sizes[key] = value
        batch = None if name.batch is None else _whole(name.batch, spec)
        return self.workload_of(kernel, lambda candidate: candidate.workload(sizes, batch))

    def workload_of(self, kernel: KernelFile, at: Callable[[KernelFile], Workload]) -> Workload:
        """A kernel at the sizes that ``at`` gives it, or one that extends it and takes them.

        The latter where the kernel refuses them, or leaves them to others.

        Raises:
            UnknownNameError: the kernel does not take them; the message names those of the same problem that
                do, or what those that extend it take.
            InputError: as of ``at``.
        """
        try:
            workload = at(kernel)
        except InputError as error:
            refusals: dict[str, InputError] = {}
            for other in self._extending(kernel):
                refusal = _refusal(other, at)
                if refusal is None:
                    return self.workload_of(other, at)
                refusals[other.name] = refusal
            if not isinstance(error, UnknownNameError):
                raise
            others = [other.name for other in self._same_problem(kernel) if _refusal(other, at) is None]
            if others:
                raise UnknownNameError(
                    f"{error}, or take {' or '.join(others)}, which solves this too"
                ) from error
            if not refusals:
                raise
            told, names = "; ".join(map(str, refusals.values())), ", ".join(refusals)
            raise UnknownNameError(f"{error}. Other sizes are those of {names}: {told}") from error
        better = self._extending(kernel) if kernel.leaves(workload) else ()
        return next((at(other) for other in better if _refusal(other, at) is None), workload)

    def _extending(self, kernel: KernelFile) -> Iterator[KernelFile]:
        """Those that extend a kernel, each read when it is its turn: mostly the first one takes the sizes."""
        for name in sorted(_perhaps_extending(self.kernels, kernel.name)):
            if name in self.kernels and kernel.name in self.kernels[name].recipe.extends:
                yield self.kernels[name]

    def _same_problem(self, kernel: KernelFile) -> list[KernelFile]:
        """Other kernels of the same built-in problem, of tridiagonal systems those with the same boundary."""
        if kernel.problem.name not in _NAMED_PROBLEMS:
            return []
        return [
            other
            for other in self.kernels.values()
            if other.problem.name == kernel.problem.name
            and other.name != kernel.name
            and other.sizes.get("boundary", ("open",)) == kernel.sizes.get("boundary", ("open",))
        ]


def _refusal(kernel: KernelFile, at: Callable[[KernelFile], Workload]) -> InputError | None:
    """Return the error if a kernel does not take sizes; None if it does."""
    try:
        at(kernel)
    except InputError as error:
        return error
    return None


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
