"""Copies of a database: one made for another host, and one fetched from there."""

import http.client
import os
import re
import selectors
import shlex
import signal
import sqlite3
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, BinaryIO, cast
from urllib.parse import urlsplit

from tuner.database.files import MAGIC, SIDE_FILES, copy_pages, mirror_of, source_of
from tuner.database.integrity.checksums import TABLES
from tuner.database.merging import RUN_TABLES
from tuner.model.errors import InputError, StoreError
from tuner.system.untrusted.reading import DATABASE_BYTES, plain_line, shown_bytes

_NAME = "tuner.db"


@contextmanager
def copied(path: Path, folder: Path | None = None) -> Iterator[Path]:
    """A file with the runs and trials of a database, and nothing else that it holds; it is gone afterwards.

    Jobs, users, uses, samples and models stay behind. Others may write to the database meanwhile. Rows keep
    their checksums, so that who merges the copy sees damage of the original.

    Args:
        path: of the database; its mirror is copied where the file itself is gone.
        folder: where the copy is made; None for the directory of temporary files.

    Raises:
        InputError: there is no database.
        StoreError: it cannot be read, or there is no room for the copy.
    """
    with tempfile.TemporaryDirectory(prefix=".tuner-copy-", dir=folder) as temporary:
        copy = Path(temporary) / _NAME
        os.close(os.open(copy, os.O_CREAT | os.O_EXCL, 0o600))
        with source_of(path, copy) as connection:
            copy_pages(connection, copy)
            _keep_runs(copy)
        yield copy


def check_target(target: Path, path: Path) -> None:
    """Refuse to replace a database that is in use by a copy, or a file that is no database.

    Raises:
        InputError: the target is that database, its mirror or a file beside them, another database with
            a mirror, or no copy.
    """
    own = [file.resolve() for file in (path, mirror_of(path))]
    if target.resolve() in own or mirror_of(target).exists():
        raise InputError(f"--output {target}: this is a database in use; name another file")
    if target.name.endswith((*SIDE_FILES, ".lock")):
        raise InputError(f"--output {target}: such a name is of a file beside a database; name another file")
    if target.exists() and not target.is_file():
        raise InputError(f"--output {target}: is a device or a pipe; name a file, or - for standard output")
    if target.is_file() and not _may_be_a_copy(target):
        raise InputError(f"--output {target}: is there already, and is no database; name another file")


def _may_be_a_copy(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) in (b"", MAGIC)


def _keep_runs(copy: Path) -> None:
    with closing(sqlite3.connect(copy, isolation_level=None)) as target:
        target.execute("PRAGMA secure_delete = ON")
        tables = {name for (name,) in target.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for name in TABLES.keys() & tables - set(RUN_TABLES):
            target.execute(f"DELETE FROM {name}")  # noqa: S608 - a name of ours


# --- Fetch a database file from another host, by ssh or HTTPS, into a file that is gone afterwards.
#
# What comes is data of a bounded size that comes in a bounded time. Only ``merge_source`` looks into it.

TIMEOUT_S = 600.0
"""Of a whole transfer, unless another is named."""

_SSH = "ssh:"
_HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9][A-Za-z0-9.-]*")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PIECE_BYTES = 2**18
_CONNECTING_S = 15  # of ssh
_ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_SHOWN_BYTES = 40  # of what is no database
_SAID_BYTES = 2000  # of what ssh says, at its end
_FORMS = "write ssh:HOST, ssh:HOST:PATH or https://HOST/FILE"


@contextmanager
def pulled(
    address: str,
    *,
    timeout_s: float = TIMEOUT_S,
    silence_s: float = 60.0,
    command: str = "tuner",
    ssh: str = "ssh",
) -> Iterator[tuple[Path, str]]:
    """The database file of another host, and its address without secrets.

    Args:
        address: ``ssh:[USER@]HOST[:PATH]``: there ``tuner db copy`` is run by the system's ssh; or the URL of
            a file: https, and http on the loopback.
        timeout_s: of the whole transfer.
        silence_s: without a byte, at most.
        command: that is ``tuner`` on that host.
        ssh: the program.

    Raises:
        InputError: the address is none of these.
        StoreError: the host does not give a file, or not in time, or one that is too large.
    """
    with tempfile.TemporaryDirectory(prefix=".tuner-pull-") as folder:
        path = Path(folder) / "pulled.db"
        with path.open("xb") as file:
            shown_address = address if address.startswith(_SSH) else _checked_url(address)
            sink = _Sink(file, shown_address, timeout_s, silence_s)
            if address.startswith(_SSH):
                _from_ssh(address, [ssh, *_arguments(address, command)], sink)
            else:
                _from_url(address, sink)
        _check_beginning(path, shown_address)
        yield path, shown_address


def _check_beginning(path: Path, address: str) -> None:
    """Refuse what is no database at all, such as the greeting of a shell or the page of a login."""
    with path.open("rb") as file:
        beginning = file.read(_SHOWN_BYTES)
    if not beginning.startswith(MAGIC):
        shown = plain_line(beginning.decode(errors="replace"))
        came = f"what came begins with {shown!r}" if beginning else "nothing came"
        raise StoreError(
            f"{address}: {came}, and is no database: the host must send what `tuner db copy` writes, and"
            " nothing before it; nothing was merged"
        )


class _Sink:
    """Takes as many bytes as may come, for as long.

    Args:
        file: that they are written to.
        told: the address, for messages.
        timeout_s: of the whole transfer.
        silence_s: without a byte, at most.
    """

    def __init__(self, file: BinaryIO, address: str, timeout_s: float, silence_s: float) -> None:
        self.silence_s = silence_s
        self._file = file
        self._address = address
        self._timeout_s = timeout_s
        self._until_s = time.monotonic() + timeout_s
        self._bytes = 0

    def left_s(self) -> float:
        """Seconds that may be waited for the next bytes.

        Raises:
            StoreError: there are none left.
        """
        left_s = self._until_s - time.monotonic()
        if left_s <= 0.0:
            raise self.fault(f"it did not come within {self._timeout_s:g} s (--timeout)")
        return min(left_s, self.silence_s)

    def take(self, piece: bytes) -> None:
        """Write some.

        Raises:
            StoreError: it is too much, or the disk is full.
        """
        self._bytes += len(piece)
        if self._bytes > DATABASE_BYTES:
            raise self.fault(f"it is larger than {shown_bytes(DATABASE_BYTES)}")
        try:
            self._file.write(piece)
        except OSError as error:
            raise self.fault(f"{error.strerror}, in the directory of temporary files") from error

    def fault(self, why: str) -> StoreError:
        """Return the error for a copy that failed, with the reason."""
        return StoreError(f"{self._address}: {why}; nothing was merged")


def _arguments(address: str, command: str) -> list[str]:
    """Arguments of ssh that have a host write its database to standard output."""
    host, _, path = address.removeprefix(_SSH).partition(":")
    if not _HOST.fullmatch(host):
        raise InputError(f"{address!r:.120}: {host!r:.80} is no host; {_FORMS}")
    words = [command, "db", "copy", "--output", "-", *(["--database", path] if path else [])]
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECTING_S}", "-T"]
    return [*options, "--", host, shlex.join(words)]


def _from_ssh(address: str, command: list[str], sink: _Sink) -> None:
    with tempfile.TemporaryFile() as errors, _started(address, command, errors) as process:
        try:
            _drain(cast("IO[bytes]", process.stdout), sink)
            status = process.wait(sink.left_s())
        except subprocess.TimeoutExpired as error:
            raise sink.fault("ssh does not end") from error
        if status:
            raise sink.fault(f"ssh ended with status {status}{_last_words(errors)}")


@contextmanager
def _started(address: str, command: list[str], errors: IO[bytes]) -> "Iterator[subprocess.Popen[bytes]]":
    """A process, killed with all that it has started where the block ends before it.

    Signals that end this process wait until that is sure; the other inherits that they are blocked.
    """
    process = None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        process = subprocess.Popen(  # noqa: S603 - no shell here, and no host that is an option
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # with the proxies that it starts
        )
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield process
    except OSError as error:
        if process is not None:
            raise
        raise StoreError(f"{address}: {command[0]} cannot be started: {error.strerror}") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if process is not None:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            cast("IO[bytes]", process.stdout).close()


def _drain(pipe: IO[bytes], sink: _Sink) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            if not selector.select(sink.left_s()):
                sink.left_s()
                raise sink.fault(f"nothing came for {sink.silence_s:g} s")
            piece = pipe.read1(_PIECE_BYTES)  # type: ignore[attr-defined]  # of a BufferedReader
            if not piece:
                return
            sink.take(piece)


def _last_words(errors: IO[bytes]) -> str:
    """Return the last line that ssh, or the command on the host, printed, in brackets; empty without one."""
    errors.seek(max(0, errors.seek(0, 2) - _SAID_BYTES))
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return f" ({plain_line(lines[-1])})" if lines else ""


def _checked_url(url: str) -> str:
    """A URL without what may be secret in it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise InputError(f"{url!r:.120}: {error}; {_FORMS}") from error
    if parts.scheme not in ("https", "http") or not host:
        raise InputError(f"{url!r:.120} is no address to pull from; {_FORMS}")
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise InputError(f"{url!r:.120}: http is for the loopback only, as others could change it; use https")
    if parts.username is not None or parts.password is not None:
        raise InputError(f"{parts.scheme}://{host}: leave user and password out of the URL")
    return plain_line(f"{parts.scheme}://{parts.netloc}{parts.path}")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to addresses that may be pulled from themselves."""

    def redirect_request(  # noqa: PLR0917 - as urllib has it
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        _checked_url(newurl)
        if req.type == "https" and not newurl.startswith("https:"):
            raise InputError(f"{_checked_url(req.full_url)} sends to {newurl!r:.120}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _from_url(url: str, sink: _Sink) -> None:
    opener = urllib.request.build_opener(_Redirects)
    try:
        with opener.open(url, timeout=sink.left_s()) as response:
            while piece := response.read1(_PIECE_BYTES):
                sink.take(piece)
                sink.left_s()
    except urllib.error.HTTPError as error:
        raise sink.fault(f"the server answered {error.code}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise sink.fault(plain_line(str(getattr(error, "reason", error) or type(error).__name__))) from error
