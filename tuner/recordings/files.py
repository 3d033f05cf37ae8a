"""Recorded spaces on disk: a ZIP archive with one JSON document per space (``encoding``).

``tuner db export`` writes such files, and ``docs/methodologies.md`` lists the keys.
"""

import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from tuner.model.errors import InputError
from tuner.recordings.checks import NAME
from tuner.recordings.encoding import document
from tuner.recordings.json_format import space_of
from tuner.recordings.values import RecordedSpace
from tuner.system.whole_file import open_result
from tuner.untrusted.archives import member_of, open_zip
from tuner.untrusted.json import load_json

_DATE = (1980, 1, 1, 0, 0, 0)  # of archive members: the same spaces give the same bytes
_JOINT = "+"  # between names of workloads measured together, in the name of a member
_SUFFIX = ".json"
_UNREADABLE = (  # what a damaged, encrypted, strangely packed or missing member raises
    *(OSError, EOFError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, KeyError),  # a key: the file was replaced since it was opened
)


class RecordingFile:
    """An archive of recorded spaces; a space is read when it is asked for.

    Args:
        path: the file.

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
            known = ", ".join(map(_JOINT.join, self._members))
            raise InputError(f"{self.path}: no recorded space of {' + '.join(names)}; there are {known}")
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
            found = load_json(self._text(self._members[tuple(names)]))
        except ValueError:  # of this tree, too: a damaged neighbour hides no other space
            return ""
        sensor = found.get("sensor") if isinstance(found, dict) else None
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
