"""Signals as exceptions: raised, ignored, and not lost in callbacks that cannot raise."""

import contextlib
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_process import COMMAND, PATIENCE_S

from tuner.system import signals
from tuner.system.signals import SignalInterrupt, raised_as_interrupts

NUMBER = signal.SIGUSR1


class Thing:
    """Does something when it goes, where nothing can be raised."""

    def __init__(self, leaving: Callable[[], None]) -> None:
        self._leaving = leaving

    def __del__(self) -> None:
        self._leaving()


def send() -> None:
    signal.raise_signal(NUMBER)


def wait() -> None:
    threading.Event().wait(PATIENCE_S)
    raise AssertionError("no signal came")


def in_weak_callback() -> None:
    thing = Thing(lambda: None)
    watch = weakref.ref(thing, lambda _: send())
    del thing
    assert watch() is None


def in_destructor() -> None:
    thing = Thing(send)
    del thing


def in_two_destructors() -> None:
    """The one that comes again is lost again."""

    def both() -> None:
        in_destructor()
        wait()

    thing = Thing(both)
    del thing


@pytest.mark.parametrize("lose", [in_weak_callback, in_destructor, in_two_destructors])
def test_lost_signal_comes_again(lose: Callable[[], None], capfd: pytest.CaptureFixture[str]) -> None:
    """Where Python ignores the exception, the signal is sent again until one is raised."""
    with raised_as_interrupts([NUMBER]):
        lose()  # nothing is raised here
        with pytest.raises(SignalInterrupt, match="stopped by SIGUSR1"):
            wait()
    assert capfd.readouterr().err == ""


def test_signal_is_raised_once() -> None:
    """It is a KeyboardInterrupt that names its signal."""
    with pytest.raises(KeyboardInterrupt) as raised, raised_as_interrupts([NUMBER]):
        send()
    assert isinstance(raised.value, SignalInterrupt)
    assert raised.value.number is NUMBER


def test_ignored_signal_stays_ignored() -> None:
    """As under nohup."""
    before = signal.signal(NUMBER, signal.SIG_IGN)
    try:
        with raised_as_interrupts([NUMBER]):
            send()
            assert signal.getsignal(NUMBER) is signal.SIG_IGN
        assert signal.getsignal(NUMBER) is signal.SIG_IGN
    finally:
        signal.signal(NUMBER, before)


def test_other_ignored_exceptions_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else is raised in a destructor goes where it went before; the end restores everything."""
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(unraisable.exc_value))
    hook, handler = sys.unraisablehook, signal.getsignal(NUMBER)
    failure = ValueError("of a destructor")

    def fail() -> None:
        raise failure

    with raised_as_interrupts([NUMBER]):
        thing = Thing(fail)
        del thing
    assert told == [failure]
    assert sys.unraisablehook is hook
    assert signal.getsignal(NUMBER) is handler


def test_nothing_is_sent_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was to be interrupted has ended: the signal would do what it does by default, and kill."""
    monkeypatch.setattr(signals, "_LATER_S", 0.0)
    assert signal.getsignal(NUMBER) is signal.SIG_DFL
    signals._send_again(NUMBER)


def test_a_handler_that_was_set_meanwhile_stays() -> None:
    """Who has decided that a signal is heeded no more has the last word."""
    before = signal.getsignal(NUMBER)
    try:
        with raised_as_interrupts([NUMBER]):
            signal.signal(NUMBER, signal.SIG_IGN)
        assert signal.getsignal(NUMBER) is signal.SIG_IGN
    finally:
        signal.signal(NUMBER, before)


def test_a_library_that_makes_an_error_of_it() -> None:
    """What was raised since a count is raised again, once it is known that it was lost."""
    with raised_as_interrupts([NUMBER]):
        begun = signals.count()
        signals.raise_again(begun)  # nothing was raised
        with contextlib.suppress(SignalInterrupt):
            send()
        with pytest.raises(SignalInterrupt, match="SIGUSR1"):
            signals.raise_again(begun)


@pytest.mark.parametrize(("word", "code"), [("--version", 0), ("--nonsense", 2)])
def test_a_command_ends_behind_all_that_is_to_be_done_at_the_end(word: str, code: int) -> None:
    """Handlers of the end run, threads are waited for, and the status is its own; nothing is taken apart."""
    program = (
        "import atexit, sys, threading; from tuner.__main__ import main\n"
        f"sys.argv = ['tuner', '{word}']\n"
        "threading.Thread(target=lambda: (threading.main_thread().join(), print('thread'))).start()\n"
        "class Last:\n"
        "    def __del__(self): print('taken apart')\n"
        "last = Last()\n"
        "try: main()\n"
        "finally: atexit.register(print, 'handler')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )

    assert ended.returncode == code
    assert ended.stdout.splitlines()[-2:] == ["thread", "handler"]


def test_a_program_that_calls_the_command_line_goes_on() -> None:
    """Its handlers of the end run, and its status is its own."""
    program = (
        "import atexit, sys; atexit.register(print, 'handler'); from tuner.cli.main import main\n"
        "try: main(['--version'])\n"
        "except SystemExit as end: sys.exit(end.code + 7)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )

    assert ended.returncode == 7
    assert ended.stdout.splitlines()[-1] == "handler"


@pytest.mark.parametrize("kib", [60_000, 130_000])
def test_a_shortage_of_memory_is_told_in_a_line(kib: int, tmp_path: Path) -> None:
    """Whatever an import, a thread or an allocation says of it."""
    words = [
        "run",
        "scan-lf:N=64",
        "--device",
        "sim:h200",
        "--budget",
        "2",
        "--database",
        str(tmp_path / "db"),
    ]
    done = subprocess.run(
        ["sh", "-c", f'ulimit -v {kib} && exec "$@"', "sh", *COMMAND, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "no more memory" in done.stderr or "Memory allocation" in done.stderr  # the latter of OpenBLAS
