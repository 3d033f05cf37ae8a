"""The user's own folders, and the error for a user who has none."""

import os
from pathlib import Path
from typing import Literal

from tuner.model.errors import InputError


def user_folder(kind: Literal["cache", "config", "state"]) -> Path:
    """This program's folder among the user's caches, settings or results; it need not be there.

    Raises:
        InputError: the user has no home directory, as a user id without an account.
    """
    import platformdirs  # noqa: PLC0415 - not needed where the caller names a directory

    folder = {
        "cache": platformdirs.user_cache_path,
        "config": platformdirs.user_config_path,
        "state": platformdirs.user_state_path,
    }[kind]
    try:
        path = folder("tuner")
    except RuntimeError as error:
        raise _homeless(kind) from error
    if not path.is_absolute():  # earlier versions of platformdirs leave the ~ as it is
        raise _homeless(kind)
    return path


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone, as XDG asks for.

    Raises:
        OSError: it cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def user_home() -> Path:
    """The home directory of the user.

    Raises:
        InputError: see ``user_folder``.
    """
    try:
        return Path.home()
    except RuntimeError as error:
        raise _homeless("config") from error


def _homeless(kind: str) -> InputError:
    return InputError(
        f"user {os.getuid()} has no home directory: set HOME to one that this user may write, or"
        f" XDG_{kind.upper()}_HOME"
    )
