"""What compilers made, kept on disk across runs of the tests.

A file is found by a key that names everything it was made of. It is written whole or not at all, and checked
when it is read, so that several processes may share the directory and a damaged file costs a compilation.
"""

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs

VARIABLE = "TUNER_TEST_CACHE"  # the directory; one that is empty keeps nothing
LIMIT_BYTES = 2**30
PRUNE_EVERY_BYTES = LIMIT_BYTES // 8  # of what one process writes

_LOCK = "lock-"  # begins the names of locks, which are empty files
_DIGEST_BYTES = hashlib.sha256().digest_size


class BuildCache:
    """Byte strings by key in a directory of bounded size; those that were not used for longest go first.

    Args:
        directory: where the files are; made when the first is written. None keeps nothing.
        limit_bytes: of all files together, those of other caches in the same directory among them.
    """

    def __init__(self, directory: Path | None, limit_bytes: int = LIMIT_BYTES) -> None:
        self.directory = directory
        self._limit_bytes = limit_bytes
        self._unpruned_bytes = 0  # written since this process last pruned

    def load(self, key: str) -> bytes | None:
        """What was stored for the key; None where there is nothing, or the file is damaged."""
        if self.directory is None:
            return None
        path = self.directory / key
        try:
            data = path.read_bytes()
            os.utime(path)  # used now
        except OSError:
            return None
        digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        return content if hashlib.sha256(content).digest() == digest else None

    def store(self, key: str, content: bytes) -> None:
        """Keep the content for the key; a directory that takes no files keeps nothing."""
        if self.directory is None:
            return
        temporary: str | None = None
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.directory, delete=False) as stream:
                temporary = stream.name
                stream.write(hashlib.sha256(content).digest() + content)
            Path(temporary).replace(self.directory / key)
        except OSError:
            if temporary is not None:
                Path(temporary).unlink(missing_ok=True)
        self._unpruned_bytes += len(content)
        if self._unpruned_bytes > min(PRUNE_EVERY_BYTES, self._limit_bytes):
            self.prune()

    @contextlib.contextmanager
    def making(self, key: str) -> Iterator[None]:
        """Hold off others, in this process or another, who make the same; look again before making it.

        There are a few hundred locks for all keys, so nobody may hold two.
        """
        name = _LOCK + hashlib.sha256(key.encode()).hexdigest()[:2]
        with contextlib.ExitStack() as held:
            if self.directory is not None:
                with contextlib.suppress(OSError):
                    self.directory.mkdir(parents=True, exist_ok=True)
                    fcntl.flock(held.enter_context((self.directory / name).open("w")), fcntl.LOCK_EX)
            yield

    def prune(self) -> None:
        """Remove the files that were not used for longest until the rest is within the limit."""
        self._unpruned_bytes = 0
        files = []
        for file in self._files():
            with contextlib.suppress(OSError):  # another process prunes too
                status = file.stat()
                files.append((status.st_mtime_ns, status.st_size, file.path))
        excess_bytes = sum(size for _, size, _ in files) - self._limit_bytes
        for _, size, path in sorted(files):
            if excess_bytes <= 0:
                return
            with contextlib.suppress(OSError):
                Path(path).unlink()
            excess_bytes -= size

    @contextlib.contextmanager
    def unused(self) -> Iterator[None]:
        """Keep and find nothing meanwhile: for gigabytes that nobody needs again."""
        directory, self.directory = self.directory, None
        try:
            yield
        finally:
            self.directory = directory

    def _files(self) -> Iterator["os.DirEntry[str]"]:
        folders = [] if self.directory is None else [str(self.directory)]
        while folders:
            with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif not entry.name.startswith(_LOCK):
                        yield entry


def _chosen_directory() -> Path | None:
    chosen = os.environ.get(VARIABLE)
    if chosen is None:
        return platformdirs.user_cache_path("tuner") / "tests"
    return Path(chosen) if chosen else None


BUILDS = BuildCache(_chosen_directory())  # of this run, whatever a test makes of its environment
