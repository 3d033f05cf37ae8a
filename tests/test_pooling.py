"""Several measuring windows of one trial, joined."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measurement.paired import join
from tuner.model.trial import Energy, Flag, Measurement, Status, WorkloadResult


def repeat(makespan_s: float, joules: float | None, *, u_j: float = 0.0, flag: str = "") -> Measurement:
    energy = None if joules is None else Energy(joules, u_j, joules / makespan_s, "sensor", "gpu")
    return Measurement(
        (WorkloadResult(Status.OK, makespan_s / 2),),
        makespan_s,
        energy=energy,
        rounds=10,
        window_s=1.0,
        flags=(Flag.parse(flag),) if flag else (),
        energy_total_j=5.0,
    )


def test_means_and_the_error_between_repeats() -> None:
    """Three repeats of 9, 10, 11 J: mean 10, standard error 1/sqrt(3) times Student's 4.303 / 1.96."""
    joined = join([repeat(1.0, 9.0), repeat(2.0, 10.0), repeat(3.0, 11.0)])

    assert joined.makespan_s == 2.0
    assert joined.energy is not None
    assert joined.energy.joules == 10.0
    assert joined.energy.uncertainty_j == pytest.approx(4.3027 / 1.96 / 3**0.5, rel=1e-3)
    assert joined.results[0].time_s == 1.0
    assert (joined.repeats, joined.rounds, joined.window_s, joined.energy_total_j) == (3, 30, 3.0, 15.0)


def test_repeats_cannot_be_surer_together_than_their_sensor_allows() -> None:
    """Repeats that agree by chance keep the uncertainty of each, divided by the root of their number."""
    joined = join([repeat(1.0, 10.0, u_j=0.3)] * 9)

    assert joined.energy is not None
    assert joined.energy.uncertainty_j == pytest.approx(0.1)


def test_repeats_of_few_degrees_are_surer_together() -> None:
    """Three repeats of five degrees have the scatter of one by sqrt(3), and the t of fifteen degrees."""
    five, fifteen = 2.5706 / 1.96, 2.1314 / 1.96
    energy = Energy(10.0, 0.3 * five, 10.0, "sensor", "gpu", 5.0)
    joined = join([replace(repeat(1.0, 10.0), energy=energy)] * 3)

    assert joined.energy is not None
    assert joined.energy.degrees == pytest.approx(15.0)
    assert joined.energy.uncertainty_j == pytest.approx(0.3 * fifteen / 3**0.5, rel=1e-3)


def test_failed_repeat_fails_the_trial() -> None:
    """A contender that fails when it is measured again is no answer."""
    failed = Measurement((WorkloadResult(Status.TIMEOUT, detail="late"),))

    assert join([repeat(1.0, 1.0), failed]) is failed


def test_energy_needs_every_burst() -> None:
    """Where a sensor was silent in one repeat, the joined trial has no joules."""
    assert join([repeat(1.0, 1.0), repeat(1.0, None)]).energy is None


def test_flags_are_kept_once() -> None:
    """What a reader must know of any repeat is known of the trial."""
    joined = join([repeat(1.0, 1.0, flag="a"), repeat(1.0, 1.0, flag="b"), repeat(1.0, 1.0, flag="a")])

    assert joined.flags == (Flag.parse("a"), Flag.parse("b"))


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1, max_size=6))
def test_joined_values_lie_among_the_repeats(values: list[tuple[float, float]]) -> None:
    """A mean is never outside of what was measured."""
    joined = join([repeat(*pair) for pair in values])

    assert joined.makespan_s is not None
    assert joined.energy is not None
    assert min(t for t, _ in values) <= joined.makespan_s * (1 + 1e-12)
    assert joined.makespan_s <= max(t for t, _ in values) * (1 + 1e-12)
    assert joined.energy.uncertainty_j >= 0.0
