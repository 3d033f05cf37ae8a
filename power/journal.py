"""The journal of changed clocks: a small file per GPU in the runtime directory, while a clock is changed."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.errors import ClockError
from tuner.owner import is_of_this_boot, this_process


@dataclass(frozen=True)
class Entry:
    """What the journal says of one GPU.

    Attributes:
        gpu: what the clock control knows the GPU by, e.g. its UUID.
        requested_mhz: the clock that is or was about to be set.
        owner: identity of the process that sets it (``tuner.owner``), which tells its boot too.
    """

    gpu: str
    requested_mhz: int
    owner: str


@dataclass(frozen=True)
class Place:
    """Where journal entry and lock of one GPU are kept.

    Attributes:
        directory: the runtime directory.
        control: which clock control can undo a change, e.g. ``nvml``.
        gpu: what that control knows the GPU by.
    """

    directory: Path
    control: str
    gpu: str

    @property
    def journal(self) -> Path:
        """The entry; there only while a clock is changed."""
        return self.directory / f"{self.control}-{self.gpu}.json"

    @property
    def lock(self) -> Path:
        """The file whose lock is the ownership of the GPU's clocks; it stays."""
        return self.journal.with_suffix(".lock")

    def write(self, requested_mhz: int) -> None:
        """Put an entry of the calling process on disk, all of it or none.

        Raises:
            ClockError: it cannot be written.
        """
        entry = Entry(self.gpu, requested_mhz, this_process())
        draft = self.journal.with_suffix(".draft")
        try:
            with draft.open("w", encoding="utf-8") as file:
                json.dump(asdict(entry), file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.journal)
        except OSError as error:
            raise ClockError(f"the clock journal {self.journal} cannot be written: {error}") from error

    def read(self) -> Entry | None:
        """The entry; None where there is none, or it is of an earlier boot (which undid the change).

        Raises:
            ClockError: it cannot be read or understood.
        """
        try:
            record: dict[str, Any] = json.loads(self.journal.read_text(encoding="utf-8"))
            entry = Entry(str(record["gpu"]), int(record["requested_mhz"]), str(record["owner"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ClockError(
                f"the clock journal {self.journal} is unreadable ({error}): reset the clocks of {self.gpu} "
                "(nvidia-smi --reset-gpu-clocks), then remove it"
            ) from error
        return entry if is_of_this_boot(entry.owner) else None

    def clear(self) -> None:
        """Remove the entry if there is one.

        Raises:
            ClockError: it cannot be removed.
        """
        try:
            self.journal.unlink(missing_ok=True)
        except OSError as error:
            raise ClockError(f"the clock journal {self.journal} cannot be removed: {error}") from error


def runtime_directory() -> Path:
    """Where journals live: ``/run/tuner`` for root, ``$XDG_RUNTIME_DIR/tuner`` for others.

    Like a clock lock, what is there outlives a process and not a reboot.

    Raises:
        ClockError: neither is to be had.
    """
    if os.geteuid() == 0:
        return Path("/run/tuner")
    own = os.environ.get("XDG_RUNTIME_DIR")
    if not own:
        raise ClockError("clocks are set with a journal in $XDG_RUNTIME_DIR/tuner: set XDG_RUNTIME_DIR")
    return Path(own) / "tuner"
