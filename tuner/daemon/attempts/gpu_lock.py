"""One job per GPU: a locked file beside the database, which the kernel unlocks when its owner dies."""

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tuner.errors import DeviceUnavailableError, StoreError
from tuner.system.owner import pid_of, this_process

PATIENCE_S = 5.0  # the owner of an earlier attempt may be dying
_LOOK_EVERY_S = 0.05
_MODE = 0o644
_IDENTITY_BYTES = 256  # of an identity at most
_UNFIT = re.compile(r"[^A-Za-z0-9._-]")


def lock_file(folder: Path, uuid: str) -> Path:
    """The file whose lock is the ownership of a GPU; it stays."""
    return folder / f"gpu-{_UNFIT.sub('-', uuid)}.lock"


@contextlib.contextmanager
def owned(
    folder: Path,
    uuid: str,
    *,
    patience_s: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Own a GPU for the block.

    Args:
        folder: of the database.
        uuid: of the GPU.
        patience_s: longest wait in seconds for an owner that may be about to leave; None for the usual.
        sleep: waits.

    Raises:
        DeviceUnavailableError: another process owns it.
        StoreError: the file cannot be opened.
    """
    path = lock_file(folder, uuid)
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
    except OSError as error:
        raise StoreError(f"{path}: the GPU cannot be taken: {error.strerror}") from error
    try:
        _take(file, path, PATIENCE_S if patience_s is None else patience_s, sleep)
        yield
    finally:
        os.close(file)


def _take(file: int, path: Path, patience_s: float, sleep: Callable[[float], None]) -> None:
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                owner = pid_of(os.pread(file, _IDENTITY_BYTES, 0).decode(errors="replace"))
                raise DeviceUnavailableError(
                    f"process {owner or 'unknown'} tunes this GPU; {path} says so"
                ) from None
        except OSError as error:
            raise StoreError(f"{path}: the GPU cannot be taken: {error.strerror}") from error
        sleep(_LOOK_EVERY_S)
    with contextlib.suppress(OSError):  # who it is only helps people; the lock is what counts
        os.ftruncate(file, 0)
        os.pwrite(file, this_process().encode(), 0)
