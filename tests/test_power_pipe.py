"""Lines of a child and watts that another program writes: stamped, kept, and with no child left."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cli_process import begun, tuner
from hypothesis import given
from hypothesis import strategies as st
from test_cli_power_trace import BRIEF, provenance, traced
from test_cli_power_trace import nvml as h200  # noqa: F401 - a fixture
from tuner.power.sensors import pipe
from tuner.power.sensors.pipe import PipeSampler
from tuner.power.sensors.rails import ChildLines, SharedLines

from tuner.model.errors import PowerError, SensorUnavailableError

# Writes what the fake GPU draws, 5 % less: a mean over each hundredth of a second, however late a line is.
METER = """
import sys, time
sys.path[:0] = [sys.argv[2]]
from nvml_gpu import attached
state = attached()

def joules_to(time_s):
    pieces = [(piece.start_us / 1e6, piece.milliwatts / 1e3)
              for piece in state.first.segments[: state.first.segment_count]]
    begun = [(start_s, watts) for start_s, watts in pieces if start_s < time_s]
    ends_s = [start_s for start_s, _ in begun[1:]] + [time_s]
    return sum(watts * (end_s - start_s) for (start_s, watts), end_s in zip(begun, ends_s))

PERIOD_S = 0.01
due_s, told = time.monotonic(), False
with open(sys.argv[1], "a") as log:
    while True:
        due_s += PERIOD_S
        time.sleep(max(0.0, due_s - time.monotonic()))
        watts = (joules_to(due_s) - joules_to(due_s - PERIOD_S)) / PERIOD_S
        log.write(f"{due_s},{0.95 * watts}\\n")
        log.flush()
        if not told:
            told = True
            print("written", flush=True)
"""


class Writer:
    """Writes to a named pipe; time passes only when it is told to."""

    def __init__(self, folder: Path, first: str) -> None:
        self.time_s = 50.0
        self.path = folder / "meter"
        os.mkfifo(self.path)
        self._reads = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)  # so that writing does not wait
        self._file = os.open(self.path, os.O_WRONLY)
        self.write(first)

    def write(self, text: str) -> None:
        os.write(self._file, text.encode())

    def sampler(self) -> PipeSampler:
        return PipeSampler(f"pipe:{self.path}", str(self.path), None, lambda: self.time_s)

    def close(self) -> None:
        for file in (self._reads, self._file):
            os.close(file)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    with closing(Writer(tmp_path, "time,watts\n0.0,100\n0.5,110\n1.0,120\n")) as made:
        yield made


def test_lines_with_times_keep_their_distances(writer: Writer) -> None:
    """The line with the least delay tells how the clocks compare; a header is passed over."""
    with closing(writer.sampler()) as sampler:
        assert sampler.info.period_s == pytest.approx(0.5)
        writer.time_s = 50.9
        writer.write("1.5,130\nnonsense\n2.0,140\n")
        samples = sampler.poll()

    assert [sample.value for sample in samples] == [130.0, 140.0]
    assert samples[1].time_s - samples[0].time_s == pytest.approx(0.5)
    assert samples[1].time_s <= 50.9


def test_lines_without_times_are_dated_by_reading(tmp_path: Path) -> None:
    """Each lies between two looks, with the uncertainty of that."""
    seconds = iter(range(10_000))
    with closing(Writer(tmp_path, "100\n100\n100\n")) as writer:
        with closing(PipeSampler("pipe:x", str(writer.path), None, lambda: float(next(seconds)))) as sampler:
            writer.write("200\n")
            before_s = next(seconds)
            (sample,) = sampler.poll()
        after_s = next(seconds)

    assert sample.value == 200.0
    assert before_s - 2.0 <= sample.time_s <= after_s
    assert 0.0 < sample.time_sigma_s < 1.0


@given(
    watts=st.lists(st.floats(0.1, 4e3), min_size=1, max_size=20), cuts=st.lists(st.integers(1, 9), min_size=1)
)
def test_lines_may_come_in_pieces(
    watts: list[float], cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """However a writer's lines are cut, each is one sample, in order."""
    with closing(Writer(tmp_path_factory.mktemp("pipe"), "0,1\n1,1\n2,1\n")) as writer:
        sampler = writer.sampler()
        text = "".join(f"{3 + number},{value!r}\n" for number, value in enumerate(watts))
        found = []
        while text:
            cut = cuts[len(text) % len(cuts)]
            writer.write(text[:cut])
            text = text[cut:]
            writer.time_s += 1.0
            found += sampler.poll()
        sampler.close()

    assert [sample.value for sample in found] == watts


@pytest.mark.parametrize(("watts", "step_w"), [("42", 1.0), ("42.0", 0.1), ("4.25e1", 0.1), ("1e3", 1000.0)])
def test_watts_are_known_to_their_last_digit(tmp_path: Path, watts: str, step_w: float) -> None:
    """A meter that shows the same number again and again is not known without uncertainty."""
    lines = "".join(f"{0.5 * i},{watts}\n" for i in range(3))
    with closing(Writer(tmp_path, lines)) as writer, closing(writer.sampler()) as sampler:
        assert sampler.info.resolution == pytest.approx(step_w)


def test_a_file_that_grows_is_read_from_its_end(tmp_path: Path) -> None:
    """What was written before is past."""
    path = tmp_path / "log.csv"
    path.write_text("0,999\n" * 3)
    with path.open("a") as log:

        def now() -> float:
            log.write(f"{time.monotonic()},50\n")
            log.flush()
            return time.monotonic()

        with closing(PipeSampler("pipe:log", str(path), None, now)) as sampler:
            assert {sample.value for sample in sampler.poll()} == {50.0}


def test_a_writer_that_ends_or_falls_silent_is_told(writer: Writer) -> None:
    """Both end the reading with an error that names it."""
    with closing(writer.sampler()) as sampler:
        writer.time_s += 1000.0
        with pytest.raises(PowerError, match="no line for"):
            sampler.poll()
        writer.write("x" * 5000)
        with pytest.raises(PowerError, match="a line of more than"):
            sampler.poll()


def test_lines_that_come_at_once_are_one_sample(writer: Writer) -> None:
    """Their times tell nothing, and a flood of them makes no energy surer, nor costs more than it tells."""
    with closing(writer.sampler()) as sampler:
        writer.time_s += 1.0
        writer.write("90\n110\n" * 2000)
        samples = sampler.poll()
        assert len(samples) <= 2001
        assert all(90.0 <= sample.value <= 110.0 for sample in samples)
        assert all(b.time_s - a.time_s > 0.0004 for a, b in itertools.pairwise(samples))


def test_lines_of_one_time_are_one_sample(writer: Writer) -> None:
    """A meter that writes more often than every half millisecond tells means."""
    with closing(writer.sampler()) as sampler:
        writer.time_s += 4.0
        writer.write("3.0,90\n3.0001,110\n3.0002,100\n4.0,70\n")
        assert [sample.value for sample in sampler.poll()] == [100.0, 70.0]


def test_a_flood_is_refused(writer: Writer) -> None:
    """What is written while nobody looks is passed over; a writer that is never caught up with is refused."""
    flood = "100\n" * 10_000
    with closing(writer.sampler()) as sampler:
        writer.write(flood)
        writer.time_s += 60.0
        assert sampler.poll() == []
        writer.write("55\n")
        writer.time_s += 0.1
        assert [sample.value for sample in sampler.poll()] == [55.0]
        for _ in range(4):
            writer.write(flood)
            writer.time_s += 0.02
            assert sampler.poll() == []
        writer.write(flood)
        with pytest.raises(PowerError, match=r"more is written than can be read.*a line every millisecond"):
            sampler.poll()


def test_a_flood_cannot_be_opened(tmp_path: Path) -> None:
    """A writer that is never caught up with is no sensor, as any other that does not answer."""
    with closing(Writer(tmp_path, "")) as writer:

        def now() -> float:
            with contextlib.suppress(BlockingIOError):
                writer.write("100\n" * 10_000)
            return time.monotonic()

        os.set_blocking(writer._file, False)
        with pytest.raises(SensorUnavailableError, match="more is written than can be read"):
            PipeSampler("pipe:x", str(writer.path), None, now)


@pytest.mark.parametrize(
    ("name", "words"),
    [("none", "No such file"), ("", "no pipe and no file"), ("still", "0 of 3 lines within 0.01 s")],
)
def test_what_is_no_meter_is_told(tmp_path: Path, name: str, words: str) -> None:
    """A missing file, a folder, and a file in which nothing comes."""
    (tmp_path / "still").touch()
    with pytest.raises(SensorUnavailableError, match=words):
        pipe.reading(str(tmp_path / name), patience_s=0.01).open()


@pytest.mark.usefixtures("h200")
def test_a_sensor_is_held_against_a_meter(tmp_path: Path) -> None:
    """A meter that shows 5 % less than the board's sensor is told as its gain, with an interval."""
    log, path = tmp_path / "meter.csv", tmp_path / "trace.json"
    log.touch()
    with begun(log, Path(__file__).parent, code=METER) as meter:
        assert meter.stdout is not None
        assert meter.stdout.readline() == "written\n"
        result = traced("--against", f"pipe:{log}", "--json", path)
        meter.kill()
    found = provenance(path)

    assert found["reference"] == f"pipe:{log}"
    assert abs(found["gain"] - 1.0 / 0.95) < 4.0 * found["gain_uncertainty"] + 0.02
    assert "of it, net of idle" in result.stderr
    missing = tuner("power", "trace", *BRIEF, "--against", "pipe:none", "--", sys.executable, "-c", "pass")
    assert missing.exit_code == 2
    assert "--against pipe:none: No such file" in missing.stderr


# --- Lines of a child process: stamped, kept, shared, and no child that outlives its parent.

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
