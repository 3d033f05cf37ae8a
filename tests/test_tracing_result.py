"""What a trace tells beside its joules."""

from dataclasses import replace

import pytest
from tuner.power.base import PowerLevel, ProgramEnergy, ProgramTimeline, Sample, SensorInfo

from tuner.joules.trace_result import ProgramTrace, ReadingResult
from tuner.joules.traces import CommandOutcome
from tuner.joules.watching import RECORDED

LINE = ProgramTimeline(0.0, 2.0, 7.0, 7.5)
ENERGY = ProgramEnergy(1000.0, 1.0, 500.0, 1.1, 100.0, 0.1, 200.0, None, 0.0, PowerLevel(100.5, 0.2))
SAMPLES = (Sample(1.0, 100.0),)


def trace_of(counter: ProgramEnergy | None, ring: ProgramEnergy | None, failure: str = "") -> ProgramTrace:
    readings = (
        ReadingResult(SensorInfo("counter", "counter", "gpu", 0.1), SAMPLES, counter, failure),
        ReadingResult(SensorInfo("ring", "ring", "gpu", 0.02), SAMPLES, ring),
    )
    return ProgramTrace(("true",), RECORDED, CommandOutcome(0, LINE, (), 0, 0.001), readings)


def test_nothing_is_told_of_a_trace_that_is_as_it_should_be() -> None:
    """Readings that agree, and a GPU that goes back to idle, give no notes."""
    assert list(trace_of(ENERGY, replace(ENERGY, total_j=1008.0)).notes()) == []


@pytest.mark.parametrize(
    ("watts", "says"), [(130.0, "30 W above the idle power"), (60.0, "40 W below the idle power")]
)
def test_power_that_does_not_go_back_to_idle_is_told(watts: float, says: str) -> None:
    """Once, with what it means for the joules."""
    still = replace(ENERGY, after=PowerLevel(watts, 0.2))
    (note,) = trace_of(still, still).notes()

    assert says in note
    assert "the joules end with the command" in note
    assert list(trace_of(replace(still, after=None), replace(still, after=None)).notes()) == []


@pytest.mark.parametrize(
    ("total_j", "sigma_j", "told"),
    [(1020.0, 1.0, True), (980.0, 1.0, True), (1020.0, 10.0, False), (1005.0, 1.0, False)],
)
def test_readings_that_contradict_each_other_are_told(total_j: float, sigma_j: float, told: bool) -> None:
    """They do by 1 % that noise does not explain; then the interval of the answer holds both."""
    trace = trace_of(ENERGY, replace(ENERGY, total_j=total_j, total_sigma_j=sigma_j))
    notes, energy = list(trace.notes()), trace.energy

    assert [note for note in notes if "sensors-differ: counter 1,000.0 ± 2.0 J and ring " in note] == notes
    assert bool(notes) is told
    assert energy is not None
    assert (energy.total_sigma_j > ENERGY.total_sigma_j) is told
    assert (energy.net_sigma_j > ENERGY.net_sigma_j) is told
    assert not told or 1.96 * energy.total_sigma_j > abs(total_j - energy.total_j)  # it holds both


def test_the_counter_counts_first() -> None:
    """Its joules are the answer, unless a curve knows much more or it has none; one that failed is told."""
    assert trace_of(ENERGY, replace(ENERGY, total_j=1008.0)).provenance()["total_j"] == 1000.0
    for sigma_j, ring, name in ((9.0, ENERGY, "counter"), (11.0, ENERGY, "ring"), (11.0, None, "counter")):
        trace = trace_of(replace(ENERGY, total_sigma_j=sigma_j), ring)
        assert trace.provenance()["energy_sensor"] == name
    failed = trace_of(None, ENERGY, "counter stopped answering: gone")

    assert failed.provenance()["energy_sensor"] == "ring"
    assert list(failed.notes()) == ["counter stopped answering: gone"]
