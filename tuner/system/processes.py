"""Child processes that hold a server object and answer calls with plain values.

What may hang, crash or be killed (a compiler, a GPU) lives in a child, so that it costs one call and not the
run. The child is a fresh interpreter: it imports neither the caller's ``__main__`` nor anything else before
the server's module.
"""

import contextlib
import copyreg
import fcntl
import importlib
import io
import operator
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol, cast
from weakref import WeakSet

from tuner.model.errors import ChildCrashedError, ChildTimeoutError, TunerError

_HEADER = struct.Struct("!Q")
_REAP_S = 10.0  # a killed process that holds a GPU may need seconds until the driver lets go of it
_BEGIN_S = 5.0  # the kernel takes a first message that is short whether the child reads it yet or not
_MOST_KEPT = 64  # values that cross once, on either side
_BOOT = (
    "import sys; sys.path[:] = sys.argv[3:]; from tuner.system.processes import serve; serve(*sys.argv[1:3])"
)
_BOOT_ELSEWHERE = (  # of what is installed here, another interpreter gets this package alone
    "import sys; sys.path[:] = [sys.argv[3], *filter(None, sys.path)]; import tuner; del sys.path[0];"
    "from tuner.system.processes import serve; serve(*sys.argv[1:3])"
)


class Forgetful(Protocol):
    """An object that begins anew in a forked process, without threads and children of its parent."""

    def forget(self) -> None:
        """Let go of all that is the parent's and end nothing of it; threads that held locks are not here."""


_FORGETFUL: "WeakSet[Forgetful]" = WeakSet()


def forget_in_forks(one: Forgetful) -> None:
    """Have an object begin anew in each process that is forked from this one, as long as it lives."""
    _FORGETFUL.add(one)


def _forget() -> None:
    for one in tuple(_FORGETFUL):
        one.forget()


os.register_at_fork(after_in_child=_forget)


class Child(AbstractContextManager["Child"]):
    """A child process with one server object; calls are made one at a time.

    The child dies with its parent, however that ends, ignores SIGINT (the parent decides what Ctrl-C
    means) and has its standard output on standard error, so that nothing printed there mixes with answers.
    It builds its server at once, while the caller does something else: what goes wrong is told by the first
    call. In a process that is forked from the parent it is closed, and lives on for the parent alone.

    Args:
        server: ``module:callable`` that builds the server in the child.
        args: picklable arguments of the callable, some kilobytes at most.
        name: what messages call the child; the server's name if not given.
        whole: what the child has started ends with it.
        python: interpreter of the child, with packages of its own; this one, with what is imported from here,
            if not given.

    Raises:
        ChildCrashedError: no process can be started.
    """

    def __init__(
        self, server: str, *args: object, name: str = "", whole: bool = False, python: str = ""
    ) -> None:
        self._name = name or server
        self._whole = whole
        self._lock = threading.Lock()
        self._ready = False
        self._known = _KnownValues(())
        request = _pack((server, args))
        self._lifeline = -1
        forget_in_forks(self)
        boot, paths = (_BOOT_ELSEWHERE, [__file__.rsplit(os.sep, 3)[0]]) if python else (_BOOT, sys.path)
        with contextlib.ExitStack() as theirs:
            try:
                self._socket, channel = socket.socketpair()
                theirs.enter_context(channel)
                lifeline, self._lifeline = os.pipe()
                theirs.callback(os.close, lifeline)
                self._process = subprocess.Popen(  # noqa: S603 - an interpreter and this package, no shell
                    [python or sys.executable, "-c", boot, str(channel.fileno()), str(lifeline), *paths],
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    pass_fds=(channel.fileno(), lifeline),
                    start_new_session=True,  # a Ctrl-C of the terminal goes to the parent alone
                )
            except (OSError, MemoryError) as error:
                if hasattr(self, "_socket"):
                    self._release()
                raise ChildCrashedError(f"{self._name}: cannot start a child process: {error}") from error
        with contextlib.suppress(OSError):  # it is gone: the first call says how
            _send(self._socket, request, time.monotonic() + _BEGIN_S)

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True while the child can take calls."""
        return self._socket.fileno() >= 0 and self._process.poll() is None

    def was_stopped(self) -> bool:
        """True if it was stopped by a signal, or went on after one, since this was asked last."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG) is not None
        except ChildProcessError:  # it has ended
            return False

    def keep(self, *kinds: type) -> None:
        """Have values of some types cross whole once, and then by number: large ones that never change."""
        self._known = _KnownValues(kinds)

    def ready(self, timeout_s: float) -> None:
        """Wait until the server is built; ``call`` does so by itself, within its own time-out.

        Raises:
            ChildTimeoutError: it took longer; the child is killed.
            ChildCrashedError: the child died, or the server raised what is not of our error tree.
            TunerError: what the server's callable raised; the child is closed.
        """
        with self._lock:
            self._build(time.monotonic() + timeout_s, timeout_s)

    def call(self, method: str, *args: object, timeout_s: float) -> Any:  # noqa: ANN401 - the server decides
        """Call a method of the server and return its (picklable) result.

        Args:
            method: name of the method.
            args: picklable arguments.
            timeout_s: longest wait in seconds for the answer, including the start of the child.

        Raises:
            ChildTimeoutError: no answer in time; the child is killed.
            ChildCrashedError: the child died, or the method raised what is not of our error tree (the child
                then lives on, see ``alive``).
            TunerError: what the method raised.
        """
        with self._lock:
            deadline = time.monotonic() + timeout_s
            self._build(deadline, timeout_s)
            return self._exchange(self._known.pack((method, args)), deadline, timeout_s)

    def kill(self) -> None:
        """Kill the child, without waiting for its end."""
        self._process.kill()

    def close(self, grace_s: float = 2.0) -> None:
        """End the child and reap it; may be called again, and while another thread waits in ``call``.

        An idle child closes its server and leaves; one that is busy, or not gone after ``grace_s`` seconds,
        is killed.
        """
        if self._lock.acquire(blocking=False):
            with contextlib.suppress(OSError):  # closed before, or the child is gone
                self._socket.shutdown(socket.SHUT_WR)
            self._lock.release()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        self._reap()
        with self._lock:
            self._release()

    def forget(self) -> None:
        """Close what a forked process has inherited, so that the child ends with its parent all the same."""
        self._lock = threading.Lock()
        if hasattr(self, "_process"):
            self._process.returncode = 0  # from now on nothing here waits for it or kills it
        if hasattr(self, "_socket"):
            with contextlib.suppress(OSError):
                self._release()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_process") and not sys.is_finalizing():  # then the lifeline ends it, unwaited for
            self._reap()
            self._release()

    def _build(self, deadline: float, timeout_s: float) -> None:
        """Wait until the server is built, once; a server that cannot be built ends the child."""
        if self._ready:
            return
        try:
            self._exchange(None, deadline, timeout_s)
        except BaseException:
            self._reap()
            self._release()
            raise
        self._ready = True

    def _exchange(self, request: bytes | None, deadline: float, timeout_s: float) -> Any:  # noqa: ANN401
        """Send a request, if any, and return or raise what comes back; a broken exchange ends the child."""
        if self._socket.fileno() < 0:
            raise ChildCrashedError(f"{self._name}: the child process is closed")
        try:
            if request is not None:
                _send(self._socket, request, deadline)
            reply = _receive(self._socket, deadline)
        except TimeoutError as error:
            self._reap()
            self._release()
            raise ChildTimeoutError(f"{self._name}: no answer within {timeout_s:g} s; killed") from error
        except OSError as error:
            with contextlib.suppress(subprocess.TimeoutExpired):  # let it say itself how it ended
                self._process.wait(1.0)
            status = self._reap()
            self._release()
            raise ChildCrashedError(f"{self._name}: the child process {_how(status)}") from error
        except BaseException:  # an answer may be on its way: the next call must not take it for its own
            self._reap()
            self._release()
            raise
        return self._result(reply)

    def _result(self, reply: bytes | bytearray) -> Any:  # noqa: ANN401
        try:
            kind, value = pickle.loads(reply)  # noqa: S301 - from our own child over a private socket
        except Exception as error:
            raise ChildCrashedError(f"{self._name}: unreadable answer: {error}") from error
        if kind == "value":
            return value
        if kind == "error":
            raise value
        raise ChildCrashedError(f"{self._name}: unexpected exception in the child process\n{value}")

    def _reap(self) -> int | None:
        """Kill the child if it lives; return its exit status, None if the kernel keeps hold of it."""
        if self._whole:  # it ends what it has started, as where its parent is gone
            self._process.send_signal(signal.SIGIO)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_REAP_S)
        if self._whole and self._process.returncode is None:  # nobody else can have its number yet
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        try:
            return self._process.wait(_REAP_S)
        except subprocess.TimeoutExpired:
            return None

    def _release(self) -> None:
        """Close what this side holds; the lock is held, or nobody else has this object."""
        self._socket.close()
        if self._lifeline >= 0:
            lifeline, self._lifeline = self._lifeline, -1  # first: a fork just now must not close its number
            os.close(lifeline)


class _KnownValues:
    """Values that a child knows by number: the latest ones, each held here, so that no other takes its place.

    Args:
        kinds: their types.
    """

    def __init__(self, kinds: Collection[type]) -> None:
        self._reducers = {**copyreg.dispatch_table, **dict.fromkeys(kinds, self._reduced)}
        self._values: list[object] = []  # by number
        self._numbers: dict[int, int] = {}  # by identity
        self._next = 0

    def pack(self, message: object) -> bytes:
        """Pack a message; after one that cannot be packed, everything crosses anew."""
        stream = io.BytesIO()
        pickler = pickle.Pickler(stream, pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = self._reducers
        try:
            pickler.dump(message)
        except BaseException:
            self._values.clear()
            self._numbers.clear()
            self._next = 0
            raise
        return stream.getvalue()

    def _reduced(self, value: object) -> tuple[Any, ...]:
        number = self._numbers.get(id(value))
        if number is not None:
            return _recalled, (number,)
        number, self._next = self._next, (self._next + 1) % _MOST_KEPT
        if number < len(self._values):
            del self._numbers[id(self._values[number])]
            self._values[number] = value
        else:
            self._values.append(value)
        self._numbers[id(value)] = number
        build, args, *state = cast("tuple[Any, ...]", value.__reduce_ex__(pickle.HIGHEST_PROTOCOL))
        return (_kept, (number, build, args), *state)


def _how(status: int | None) -> str:
    if status is None:
        return "was killed and has not ended yet"
    if status >= 0:
        return f"ended with exit status {status}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-status).name}"
    return f"was killed by signal {-status}"


def _pack(message: object) -> bytes:
    return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)


def _remaining(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    remaining_s = deadline - time.monotonic()
    if remaining_s <= 0:
        raise TimeoutError
    return remaining_s


def _send(channel: socket.socket, message: bytes, deadline: float | None = None) -> None:
    """Send one message whole; raises TimeoutError, or OSError when the other side is gone."""
    for part in (_HEADER.pack(len(message)), message):
        channel.settimeout(_remaining(deadline))
        channel.sendall(part)


def _receive(channel: socket.socket, deadline: float | None = None) -> bytearray:
    """Receive one message whole; raises TimeoutError, or OSError when the other side is gone."""
    (size,) = _HEADER.unpack(_receive_exactly(channel, _HEADER.size, deadline))
    return _receive_exactly(channel, size, deadline)


def _receive_exactly(channel: socket.socket, size: int, deadline: float | None) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        channel.settimeout(_remaining(deadline))
        count = channel.recv_into(view)
        if count == 0:
            raise ConnectionResetError("the other side is gone")
        view = view[count:]
    return data


# --- in the child --------------------------------------------------------------------------------

_VALUES: dict[int, object] = {}  # those that crossed, by number


def _kept(number: int, build: Callable[..., object], args: tuple[object, ...]) -> object:
    """Make a value that crosses, and keep it under its number."""
    value = _VALUES[number] = build(*args)
    return value


def _recalled(number: int) -> object:
    """The value that has crossed under a number."""
    return _VALUES[number]


def serve(channel: str, lifeline: str) -> NoReturn:
    """Be the child: build the server named by the first message, then answer calls until the parent leaves.

    Args:
        channel: descriptor of the socket.
        lifeline: descriptor of a pipe whose other end only the parent holds.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent(int(lifeline))
    connection = socket.socket(fileno=int(channel))
    server: Any = None
    try:
        target, args = pickle.loads(_receive(connection))  # noqa: S301 - from our own parent
        server, reply = _attempt(_load, target, args)
        _send(connection, _pack(("value", None)) if reply is None else reply)
        while server is not None:
            method, args = pickle.loads(_receive(connection))  # noqa: S301 - same
            value, reply = _attempt(operator.methodcaller(method, *args), server)
            _send(connection, _answer(value) if reply is None else reply)
    except OSError:
        pass  # the parent has closed its end, or is gone
    if hasattr(server, "close"):
        server.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # at once: nothing of the interpreter is worth an orderly end


def die_with_parent(lifeline: int) -> None:
    """Have the kernel end this process when the parent's end of a pipe closes, whatever is running here.

    PR_SET_PDEATHSIG would do so too early: it fires when the *thread* that started the child ends.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)  # default action: terminate; no Python code needed
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGIO})
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    watch = select.poll()
    watch.register(lifeline, 0)
    if watch.poll(0):  # hung up before we asked
        os._exit(0)


def _load(target: str, args: tuple[object, ...]) -> Any:  # noqa: ANN401
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)(*args)


def _attempt(function: Any, *args: Any) -> tuple[Any, bytes | None]:  # noqa: ANN401
    """A function's value and None, or None and the packed reply that reports its exception."""
    try:
        return function(*args), None
    except TunerError as error:
        try:
            reply = _pack(("error", error))
            pickle.loads(reply)  # noqa: S301 - must be readable over there
        except Exception:  # noqa: BLE001 - an error that cannot travel is reported as text
            return None, _pack(("crash", traceback.format_exc()))
        return None, reply
    except Exception:  # noqa: BLE001 - everything is reported to the parent
        return None, _pack(("crash", traceback.format_exc()))


def _answer(value: object) -> bytes:
    try:
        return _pack(("value", value))
    except Exception:  # noqa: BLE001 - what cannot be pickled is reported, not fatal
        return _pack(("crash", traceback.format_exc()))
