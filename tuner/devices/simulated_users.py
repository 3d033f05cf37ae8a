"""The processes that use a simulated GPU, as NVML reports them for a real one.

A simulated GPU is a model in the process that uses it, so that two processes are not in each other's way.
Where $TUNER_SIMULATED_GPUS names a directory, each leaves a file there while it computes: others see it, and
can tell how long it was in their way. Without that variable nothing is written or read.
"""

import contextlib
import os
from pathlib import Path

from tuner.system.owner import is_alive, this_process

VARIABLE = "TUNER_SIMULATED_GPUS"


class Occupant:
    """This process on one simulated GPU, from ``enter`` until ``leave``.

    Args:
        gpu: its name, with or without ``sim:``.
    """

    def __init__(self, gpu: str) -> None:
        self._gpu = gpu
        self._file: Path | None = None

    def enter(self) -> None:
        """Be seen by others; again is harmless, and so is a directory that cannot be written."""
        folder = _folder(self._gpu)
        if folder is None or self._file is not None:
            return
        file = folder / f"{os.getpid()}-{id(self)}"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            draft = file.with_name(f".{file.name}")  # nobody reads half an identity
            draft.write_text(this_process(), encoding="utf-8")
            draft.replace(file)
            self._file = file

    def leave(self) -> None:
        """Be seen no more; again is harmless."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.unlink()


def present(gpu: str) -> list[str]:
    """Identities (``tuner.system.owner``) of the living processes on a simulated GPU, each once.

    What killed ones left is removed.

    Args:
        gpu: its name, with or without ``sim:``.
    """
    folder = _folder(gpu)
    found: dict[str, None] = {}
    for file in [] if folder is None else _files(folder):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            owner = file.read_text(encoding="utf-8")
            if is_alive(owner):
                found[owner] = None
            else:
                file.unlink()
    return list(found)


def is_present(gpu: str) -> bool:
    """True while this process is seen on a simulated GPU."""
    return this_process() in present(gpu)


def _folder(gpu: str) -> Path | None:
    directory = os.environ.get(VARIABLE)
    return Path(directory) / gpu.removeprefix("sim:") if directory else None


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return []
