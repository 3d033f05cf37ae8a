"""Where the daemon's log lines go, and what they say."""

import asyncio
import io
import json
import logging
import math
import os
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.system import logs
from tuner.system.logs import LINES_PER_S, LineRateLimiter

LOG = logging.getLogger("tuner.daemon.somewhere")


@pytest.fixture(autouse=True)
def _own_root() -> Iterator[None]:
    """The handlers of the tests' own process come back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers = handlers
    root.setLevel(level)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[socket.socket]:
    """Stands for journald."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(str(tmp_path / "journal"))
        one.settimeout(10.0)
        yield one


def fields(datagram: bytes) -> dict[str, str]:
    """Read a datagram as journald does."""
    found, rest = {}, datagram
    while rest:
        line, _, rest = rest.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (size,) = struct.unpack_from("<Q", rest)
            value, rest = rest[8 : 8 + size], rest[8 + size + 1 :]
        found[name.decode()] = value.decode()
    return found


def test_a_line_in_the_journal_says_which_job(journal: socket.socket, tmp_path: Path) -> None:
    """Message, priority and place, and the job, trial and GPU that the block is about."""
    logs.configure("journal", journal=tmp_path / "journal")
    with logs.about(job=3, gpu="GPU-1"), logs.about(trial=14):
        LOG.warning("clock %d MHz is refused", 1980)
    seen = fields(journal.recv(2**20))

    assert seen["MESSAGE"] == "clock 1980 MHz is refused"
    assert (seen["PRIORITY"], seen["SYSLOG_IDENTIFIER"]) == ("4", "tunerd")
    assert (seen["TUNER_JOB"], seen["TUNER_TRIAL"], seen["TUNER_GPU"]) == ("3", "14", "GPU-1")
    assert seen["CODE_FUNC"] == "test_a_line_in_the_journal_says_which_job"
    assert seen["CODE_FILE"] == __file__


def test_a_traceback_is_one_message(journal: socket.socket, tmp_path: Path) -> None:
    """A message of several lines stays one entry, and no line of it can pass for a field."""
    logs.configure("journal", journal=tmp_path / "journal")
    try:
        raise ValueError("no\nPRIORITY=0")  # noqa: TRY301 - a traceback is wanted
    except ValueError:
        LOG.exception("it failed", extra={"job": 5})
    seen = fields(journal.recv(2**20))

    assert seen["MESSAGE"].startswith("it failed\nTraceback")
    assert seen["MESSAGE"].endswith("no\nPRIORITY=0")
    assert (seen["PRIORITY"], seen["TUNER_JOB"]) == ("3", "5")
    assert "TUNER_TRIAL" not in seen


@given(st.dictionaries(st.from_regex(r"[A-Z]{1,8}", fullmatch=True), st.text(st.characters(codec="utf-8"))))
def test_every_value_arrives_whole(given_fields: dict[str, str]) -> None:
    """Whatever stands in a value, journald reads it back, and no other field."""
    assert fields(logs.entry(given_fields)) == given_fields


def test_an_endless_message_is_cut(journal: socket.socket, tmp_path: Path) -> None:
    """A message longer than a datagram arrives cut, and says so."""
    logs.configure("journal", journal=tmp_path / "journal")
    LOG.error("x" * 2**20)
    seen = fields(journal.recv(2**20))

    assert seen["MESSAGE"].endswith("x [cut]")
    assert len(seen["MESSAGE"]) < 2**16


def test_without_a_journal_the_line_is_on_standard_error(tmp_path: Path) -> None:
    """While the journal is being restarted nothing is lost."""
    stream = io.StringIO()
    logs.configure("journal", stream=stream, journal=tmp_path / "none")
    with logs.about(job=3, trial=14):
        LOG.info("it goes on")

    assert stream.getvalue().endswith("Z INFO job 3, trial 14: it goes on\n")


def test_a_journal_that_does_not_read_stops_nobody(journal: socket.socket, tmp_path: Path) -> None:
    """A full journal costs lines, and the next that arrives says how many."""
    handler = logs.configure("journal", journal=tmp_path / "journal")
    handler.filters = [one for one in handler.filters if not isinstance(one, LineRateLimiter)]
    count = 0
    while not handler._lost:  # type: ignore[attr-defined]
        LOG.info("line")
        count += 1
        assert count < 100_000
    for _ in range(count - 1):
        journal.recv(2**20)
    LOG.info("after it")
    assert fields(journal.recv(2**20))["TUNER_LOST"] == "1"
    LOG.info("and on")
    assert "TUNER_LOST" not in fields(journal.recv(2**20))


@given(st.lists(st.tuples(st.floats(0, 0.7), st.booleans()), max_size=200))
def test_no_second_has_more_lines_than_ten(steps: list[tuple[float, bool]]) -> None:
    """Whatever happens, a second has ten lines, of which three are errors' alone, and counts the others."""
    now_s = 0.0
    written: dict[int, list[bool]] = {}
    limiter = LineRateLimiter(lambda: now_s)
    told = left_out = 0
    for pause_s, is_error in steps:
        now_s += pause_s
        record = logging.LogRecord("n", logging.ERROR if is_error else logging.INFO, "", 0, "line", (), None)
        if limiter.filter(record):
            kinds = written.setdefault(math.floor(now_s), [])
            kinds.append(is_error)
            counted = re.fullmatch(
                r"line(?: \(before this, (\d+) lines were left out\))?", record.getMessage()
            )
            assert counted is not None
            told += int(counted[1] or 0)
        else:
            left_out += 1
    assert all(len(kinds) <= LINES_PER_S for kinds in written.values())
    assert all(kinds.count(False) <= LINES_PER_S - 3 for kinds in written.values())
    assert told + limiter._left_out == left_out


def test_a_flood_leaves_room_for_errors(tmp_path: Path) -> None:
    """Who fills the log with warnings keeps no error out of it."""
    stream = io.StringIO()
    handler = logs.configure("text", stream=stream, journal=tmp_path / "none")
    (limiter,) = [one for one in handler.filters if isinstance(one, LineRateLimiter)]
    handler.removeFilter(limiter)
    handler.addFilter(LineRateLimiter(lambda: 0.0))  # in a second that does not end
    for number in range(1000):
        LOG.warning("flood %d", number)
    LOG.error("the clock is not restored")
    assert "the clock is not restored (before this, " in stream.getvalue()
    assert stream.getvalue().count("\n") == LINES_PER_S - 3 + 1  # three lines are errors' alone


def test_json_lines(tmp_path: Path) -> None:
    """One object per line, a traceback in it."""
    stream = io.StringIO()
    logs.configure("json", stream=stream, journal=tmp_path / "none")
    with logs.about(job=1):
        LOG.error("of two\nlines", extra={"trial": 2})
    (line,) = stream.getvalue().splitlines()
    said = json.loads(line)

    assert (said["level"], said["job"], said["trial"], said["message"]) == ("error", 1, 2, "of two\nlines")
    assert said["logger"] == "tuner.daemon.somewhere"
    assert said["time"].endswith("Z")


@pytest.mark.usefixtures("journal")
def test_auto_is_the_journal_only_where_standard_error_goes_there(tmp_path: Path) -> None:
    """$JOURNAL_STREAM must name the very file: it is inherited by whoever redirects standard error."""
    with (tmp_path / "stderr").open("w") as stream, (tmp_path / "other").open("w") as other:
        status = os.fstat(stream.fileno())
        environment = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        path = tmp_path / "journal"
        known = {"environment": environment, "journal": path}
        kinds = [
            type(logs.configure("auto", stream=stream, **known)),  # type: ignore[arg-type]
            type(logs.configure("auto", stream=other, **known)),  # type: ignore[arg-type]
            type(logs.configure("auto", stream=io.StringIO(), **known)),  # type: ignore[arg-type]
            type(logs.configure("auto", stream=stream, environment={}, journal=path)),
            type(logs.configure("auto", stream=stream, environment=environment, journal=tmp_path / "none")),
        ]

    assert kinds == [logs.JournalHandler, *[logging.StreamHandler] * 4]


def test_each_task_is_about_its_own_job(tmp_path: Path) -> None:
    """Jobs that run side by side do not put their names on each other's lines."""
    stream = io.StringIO()
    logs.configure("json", stream=stream, journal=tmp_path / "none")

    async def work(job: int, met: asyncio.Event) -> None:
        with logs.about(job=job):
            await met.wait()
            LOG.info("by %d", job)

    async def both() -> None:
        met = asyncio.Event()
        tasks = [asyncio.create_task(work(job, met)) for job in (1, 2)]
        await asyncio.sleep(0)
        met.set()
        await asyncio.gather(*tasks)

    asyncio.run(both())
    said = [json.loads(line) for line in stream.getvalue().splitlines()]

    assert {(line["job"], line["message"]) for line in said} == {(1, "by 1"), (2, "by 2")}


def test_configuring_again_replaces() -> None:
    """There is one handler, however often the log is set up."""
    logs.configure("text", stream=io.StringIO())
    stream = io.StringIO()
    logs.configure("text", logging.WARNING, stream=stream)
    LOG.info("not told")
    LOG.warning("told once")

    assert stream.getvalue().count("told") == 1
