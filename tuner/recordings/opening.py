"""Recorded spaces by name: those that come with the package, and files of this and of other tuners."""

import logging
import zipfile
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Protocol

from tuner.model.errors import InputError
from tuner.model.workload_name import WorkloadName
from tuner.recordings.files import RecordingFile
from tuner.recordings.numpy_spaces import read_npz
from tuner.recordings.other_tuners import LEFT_OUT, OneSpace, read_cache
from tuner.recordings.values import RecordedSpace
from tuner.untrusted.archives import open_zip

_LOG = logging.getLogger(__name__)

SHIPPED = ("h200", "h200-applications", "h100")
_NPZ_MEMBER = "meta.npy"  # every NumPy archive of a recorded space has it


class RecordedSpaces(Protocol):
    """Recorded spaces of one file."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The names of the workloads of every space."""

    def space(self, names: Sequence[str]) -> RecordedSpace:
        """The space of these workloads.

        Raises:
            InputError: there is none, or it cannot be read.
        """

    def sensor(self, names: Sequence[str]) -> str:
        """The reading that the joules of a space came from; empty where there are none."""


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
    known = listed(recording.names, " + ")
    if workloads:
        wanted = _spaceless(workloads)
        for names in recording.names:
            if _spaceless(names) == wanted:
                return names
        raise InputError(f"{recording.path}: {' + '.join(workloads)} was not recorded; there are {known}")
    most = max(map(len, recording.names))
    largest = [names for names in recording.names if len(names) == most]
    if len(largest) > 1:
        raise InputError(f"{recording.path}: name one of its workloads: {known}")
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
