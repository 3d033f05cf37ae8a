"""Lines of a child process: stamped, kept, shared, and no child that outlives its parent."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tuner.power.sensors.rails import ChildLines, SharedLines

PATIENCE_S = 20.0  # a bound for a broken machine; nothing here takes a tenth of it

Start = Callable[[str], ChildLines]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[ChildLines] = []

    def run(body: str) -> ChildLines:
        script = tmp_path / f"child-{len(started)}"
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
        started.append(ChildLines([str(script), "argument"], time.monotonic))
        return started[-1]

    yield run
    for lines in started:
        lines.close()


def wait_for(lines: ChildLines, count: int) -> list[str]:
    """The first ``count`` lines."""
    until_s = time.monotonic() + PATIENCE_S
    while lines.since(0)[0] < count:
        assert lines.wait(lines.since(0)[0], until_s)
        assert lines.end is None or lines.since(0)[0] >= count, lines.end
    return [text for _, text in lines.since(0)[1][:count]]


def ended(lines: ChildLines) -> str:
    until_s = time.monotonic() + PATIENCE_S
    while lines.end is None:
        assert lines.wait(lines.since(0)[0], until_s)
    return str(lines.end)


def gone(pid: int) -> None:
    """Wait until a process of another parent is gone."""
    until_s = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{pid}").exists() and not is_zombie(pid):
        assert time.monotonic() < until_s, f"{pid} lives on"
        os.sched_yield()


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_lines_are_stamped_when_they_come(start: Start) -> None:
    """Each line has a time between start and now, in order, and arguments reach the command."""
    began_s = time.monotonic()
    lines = start("echo $1; echo two; exec sleep 1000")

    assert wait_for(lines, 2) == ["argument", "two"]

    times_s = [time_s for time_s, _ in lines.since(0)[1]]
    assert began_s < times_s[0] <= times_s[1] <= time.monotonic()
    assert lines.end is None


def test_only_new_lines_are_given(start: Start) -> None:
    """Who has seen some lines gets those after them, once."""
    lines = start("echo a; echo b; echo c; exec sleep 1000")
    wait_for(lines, 3)

    count, fresh = lines.since(1)

    assert (count, [text for _, text in fresh]) == (3, ["b", "c"])
    assert lines.since(count) == (3, [])


def test_the_end_says_how_and_what_was_said_last(start: Start) -> None:
    """A child that ends leaves its exit status and its last words, those on standard error too."""
    assert ended(start("echo must be run as root >&2; exit 3")) == (
        "ended with exit status 3, saying: must be run as root"
    )
    assert ended(start("exit 0")) == "ended with exit status 0"
    assert ended(start("kill -9 $$")) == "was ended by SIGKILL"


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (b"\x7fELF no such machine", 0o755, "Exec format error"),
        (b"#!/no/such/shell\n", 0o755, "No such file"),
        (b"#!/bin/sh\n", 0o644, "Permission denied"),
    ],
)
def test_what_cannot_be_run_says_why(tmp_path: Path, content: bytes, mode: int, said: str) -> None:
    """A binary of another machine, without interpreter or without permission ends with the reason."""
    binary = tmp_path / "tegrastats"
    binary.write_bytes(content)
    binary.chmod(mode)
    lines = ChildLines([str(binary)], time.monotonic)

    assert said in ended(lines)

    lines.close()


def test_closing_ends_the_child(start: Start) -> None:
    """Closing ends a child at once, one that ignores the request too, with what it started; twice is fine."""
    lines = start("trap '' TERM; echo $$; sleep 1000 & echo $!; wait; wait")
    pids = [int(text) for text in wait_for(lines, 2)]

    lines.close()
    lines.close()

    assert lines.end is not None
    for pid in pids:
        gone(pid)


def test_a_killed_parent_leaves_no_child(tmp_path: Path) -> None:
    """SIGKILL of the process that reads ends a child that never prints again."""
    script = tmp_path / "child"
    script.write_text("#!/bin/sh\necho $$\nexec sleep 1000\n")
    script.chmod(0o755)
    reader = (
        "import sys, time\nfrom tuner.power.sensors.rails import ChildLines\n"
        "lines = ChildLines([sys.argv[1]], time.monotonic)\n"
        "lines.wait(0, time.monotonic() + 20)\n"
        "print(lines.since(0)[1][0][1], flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", reader, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert not is_zombie(child)
        parent.send_signal(signal.SIGKILL)

    gone(child)


def test_a_line_without_end_is_cut(start: Start) -> None:
    """What never ends a line comes in pieces instead of eating the memory."""
    lines = start("head -c 200000 /dev/zero | tr '\\0' x; exec sleep 1000")

    assert {len(text) for text in wait_for(lines, 3)} == {65_536}


def test_bytes_that_are_no_text_are_replaced(start: Start) -> None:
    """Garbage on the pipe is a line like any other."""
    lines = start("printf '\\377\\376RAM\\n'; exec sleep 1000")

    assert wait_for(lines, 1) == ["��RAM"]


def test_readers_share_one_child(start: Start) -> None:
    """The second reader gets the first one's child; the last to leave ends it; the next starts another."""
    shared = SharedLines(lambda: start("echo $$; exec sleep 1000"))

    first, second = shared.acquire(), shared.acquire()
    wait_for(first, 1)
    shared.release()
    running = first.end
    shared.release()
    third = shared.acquire()

    assert first is second
    assert running is None
    assert first.end is not None
    assert third is not first
    shared.release()


def test_a_dead_child_is_not_shared(start: Start) -> None:
    """Who asks after the child has died gets a new one."""
    shared = SharedLines(lambda: start("exit 1"))
    first = shared.acquire()
    ended(first)

    second = shared.acquire()

    assert second is not first
    shared.release()
    shared.release()
    assert second.end is not None
