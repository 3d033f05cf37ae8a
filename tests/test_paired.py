"""Contenders measured in repeat: ratios without drift, ties, quantiles, and how well trials repeat."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import fdtri, stdtr, stdtrit

from tuner.measurement.paired import (
    ASSUMED_REPEATABILITY,
    RATIO_DRIFT,
    PairedRepeats,
    repeatability,
)
from tuner.model.distributions import fisher_quantile, student_below, student_quantile
from tuner.model.objective import COVERAGE, Objective
from tuner.model.plan import Configuration
from tuner.model.trial import Energy, Measurement, Part, Status, Trial, WorkloadResult

ENERGY = Objective("energy")
A, B, C = (Trial((Configuration({"i": number}),)) for number in range(3))
FAILED = Measurement((WorkloadResult(Status.TIMEOUT),))


def measured(joules: float, u_j: float = 0.0, time_s: float = 1.0) -> Measurement:
    energy = Energy(joules, u_j, joules / time_s, "s", "gpu")
    return Measurement((WorkloadResult(Status.OK, time_s),), time_s, energy=energy)


def paired_of(*paired: Sequence[float | Measurement | None], u_j: float = 0.0) -> PairedRepeats:
    """PairedRepeats of trials A, B, C; None where one is not in a repeat."""
    made = [
        {
            trial: one if isinstance(one, Measurement) else measured(one, u_j)
            for trial, one in zip((A, B, C), repeat, strict=False)
            if one is not None
        }
        for repeat in paired
    ]
    return PairedRepeats(tuple(made))


@given(
    st.lists(st.floats(0.5, 2.0), min_size=1, max_size=9),
    st.floats(0.01, 1e3),
    st.floats(0.01, 1e3),
)
def test_what_a_repeat_shares_is_in_no_ratio(drift: list[float], a: float, b: float) -> None:
    """However power drifts between repeats, the ratio of two trials is exactly that of their joules."""
    ratio = paired_of(*([factor * a, factor * b] for factor in drift)).ratio(A, B, ENERGY)

    assert ratio is not None
    assert ratio.value == pytest.approx(a / b)
    assert ratio.turns_interval == pytest.approx(0.0, abs=1e-9 * a / b)
    assert ratio.interval == pytest.approx(COVERAGE * RATIO_DRIFT * a / b), "what minutes may change"


def test_a_ratio_scatters_by_what_turns_do_not_share() -> None:
    """Ratios 0.98, 1.00, 1.02 of three paired: standard error 0.02 / sqrt(3), and Student's 4.303."""
    ratio = paired_of([0.98, 1.0], [2.0, 2.0], [1.02, 1.0]).ratio(A, B, ENERGY)

    assert ratio is not None
    assert ratio.value == pytest.approx(1.0)
    assert ratio.interval == ratio.turns_interval == pytest.approx(4.3027 * 0.02 / 3**0.5, rel=1e-3)


def test_a_ratio_is_no_surer_than_its_repeats() -> None:
    """Bursts that agree by chance keep their own uncertainties, those of both, over the paired."""
    ratio = paired_of(*[[1.0, 2.0]] * 4, u_j=0.01).ratio(A, B, ENERGY)

    assert ratio is not None
    assert ratio.turns_interval == pytest.approx(COVERAGE * 0.5 * math.hypot(0.01, 0.005) / 2.0, rel=1e-6)
    joint = math.hypot(ratio.turns_interval, COVERAGE * 0.5 * RATIO_DRIFT)
    assert ratio.interval == pytest.approx(joint, rel=1e-6)


@pytest.mark.parametrize("scatter", [0.005, 0.01, 0.02])
def test_an_assumed_scatter_is_no_surer_than_what_turns_show(scatter: float) -> None:
    """A program that repeats to 2 % in joules is not held to the 0.5 % that are assumed; else 0.85 hold."""
    chance, assumed = random.Random(5), Part(2.0 * ASSUMED_REPEATABILITY**2)  # noqa: S311 - no secrets
    held = []
    for _ in range(400):
        turns = [[1.0 + chance.gauss(0.0, scatter) for _ in range(2)] for _ in range(3)]
        ratio = replace(paired_of(*turns), assumed=assumed).ratio(A, B, ENERGY)
        assert ratio is not None
        held.append(abs(ratio.value - 1.0) <= ratio.interval)

    assert sum(held) > 0.9 * len(held)


def test_only_turns_with_both_are_compared() -> None:
    """A repeat in which one was not measured, or failed, says nothing of the two."""
    paired = paired_of([1.0, 2.0], [None, 7.0], [FAILED, 2.0], [3.0, 6.0])
    ratio = paired.ratio(A, B, ENERGY)

    assert ratio is not None
    assert ratio.value == pytest.approx(0.5)
    assert paired.ratio(A, C, ENERGY) is None
    assert paired.joined()[B].repeats == 4


@pytest.mark.parametrize(
    ("paired", "rivals"),
    [
        (paired_of([1.0, 1.5], [1.1, 1.6], [1.2, 1.7]), [A]),
        (paired_of([1.0, 1.001, 1.5], [1.02, 1.01, 1.6], [0.97, 0.98, 1.6]), [A, B]),
        (paired_of([1.5, 1.0], [1.6, 1.1], [FAILED, 1.1]), [B]),
        (paired_of([FAILED], [FAILED]), []),
        (PairedRepeats(), []),
    ],
)
def test_rivals_may_cost_least(paired: PairedRepeats, rivals: list[Trial]) -> None:
    """The lowest comes first, then those whose ratio to it may be one or less; failed ones are none."""
    assert list(paired.rivals(ENERGY)) == rivals


def test_joules_within_the_precision_tie_however_sure_they_are() -> None:
    """B costs 2 % more for sure, C 2 % more or less: to 3 % both cost what A does, to 0.1 % neither."""
    sure, unsure = [1.02, 1.0201, 1.0199], [1.018, 1.023, 1.019]
    paired = paired_of(*([1.0, b, c] for b, c in zip(sure, unsure, strict=True)))

    assert set(paired.tied(ENERGY, 0.03)) == {A, B, C}
    assert list(paired.tied(ENERGY, 0.001)) == [A]
    assert paired.tied(Objective("time"), 0.01) == paired.rivals(Objective("time"))


def test_how_ratios_scatter_is_learnt_from_all_contenders() -> None:
    """A pair that agreed by chance in its turns is known no better than the others, nor one that did not."""
    turns = [[1.0, 2.0, 3.006], [1.0, 2.0, 2.994], [1.004, 2.0, 3.0], [0.996, 2.0, 3.0]]
    paired = paired_of(*turns)
    pairs = [paired.ratio(*pair, ENERGY) for pair in ((A, B), (A, C), (B, C))]

    intervals = [ratio.turns_interval / ratio.value for ratio in pairs if ratio is not None]
    assert len(intervals) == 3
    assert intervals == pytest.approx([intervals[0]] * 3, rel=1e-3)


def test_a_limit_is_one_of_the_whole() -> None:
    """A trial over the limit of --max-slowdown is no rival; one that is over it in a single repeat may be."""
    slow, mixed = [measured(1.0, time_s=2.0)] * 3, [measured(1.1, time_s=t) for t in (1.0, 1.08, 1.0)]
    paired = PairedRepeats(tuple({A: a, B: b} for a, b in zip(slow, mixed, strict=True)))
    rivals = paired.rivals(Objective("energy", limit_s=1.05))

    assert list(rivals) == [B]


@pytest.mark.parametrize(
    ("paired", "undecided"),
    [
        (paired_of([1.0, 1.001], [1.02, 1.04], [0.97, 0.98]), [A, B]),  # a tie, known to 2 %
        (paired_of([1.0, 1.0001], [1.02, 1.0199], [0.97, 0.9701]), []),  # a tie, known to 0.03 %
        (paired_of([1.0, 1.3], [1.0, 1.4], [1.0, 1.2]), []),  # known to 25 %, and surely not the lowest
        (paired_of([1.0], [1.1], [0.9]), []),
        (PairedRepeats(), []),
    ],
)
def test_more_repeats_are_for_what_they_may_decide(paired: PairedRepeats, undecided: list[Trial]) -> None:
    """Contenders known to 1 % against the lowest, or surely above it, are not measured any further."""
    assert paired.undecided(ENERGY, 0.01) == undecided


def test_repeatability_is_learnt_from_what_was_measured_twice() -> None:
    """Three contenders that differ from the search by +1, -1, +1 %: 1 % and Student's 3.18."""
    paired = paired_of([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    searched = {A: measured(1.01), B: measured(1.98), C: measured(3.03)}
    found = repeatability(searched, paired, ENERGY)

    assert found is not None
    assert found.interval == pytest.approx(0.01 * 3.1824, rel=1e-3)
    assert found.trials == 3
    time = repeatability(searched, paired, Objective("time"))
    assert time is not None
    assert time.interval == 0.0


def test_two_contenders_tell_nothing_of_repeating() -> None:
    """Of fewer than three that did not fail no repeatability is stated."""
    paired = paired_of([1.0, 2.0, FAILED])

    assert repeatability({A: measured(1.0), B: measured(2.0), C: measured(3.0)}, paired, ENERGY) is None
    assert repeatability({}, PairedRepeats(), ENERGY) is None


DEGREES = (0.3, 1.0, 1.5, 2.0, 4.0, 7.7, 30.0, 500.0, 999.0, 1000.0, 1e6)
SHARES = (1e-6, 1e-4, 0.02, 0.4, 0.5, 0.975, 0.999)
CLOSE = 3e-9


@pytest.mark.parametrize("degrees", DEGREES)
def test_students_distribution_is_that_of_scipy(degrees: float) -> None:
    """Quantiles and shares agree with SciPy's for few and for many degrees of freedom."""
    for share in SHARES:
        assert student_quantile(degrees, share) == pytest.approx(
            stdtrit(degrees, share), rel=CLOSE, abs=1e-12
        )
    for t in (-30.0, -1.0, 0.0, 0.1, 10.0):
        assert student_below(degrees, t) == pytest.approx(stdtr(degrees, t), rel=CLOSE)


@pytest.mark.parametrize("above", DEGREES)
def test_fishers_distribution_is_that_of_scipy(above: float) -> None:
    """Quantiles agree with SciPy's for every pair of degrees of freedom that a search may have."""
    for below in DEGREES[1:]:
        for share in (0.02, 0.4, 0.6, 0.98):
            expected = pytest.approx(fdtri(above, below, share), rel=CLOSE)
            assert fisher_quantile(above, below, share) == expected, (above, below, share)


def test_a_share_of_nothing_lies_below_zero() -> None:
    """Fisher's distribution begins at zero."""
    assert fisher_quantile(3.0, 7.0, 0.0) == 0.0
