"""Small files that are there whole or not at all, and results that nobody else may change."""

import os
from pathlib import Path
from typing import IO, Any

_MODE = 0o600
_RESULT_MODE = 0o644


def open_result(path: Path, how: str, buffering: int = -1) -> IO[Any]:
    """Open a file that is a result: read by whom the user's umask lets, and changed by nobody else.

    Args:
        path: of it.
        how: as ``open`` has it.
        buffering: likewise.

    Raises:
        OSError: it cannot be opened.
    """
    return open(path, how, buffering, opener=_opened)


def _opened(name: str, flags: int) -> int:
    return os.open(name, flags, _RESULT_MODE)


def replace_file(path: Path, text: str) -> None:
    """Write a small file for this user alone, and put it in the place of an earlier one.

    Raises:
        OSError: it cannot be written; the earlier one stays.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
        with os.fdopen(file, "w", encoding="utf-8") as writing:
            writing.write(text)
            writing.flush()
            os.fsync(writing.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
