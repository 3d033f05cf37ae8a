"""A race ends a trial that is clearly worse in time or joules, by windows that are fit to tell."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measurement.base import ComparisonTarget
from tuner.measurement.race import (
    ASSUMED_REPEATABILITY,
    ERROR,
    LEAST_TRIALS,
    RUNGS_S,
    SHORT_EXCESS,
    JouleBounds,
    Race,
    clearly_higher,
    is_clearly_worse,
)
from tuner.model.objective import Objective
from tuner.model.trial import (
    Energy,
    Flag,
    FlagKind,
    GpuSetting,
    Measurement,
    Part,
    Status,
    Trial,
    WorkloadResult,
)

TIME = Objective("time")
BEST, OTHER = Trial((), 1), Trial((), 2)
THROTTLED = (Flag(FlagKind.THROTTLED, "sw-power-cap"),)


def window(makespan_s: float, unsure: float = 1e-4, **fields: object) -> Measurement:
    """A window, its uncertainty relative to the makespan."""
    results = (WorkloadResult(Status.OK, makespan_s),)
    return Measurement(results, makespan_s, makespan_uncertainty_s=unsure * makespan_s, **fields)  # type: ignore[arg-type]


def target(best: Measurement, measured: int = 1) -> ComparisonTarget:
    return ComparisonTarget(TIME, (BEST, best), measured)


def race_of(*rungs: Measurement) -> Race:
    race = Race()
    race.add(BEST, rungs)
    return race


@given(
    st.floats(0.0, 0.1), st.floats(0.0, 0.1), st.floats(1e-5, 0.05), st.integers(1, 10**6), st.integers(1, 99)
)
def test_more_difference_is_never_less_clear(
    difference: float, more: float, deviation: float, measured: int, degrees: int
) -> None:
    """What is clearly higher stays so where it is higher still, with fewer rivals, and with less noise."""
    parts = [Part(deviation**2, degrees)]
    if clearly_higher(difference, parts, measured):
        assert clearly_higher(difference + more, parts, measured)
        assert clearly_higher(difference, parts, max(1, measured // 2))
        assert clearly_higher(difference, [Part(deviation**2 / 2, degrees)], measured)
        assert difference > 0


@pytest.mark.parametrize("degrees", [3.0, 7.0, None])
@pytest.mark.parametrize("rivals", [1, 20])
def test_the_error_of_one_test(degrees: float | None, rivals: int) -> None:
    """Against the lowest of so many rivals of the same time, one test errs in a fourth of 5 % at most."""
    draw = random.Random(3)  # noqa: S311 - noise, no secret

    def estimate() -> tuple[float, float]:
        """A value of deviation 1 %, and the variance that is estimated of it."""
        if degrees is None:
            return draw.gauss(0.0, 0.01), 1e-4
        return draw.gauss(0.0, 0.01), 1e-4 * draw.gammavariate(degrees / 2, 2) / degrees

    def errs() -> bool:
        trial, best = estimate(), min(estimate() for _ in range(rivals))
        parts = [Part(variance, degrees) for _, variance in (trial, best)]
        return clearly_higher(trial[0] - best[0], parts, rivals)

    races = 4000
    errors = sum(errs() for _ in range(races))
    allowed = races * ERROR / (len(RUNGS_S) + 1)
    assert errors <= allowed + 3 * math.sqrt(allowed)


def test_a_trial_that_is_clearly_worse_has_lost() -> None:
    """Three percent are clear of a repeatability of 0.2 %, three thousandths are not."""
    race, held = race_of(window(1e-4)), target(window(1e-4))

    assert race.lost([window(1.03e-4)], held)
    assert not race.lost([window(1.003e-4)], held)
    assert not race.lost([window(0.9e-4)], held)
    assert not race.lost([window(1.03e-4, unsure=0.02)], held), "too noisy to tell"


def test_the_first_trial_cannot_lose() -> None:
    """Without a best trial there is nothing to lose against, and every rung is taken."""
    race, alone = Race(), ComparisonTarget(TIME, None, 0)

    assert not race.lost([window(1e-4)], alone)
    assert race.tells_more([window(1e-4)], alone)


@pytest.mark.parametrize("kind", [FlagKind.THROTTLED, FlagKind.OFF_CLOCK, FlagKind.UNSTEADY])
def test_a_spoilt_window_is_no_proof(kind: FlagKind) -> None:
    """A GPU that was held back throws nobody away, unless the best trial's was held back too."""
    spoilt = window(1.3e-4, flags=(Flag(kind, "a test"),))

    assert not race_of(window(1e-4)).lost([spoilt], target(window(1e-4)))
    assert race_of(window(1e-4)).tells_more([spoilt], target(window(1e-4)))
    alike = replace(spoilt, makespan_s=1e-4)
    assert race_of(alike).lost([spoilt], target(alike))


def test_windows_of_one_look_are_held_against_each_other() -> None:
    """A GPU that is slow in its first milliseconds is so for all: the short window meets the short one."""
    slow, fast = window(1.05e-4), window(1e-4)
    race = race_of(slow, fast, fast)

    assert not race.lost([window(1.051e-4)], target(fast))
    assert race.lost([window(1.051e-4), window(1.051e-4)], target(fast))


def test_a_best_trial_of_an_earlier_process_has_one_window() -> None:
    """A resumed run knows no rungs of it: what is stored is taken for all, and may be a longer window."""
    stored = replace(window(1e-4), window_s=RUNGS_S[-1])

    assert Race().lost([replace(window(1.05e-4), window_s=RUNGS_S[0])], target(stored))
    assert not Race().lost([replace(window(1.02e-4), window_s=RUNGS_S[0])], target(stored))
    assert Race().lost([replace(window(1.02e-4), window_s=RUNGS_S[-1])], target(stored))


def test_an_uncertainty_that_is_not_known_proves_nothing() -> None:
    """One block has no scatter; a model without noise has none either."""
    certain = window(2e-4, unsure=0.0)

    assert not race_of(window(1e-4)).lost([certain], target(window(1e-4)))
    assert race_of(window(1e-4)).lost([replace(certain, modelled=True)], target(window(1e-4)))


def test_longer_windows_are_taken_where_they_tell_more() -> None:
    """With little scatter within a window, only what is between windows is left, and length is no help."""
    race, held = race_of(window(1e-4)), target(window(1e-4))

    assert race.tells_more([window(1e-4, unsure=0.01)], held)
    assert not race.tells_more([window(1e-4, unsure=1e-5)], held)


def test_short_windows_are_held_against_short_ones_only() -> None:
    """A new best takes two rungs, which others are held against; a co-run, which reads longest, all."""
    race, held = race_of(window(1e-4)), target(window(1e-4))
    lower, alike = window(0.999e-4, unsure=1e-5), window(1.001e-4, unsure=1e-5)

    assert race.tells_more([lower], held)
    assert not race.tells_more([lower, lower], held)
    assert not race.tells_more([alike], held)
    assert race.tells_more([replace(alike, results=2 * alike.results)], held)


def scattered(race: Race, deviation: float, trials: int = 40) -> Race:
    """A race that has seen rungs which scatter so, beside a step that is common to all."""
    draw = random.Random(1)  # noqa: S311 - as above

    def rungs() -> Sequence[Measurement]:
        return [window(step * math.exp(draw.gauss(0.0, deviation))) for step in (1.05, 1.0, 1.0)]

    for number in range(trials):
        race.add(Trial((), 100 + number), rungs())
    return race


def test_a_runs_own_scatter_is_learnt() -> None:
    """Looks that scatter by more than is assumed widen the test; less does not narrow it, nor a step."""
    held = target(window(1e-4))
    quiet, loud = scattered(race_of(window(1e-4)), 1e-4), scattered(race_of(window(1e-4)), 0.01)

    assert quiet.lost([window(1.02e-4)], held)
    assert not loud.lost([window(1.02e-4)], held)
    assert quiet.honest(window(1.0, unsure=0.0)) == pytest.approx(ASSUMED_REPEATABILITY)
    assert loud.honest(window(1.0, unsure=0.0)) == pytest.approx(0.01, rel=0.2)


@pytest.mark.parametrize(
    ("deviation", "unsure", "excess", "lost"),
    [
        pytest.param(None, 1e-3, 1.03, False, id="nothing is known yet: 1 % is assumed"),
        pytest.param(0.002, 1e-3, 1.03, True, id="the run has shown 0.2 %"),
        pytest.param(0.002, 1e-3, 1.005, False, id="what the run has shown does not tell them apart"),
        pytest.param(0.002, 0.05, 1.03, False, id="its own rounds scatter far more"),
        pytest.param(0.02, 1e-3, 1.06, False, id="single rounds of this run scatter by 2 %"),
    ],
)
def test_the_scatter_of_single_rounds_is_learnt(
    deviation: float | None, unsure: float, excess: float, *, lost: bool
) -> None:
    """Single rounds that agree with the windows behind them tell smaller differences, others larger ones."""
    race, draw = Race(), random.Random(2)  # noqa: S311 - as above
    race.add_singles(BEST, window(1e-4, unsure=1e-3))
    for number in range(40 if deviation is not None else 0):
        race.add_singles(Trial((), 100 + number), window(math.exp(draw.gauss(0.01, deviation or 0.0))))
        race.add(Trial((), 100 + number), [window(1.0)])

    held = target(window(1e-4), 40)
    assert race.lost_in_singles(window(excess * 1e-4, unsure=unsure), held) is lost


def test_spoilt_looks_teach_nothing() -> None:
    """A window of a GPU that was held back says nothing of how windows repeat."""
    race = Race()
    for number in range(40):
        race.add(Trial((), number), [window(1.0), window(1.0 + number / 10, flags=THROTTLED)])

    assert race.honest(window(1.0, unsure=0.0)) == pytest.approx(ASSUMED_REPEATABILITY)


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


BEST_SPENT = spent(1.0, 500.0)
SEEN = [BEST_SPENT, *(spent(1.0 + 0.1 * n, 520.0) for n in range(LEAST_TRIALS - 1))]


def test_idle_power_alone_rules_out() -> None:
    """At 100 W idle, six seconds are more than 500 J, whatever the kernel does: certain after one trial."""
    found = bounds_of(BEST_SPENT).rules_out(timed(6.0), GpuSetting(), IDLE, held(BEST_SPENT))

    assert found is not None
    assert found.certain
    assert 500.0 < found.least_j <= 600.0
    assert found.estimate_j == pytest.approx(3000.0), "at the power seen so far"
    assert bounds_of(BEST_SPENT).rules_out(timed(4.0), GpuSetting(), IDLE, held(BEST_SPENT)) is None


def test_the_lowest_net_energy_may_be_of_another_gpu() -> None:
    """A pool's GPU that has measured less than 400 J net lowers the bound of all others."""
    elsewhere = Energy(250.0, 0.0, 400.0, "fake-counter", "gpu")
    target = replace(held(BEST_SPENT), elsewhere=(elsewhere,))

    assert bounds_of(*SEEN).rules_out(timed(2.0), GpuSetting(), IDLE, target) is None


def test_the_lowest_net_energy_rules_out() -> None:
    """Net of idle the best took 400 J: two seconds spend 200 J idle and, plausibly, no less than that."""
    found = bounds_of(*SEEN).rules_out(timed(2.0), GpuSetting(), IDLE, held(BEST_SPENT))

    assert found is not None
    assert not found.certain
    assert found.least_j == pytest.approx(600.0, rel=0.01)
    assert bounds_of(*SEEN[:-1]).rules_out(timed(2.0), GpuSetting(), IDLE, held(BEST_SPENT)) is None, (
        "too few seen"
    )
    assert bounds_of(*SEEN).rules_out(timed(1.02), GpuSetting(), IDLE, held(BEST_SPENT)) is None, "too close"


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

    assert bounds.costs_more_when_held(timed(seconds), GpuSetting(), held(BEST_SPENT)) == more
    assert not bounds.costs_more_when_held(timed(seconds), GpuSetting(900), held(BEST_SPENT)), "another clock"


def test_bounds_are_those_of_a_clock() -> None:
    """What was seen at one clock says nothing of another."""
    assert (
        bounds_of(*SEEN, clock_mhz=900).rules_out(timed(2.0), GpuSetting(800), IDLE, held(BEST_SPENT)) is None
    )


def test_products_are_bounded_by_their_time_too() -> None:
    """The bound of a product of joules and time has the time in it."""
    product = Objective("edp")
    near = timed(1.15)

    assert bounds_of(*SEEN).rules_out(near, GpuSetting(), IDLE, held(BEST_SPENT, product)) is not None
    assert bounds_of(*SEEN).rules_out(timed(0.9), GpuSetting(), IDLE, held(BEST_SPENT, product)) is None


def test_a_short_window_that_reads_too_long_spares_nobody() -> None:
    """A trial like the best one is no worse because its time is of a few milliseconds."""
    squared = Objective("ed2p")

    assert (
        bounds_of(*SEEN).rules_out(timed(1.0 + SHORT_EXCESS), GpuSetting(), IDLE, held(BEST_SPENT, squared))
        is None
    )
    assert bounds_of(*SEEN).rules_out(timed(1.2), GpuSetting(), IDLE, held(BEST_SPENT, squared)) is not None


@given(st.floats(1.0, 50.0), st.floats(1.0, 5.0), st.sampled_from(["energy", "edp", "ed2p"]))
def test_an_estimate_never_looks_better_than_the_best(seconds: float, longer: float, name: str) -> None:
    """What a policy hears of a spared trial is above the best cost, and a slower trial is spared as well."""
    objective, bounds = Objective(name), bounds_of(*SEEN)
    found = bounds.rules_out(timed(seconds), GpuSetting(), IDLE, held(BEST_SPENT, objective))
    if found is None:
        return
    told = replace(timed(seconds), estimated_j=found.estimate_j)

    assert objective.cost(told) > objective.cost(BEST_SPENT)
    assert objective.known(told) == float("inf")
    assert (
        bounds.rules_out(timed(seconds * longer), GpuSetting(), IDLE, held(BEST_SPENT, objective)) is not None
    )


def test_a_brief_window_tells_who_is_clearly_worse() -> None:
    """Ten percent are clear of 1 % of noise, two are not, and what spoilt a window proves nothing."""
    worse = spent(1.0, 550.0, unsure=0.01)
    capped = replace(worse, flags=(Flag(FlagKind.THROTTLED, "sw-power-cap"),))

    assert is_clearly_worse(worse, held(BEST_SPENT))
    assert not is_clearly_worse(spent(1.0, 510.0, unsure=0.01), held(BEST_SPENT))
    assert not is_clearly_worse(capped, held(BEST_SPENT))
    assert not is_clearly_worse(timed(9.0), held(BEST_SPENT)), "no joules, no verdict"
