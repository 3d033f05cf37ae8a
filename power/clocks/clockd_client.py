"""Client and protocol of ``tuner-clockd`` and of a guardian: one JSON object per line, in turns."""

import contextlib
import json
import logging
import re
import select
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from tuner.model.errors import ClockError, ClockLostError, ClockPermissionError

from ..base import POWER_LIMIT, POWER_PROFILE

# --- The protocol of ``tuner-clockd``: one JSON object per line, in turns.
#
# A client asks, the helper answers; only a refusal with the code ``expired`` or ``stopped`` comes unasked,
# and is the last word. The connection is the lease: ``renew`` and ``reset`` do not say whose clock is meant,
# so that nobody can renew or reset another's. ::
#
#     {"verb": "hello"}
#     {"verb": "set", "control": "nvml", "gpu": "GPU-6f0d...", "mhz": 900}
#     {"verb": "limit", "gpu": "GPU-6f0d...", "watts": 450}
#     {"verb": "profile", "gpu": "GPU-6f0d...", "profile": 1}
#     {"verb": "renew"}
#     {"verb": "reset"}
#     {"verb": "energy", "zone": "package-0"}
#
#     {"ok": true, ...}
#     {"ok": false, "code": "busy", "message": "..."}

PROTOCOL = 2  # since there is the verb limit
SOCKET = Path("/run/tuner/clockd.sock")
MAX_REQUEST_BYTES = 512  # four times the longest sensible request
MAX_ANSWER_BYTES = 4096  # a message may list what was left alone

# Names become parts of file names and of sysfs paths: no slash, no leading dot.
_GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,95}")
_ZONE = re.compile(r"(package|dram)-[0-9]{1,4}(-die-[0-9]{1,4})?")
FINAL = ("malformed", "full", "expired", "stopped")
"""Codes of refusals after which the connection is closed."""

_FIELDS: dict[str, dict[str, type]] = {
    "hello": {},
    "set": {"control": str, "gpu": str, "mhz": int},
    "limit": {"gpu": str, "watts": int},
    "profile": {"gpu": str, "profile": int},
    "renew": {},
    "reset": {},
    "energy": {"zone": str},
}


@dataclass(frozen=True)
class ClockRequest:
    """One request; fields of other verbs are empty."""

    verb: str
    control: str = ""
    gpu: str = ""
    mhz: int = 0
    watts: int = 0
    profile: int = 0
    zone: str = ""

    @property
    def value(self) -> int:
        """Requested value, in the unit of the setting."""
        return {"limit": self.watts, "profile": self.profile}.get(self.verb, self.mhz)


_CONTROLS = {"limit": POWER_LIMIT, "profile": POWER_PROFILE}  # of verbs that name none
SETTING = ("set", *_CONTROLS)
"""Verbs that set something."""


def setting_request(control: str, gpu: str, value: int) -> ClockRequest:
    """The request that holds a GPU at a clock in MHz, at a power limit in W, or at a power profile."""
    if control == POWER_PROFILE:
        return ClockRequest("profile", control, gpu, profile=value)
    if control == POWER_LIMIT:
        return ClockRequest("limit", control, gpu, watts=value)
    return ClockRequest("set", control, gpu, mhz=value)


class Answer(TypedDict, total=False):
    """The helper's answer to a request.

    Attributes:
        ok: whether it was granted; what follows but ``code`` and ``message`` is of one that was.
        protocol: to a greeting, the version of this protocol.
        ttl_s: likewise, how long it lets a client be silent.
        left: to ``reset``, what was left as others had set it.
        uj: to ``energy``, what the counter shows.
        code: see ``ClockRefusal``.
        message: for people.
    """

    ok: bool
    protocol: int
    ttl_s: float
    left: list[str]
    uj: int
    code: str
    message: str


class ClockRefusal(Exception):  # noqa: N818 - an answer, not a fault of the helper
    """A request that is not granted.

    Attributes:
        code: ``busy``, ``permission``, ``clock`` (not supported, or the driver failed), or one of ``FINAL``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def parse_request(line: bytes) -> ClockRequest:
    """Read one line, strictly: unknown, missing and wrongly typed fields are refused.

    Raises:
        ClockRefusal: with the code ``malformed`` and what would be right.
    """
    try:
        record = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise ClockRefusal("malformed", "each line must be one JSON object")
    verb = record.pop("verb", None)
    fields = _FIELDS.get(verb) if isinstance(verb, str) else None
    if fields is None:
        raise ClockRefusal("malformed", f'"verb" must be one of {", ".join(_FIELDS)}')
    if record.keys() != fields.keys():
        raise ClockRefusal(
            "malformed", f"{verb} takes {' and '.join(fields) or 'no further field'}, and nothing else"
        )
    for name, kind in fields.items():
        if type(record[name]) is not kind:  # isinstance would take true for a number
            raise ClockRefusal(
                "malformed", f'"{name}" must be {"a whole number" if kind is int else "a text"}'
            )
    if verb in _CONTROLS:
        record["control"] = _CONTROLS[verb]
    request = ClockRequest(verb, **record)
    if verb in SETTING:
        _check(request)
    if verb == "energy" and not _ZONE.fullmatch(request.zone):
        raise ClockRefusal("malformed", '"zone" must be a package or its DRAM, e.g. package-0 or dram-0')
    return request


def _check(request: ClockRequest) -> None:
    disguised = request.verb == "set" and request.control in _CONTROLS.values()  # another given as a clock
    if not request.control.isascii() or not request.control.isalpha() or disguised:
        raise ClockRefusal("malformed", '"control" must be the name of a clock control, e.g. nvml')
    if not _GPU.fullmatch(request.gpu):
        raise ClockRefusal("malformed", '"gpu" must be the name of a GPU, e.g. its UUID')


def request_line(request: ClockRequest) -> bytes:
    """The line that asks for ``request``."""
    fields = {name: getattr(request, name) for name in _FIELDS[request.verb]}
    return _line({"verb": request.verb, **fields})


def granted(**fields: float | list[str]) -> bytes:
    """The line that says yes, with what else there is to say."""
    return _line({"ok": True, **fields})


def refused(reason: ClockRefusal) -> bytes:
    """The line that says no, and why."""
    message = str(reason)
    return _line({"ok": False, "code": reason.code, "message": message[: MAX_ANSWER_BYTES // 8]})


def parse_answer(line: bytes) -> Answer:
    """Return the reply of the helper to a granted request.

    Raises:
        ClockRefusal: it did not grant it, or (``malformed``) what came is no answer.
    """
    try:
        answer: Answer = json.loads(line.decode("utf-8"))
        if answer["ok"] is True:
            return answer
        refusal = ClockRefusal(str(answer["code"]), str(answer["message"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        refusal = ClockRefusal("malformed", "what answers there is not tuner-clockd")
    raise refusal


def _line(record: Mapping[str, str | float | list[str]]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


# --- A connection to a helper or a guardian.

PATIENCE_S = 20.0  # who takes longer hangs in the driver; the service's watchdog ends it sooner
_HELLO_PATIENCE_S = 5.0  # systemd starts the helper for the first who connects


_LOG = logging.getLogger(__name__)


class OtherProtocolError(ClockError):
    """The helper is of another version."""


@dataclass(frozen=True)
class SetterLink:
    """A way to who sets clocks for this process.

    Attributes:
        name: of the other side, for people.
        socket: connected to it.
        ended: to be called when the socket is closed; waits for what there is to wait for.
    """

    name: str
    socket: socket.socket
    ended: Callable[[], None] = lambda: None


def reach(path: Path = SOCKET) -> SetterLink:
    """Connect to the helper; starts it under systemd.

    Raises:
        ClockPermissionError: this user may not use it.
        ClockError: nobody listens there.
    """
    link = SetterLink("tuner-clockd", socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    link.socket.settimeout(_HELLO_PATIENCE_S)  # that its queue is full does not last
    try:
        link.socket.connect(str(path))
    except OSError as error:
        link.socket.close()
        if isinstance(error, PermissionError):
            raise ClockPermissionError(
                f"{path} is not for this user: join its group (usermod -aG tuner-clocks USER) and log in anew"
            ) from error
        raise ClockError(f"tuner-clockd does not listen on {path}: {error}") from error
    return link


def helper_answers(path: Path = SOCKET) -> bool:
    """True where a helper can be reached; starts it under systemd, and changes nothing.

    One of another version is told of: it is there, and to start it, as who needs it is told, would not help.
    """
    try:
        with contextlib.closing(SetterConnection(reach(path), _HELLO_PATIENCE_S)) as connection:
            connection.greeted_s()
    except OtherProtocolError as error:
        _LOG.warning("%s", error)
        return False
    except ClockError:
        return False
    return True


class SetterConnection:
    """Asks and waits for the answer, one at a time.

    Args:
        link: to whom; ended with this connection.
        patience_s: how long an answer may take.
    """

    def __init__(self, link: SetterLink, patience_s: float = PATIENCE_S) -> None:
        self._link = link
        self._socket = link.socket
        self._socket.settimeout(patience_s)

    def ask(self, request: ClockRequest) -> Answer:
        """Send a request and return what was granted.

        Raises:
            ClockLostError: the other side has ended the lease, is gone, or does not answer.
            ClockPermissionError: it may not set this clock.
            ClockError: it refused for another reason.
        """
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its last words wait to be read
                self._socket.sendall(request_line(request))
            return parse_answer(self._line())
        except OSError as error:
            raise ClockLostError(f"{self._link.name} does not answer ({error})") from error
        except ClockRefusal as refusal:
            if refusal.code in FINAL:
                raise ClockLostError(str(refusal)) from refusal
            kind = ClockPermissionError if refusal.code == "permission" else ClockError
            raise kind(str(refusal)) from refusal

    def greeted_s(self) -> float:
        """Greet the other side; tells how long it lets a client be silent.

        Raises:
            OtherProtocolError: it speaks another protocol.
            ClockError: it speaks none.
        """
        greeting = self.ask(ClockRequest("hello"))
        try:
            if greeting["protocol"] == PROTOCOL:
                return float(greeting["ttl_s"])
        except (KeyError, TypeError, ValueError) as error:
            raise ClockError(f"what answers there is not tuner-clockd: {greeting}") from error
        raise OtherProtocolError(
            f"tuner-clockd speaks protocol {greeting['protocol']}, not {PROTOCOL}: update it or tuner"
        )

    def has_news(self) -> bool:
        """True where something came that was not asked for: the other side is gone or has ended the lease."""
        news = select.poll()  # unlike select it takes any file descriptor
        try:
            news.register(self._socket, select.POLLIN)
        except ValueError:  # closed meanwhile
            return True
        return bool(news.poll(0))

    def leave(self) -> None:
        """Say that nothing more will be asked, and wait until the other side has hung up, which it does last.

        Raises:
            ClockLostError: it has not, in time.
        """
        try:
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(MAX_ANSWER_BYTES):
                pass
        except TimeoutError as error:
            raise ClockLostError(f"{self._link.name} does not answer: the clock may still be set") from error
        except OSError:  # it has hung up before
            return

    def hang_up(self) -> None:
        """End the conversation without waiting for anything."""
        with contextlib.suppress(OSError):  # the other side was faster
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Release the connection; the other side restores what it has set for it."""
        self._socket.close()
        self._link.ended()

    def _line(self) -> bytes:
        line = bytearray()
        while not line.endswith(b"\n"):
            more = self._socket.recv(MAX_ANSWER_BYTES)
            if not more or len(line) > MAX_ANSWER_BYTES:
                raise ConnectionError("it closed the connection")
            line += more
        return bytes(line)
