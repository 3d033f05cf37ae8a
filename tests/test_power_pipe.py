"""Watts that another program writes: lines with and without times, through pipes and growing files."""

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Iterator
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
