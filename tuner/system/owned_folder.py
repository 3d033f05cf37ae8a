"""Temporary folders that say whose they are, so that those of killed processes are removed by the next."""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.system.owner import boot_id, is_alive, this_process

_OWNER = "owner"  # a file of the folder: who made it
_IDENTITY_BYTES = 256  # at most


@contextmanager
def owned_folder(prefix: str) -> Iterator[str]:
    """A new temporary folder, removed at the end.

    Before, folders of this name are removed that processes of this user left on this host since it booted,
    and that have ended.

    Args:
        prefix: what the names of all such folders begin with.
    """
    _remove_left(prefix)
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        Path(folder, _OWNER).write_text(this_process(), encoding="utf-8")
        yield folder


def _remove_left(prefix: str) -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        if _was_left(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _was_left(folder: Path) -> bool:
    """True for a folder of this user whose process ran under this boot, and has ended."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
            with (folder / _OWNER).open("rb") as file:
                owner = file.read(_IDENTITY_BYTES).decode()
            return bool(boot_id()) and owner.startswith(f"{boot_id()}:") and not is_alive(owner)
    return False
