"""The last good ``daemon.toml``, kept in the state directory for a start that finds the file wrong."""

import hashlib
import logging
import os
import stat
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from tuner.daemon import settings_file
from tuner.daemon.settings.tables import Settings
from tuner.model.errors import InputError
from tuner.system.whole_file import replace_file

NAME = "daemon.toml.good"

_MARK = "# The settings of the daemon that were in force last; checksum"
_MOST_BYTES = settings_file.MAX_BYTES + 2**13
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_LOG = logging.getLogger(__name__)


class KeptSettings(NamedTuple):
    """Settings that were in force before.

    Attributes:
        at: when they were kept, UTC, to the second.
    """

    settings: Settings
    at: str


def keep(directory: Path, file: Path, text: str) -> None:
    """Keep the text of good settings; where that fails, those kept before stay.

    Args:
        directory: of the state.
        file: they are of.
        text: of the file.
    """
    kept = directory / NAME
    content = f"{_MARK} {_checksum(file, text)}\n{text}"
    try:
        if _read(kept) != content:
            replace_file(kept, content)
    except (OSError, ValueError) as error:
        _LOG.warning("%s: the settings in force cannot be kept there: %s", kept, error)


def kept_settings(directory: Path, file: Path) -> KeptSettings | None:
    """The settings that were kept of a file; None where there are none that can be trusted.

    They must be whole, of this file, and in a file that nobody else can write.
    """
    kept = directory / NAME
    why = f"it is not whole, or not of {file}"
    try:
        content = _read(kept)
        if content is None:
            return None
        first, _, text = content.partition("\n")
        if first == f"{_MARK} {_checksum(file, text)}":
            at = datetime.fromtimestamp(kept.stat().st_mtime, timezone.utc)
            return KeptSettings(settings_file.parsed(text, kept), f"{at:%Y-%m-%d %H:%M:%S} UTC")
    except (OSError, ValueError, InputError) as error:
        why = str(error)
    _LOG.warning("%s is not used: %s", kept, why)
    return None


def _checksum(file: Path, text: str) -> str:
    return hashlib.blake2b(f"{file.absolute()}\n{text}".encode(), digest_size=16).hexdigest()


def _read(path: Path) -> str | None:
    """The text of a file that only root and this user can write; None where there is none.

    Raises:
        OSError: it cannot be read.
        ValueError: others can write it, or it is no text.
    """
    owners = (0, os.geteuid())
    try:
        folder = path.parent.stat()
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        for name, one in ((path, status), (path.parent, folder)):
            if one.st_uid not in owners or one.st_mode & _WRITABLE_BY_OTHERS:
                raise ValueError(f"{name} belongs to another user, or others can write it")
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no file")
        raw = file.read(_MOST_BYTES + 1)
    if len(raw) > _MOST_BYTES:
        raise ValueError("it is too large")
    return raw.decode()
