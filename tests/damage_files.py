"""Damage to the files of a database, and where in them each row is, found without the code that is tested."""

import random
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

KINDS = ("bits", "zeroes", "garbage", "truncation", "text", "pages", "removed", "emptied", "old")
TARGETS = ("main", "mirror", "both", "same")
NAMES = {"main": "tuner.db", "mirror": "tuner.db.mirror"}
BACKUP = "tuner.db.backup-2026-11-08"
LOG = "-wal"

Place = tuple[str, int, int]
"""Name of a file, and begin and length of some bytes in it."""
Row = tuple[object, ...]
"""Table and key."""
Files = dict[str, bytes]
"""Contents by name; a name that is missing is no file."""

_KEYS = {
    "runs": 0,
    "jobs": 0,
    "job_events": 0,
    "samples": 0,
    "trials": 2,
    "uses": 1,
    "analytical": 1,
    "spending": 2,
    "models": 2,
}
_NUMBER = re.compile(rb'"[A-Za-z_]+":(\d)')
_LEAF_TABLE, _INTERIOR_TABLE, _LEAF_INDEX, _INTERIOR_INDEX = 13, 5, 10, 2
_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


def files_of(folder: Path) -> Files:
    """The files of a database with their logs and its backup, without what SQLite makes anew."""
    names = [name + log for name in NAMES.values() for log in ("", LOG)] + [BACKUP]
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


def write(files: Files, folder: Path) -> None:
    """Make a folder with these files."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def damaged(files: Files, old: Files, kind: str, target: str, rng: random.Random) -> Files:
    """Files after a damage of a kind to the database, its mirror, both at different places, or both alike."""
    found = dict(files)
    seed = rng.random()
    for each in ("main", "mirror") if target in ("both", "same") else (target,):
        chance = random.Random(seed) if target == "same" else rng  # noqa: S311 - no secrets
        name = NAMES[each]
        if kind == "old":
            found[name] = old[name]
            found.pop(name + LOG, None)
            continue
        logged = len(files.get(name + LOG, b"")) > 0 and chance.random() < 0.5
        place = name + LOG * logged
        changed = _changed(found[place], kind, chance)
        if changed is None:
            del found[place]
        else:
            found[place] = changed
    return found


def _changed(content: bytes, kind: str, rng: random.Random) -> bytes | None:
    data = bytearray(content)
    if kind == "removed":
        return None
    if kind == "emptied":
        return b""
    if kind == "truncation":
        return content[: rng.randrange(len(content))]
    if kind == "bits":
        for _ in range(rng.choice((1, 1, 2, 8))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind in ("zeroes", "garbage"):
        begin, length = rng.randrange(len(data)), rng.choice((1, 16, 512, 4096, 20_000))
        length = min(length, len(data) - begin)
        data[begin : begin + length] = bytes(length) if kind == "zeroes" else rng.randbytes(length)
    elif kind == "text":
        for _ in range(rng.choice((1, 3))):
            place = rng.choice([match.start(1) for match in _NUMBER.finditer(content)])
            data[place] = rng.choice([digit for digit in b"123456789" if digit != data[place]])
    else:
        _move_pages(data, rng)
    return bytes(data)


def _move_pages(data: bytearray, rng: random.Random) -> None:
    size = 4096
    first, second = (size * rng.randrange(max(1, len(data) // size)) for _ in range(2))
    one, other = bytes(data[first : first + size]), bytes(data[second : second + size])
    data[first : first + len(other)] = other
    if rng.random() < 0.5:
        data[second : second + len(one)] = one


def had(places: dict[Row, list[Place]], before: Files, after: Files) -> set[Row]:
    """Rows whose bytes are all where they were."""
    return {
        row
        for row, parts in places.items()
        if all(
            after.get(name, b"")[at : at + length] == before[name][at : at + length]
            for name, at, length in parts
        )
    }


# --- where rows are ----------------------------------------------------------------------------------


def places_of(files: Files, copy: str, scratch: Path) -> dict[Row, list[Place]]:
    """Locate each row of one copy: its cell, and the pages that it flows over to.

    SQLite reads a log up to the first byte that is wrong; what both logs lose so comes from the backup.
    """
    return _Image(files, NAMES[copy]).rows(_roots(files, NAMES[copy], scratch))


def _roots(files: Files, name: str, scratch: Path) -> dict[str, int]:
    for each in (name, name + LOG):
        if each in files:
            (scratch / each).write_bytes(files[each])
    with closing(sqlite3.connect(scratch / name)) as connection:
        found = dict(connection.execute("SELECT name, rootpage FROM sqlite_master WHERE type = 'table'"))
    for left in scratch.glob(f"{name}*"):
        left.unlink()
    return found


class _Image:
    """A file with its log, page by page."""

    def __init__(self, files: Files, name: str) -> None:
        self._files = files
        content, log = files[name], files.get(name + LOG, b"")
        self._size = int.from_bytes(content[16:18], "big") or int.from_bytes(log[8:12], "big")
        self._pages = {
            number + 1: (name, number * self._size) for number in range(len(content) // self._size)
        }
        waiting: dict[int, tuple[str, int]] = {}
        for at in range(32, len(log), 24 + self._size):
            if log[at + 8 : at + 16] != log[16:24]:
                break
            waiting[int.from_bytes(log[at : at + 4], "big")] = (name + LOG, at + 24)
            if any(log[at + 4 : at + 8]):
                self._pages.update(waiting)
                waiting = {}

    def rows(self, roots: dict[str, int]) -> dict[Row, list[Place]]:
        found: dict[Row, list[Place]] = {}
        for table, keys in _KEYS.items():
            for key, places in self._walked(roots[table], keys):
                found[(table, *key)] = places
        return found

    def _page(self, number: int) -> tuple[str, int, bytes]:
        name, at = self._pages[number]
        return name, at, self._files[name][at : at + self._size]

    def _walked(self, number: int, keys: int) -> Iterator[tuple[Row, list[Place]]]:
        name, base, page = self._page(number)
        head = 100 if number == 1 else 0
        kind, count = page[head], int.from_bytes(page[head + 3 : head + 5], "big")
        inner = kind in (_INTERIOR_TABLE, _INTERIOR_INDEX)
        begin = head + (12 if inner else 8)
        for index in range(count):
            at = int.from_bytes(page[begin + 2 * index : begin + 2 * index + 2], "big")
            if inner:
                yield from self._walked(int.from_bytes(page[at : at + 4], "big"), keys)
            if kind != _INTERIOR_TABLE:
                yield self._cell(name, base, page, at + 4 * inner, keys)
        if inner:
            yield from self._walked(int.from_bytes(page[head + 8 : head + 12], "big"), keys)

    def _cell(self, name: str, base: int, page: bytes, at: int, keys: int) -> tuple[Row, list[Place]]:
        length, body = _varint(page, at)
        key: Row = ()
        if not keys:
            rowid, body = _varint(page, body)
            key = (rowid,)
        local = self._local(length, index=bool(keys))
        end = body + local + (4 if local < length else 0)
        places: list[Place] = [(name, base + at, end - at)]
        left, following = length - local, int.from_bytes(page[end - 4 : end], "big")
        while left > 0:
            over, where, content = self._page(following)
            part = min(left, self._size - 4)
            places.append((over, where, 4 + part))
            left, following = left - part, int.from_bytes(content[:4], "big")
        return key or _values(page[body : body + local], keys), places

    def _local(self, length: int, *, index: bool) -> int:
        """Bytes of a record that stay in its cell, by the file format of SQLite."""
        most = (self._size - 12) * 64 // 255 - 23 if index else self._size - 35
        least = (self._size - 12) * 32 // 255 - 23
        kept = least + (length - least) % (self._size - 4)
        return length if length <= most else kept if kept <= most else least


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for _ in range(8):
        value = value << 7 | data[at] & 127
        at += 1
        if data[at - 1] < 128:
            return value, at
    return value << 8 | data[at], at + 1


def _values(record: bytes, count: int) -> Row:
    """The first values of a record: whole numbers and texts."""
    size, at = _varint(record, 0)
    kinds: list[int] = []
    while at < size and len(kinds) < count:
        kind, at = _varint(record, at)
        kinds.append(kind)
    found: list[object] = []
    at = size
    for kind in kinds:
        if kind in (8, 9):
            found.append(kind - 8)
        elif kind in _INTEGER_BYTES:
            end = at + _INTEGER_BYTES[kind]
            found.append(int.from_bytes(record[at:end], "big", signed=True))
            at = end
        else:
            end = at + (kind - 13) // 2
            found.append(record[at:end].decode())
            at = end
    return tuple(found)
