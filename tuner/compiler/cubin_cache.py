"""The disk cache of compiled code, by content: written atomically, and checked when read."""

import contextlib
import hashlib
import json
import logging
import tempfile
import threading
from pathlib import Path

from tuner.compiler.nvrtc import Output
from tuner.model.sealing import sealed, unsealed

_log = logging.getLogger(__name__)

_LIBRARIES = "libraries.json"


def default_directory() -> Path:
    """The directory of the user's cached cubins."""
    import platformdirs  # noqa: PLC0415 - not needed where the caller names a directory

    return Path(platformdirs.user_cache_dir("tuner"), "cubins")


class CubinCache:
    """NVRTC's answers by key, one file each; in memory from the moment the directory takes no files.

    May be used by several threads.

    Args:
        directory: where the files are; made when the first is written.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._memory: dict[str, Output] = {}
        self._writable = True

    def load(self, key: str) -> Output | None:
        """The answer for a key; None where there is none, or its file is damaged."""
        if key in self._memory:
            return self._memory[key]
        try:
            data = (self._directory / key).read_bytes()
        except OSError:
            return None
        digest, size, body = data[:32], int.from_bytes(data[32:40], "big"), data[40:]
        if hashlib.sha256(data[32:]).digest() != digest:
            _log.info("cubin cache: %s is damaged; compiling again", self._directory / key)
            return None
        lowered_name, log, compiled, *symbols = json.loads(body[:size])
        return Output(body[size:] if compiled else None, lowered_name, log, tuple(symbols))

    def store(self, key: str, output: Output) -> None:
        """Keep an answer for its key."""
        facts = [output.lowered_name, output.log, output.cubin is not None, *output.symbols]
        text = json.dumps(facts).encode()
        data = len(text).to_bytes(8, "big") + text + (output.cubin or b"")
        if not self._write(key, hashlib.sha256(data).digest() + data):
            self._memory[key] = output

    def load_libraries(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Version and architectures of NVRTC libraries looked at before, by a stamp of the file.

        A file that is damaged, or of an earlier version, is as none: the libraries are asked again.
        """
        with contextlib.suppress(OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
            stored = json.loads((self._directory / _LIBRARIES).read_bytes())
            known = unsealed(stored, ("libraries",))["libraries"]
            return {
                stamp: (str(version), tuple(map(int, architectures)))
                for stamp, (version, architectures) in known.items()
            }
        return {}

    def store_libraries(self, known: dict[str, tuple[str, tuple[int, ...]]]) -> None:
        """Remember what ``load_libraries`` returns."""
        self._write(_LIBRARIES, json.dumps(sealed({"libraries": known})).encode())

    def _write(self, name: str, data: bytes) -> bool:
        """Write a file whole or not at all; False where the directory does not take it, said once."""
        if not self._writable:
            return False
        temporary: str | None = None
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
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
