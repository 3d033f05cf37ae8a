"""The lines that a trace ends with, and what its picture says."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuner.power.base import ProgramEnergy, ProgramTimeline, Response, Sample, SensorInfo

from tuner.joules.trace_result import ProgramTrace, ReadingResult
from tuner.joules.traces import CommandOutcome
from tuner.joules.watching import Gpu
from tuner.report.power_tables import shortened, trace_lines, trace_picture

LINE = ProgramTimeline(0.0, 2.0, 7.0, 7.5)
ENERGY = ProgramEnergy(1000.0, 1.0, 500.0, 2.0, 100.0, 0.1, 200.0, None, 0.0)
RING = SensorInfo("ring", "ring", "gpu", 0.02, response=Response("lag", capacitance_s=0.013))
TRACE = ProgramTrace(
    ("/opt/tools/solver", "--size", "4096"),
    Gpu(0, "GPU-1", "580.1", "an H200"),
    CommandOutcome(3, LINE, ((2.5, "solve"),), 0, 0.0012),
    (
        ReadingResult(SensorInfo("counter", "counter", "gpu", 0.1), (Sample(1.0, 5.0),), ENERGY),
        ReadingResult(
            RING, tuple(Sample(0.02 * i, 100.0) for i in range(400)), replace(ENERGY, peak_w=300.0)
        ),
    ),
)


def test_lines() -> None:
    """Total and net have 95 % intervals; which reading, its model and its disagreement stand below."""
    head, energy, net, counter, ring, *_ = trace_lines(TRACE)

    assert head == "solver --size 4096: exit code 3, 5.000 s"
    assert energy == "energy 1,000.0 ± 2.0 J, mean 200.0 W"
    assert net == "net of idle 500.0 ± 3.9 J; idle 100.00 ± 0.20 W, measured before"
    assert counter == "counter (gpu; counts joules): 1 samples, 1,000.0 ± 2.0 J"
    assert ring.startswith(
        "ring (gpu; lag, C = 13.0 ms, assumed): 400 samples, 1,000.0 ± 2.0 J (+0.0 %), peak 300.0 W"
    )


def test_a_gain_that_is_not_told_is_no_number() -> None:
    """Where the load draws nothing above idle, two meters cannot be compared net of idle."""
    reference = replace(TRACE.readings[1], info=replace(RING, name="meter"))
    told = list(trace_lines(replace(TRACE, reference=reference)))
    nothing = replace(ENERGY, net_j=0.1, net_sigma_j=5.0)
    readings = tuple(replace(one, energy=nothing) for one in TRACE.readings)
    unknown = list(
        trace_lines(replace(TRACE, readings=readings, reference=replace(reference, energy=nothing)))
    )

    assert any(line.startswith("counter shows 1.0") and line.endswith("of it, net of idle") for line in told)
    assert any(line.startswith("no gain of counter can be told") for line in unknown)


def test_no_joules() -> None:
    """A trace without joules says so, and why."""
    readings = (replace(TRACE.readings[1], energy=None, failure="ring stopped answering: gone"),)
    lines = list(trace_lines(replace(TRACE, readings=readings)))

    assert lines[1] == "no joules: no reading gave enough"
    assert lines[-1] == "beware: ring stopped answering: gone"


def test_the_picture_says_what_and_where() -> None:
    """Its title has the command with its joules, then reading, GPU and driver; net joules are shaded."""
    picture = trace_picture(TRACE)

    assert picture is not None
    what, where = picture.title.split("\n")
    assert what == "solver --size 4096: 1,000.0 ± 2.0 J"
    assert where.startswith("ring (gpu) of an H200 in ")
    assert ", driver 580.1, " in where
    assert picture.net == "500.0 ± 3.9 J"
    assert picture.counter == (200.0, "counter: mean of 1,000.0 ± 2.0 J")
    assert picture.marks == [(0.5, "solve")]


def test_without_a_curve_there_is_no_picture() -> None:
    """A counter shows no power over time, a reading without samples neither."""
    assert trace_picture(replace(TRACE, readings=TRACE.readings[:1])) is None
    assert trace_picture(replace(TRACE, readings=(replace(TRACE.readings[1], samples=()),))) is None


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("/usr/bin/env",), "env"),
        (("a b", "c\nd"), "'a b' 'c d'"),
        (("/",), "/"),
        (("./run.sh", *(f"--option-{i}" for i in range(20))), "run.sh --option-0 --option-1"),
    ],
)
def test_commands_are_shortened(command: tuple[str, ...], words: str) -> None:
    """The folder of the program goes first, then the last words."""
    assert shortened(command).startswith(words)


@given(st.lists(st.text(), min_size=1, max_size=20).map(tuple))
def test_a_shortened_command_is_one_short_line(command: tuple[str, ...]) -> None:
    """Whatever a command holds, it takes one line and does nothing to a terminal."""
    words = shortened(command)

    assert len(words) <= 92
    assert words.isprintable()
