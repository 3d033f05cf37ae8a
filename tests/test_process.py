"""Child processes: answers, errors, deaths and time-outs on either side of the pipe."""

import os
import pickle
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from tuner.model.errors import ChildCrashedError, ChildTimeoutError, CompileError, DeviceUnavailableError
from tuner.system.processes import Child

PATIENCE_S = 60.0  # for what must come; never waited for in full unless something is broken

SERVER = '''
import ctypes, os, signal, struct, sys, time
from tuner.model.errors import CompileError, DeviceUnavailableError

class Loaded(CompileError):
    """Cannot be pickled."""
    def __init__(self):
        super().__init__("loaded")
        self.load = lambda: None

class Server:
    def __init__(self, where=None):
        if where == "refuse":
            raise DeviceUnavailableError("no such device")
        if where == "bug":
            raise KeyError("bug")
        self.where = where
    def echo(self, value): return value
    def modules(self): return sorted(sys.modules)
    def unpicklable(self): return lambda: None
    def tree_error(self): raise CompileError("line 3", "the log")
    def loaded_error(self): raise Loaded()
    def other_error(self): return {}["absent"]
    def leave(self): sys.exit(3)
    def die(self, number): os.kill(os.getpid(), number)
    def half_an_answer(self):
        os.write(int(sys.argv[1]), struct.pack("!Q", 1000) + b"abc")
        os._exit(4)
    def chatter(self):
        print("printed garbage", flush=True)
        os.write(1, b"written garbage")
        return "answer"
    def hang(self, fifo=None):
        if fifo:
            open(fifo, "w").close()
        while True:
            signal.pause()
    def stick(self): ctypes.PyDLL(None).sleep(1000)  # holds the interpreter lock
    def close(self):
        if self.where:
            open(self.where, "w").close()
'''


@pytest.fixture(autouse=True)
def _server_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "served.py").write_text(SERVER)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture
def child() -> Iterator[Child]:
    with Child("served:Server") as child:
        child.ready(PATIENCE_S)
        yield child


def is_reaped(pid: int) -> bool:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def ends(pidfd: int) -> bool:
    """True when the process ends; its parent may be anyone."""
    watch = select.poll()
    watch.register(pidfd, select.POLLIN)
    return bool(watch.poll(PATIENCE_S * 1000))


@pytest.mark.parametrize("value", [None, 0, "text", [1, {"a": (2.5, b"x")}], CompileError("as a value")])
def test_answers_come_back_as_they_are(child: Child, value: object) -> None:
    """A plain value survives the way to the server and back."""
    answer = child.call("echo", value, timeout_s=PATIENCE_S)
    assert repr(answer) == repr(value)


def test_large_values_pass(child: Child) -> None:
    """A value far larger than the pipe's buffer passes both ways, unchanged."""
    value = os.urandom(1 << 20) * 20
    assert child.call("echo", value, timeout_s=PATIENCE_S) == value


def test_child_starts_lean(child: Child) -> None:
    """The child imports neither the caller's main module nor anything heavy."""
    modules = child.call("modules", timeout_s=PATIENCE_S)
    assert "pytest" not in modules
    assert "numpy" not in modules


def test_what_is_printed_stays_out_of_answers_and_of_standard_output(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Whatever a server or a library in it prints goes to standard error and breaks no answer."""
    with Child("served:Server") as chatty:
        assert chatty.call("chatter", timeout_s=PATIENCE_S) == "answer"
    out, err = capfd.readouterr()
    assert out == ""
    assert "printed garbage" in err
    assert "written garbage" in err


def test_errors_of_our_tree_keep_their_type(child: Child) -> None:
    """An error of tuner.model.errors is raised here as it was raised there, and the child lives on."""
    with pytest.raises(CompileError) as caught:
        child.call("tree_error", timeout_s=PATIENCE_S)
    assert (str(caught.value), caught.value.log) == ("line 3", "the log")
    assert child.call("echo", 1, timeout_s=PATIENCE_S) == 1


@pytest.mark.parametrize(
    ("method", "says"),
    [("other_error", "KeyError: 'absent'"), ("loaded_error", "Loaded"), ("unpicklable", "pickle")],
)
def test_other_errors_arrive_as_text(child: Child, method: str, says: str) -> None:
    """What is not of our tree, or cannot travel, arrives with its traceback, and the child lives on."""
    with pytest.raises(ChildCrashedError, match=says) as caught:
        child.call(method, timeout_s=PATIENCE_S)
    assert "Traceback" in str(caught.value)
    assert child.alive
    assert child.call("echo", 1, timeout_s=PATIENCE_S) == 1


def test_an_argument_that_cannot_be_pickled_is_not_sent(child: Child) -> None:
    """An argument that cannot travel fails in the caller and leaves the child as it was."""
    with pytest.raises((pickle.PicklingError, AttributeError)):
        child.call("echo", lambda: None, timeout_s=PATIENCE_S)
    assert child.call("echo", 2, timeout_s=PATIENCE_S) == 2


@pytest.mark.parametrize(
    ("method", "argument", "says"),
    [
        ("die", signal.SIGSEGV, "killed by SIGSEGV"),
        ("die", signal.SIGKILL, "killed by SIGKILL"),
        ("leave", None, "exit status 3"),
        ("half_an_answer", None, "exit status 4"),
    ],
)
def test_a_death_says_how(child: Child, method: str, argument: object, says: str) -> None:
    """A child that dies in a call, or in the middle of its answer, raises how it ended, and is reaped."""
    arguments = [] if argument is None else [argument]
    with pytest.raises(ChildCrashedError, match=says):
        child.call(method, *arguments, timeout_s=PATIENCE_S)
    assert not child.alive
    assert is_reaped(child.pid)
    with pytest.raises(ChildCrashedError, match="closed"):
        child.call("echo", 1, timeout_s=PATIENCE_S)


@pytest.mark.parametrize("method", ["hang", "stick"])
def test_a_hanging_call_is_killed_at_its_time_out(child: Child, method: str) -> None:
    """A call that outlasts its time-out is killed, even where it never gives the interpreter back."""
    with pytest.raises(ChildTimeoutError, match=r"0\.1 s"):
        child.call(method, timeout_s=0.1)
    assert not child.alive
    assert is_reaped(child.pid)


def test_a_child_that_does_not_read_is_killed_at_the_time_out(child: Child) -> None:
    """The time-out holds while a large request is being sent, too."""
    os.kill(child.pid, signal.SIGSTOP)
    with pytest.raises(ChildTimeoutError):
        child.call("echo", bytes(1 << 24), timeout_s=0.1)
    assert is_reaped(child.pid)


def test_ctrl_c_is_the_parents_matter(child: Child) -> None:
    """SIGINT does nothing to a child, and it is in a session that the terminal does not signal."""
    os.kill(child.pid, signal.SIGINT)
    assert child.call("echo", 3, timeout_s=PATIENCE_S) == 3
    assert os.getsid(child.pid) != os.getsid(0)


def test_sigterm_ends_a_child(child: Child) -> None:
    """SIGTERM has its default effect."""
    os.kill(child.pid, signal.SIGTERM)
    with pytest.raises(ChildCrashedError, match="SIGTERM"):
        child.call("hang", timeout_s=PATIENCE_S)


def test_an_interrupted_call_leaves_no_stale_answer(child: Child, tmp_path: Path) -> None:
    """An exception that leaves a call half-way ends the child, so that no later call takes its answer."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def press() -> None:
        fifo.read_text()  # returns when the call is at work in the child
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    thread = threading.Thread(target=press)
    before = signal.signal(signal.SIGALRM, interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            child.call("hang", str(fifo), timeout_s=PATIENCE_S)
    finally:
        thread.join()
        signal.signal(signal.SIGALRM, before)
    assert is_reaped(child.pid)


def test_close_ends_a_call_of_another_thread(child: Child, tmp_path: Path) -> None:
    """Closing while another thread waits for an answer kills the child and wakes that thread."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    raised: list[Exception] = []

    def wait() -> None:
        try:
            child.call("hang", str(fifo), timeout_s=PATIENCE_S)
        except ChildCrashedError as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    fifo.read_text()  # returns when the call is at work in the child
    child.close()
    thread.join(PATIENCE_S)
    assert len(raised) == 1
    assert is_reaped(child.pid)


def test_close_lets_the_server_close_and_may_be_repeated(tmp_path: Path) -> None:
    """An idle server's own close() runs before the child ends; closing again does nothing."""
    mark = tmp_path / "closed"
    child = Child("served:Server", str(mark))
    child.ready(PATIENCE_S)
    child.close(grace_s=PATIENCE_S)
    assert mark.exists()
    child.close()
    assert not child.alive
    assert is_reaped(child.pid)


def test_a_forgotten_child_is_ended() -> None:
    """A child that nobody closes ends with its last reference."""
    child = Child("served:Server")
    pid = child.pid
    del child
    assert is_reaped(pid)


@pytest.mark.parametrize(
    ("argument", "error", "says"),
    [("refuse", DeviceUnavailableError, "no such device"), ("bug", ChildCrashedError, "KeyError: 'bug'")],
)
@pytest.mark.parametrize(
    "first", [lambda c: c.ready(PATIENCE_S), lambda c: c.call("echo", 1, timeout_s=PATIENCE_S)]
)
def test_a_server_that_cannot_be_built_says_why(
    argument: str, error: type[Exception], says: str, first: Callable[[Child], object]
) -> None:
    """What the server's callable raises comes out of the first use, and the child is gone."""
    with Child("served:Server", argument) as child:
        with pytest.raises(error, match=says):
            first(child)
        assert is_reaped(child.pid)
        with pytest.raises(ChildCrashedError, match="closed"):
            child.call("echo", 1, timeout_s=PATIENCE_S)


@pytest.mark.parametrize("server", ["served:Nobody", "no_such_module:Server"])
def test_a_server_that_is_not_there(server: str) -> None:
    """A wrong name is reported with the import's own words."""
    with Child(server) as child, pytest.raises(ChildCrashedError, match=r"Nobody|no_such_module"):
        child.ready(PATIENCE_S)


def test_no_process_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that starts no further process gives ChildCrashedError, and no descriptor is lost."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(sys, "executable", "/no/such/interpreter")
    with pytest.raises(ChildCrashedError, match="cannot start"):
        Child("served:Server")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_no_descriptor_to_be_had() -> None:
    """A process that may open nothing more gives ChildCrashedError, too."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(ChildCrashedError, match="cannot start"):
            Child("served:Server")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_children_of_several_threads_outlive_those_threads() -> None:
    """Threads may each use a child at a time, and a child does not end with the thread that made it."""
    children: list[Child] = []
    answers: dict[int, list[int]] = {}

    def work(number: int) -> None:
        child = Child("served:Server")
        children.append(child)
        answers[number] = [child.call("echo", (number, i), timeout_s=PATIENCE_S)[1] for i in range(50)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert answers == {number: list(range(50)) for number in range(3)}
    for child in children:
        assert child.call("echo", "still here", timeout_s=PATIENCE_S) == "still here"
        child.close()


@pytest.mark.parametrize("method", ["hang", "stick"])
def test_a_child_dies_with_its_parent(method: str) -> None:
    """SIGKILL of the parent ends a child at work, even one that never gives the interpreter back."""
    script = (
        "import sys, threading\n"
        "from tuner.system.processes import Child\n"
        "child = Child('served:Server')\n"
        f"child.ready({PATIENCE_S})\n"
        "print(child.pid, flush=True)\n"
        f"child.call({method!r}, timeout_s={PATIENCE_S})\n"
    )
    paths = os.pathsep.join(sys.path)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}
    ) as parent:
        assert parent.stdout is not None
        pidfd = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.kill()
            assert ends(pidfd)
        finally:
            os.close(pidfd)


def test_a_fork_of_the_parent_neither_uses_nor_ends_nor_keeps_a_child() -> None:
    """A worker that a program forks, as PyTorch's loaders of data, holds nothing that the child waits for."""
    script = (
        "import os, signal\n"
        "from tuner.model.errors import ChildCrashedError\n"
        "from tuner.system.processes import Child\n"
        "child = Child('served:Server', whole=True)\n"
        f"child.ready({PATIENCE_S})\n"
        "pid, (told, telling) = child.pid, os.pipe()\n"
        "if not os.fork():\n"
        f"    signal.alarm({PATIENCE_S:.0f})\n"
        "    try:\n"
        f"        child.call('echo', 1, timeout_s={PATIENCE_S})\n"
        "    except ChildCrashedError as error:\n"
        "        os.write(telling, str(error).encode())\n"
        "    child.kill()\n"
        "    child.close()\n"
        "    del child\n"
        "    os.close(telling)\n"
        "    os.read(0, 1)\n"  # until the test has seen all
        "    os._exit(0)\n"
        "os.close(telling)\n"
        "said = open(told).read()\n"  # the worker has done all that it can
        f"print(child.call('echo', said, timeout_s={PATIENCE_S}), pid, sep='\\n', flush=True)\n"
        "signal.pause()\n"
    )
    paths = os.pathsep.join(sys.path)
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"served:Server: the child process is closed\n"
        pidfd = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.kill()
            assert ends(pidfd)
            assert not select.select([parent.stdout], [], [], 0)[0]  # the worker, which has it too, lives
        finally:
            os.close(pidfd)
            parent.kill()


def test_a_loop_whose_signals_are_ignored_leaves_no_descriptor_to_write_to() -> None:
    """After the loop is closed, signals stay ignored, and none writes where its descriptor was."""
    code = """
import asyncio, signal
from tuner.system.signals import ignore_signals

async def listen():
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, print)
    ignore_signals(loop)

asyncio.run(listen())
signal.raise_signal(signal.SIGTERM)
print(signal.getsignal(signal.SIGTERM) is signal.SIG_IGN, signal.set_wakeup_fd(-1))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "-1"]
