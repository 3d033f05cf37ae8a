"""The disk cache of compiled code, by content: written atomically, and checked when read.

What is in it runs on the GPU. The digest in a file tells damage, and covers the key, so that no answer stands
in for another. That nobody else wrote it is told by owners and rights: directory and file are this user's or
root's, and writable by nobody else.
"""

import contextlib
import hashlib
import json
import logging
import os
import stat
import tempfile
import threading
from dataclasses import astuple
from pathlib import Path

from tuner.compiler.nvrtc import Output
from tuner.model.plan import LaunchDemands, Scratch
from tuner.model.typed import sealed, unsealed
from tuner.system.untrusted.reading import CUBIN_BYTES
from tuner.system.user_folders import make_folder, user_folder

_log = logging.getLogger(__name__)

_LIBRARIES = "libraries.json"
_LIBRARIES_BYTES = 2**20
_OF_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_HEAD = 40  # digest and size of what describes the code


def default_directory() -> Path:
    """The directory of the user's cached cubins."""
    return user_folder("cache") / "cubins"


class CubinCache:
    """Compilers' answers by key, one file each; in memory from the moment the directory takes no files.

    May be used by several threads.

    Args:
        directory: where the files are; made when the first is written.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._memory: dict[str, Output] = {}
        self._writable = True
        self._warned = False

    def load(self, key: str) -> Output | None:
        """The answer for a key; None where there is none, or its file is damaged or of somebody else."""
        if key in self._memory:
            return self._memory[key]
        data = self._read(key, CUBIN_BYTES)
        if data is None:
            return None
        answer = _answer(key, data)
        if answer is None:
            _log.info("cubin cache: %s is damaged; compiling again", self._directory / key)
        return answer

    def store(self, key: str, output: Output) -> None:
        """Keep an answer for its key."""
        demands = None if output.demands is None else astuple(output.demands)
        facts = [
            output.lowered_name,
            output.log,
            output.ptx,
            output.cubin is not None,
            output.symbols,
            demands,
        ]
        text = json.dumps(facts).encode()
        data = len(text).to_bytes(8, "big") + text + (output.cubin or b"")
        if not self._write(key, _digest(key, data) + data):
            self._memory[key] = output

    def load_libraries(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Version and architectures of NVRTC libraries looked at before, by a stamp of the file.

        A file that is damaged, or of an earlier version, is as none: the libraries are asked again.
        """
        with contextlib.suppress(ValueError, TypeError, LookupError, AttributeError, RecursionError):
            stored = json.loads(self._read(_LIBRARIES, _LIBRARIES_BYTES) or b"{}")
            libraries = unsealed(stored, ("libraries",))["libraries"]
            return {
                stamp: (str(version), tuple(map(int, architectures)))
                for stamp, (version, architectures) in libraries.items()
            }
        return {}

    def store_libraries(self, libraries: dict[str, tuple[str, tuple[int, ...]]]) -> None:
        """Remember what ``load_libraries`` returns."""
        self._write(_LIBRARIES, json.dumps(sealed({"libraries": libraries})).encode())

    def _read(self, name: str, most_bytes: int) -> bytes | None:
        """A file that only this user and root can have written; None where there is none."""
        try:
            directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            # a link would lead to what the checks below do not see; a pipe must not be waited for
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(name, flags, dir_fd=directory)
            try:
                return self._content(directory, file, name, most_bytes)
            finally:
                os.close(file)
        except OSError:
            return None
        finally:
            os.close(directory)

    def _content(self, directory: int, file: int, name: str, most_bytes: int) -> bytes | None:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
            return None
        if not self._ours(_closed(directory), self._directory):
            return None
        if not self._ours(status, self._directory / name):
            return None
        with os.fdopen(file, "rb", closefd=False) as stream:
            return stream.read(status.st_size)  # of more, as much memory is taken first

    def _ours(self, status: os.stat_result, path: Path) -> bool:
        """Return True if only this user and root can write a file; log the first that others can write."""
        if status.st_uid in (0, os.geteuid()) and not status.st_mode & _OF_OTHERS:
            return True
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            _log.warning(
                "cubin cache: %s can be written by others, so what it holds is not used: chmod go-w it, and"
                " see that it is yours",
                path,
            )
        return False

    def _write(self, name: str, data: bytes) -> bool:
        """Write a file whole or not at all; False where the directory does not take it, said once."""
        if not self._writable:
            return False
        temporary: str | None = None
        try:
            make_folder(self._directory)
            with tempfile.NamedTemporaryFile(dir=self._directory, delete=False) as stream:
                temporary = stream.name
                stream.write(data)
            Path(temporary).replace(self._directory / name)
        except OSError as error:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()
            with self._lock:
                first, self._writable = self._writable, False
            if first:
                _log.warning("cubin cache %s: %s; keeping cubins in memory", self._directory, error)
            return False
        return True


def _closed(directory: int) -> os.stat_result:
    """The status of a directory; if it is this user's, others lose the right to write there."""
    status = os.fstat(directory)
    if status.st_uid == os.geteuid() and status.st_mode & _OF_OTHERS:  # made under a umask such as 002
        with contextlib.suppress(OSError):
            os.fchmod(directory, stat.S_IMODE(status.st_mode) & ~_OF_OTHERS)
            status = os.fstat(directory)
    return status


def _digest(key: str, data: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + data).digest()


def _answer(key: str, data: bytes) -> Output | None:
    """Return the compiler output stored in a file; None if it is damaged."""
    digest, size, body = data[:32], int.from_bytes(data[32:_HEAD], "big"), data[_HEAD:]
    if len(data) < _HEAD or _digest(key, data[32:]) != digest:
        return None
    try:
        lowered_name, log, ptx, compiled, symbols, told = json.loads(body[:size])
        demands = None if told is None else _demands(*told)
    except (ValueError, TypeError, RecursionError):
        return None
    texts = (lowered_name, log, ptx, *symbols)
    if type(compiled) is not bool or not all(isinstance(text, str) for text in texts):
        return None
    return Output(body[size:] if compiled else None, lowered_name, log, tuple(symbols), ptx, demands)


def _demands(
    threads: int | None, shared_bytes: int, cluster: int, scratch: list[tuple[int, int]]
) -> LaunchDemands:
    return LaunchDemands(threads, shared_bytes, cluster, tuple(Scratch(*one) for one in scratch))
