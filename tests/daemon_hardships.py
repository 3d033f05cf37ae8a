"""Further things that go wrong around a daemon: flipped bits, limits, and what it finds at its start."""

import contextlib
import random
import resource
import shutil
import signal
import socket
import sqlite3
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from daemon_fault import LONGEST_S, Fault, FaultReport, filled, last
from daemon_scene import Scene

from tuner.database.files import mirror_of

CONTENT = {
    "job": "SELECT ordered FROM jobs",
    "answer": "SELECT answer FROM runs WHERE answer IS NOT NULL",
    "conditions": "SELECT conditions FROM runs",
}
_WINDOW = 12  # bytes of a text by which it is found in a file
_AHEAD_S = 200 * 86_400.0
_UNWATCHED_S = 65.0  # longer than any watchdog of the daemon's own
_MOST_IDLE = 40  # connections that say nothing
_WRONG_SETTINGS = (
    b'[tuning]\npolicy = "greddy"\n',
    b"[service\n",
    b"[limits]\nqueue = -1\n",
    b"\xff\xfe[service]\n",
    b"[servise]\n",
)


@contextlib.contextmanager
def _bit_flipped(content: str, scene: Scene, rng: random.Random) -> Iterator[FaultReport]:
    """A bit of a text in the database, in its mirror, or in both of different rows; running, or stopped."""
    stopped = rng.random() < 0.5
    if stopped:
        scene.stop(rng.choice((signal.SIGTERM, signal.SIGKILL)))
    files = [scene.database, mirror_of(scene.database)]
    where = rng.choice((files[:1], files[1:], files))
    texts: list[str] = []
    with contextlib.suppress(sqlite3.Error), scene.reading() as database:  # damage that nobody has met yet
        texts += [text for (text,) in database.execute(CONTENT[content])]
    rng.shuffle(texts)
    if len(where) > 1:  # words that two rows share could be found in the same row of both files
        texts = [one for one in dict.fromkeys(texts) if _own_places(one, texts)]
    flipped = [
        flip(path, text.encode(), rng, _own_places(text, texts) or None)
        for path, text in zip(where, texts, strict=False)
    ]
    if not stopped:
        time.sleep(rng.uniform(0.0, LONGEST_S))
    yield FaultReport(hit=any(flipped), fatal=stopped)


def _own_places(text: str, texts: list[str]) -> list[int]:
    """Where words begin in a text of ASCII that stand in no other one."""
    others = "\n".join(one for one in texts if one != text)
    return [at for at in range(max(1, len(text) - _WINDOW)) if text[at : at + _WINDOW] not in others]


def flip(path: Path, text: bytes, rng: random.Random, places: Sequence[int] | None = None) -> bool:
    """Flip a bit of a text where it lies in a file, or in its log; False where it is not found."""
    begin = rng.choice(places or range(max(1, len(text) - _WINDOW)))
    window = text[begin : begin + _WINDOW]
    for file in (path, path.with_name(f"{path.name}-wal")):
        with contextlib.suppress(FileNotFoundError), file.open("r+b") as opened:
            found = opened.read().find(window)
            if found < 0:
                continue
            place = found + rng.randrange(len(window))
            opened.seek(place)
            old = opened.read(1)[0]
            opened.seek(place)
            opened.write(bytes([old ^ 1 << rng.randrange(8)]))
            return True
    return False


@contextlib.contextmanager
def _threads_refused(scene: Scene, rng: random.Random) -> Iterator[FaultReport]:
    """No thread and no process begins; now and then for longer than a minute."""
    scene.refuse_threads(refused=True)
    try:
        time.sleep(_UNWATCHED_S if rng.random() < 0.1 else rng.uniform(0.0, LONGEST_S))
        yield FaultReport()
    finally:
        scene.refuse_threads(refused=False)


@contextlib.contextmanager
def _descriptors_short(scene: Scene, rng: random.Random) -> Iterator[FaultReport]:
    """The daemon may open few more files; half the time idle clients have taken them all."""
    used = len(list(Path(f"/proc/{scene.pid}/fd").iterdir()))
    before = resource.prlimit(scene.pid, resource.RLIMIT_NOFILE)
    crowded = rng.random() < 0.5
    with contextlib.ExitStack() as stack:
        resource.prlimit(scene.pid, resource.RLIMIT_NOFILE, (used + rng.randrange(2, 8), before[1]))
        stack.callback(_set_limit, scene.pid, before)
        for _ in range(_MOST_IDLE if crowded else 0):
            idle = stack.enter_context(socket.socket(socket.AF_UNIX))
            idle.setblocking(False)
            with contextlib.suppress(OSError):
                idle.connect(str(scene.socket))
        time.sleep(rng.uniform(0.0, LONGEST_S))
        yield FaultReport(silent=crowded)


def _set_limit(pid: int, limit: tuple[int, int]) -> None:
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)


@contextlib.contextmanager
def _state_moved(scene: Scene, rng: random.Random) -> Iterator[FaultReport]:
    """The state directory is not where it was, and comes back."""
    away = scene.state.with_name("away")
    scene.state.rename(away)
    try:
        yield last(rng)
    finally:
        if scene.state.exists():  # made anew by somebody: what is in it is lost
            _remove(scene.state)
        away.rename(scene.state)


def _remove(folder: Path) -> None:
    """Take a folder away at once: while files go one by one, the daemon could add another."""
    shutil.rmtree(folder.rename(folder.with_name("removed")))


@contextlib.contextmanager
def _state_removed(scene: Scene, rng: random.Random) -> Iterator[FaultReport]:
    """Somebody deletes all that is stored; after a while the daemon is started anew."""
    _remove(scene.state)
    time.sleep(rng.uniform(0.0, LONGEST_S))
    yield FaultReport(wiped=True)
    scene.stop()
    scene.state.mkdir(mode=0o700, exist_ok=True)
    scene.start()


def _restart(scene: Scene, rng: random.Random) -> None:
    """End the daemon as a machine or an administrator does, and start it while something is wrong."""
    scene.stop(rng.choice((signal.SIGTERM, signal.SIGKILL)))
    scene.sweep()
    scene.launch()


@contextlib.contextmanager
def _settings_wrong(scene: Scene, rng: random.Random) -> Iterator[FaultReport]:
    """A mistake in daemon.toml, and a restart."""
    file = scene.folder / "daemon.toml"
    good = file.read_bytes()
    file.write_bytes(good + rng.choice(_WRONG_SETTINGS))
    try:
        _restart(scene, rng)
        yield last(rng)
    finally:
        file.write_bytes(good)


@contextlib.contextmanager
def _clock_ahead(scene: Scene, rng: random.Random) -> Iterator[FaultReport]:
    """The system's time is 200 days ahead when the daemon starts."""
    scene.clocks.jump(_AHEAD_S)
    try:
        _restart(scene, rng)
        yield last(rng)
    finally:
        scene.clocks.jump(-_AHEAD_S)


@contextlib.contextmanager
def _disk_full_at_start(scene: Scene, rng: random.Random) -> Iterator[FaultReport]:
    """There is no room when the daemon starts."""
    with filled(scene):
        _restart(scene, rng)
        time.sleep(rng.uniform(0.0, LONGEST_S))
        yield FaultReport(silent=True)


HARDSHIPS: dict[str, Fault] = {
    **{f"bit-{content}": partial(_bit_flipped, content) for content in CONTENT},
    "threads-refused": _threads_refused,
    "descriptors-short": _descriptors_short,
    "state-moved": _state_moved,
    "state-removed": _state_removed,
    "settings-wrong": _settings_wrong,
    "clock-ahead": _clock_ahead,
    "disk-full-start": _disk_full_at_start,
}
"""As ``daemon_breaking.FAULTS``."""
