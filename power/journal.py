"""The journal of changed clocks: a small file per GPU in the runtime directory, while a clock is changed."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.errors import ClockError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_START_FIELD = 19  # of /proc/PID/stat, counted from behind the command's closing bracket


@dataclass(frozen=True)
class Process:
    """A process that cannot be taken for a later one with the same id.

    Attributes:
        pid: process id.
        start: when it started, in the kernel's ticks since boot.
    """

    pid: int
    start: int

    @staticmethod
    def this() -> "Process":
        """The calling process."""
        return Process(os.getpid(), _start_of(os.getpid()))

    @property
    def alive(self) -> bool:
        """True while it exists."""
        return self.start > 0 and _start_of(self.pid) == self.start


@dataclass(frozen=True)
class Entry:
    """What the journal says of one GPU.

    Attributes:
        gpu: what the clock control knows the GPU by, e.g. its UUID.
        requested_mhz: the clock that is or was about to be set.
        owner: process that sets it.
        boot_id: the boot all this is true for.
    """

    gpu: str
    requested_mhz: int
    owner: Process
    boot_id: str


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
        entry = Entry(self.gpu, requested_mhz, Process.this(), boot_id())
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
            entry = Entry(**{**record, "owner": Process(**record["owner"])})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ClockError(
                f"the clock journal {self.journal} is unreadable ({error}): reset the clocks of {self.gpu} "
                "(nvidia-smi --reset-gpu-clocks), then remove it"
            ) from error
        return entry if entry.boot_id == boot_id() else None

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


def boot_id() -> str:
    """The kernel's name for the present boot."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ClockError(f"the clock journal needs {_BOOT_ID}: {error}") from error


def _start_of(pid: int) -> int:
    """When a process started, in ticks since boot; 0 if there is none of this id."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    return int(stat.rpartition(b")")[2].split()[_START_FIELD])
