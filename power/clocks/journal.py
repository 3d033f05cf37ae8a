"""The journal of changed clocks and power limits: a small file per GPU and setting while one is changed."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tuner.model.errors import ClockError
from tuner.system.ownership import BootRecord, boot_id, pid_of, was_rebooted

from ..base import GpuSettingKind, SettingState, kind_of

OF_ROOT = Path("/run/tuner")  # journals of root's programs and of tuner-clockd
_MODE = 0o644  # that a clock is set is no secret: whoever may not act on it is told all the same
_LARGEST_BYTES = 65_536  # hundreds of times an entry


@dataclass(frozen=True)
class JournalEntry:
    """Journal entry of one GPU.

    Attributes:
        control: which control can undo the change, e.g. ``nvml``.
        gpu: what that control knows the GPU by, e.g. its UUID.
        owner: identity of the process for which it is set (``tuner.system.ownership``).
        old: what was there before, in the words of the control (``Actuator.before``).
        new: the clock in MHz, or the power limit in W, that is or was about to be set.
        written: when, and in which boot; None in entries of 0.2 and before.
    """

    control: str
    gpu: str
    owner: str
    old: SettingState
    new: int
    written: BootRecord | None = field(default=None, compare=False)


@dataclass(frozen=True)
class SettingJournal:
    """Paths of the journal entry and the lock of one setting of a GPU.

    Attributes:
        directory: the runtime directory.
        control: which control can undo a change, e.g. ``nvml``.
        gpu: what that control knows the GPU by.
    """

    directory: Path
    control: str
    gpu: str

    @property
    def kind(self) -> GpuSettingKind:
        """Kind of setting that the control sets."""
        return kind_of(self.control)

    @property
    def path(self) -> Path:
        """The entry; there only while the setting is changed."""
        return self.directory / f"{self.control}-{self.gpu}.json"

    @property
    def lock(self) -> Path:
        """The file whose lock is the ownership of the setting; it stays."""
        return self.path.with_suffix(".lock")

    def write(self, owner: str, old: SettingState, new: int) -> None:
        """Put an entry on disk, all of it or none.

        Raises:
            ClockError: it cannot be written.
        """
        record = asdict(JournalEntry(self.control, self.gpu, owner, old, new, BootRecord.present()))
        record["checksum"] = _checksum(record)
        try:
            with self._draft.open("w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), _MODE)
                json.dump(record, file)
                file.flush()
                os.fsync(file.fileno())
            self._draft.replace(self.path)
        except OSError as error:
            raise ClockError(f"the clock journal {self.path} cannot be written: {error}") from error

    def read(self) -> JournalEntry | None:
        """The entry; None where there is none.

        Raises:
            ClockError: it cannot be read or understood.
        """
        try:
            with self.path.open("rb") as file:
                return self._entry(json.loads(file.read(_LARGEST_BYTES)))
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise ClockError(f"the clock journal {self.path} is another user's: {error.strerror}") from error
        except (OSError, ValueError, RecursionError) as error:  # RecursionError: brackets without end
            raise ClockError(
                f"the clock journal {self.path} is unreadable ({error}): give the clock back with "
                f"`tuner clocks restore {self.kind.reset} {self.gpu}`"
            ) from error

    def _entry(self, record: object) -> JournalEntry:
        """An entry from JSON, as far as all controls agree on what must be in it."""
        if not isinstance(record, dict):
            raise ValueError("it is no entry")  # noqa: TRY004 - as for all else that is wrong in it
        written = _written(record)
        record = {"new": record.get("new_mhz"), **record}  # its name up to 0.3
        match record:
            case {
                "control": self.control,
                "gpu": self.gpu,
                "owner": str(owner),
                "old": dict(old),
                "new": int(new),
            } if pid_of(owner) is not None:
                return JournalEntry(self.control, self.gpu, owner, old, new, written)
        raise ValueError("it is no entry of this GPU")

    def clear(self) -> None:
        """Remove the entry if there is one, and what a killed writer left of the next.

        Raises:
            ClockError: it cannot be removed.
        """
        try:
            self.path.unlink(missing_ok=True)
            self._draft.unlink(missing_ok=True)
        except OSError as error:
            raise ClockError(f"the clock journal {self.path} cannot be removed: {error}") from error

    @property
    def _draft(self) -> Path:
        return self.path.with_suffix(".draft")


def is_undone(entry: JournalEntry) -> bool:
    """True for an entry of before a reboot: settings of clocks do not outlive it.

    Another boot id does not show a reboot, as a container may have one of its own: where it cannot be told,
    the entry counts.
    """
    return entry.written is not None and was_rebooted(entry.written) is True


def doubt(entry: JournalEntry) -> str:
    """Return the reason to act on an entry of another boot id, for people; else empty."""
    written_in = entry.written.boot_id if entry.written is not None else entry.owner.partition(":")[0]
    if written_in == boot_id() or is_undone(entry):
        return ""
    return "it was set under another boot id, as in a container, and nothing shows a reboot since"


def _checksum(record: Mapping[str, object]) -> str:
    """Of all fields but itself."""
    content = {name: value for name, value in record.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _written(record: Mapping[str, object]) -> BootRecord | None:
    """When an entry was written; raises a ValueError where it is not as it was written."""
    if "written" not in record and "checksum" not in record:  # of 0.2 and before
        return None
    if record.get("checksum") != _checksum(record):
        raise ValueError("its checksum does not fit")
    match record.get("written"):
        case {
            "boot_id": str(boot),
            "on_host": bool(on_host),
            "since_boot_s": float(since_s),
            "at_s": float(at_s),
        }:
            return BootRecord(boot, on_host, since_s, at_s)
    return None  # of a newer version


def journals(directory: Path) -> Iterator[SettingJournal]:
    """Yield the settings with a journal entry or a draft of one in a runtime directory, in order."""
    names = {path.stem for pattern in ("*-*.json", "*-*.draft") for path in directory.glob(pattern)}
    for name in sorted(names):
        control, _, gpu = name.partition("-")
        yield SettingJournal(directory, control, gpu)


def runtime_directory() -> Path:
    """Return the directory of journals: ``/run/tuner`` for root, ``$XDG_RUNTIME_DIR/tuner`` for others.

    Like a clock lock, what is there outlives a process and not a reboot.

    Raises:
        ClockError: neither is to be had.
    """
    if os.geteuid() == 0:
        return OF_ROOT
    own = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if not own.is_absolute():  # the specification of that variable says to ignore such a one
        raise ClockError("clocks are set with a journal in $XDG_RUNTIME_DIR/tuner: set XDG_RUNTIME_DIR")
    return own / "tuner"


def directories(own: Path | None = None) -> list[Path]:
    """Return the directories that may hold journals: this user's and root's, or the given one."""
    if own is not None:
        return [own]
    try:
        return list(dict.fromkeys((runtime_directory(), OF_ROOT)))
    except ClockError:  # this user has no place for journals
        return [OF_ROOT]
