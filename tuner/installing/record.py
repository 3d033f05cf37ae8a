"""The record of installed files, written first, so that an installation can be finished or undone."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuner.model.errors import InstallError

NAME = "installed.json"  # in the directory of settings, which root alone writes
_LARGEST_BYTES = 2**20


@dataclass(frozen=True)
class Record:
    """What is there because it was installed.

    Attributes:
        files: path -> SHA-256 of what was written; empty where it was there before and is not ours.
        settings: those of the files that the administrator may have edited.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()

    def is_ours(self, path: Path) -> bool:
        """Whether a file was written by us, and nobody has changed it since."""
        written = self.files.get(str(path), "")
        return bool(written) and written == digest_of(path)

    def document(self) -> str:
        """As the file has it."""
        return json.dumps({"files": dict(self.files), "settings": self.settings}, indent=2) + "\n"


def read(path: Path) -> Record | None:
    """The record at a path; None where there is none.

    Raises:
        InstallError: it cannot be read or understood.
    """
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(_LARGEST_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise InstallError(f"{path}: the list of installed files cannot be read: {error}") from error
    match document:
        case {"files": dict(files), "settings": list(settings)} if all(
            isinstance(word, str) for word in (*files, *files.values(), *settings)
        ):
            return Record(files, tuple(settings))
    raise InstallError(f"{path}: not a list of installed files; remove it, and install again")


def digest(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(path: Path) -> str:
    """SHA-256 of a file; empty where there is none."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
