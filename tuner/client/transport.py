"""HTTP/1.1 over a Unix socket or the loopback: addresses, targets, messages, and time-outs everywhere."""

import errno
import grp
import http.client
import json
import os
import re
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast
from urllib.parse import urlencode, urlsplit

from tuner.model.errors import (
    DaemonAbsentError,
    DaemonError,
    DaemonRefusedError,
    DaemonUnavailableError,
    InputError,
    TunerError,
)
from tuner.model.typed import UnfitError, document, typed
from tuner.system.service_manager import SOCKET_VARIABLE, default_sockets

# --- Addresses of the daemon: a Unix socket, or a port of this machine.

TOKEN_VARIABLE = "TUNER_TOKEN_FILE"  # noqa: S105 - the name of a file, not what is in it
GOES_ON = "\nthe daemon goes on by itself when that is mended"
"""End of the message of a daemon that is not ready."""

_RIGHT = "write the path of a socket, or a URL such as http://127.0.0.1:8750"


@dataclass(frozen=True)
class Address:
    """The address of a daemon: a path, or a host and a port.

    Attributes:
        path: Unix socket; None over TCP.
        host: over TCP.
        port: over TCP.
    """

    path: Path | None
    host: str = "localhost"
    port: int = 0

    def __str__(self) -> str:
        return f"http://{self.host}:{self.port}" if self.path is None else str(self.path)


def address(socket: str | Path | None, environment: Mapping[str, str] = os.environ) -> Address:
    """The address that was named; the first default socket that exists where none was, else the last.

    Raises:
        InputError: a URL that is none of a port of this machine, or a path that cannot be one.
    """
    if socket == "" or (socket is not None and "\0" in str(socket)):
        raise InputError(f"daemon at {str(socket)!r}: {_RIGHT}")
    named = socket if socket is not None else environment.get(SOCKET_VARIABLE) or None
    if named is not None:
        return _of_url(str(named)) if "://" in str(named) else Address(Path(named))
    choices = default_sockets(environment)
    return Address(next((path for path in choices if path.exists()), choices[-1]))


def _of_url(url: str) -> Address:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise InputError(f"daemon at {url!r}: {error}; {_RIGHT}") from error
    if parts.scheme != "http" or port is None or parts.path not in ("", "/") or parts.query:
        raise InputError(f"daemon at {url!r}: {_RIGHT}")
    if not _is_here(host):
        raise InputError(
            f"daemon at {url!r}: the token would cross the network readable by all; forward a local port"
            f" (ssh -L {port}:127.0.0.1:{port} {host}) and use http://127.0.0.1:{port}"
        )
    return Address(None, host, port)


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


# --- Messages of an event stream (WHATWG HTML, server-sent events).


@dataclass(frozen=True)
class Message:
    """One message of a stream; empty fields are those that were not sent."""

    id: str
    event: str
    data: str


def messages(lines: Iterable[bytes]) -> Iterator[Message | None]:
    """Messages of a stream, and None for each comment: a sign of life.

    A message that the end of the stream cuts off is dropped, as the standard has it.

    Args:
        lines: with their ends, which are LF or CRLF.
    """
    fields: dict[str, list[str]] = {}
    for line in lines:
        text = line.decode(errors="replace").rstrip("\r\n")
        if not line.endswith(b"\n"):
            return
        if text.startswith(":"):
            yield None
        elif text:
            name, _, value = text.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))
        elif fields:
            last = {name: values[-1] for name, values in fields.items()}
            if "data" in fields:
                yield Message(last.get("id", ""), last.get("event", ""), "\n".join(fields["data"]))
            fields = {}


def target(path: str, query: Mapping[str, object]) -> str:
    """A path with its query; what is None is left out.

    Raises:
        InputError: a value holds bytes that are no text.
    """
    present = {name: value for name, value in query.items() if value is not None}
    try:
        return f"{path}?{urlencode(present, doseq=True)}"
    except UnicodeEncodeError as error:
        raise InputError(f"{error.object!r:.120} holds bytes that are no text") from error


# --- One request over one connection, with a limit to its time and its bytes.

MOST_BYTES = 16 * 2**20  # of an answer: a thousand jobs are less than one MiB
_SHOWN = 120  # characters of what cannot be understood
_SLICE_S = 0.5  # a Ctrl-C that comes just before a wait is seen when the wait ends
_SHORTEST_S = 1e-3  # a time-out of nothing would mean "never wait"
_QUEUE_PAUSE_S = 0.005  # between knocks at a socket whose queue is full
_MESSAGE_KEYS = ("kind", "message")
_WAIT = re.compile(r"[0-9]{1,6}")  # seconds of a Retry-After


_Document = TypeVar("_Document")


class _TimedSocket(socket.socket):
    """A socket whose every wait ends at one time, however slowly bytes drip in."""

    deadline_s: float = 0.0

    def limit(self, seconds: float) -> None:
        """Let waits end in so many seconds from now."""
        self.deadline_s = time.monotonic() + seconds
        self.settimeout(max(seconds, _SHORTEST_S))

    def recv_into(self, *args: Any) -> int:  # noqa: ANN401 - socket's own
        """Receive; called by the file that http.client reads from."""
        while (left_s := self.deadline_s - time.monotonic()) > 0:
            self.settimeout(max(min(left_s, _SLICE_S), _SHORTEST_S))
            with suppress(TimeoutError):
                return super().recv_into(*args)
        raise TimeoutError("timed out")


class _Connection(http.client.HTTPConnection):
    """http.client over whatever the address is."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        super().__init__(address.host, address.port or None)
        self._address = address
        self._timeout_s = timeout_s
        self.timed: _TimedSocket | None = None

    def connect(self) -> None:
        """Open the connection; the time of the whole request begins here."""
        path = self._address.path
        if path is not None:
            self.timed = _TimedSocket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            family = socket.AF_INET6 if ":" in self._address.host else socket.AF_INET
            self.timed = _TimedSocket(family, socket.SOCK_STREAM)
        self.timed.limit(self._timeout_s)
        target = (self._address.host, self._address.port) if path is None else str(path)
        try:
            while not _entered(self.timed, target):
                if time.monotonic() + _QUEUE_PAUSE_S > self.timed.deadline_s:
                    raise TimeoutError("timed out")  # noqa: TRY301 - as the socket does
                time.sleep(_QUEUE_PAUSE_S)
        except BaseException:
            self.timed.close()
            raise
        self.sock = self.timed


def _entered(timed: _TimedSocket, target: str | tuple[str, int]) -> bool:
    """False where the queue of a Unix socket is full: the time-out of a socket does not wait for that."""
    try:
        timed.connect(target)
    except BlockingIOError:
        return False
    return True


class Transport:
    """Sends requests; may be used by several threads, and after a fork.

    Args:
        address: of the daemon.
        token_file: whose content is sent over TCP.
        timeout_s: for a whole answer.
    """

    def __init__(self, address: Address, token_file: Path | None, timeout_s: float) -> None:
        self.address = address
        self._token_file = token_file
        self._timeout_s = timeout_s

    def get(self, kind: type[_Document], target: str) -> _Document:
        """The answer to a question, as it is; it is what a TypedDict says.

        Raises:
            TunerError: as ``ask``.
        """
        answer = self.ask("GET", target)
        try:
            typed(kind, answer, "it")
        except UnfitError as error:
            raise self.misunderstood(str(error)) from error
        return cast("_Document", answer)

    def ask(self, method: str, target: str, body: object = None) -> dict[str, Any] | None:
        """The JSON object that answers a request; None where there is nothing to say.

        Raises:
            InputError: the daemon says that what was asked for is wrong.
            DaemonRefusedError: the daemon does not do it now.
            DaemonUnavailableError: no daemon answers, or not to this user.
            DaemonError: the daemon failed, or its answer cannot be understood.
        """
        with (
            self._translated(self._timeout_s),
            closing(self._connection()) as connection,
        ):
            response = self._sent(connection, method, target, body, {})
            if response.status == http.client.NO_CONTENT:
                return None
            return self._document(response.read(MOST_BYTES + 1))

    def text(self, target: str) -> str:
        """The text that answers a request.

        Raises:
            TunerError: as ``ask``.
        """
        with (
            self._translated(self._timeout_s),
            closing(self._connection()) as connection,
        ):
            return self._sent(connection, "GET", target, None, {}).read(MOST_BYTES).decode(errors="replace")

    def stream(self, target: str, headers: Mapping[str, str], silence_s: float) -> Iterator[bytes]:
        """Lines of an answer that goes on, as they come; the daemon says something at least every so often.

        Raises:
            TunerError: as ``ask``.
        """
        with (
            self._translated(silence_s),
            closing(self._connection()) as connection,
            # closed here, not when it is collected: a Ctrl-C that comes in a finaliser is lost
            closing(self._sent(connection, "GET", target, None, headers)) as response,
        ):
            while connection.timed is not None:
                connection.timed.limit(silence_s)
                line = response.readline(MOST_BYTES)
                if not line:
                    return
                yield line

    def _connection(self) -> _Connection:
        return _Connection(self.address, self._timeout_s)

    def _sent(
        self,
        connection: _Connection,
        method: str,
        target: str,
        body: object,
        headers: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        """The response to a request, when it is a good one."""
        content = None if body is None else _json(body)
        sent = {"Accept": "application/json", **headers, **self.authorisation()}
        if content is not None:
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method, target, content, sent)
        except (BrokenPipeError, ConnectionResetError):
            if connection.sock is None:  # there was no connection
                raise  # else the daemon may have refused before all was sent: its answer is there
        response = connection.getresponse()
        if not http.client.OK <= response.status < http.client.MULTIPLE_CHOICES:
            wait = response.headers.get("Retry-After", "")
            self._refuse(response.status, response.read(MOST_BYTES + 1), wait)
        return response

    def authorisation(self) -> dict[str, str]:
        """Headers that show over TCP who asks; none over a Unix socket.

        Raises:
            InputError: the token file cannot be read.
        """
        if self.address.path is not None:
            return {}
        named = self._token_path
        if not named:
            return {}
        try:
            token = Path(named).read_text("ascii").strip()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise InputError(f"token file {named}: {why}; name one that `tuner token add` wrote") from error
        if not token:
            raise InputError(f"token file {named}: is empty; `tuner token rotate NAME {named}` writes one")
        return {"Authorization": f"Bearer {token}"}

    @property
    def _token_path(self) -> "Path | str | None":
        return self._token_file or os.environ.get(TOKEN_VARIABLE)

    def _document(self, content: bytes) -> dict[str, Any]:
        if len(content) > MOST_BYTES:
            raise self.misunderstood(f"more than {MOST_BYTES:,} bytes")
        try:
            return document(content.decode())
        except ValueError as error:
            raise self.misunderstood(f"{_shown(content)} ({error})") from error

    def misunderstood(self, what: str) -> DaemonError:
        """The error for an answer that no daemon of this version gives."""
        return DaemonError(
            f"what listens at {self.address} does not answer as tunerd does: {what}; is it another program,"
            " or of another version?"
        )

    def _refuse(self, status: int, content: bytes, wait: str) -> NoReturn:
        """Raise what the daemon's error means here; ``wait`` is its Retry-After, empty for none."""
        try:
            detail = document(content.decode())["error"]
            kind, message = (str(detail[key]) for key in _MESSAGE_KEYS)
        except (ValueError, LookupError, TypeError) as error:
            raise self.misunderstood(f"status {status}, {_shown(content)}") from error
        if kind == "not-ready":
            message += GOES_ON
        elif _WAIT.fullmatch(wait):
            message += f"; ask again in {wait} s"
        raise _error(kind, status, message, self.address, self._token_path)

    @contextmanager
    def _translated(self, timeout_s: float) -> Iterator[None]:
        """Errors of sockets and of HTTP as those of this package."""
        try:
            yield
        except TimeoutError as error:
            raise DaemonUnavailableError(
                f"the daemon at {self.address} did not answer within {timeout_s:g} s;"
                " `systemctl status tuner` and `journalctl -u tuner` tell more"
            ) from error
        except (http.client.RemoteDisconnected, http.client.IncompleteRead) as error:
            raise _gone(self.address) from error
        except http.client.HTTPException as error:
            raise self.misunderstood(repr(error)[:_SHOWN]) from error
        except OSError as error:
            raise _unreachable(self.address, error) from error


def _json(body: object) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except ValueError as error:
        raise InputError(f"a number that is not finite cannot be sent: {body!r:.{_SHOWN}}") from error


def _error(
    kind: str, status: int, message: str, address: Address, token_file: "Path | str | None"
) -> TunerError:
    """The daemon's own errors, in this process."""
    if kind in ("input", "unknown-job", "unknown-run", "too-large"):
        return InputError(message)
    if kind in ("not-now", "too-many", "not-yours"):
        return DaemonRefusedError(message)
    if kind == "unauthorised":
        return DaemonUnavailableError(f"{address}: {message}{_admission(status, address, token_file)}")
    if status == http.client.SERVICE_UNAVAILABLE:
        return DaemonUnavailableError(f"the daemon at {address} cannot answer now: {message}")
    return DaemonError(f"the daemon at {address} failed: {message}")


def _admission(status: int, address: Address, token_file: "Path | str | None") -> str:
    """Return the remedy for a refusal: token over TCP, group on a Unix socket; empty for another cause."""
    if status == http.client.UNAUTHORIZED and token_file:
        return (
            f"; that of {token_file} was revoked, has ended, or is another daemon's: `sudo tuner token list`"
            " shows those that count"
        )
    if status == http.client.UNAUTHORIZED:
        return f"; name the daemon's token file in ${TOKEN_VARIABLE}"
    return "" if address.path is None else f"; {_who_may(address.path)}"


def _gone(address: Address) -> DaemonUnavailableError:
    return DaemonUnavailableError(f"the daemon at {address} ended the connection before its answer was whole")


def _unreachable(address: Address, error: OSError) -> DaemonUnavailableError:
    """The reason why there is no connection, and the remedy."""
    if error.errno in (errno.EACCES, errno.EPERM) and address.path is not None:
        return DaemonUnavailableError(f"permission denied on {address}: {_who_may(address.path)}")
    if error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR, errno.ENOTSOCK):
        if address.path is None:
            return DaemonAbsentError(
                f"no daemon listens at {address}; `tuner status` of its machine shows the port that it has:"
                " `port` of [tcp] in daemon.toml opens one, `sudo tuner install-service --tcp` the way there"
            )
        return DaemonAbsentError(
            f"no daemon listens at {address}; start one with `systemctl start tuner.socket`, or in the"
            " foreground with `tuner daemon --foreground`"
        )
    if error.errno in (errno.ECONNRESET, errno.EPIPE):
        return _gone(address)
    return DaemonUnavailableError(f"no connection to the daemon at {address}: {error}")


def _who_may(path: Path) -> str:
    """Name the group that may use a socket, or the remedy for a directory that hides it."""
    try:
        group = path.stat().st_gid
    except OSError:
        return f"this user may not enter {path.parent}"
    try:
        name = grp.getgrgid(group).gr_name
    except KeyError:
        name = str(group)
    return f"it is for members of the group {name} (`sudo usermod -aG {name} $USER`, then log in again)"


def _shown(content: bytes) -> str:
    return repr(content[:_SHOWN].decode(errors="replace"))
