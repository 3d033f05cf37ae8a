"""Identities of processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.system.ownership import is_alive, pid_of, this_process


def test_this_process_is_alive() -> None:
    """A process recognises itself."""
    assert is_alive(this_process())


def test_ended_process_is_not_alive() -> None:
    """The identity of a process that has ended is dead, even if its number is used again."""
    code = "from tuner.system.ownership import this_process; print(this_process())"
    owner = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()

    assert not is_alive(owner)
    assert pid_of(owner) is not None


def test_a_process_that_nobody_has_reaped_is_dead() -> None:
    """A killed process whose parent has not noticed yet holds nothing any more."""
    code = "from tuner.system.ownership import this_process; print(this_process(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        owner = process.stdout.readline().strip()
        assert is_alive(owner)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is left as it is

        assert not is_alive(owner)


def test_reused_number_is_another_process() -> None:
    """The same number with another start time, or from another boot, is not the owner."""
    boot, pid, start = this_process().split(":")

    assert not is_alive(f"{boot}:{pid}:{int(start) + 1}")
    assert not is_alive(f"other-boot:{pid}:{start}")


def test_a_name_may_be_any_bytes() -> None:
    """Whoever runs under a number that was somebody's chooses its name freely: it may be no text."""
    comm = Path("/proc/self/comm")
    before = comm.read_bytes()
    comm.write_bytes(b"\xff) S 1 (\xfe")
    try:
        assert is_alive(this_process())
    finally:
        comm.write_bytes(before.strip())


@pytest.mark.parametrize("text", ["", "x", "::", "a:b:c", ":1"])
def test_foreign_text_is_nobody(text: str) -> None:
    """What is no identity is dead, not an error."""
    assert not is_alive(text)
    assert pid_of(text) is None
