"""Quantiles of Student's and Fisher's distributions, held against SciPy's."""

import pytest
from scipy.special import fdtri, stdtr, stdtrit

from tuner.model.distributions import fisher_quantile, student_below, student_quantile

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
