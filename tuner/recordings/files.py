"""Recorded spaces on disk and by name: a ZIP archive with one JSON document per space.

``tuner db export`` writes such files, and ``docs/recordings.md`` lists the keys.
"""

import json
import logging
import os
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from tuner.model.errors import InputError
from tuner.model.records import WorkloadName
from tuner.recordings.checking import NAME
from tuner.recordings.json_format import document, space_of
from tuner.recordings.other_tuners import LEFT_OUT, OneSpace, read_cache, read_npz
from tuner.recordings.values import RecordedSpace
from tuner.system.ownership import open_result
from tuner.system.untrusted.archives import member_of, open_zip
from tuner.system.untrusted.reading import load_json

_DATE = (1980, 1, 1, 0, 0, 0)  # of archive members: the same spaces give the same bytes
_JOINT = "+"  # between names of workloads measured together, in the name of a member
_SUFFIX = ".json"
_UNREADABLE = (  # what a damaged, encrypted, strangely packed or missing member raises
    *(OSError, EOFError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, KeyError),  # a key: the file was replaced since it was opened
)


class RecordingFile:
    """An archive of recorded spaces; a space is read when it is asked for.

    Raises:
        InputError: it is no such archive, or holds no space.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open_zip(path) as archive:
                members = [name for name in archive.namelist() if name.endswith(_SUFFIX)]
        except (OSError, zipfile.BadZipFile, ValueError) as error:
            raise InputError(f"{path}: not a file of recorded spaces: {error}") from error
        self._members = {tuple(name.removesuffix(_SUFFIX).split(_JOINT)): name for name in members}
        if not self._members:
            raise InputError(f"{path}: no recorded space is in it; expected members *{_SUFFIX}")
        if len(self._members) < len(members):
            raise InputError(f"{path}: a recorded space is in it twice")

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The names of the workloads of every space."""
        return tuple(self._members)

    def space(self, names: Sequence[str]) -> RecordedSpace:
        """The space of these workloads.

        Raises:
            InputError: there is none, or it cannot be read; the message names those there are.
        """
        member = self._members.get(tuple(names))
        if member is None:
            names_listed = ", ".join(map(_JOINT.join, self._members))
            raise InputError(
                f"{self.path}: no recorded space of {' + '.join(names)}; there are {names_listed}"
            )
        try:
            space = space_of(load_json(self._text(member)))
        except ValueError as error:
            raise InputError(f"{self.path}: {member}: {error}") from error
        if space.names != tuple(names):
            raise InputError(
                f"{self.path}: {member}: holds {' + '.join(space.names)}, which is not what its name says"
            )
        return space

    def sensor(self, names: Sequence[str]) -> str:
        """The reading that the joules of a space came from; empty where there are none, or it is damaged."""
        try:
            document = load_json(self._text(self._members[tuple(names)]))
        except ValueError:  # of this tree, too: a damaged neighbour hides no other space
            return ""
        sensor = document.get("sensor") if isinstance(document, dict) else None
        return sensor if isinstance(sensor, str) else ""

    def _text(self, member: str) -> bytes:
        try:
            with open_zip(self.path) as archive:  # as long as the directory says, and no longer
                return member_of(archive, member)
        except _UNREADABLE as error:
            raise ValueError(f"cannot be read: {error}") from error


def read(path: Path) -> list[RecordedSpace]:
    """All spaces of a file.

    Raises:
        InputError: it is no such file.
    """
    archive = RecordingFile(path)
    return [archive.space(names) for names in archive.names]


def write(path: Path, spaces: Iterable[RecordedSpace]) -> None:
    """Write spaces to a file; one that is there is replaced when all are written.

    Raises:
        InputError: a space is given twice, has no trial, or has a name that no member can have; a device or
            a pipe is there.
        OSError: the file cannot be written.
    """
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is a device or a pipe; name a file")
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")  # two may write the same file at once
    written: set[tuple[str, ...]] = set()
    try:
        with (
            open_result(draft, "wb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        ):
            for space in spaces:
                _check(space, written)
                written.add(space.names)
                member = zipfile.ZipInfo(_JOINT.join(space.names) + _SUFFIX, _DATE)
                member.compress_type = zipfile.ZIP_DEFLATED
                member.external_attr = 0o644 << 16
                text = json.dumps(document(space), separators=(",", ":"), allow_nan=False)
                archive.writestr(member, text + "\n")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _check(space: RecordedSpace, written: set[tuple[str, ...]]) -> None:
    words = " + ".join(space.names)
    if space.names in written:
        raise InputError(f"{words}: given twice; a file holds a space once")
    if any(sign in name for name in space.names for sign in (_JOINT, "/", "\\")):
        raise InputError(f"{words}: a workload's name in a file has no {_JOINT}, / or \\")
    if len(set(space.names)) < len(space.names) or not all(map(NAME.accepts, space.names)):
        raise InputError(f"{words!r}: workloads of a file have different names that can be printed")
    if not space.trials:
        raise InputError(f"{words}: no trial was recorded")


# --- Recorded spaces by name: those that come with the package, and files of this and of other tuners.

_LOG = logging.getLogger(__name__)

SHIPPED = ("h200", "h200-applications", "h100")
_NPZ_MEMBER = "meta.npy"  # every NumPy archive of a recorded space has it

RecordedSpaces = RecordingFile | OneSpace


def open_recording(spec: str | Path) -> RecordedSpaces:
    """Open recorded spaces.

    Args:
        spec: one of ``SHIPPED``, which come with the package, or a file: an archive of ``tuner db export``, a
            simulation cache of Kernel Tuner (JSON), or a NumPy archive (.npz) of such a cache.

    Raises:
        InputError: there is no such file, or it is none of these; the message names it.
    """
    if isinstance(spec, str) and spec in SHIPPED:
        return RecordingFile(Path(str(files("tuner.recordings"))) / f"{spec}.zip")
    path = Path(spec)
    if not str(spec):
        raise InputError(f"no recording is named; name a file of recorded spaces, or {', '.join(SHIPPED)}")
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "there is no such file"
        raise InputError(f"{path}: {what}; name a file of recorded spaces, or {', '.join(SHIPPED)}")
    if not _is_zip(path):
        space = read_cache(path)
        for sentence in space.provenance.get(LEFT_OUT, ()):
            _LOG.warning("%s: left out: %s", path, sentence)
        return OneSpace(path, space)
    return OneSpace(path, read_npz(path)) if _is_npz(path) else RecordingFile(path)


def matching(recording: RecordedSpaces, workloads: Sequence[str]) -> tuple[str, ...]:
    """The recorded names of the requested space.

    Args:
        recording: the file.
        workloads: in any order; none means the space of most workloads, which must be a single one.

    Raises:
        InputError: there is no such space, or several might be meant; the message lists them.
    """
    names_listed = listed(recording.names, " + ")
    if workloads:
        requested = _spaceless(workloads)
        for names in recording.names:
            if _spaceless(names) == requested:
                return names
        raise InputError(
            f"{recording.path}: {' + '.join(workloads)} was not recorded; there are {names_listed}"
        )
    most = max(map(len, recording.names))
    largest = [names for names in recording.names if len(names) == most]
    if len(largest) > 1:
        raise InputError(f"{recording.path}: name one of its workloads: {names_listed}")
    return largest[0]


def listed(spaces: Iterable[Sequence[str]], together: str) -> str:
    """Spaces as a message names them: the sizes of a kernel side by side, as there may be dozens.

    Args:
        spaces: names of the workloads of each.
        together: what stands between workloads that run together.
    """
    alone: dict[str, list[str]] = {}
    joint = []
    for names in spaces:
        if len(names) == 1:
            name = WorkloadName.parse(names[0])
            alone.setdefault(name.kernel, []).append(name.sizes_text)
        else:
            joint.append(together.join(names))
    single = [f"{kernel}:{', '.join(sizes)}" if any(sizes) else kernel for kernel, sizes in alone.items()]
    return "; ".join([*single, *joint])


def _spaceless(names: Sequence[str]) -> list[str]:
    """Names as they are compared: in any order, whatever spaces are in them."""
    return sorted(name.replace(" ", "") for name in names)


def _is_zip(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(2) == b"PK"
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def _is_npz(path: Path) -> bool:
    try:
        with open_zip(path) as archive:
            return path.suffix == ".npz" or _NPZ_MEMBER in archive.namelist()
    except (OSError, zipfile.BadZipFile, ValueError):
        return False  # the reader of own archives says what is wrong with it
