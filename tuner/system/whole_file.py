"""Small files that are there whole or not at all."""

import os
from pathlib import Path

_MODE = 0o600


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
