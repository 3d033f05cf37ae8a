"""A curve through few points: physical forms, and a Gaussian process for what they leave out.

Each form is linear in coefficients that are not negative, once its other constants are chosen. These lie on a
grid, and every form of the grid is fitted. What a form cannot describe is a smooth relative discrepancy with
a correlation length in the logarithm of the argument (universal kriging). Forms and sizes of the discrepancy
are averaged by their likelihoods, so that what the points do not decide becomes uncertainty.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LENGTH = 0.35
"""Correlation length of the discrepancy, in the natural logarithm of the argument."""

_NEGLIGIBLE = 1e-2  # of the likelihood of the best fit: forms below it are left out
_RIDGE = 1e-9  # of the diagonal of the information, where two columns are the same


@dataclass(frozen=True)
class CurveForm:
    """A curve ``y`` with ``y ** exponent == columns(x) @ coefficients``, coefficients at least 0.

    Attributes:
        columns: of arguments, shape (n,): shape (n, coefficients).
        exponent: of the value.
    """

    columns: Callable[[Floats], Floats]
    exponent: float = 1.0


@dataclass(frozen=True)
class _Fit:
    """One form with one size of the discrepancy."""

    form: CurveForm
    deviation: float
    coefficients: Floats
    white: Floats
    inverse: Floats
    residuals: Floats
    gradients: Floats
    log_likelihood: float

    @cached_property
    def covariance(self) -> Floats:
        """Of the coefficients; those that are zero are taken to be known."""
        active = self.coefficients > 0.0
        information = self.white[:, active].T @ self.white[:, active]
        information += _RIDGE * np.diag(np.diag(information))
        full = np.zeros((len(active), len(active)))
        full[np.ix_(active, active)] = np.linalg.inv(information)
        return full


class Curve:
    """Forms fitted to points.

    Args:
        forms: to choose from.
        x: arguments, shape (n,), above 0, two different ones at least.
        values: shape (n,), above 0.
        relative: their relative standard uncertainties, shape (n,).
        deviations: relative standard deviations that the discrepancy may have.
    """

    def __init__(
        self,
        forms: Sequence[CurveForm],
        x: Floats,
        values: Floats,
        relative: Floats,
        *,
        deviations: Sequence[float],
    ) -> None:
        self._x, self._scale = x, float(np.max(values))
        y = values / self._scale
        known = [(form, form.columns(x)) for form in forms]
        fits = [
            fit
            for deviation in deviations
            for fit in self._fits(known, y, _kernel(x, x, deviation) + np.diag(relative**2), deviation)
        ]
        highest = max(fit.log_likelihood for fit in fits)
        self._fits_kept = [fit for fit in fits if fit.log_likelihood - highest > math.log(_NEGLIGIBLE)]
        weights = np.array([math.exp(fit.log_likelihood - highest) for fit in self._fits_kept])
        self._weights = weights / weights.sum()

    def at(self, x: Floats) -> tuple[Floats, Floats]:
        """Values and their relative standard uncertainties at arguments, shape (m,) each."""
        means, variances = zip(*(self._predicted(fit, x) for fit in self._fits_kept), strict=True)
        stacked = np.array(means)
        mean = self._weights @ stacked
        variance = self._weights @ (np.array(variances) + (stacked - mean) ** 2)
        return self._scale * mean, np.sqrt(variance) / mean

    def _fits(
        self, forms: Sequence[tuple[CurveForm, Floats]], y: Floats, covariance: Floats, deviation: float
    ) -> list[_Fit]:
        """Every form, with its columns at the points, for one size of the discrepancy."""
        from scipy.optimize import nnls  # noqa: PLC0415 - imported only where it is used

        root = np.linalg.cholesky(covariance)
        whitening = np.linalg.inv(root)
        inverse = np.asarray(whitening.T @ whitening, dtype=np.float64)
        constant = float(np.log(np.diag(root)).sum())
        found = []
        for form, columns in forms:
            if columns.shape[1] > len(y):
                continue
            scaled = columns / (form.exponent * y**form.exponent)[:, None]
            white = whitening @ scaled
            coefficients, residual = nnls(white, whitening.sum(axis=1) / form.exponent)
            modelled = columns @ coefficients
            if not np.all(modelled > 0.0):
                continue
            found.append(
                _Fit(
                    form,
                    deviation,
                    coefficients,
                    white,
                    inverse,
                    residuals=y / modelled ** (1.0 / form.exponent) - 1.0,
                    gradients=columns / (form.exponent * modelled)[:, None],
                    log_likelihood=-0.5 * residual**2
                    - constant
                    - 0.5 * int(np.count_nonzero(coefficients)) * math.log(len(y)),
                )
            )
        return found

    def _predicted(self, fit: _Fit, x: Floats) -> tuple[Floats, Floats]:
        """Mean and variance by one fit, in the scale of the points, shape (m,) each."""
        columns = fit.form.columns(x)
        power = np.maximum(columns @ fit.coefficients, np.finfo(float).tiny)
        near = _kernel(x, self._x, fit.deviation)
        weights = near @ fit.inverse
        mean = power ** (1.0 / fit.form.exponent) * (1.0 + weights @ fit.residuals)
        left = fit.deviation**2 - (weights * near).sum(axis=1)
        gradient = columns / (fit.form.exponent * power)[:, None] - weights @ fit.gradients
        relative = np.maximum(left, 0.0) + ((gradient @ fit.covariance) * gradient).sum(axis=1)
        return mean, relative * mean**2


def _kernel(x: Floats, other: Floats, deviation: float) -> Floats:
    """Covariance of the relative discrepancy, shape (len(x), len(other))."""
    distance = (np.log(x)[:, None] - np.log(other)[None, :]) / LENGTH
    return np.asarray(deviation**2 * np.exp(-0.5 * distance**2))
