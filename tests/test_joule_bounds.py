"""Trials whose time shows that they spend more than the best get no window for joules."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measurement.base import ComparisonTarget
from tuner.measurement.race import LEAST_TRIALS, SHORT_EXCESS, JouleBounds, is_clearly_worse
from tuner.model.objective import Objective
from tuner.model.trial import Energy, Flag, FlagKind, GpuSetting, Measurement, Status, Trial, WorkloadResult

ENERGY = Objective("energy")
IDLE = (100.0, 0.0)


def timed(makespan_s: float) -> Measurement:
    return Measurement((WorkloadResult(Status.OK, makespan_s),), makespan_s)


def spent(makespan_s: float, watts: float, unsure: float = 0.001) -> Measurement:
    """A trial with joules."""
    joules = makespan_s * watts
    energy = Energy(joules, unsure * joules, watts, "fake-counter", "gpu")
    return replace(timed(makespan_s), energy=energy)


def held(best: Measurement, objective: Objective = ENERGY) -> ComparisonTarget:
    return ComparisonTarget(objective, (Trial((), 1), best), 10)


def bounds_of(*seen: Measurement, clock_mhz: int | None = None) -> JouleBounds:
    bounds = JouleBounds()
    for measurement in seen:
        bounds.add(GpuSetting(clock_mhz), measurement)
    return bounds


BEST = spent(1.0, 500.0)
SEEN = [BEST, *(spent(1.0 + 0.1 * n, 520.0) for n in range(LEAST_TRIALS - 1))]


def test_idle_power_alone_rules_out() -> None:
    """At 100 W idle, six seconds are more than 500 J, whatever the kernel does: certain after one trial."""
    found = bounds_of(BEST).rules_out(timed(6.0), GpuSetting(), IDLE, held(BEST))

    assert found is not None
    assert found.certain
    assert 500.0 < found.least_j <= 600.0
    assert found.estimate_j == pytest.approx(3000.0), "at the power seen so far"
    assert bounds_of(BEST).rules_out(timed(4.0), GpuSetting(), IDLE, held(BEST)) is None


def test_the_lowest_net_energy_may_be_of_another_gpu() -> None:
    """A pool's GPU that has measured less than 400 J net lowers the bound of all others."""
    elsewhere = Energy(250.0, 0.0, 400.0, "fake-counter", "gpu")
    target = replace(held(BEST), elsewhere=(elsewhere,))

    assert bounds_of(*SEEN).rules_out(timed(2.0), GpuSetting(), IDLE, target) is None


def test_the_lowest_net_energy_rules_out() -> None:
    """Net of idle the best took 400 J: two seconds spend 200 J idle and, plausibly, no less than that."""
    found = bounds_of(*SEEN).rules_out(timed(2.0), GpuSetting(), IDLE, held(BEST))

    assert found is not None
    assert not found.certain
    assert found.least_j == pytest.approx(600.0, rel=0.01)
    assert bounds_of(*SEEN[:-1]).rules_out(timed(2.0), GpuSetting(), IDLE, held(BEST)) is None, "too few seen"
    assert bounds_of(*SEEN).rules_out(timed(1.02), GpuSetting(), IDLE, held(BEST)) is None, "too close"


@pytest.mark.parametrize(
    ("held_w", "seconds", "more"),
    [((500.0,), 2.0, False), ((500.0, 510.0), 1.05, True), ((500.0, 510.0), 1.02, False)],
)
def test_a_trial_at_the_limit_draws_what_others_draw_there(
    held_w: tuple[float, ...], seconds: float, more: bool
) -> None:
    """In its time at the least power of two trials that were held back: clearly above 500 J, or not."""
    bounds = JouleBounds()
    for watts in held_w:
        bounds.add_held(GpuSetting(), spent(1.0, watts))

    assert bounds.costs_more_when_held(timed(seconds), GpuSetting(), held(BEST)) == more
    assert not bounds.costs_more_when_held(timed(seconds), GpuSetting(900), held(BEST)), "another clock"


def test_bounds_are_those_of_a_clock() -> None:
    """What was seen at one clock says nothing of another."""
    assert bounds_of(*SEEN, clock_mhz=900).rules_out(timed(2.0), GpuSetting(800), IDLE, held(BEST)) is None


def test_products_are_bounded_by_their_time_too() -> None:
    """The bound of a product of joules and time has the time in it."""
    product = Objective("edp")
    near = timed(1.15)

    assert bounds_of(*SEEN).rules_out(near, GpuSetting(), IDLE, held(BEST, product)) is not None
    assert bounds_of(*SEEN).rules_out(timed(0.9), GpuSetting(), IDLE, held(BEST, product)) is None


def test_a_short_window_that_reads_too_long_spares_nobody() -> None:
    """A trial like the best one is no worse because its time is of a few milliseconds."""
    squared = Objective("ed2p")

    assert (
        bounds_of(*SEEN).rules_out(timed(1.0 + SHORT_EXCESS), GpuSetting(), IDLE, held(BEST, squared)) is None
    )
    assert bounds_of(*SEEN).rules_out(timed(1.2), GpuSetting(), IDLE, held(BEST, squared)) is not None


@given(st.floats(1.0, 50.0), st.floats(1.0, 5.0), st.sampled_from(["energy", "edp", "ed2p"]))
def test_an_estimate_never_looks_better_than_the_best(seconds: float, longer: float, name: str) -> None:
    """What a policy hears of a spared trial is above the best cost, and a slower trial is spared as well."""
    objective, bounds = Objective(name), bounds_of(*SEEN)
    found = bounds.rules_out(timed(seconds), GpuSetting(), IDLE, held(BEST, objective))
    if found is None:
        return
    told = replace(timed(seconds), estimated_j=found.estimate_j)

    assert objective.cost(told) > objective.cost(BEST)
    assert objective.known(told) == float("inf")
    assert bounds.rules_out(timed(seconds * longer), GpuSetting(), IDLE, held(BEST, objective)) is not None


def test_a_brief_window_tells_who_is_clearly_worse() -> None:
    """Ten percent are clear of 1 % of noise, two are not, and what spoilt a window proves nothing."""
    worse = spent(1.0, 550.0, unsure=0.01)
    capped = replace(worse, flags=(Flag(FlagKind.THROTTLED, "sw-power-cap"),))

    assert is_clearly_worse(worse, held(BEST))
    assert not is_clearly_worse(spent(1.0, 510.0, unsure=0.01), held(BEST))
    assert not is_clearly_worse(capped, held(BEST))
    assert not is_clearly_worse(timed(9.0), held(BEST)), "no joules, no verdict"
