"""Who owns a GPU's clocks, by process and boot, and the journal of what is changed."""

import fcntl
import functools
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from examples import FEW
from hypothesis import example, given
from hypothesis import strategies as st
from tuner.power.clocks.actuator import ClockPaths
from tuner.power.clocks.control import restore_stale as restore_as_found
from tuner.power.clocks.journal import (
    HeldError,
    JournalEntry,
    Ownership,
    RestoreOutcome,
    SettingJournal,
    journals,
    owner_of,
    restore_stale,
    runtime_directory,
)

from tuner.model.errors import ClockError, ClockPermissionError
from tuner.system.ownership import BootRecord, is_alive, pid_of, this_process, was_rebooted

GPU = "GPU-1"
NOBODY = 65534


@pytest.fixture
def undone() -> list[JournalEntry]:
    """What was undone."""
    return []


@pytest.fixture
def place() -> Iterator[SettingJournal]:
    """In a directory that, unlike pytest's, other users can look into."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield SettingJournal(Path(folder), "nvml", GPU)


def undo_into(undone: list[JournalEntry]) -> Callable[[JournalEntry], list[str]]:
    def undo(entry: JournalEntry) -> list[str]:
        undone.append(entry)
        if entry.gpu.endswith("lost"):
            raise ClockError(f"{entry.gpu} is lost")
        return []

    return undo


def nothing(_: JournalEntry) -> list[str]:
    return []


@functools.cache
def dead() -> str:
    """Identity of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        boot, _, start = this_process().split(":")
    return f"{boot}:{process.pid}:{start}"


@contextmanager
def nobody() -> Iterator[None]:
    """Be another user for a while."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


# --- ownership -----------------------------------------------------------------------------------


def test_who_owns_is_told(place: SettingJournal) -> None:
    """An owner is named to who looks and to who comes second; looking changes nothing."""
    assert owner_of(place) == ""
    assert not place.lock.exists()
    first, second = Ownership(place, nothing), Ownership(place, nothing)
    assert first.take() is None
    assert owner_of(place) == f"process {os.getpid()}"
    with pytest.raises(HeldError, match=f"held by process {os.getpid()}: wait for it or end it"):
        second.take()

    first.give_up()
    assert owner_of(place) == ""
    second.take()
    second.give_up()


def test_an_owner_may_be_named_for_another(place: SettingJournal) -> None:
    """A guardian owns for its process, and of a dead one it is said so."""
    owner = Ownership(place, nothing, owner=dead())
    owner.take()
    with pytest.raises(HeldError, match=r"process \d+ or its guardian"):
        Ownership(place, nothing, patience_s=0.0).take()
    owner.give_up()


def test_onlookers_are_waited_out(place: SettingJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who holds the lock for a moment, to see whether there is an owner, takes the clocks from nobody."""
    with place.lock.open("w") as onlooker:
        fcntl.flock(onlooker, fcntl.LOCK_EX)
        monkeypatch.setattr("time.sleep", lambda _: fcntl.flock(onlooker, fcntl.LOCK_UN))
        Ownership(place, nothing, patience_s=60.0).take()


def test_who_only_restores_is_waited_for(place: SettingJournal) -> None:
    """What is restored at a start holds nobody up who comes to own: it does not sign."""
    place.write(dead(), {}, 900)
    seen: list[str] = []

    def undo(_: JournalEntry) -> list[str]:
        seen.append(place.lock.read_text())
        return []

    assert restore_stale(place.directory, undo) == [RestoreOutcome("nvml", GPU, "restored")]
    assert seen == [""]


def test_a_stale_entry_is_undone_first(place: SettingJournal, undone: list[JournalEntry]) -> None:
    """Taking a GPU over from a killed owner undoes what that left, unless who takes it resets anyway."""
    place.write(dead(), {"a": 1}, 900)
    owner = Ownership(place, undo_into(undone))
    owner.take(settle=False)
    owner.give_up()
    assert undone == []
    assert owner.take() == []
    assert [entry.old for entry in undone] == [{"a": 1}]
    assert place.read() is None
    owner.give_up()


def test_what_cannot_be_undone_frees_the_lock(place: SettingJournal, undone: list[JournalEntry]) -> None:
    """An owner that fails to undo is none: the entry stays for the next, who can try."""
    lost = replace(place, gpu="GPU-lost")
    lost.write(dead(), {}, 900)
    for _ in range(2):
        with pytest.raises(ClockError, match="is lost"):
            Ownership(lost, undo_into(undone)).take()
    assert len(undone) == 2
    assert lost.path.exists()


@pytest.mark.parametrize("call", ["ftruncate", "pwrite"])
def test_a_full_disk_blocks_no_gpu(place: SettingJournal, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """A lock that cannot be signed is let go again, so that the next attempt may succeed."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(ClockError, match=r"cannot be signed: .*No space left"):
            Ownership(place, nothing).take()
    Ownership(place, nothing).take()


def test_an_interrupted_wait_leaves_nothing_open(
    place: SettingJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while waiting for a guardian closes the lock."""

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    with place.lock.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        monkeypatch.setattr("time.sleep", interrupted)
        before = sorted(Path("/proc/self/fd").iterdir())
        with pytest.raises(KeyboardInterrupt):
            Ownership(place, nothing, patience_s=60.0).take()
        assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_a_lock_whose_file_is_gone_is_no_ownership(place: SettingJournal) -> None:
    """Somebody else can own a GPU whose lock was removed: nothing more is set by who held it."""
    owner = Ownership(place, nothing)
    with pytest.raises(ClockError, match="nobody owns the clocks"):
        owner.announce({}, 900)
    owner.take()
    owner.announce({}, 900)
    place.lock.unlink()
    with pytest.raises(ClockError, match="was removed"):
        owner.announce({}, 345)
    Ownership(place, nothing).take(settle=False)
    with pytest.raises(ClockError, match="was removed"):
        owner.announce({}, 345)


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_directory_that_others_may_write_is_not_trusted(
    place: SettingJournal, undone: list[JournalEntry], mode: int
) -> None:
    """What others can put there is not acted on, and no lock is made there that they could replace."""
    place.write(dead(), {}, 900)
    place.directory.chmod(mode)
    with pytest.raises(ClockError, match="other users may write"):
        Ownership(place, undo_into(undone)).take()
    (outcome,) = restore_stale(place.directory, undo_into(undone))
    assert (outcome.state, undone) == ("failed", [])


def test_another_users_directory_is_not_trusted(place: SettingJournal, undone: list[JournalEntry]) -> None:
    """A directory of neither this user nor root may hold anything."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    place.write(dead(), {}, 900)
    os.chown(place.directory, NOBODY, NOBODY)
    (outcome,) = restore_stale(place.directory, undo_into(undone))
    assert (outcome.state, undone) == ("failed", [])


def test_other_users_see_whose_clock_is_set(place: SettingJournal) -> None:
    """Root's journal tells everybody who holds a clock, and names nobody who is dead."""
    owner = Ownership(place, nothing)
    owner.take()
    with nobody():
        assert owner_of(place) == ""
    owner.announce({}, 900)
    with nobody():
        assert owner_of(place) == f"process {os.getpid()}"
        assert restore_stale(place.directory, nothing) == [
            RestoreOutcome("nvml", GPU, "owned", (f"process {os.getpid()}",))
        ]
    owner.give_up()
    place.write(dead(), {}, 900)
    with nobody():
        assert owner_of(place) == ""
        with pytest.raises(ClockPermissionError, match="run as that user or as root"):
            Ownership(place, nothing).take()


def test_a_closed_directory_is_told(place: SettingJournal) -> None:
    """Where another user lets nobody look, that is an error of this package."""
    Ownership(place, nothing).take()
    place.directory.chmod(0o700)
    with nobody(), pytest.raises(ClockError, match="is another user's"):
        owner_of(place)


# --- restoring at a start ------------------------------------------------------------------------


def test_a_reboot_has_restored(
    place: SettingJournal, undone: list[JournalEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry of before a reboot is removed and nothing is undone."""
    before = BootRecord("another", on_host=True, since_boot_s=1e8, at_s=0.0)
    now = replace(BootRecord.present(), on_host=True)
    monkeypatch.setattr(BootRecord, "present", lambda: before)
    place.write("another:1:1", {}, 900)
    monkeypatch.setattr(BootRecord, "present", lambda: now)
    assert restore_stale(place.directory, undo_into(undone)) == [RestoreOutcome("nvml", GPU, "undone")]
    assert undone == []
    assert not place.path.exists()


def test_another_boot_id_alone_is_no_reboot(place: SettingJournal, undone: list[JournalEntry]) -> None:
    """An entry of a container, or of a version that wrote no times, is undone, and why is said."""
    entry = {"control": "nvml", "gpu": GPU, "owner": "another:1:1", "old": {"a": 1}, "new_mhz": 900}
    place.path.write_text(json.dumps(entry))
    (outcome,) = restore_stale(place.directory, undo_into(undone))
    assert outcome.state == "restored"
    assert "another boot id" in outcome.details[0]
    assert [entry.old for entry in undone] == [{"a": 1}]


@FEW
@given(position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_flipped_bit_is_acted_on(place: SettingJournal, position: int, bit: int) -> None:
    """A damaged entry is told and kept; what is undone is what was written."""
    place.write(dead(), {"graphics_mhz": 1410, "memory_mhz": 877}, 900)
    whole = place.read()
    text = bytearray(place.path.read_bytes())
    text[position % len(text)] ^= 1 << bit
    place.path.write_bytes(text)
    undone: list[JournalEntry] = []
    (outcome,) = restore_stale(place.directory, undo_into(undone))
    assert outcome.state in {"failed", "restored"}
    assert undone == ([whole] if outcome.state == "restored" else [])


def test_a_killed_writer_leaves_nothing(place: SettingJournal, undone: list[JournalEntry]) -> None:
    """A draft that was never finished announces nothing, and goes."""
    draft = place.path.with_suffix(".draft")
    draft.write_text('{"con')
    assert restore_stale(place.directory, undo_into(undone)) == [RestoreOutcome("nvml", GPU, "undone")]
    assert undone == []
    assert not draft.exists()


def test_restoring_goes_on_past_errors(
    place: SettingJournal, undone: list[JournalEntry], caplog: pytest.LogCaptureFixture
) -> None:
    """An entry that cannot be read or undone is logged and kept, and the others are restored."""
    for gpu in ("GPU-0", "GPU-broken", "GPU-lost", "GPU-z"):
        replace(place, gpu=gpu).write(dead(), {}, 900)
    broken, lost = (replace(place, gpu=gpu).path for gpu in ("GPU-broken", "GPU-lost"))
    broken.write_text("{")

    states = [(one.gpu, one.state) for one in restore_stale(place.directory, undo_into(undone))]
    assert states == [
        ("GPU-0", "restored"),
        ("GPU-broken", "failed"),
        ("GPU-lost", "failed"),
        ("GPU-z", "restored"),
    ]
    assert sorted(place.directory.glob("*.json")) == [broken, lost]
    assert "tuner clocks restore --reset GPU-broken" in caplog.text


def test_files_of_others_are_none_of_ours(place: SettingJournal) -> None:
    """What has no name of a journal is neither read nor removed; a missing directory is not made."""
    (place.directory / "status.json").write_text("{}")
    (place.directory / "clockd.sock").write_text("")
    assert list(journals(place.directory)) == []
    assert restore_stale(place.directory, nothing) == []
    assert len(list(place.directory.iterdir())) == 2
    assert restore_stale(place.directory / "none", nothing) == []
    assert not (place.directory / "none").exists()


# --- the journal ---------------------------------------------------------------------------------


def test_entries_are_written_whole(place: SettingJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk leaves no half entry where one is looked for, and an old one as it is."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ClockError, match="No space left"):
        place.write(dead(), {}, 900)
    assert place.read() is None


def test_everybody_may_read_the_journal(place: SettingJournal) -> None:
    """Whatever the umask of who writes it."""
    mask = os.umask(0o077)
    place.write(dead(), {}, 900)
    os.umask(mask)
    assert stat.S_IMODE(place.path.stat().st_mode) == 0o644


def test_a_huge_journal_is_not_swallowed(place: SettingJournal) -> None:
    """However long a file is, little of it is read."""
    with place.path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ClockError, match="unreadable"):
        place.read()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NEARLY = st.fixed_dictionaries(
    {"control": st.just("nvml") | JSON, "gpu": st.just(GPU) | JSON, "owner": st.just(this_process()) | JSON},
    optional={"old": JSON | st.fixed_dictionaries({"held_mhz": JSON}), "new_mhz": st.integers() | JSON},
)


@given(content=st.binary(max_size=60) | NEARLY.map(lambda record: json.dumps(record).encode()))
@example(b"[" * 60_000)
@example(b"")
@example(json.dumps({"control": "nvml", "gpu": GPU, "owner": f"x:{'9' * 5000}:1", "old": {}}).encode())
def test_no_journal_is_too_broken_to_be_told(place: SettingJournal, content: bytes) -> None:
    """Whatever stands in a journal is told, kept and not acted on, unless it is an entry of this GPU."""
    place.path.write_bytes(content)
    undone: list[JournalEntry] = []
    (outcome,) = restore_stale(place.directory, undo_into(undone))

    assert outcome.state in {"failed", "restored", "undone"}
    assert place.path.exists() == (outcome.state == "failed")
    assert len(undone) == (outcome.state == "restored")


def test_no_runtime_directory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root keeps journals in /run; others where their session does, and are told if they have none."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert runtime_directory() == Path("/run/tuner")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert runtime_directory() == Path("/run/user/1000/tuner")
    for value in ("", "somewhere"):
        monkeypatch.setenv("XDG_RUNTIME_DIR", value)
        with pytest.raises(ClockError, match="set XDG_RUNTIME_DIR"):
            runtime_directory()
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert restore_as_found(ClockPaths()) == []


# --- Identities of processes.


def test_this_process_is_alive() -> None:
    """A process recognises itself."""
    assert is_alive(this_process())


def test_ended_process_is_not_alive() -> None:
    """The identity of a process that has ended is dead, even if its number is used again."""
    code = "from tuner.system.ownership import this_process; print(this_process())"
    owner = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()

    assert not is_alive(owner)
    assert pid_of(owner) is not None


def test_a_process_that_nobody_has_reaped_is_dead() -> None:
    """A killed process whose parent has not noticed yet holds nothing any more."""
    code = "from tuner.system.ownership import this_process; print(this_process(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        owner = process.stdout.readline().strip()
        assert is_alive(owner)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is left as it is

        assert not is_alive(owner)


def test_reused_number_is_another_process() -> None:
    """The same number with another start time, or from another boot, is not the owner."""
    boot, pid, start = this_process().split(":")

    assert not is_alive(f"{boot}:{pid}:{int(start) + 1}")
    assert not is_alive(f"other-boot:{pid}:{start}")


def test_a_name_may_be_any_bytes() -> None:
    """Whoever runs under a number that was somebody's chooses its name freely: it may be no text."""
    comm = Path("/proc/self/comm")
    before = comm.read_bytes()
    comm.write_bytes(b"\xff) S 1 (\xfe")
    try:
        assert is_alive(this_process())
    finally:
        comm.write_bytes(before.strip())


@pytest.mark.parametrize("text", ["", "x", "::", "a:b:c", ":1"])
def test_foreign_text_is_nobody(text: str) -> None:
    """What is no identity is dead, not an error."""
    assert not is_alive(text)
    assert pid_of(text) is None


# --- Whether the machine was rebooted: what two records say.

THEN = BootRecord("one", on_host=True, since_boot_s=1000.0, at_s=1_700_000_000.0)
SECONDS = st.floats(0.0, 1e9)


def test_the_present_is_of_this_boot() -> None:
    """A record of now and another of now agree; time passes in both of its clocks."""
    first, second = BootRecord.present(), BootRecord.present()
    assert first.boot_id == second.boot_id != ""
    assert second.since_boot_s >= first.since_boot_s > 0.0
    assert was_rebooted(first) is False


@given(SECONDS, st.floats(-1e9, 1e9))
def test_the_same_boot_id_is_the_same_boot(later_s: float, jump_s: float) -> None:
    """Whatever the wall clock says."""
    now = replace(THEN, since_boot_s=THEN.since_boot_s + later_s, at_s=THEN.at_s + jump_s)
    assert was_rebooted(THEN, now) is False


@given(SECONDS, st.floats(-1e9, 1e9), st.booleans(), st.booleans())
def test_containers_tell_nothing(running_s: float, jump_s: float, then: bool, now: bool) -> None:
    """Where one of both was in a container, another boot id may be the container's."""
    before = replace(THEN, on_host=then)
    after = BootRecord("two", on_host=now and not then, since_boot_s=running_s, at_s=THEN.at_s + jump_s)
    assert was_rebooted(before, after) is None


@pytest.mark.parametrize(
    ("since_boot_s", "later_s", "rebooted"),
    [
        (20.0, 60.0, True),  # it runs for less than then
        (20.0, -3600.0, True),  # and the wall clock was set back
        (5000.0, 9000.0, True),  # it runs for longer, and started after the record
        (1060.0, 60.0, None),  # as long as the same kernel would: the boot id alone is different
    ],
)
def test_a_reboot_shows_in_a_clock(since_boot_s: float, later_s: float, rebooted: bool | None) -> None:
    """On the machine itself, another boot id and one of both clocks tell a reboot."""
    now = BootRecord("two", on_host=True, since_boot_s=since_boot_s, at_s=THEN.at_s + later_s)
    assert was_rebooted(THEN, now) is rebooted


def test_no_boot_id_is_no_boot() -> None:
    """Two kernels that tell none are not the same for that."""
    nameless = replace(THEN, boot_id="", on_host=False)
    assert was_rebooted(nameless, nameless) is None
