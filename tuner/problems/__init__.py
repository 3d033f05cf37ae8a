"""Problems: random inputs, float64 references and whole-array checks of the catalogue's operations.

Everything takes the namespace of its arrays (``numpy`` or ``cupy``) and keeps temporaries small beside them.
Comparisons are written so that NaN fails.
"""

from tuner.errors import UnknownNameError
from tuner.model import ProblemSpec
from tuner.problems.base import Deviation, Problem, poison, sample_rows, take_rows
from tuner.problems.fft import Fft
from tuner.problems.generic import Consistent, Elementwise
from tuner.problems.scan import Scan
from tuner.problems.tridiagonal import Tridiagonal

__all__ = ["NAMES", "Deviation", "Problem", "poison", "problem_for", "sample_rows", "take_rows"]

_PROBLEMS: dict[str, type[Problem]] = {
    "scan": Scan,
    "tridiagonal": Tridiagonal,
    "fft": Fft,
    "expression": Elementwise,
    "consistent": Consistent,
}

NAMES = tuple(_PROBLEMS)
"""Names a kernel file may give under ``[problem]``."""


def problem_for(spec: ProblemSpec) -> Problem:
    """The problem a kernel file asks for.

    Raises:
        UnknownNameError: there is no problem of that name; the message lists those there are.
    """
    try:
        return _PROBLEMS[spec.name](spec)
    except KeyError:
        raise UnknownNameError(f"unknown problem {spec.name!r}; choose from {', '.join(NAMES)}") from None
