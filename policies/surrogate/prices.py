"""What measuring a trial takes, learnt beside what it gives: compiling, checking, its windows."""

import numpy as np

from .encoding import Floats

LEAST = 8  # trials whose seconds are known before anything is said
EXPLAINED = 0.25  # share of the variance that has to be predicted of trials left out: seconds may be chance
RIDGE = 0.3  # penalty of a squared coefficient; a feature spans one, and effects are some tenths


class TrialPrices:
    """Seconds of trials: a ridge regression of their logarithms on features.

    A trial's seconds are those from the end of the one before it to its own end. Where the clock does not go
    forward, as in recordings whose trials are asked for in another order, nothing is learnt any more.
    """

    def __init__(self) -> None:
        self._x: list[Floats] = []
        self._logs: list[float] = []
        self._ended_s = 0.0
        self._goes_forward = True
        self._fitted = 0  # trials that the coefficients are of
        self._coefficients: Floats | None = None

    def learn(self, x: Floats, ended_s: float) -> None:
        """Take in a trial; trials come in the order they were measured.

        Args:
            x: features, shape (features,).
            ended_s: when it had ended; 0 where that is not known.
        """
        before_s, self._ended_s = self._ended_s, ended_s
        if before_s <= 0.0:  # the first of all pays for what is made once, too
            return
        self._goes_forward = self._goes_forward and ended_s > before_s
        if self._goes_forward:
            self._x.append(x)
            self._logs.append(float(np.log(ended_s - before_s)))

    def of(self, x: Floats) -> Floats:
        """Logarithms of seconds, up to a constant; zeros where nothing is known.

        Args:
            x: features, shape (n, features); further columns are left out.
        """
        if not self._goes_forward or len(self._logs) < LEAST:
            return np.zeros(len(x))
        if self._fitted != len(self._logs):
            self._fit()
        if self._coefficients is None:
            return np.zeros(len(x))
        return np.asarray(x[:, : len(self._coefficients)] @ self._coefficients)

    def _fit(self) -> None:
        """Regress, and keep that where it predicts trials left out (Allen, 1974: the PRESS statistic)."""
        x, y = np.stack(self._x), np.array(self._logs)
        x, y = x - x.mean(axis=0), y - y.mean()
        inverse = np.linalg.inv(x.T @ x + RIDGE * np.eye(x.shape[1]))
        coefficients = inverse @ (x.T @ y)
        leverage = np.einsum("ij,jk,ik->i", x, inverse, x) + 1.0 / len(y)
        left_out = (y - x @ coefficients) / np.maximum(1.0 - leverage, 1.0 / len(y))
        explains = float(left_out @ left_out) < (1.0 - EXPLAINED) * float(y @ y)
        self._coefficients = coefficients if explains else None
        self._fitted = len(y)
