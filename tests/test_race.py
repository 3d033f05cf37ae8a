"""A race ends a trial that is clearly worse, by windows that are fit to tell, and rarely the best one."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measurement.base import ComparisonTarget
from tuner.measurement.race import ASSUMED_REPEATABILITY, ERROR, RUNGS_S, Race, clearly_higher
from tuner.model.objective import Objective
from tuner.model.trial import Flag, FlagKind, Measurement, Part, Status, Trial, WorkloadResult

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
