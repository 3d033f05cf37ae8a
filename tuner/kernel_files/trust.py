"""Checks that only root and the service's user can write the directories of kernels.

Whoever can change a kernel file has his code run by the service. So every directory from the root down to a
kernel directory, and all there is inside it, must belong to trusted users and be writable by nobody else; the
same holds for whatever a symbolic link leads to.

What is guaranteed: paths are looked at from the root downwards, each name in a directory that has been found
trusted already. From then on only trusted users can replace what the name stands for: nothing that is found
here becomes something else between this look and a later use, other than by their hand. The path returned
holds no symbolic link. Two things are not seen: a file that somebody keeps open for writing since a
time when he was allowed to, and what root mounts over.
"""

import os
import pwd
import re
import shlex
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from tuner.kernel_files.build_command import found_command
from tuner.kernel_files.catalog import added_files, kernel_files
from tuner.kernel_files.input_reader import named_files
from tuner.kernel_files.kernel_document import read_document
from tuner.kernel_files.schema import KernelDocument, StageTable
from tuner.kernel_files.short_files import read_pragma_file
from tuner.kernel_files.source_folder import is_of_catalogue, pattern_of
from tuner.kernel_files.triton_source import import_root
from tuner.model.errors import InputError, KernelFileError

ROOT = Path("/")
MAX_ENTRIES = 20_000  # in one kernel directory; far more than any has, and looked through in a second
_OF_THE_SYSTEM = frozenset(
    map(Path, ("/", "/dev/shm", "/home", "/mnt", "/opt", "/run", "/srv", "/tmp", "/usr", "/var", "/var/tmp"))  # noqa: S108
)  # whose rights are the system's, not ours to change
_READS_FILES = re.compile(
    r"\s*(?:[@{]|--?(?:I|include|pre-include|options-file|optf|create-pch|use-pch|pch|\{))"
)  # options of NVRTC, and those that a tunable may make one of
_FROM_ROOT = re.compile(r"/[^\s=:,;'\"{}]+")  # paths in the words of a command
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")  # texts in expressions
_MAX_LINKS = 40  # on one path, as path_resolution(7) has it
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH  # an ACL that lets anybody write shows as the group's right


def service_owners() -> frozenset[int]:
    """User ids that may write what the service runs: root and its own."""
    return frozenset((0, os.geteuid()))


def trusted(
    directory: Path,
    owners: Collection[int] | None = None,
    *,
    below: Path = ROOT,
    most: int = MAX_ENTRIES,
) -> Path:
    """The directory without symbolic links, if only its owners can change what is in it.

    Args:
        directory: an absolute path.
        owners: ids of trusted users; None for root and the service's user.
        below: the first directory that is looked at; those above are taken as trusted.
        most: entries in it at most.

    Raises:
        InputError: it is not there, or others can change it; the message names the path and the remedy.
    """
    look = _TrustCheck(_owners(owners), below)
    resolved = look.resolved(directory)
    if not resolved.is_dir():
        raise InputError(f"{directory}: is not a directory")
    look.through(resolved, most)
    return resolved


def _owners(owners: Collection[int] | None) -> frozenset[int]:
    return service_owners() if owners is None else frozenset(owners)


def kernel_directories(
    directories: Iterable[Path], owners: Collection[int] | None = None, *, below: Path = ROOT
) -> tuple[Path, ...]:
    """Trusted directories of kernel files, without symbolic links; those that are not there are left out.

    A kernel file may stand in the place of a directory: the one that it is in is then looked at as a whole.

    Raises:
        InputError: others can change one, or a kernel file names a source or header outside all of them.
    """
    resolved = tuple(
        _trusted_place(directory, owners, below) for directory in directories if os.path.lexists(directory)
    )
    folders = [place if place.is_dir() else place.parent for place in resolved]
    for directory in resolved:
        try:
            files = kernel_files(directory)
        except OSError as error:
            raise InputError(f"{directory}: cannot be read: {error.strerror}") from error
        for path in files:
            _check_sources(path, folders, _TrustCheck(_owners(owners), below))
    return resolved


def _trusted_place(path: Path, owners: Collection[int] | None, below: Path) -> Path:
    """A trusted directory of kernel files, or a kernel file in one, without symbolic links."""
    if path.is_dir():
        return trusted(path, owners, below=below)
    return trusted(path.parent, owners, below=below) / path.name


def usable_directories(
    directories: Iterable[Path], owners: Collection[int] | None = None, *, below: Path = ROOT
) -> tuple[tuple[Path, ...], dict[Path, str]]:
    """Trusted directories of kernel files, as ``kernel_directories`` has them, and why others are left out.

    Returns:
        Those that can be used and the kernel files that were added to them, without symbolic links, and for
        each other one, as it was named, the reason.
    """
    candidates, reasons = list[Path](), dict[Path, str]()
    pending = [path for path in directories if os.path.lexists(path)]
    while pending:
        path = pending.pop(0)
        candidates.append(path)
        try:
            place = _trusted_place(path, owners, below)
        except InputError as error:
            reasons[path] = str(error)
            continue
        if place.is_dir():  # what was added to one that others can change says nothing
            pending[:0] = added_files(place).values()
        elif not place.exists():
            reasons[path] = f"{path}: is gone; `tuner kernels add --list` names it"
    while True:
        candidates = [path for path in candidates if path not in reasons]
        try:
            return kernel_directories(candidates, owners, below=below), reasons
        except InputError as error:  # a kernel file in one of them names what is in none
            reasons[_first_at_fault(candidates, owners, below)] = str(error)


def _first_at_fault(directories: Sequence[Path], owners: Collection[int] | None, below: Path) -> Path:
    """The directory without which the others can be used, or the last."""
    for directory in directories:
        try:
            kernel_directories([path for path in directories if path != directory], owners, below=below)
        except InputError:
            continue
        return directory
    return directories[-1]


def _check_sources(path: Path, directories: Sequence[Path], look: "_TrustCheck") -> None:
    """Refuse a kernel file that reads what nobody has looked at."""
    try:
        document = read_pragma_file(path)[1] if path.suffix == ".cu" else read_document(path)
    except KernelFileError:  # the catalogue leaves it out, and says why
        return
    kernel = document.kernel
    tables = [*document.stage, *(stage for variant in document.variant.values() for stage in variant.stage)]
    stages = [stage.source for stage in tables if isinstance(stage, StageTable)]
    headers = [name for name in kernel.headers if not is_of_catalogue(name)]
    folders = [*headers, *kernel.include_paths]
    for option in kernel.options:
        if _READS_FILES.match(option):
            raise InputError(f"{path}: option {option!r} reads files; name folders in [kernel] include_paths")
    sources = list(dict.fromkeys(filter(None, [kernel.source, *stages])))
    for source in sources if kernel.build else ():
        _check_command(path, kernel.build, (path.parent / source).parent, look)
    for words in _chosen(document) if kernel.build else ():
        if "/" in words:
            raise InputError(f"{path}: build: a value is {words!r}, a path; write paths in words of build")
    named = [name for source in sources if "{" in source for name in _like(path.parent, source)]
    roots = [str(import_root(path.parent / source)) for source in sources if source.endswith(".py")]
    for name in filter(None, [*sources, *named, *folders, *roots, *_data_and_functions(document)]):
        target = (path.parent / name).resolve()
        if not any(target.is_relative_to(directory) for directory in directories):
            listed = ", ".join(map(str, directories))
            raise InputError(
                f"{path}: {name!r} leads to {target}, out of the kernel directories ({listed});"
                f" the service reads and runs only what is in them: move it beside {path.name}"
            )


def _chosen(document: KernelDocument) -> Iterator[str]:
    """Texts that expressions may have as values: of tunables, sizes and their own."""
    expressions: list[object] = [*document.derived.values()]
    lists: list[Iterable[object]] = [one for one in document.problem.sizes.values() if isinstance(one, list)]
    for tunables in (document.tunables, *(variant.tunables for variant in document.variant.values())):
        for one in tunables.values():
            lists.append(one if isinstance(one, list) else [*(one.values or ()), *(one.permutation or ())])
            expressions += [] if isinstance(one, list) else [one.otherwise]
    yield from (value for values in lists for value in values if isinstance(value, str))
    yield from (text[0][1:-1] for one in expressions for text in _QUOTED.finditer(str(one)))


def _like(folder: Path, source: str) -> list[str]:
    """Names of the files that a source with expressions may be."""
    if Path(source).is_absolute() or ".." in Path(source).parts:  # refused when it is read
        return []
    return [str(file.relative_to(folder)) for file in folder.glob(pattern_of(source))]


def _check_command(path: Path, build: Sequence[str], folder: Path, look: "_TrustCheck") -> None:
    """Refuse a build command that runs, or names, what others can change."""
    command = found_command(build[0], folder)
    for word in build:
        if ".." in word:
            raise InputError(f"{path}: build: {word!r} leads out of the kernel directory; leave '..' out")
    named = [Path(name) for word in build[1:] for name in _FROM_ROOT.findall(word)]
    try:
        for file in [*([] if command is None else [Path(command)]), *filter(os.path.lexists, named)]:
            look.resolved(file)
    except InputError as error:
        raise InputError(f"{path}: build: {error}") from error


def _data_and_functions(document: KernelDocument) -> list[str]:
    """Paths of the files that inputs, references and answers name, and of the Python files that are run."""
    problem = document.problem
    inputs = (getattr(argument, "input", None) for argument in document.argument)
    texts = [text for text in (*inputs, *problem.reference.values()) if text]
    measured = [] if document.measured is None else [document.measured.file]
    functions = [text.rpartition(":")[0] for text in (problem.reference_function, problem.law) if text]
    return [*functions, *measured, *(name for text in texts for name in named_files(text))]


class _TrustCheck:
    def __init__(self, owners: frozenset[int], below: Path) -> None:
        self._owners = owners
        self._assumed = frozenset(below.parents)

    def resolved(self, path: Path) -> Path:
        """Resolve a path; every step of it, links included, must be trusted."""
        if not path.is_absolute():
            raise InputError(f"{path}: must be a path from the root")
        pending, here, links = list(reversed(path.parts[1:])), ROOT, 0
        self._check(here, _status(here))
        while pending:
            name = pending.pop()
            if name == "..":
                here = here.parent  # of no link: they are resolved as they come
                continue
            status = _status(here / name)
            self._check(here / name, status)
            if not stat.S_ISLNK(status.st_mode):
                here /= name
                continue
            links += 1
            if links > _MAX_LINKS:
                raise InputError(f"{path}: leads through more than {_MAX_LINKS} symbolic links")
            target = (here / name).readlink()
            pending += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            here = ROOT if target.is_absolute() else here
        return here

    def through(self, directory: Path, most: int) -> None:
        """Find all trusted that is in a trusted directory, and where links in it lead."""
        pending, seen = [directory], {directory}
        while pending:
            here = pending.pop()
            try:
                paths = list(here.iterdir())
            except OSError as error:
                raise InputError(f"{here}: cannot be read: {error.strerror}") from error
            for path in paths:
                status = _status(path)
                self._check(path, status)
                target = self.resolved(path) if stat.S_ISLNK(status.st_mode) else path
                if target in seen:
                    continue
                seen.add(target)
                if len(seen) > most:
                    raise InputError(f"{directory}: holds more than {most} files; name a smaller directory")
                if stat.S_ISDIR(_status(target).st_mode):
                    pending.append(target)

    def _check(self, path: Path, status: os.stat_result) -> None:
        if path in self._assumed:
            return
        mode, quoted = status.st_mode, shlex.quote(str(path))
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            raise InputError(f"{path}: is neither a file nor a directory; remove it from there")
        if status.st_uid not in self._owners:
            raise InputError(
                f"{path}: belongs to {_user(status.st_uid)}, who could change what is run;"
                f" see that it is as it should be, then: chown -h root {quoted}"
            )
        if mode & _WRITABLE_BY_OTHERS and not stat.S_ISLNK(mode):  # rights of a link mean nothing
            shared = mode & stat.S_ISVTX or path in _OF_THE_SYSTEM  # others need their right to write there
            remedy = (
                "move what is to be used out of it, to where only root can write"
                if shared
                else f"see that it is as it should be, then: chmod go-w {quoted}"
            )
            raise InputError(
                f"{path}: can be written by others ({stat.filemode(mode)}), who could change what is run;"
                f" {remedy}"
            )


def _status(path: Path) -> os.stat_result:
    try:
        return path.lstat()
    except OSError as error:
        raise InputError(f"{path}: cannot be used: {error.strerror}") from error
    except ValueError as error:  # a character that no file name can have
        raise InputError(f"{str(path)!r}: cannot be used: {error}") from error


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (user {uid})"
    except KeyError:
        return f"user {uid}"
