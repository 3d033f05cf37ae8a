"""The sole right to change a setting of a GPU, its clock or its power limit, and the journal of changes.

The right is a lock on a file. Whoever gets it first undoes what a dead owner announced in the journal and did
not undo: a small file per GPU and setting while one is changed.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from tuner.model.errors import ClockError, ClockPermissionError, TunerError
from tuner.system.ownership import BootRecord, boot_id, is_alive, pid_of, this_process, was_rebooted

from ..base import POWER_PROFILE, GpuSettingKind, SettingState, kind_of

OF_ROOT = Path("/run/tuner")  # journals of root's programs and of tuner-clockd
LASTING = Path("/var/lib/tuner-clockd")  # those of root that outlive a boot
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
        folder = LASTING if self.directory == OF_ROOT and _lasts(self.control, self.gpu) else self.directory
        return folder / f"{self.control}-{self.gpu}.json"

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


def _lasts(control: str, gpu: str) -> bool:
    """True for a power mode of a Jetson, whose GPU has no UUID: it outlives a reboot."""
    return control == POWER_PROFILE and not gpu.startswith("GPU-")


def is_undone(entry: JournalEntry) -> bool:
    """True for an entry of before a reboot: settings of clocks do not outlive it, as a power mode does.

    Another boot id does not show a reboot, as a container may have one of its own: where it cannot be told,
    the entry counts.
    """
    if entry.written is None or _lasts(entry.control, entry.gpu):
        return False
    return was_rebooted(entry.written) is True


def doubt(entry: JournalEntry) -> str:
    """Return the reason to act on an entry of another boot id, for people; else empty."""
    written_in = entry.written.boot_id if entry.written is not None else entry.owner.partition(":")[0]
    if written_in == boot_id() or is_undone(entry) or _lasts(entry.control, entry.gpu):
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
    folders = (directory, *((LASTING,) if directory == OF_ROOT else ()))
    patterns = ("*-*.json", "*-*.draft")
    names = {path.stem for folder in folders for pattern in patterns for path in folder.glob(pattern)}
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


# --- The sole right to change one setting of a GPU.

_LOG = logging.getLogger(__name__)
HANDOVER_S = 10.0  # a guardian that restores after its owner's death has let go by then
GLANCE_S = 0.2  # who only looks whether there is an owner holds the lock for far less
_RETRY_S = 0.02
_SIGNATURE_BYTES = 4096  # far longer than any identity
_FOLDER_MODE = 0o755  # the helper's socket may lie beside the journal

Undo = Callable[[JournalEntry], list[str]]
"""Undoes what an entry announces and tells what was left alone; raises a TunerError if it cannot."""


class HeldError(ClockError):
    """Somebody else owns the setting.

    Attributes:
        who: for people.
    """

    def __init__(self, journal: SettingJournal, who: str) -> None:
        kind = journal.kind
        super().__init__(f"the {kind.name} of {journal.gpu} {kind.held} by {who}: wait for it or end it")
        self.who = who


class Ownership:
    """Ownership of one setting of a GPU and its journal.

    Args:
        journal: of the setting, with its lock; the directory is made if missing.
        undo: undoes what a dead owner left.
        owner: identity of the process that is to be named to others; this one if empty.
        patience_s: how long to wait for the guardian of a dead owner; a living owner is not waited for.
    """

    def __init__(
        self, journal: SettingJournal, undo: Undo, *, owner: str = "", patience_s: float = GLANCE_S
    ) -> None:
        self._journal = journal
        self._undo = undo
        self._owner = owner or this_process()
        self._patience_s = patience_s
        self._lock: int | None = None

    def take(self, *, settle: bool = True) -> list[str] | None:
        """Own the setting, and undo what a dead owner left.

        Args:
            settle: False for somebody who resets whatever was left.

        Returns:
            What ``restored`` says.

        Raises:
            HeldError: another process owns it.
            ClockError: the directory cannot be written or trusted, or a stale change cannot be undone.
        """
        self._lock = _taken(self._journal, self._patience_s)
        try:
            notes = restored(self._journal, self._undo) if settle else None
            # Who is named here holds the lock for long: nobody waits for a living one, or is told of a guest.
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, self._owner.encode(), 0)
        except OSError as error:
            self.give_up()
            raise ClockError(f"{self._journal.lock} cannot be signed: {error}") from error
        except BaseException:
            self.give_up()
            raise
        return notes

    def announce(self, old: SettingState, new: int) -> None:
        """Put the entry on disk; to be called before each change, with what is there now.

        Raises:
            ClockError: it cannot be written, or the setting is not owned.
        """
        # Whoever removed the file made room for another lock of the same name.
        if self._lock is None or not _is_same_file(self._journal.lock, self._lock):
            what = f"the {self._journal.kind.name} of {self._journal.gpu}"
            raise ClockError(f"nobody owns {what} any more: {self._journal.lock} was removed")
        self._journal.write(self._owner, old, new)

    def clear(self) -> None:
        """Remove the entry; to be called when the change is undone."""
        self._journal.clear()

    def give_up(self) -> None:
        """Let the next owner have the setting."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with contextlib.suppress(OSError):  # of a full disk
                os.ftruncate(lock, 0)  # who signed may live on, and owns it no more
            os.close(lock)


def restored(journal: SettingJournal, undo: Undo) -> list[str] | None:
    """Undo what the entry of a journal announces and remove it; to be called by the owner.

    Returns:
        Why that was in doubt and what was left alone, for people; None where there was nothing to undo.

    Raises:
        TunerError: the entry is unreadable or could not be undone; it stays.
    """
    entry = journal.read()
    if entry is None or is_undone(entry):
        journal.clear()
        return None
    notes = [*filter(None, [doubt(entry)]), *undo(entry)]
    journal.clear()
    _LOG.info("restored the %s of %s, which a killed process had left set", journal.kind.name, journal.gpu)
    for note in notes:
        _LOG.warning("%s: %s", journal.gpu, note)
    return notes


@dataclass(frozen=True)
class RestoreOutcome:
    """Result of restoring one GPU that the journal names.

    Attributes:
        control: of what was set.
        gpu: what that knows it by.
        state: ``restored``; ``undone`` by a reboot, or nothing had been set; ``owned`` by a living process;
            ``failed`` and still in the journal.
        details: for people: who owns it, why it was restored in doubt, what was left alone, or why it failed.
    """

    control: str
    gpu: str
    state: Literal["restored", "undone", "owned", "failed"]
    details: tuple[str, ...] = ()


def restore_stale(directory: Path, undo: Undo) -> list[RestoreOutcome]:
    """Restore every setting whose journal entry has no living owner or guardian; goes on past errors."""
    return [_settled(journal, undo) for journal in journals(directory)]


def _settled(journal: SettingJournal, undo: Undo) -> RestoreOutcome:
    try:
        lock = _taken(journal, GLANCE_S)
        try:
            notes = restored(journal, undo)
        finally:
            os.close(lock)
    except HeldError as error:
        return RestoreOutcome(journal.control, journal.gpu, "owned", (error.who,))
    except TunerError as error:
        _LOG.error("a %s that a killed process left set stays so: %s", journal.kind.value, error)
        return RestoreOutcome(journal.control, journal.gpu, "failed", (str(error),))
    if notes is None:
        return RestoreOutcome(journal.control, journal.gpu, "undone")
    return RestoreOutcome(journal.control, journal.gpu, "restored", tuple(notes))


def owner_of(journal: SettingJournal) -> str:
    """Return the owner of a setting, for people; empty if it has none.

    Raises:
        ClockError: that cannot be told, and the journal names nobody who lives.
    """
    try:
        lock = os.open(journal.lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    except OSError:  # another user's, who is in the journal while a clock is set
        return _named(journal)
    try:
        return "" if lock_now(lock) else _holder(lock)
    finally:
        os.close(lock)


def _named(journal: SettingJournal) -> str:
    """The process that the journal of another user names, if it lives."""
    entry = journal.read()
    return f"process {pid_of(entry.owner)}" if entry is not None and is_alive(entry.owner) else ""


def _taken(journal: SettingJournal, patience_s: float) -> int:
    """Get the lock of a setting; the descriptor is the ownership."""
    lock = _opened(journal)
    try:
        _await(journal, lock, patience_s)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _await(journal: SettingJournal, lock: int, patience_s: float) -> None:
    """Lock the file as soon as nobody else has."""
    deadline = time.monotonic() + patience_s
    while not lock_now(lock):
        if is_alive(_signature(lock)) or time.monotonic() > deadline:
            raise HeldError(journal, _holder(lock))
        time.sleep(_RETRY_S)


def _opened(journal: SettingJournal) -> int:
    """Open the lock of a setting, in a directory whose journal this user may act on."""
    _make(journal.path.parent)
    try:
        return os.open(journal.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except PermissionError as error:
        who = _named(journal)
        if who:
            raise HeldError(journal, who) from error
        raise ClockPermissionError(
            f"{journal.lock} is another user's: run as that user or as root"
        ) from error
    except OSError as error:
        raise ClockError(f"{journal.lock} cannot be opened: {error}") from error


def _make(folder: Path) -> None:
    """Make the directory if it is missing, and refuse one in which others could put what is acted on."""
    try:
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise ClockError(f"the clock journal cannot be kept in {folder}: {error}") from error
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ClockError(f"no clock journal is kept in {folder}, where other users may write")


def _is_same_file(path: Path, descriptor: int) -> bool:
    """True where a path leads to the file of a descriptor."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False


def lock_now(lock: int) -> bool:
    """Lock the file unless somebody else has."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _signature(lock: int) -> str:
    """Identity of who signed the lock file last; empty before it is signed."""
    return os.pread(lock, _SIGNATURE_BYTES, 0).decode(errors="replace")


def _holder(lock: int) -> str:
    """Return the process that holds a lock, for people."""
    signature = _signature(lock)
    pid = pid_of(signature)
    if pid is None:
        return "another process"
    return f"process {pid}" if is_alive(signature) else f"process {pid} or its guardian"
