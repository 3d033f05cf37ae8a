"""CUDA files beside a kernel file, the folder of shipped kernels, and the content of this package.

Who measures for each other must have the same content.
"""

import contextlib
import functools
import glob
import hashlib
import itertools
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path, PurePath
from typing import NamedTuple

from tuner.kernel_files.build_command import beside, command_sha256
from tuner.kernel_files.formulas import Environment, Location, Template
from tuner.kernel_files.triton_source import imported_modules
from tuner.model.errors import InputError, KernelFileError
from tuner.model.plan import Language, Source
from tuner.model.records import PROTOCOL
from tuner.model.version import VERSION
from tuner.system.untrusted.includes import RefusedIncludeError, check_includes, included
from tuner.system.untrusted.reading import CUBIN_BYTES, SOURCE_BYTES, TEXT_BYTES, read_bytes

# --- The folder of the kernels that come with the package, and what kernel files of others take from it.

_OF_CATALOGUE = re.compile(r"catalogue:([a-z0-9-]+)")


def kernels_root() -> Path:
    """Folder of the kernels that come with the package, installed or in a checkout."""
    installed = Path(str(files("tuner"))) / "kernels"
    # an editable install maps packages only; kernels is data beside the package then
    return installed if installed.is_dir() else Path(__file__).parents[2] / "kernels"


def is_of_catalogue(name: str) -> bool:
    """Return True if a folder of headers belongs to the package, as ``catalogue:scan-long``."""
    return _OF_CATALOGUE.fullmatch(name) is not None


def header_folder(folder: Path, name: str) -> Path:
    """A folder of headers: relative to the kernel file's, or ``catalogue:NAME`` of shipped kernels."""
    match = _OF_CATALOGUE.fullmatch(name)
    return kernels_root() / match[1] if match else folder / name


# --- The source of a kernel with the headers that it includes.

MOST_INCLUDED_BYTES = 2**26  # of a folder of headers that is read to see whether it changed
MOST_INCLUDED_FILES = 200_000
MOST_QUOTED_FILES = 1000  # that one source includes by quotes, from its own folder
_NOT_ON_DISK = (Path("/proc"), Path("/sys"), Path("/dev"))
_OF_OTHERS = (Path("/etc"), Path("/boot"), Path("/run"), Path("/var/log"), Path("/var/lib"))
_TOO_WIDE = frozenset(map(Path, ("/", "/home", "/root", "/var", "/usr", "/tmp", "/mnt", "/srv")))  # noqa: S108
_INCLUDE_PATH = re.compile(r"(?:-I|--include-path=)[ \t]*([^{}]+)")


MOST_NAMED_FILES = 20_000
_EXPRESSIONS = re.compile(r"(?:\{[^{}]*\})+")
_LISTED = 6


class SourceFolder:
    """Reads sources once each; all of them may include the same headers.

    Attributes:
        headers: (name, text) of every ``*.cuh`` beside the kernel file, then of the listed folders; the
            first of a name counts. A source gets those that it includes by quotes beside them.
    """

    def __init__(
        self,
        folder: Path,
        header_folders: Sequence[str],
        location: Location,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        """Read the headers; ``texts`` are sources by name that are not read from their files.

        Raises:
            KernelFileError: a folder is not there, or a header cannot be read; ``location`` lists them.
        """
        self.folder = folder
        headers: dict[str, str] = {}
        for name in [".", *header_folders]:
            listed = header_folder(folder, name)
            if not _is_folder(listed):
                raise location.error(f"no such folder: {listed}")
            for header in sorted(listed.glob("*.cuh")):
                if header.name not in headers:
                    headers[header.name] = read_source(header, f"{location.path}: {location.key}")
                    if sum(map(len, headers.values())) > SOURCE_BYTES:
                        raise location.error(
                            f"{listed}: more than {SOURCE_BYTES // 2**20} MiB of headers (*.cuh);"
                            " name a folder of fewer, or use include_paths"
                        )
        self.headers = tuple(headers.items())
        self._texts = texts or {}
        self._sources: dict[str, Source] = {}
        self.include_paths: tuple[str, ...] = ()
        self.system_headers = True
        self._include_sha256 = ""

    def include(self, paths: Sequence[str], location: Location) -> None:
        """Have the compiler look for headers in these folders, too.

        Raises:
            KernelFileError: one is no folder; ``location`` lists them.
        """
        for path in paths:
            if not _is_folder(self.folder / path):
                raise location.error(f"no such folder: {self.folder / path}")
        try:
            folders = tuple((self.folder / path).resolve() for path in paths)
            self._include_sha256 = folders_sha256(folders)
        except (OSError, RuntimeError, InputError) as e:  # a loop of links is a RuntimeError
            raise location.error(e) from e
        self.include_paths = tuple(map(str, folders))

    def source(self, name: str, location: Location) -> Source:
        """The source file of this name.

        Raises:
            KernelFileError: it cannot be read; ``location`` names it.
        """
        if name not in self._sources:
            path = self.folder / name
            stated = self._texts.get(name)
            text = read_source(path, f"{location.path}: {location.key}") if stated is None else stated
            source = Source(
                str(path), text, self.headers, self.include_paths, self._include_sha256, self.system_headers
            )
            self._sources[name] = self._with_quoted(source, location)
        return self._sources[name]

    def jitted(self, name: str, location: Location) -> Source:
        """A Python file of Triton, with the modules beside it that it imports as its headers.

        Raises:
            KernelFileError: it cannot be read; ``location`` names it.
        """
        if name not in self._sources:
            path = self.folder / name
            text = read_source(path, f"{location.path}: {location.key}")
            self._sources[name] = Source(str(path), text, imported_modules(path, text), language="triton")
        return self._sources[name]

    def other(self, name: str, language: Language, location: Location) -> Source:
        """A file of PTX or a cubin, as it is.

        Raises:
            KernelFileError: it cannot be read; ``location`` names it.
        """
        if name not in self._sources:
            path = self.folder / name
            text = read_any(path, f"{location.path}: {location.key}", binary=language == "cubin")
            self._sources[name] = Source(str(path), text, language=language)
        return self._sources[name]

    def built(self, name: str, language: Language, command: str, location: Location) -> Source:
        """A source of which a command makes PTX or a cubin: all that the command may read counts as its own.

        Raises:
            KernelFileError: it cannot be read; ``location`` names it.
        """
        if name not in self._sources:
            path = self.folder / name
            text = read_any(path, f"{location.path}: {location.key}")
            source = Source(str(path), text, self.headers, self.include_paths, language=language)
            quoted: Sequence[tuple[str, str]] = _modules(source)
            with contextlib.suppress(KernelFileError):  # it may be for the host, or no C++ at all
                quoted = quoted or self._quoted(path.parent, text, location)
            source = replace(source, headers=(*self.headers, *quoted))
            try:
                digest = _built_sha256(source, command, self._include_sha256)
            except OSError as e:
                raise location.error(f"{e.filename}: cannot be read: {e.strerror}") from e
            self._sources[name] = replace(source, include_sha256=digest)
        return self._sources[name]

    def _with_quoted(self, source: Source, location: Location) -> Source:
        """The source with what it includes by quotes, without it where that cannot be taken.

        It may be for the host only, behind an ``#if``; if it is not, the compiler says what it does not find.
        """
        try:
            quoted = self._quoted(Path(source.path).parent, source.text, location)
            return checked(replace(source, headers=(*self.headers, *quoted)), location)
        except KernelFileError:
            return checked(source, location)

    def _quoted(self, folder: Path, text: str, location: Location) -> list[tuple[str, str]]:
        """The files in the folder of a source that it includes by quotes, and those that these include.

        NVRTC knows a header by the name that an ``#include`` writes and no other. So a file has its path from
        the folder as its name; each other name for it is a header that includes this one.
        """
        root, listed = _resolved(folder), dict(self.headers)
        quoted: dict[str, str] = {}
        followed: set[Path] = set()
        pending = [(folder, text)]
        while pending and root is not None:
            beside, text = pending.pop()
            for directive in included(text):
                file = (
                    _resolved(beside / directive.name)
                    if directive.quoted and not directive.name.startswith("/")
                    else None
                )
                if file is None or not file.is_relative_to(root):
                    continue
                # the compiler finds the same file itself, in a folder of ``include_paths``
                if any(_resolved(Path(folder) / directive.name) == file for folder in self.include_paths):
                    continue
                name = file.relative_to(root).as_posix()
                if file not in followed:
                    followed.add(file)
                    inner = (
                        listed[name]
                        if name in listed
                        else read_source(file, f"{location.path}: {location.key}")
                    )
                    _add_header(quoted, listed, name, inner, location)
                    pending.append((file.parent, inner))
                if directive.name != name and (directive.name not in listed or beside != folder):
                    _add_header(quoted, listed, directive.name, f'#include "{name}"\n', location)
        return sorted(quoted.items())


def _modules(source: Source) -> tuple[tuple[str, str], ...]:
    """Modules that a Python file of a build command imports from beside it, and that these import."""
    path = Path(source.path)
    return imported_modules(path, source.text, mention="") if path.suffix == ".py" else ()


def _built_sha256(source: Source, command: str, include_sha256: str) -> str:
    """Digest of what a build command may read beside the source itself.

    Raises:
        OSError: a file cannot be read.
    """
    folder = Path(source.path).parent
    quoted = (folder / name for name, _ in source.headers)
    files = sorted({*beside(folder), *(path for path in quoted if path.is_file())})
    read = (
        include_sha256,
        files_sha256(folder, files),
        command_sha256(command, Path(source.path), source.text),
    )
    return hashlib.sha256(" ".join(read).encode()).hexdigest()


def has_changed(source: Source, build: Sequence[str]) -> bool:
    """Return True if files that a compiler reads by itself are other ones than when a source was read.

    Args:
        source: of CUDA C++ its text and headers are compiled as they were read, but for ``include_paths``.
        build: the command.
    """
    path = Path(source.path)
    if source.language == "triton":
        return imported_modules(path, source.text) != source.headers
    try:
        include_sha256 = folders_sha256(tuple(map(Path, source.include_paths)))
        if not build:
            return source.include_sha256 not in ("", include_sha256)
        digest = _built_sha256(source, build[0], include_sha256)
        text = read_any(path, source.path)
    except (OSError, InputError):
        return True
    found = text, digest, set(_modules(source)) <= set(source.headers)
    return found != (source.text, source.include_sha256, True)


def _add_header(
    quoted: dict[str, str], listed: Mapping[str, str], name: str, text: str, location: Location
) -> None:
    other = listed.get(name, quoted.get(name, text))
    if other != text:
        raise location.error(
            f'#include "{name}" means two files here; include one by another name, or name its folder in'
            " include_paths"
        )
    if name not in listed:
        quoted[name] = text
    if len(quoted) > MOST_QUOTED_FILES or sum(map(len, (*quoted.values(), *listed.values()))) > SOURCE_BYTES:
        raise location.error(
            f"includes more than {MOST_QUOTED_FILES} headers or {SOURCE_BYTES // 2**20} MiB of them from its"
            " own folder; name that folder in include_paths"
        )


def _resolved(path: Path) -> Path | None:
    """The file or folder without links; None where there is none."""
    try:
        return path.resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        return None


def pattern_of(name: str) -> str:
    """Pattern of the files that a name with expressions may stand for."""
    return "*".join(map(glob.escape, _EXPRESSIONS.split(name)))


@dataclass(frozen=True)
class NamedFiles:
    """Files of PTX or cubins whose name has expressions: one for each of some configurations.

    Attributes:
        name: relative to the kernel file.
        names: of the files that are there.
    """

    name: Template
    folder: SourceFolder
    language: Language
    names: frozenset[str]

    @classmethod
    def found(cls, name: Template, text: str, folder: SourceFolder, language: Language) -> "NamedFiles":
        """The files that a name may stand for.

        Raises:
            KernelFileError: there is none, or the name leads out of the folder of the kernel file.
        """
        if Path(text).is_absolute() or ".." in Path(text).parts:
            raise name.location.error(f"{text!r} leads out of the folder of the kernel file")
        pattern = pattern_of(text)
        found = (path for path in folder.folder.glob(pattern) if path.is_file())
        listed = itertools.islice(found, MOST_NAMED_FILES + 1)
        names = frozenset(path.relative_to(folder.folder).as_posix() for path in listed)
        if not names or len(names) > MOST_NAMED_FILES:
            count = f"more than {MOST_NAMED_FILES:,} files are" if names else "no file is"
            raise name.location.error(f"{count} called {pattern} in {folder.folder}")
        return cls(name, folder, language, names)

    @property
    def whole(self) -> Source:
        """All files as one source, which stands for them in fingerprints.

        Raises:
            KernelFileError: one cannot be read.
        """
        root = self.folder.folder
        try:
            digest = files_sha256(root, sorted(root / name for name in self.names))
        except OSError as e:
            raise self.name.location.error(f"{e.filename}: cannot be read: {e.strerror}") from e
        return Source(str(root / min(self.names)), digest, language=self.language)

    def source(self, env: Environment) -> Source:
        """The file of one configuration.

        Raises:
            KernelFileError: it is not there, or cannot be read.
        """
        name = PurePath(self.name.fill(env)).as_posix()
        if name not in self.names:
            listed = ", ".join(
                [*sorted(self.names)[:_LISTED], *(["..."] if len(self.names) > _LISTED else [])]
            )
            raise self.name.location.error(
                f"no file {name} is in {self.folder.folder}, which has {listed}; add it, or exclude the"
                " configuration by a rule"
            )
        return self.folder.other(name, self.language, self.name.location)


class SourceTexts(SourceFolder):
    """Sources that are no files.

    Args:
        sources: by the name that a document calls them by.
    """

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self.folder = Path()
        self.headers = ()
        self._sources = dict(sources)
        self.include_paths = ()
        self.system_headers = True
        self._include_sha256 = ""

    def jitted(self, name: str, location: Location) -> Source:
        """The source of this name."""
        del location
        return self._sources[name]

    def source(self, name: str, location: Location) -> Source:
        """The source of this name.

        Raises:
            KernelFileError: there is none.
        """
        if name not in self._sources:
            raise location.error(f"no source is called {name!r}; choose from {', '.join(self._sources)}")
        source = self._sources[name]
        return checked(
            replace(
                source,
                include_paths=self.include_paths,
                include_sha256=self._include_sha256,
                system_headers=self.system_headers,
            ),
            location,
        )


def checked(source: Source, location: Location) -> Source:
    """The source, where it includes nothing but its own headers and CUDA's.

    Raises:
        KernelFileError: it does; ``location`` names it.
    """
    try:
        check_includes(source.path, source.text, source.headers, source.include_paths)
    except RefusedIncludeError as e:
        raise location.error(e) from e
    return source


def split_includes(options: Sequence[str], folder: Path | None) -> tuple[list[str], list[str]]:
    """Folders that ``-I`` options name inside the folder of a kernel file, and the options that are left.

    As include paths, what is in them counts as part of the kernel. Other folders stay among the options,
    which are refused there unless include paths name them.
    """
    folders, rest = [], []
    words = iter(options)
    for option in words:
        joined = f"--include-path={next(words, '')}" if option in ("-I", "--include-path") else option
        match = _INCLUDE_PATH.fullmatch(joined)
        inside = match is not None and folder is not None and _is_inside(folder, match[1])
        if match is not None and inside:
            folders.append(match[1])
        else:
            rest.append(joined)
    return folders, rest


def _is_inside(folder: Path, name: str) -> bool:
    try:
        return (folder / name).is_dir() and (folder / name).resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):
        return False


def folders_sha256(folders: Sequence[Path]) -> str:
    """Digest of the files below some folders; empty without folders.

    Of more than 64 MiB it is one of names, sizes and times, so that a large library is not read every time.
    """
    if not folders:
        return ""
    digest = hashlib.sha256()
    for number, folder in enumerate(folders):
        digest.update(f"{number} {files_sha256(folder, _files_below(folder))}".encode())
    return digest.hexdigest()


def files_sha256(folder: Path, files: Sequence[Path]) -> str:
    """Digest of files in a folder; of more than 64 MiB by their names, sizes and times."""
    digest = hashlib.sha256()
    stats = [path.stat() for path in files]
    whole = sum(stat.st_size for stat in stats) <= MOST_INCLUDED_BYTES
    for path, stat in zip(files, stats, strict=True):
        digest.update(f"\0{path.relative_to(folder)} {stat.st_size}\0".encode())
        digest.update(path.read_bytes() if whole else str(stat.st_mtime_ns).encode())
    return digest.hexdigest()


def _files_below(folder: Path) -> list[Path]:
    """The files below a folder, sorted.

    Raises:
        InputError: it is of the kernel's own, or too large.
    """
    if folder in _TOO_WIDE or any(folder.is_relative_to(root) for root in (*_NOT_ON_DISK, *_OF_OTHERS)):
        raise InputError(f"{folder}: holds no headers; name the folder that does")
    paths: list[Path] = []
    for count, path in enumerate(folder.rglob("*")):
        if count >= MOST_INCLUDED_FILES:
            raise InputError(
                f"{folder}: holds more than {MOST_INCLUDED_FILES:,} files; name a smaller folder"
            )
        if path.is_file():
            paths.append(path)
    return sorted(paths)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # too long, not to be seen, or with a character no name can have
        return False


def read_source(path: Path, subject: str) -> str:
    """Contents of CUDA C++: as ``read_text``, with lines that end in any way, and comments in Latin-1.

    Raises:
        KernelFileError: as there; it is neither UTF-8 nor Latin-1 text.
    """
    return read_text(path, subject, other="latin-1").removeprefix("\ufeff").replace("\r\n", "\n")


def read_any(path: Path, subject: str, *, binary: bool = False) -> str:
    """Contents of PTX, a cubin or the source of another compiler; those that are no UTF-8 text in Latin-1.

    Raises:
        KernelFileError: it cannot be read, or is larger than 64 MiB.
    """
    try:
        content = read_bytes(path, CUBIN_BYTES)
        return content.decode("latin-1" if binary else "utf-8")
    except UnicodeDecodeError as e:
        raise KernelFileError(f"{subject}: {path}: is not UTF-8 text (byte {e.start})") from e
    except OSError as e:
        raise KernelFileError(f"{subject}: {path}: cannot be read: {e.strerror or e}") from e
    except ValueError as e:
        raise KernelFileError(f"{subject}: {path}: {e}") from e


def read_text(path: Path, subject: str, *, other: str = "utf-8") -> str:
    """Contents of a small text file.

    Args:
        path: of the file.
        subject: what a message starts with.
        other: encoding of a text that is not UTF-8.

    Raises:
        KernelFileError: it cannot be read, is not text in these encodings or larger than 1 MiB.
    """
    where = subject if subject == str(path) else f"{subject}: {path}"
    try:
        content = read_bytes(path, TEXT_BYTES)
        with contextlib.suppress(UnicodeDecodeError):
            return sys.intern(content.decode("utf-8"))  # kernels share headers
        return content.decode("utf-8" if b"\0" in content else other)
    except UnicodeDecodeError as e:
        raise KernelFileError(f"{where}: is not UTF-8 text (byte {e.start})") from e
    except (OSError, UnicodeEncodeError) as e:
        raise KernelFileError(f"{where}: cannot be read: {getattr(e, 'strerror', None) or e}") from e
    except ValueError as e:  # too large, no file, or a character that no file name can have
        raise KernelFileError(f"{where}: {e}") from e


# --- Which tuner this is, by the content of its package.

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
