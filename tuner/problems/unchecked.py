"""A problem of which nothing is known: every answer counts as right."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tuner.model.plan import Buffer
from tuner.problems.arrays import Arrays, Namespace
from tuner.problems.base import Deviation
from tuner.problems.generic import Generic


class UncheckedProblem(Generic):
    """Answers are not compared, as configurations may compute different things, or the caller judges them.

    A run that writes outside of its arrays fails all the same.
    """

    judged: ClassVar[bool] = False

    def validate(self, buffers: Sequence[Buffer]) -> None:
        """See ``Problem.validate``: all buffers are taken."""

    def compare(self, inputs_rows: Arrays, outputs_rows: Arrays, sizes: Mapping[str, Any]) -> Deviation:
        """See ``Problem.compare``."""
        del inputs_rows, outputs_rows, sizes
        return Deviation(0.0, 0.0, "not compared", 0)

    def residual(self, xp: Namespace, inputs: Arrays, outputs: Arrays, sizes: Mapping[str, Any]) -> Deviation:
        """See ``Problem.residual``."""
        del xp
        return self.compare(inputs, outputs, sizes)
