"""Marks: lines in a pipe, stamped when they are read, that never hold a program up."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_process import SMALL, tuner
from hypothesis import given
from hypothesis import strategies as st

from tuner.system.marks import LABEL_CHARACTERS, MOST_MARKS, VARIABLE, MarkPipe, mark


class Clock:
    time_s = 7.0

    def __call__(self) -> float:
        return self.time_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pipe(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[MarkPipe]:
    with MarkPipe(clock) as made:
        monkeypatch.setenv(VARIABLE, str(made.path))
        yield made


def test_a_shell_sets_marks(pipe: MarkPipe) -> None:
    """`echo phase > $TUNER_MARKS` is a mark, as often as it is written."""
    subprocess.run(["sh", "-c", f'echo one > "${VARIABLE}"; echo two > "${VARIABLE}"'], check=True)
    pipe.read()

    assert pipe.marks == [(7.0, "one"), (7.0, "two")]


def test_python_sets_marks(pipe: MarkPipe, clock: Clock) -> None:
    """The function writes a line; each mark has the time at which it was read."""
    mark("begin")
    pipe.read()
    clock.time_s = 8.5
    mark("two\nlines")
    pipe.read()

    assert pipe.marks == [(7.0, "begin"), (8.5, "two lines")]


def test_the_package_need_not_be_there(pipe: MarkPipe) -> None:
    """The function needs nothing but the standard library's cheap parts: no numpy, no click."""
    code = "import sys; from tuner.system.marks import mark; mark('x'); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    pipe.read()

    assert done.stdout.strip() == "False"
    assert [label for _, label in pipe.marks] == ["x"]


@pytest.mark.parametrize("path", [None, "", "/nowhere/at/all", "/", "left"])
def test_nobody_reads(path: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a tracer, or with a pipe that a killed one left, a mark does nothing and holds nobody up."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("left")
    monkeypatch.delenv(VARIABLE, raising=False)
    if path is not None:
        monkeypatch.setenv(VARIABLE, path)
    open_before = set(Path("/proc/self/fd").iterdir())

    mark("alone")

    assert set(Path("/proc/self/fd").iterdir()) <= open_before
    assert list(tmp_path.iterdir()) == [tmp_path / "left"]


def test_a_full_pipe_does_not_block(pipe: MarkPipe) -> None:
    """A tracer that does not read in time costs marks, not time; those it holds are whole."""
    for number in range(20_000):
        mark(f"mark number {number}")
    pipe.read()

    assert 100 < len(pipe.marks) < 20_000
    assert [label for _, label in pipe.marks] == [f"mark number {i}" for i in range(len(pipe.marks))]


def test_a_command_keeps_the_pipe_open(clock: Clock) -> None:
    """A command that was handed the pipe writes to it without waiting after its tracer has closed it."""
    made = MarkPipe(clock)
    fd = os.dup(made.fileno())  # what a child has of it
    path = f"/proc/self/fd/{fd}"
    os.close(made._pipe)

    written = subprocess.run(["sh", "-c", f"echo late > {path}"], check=False, pass_fds=(fd,), timeout=20)

    assert written.returncode == 0
    made._pipe = fd
    made.close()
    assert not made.path.exists()


def test_later_marks_are_counted(pipe: MarkPipe) -> None:
    """What a program marks without end is counted, and not kept."""
    pipe.marks += [(0.0, "x")] * (MOST_MARKS - 1)
    mark("last")
    mark("over")
    pipe.read()

    assert pipe.marks[-1] == (7.0, "last")
    assert (len(pipe.marks), pipe.dropped) == (MOST_MARKS, 1)


@given(chunks=st.lists(st.binary(max_size=60), max_size=12))
def test_lines_are_whole_however_they_come(chunks: list[bytes]) -> None:
    """Labels depend on the bytes written and not on how they were cut; none has a control character."""
    with MarkPipe(lambda: 0.0) as whole, MarkPipe(lambda: 0.0) as parts:
        for chunk in chunks:
            os.write(parts.fileno(), chunk)
            parts.read()
        os.write(whole.fileno(), b"".join(chunks))
        for made in (whole, parts):
            made.end()

        assert whole.marks == parts.marks
        for _, label in whole.marks:
            assert 0 < len(label) <= LABEL_CHARACTERS
            assert label.isprintable()


def test_the_directory_goes(clock: Clock) -> None:
    """Nothing is left behind."""
    with MarkPipe(clock) as made:
        directory = made.path.parent
        assert directory.stat().st_mode & 0o077 == 0

    assert not directory.exists()


def test_tuner_run_marks_its_phases(pipe: MarkPipe, tmp_path: Path) -> None:
    """A traced `tuner run` says when it compiles, and when each trial begins."""
    db = tmp_path / "tuner.db"
    result = tuner("run", *SMALL, "--objective", "time", "--budget", "2", "--database", db)
    pipe.read()
    labels = [label for _, label in pipe.marks]

    assert result.exit_code == 0
    assert labels[:3] == ["compile", "trial 1", "trial 2"]
